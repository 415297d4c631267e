//! An argument that a script accepts, according to its help or its source.

/// An argument of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// All its spellings, such as `-b` and `--batch-size`, or `data.batch_size` for an override.
    pub names: Vec<String>,
    /// What follows it in a command.
    pub kind: Kind,
    /// Its printed default value.
    pub default: Option<String>,
    /// Whether the script does not start without it.
    pub is_required: bool,
}

/// What follows an argument in a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: the argument is present or not.
    Switch,
    /// Nothing, and another argument turns it off: `--compile` and `--no-compile`.
    Pair {
        /// The argument that turns it off.
        off: String,
    },
    /// A value; one of `choices`, if any are known.
    Value {
        /// The values that it accepts; empty if they are not known.
        choices: Vec<String>,
    },
    /// A boolean value, which may be omitted: `--bf16` or `--bf16 True`.
    MaybeValue,
    /// The argument is an override: `name=value` (Hydra).
    Override,
    /// A value after `=` (`--name=value` only), which the script reads as a Python literal.
    Assigned {
        /// The values that it accepts; empty if they are not known.
        choices: Vec<String>,
    },
    /// The argument is the word at this place after the script, counted from one (`sys.argv[1]`).
    Place(usize),
}

impl Kind {
    /// Whether a value of the user's choice follows: it is not a switch.
    pub fn takes_value(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::Override | Self::Assigned { .. } | Self::Place(_))
    }

    /// Returns the values that it accepts, if they are known.
    pub fn choices(&self) -> &[String] {
        match self {
            Self::Value { choices } | Self::Assigned { choices } => choices,
            _ => &[],
        }
    }
}

impl Argument {
    /// Returns the spelling that the table of knobs uses: without dashes in front, with hyphens for underscores, and
    /// only the part after the last dot.
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

    /// Makes an argument that accepts any value.
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
