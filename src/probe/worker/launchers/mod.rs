//! The ways to start a worker on each node of a search: a file and a row each.

mod slurm;
mod ssh;

use std::path::Path;
use std::process::Command;

/// A way to start workers.
#[derive(Debug)]
pub struct Launcher {
    /// Its name in `[machine]`.
    pub name: &'static str,
    /// What it does, in a phrase.
    pub about: &'static str,
    /// Whether it is used where nobody asks for one.
    pub is_here: fn(&Wanted<'_>) -> bool,
    /// The nodes, with their commands.
    pub commands: fn(&Wanted<'_>) -> Result<Vec<OnNode>, LauncherError>,
}

/// What workers are started with.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// This program.
    pub gputune: &'w Path,
    /// The machines that the spec names.
    pub hosts: &'w [String],
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

/// All launchers.
pub const LAUNCHERS: &[Launcher] = &[
    Launcher {
        name: "slurm",
        about: "a worker on each node of the Slurm allocation that gputune runs in, by `srun`",
        is_here: slurm::is_in_large_allocation,
        commands: slurm::commands,
    },
    Launcher {
        name: "ssh",
        about: "a worker on each of `hosts`, by `ssh`",
        is_here: |wanted| !wanted.hosts.is_empty(),
        commands: ssh::commands,
    },
];
