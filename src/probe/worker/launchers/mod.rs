//! The ways to start a worker on each node of a search. The table [`LAUNCHERS`] lists them.

mod ray;
mod slurm;
mod ssh;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Token, WorkerError};

/// A way to start workers.
#[derive(Debug)]
pub struct Launcher {
    /// Its name in `[machine]`.
    pub name: &'static str,
    /// Its function, in a phrase.
    pub about: &'static str,
    /// Returns true if this launcher is the default here.
    pub is_here: fn(&Wanted<'_>) -> bool,
    /// How workers start.
    pub start: Start,
}

/// How workers start.
#[derive(Debug, Clone, Copy)]
pub enum Start {
    /// A command for each node starts its worker, which talks to gputune by the command's standard streams.
    Streams(Commands),
    /// Workers dial in at an address with a token.
    Dial(Dialling),
}

/// Makes the commands of all nodes.
pub type Commands = fn(&Wanted<'_>) -> Result<Vec<OnNode>, WorkerError>;

/// The workers that a launcher called; `None` if it calls none. The error is the reason why they are missing.
pub type Called = Result<Option<Box<dyn Workers>>, WorkerError>;

/// How workers dial in.
#[derive(Debug, Clone, Copy)]
pub struct Dialling {
    /// Returns the default address to listen on.
    pub address: fn(&Wanted<'_>) -> Result<String, WorkerError>,
    /// Makes workers dial in.
    pub call: fn(&Wanted<'_>, SocketAddr, &Token) -> Called,
    /// True if the token must come from a stated file. Otherwise a fresh token is used.
    pub needs_token_file: bool,
}

/// Workers that another system was asked to start. Dropping this ends the remaining workers.
pub trait Workers: Send {
    /// Returns the reason if no worker will ever dial in.
    fn have_failed(&mut self) -> Option<String>;

    /// Ends the remaining workers and checks that they ended. Returns the workers that could not be ended.
    fn stop(&mut self) -> Option<String>;
}

/// The settings for the start of workers.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// This program.
    pub gputune: &'w Path,
    /// The subcommand of the started program: `worker`, or `relay` for probes that span nodes.
    pub serves: &'static str,
    /// The machines that the spec names.
    pub hosts: &'w [String],
    /// The address to listen on, from the spec.
    pub listen: Option<&'w str>,
    /// The address of a Ray cluster, if the spec has it.
    pub ray: Option<&'w str>,
    /// The number of workers.
    pub workers: u32,
    /// The GPUs and physical cores that each worker needs, if the spec states them.
    pub each: (Option<u32>, Option<u32>),
}

/// A node, and the command whose standard streams its worker uses.
pub type OnNode = (String, Command);

/// All launchers. If the spec names no launcher, the first that fits is used.
pub const LAUNCHERS: &[Launcher] = &[
    Launcher {
        name: "dial",
        about: "workers that you start; they dial in at `listen`",
        is_here: |wanted| wanted.listen.is_some(),
        // Nothing needs to be started. Only this machine can reach the default address.
        start: Start::Dial(Dialling {
            address: |_| Ok("127.0.0.1:0".to_owned()),
            call: |_, _, _| Ok(None),
            needs_token_file: true,
        }),
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
        about: "`workers` jobs on a Ray cluster; they dial in",
        is_here: |_| false,
        start: ray::START,
    },
];

/// Returns the value of an environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Quotes a string as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_word_stays_one() {
        assert_eq!(super::quoted("trap 'rm x' EXIT"), r"'trap '\''rm x'\'' EXIT'");
    }
}
