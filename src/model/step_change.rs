//! A step time that changes for good while a job trains: layers that are unfrozen, larger images, longer sequences.

use serde::{Deserialize, Serialize};

use super::quantity::{show_count, show_seconds};

/// A lasting change of the step time. The rate is that of the steps after it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepChange {
    /// The steps before the change.
    pub steps: f64,
    /// The work in these steps, in samples if samples are counted.
    pub amount: f64,
    /// The median time of a step before the change, in seconds, without waits for data.
    pub before_s: f64,
    /// The same after the change.
    pub after_s: f64,
}

impl StepChange {
    /// Returns the change in words.
    pub fn words(&self) -> String {
        format!(
            "a step takes {} instead of {} after {} steps",
            show_seconds(self.after_s),
            show_seconds(self.before_s),
            show_count(self.steps)
        )
    }

    /// Returns true if both changes slow the steps down, after as many steps or as much work. Two processes with the same change show
    /// that the job causes it, and no other program.
    pub fn is_confirmed_by(&self, other: &Self) -> bool {
        let slows = |change: &Self| change.after_s > change.before_s;
        slows(self) && slows(other) && (is_near(self.steps, other.steps) || is_near(self.amount, other.amount))
    }

    /// Returns true if a run of this many steps and this much work ended before the change, counted in the way in which both changes
    /// have the same place.
    pub fn is_after(&self, confirmed_by: &Self, (steps, amount): (f64, f64)) -> bool {
        if is_near(self.steps, confirmed_by.steps) { steps < self.steps } else { amount < self.amount }
    }
}

/// Returns true if two places are the same, but for a few steps by which a script or a clock may be late: round numbers.
fn is_near(one: f64, other: f64) -> bool {
    const SHARE: f64 = 0.05;
    const FEW: f64 = 2.0;
    (one - other).abs() <= (one.min(other) * SHARE).max(FEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_at_the_same_step_or_sample_is_the_jobs() {
        let change = StepChange { steps: 120.0, amount: 960.0, before_s: 0.003, after_s: 0.009 };
        assert_eq!(change.words(), "a step takes 9.00 ms instead of 3.00 ms after 120 steps");
        let with = |steps: f64, amount: f64| StepChange { steps, amount, ..change };
        assert!(change.is_confirmed_by(&with(121.0, 1936.0)) && change.is_confirmed_by(&with(60.0, 960.0)));
        assert!(!change.is_confirmed_by(&with(200.0, 2000.0)));
        assert!(!change.is_confirmed_by(&StepChange { after_s: 0.001, ..change }), "it gets faster");
        let (by_steps, by_amount) = (with(121.0, 1936.0), with(60.0, 960.0));
        assert!(change.is_after(&by_steps, (100.0, 1600.0)) && !change.is_after(&by_steps, (130.0, 1.0)));
        assert!(change.is_after(&by_amount, (900.0, 900.0)) && !change.is_after(&by_amount, (30.0, 961.0)));
    }
}
