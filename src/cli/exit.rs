//! Exit codes, and the failures that lead to them.

use std::error::Error;
use std::process::ExitCode;

use gputune::machine::NoGpu;
use gputune::model::{LocateError, outcome::with_causes};
use gputune::probe::{ProbeError, worker::WorkerError};
use gputune::report::wrap;
use gputune::spec::SpecError;

use super::{colour, diagnostic};

/// How a command ends, with its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Found = 0,
    NothingFeasible = 1,
    Usage = 2,
    Impossible = 3,
    TimeLimit = 4,
    Preempted = 5,
    NodeLost = 6,
    NotRunnable = 126,
    NotFound = 127,
    Interrupted = 130,
}

impl Exit {
    pub(super) fn with_code(code: u8) -> Option<Self> {
        ROWS.iter().map(|(exit, ..)| *exit).find(|exit| exit.code() == code)
    }

    pub(super) fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// All exits, each with its meaning for `--help`, and the conditions that lead to it for `docs/outcomes.md`.
pub(super) const ROWS: &[(Exit, &str, &str)] = &[
    (Exit::Found, "found, or done", "A config was found, or a command other than `search` succeeded."),
    (
        Exit::NothingFeasible,
        "nothing feasible: no config could be measured within the limits",
        "Every config failed, left too little memory, or broke a constraint. `gputune compare`: a config could not be measured, or \
         no round was complete in time. `gputune report A B --max-slowdown`: the best of B is too slow, or B found nothing. \
         `gputune probe`, `diagnose`: the config or job could not be measured, or (`probe`) may not win. `gputune emit`, `run`, \
         `report`: the search found no feasible config.",
    ),
    (
        Exit::Usage,
        "usage: wrong arguments, a mistake in the spec, or a folder that belongs to another search",
        "Wrong arguments, a mistake in the spec, rules that leave no config, a folder without a search, a damaged journal, a \
         folder in which another search runs or ran, or a script that was edited during its search.",
    ),
    (
        Exit::Impossible,
        "no answer: the command cannot be started, every config fails in the same way, nothing could be \
         compared, or results cannot be written",
        "The command cannot be started or [cannot run in this environment](#failures-of-the-environment), the baseline crashed, \
         stalled or timed out, steps have no `samples`, `samples_per_step` is no positive number, processes survive SIGKILL, \
         memory is [not freed](#memory-between-probes), the first three configs [fail in the same \
         way](#the-same-failure-three-times), files cannot be written, or another program changed the journal during the \
         search. The search cannot tell: no probe ended in time, no time was left for a config besides the baseline, or every \
         probe of the baseline or of all other configs was disturbed. `gputune run`: the folder of the command is gone. \
         `gputune watch`: the search failed or was killed.",
    ),
    (
        Exit::TimeLimit,
        "the time limit of the search's Slurm job was reached; the same command goes on",
        "`gputune search --slurm`: Slurm ended the job at its time limit.",
    ),
    (
        Exit::Preempted,
        "the search's Slurm job was pre-empted; the same command goes on",
        "`gputune search --slurm`: another job took the nodes, and Slurm did not requeue this job.",
    ),
    (
        Exit::NodeLost,
        "the search's Slurm job has lost a node; the same command goes on",
        "`gputune search --slurm`: a node failed, and Slurm did not requeue the job.",
    ),
    (
        Exit::NotRunnable,
        "`gputune run`: the command may not be run",
        "`gputune run`: the program of the command is a folder, or this user may not run it. Otherwise the exit code is the job's.",
    ),
    (
        Exit::NotFound,
        "`gputune run`: the command is not found",
        "`gputune run`: the program of the command is not installed, or is not in the `PATH`. Otherwise the exit code is the job's.",
    ),
    (
        Exit::Interrupted,
        "interrupted; everything found until then is kept",
        "SIGINT (Ctrl-C), SIGTERM or SIGHUP. A second signal ends gputune at once and prints nothing.",
    ),
];

/// Returns the text below the help of the program, wrapped for the terminal: clap would not indent further lines.
pub(super) fn help() -> String {
    let columns = colour::stdout().columns.min(98);
    let mut text = String::from("Exit codes:\n");
    for (exit, meaning, _) in ROWS {
        let lines = wrap(meaning, columns.saturating_sub(7)).join(&format!("\n{:7}", ""));
        text += &format!("  {:<4} {lines}\n", exit.code());
    }
    text + "\nDocumentation: the files README.md and docs/ of the source."
}

#[derive(Debug)]
pub(crate) enum Failed {
    /// A mistake in a spec, which is shown at its place in the file.
    Spec(Box<SpecError>),
    /// Anything else.
    Error {
        exit: Exit,
        message: String,
        /// Lines that the user's step printed.
        last_lines: Vec<String>,
        hint: Option<String>,
    },
    /// The reader of a continuing output is gone, which is no failure.
    ClosedPipe,
}

impl Failed {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self::Error { exit, message: message.into(), last_lines: Vec::new(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn impossible(message: impl Into<String>) -> Self {
        Self::new(Exit::Impossible, message)
    }

    /// Makes a failure from an error, with its causes after the message.
    pub(crate) fn because(exit: Exit, error: &dyn Error) -> Self {
        Self::new(exit, with_causes(error))
    }

    #[must_use]
    pub(crate) fn hint(self, text: impl Into<String>) -> Self {
        self.maybe_hint(Some(text))
    }

    #[must_use]
    pub(crate) fn maybe_hint(mut self, text: Option<impl Into<String>>) -> Self {
        if let (Self::Error { hint, .. }, Some(text)) = (&mut self, text) {
            *hint = Some(text.into());
        }
        self
    }

    #[must_use]
    pub(crate) fn last_lines(mut self, lines: Vec<String>) -> Self {
        if let Self::Error { last_lines, .. } = &mut self {
            *last_lines = lines;
        }
        self
    }

    /// Returns what went wrong, without the hint.
    pub(super) fn message(self) -> String {
        match self {
            Self::Error { message, .. } => message,
            Self::Spec(error) => error.message,
            Self::ClosedPipe => String::new(),
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Spec(_) => Exit::Usage,
            Self::Error { exit, .. } => *exit,
            Self::ClosedPipe => Exit::Found,
        }
    }

    pub(super) fn report(self) -> Exit {
        let exit = self.exit();
        match self {
            Self::Spec(error) => diagnostic::print_spec_error(&error),
            Self::Error { message, last_lines, hint, .. } => {
                diagnostic::print_error(&message, &last_lines, hint.as_deref());
            }
            Self::ClosedPipe => {}
        }
        exit
    }
}

/// An I/O error means that the system refuses a file, process or signal.
impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::because(Exit::Impossible, &error)
    }
}

impl From<serde_json::Error> for Failed {
    fn from(error: serde_json::Error) -> Self {
        Self::because(Exit::Impossible, &error)
    }
}

impl From<&ProbeError> for Failed {
    fn from(error: &ProbeError) -> Self {
        let failed = Self::because(Exit::Impossible, error).last_lines(error.last_lines().to_vec());
        failed.maybe_hint(error.hint())
    }
}

impl From<WorkerError> for Failed {
    fn from(error: WorkerError) -> Self {
        Self::because(if error.is_mistake() { Exit::Usage } else { Exit::Impossible }, &error).hint(error.hint())
    }
}

impl From<LocateError> for Failed {
    fn from(error: LocateError) -> Self {
        Self::because(Exit::Usage, &error)
    }
}

/// The device that the spec asks for is missing.
impl From<NoGpu> for Failed {
    fn from(error: NoGpu) -> Self {
        Self::because(Exit::Impossible, &error)
            .hint("fix that, or write device = \"cpu\" in [step] to train on the CPU")
    }
}

impl From<SpecError> for Failed {
    fn from(error: SpecError) -> Self {
        Self::Spec(Box::new(error))
    }
}
