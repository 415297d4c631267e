//! What it takes to give a target another setting.

use crate::model::Value;

/// What another setting of a target needs, where a process trains already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// A new process: it takes effect while the script starts.
    NewProcess,
    /// A new iterator of the training loader, in the same process.
    NewLoader,
    /// The end of a step. From and to these settings it needs a new process all the same.
    BetweenSteps {
        /// The settings.
        unless: &'static [&'static str],
    },
}

impl Needs {
    /// Returns the part of a setting that cannot be changed while a process trains; `None` where all of it can.
    pub fn fixed(self, value: &Value) -> Option<&Value> {
        match self {
            Self::NewProcess => Some(value),
            Self::NewLoader => None,
            Self::BetweenSteps { unless } => {
                Some(value).filter(|value| matches!(value, Value::Text(text) if unless.contains(&text.as_str())))
            }
        }
    }

    /// It in words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::NewProcess => "a new process",
            Self::NewLoader => "a new iterator of the loader",
            Self::BetweenSteps { .. } => "the end of a step",
        }
    }
}
