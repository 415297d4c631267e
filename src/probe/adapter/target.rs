//! A target that `apply` can name.

use super::accepts::{Accepts, Needs};
use super::by_hand::ByHand;
use crate::model::MemoryRole;

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
