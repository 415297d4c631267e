//! The messages between gputune and a supervisor: one line of JSON each.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::writes::Layout;

/// The first message from gputune to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) command: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: PathBuf,
    pub(super) grace_ms: u64,
    /// Folders to remove at the end, by gputune or, if gputune is gone, by the supervisor. The first has the socket and gputune's
    /// notes on the probe.
    pub(super) to_remove: Vec<PathBuf>,
    /// The mount namespace for the command; `None` for gputune's own namespace.
    pub(super) layout: Option<Layout>,
    /// True if the command is a zygote, whose children have their own supervisors.
    pub(super) is_zygote: bool,
    /// The CPUs that the command may use; empty for the CPUs of gputune.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) processors: Vec<u32>,
}

/// A message from a supervisor to the process that launches the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cover {
    /// As in the order.
    pub(super) layout: Option<Layout>,
    /// As in the order.
    pub(super) is_zygote: bool,
}

/// A message from a supervisor to a process that a zygote forked. It has everything that a new process would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Takeover<'o> {
    /// The interpreter's command line.
    pub(super) arguments: &'o [String],
    /// Environment variables in addition to the inherited ones.
    pub(super) env: &'o BTreeMap<String, String>,
    pub(super) cwd: &'o Path,
    /// The file of the mount namespace to enter.
    pub(super) mounts: Option<PathBuf>,
}

/// A later message: ask all processes to end, then kill them after the grace time or at once. A closed connection means that
/// gputune is gone, and that the supervisor must kill them now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stop {
    pub(super) at_once: bool,
}

/// A message from the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The command runs.
    Started { pid: u32 },
    /// The command could not be started.
    NotStarted { errno: i32, message: String },
    /// The command ended, on its own or on demand; `leftovers` of its processes still exist.
    Ended { ending: Ending, leftovers: usize },
    /// No process is left, except the processes that even SIGKILL did not end.
    Clean { survivors: Vec<u32> },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl Ending {
    pub(super) fn is_success(self) -> bool {
        self == Self::Exited(0)
    }

    /// Returns true if SIGKILL ended the process, or its shell reports that.
    pub(super) fn killed(self) -> bool {
        matches!(self, Self::Signalled(9) | Self::Exited(137))
    }

    /// Returns true if SIGBUS ended the process, as happens on access to a mapped file when the memory behind it is full.
    pub(super) fn is_bus_error(self) -> bool {
        matches!(self, Self::Signalled(7) | Self::Exited(135))
    }

    /// Returns the ending by the signal with this description in glibc (strsignal(3)).
    pub(super) fn by_description(description: &str) -> Option<Self> {
        const DESCRIPTIONS: &[(&str, i32)] = &[
            ("Hangup", 1),
            ("Interrupt", 2),
            ("Illegal instruction", 4),
            ("Aborted", 6),
            ("Bus error", 7),
            ("Floating point exception", 8),
            ("Killed", 9),
            ("Segmentation fault", 11),
            ("Terminated", 15),
        ];
        let (_, signal) = DESCRIPTIONS.iter().find(|(text, _)| *text == description)?;
        Some(Self::Signalled(*signal))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: &[(i32, &str)] = &[
            (1, "SIGHUP"),
            (2, "SIGINT"),
            (3, "SIGQUIT"),
            (4, "SIGILL"),
            (6, "SIGABRT"),
            (7, "SIGBUS"),
            (8, "SIGFPE"),
            (9, "SIGKILL"),
            (11, "SIGSEGV"),
            (13, "SIGPIPE"),
            (15, "SIGTERM"),
            (24, "SIGXCPU"),
            (25, "SIGXFSZ"),
        ];
        let name = |signal: i32| NAMES.iter().find(|(number, _)| *number == signal).map(|(_, name)| name);
        match *self {
            // A shell adds 128 to the signal that ended its command (POSIX, "Exit Status for Commands").
            Self::Exited(code) => match name(code - 128) {
                Some(name) => write!(f, "exit code {code} ({name})"),
                None => write!(f, "exit code {code}"),
            },
            Self::Signalled(signal) => match name(signal) {
                Some(name) => write!(f, "killed by signal {signal} ({name})"),
                None => write!(f, "killed by signal {signal}"),
            },
        }
    }
}
