//! Splits the wall time of a run into its start, its phases and the rest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;

/// The wall time of a run, from its start to the end of its last observed step, split by use.
///
/// The start, the phases and [`rest`](Self::rest) add up to the whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// From the start of the run to the end of its first step, in seconds.
    pub start_s: f64,
    /// From the end of the first step to the end of the last step, in seconds; interruptions included.
    pub steps_s: f64,
    /// Seconds of [`steps_s`](Self::steps_s) in each phase, marked steps included. The interval predicts another run of this
    /// length.
    /// If a device works ahead of its host, phases overlap and exceed the time; each phase is then reduced by the same
    /// factor.
    pub phases: BTreeMap<String, Estimate>,
    /// Seconds after the first step that belong to no phase.
    pub rest: Estimate,
}

impl Account {
    /// Returns the whole wall time in seconds.
    pub fn wall_s(&self) -> f64 {
        self.start_s + self.steps_s
    }

    /// Returns the share of the time after the first step that a phase takes, with its interval; 0 for an unknown phase.
    pub fn share(&self, phase: &str) -> Estimate {
        let Some(seconds) = self.phases.get(phase).filter(|_| self.steps_s > 0.0) else { return Estimate::point(0.0) };
        let of_all = |seconds: f64| (seconds / self.steps_s).clamp(0.0, 1.0);
        Estimate { value: of_all(seconds.value), low: seconds.low.map(of_all), high: seconds.high.map(of_all) }
    }
}
