//! Measuring the leaders and the baseline again before one is named.

use super::TuneError;
use super::search::{OnEvent, Search};
use crate::budget::{CONFIRMED, StopReason};
use crate::event::Event;
use crate::space::Config;
use crate::study;
use crate::trial::{Purpose, Trial};

impl Search<'_, '_> {
    /// Measures the leaders and the baseline again, in turn; the reason if that is cut short.
    pub(super) fn confirm(
        &mut self,
        baseline: Option<&Config>,
        on_event: OnEvent<'_>,
    ) -> Result<Option<StopReason>, TuneError> {
        let wanted = self.budget.confirmations as usize;
        let left: usize =
            self.leaders(baseline).iter().map(|config| wanted.saturating_sub(self.confirmed(config))).sum();
        if left > 0 && self.next_confirmation(baseline).is_some() {
            on_event(Event::Confirming { probes: left });
        }
        while let Some(config) = self.next_confirmation(baseline) {
            if self.is_stopped() {
                return Ok(Some(StopReason::Interrupted));
            }
            if !self.budget.allows_confirmation(&self.history, self.elapsed()) {
                return Ok(Some(StopReason::TimeSpent));
            }
            if !self.probe(config.into(), Purpose::Confirm, on_event)? {
                return Ok(Some(StopReason::Interrupted));
            }
        }
        Ok(None)
    }

    /// The leader to measure again next; a function of the history, as a strategy is.
    ///
    /// Rounds go forwards and backwards in turn, so that a slow drift of the machine favours nobody. A leader that fails
    /// is out, and the next best takes its place.
    fn next_confirmation(&self, baseline: Option<&Config>) -> Option<Config> {
        let leaders = self.leaders(baseline);
        let round = leaders.iter().map(|config| self.confirmed(config)).min()?;
        if leaders.len() < 2 || round >= self.budget.confirmations as usize {
            return None;
        }
        let mut waiting = leaders.iter().filter(|config| self.confirmed(config) == round);
        if round.is_multiple_of(2) { waiting.next() } else { waiting.next_back() }.cloned()
    }

    /// How often a config was measured again.
    fn confirmed(&self, config: &Config) -> usize {
        self.history.of(config).filter(|trial| trial.purpose == Purpose::Confirm).count()
    }

    /// The best, the runner-up, further ones that are close, and the baseline; of a front the recommended one and its ends.
    fn leaders(&self, baseline: Option<&Config>) -> Vec<Config> {
        // What a short probe fails a longer one may not, so it does not bar its config.
        let failed = |trial: &Trial| self.objective.score_of(&trial.outcome).is_none();
        let failed_again =
            |trial: &Trial| self.history.of(&trial.config).any(|trial| !trial.purpose.is_short() && failed(trial));
        let held = || self.contenders().filter(|trial| !failed(trial) && !failed_again(trial));
        let most = CONFIRMED as usize - 1;
        let mut leaders = study::leaders(self.objective, held(), most);
        if !self.objective.is_pareto() {
            self.keep_close(&mut leaders);
        }
        let is_feasible = |config: &&Config| held().any(|trial| trial.config == **config);
        leaders.extend(baseline.filter(is_feasible).filter(|config| !leaders.contains(config)).cloned());
        leaders
    }

    /// The searched trials that can be the best.
    fn contenders(&self) -> impl Iterator<Item = &Trial> {
        self.history.contenders(|outcome| self.objective.scores_of(outcome).is_some())
    }

    /// Of the best, the first two and those that are close to the first.
    fn keep_close(&self, leaders: &mut Vec<Config>) {
        /// A difference up to which a third is a leader too.
        const CLOSE: f64 = 0.05;
        let score = |config: &Config| {
            let trial = self.contenders().find(|trial| trial.config == *config)?;
            self.objective.score_of(&trial.outcome)
        };
        let Some(top) = leaders.first().and_then(score) else { return };
        let mut place = 0;
        leaders.retain(|config| {
            place += 1;
            place <= 2 || score(config).is_some_and(|score| top - score <= CLOSE * top.abs())
        });
    }
}
