//! Measures the leaders and the baseline again before a winner is named.

use super::TuneError;
use super::in_turn::Turns;
use super::search::{OnEvent, Search};
use crate::model::{Config, Event, Purpose};
use crate::search::budget::{Round, StopReason};
use crate::search::study;

impl Search<'_, '_> {
    /// Measures the leaders and the baseline again, in turn; returns the reason if that is cut short.
    pub(super) fn confirm(
        &mut self,
        baseline: Option<&Config>,
        on_event: OnEvent<'_>,
    ) -> Result<Option<StopReason>, TuneError> {
        let wanted = self.budget.confirmations as usize;
        let left: usize =
            self.leaders(baseline).iter().map(|config| wanted.saturating_sub(self.confirmed(config))).sum();
        if left > 0 && !self.waiting(baseline).is_empty() {
            on_event(Event::Confirming { probes: left });
        }
        loop {
            let waiting = self.waiting(baseline);
            if waiting.is_empty() {
                return Ok(None);
            }
            if self.is_stopped() {
                return Ok(Some(StopReason::Interrupted));
            }
            let (config, length) = match self.next_confirmation(&waiting, baseline) {
                Ok(next) => next,
                Err(reason) => return Ok(Some(reason)),
            };
            if self.is_whole_round(&waiting, baseline) && length == Round::Usual {
                match self.confirm_in_turn(&waiting, on_event)? {
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
    }

    /// Returns the leaders that are still to be measured in this round, in its order; like a strategy, a function of
    /// the history.
    ///
    /// Rounds alternate between forward and backward order, so that a slow drift of the machine favours no config. A
    /// leader that fails is dropped, and the next best takes its place.
    fn waiting(&self, baseline: Option<&Config>) -> Vec<Config> {
        let mut leaders = self.leaders(baseline);
        let round = leaders.iter().map(|config| self.confirmed(config)).min().unwrap_or(0);
        let is_compared = leaders.len() > 1 || leaders.iter().any(|config| self.is_live_only(config));
        if !is_compared || round >= self.budget.confirmations as usize {
            return Vec::new();
        }
        if !round.is_multiple_of(2) {
            leaders.reverse();
        }
        leaders.retain(|config| self.confirmed(config) == round);
        leaders
    }

    /// Decides which waiting config is measured next, and for how long. If there is no time for a whole round, only the
    /// first leader and the baseline are measured.
    fn next_confirmation(&self, waiting: &[Config], baseline: Option<&Config>) -> Result<(Config, Round), StopReason> {
        let is_first = waiting.iter().all(|config| self.confirmed(config) == 0);
        let too_short = match (self.round(waiting.len(), is_first), waiting.first()) {
            (Ok(length), Some(first)) => return Ok((first.clone(), length)),
            (round, _) => round.err().unwrap_or(StopReason::TimeSpent),
        };
        let leaders = self.leaders(baseline);
        let rival = baseline.filter(|baseline| leaders.first() != Some(baseline)).or(leaders.get(1));
        let matters = |config: &&Config| Some(*config) == leaders.first() || Some(*config) == rival;
        let few: Vec<&Config> = waiting.iter().filter(matters).collect();
        let first = few.first().ok_or(too_short)?;
        Ok(((*first).clone(), self.round(few.len(), is_first)?))
    }

    /// Whether these are all leaders, so that a round begins, and speed is what they are compared by.
    fn is_whole_round(&self, waiting: &[Config], baseline: Option<&Config>) -> bool {
        let is_all = waiting.len() > 1 && waiting.len() == self.leaders(baseline).len();
        is_all && self.objective.is_largest_throughput()
    }

    /// Whether a config was measured in no process of its own.
    fn is_live_only(&self, config: &Config) -> bool {
        let mut runs = self.history.of(config).filter_map(|trial| trial.outcome.measurement()).peekable();
        runs.peek().is_some() && runs.all(|run| run.is_live)
    }

    fn confirmed(&self, config: &Config) -> usize {
        study::confirmed(&self.history, config)
    }

    fn leaders(&self, baseline: Option<&Config>) -> Vec<Config> {
        study::leaders(self.objective, &self.history, baseline, self.noise_prior)
    }
}
