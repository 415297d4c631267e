//! Measures the leaders and the baseline again before a winner is named.

use std::sync::Arc;

use super::TuneError;
use super::in_turn::Turns;
use super::search::{OnEvent, Search};
use crate::model::{Config, Event, Purpose};
use crate::search::budget::{Round, StopReason};
use crate::search::study::{self, Study};

/// A round of confirmations, each config once.
struct RoundOfAll {
    /// How many there were before.
    number: usize,
    /// All that are in it, the best first.
    all: Vec<Config>,
    /// Those that are still to be measured, in the round's order.
    waiting: Vec<Config>,
    /// Whether it is beyond those that the budget asks for, since it is in doubt which of these to name.
    is_in_doubt: bool,
}

impl Search<'_, '_> {
    /// Measures the leaders and the baseline again, in turn, and those once more between which too little is known then;
    /// returns the reason if that is cut short.
    pub(super) fn confirm(
        &mut self,
        baseline: Option<&Config>,
        on_event: OnEvent<'_>,
    ) -> Result<Option<StopReason>, TuneError> {
        // The last round that was announced.
        let mut announced = None;
        while let Some(round) = self.next_round(baseline) {
            if self.is_stopped() {
                return Ok(Some(StopReason::Interrupted));
            }
            let (config, length) = match self.next_confirmation(&round, baseline) {
                Ok(next) => next,
                // Nobody asked for it, and what it leaves open the intervals say.
                Err(_) if round.is_in_doubt => return Ok(None),
                Err(reason) => return Ok(Some(reason)),
            };
            if announced.is_none_or(|last| round.is_in_doubt && round.number > last) {
                announced = Some(round.number);
                on_event(Event::Confirming { probes: self.left(&round), is_in_doubt: round.is_in_doubt });
            }
            if self.is_untouched(&round) && length == Round::Usual {
                match self.confirm_in_turn(&round.waiting, on_event)? {
                    Turns::Done => continue,
                    Turns::Apart => {}
                    Turns::Interrupted => return Ok(Some(StopReason::Interrupted)),
                }
            }
            self.confirmation = length;
            if !self.probe(config.into(), Purpose::Confirm, on_event)? {
                let is_late = self.slots.are_out_of_time();
                return Ok(Some(if is_late { StopReason::AllocationEnds } else { StopReason::Interrupted }));
            }
        }
        Ok(None)
    }

    /// Returns the round of confirmations that is to be begun or to be gone on with; like a strategy, a function of the
    /// history.
    ///
    /// Rounds alternate between forward and backward order, so that a slow drift of the machine favours no config. A
    /// leader that fails is dropped, and the next best takes its place.
    fn next_round(&self, baseline: Option<&Config>) -> Option<RoundOfAll> {
        let mut all = study::leaders(self.objective, &self.history, baseline, self.noise_prior);
        let is_compared = all.len() > 1 || all.iter().any(|config| self.is_live_only(config));
        let rounds = |all: &[Config]| all.iter().map(|config| self.confirmed(config)).min();
        let mut number = rounds(&all).filter(|_| is_compared)?;
        let is_in_doubt = number >= self.budget.confirmations as usize;
        if is_in_doubt {
            let in_doubt = self.study(baseline).in_doubt();
            all.retain(|config| in_doubt.contains(config));
            number = rounds(&all).filter(|number| *number < self.budget.most_confirmations() as usize)?;
        }
        let mut waiting: Vec<Config> = all.iter().filter(|config| self.confirmed(config) == number).cloned().collect();
        if !number.is_multiple_of(2) {
            waiting.reverse();
        }
        Some(RoundOfAll { number, all, waiting, is_in_doubt })
    }

    /// The search so far.
    pub(super) fn study(&self, baseline: Option<&Config>) -> Study {
        Study {
            space: Arc::clone(self.space),
            objective: self.objective.clone().relative_to_first(&self.history, baseline),
            history: self.history.clone(),
            baseline: baseline.cloned(),
            stopped: StopReason::Running,
            elapsed: self.elapsed(),
            noise_prior: self.noise_prior,
            side_by_side: None,
        }
    }

    /// How many probes it takes to end a round, and those that the budget asks for after it.
    fn left(&self, round: &RoundOfAll) -> usize {
        let wanted = (self.budget.confirmations as usize).max(round.number + 1);
        round.all.iter().map(|config| wanted.saturating_sub(self.confirmed(config))).sum()
    }

    /// Decides which waiting config is measured next, and for how long. If there is no time for a whole round, only the
    /// first leader and the baseline are measured.
    fn next_confirmation(
        &self,
        RoundOfAll { number, all, waiting, .. }: &RoundOfAll,
        baseline: Option<&Config>,
    ) -> Result<(Config, Round), StopReason> {
        let is_first = *number == 0;
        let too_short = match (self.round(waiting.len(), is_first), waiting.first()) {
            (Ok(length), Some(first)) => return Ok((first.clone(), length)),
            (round, _) => round.err().unwrap_or(StopReason::TimeSpent),
        };
        let rival = baseline.filter(|baseline| all.first() != Some(baseline)).or(all.get(1));
        let matters = |config: &&Config| Some(*config) == all.first() || Some(*config) == rival;
        let few: Vec<&Config> = waiting.iter().filter(matters).collect();
        let first = few.first().ok_or(too_short)?;
        Ok(((*first).clone(), self.round(few.len(), is_first)?))
    }

    /// Whether several are to be measured, none of them was in this round, and speed is what they are compared by.
    fn is_untouched(&self, RoundOfAll { all, waiting, .. }: &RoundOfAll) -> bool {
        waiting.len() > 1 && waiting.len() == all.len() && self.objective.is_largest_throughput()
    }

    /// Whether a config was measured in no process of its own.
    fn is_live_only(&self, config: &Config) -> bool {
        let mut runs = self.history.of(config).filter_map(|trial| trial.outcome.measurement()).peekable();
        runs.peek().is_some() && runs.all(|run| run.is_live)
    }

    fn confirmed(&self, config: &Config) -> usize {
        study::confirmed(&self.history, config)
    }
}
