//! A target that `apply` can name, the settings that it accepts, and what a running process needs to change them.

use std::sync::LazyLock;

use regex::Regex;

use super::by_hand::ByHand;
use crate::model::{MemoryRole, Value};

/// A part of a script or its environment that a setting can be applied to.
#[derive(Debug)]
pub struct Target {
    /// Its name in `apply`. A name that ends in a dot is followed by the name of a variable.
    pub name: &'static str,
    /// The effect of a setting, in one line.
    pub about: &'static str,
    /// The settings that it accepts.
    pub accepts: Accepts,
    /// The part of gputune that sets it.
    pub by: By,
    /// How a running process can take another setting.
    pub needs: Needs,
    /// The effect on the numerical results.
    pub numerics: Numerics,
    /// The effect on device memory; `None` if that depends on the parameter's name.
    pub memory: Option<MemoryRole>,
    /// The change to a script that has its effect without gputune.
    pub by_hand: ByHand,
}

impl Target {
    /// Returns the name as documents and hints write it.
    pub fn shown_name(&self) -> String {
        if self.name.ends_with('.') { format!("{}NAME", self.name) } else { self.name.to_owned() }
    }

    /// Returns the fact that reports a setting after it has taken effect; `None` if no fact does.
    pub fn fact(&self) -> Option<&'static str> {
        if let By::Hook { fact, .. } = self.by { Some(fact) } else { None }
    }
}

/// Each target exists once, so its name identifies it.
impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Target {}

/// The part of gputune that sets a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A hook in the script's process.
    Hook {
        /// The name of the hook's adapter.
        adapter: &'static str,
        /// The fact by which the hook reports the setting after it has taken effect, or [`APPLIED`](crate::model::arrival::APPLIED) without a value.
        fact: &'static str,
    },
    /// gputune, by an environment variable.
    Environment,
    /// gputune, by an argument that it appends to the command.
    Argument,
}

/// The effect of a target on the numerical results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numerics {
    /// It changes the results. This is its setting in full precision, as [`Value::parse`](crate::model::Value::parse) reads it.
    Changed(&'static str),
    /// It changes neither the results nor the data.
    Same,
    /// It changes the data of a step or how the data is split, or its effect is not known.
    Other,
}

/// The settings that a target accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// Whole numbers from `least` on.
    Integers {
        /// The smallest.
        least: i64,
    },
    /// These whole numbers.
    Numbers(&'static [i64]),
    /// `true` and `false`.
    Booleans,
    /// These strings.
    Names(&'static [&'static str]),
    /// These strings, or a string in the syntax of torch's variable `PYTORCH_CUDA_ALLOC_CONF`.
    AllocatorConfig(&'static [&'static str]),
    /// Any setting.
    Anything,
}

impl Accepts {
    /// Returns true if a setting is accepted.
    pub fn takes(self, value: &Value) -> bool {
        match (self, value) {
            _ if value.is_as_it_is() => true,
            (Self::Integers { least }, Value::Int(number)) => *number >= least,
            (Self::Numbers(numbers), Value::Int(number)) => numbers.contains(number),
            (Self::Booleans, Value::Bool(_)) | (Self::Anything, _) => true,
            (Self::Names(names), Value::Text(text)) => names.contains(&text.as_str()),
            (Self::AllocatorConfig(names), Value::Text(text)) => {
                names.contains(&text.as_str()) || is_allocator_config(text)
            }
            _ => false,
        }
    }

    /// Returns the settings in words, such as `true and false`.
    pub fn words(self) -> String {
        let quoted = |names: &[&str]| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
        match self {
            Self::Integers { least } => format!("whole numbers from {least} on"),
            Self::Numbers(numbers) => listed(&numbers.iter().map(ToString::to_string).collect::<Vec<_>>()),
            Self::Booleans => "true and false".to_owned(),
            Self::Names(names) => listed(&quoted(names)),
            Self::AllocatorConfig(names) => {
                let names = quoted(names).join(", ");
                format!("{names} and texts such as \"max_split_size_mb:128,garbage_collection_threshold:0.8\"")
            }
            Self::Anything => "any setting".to_owned(),
        }
    }

    /// Returns the names among the settings.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Names(names) | Self::AllocatorConfig(names) => names,
            _ => &[],
        }
    }
}

fn listed(words: &[String]) -> String {
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// Returns true for `key:value,key:value`; a value may be a list in brackets (PyTorch's notes on CUDA semantics).
fn is_allocator_config(text: &str) -> bool {
    static ENTRIES: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let entry = r"[A-Za-z0-9_]+:(?:\[[^\[\] \x00]*\]|[^,\[ \x00])+";
        Regex::new(&format!("^{entry}(?:,{entry})*$")).ok()
    });
    ENTRIES.as_ref().is_some_and(|entries| entries.is_match(text))
}

/// How a process that already trains can take a new setting of a target.
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
                Some(value).filter(|value| value.as_text().is_some_and(|text| unless.contains(&text)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let workers = Accepts::Integers { least: 0 };
        assert!(workers.takes(&Value::Int(0)));
        assert!(!workers.takes(&Value::Int(-1)) && !workers.takes(&Value::Float(2.0)) && !workers.takes(&"2".into()));
        assert!(!Accepts::Booleans.takes(&Value::Int(1)));
        let threads = Accepts::Numbers(&[64, 128]);
        assert!(threads.takes(&Value::Int(64)) && !threads.takes(&Value::Int(96)));
        assert_eq!(threads.words(), "64 and 128");
        let allocator = Accepts::AllocatorConfig(&["default"]);
        for good in ["default", "expandable_segments:True", "a:1,b:2", "roundup_power2_divisions:[256:1,512:2],b:x"] {
            assert!(allocator.takes(&good.into()), "{good}");
        }
        for bad in ["", "expandable", "a:", ":1", "a:1,", "a b:1", "a:1, b:2"] {
            assert!(!allocator.takes(&bad.into()), "{bad}");
        }
    }
}
