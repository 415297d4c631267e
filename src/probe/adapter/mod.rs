//! Applies settings to unmodified training scripts: adapters, the targets of `apply`, and the way to set each target.
//!
//! A parameter with `apply = "TARGET"` needs no support from the script. gputune itself sets some targets before the process
//! starts. An adapter's hook, Python code that is loaded with the script's framework, sets the remaining targets.

mod accepts;
mod apply;
mod by_hand;
mod named_target;
mod needs;
mod python;
mod target;

pub use accepts::Accepts;
pub use apply::{Applied, Apply};
pub use by_hand::{Arguments, ByHand, Line, Names, OwnCall, Spot, python as python_literal};
pub use named_target::TargetError;
pub use needs::Needs;
pub(in crate::probe) use python::start_zygote;
pub use python::{FILES, install};
pub use target::{By, Literal, Numerics, TARGETS, Target};

/// A way to reach into an unmodified script.
#[derive(Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its name in `[step]`.
    pub name: &'static str,
    /// Its effect, in one line.
    pub about: &'static str,
    /// The things to check if its hook never reported.
    pub when_silent: &'static str,
}

/// The adapters, by name.
pub const ADAPTERS: &[Adapter] = &[Adapter {
    name: "torch",
    about: "a hook in every process that imports torch: counts steps and samples, sets what `apply` names",
    when_silent: "does the script import torch and train a module with it? The hook comes in by \
                  PYTHONPATH, which `python -I` and `-E`, sudo, containers and ssh leave out",
}];

/// Returns the adapter with this name.
pub fn adapter(name: &str) -> Option<&'static Adapter> {
    ADAPTERS.iter().find(|adapter| adapter.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_target_has_its_adapter() {
        for target in TARGETS {
            if let By::Hook { adapter: name, .. } = target.by {
                assert!(adapter(name).is_some(), "{}", target.name);
            }
        }
        assert_eq!(adapter("pytorch"), None);
    }
}
