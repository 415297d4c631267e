//! Exit codes, and failures on their way to one.

use std::error::Error;
use std::process::ExitCode;

use gputune::spec::SpecError;

use super::diagnostic;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Found,
    NothingFeasible,
    Usage,
    Impossible,
    Interrupted,
}

/// The codes, for `--help`.
pub(super) const HELP: &str = "Exit codes:
  0    found, or done
  1    nothing feasible: no config could be measured within the limits
  2    usage: wrong arguments, a mistake in the spec, or a folder that belongs to another search
  3    probing is impossible: the command cannot be started, every config fails in the same way,
       or results cannot be written
  130  interrupted; everything found until then is kept

Documentation: the files README.md and docs/ of the source.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Found => 0,
            Exit::NothingFeasible => 1,
            Exit::Usage => 2,
            Exit::Impossible => 3,
            Exit::Interrupted => 130,
        })
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failed {
    /// A mistake in a spec, which is shown at its place.
    Spec(Box<SpecError>),
    /// Anything else.
    Error {
        exit: Exit,
        message: String,
        /// Lines that the user's step printed.
        last_lines: Vec<String>,
        hint: Option<String>,
    },
    /// Whoever read standard output is gone, which is no failure.
    ClosedPipe,
}

impl Failed {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self::Error { exit, message: message.into(), last_lines: Vec::new(), hint: None }
    }

    /// With the causes of an error behind the message.
    pub(crate) fn because(exit: Exit, error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message += &format!(": {inner}");
            cause = inner.source();
        }
        Self::new(exit, message)
    }

    #[must_use]
    pub(crate) fn hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Error { hint, .. } = &mut self {
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

    /// What went wrong, without the hint.
    #[cfg(feature = "cuda")]
    pub(super) fn message(self) -> String {
        match self {
            Self::Error { message, .. } => message,
            Self::Spec(error) => error.message,
            Self::ClosedPipe => String::new(),
        }
    }

    pub(super) fn report(self) -> Exit {
        match self {
            Self::Spec(error) => {
                diagnostic::print_spec_error(&error);
                Exit::Usage
            }
            Self::Error { exit, message, last_lines, hint } => {
                diagnostic::print_error(&message, &last_lines, hint.as_deref());
                exit
            }
            Self::ClosedPipe => Exit::Found,
        }
    }
}

impl From<SpecError> for Failed {
    fn from(error: SpecError) -> Self {
        Self::Spec(Box::new(error))
    }
}
