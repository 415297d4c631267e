//! An argument that a script takes, as its help or its source tells.

/// An argument of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// All its spellings, such as `-b` and `--batch-size`, or `data.batch_size` for an override.
    pub names: Vec<String>,
    /// What follows it.
    pub kind: Kind,
    /// The value that it has where nobody gives it, as it is printed.
    pub default: Option<String>,
    /// Whether the script does not start without it.
    pub is_required: bool,
}

/// What follows an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: it is there or not.
    Switch,
    /// Nothing, and another one turns it off: `--compile` and `--no-compile`.
    Pair {
        /// What turns it off.
        off: String,
    },
    /// A value, one of these where any are told.
    Value {
        /// The values that it takes; empty where they are not told.
        choices: Vec<String>,
    },
    /// A boolean that may be left out: `--bf16` or `--bf16 True`.
    MaybeValue,
    /// It is an override: `name=value` (Hydra).
    Override,
    /// It is given as `--name=value` only, and the script reads the value as Python's literal.
    Assigned {
        /// The values that it takes; empty where they are not told.
        choices: Vec<String>,
    },
    /// It is the word at this place behind the script, counted from one (`sys.argv[1]`).
    Place(usize),
}

impl Kind {
    /// Whether a value of the user's choice follows: not a switch.
    pub fn takes_value(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::Override | Self::Assigned { .. } | Self::Place(_))
    }

    /// The values that it takes, where they are told.
    pub fn choices(&self) -> &[String] {
        match self {
            Self::Value { choices } | Self::Assigned { choices } => choices,
            _ => &[],
        }
    }
}

impl Argument {
    /// An argument's spelling as the table of knobs has it: without dashes in front, hyphens for underscores, and only
    /// the part behind the last dot.
    pub fn plain(name: &str) -> String {
        let last = name.rsplit('.').next().unwrap_or(name);
        last.trim_start_matches(['-', '+']).replace('_', "-").to_ascii_lowercase()
    }

    /// The longest spelling with two dashes, or the first.
    pub fn spelled(&self) -> &str {
        let long = self.names.iter().find(|name| name.starts_with("--"));
        long.or(self.names.first()).map_or("", String::as_str)
    }

    /// An argument that takes any value.
    pub(super) fn valued(name: String, default: Option<String>) -> Self {
        Self { names: vec![name], kind: Kind::Value { choices: Vec::new() }, default, is_required: false }
    }

    /// The default as a number.
    pub fn default_number(&self) -> Option<i64> {
        self.default.as_deref()?.trim().parse().ok()
    }

    /// Whether a switch is on by default.
    pub fn is_on_by_default(&self) -> bool {
        let default = self.default.as_deref().unwrap_or_default().trim().to_ascii_lowercase();
        match &self.kind {
            // click shows the spelling of the default.
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
