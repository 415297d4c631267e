//! Splits wall time by use: the time of a run into start, phases and rest, and the time of a probe.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::metric::Estimate;

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

/// Wall time in seconds, split by use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Importing modules, in probes and in processes to fork from.
    pub importing_s: f64,
    /// The rest of the time up to the end of the first step: reading datasets, building models.
    pub starting_s: f64,
    /// Steps excluded from a throughput because they came too early.
    pub warming_up_s: f64,
    /// The windows behind throughputs.
    pub measuring_s: f64,
    /// From the end of measuring until no process was left.
    pub ending_s: f64,
}

impl Spent {
    /// Splits the time of a probe: until the first step, with the seconds of imports; from there until enough was measured, with
    /// the measured seconds; and from there until no process was left.
    pub fn of(
        (start, importing_s): (Duration, f64),
        (stepping, measuring_s): (Duration, f64),
        ending: Duration,
    ) -> Self {
        let (start, stepping) = (start.as_secs_f64(), stepping.as_secs_f64());
        let (importing_s, measuring_s) = (importing_s.clamp(0.0, start), measuring_s.clamp(0.0, stepping));
        Self {
            importing_s,
            starting_s: start - importing_s,
            warming_up_s: stepping - measuring_s,
            measuring_s,
            ending_s: ending.as_secs_f64(),
        }
    }

    /// Returns each use in words with its seconds, in order of time.
    pub fn parts(&self) -> [(&'static str, f64); 5] {
        [
            ("importing", self.importing_s),
            ("starting", self.starting_s),
            ("warming up", self.warming_up_s),
            ("measuring", self.measuring_s),
            ("ending", self.ending_s),
        ]
    }

    /// Returns the sum of all parts.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.importing_s += other.importing_s;
        self.starting_s += other.starting_s;
        self.warming_up_s += other.warming_up_s;
        self.measuring_s += other.measuring_s;
        self.ending_s += other.ending_s;
    }
}
