//! The means that a new setting of a target needs.

use crate::model::Value;

/// The means that a new setting of a target needs in a process that already trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// A new process: the setting takes effect while the script starts.
    NewProcess,
    /// A new iterator of the training loader, in the same process.
    NewLoader,
    /// The end of a step. A change from or to these settings still needs a new process.
    BetweenSteps {
        /// The settings.
        unless: &'static [&'static str],
    },
}

impl Needs {
    /// Returns the part of a setting that cannot be changed while a process trains; `None` if all of it can be changed.
    pub fn fixed(self, value: &Value) -> Option<&Value> {
        match self {
            Self::NewProcess => Some(value),
            Self::NewLoader => None,
            Self::BetweenSteps { unless } => {
                Some(value).filter(|value| matches!(value, Value::Text(text) if unless.contains(&text.as_str())))
            }
        }
    }

    /// Returns the need in words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::NewProcess => "process",
            Self::NewLoader => "loader",
            Self::BetweenSteps { .. } => "step",
        }
    }
}
