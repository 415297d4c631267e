//! The wall time of probes, split by use.

use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Wall time in seconds, split by use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Importing modules, in probes and in processes to fork from.
    pub importing_s: f64,
    /// The rest of the time up to the end of the first step: reading data sets, building models.
    pub starting_s: f64,
    /// Steps excluded from a throughput because they came too early.
    pub warming_up_s: f64,
    /// The windows behind throughputs.
    pub measuring_s: f64,
    /// From the end of measuring until no process was left.
    pub ending_s: f64,
}

impl Spent {
    /// Splits the three times of a probe. They last until the first step, with the seconds of imports; until enough was
    /// known, with the measured seconds; and until nothing of the probe was left.
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

impl Add for Spent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            importing_s: self.importing_s + other.importing_s,
            starting_s: self.starting_s + other.starting_s,
            warming_up_s: self.warming_up_s + other.warming_up_s,
            measuring_s: self.measuring_s + other.measuring_s,
            ending_s: self.ending_s + other.ending_s,
        }
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}
