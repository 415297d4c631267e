//! An argument that a script accepts, according to its help or its source.

use serde::Deserialize;

/// An argument of a script.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Argument {
    /// The spellings of the argument, such as `-b` and `--batch-size`, or `data.batch_size` for an override.
    pub names: Vec<String>,
    /// The form of its value in a command.
    pub kind: Kind,
    /// The default value, as printed.
    pub default: Option<String>,
    /// True if the script fails without it.
    pub is_required: bool,
}

/// The form of an argument's value in a command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub enum Kind {
    /// No value: the argument is present or absent.
    Switch,
    /// No value, and another argument turns it off: `--compile` and `--no-compile`.
    Pair {
        /// The argument that turns it off.
        off: String,
    },
    /// A value; one of `choices`, if they are known.
    Value {
        /// The accepted values; empty if they are not known.
        choices: Vec<String>,
    },
    /// An optional boolean value: `--bf16` or `--bf16 True`.
    MaybeValue,
    /// An override: `name=value` (Hydra).
    Override,
    /// A value after `=` (`--name=value` only), which the script reads as a Python literal.
    Assigned {
        /// The accepted values; empty if they are not known.
        choices: Vec<String>,
    },
    /// The word at this position after the script, counted from one (`sys.argv[1]`).
    Place(usize),
}

impl Kind {
    /// Returns true if the argument is followed by a value that the user chooses.
    pub fn takes_value(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::Override | Self::Assigned { .. } | Self::Place(_))
    }

    /// Returns the accepted values, if they are known.
    pub fn choices(&self) -> &[String] {
        match self {
            Self::Value { choices } | Self::Assigned { choices } => choices,
            _ => &[],
        }
    }
}

impl Argument {
    /// Makes an argument without a default that is not required.
    pub(super) fn new(names: Vec<String>, kind: Kind) -> Self {
        Self { names, kind, default: None, is_required: false }
    }

    /// Returns the spelling in the table of knobs: lower case, with inner hyphens only, and what follows the last dot.
    pub fn plain(name: &str) -> String {
        let last = name.rsplit('.').next().unwrap_or(name);
        last.trim_start_matches(['-', '+']).replace('_', "-").to_ascii_lowercase()
    }

    /// Returns the first spelling with two dashes, or the first spelling.
    pub fn spelled(&self) -> &str {
        let long = self.names.iter().find(|name| name.starts_with("--"));
        long.or(self.names.first()).map_or("", String::as_str)
    }

    /// Returns true if a switch is on by default.
    pub fn is_on_by_default(&self) -> bool {
        let default = self.default.as_deref().unwrap_or_default().trim().to_ascii_lowercase();
        match &self.kind {
            // click prints the default as a spelling.
            Kind::Pair { off } => {
                default == "true"
                    || (!default.is_empty()
                        && self.names.iter().any(|name| Self::plain(name) == default)
                        && Self::plain(off) != default)
            }
            _ => default == "true",
        }
    }
}
