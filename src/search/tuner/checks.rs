//! Checks a measured probe before it counts: its setting had an effect, and its losses agree with full precision.

use super::TuneError;
use super::order::Order;
use super::search::{OnEvent, Search};
use crate::model::{
    Event, Failure, Measurement, MemoryRole, Numerics, Outcome, Parameter, Purpose, Settings, Trial, arrival,
};
use crate::probe::{Effort, Job};
use crate::search::journal::settings_of;
use crate::search::numerics;
use crate::search::study::WIDEST_TIE as TIE;

/// The result of checking a probe.
pub(super) enum Checked {
    Done(Outcome),
    /// The measurement must be compared with the losses of these settings, which are not known yet.
    NeedsLosses(Measurement, Settings),
}

impl Search<'_, '_> {
    /// Returns the outcome, or the failure that a check of a measured outcome shows.
    pub(super) fn checked(&mut self, outcome: Outcome, job: &Job<'_>, purpose: Purpose) -> Checked {
        let Outcome::Measured(measurement) = outcome else { return Checked::Done(outcome) };
        if let Some(mismatch) = arrival::mismatch(self.space, job.settings, &measurement) {
            return Checked::Done(Outcome::Rejected(Failure::new(mismatch.to_string())));
        }
        if let Some(reason) = self.no_effect(&measurement, job) {
            return Checked::Done(Outcome::Rejected(Failure::new(reason)));
        }
        match self.full_precision.of(job.settings, self.space) {
            // If it leads, it is compared in a process of its own.
            Some(_) if measurement.is_live => {
                let reason = "it was measured in a process that had trained before".to_owned();
                let numerics = Numerics { not_compared: Some(reason), ..Numerics::default() };
                Checked::Done(Outcome::Measured(Measurement { numerics: Some(numerics), ..measurement }))
            }
            Some(full) if self.could_win(&measurement, purpose) => self.compared(measurement, full),
            _ => Checked::Done(Outcome::Measured(measurement)),
        }
    }

    /// Checks an outcome while nothing else runs, and measures the losses in full precision if they are needed.
    pub(super) fn checked_now(
        &mut self,
        outcome: Outcome,
        job: &Job<'_>,
        purpose: Purpose,
        on_event: OnEvent<'_>,
    ) -> Result<Outcome, TuneError> {
        let checked = match self.checked(outcome, job, purpose) {
            Checked::NeedsLosses(measurement, full) => {
                on_event(Event::Comparing { number: job.number, settings: &full });
                let reference = Job { settings: &full, effort: Effort::Losses, ..*job };
                let reference = self.slots.run(Order::of(&reference), on_event)?;
                self.compared_with(measurement, reference)
            }
            done @ Checked::Done(_) => done,
        };
        Ok(match checked {
            Checked::Done(outcome) => outcome,
            Checked::NeedsLosses(measurement, _) => Outcome::Measured(measurement),
        })
    }

    /// Returns true if the config would lead or tie with the leader; only then is a comparison worth its time. A config that was
    /// measured for a short time does not lead if a fully measured config is feasible. It is compared when it is measured for
    /// longer.
    fn could_win(&mut self, measurement: &Measurement, purpose: Purpose) -> bool {
        let may_win = |trial: &Trial| self.objective.score_of(&trial.outcome).is_some();
        if purpose.is_short() && self.history.searched().any(|trial| !trial.purpose.is_short() && may_win(trial)) {
            return false;
        }
        let outcome = Outcome::Measured(measurement.clone());
        let Some(scores) = self.objective.scores_of(&outcome) else { return false };
        if purpose.is_repeated() {
            return true;
        }
        if self.objective.is_pareto() {
            // A config is on the front if no known one is clearly better in every metric.
            let is_far = |(known, score): (&f64, &f64)| *score <= known - TIE * known.abs().max(score.abs());
            let beats = |known: &Vec<f64>| known.iter().zip(&scores).all(is_far);
            return !self
                .history
                .searched()
                .filter_map(|trial| self.objective.scores_of(&trial.outcome))
                .any(|k| beats(&k));
        }
        let Some(score) = self.objective.score_of(&outcome) else { return false };
        let is_near = |best: f64| score > best - TIE * best.abs().max(score.abs());
        self.leader.of(self.objective, &self.history).is_none_or(|(_, best)| is_near(best))
    }

    /// Returns the measurement with its losses and the losses in full precision, or `Diverged`. Returns `NeedsLosses` if the losses
    /// in full precision are not known.
    fn compared(&self, measurement: Measurement, full: Settings) -> Checked {
        let numerics = match self.known_losses(&full) {
            _ if measurement.first_losses.is_empty() => {
                Numerics { not_compared: Some("the step reports no loss".to_owned()), ..Numerics::default() }
            }
            Some(reference) => compare(&measurement.first_losses, reference),
            None => return Checked::NeedsLosses(measurement, full),
        };
        Checked::Done(self.judged(measurement, numerics))
    }

    /// Does the same with the outcome of a run in full precision.
    pub(super) fn compared_with(&self, measurement: Measurement, reference: Outcome) -> Checked {
        let numerics = match reference {
            says_nothing @ (Outcome::Interrupted | Outcome::Disturbed(_)) => return Checked::Done(says_nothing),
            Outcome::Measured(reference) => compare(&measurement.first_losses, reference.first_losses),
            other => Numerics { not_compared: Some(failed_in_full_precision(&other)), ..Numerics::default() },
        };
        Checked::Done(self.judged(measurement, numerics))
    }

    fn judged(&self, mut measurement: Measurement, numerics: Numerics) -> Outcome {
        let drift = numerics.drift.unwrap_or(0.0);
        if drift > self.limits.loss_tolerance {
            let reason = if drift.is_finite() {
                format!(
                    "the losses of the first steps are {:.0} % off those of full precision ({:.0} % may be)",
                    drift * 100.0,
                    self.limits.loss_tolerance * 100.0
                )
            } else {
                "a loss of the first steps is no finite number".to_owned()
            };
            return Outcome::Diverged(Failure::new(reason));
        }
        measurement.numerics = Some(numerics);
        Outcome::Measured(measurement)
    }

    /// Returns the losses of the same steps in full precision, if some trial has them.
    fn known_losses(&self, full: &Settings) -> Option<Vec<f64>> {
        self.history.trials().iter().rev().find_map(|trial| {
            let measurement = trial.outcome.measurement()?;
            let settings = self.space.settings(&trial.config);
            match (self.full_precision.of(&settings, self.space), &measurement.numerics) {
                (None, _) if self.full_precision.same_steps(&settings, full) => Some(measurement.first_losses.clone()),
                (Some(own), Some(numerics)) if self.full_precision.same_steps(&own, full) => {
                    Some(numerics.reference_losses.clone())
                }
                _ => None,
            }
            .filter(|losses| !losses.is_empty())
        })
    }

    /// Returns why a setting provably had no effect: the batch size is different, but a step takes the same number of
    /// samples.
    ///
    /// This is a proof only for two configs that differ in nothing else that a step's samples could depend on. So both
    /// must have the same derived values, and the same settings except in parameters that are known to need no memory.
    /// For a micro-batch it is no proof, since a step may take as many of them as make up the same batch.
    fn no_effect(&self, measurement: &Measurement, job: &Job<'_>) -> Option<String> {
        let samples = measurement.timing.samples_per_step?;
        let parameters = self.space.parameters();
        let whole_batch = |parameter: &Parameter| parameter.is_batch_size() && !parameter.name().contains("micro");
        let batch = parameters.iter().position(whole_batch)?;
        let name = parameters[batch].name();
        let own = job.settings.get(name)?;
        let matters = |at: usize| at != batch && parameters[at].memory_role() != MemoryRole::Same;
        let matter: Vec<usize> = (0..parameters.len()).filter(|at| matters(*at)).collect();
        let differs = |trial: &&Trial| {
            let same_batch = trial.config.level(batch) == job.config.level(batch);
            if same_batch && !trial.config.is_as_it_is() && !job.config.is_as_it_is() {
                return false;
            }
            if matter.iter().any(|at| trial.config.level(*at) != job.config.level(*at)) {
                return false;
            }
            let settings = settings_of(trial, self.space);
            let is_derived_alike = |name: &str| settings.get(name) == job.settings.get(name);
            // The settings that an unmodified job reports count as its settings.
            settings.get(name).is_some_and(|value| value != own)
                && self.space.derived().iter().all(|derived| is_derived_alike(derived.name()))
        };
        let same_samples = |trial: &&Trial| {
            trial.outcome.measurement().and_then(|other| other.timing.samples_per_step) == Some(samples)
        };
        let other = self.history.trials().iter().map(AsRef::as_ref).filter(same_samples).find(differs)?;
        let value = settings_of(other, self.space).get(name).map(ToString::to_string).unwrap_or_default();
        Some(format!("`{name}` has no effect: a step takes {samples} samples with {own} as with {value}"))
    }
}

fn compare(losses: &[f64], reference: Vec<f64>) -> Numerics {
    let drift = numerics::drift(losses, &reference);
    let not_compared = drift.is_none().then(|| "too few losses were reported".to_owned());
    Numerics { drift, reference_losses: reference, not_compared }
}

fn failed_in_full_precision(outcome: &Outcome) -> String {
    let reason = outcome.failure().map_or("", |failure| failure.reason.as_str());
    format!("full precision could not be run here: {}: {reason}", outcome.name().replace('_', " "))
}
