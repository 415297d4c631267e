//! What is tried again: configs whose probes were disturbed are put back and tried later, and configs that failed in a slot that may
//! be sick are tried in another slot.

use super::TuneError;
use super::request::Request;
use crate::model::{Config, Outcome};

/// The number of other probes between two turns of a config that was put back: a round number.
const OTHERS: usize = 3;

/// The number of turns after which a config is not tried any more in this run: a round number. A turn is three attempts
/// with pauses.
const MOST_TURNS: u32 = 3;

/// The number of disturbed turns in a row, whatever the configs, after which nothing can be measured here for now: a
/// round number.
const MOST_IN_A_ROW: u32 = 4;

/// A config that waits for another turn.
#[derive(Debug, Default)]
pub(super) struct PutBack {
    waiting: Vec<Waiting>,
    in_a_row: u32,
    /// The number of probes that were not disturbed.
    done: usize,
    /// True if nothing else is left to try.
    is_last: bool,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    turns: u32,
    /// The number of probes before its next turn; `None` during its turn, and if it has no further one.
    due: Option<usize>,
}

impl PutBack {
    /// Keeps a config for later.
    ///
    /// # Errors
    /// Everything has been disturbed for too long.
    pub(super) fn put(&mut self, request: Request, reason: String) -> Result<(), TuneError> {
        self.in_a_row += 1;
        if self.in_a_row >= MOST_IN_A_ROW && (self.done == 0 || !self.is_last) {
            return Err(TuneError::Disturbed { reason });
        }
        // Rounds are repeated anyway, and by then other configs may lead.
        if request.purpose.is_repeated() {
            return Ok(());
        }
        let due = Some(self.done + OTHERS);
        match self.waiting.iter_mut().find(|waiting| waiting.request.config() == request.config()) {
            Some(waiting) => {
                waiting.turns += 1;
                waiting.due = due.filter(|_| waiting.turns < MOST_TURNS);
            }
            None => self.waiting.push(Waiting { request, turns: 1, due }),
        }
        Ok(())
    }

    /// Records that a probe of a config was not disturbed.
    pub(super) fn is_undisturbed(&mut self, config: &Config) {
        self.in_a_row = 0;
        self.done += 1;
        self.waiting.retain(|waiting| waiting.request.config() != config);
    }

    /// Returns a config for its next turn: a due config, or any waiting config if there is `nothing_else`.
    pub(super) fn next(&mut self, nothing_else: bool) -> Option<Request> {
        self.is_last |= nothing_else;
        let done = self.done;
        let is_due = |waiting: &&mut Waiting| waiting.due.is_some_and(|due| nothing_else || due <= done);
        let waiting = self.waiting.iter_mut().find(is_due)?;
        waiting.due = None;
        Some(waiting.request.clone())
    }

    /// Returns true if a config was put back.
    pub(super) fn has(&self, config: &Config) -> bool {
        self.waiting.iter().any(|waiting| waiting.request.config() == config)
    }

    /// Returns the configs that were put back, so that no strategy proposes them.
    pub(super) fn configs(&self) -> impl Iterator<Item = Config> {
        self.waiting.iter().map(|waiting| waiting.request.config().clone())
    }

    /// Returns true if the last turn was disturbed.
    pub(super) fn is_disturbed(&self) -> bool {
        self.in_a_row > 0
    }
}

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
    use crate::model::{Failure, Measurement, Parameter, Purpose, Settings, Space};
    use crate::probe::Limits;

    fn config(at: u128) -> Config {
        Space::new([Parameter::values("x", [1, 2, 3, 4, 5])]).unwrap().config(at).unwrap()
    }

    fn put(back: &mut PutBack, at: u128) -> bool {
        let request = Request::new(config(at).into(), Purpose::Search, Settings::default(), Limits::default());
        back.put(request, "heat".to_owned()).is_ok()
    }

    #[test]
    fn a_config_waits_for_others_and_has_a_few_turns() {
        let mut back = PutBack::default();
        assert!(put(&mut back, 0) && back.has(&config(0)) && back.next(false).is_none());
        for turn in 1..MOST_TURNS {
            (0..OTHERS).for_each(|_| back.is_undisturbed(&config(4)));
            assert!(back.next(false).is_some_and(|next| *next.config() == config(0)), "turn {turn}");
            assert!(back.next(false).is_none(), "it has its turn");
            assert!(put(&mut back, 0));
        }
        assert!(
            back.next(true).is_none() && back.has(&config(0)),
            "it has no further turn, and no strategy proposes it"
        );
        back.is_undisturbed(&config(0));
        assert!(!back.has(&config(0)));
    }

    #[test]
    fn it_is_over_when_everything_is_disturbed_and_not_when_the_rest_is() {
        let mut back = PutBack::default();
        assert!((0..3).all(|at| put(&mut back, at)) && !put(&mut back, 3), "four in a row");
        let mut back = PutBack::default();
        back.is_undisturbed(&config(4));
        assert!(put(&mut back, 0) && put(&mut back, 1));
        while let Some(next) = back.next(true) {
            back.put(next, "heat".to_owned()).unwrap();
        }
    }

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
