//! Configs whose probes were disturbed repeatedly: they are put back and tried later, while the search goes on.

use super::TuneError;
use super::request::Request;
use crate::model::Config;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Parameter, Purpose, Settings, Space};
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
}
