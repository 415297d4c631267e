//! Notices a slot that is sick: probes fail there whose configs run elsewhere.

use crate::model::Outcome;

/// The number of failures in a row on one slot, of configs that run elsewhere, after which it is taken out.
const IN_A_ROW: u32 = 3;

/// How the last probes ended in each slot.
#[derive(Debug, Clone)]
pub(super) struct Health {
    /// Failures in a row.
    failed: Vec<u32>,
    /// Those of them whose configs ran elsewhere.
    ran_elsewhere: Vec<u32>,
}

impl Health {
    pub(super) fn of(slots: usize) -> Self {
        Self { failed: vec![0; slots], ran_elsewhere: vec![0; slots] }
    }

    /// Adds slots.
    pub(super) fn add(&mut self, slots: usize) {
        self.failed.resize(self.failed.len() + slots, 0);
        self.ran_elsewhere.resize(self.ran_elsewhere.len() + slots, 0);
    }

    /// Hears how a probe ended. Whether its config must be tried elsewhere before it is to blame: the slot has failed before,
    /// with nothing measured in between.
    pub(super) fn is_doubtful(&mut self, slot: usize, outcome: &Outcome) -> bool {
        if !Self::blames(outcome) {
            if outcome.measurement().is_some() {
                (self.failed[slot], self.ran_elsewhere[slot]) = (0, 0);
            }
            return false;
        }
        self.failed[slot] += 1;
        self.failed[slot] > 1
    }

    /// Hears that a config failed there that had run elsewhere before.
    pub(super) fn fails_known(&mut self, slot: usize) {
        self.failed[slot] += 1;
        self.ran_elsewhere[slot] += 1;
    }

    /// Whether an outcome may be due to the slot. What does not fit into memory would not fit elsewhere.
    pub(super) fn blames(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Crashed(_) | Outcome::Stalled(_) | Outcome::TimedOut(_))
    }

    /// Hears how a config ended elsewhere that had failed in a slot; returns whether that slot is to be taken out.
    pub(super) fn elsewhere(&mut self, failed_in: usize, outcome: &Outcome) -> bool {
        if Self::blames(outcome) {
            // The config is to blame, not the slot.
            (self.failed[failed_in], self.ran_elsewhere[failed_in]) = (0, 0);
            return false;
        }
        if outcome.measurement().is_some() {
            self.ran_elsewhere[failed_in] += 1;
        }
        // The first failure of the row was believed.
        self.ran_elsewhere[failed_in] + 1 >= IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Failure, Measurement};

    fn crashed() -> Outcome {
        Outcome::Crashed(Failure::new("CUDA error: unspecified launch failure"))
    }

    fn measured() -> Outcome {
        Outcome::Measured(Measurement::default())
    }

    #[test]
    fn a_slot_is_out_once_three_in_a_row_fail_that_run_elsewhere() {
        let mut health = Health::of(2);
        assert!(!health.is_doubtful(0, &crashed()), "one may well be the config's fault");
        assert!(health.is_doubtful(0, &crashed()));
        assert!(!health.elsewhere(0, &measured()));
        assert!(health.is_doubtful(0, &crashed()));
        assert!(health.elsewhere(0, &measured()));
    }

    #[test]
    fn configs_that_fail_everywhere_are_to_blame_themselves() {
        let mut health = Health::of(2);
        for _ in 0..5 {
            health.is_doubtful(0, &crashed());
            assert!(!health.elsewhere(0, &crashed()));
        }
        health.is_doubtful(1, &crashed());
        health.is_doubtful(1, &measured());
        assert!(!health.is_doubtful(1, &crashed()), "something was measured in between");
    }
}
