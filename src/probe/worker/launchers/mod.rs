//! The ways to have a worker on each node of a search: a file and a row each.

mod dial;
mod ray;
mod slurm;
mod ssh;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::Token;

/// A way to have workers.
#[derive(Debug)]
pub struct Launcher {
    /// Its name in `[machine]`.
    pub name: &'static str,
    /// What it does, in a phrase.
    pub about: &'static str,
    /// Whether it is used where nobody asks for one.
    pub is_here: fn(&Wanted<'_>) -> bool,
    /// How workers come to be.
    pub start: Start,
}

/// How workers come to be.
#[derive(Debug, Clone, Copy)]
pub enum Start {
    /// By commands whose standard streams are theirs: the nodes, with their commands.
    Streams(Commands),
    /// They dial in at an address with a token.
    Dial(Dialling),
}

/// Makes the commands of all nodes.
pub type Commands = fn(&Wanted<'_>) -> Result<Vec<OnNode>, LauncherError>;

/// Workers, or why there are none.
pub type Called = Result<Box<dyn Workers>, LauncherError>;

/// How workers dial in.
#[derive(Debug, Clone, Copy)]
pub struct Dialling {
    /// Where to listen if nobody says so.
    pub address: fn(&Wanted<'_>) -> Result<String, LauncherError>,
    /// Has workers come.
    pub call: fn(&Wanted<'_>, SocketAddr, &Token) -> Called,
    /// Whether the token must be one that is stated; if not, a fresh one will do.
    pub needs_token_file: bool,
}

/// Workers that somebody else was asked to start. What is left of them ends when this is dropped.
pub trait Workers: Send {
    /// Why none of them will ever come, if that is so.
    fn have_failed(&mut self) -> Option<String>;

    /// Ends what is left of them, and makes sure. Returns what could not be ended.
    fn stop(&mut self) -> Option<String>;
}

/// What workers are started with.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// This program.
    pub gputune: &'w Path,
    /// What it is started as: `worker`, or `relay` for probes that span nodes.
    pub serves: &'static str,
    /// The machines that the spec names.
    pub hosts: &'w [String],
    /// Where the spec says to listen.
    pub listen: Option<&'w str>,
    /// Where a Ray cluster answers, if the spec says so.
    pub ray: Option<&'w str>,
    /// How many workers.
    pub workers: u32,
    /// The GPUs and physical cores that each worker needs, as far as the spec says.
    pub each: (Option<u32>, Option<u32>),
}

/// A node, and the command whose standard streams are those of its worker.
pub type OnNode = (String, Command);

/// Why there are no nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LauncherError {
    reason: String,
    /// What to do about it.
    pub hint: &'static str,
}

/// All launchers. The first that fits is taken where the spec names none.
pub const LAUNCHERS: &[Launcher] = &[
    Launcher {
        name: "dial",
        about: "workers that somebody starts, which dial in at `listen`",
        is_here: |wanted| wanted.listen.is_some(),
        start: dial::START,
    },
    Launcher {
        name: "slurm",
        about: "a worker on each node of the Slurm allocation that gputune runs in, by `srun`",
        is_here: slurm::is_in_large_allocation,
        start: Start::Streams(slurm::commands),
    },
    Launcher {
        name: "ssh",
        about: "a worker on each of `hosts`, by `ssh`",
        is_here: |wanted| !wanted.hosts.is_empty(),
        start: Start::Streams(ssh::commands),
    },
    Launcher {
        name: "ray",
        about: "`workers` jobs on a Ray cluster, which dial in",
        is_here: |_| false,
        start: ray::START,
    },
];
