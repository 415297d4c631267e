//! Keeps trials: in the history, in the journal, and as events.

use super::TuneError;
use super::search::{OnEvent, Search};
use crate::diagnosis;
use crate::model::{Event, Purpose, Trial, front};
use crate::search::journal;

impl Search<'_, '_> {
    /// Keeps a trial that was not disturbed.
    pub(super) fn record(
        &mut self,
        trial: Trial,
        (reason, gain): (Option<&str>, Option<f64>),
        on_event: OnEvent<'_>,
    ) -> Result<(), TuneError> {
        self.put_back.is_undisturbed(&trial.config);
        if let Some(journal) = &mut self.journal {
            journal.record(&trial, self.space, reason, gain)?;
        }
        let judgement = trial.outcome.measurement().map(|measurement| self.objective.judge(measurement));
        let is_best = !trial.purpose.is_repeated() && self.is_best(&trial);
        let shown = if trial.config.is_as_it_is() {
            journal::settings_of(&trial, self.space)
        } else {
            self.set_by(&trial.config)
        };
        on_event(Event::Finished { trial: &trial, settings: &shown, judgement: judgement.as_ref(), is_best });
        if let Some(measurement) = trial.outcome.measurement().filter(|_| trial.purpose == Purpose::Baseline) {
            let warnings = measurement.warnings(measurement.run_seconds(self.objective));
            let warnings = warnings.into_iter().map(|flaw| format!("warning: {flaw}"));
            for text in diagnosis::out_of_reach(self.space, measurement).into_iter().chain(warnings) {
                on_event(Event::Remark { text: &text });
            }
        }
        self.history.push(trial);
        Ok(())
    }

    /// Replaces a trial that a later check has changed.
    pub(super) fn amend(&mut self, trial: Trial, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        if let Some(journal) = &mut self.journal {
            journal.record(&trial, self.space, None, None)?;
        }
        on_event(Event::Amended { trial: &trial, settings: &self.set_by(&trial.config) });
        self.history.amend(trial);
        Ok(())
    }

    /// Returns true if a trial is better than all before. For a front: if no trial before is as good in every metric.
    fn is_best(&mut self, trial: &Trial) -> bool {
        let Some(scores) = self.objective.scores_of(&trial.outcome) else { return false };
        if self.objective.is_pareto() {
            let mut known = self.history.searched().filter_map(|trial| self.objective.scores_of(&trial.outcome));
            return !known.any(|other| other == scores || front::dominates(&other, &scores));
        }
        let best = self.leader.of(self.objective, &self.history);
        let score = self.objective.score_of(&trial.outcome);
        score.is_some_and(|score| best.is_none_or(|(_, top)| score > top))
    }
}
