//! Settings that reach a training script that nobody changed: adapters, the targets of `apply`, and who sets them.
//!
//! A parameter with `apply = "TARGET"` needs no support from the script. Some targets gputune sets by itself, before the
//! process starts; the others are set by an adapter's hook, Python code that comes in with the script's framework.

mod apply;
mod by_hand;
mod python;
mod target;
mod told_by;

pub use apply::{Applied, Apply};
pub use by_hand::{Arguments, ByHand, Line, Names, OwnCall, Spot, python as python_literal};
pub use python::{FILES, install};
pub use target::{Accepts, By, Literal, Numerics, TARGETS, Target, TargetError};

/// A way into a script that nobody changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its name in `[step]`.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// What to look at when its hook was never heard.
    pub when_silent: &'static str,
}

/// The adapters, by name.
pub const ADAPTERS: &[Adapter] = &[Adapter {
    name: "torch",
    about: "a hook in every process that imports torch: counts steps and samples, sets what `apply` names",
    when_silent: "does the script import torch and train a module with it? The hook comes in by \
                  PYTHONPATH, which `python -I` and `-E`, sudo, containers and ssh leave out",
}];

/// The adapter of this name.
pub fn adapter(name: &str) -> Option<&'static Adapter> {
    ADAPTERS.iter().find(|adapter| adapter.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_target_has_its_adapter() {
        for target in TARGETS {
            if let By::Hook(name) = target.by {
                assert!(adapter(name).is_some(), "{}", target.name);
            }
        }
        assert_eq!(adapter("pytorch"), None);
    }
}
