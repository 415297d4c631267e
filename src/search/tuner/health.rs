//! Detects a sick slot: configs fail there that run in other slots.

use crate::model::Outcome;

/// A slot is closed after this many failures in a row of configs that run elsewhere.
const IN_A_ROW: u32 = 3;

/// How the last probes ended in each slot.
#[derive(Debug, Clone)]
pub(super) struct Health {
    /// Failures in a row.
    failed: Vec<u32>,
    /// Failures in a row whose configs ran elsewhere.
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

    /// Records how a probe ended. Returns true if its config must be tried in another slot before it counts as failed: the slot has
    /// failed before, with nothing measured since.
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

    /// Records that a config failed in a slot although it ran elsewhere before.
    pub(super) fn fails_known(&mut self, slot: usize) {
        self.failed[slot] += 1;
        self.ran_elsewhere[slot] += 1;
    }

    /// Returns true if the slot may be the cause of an outcome. A config that does not fit into memory would not fit elsewhere.
    pub(super) fn blames(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Crashed(_) | Outcome::Stalled(_) | Outcome::TimedOut(_))
    }

    /// Records how a config ended elsewhere after it failed in a slot. Returns true if that slot must be closed.
    pub(super) fn elsewhere(&mut self, failed_in: usize, outcome: &Outcome) -> bool {
        if Self::blames(outcome) {
            // The config is the cause, not the slot.
            (self.failed[failed_in], self.ran_elsewhere[failed_in]) = (0, 0);
            return false;
        }
        if outcome.measurement().is_some() {
            self.ran_elsewhere[failed_in] += 1;
        }
        // The first failure in the row was recorded as the config's.
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
        assert!(!health.is_doubtful(1, &crashed()), "a probe was measured in between");
    }
}
