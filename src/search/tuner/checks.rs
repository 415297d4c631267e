//! Checks a measured config: its settings had an effect, and its losses agree with full precision. Also checks whether a stated
//! baseline equals the unmodified job.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::TuneError;
use super::request::Request;
use super::search::{OnEvent, Search};
use crate::model::{Config, Event, Failure, Measurement, Numerics, Outcome, Purpose, Settings, Trial, arrival};
use crate::probe::Effort;
use crate::search::numerics;

/// Why a config was not compared, if a search that goes on may still compare it.
const NO_TIME: &str = "no time was left";

/// The part of a probe's time that is enough to learn the facts of a job: a round number.
const ONE_IN: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");

/// A config whose losses must be compared with full precision before it is named.
struct Uncompared {
    /// The trial that has its losses.
    trial: Arc<Trial>,
    /// Its settings in full precision.
    full: Settings,
}

impl Search<'_, '_> {
    /// Runs the unmodified job for a moment, and reports where the stated baseline differs from it. Nothing is recorded. A setting
    /// that the job does not report counts as no difference, and so does a job that cannot run like this.
    pub(super) fn check_stated(&mut self, baseline: &Config, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        let (as_it_is, stated) = (self.setup.space.as_it_is(), self.setup.space.settings(baseline));
        let nothing = self.setup.space.settings(&as_it_is);
        on_event(Event::LookingAtJob);
        let request = Request::new(as_it_is.into(), Purpose::Baseline, nothing.clone(), self.setup.limits);
        let outcome = self.slots.run(Request { effort: Effort::Part { one_in: ONE_IN }, ..request }, on_event)?;
        let Some(measurement) = outcome.measurement() else { return Ok(()) };
        let used = arrival::used(&self.setup.space, &measurement.facts, &nothing);
        let differences: Vec<String> = used
            .iter()
            .filter(|(_, used)| !used.is_as_it_is())
            .filter_map(|(name, used)| Some((name, used, stated.get(name)?)))
            .filter(|(_, used, stated)| used != stated)
            .map(|(name, used, stated)| format!("`{name}` = {stated}, but the unmodified job has {used}"))
            .collect();
        if !differences.is_empty() {
            on_event(Event::BaselineDiffers { differences: &differences });
        }
        Ok(())
    }

    /// Returns the outcome, or the failure that a check of a measured outcome shows. Losses are compared only if some trial has the
    /// losses in full precision.
    pub(super) fn checked(&self, outcome: Outcome, request: &Request) -> Outcome {
        let Outcome::Measured(measurement) = outcome else { return outcome };
        if let Some(lack) = self.recovered(&measurement, request) {
            return lack;
        }
        if let Some(mismatch) = arrival::mismatch(&self.setup.space, &request.settings, &measurement) {
            return Outcome::Rejected(Failure::new(mismatch.to_string()));
        }
        if let Some(reason) = self.implausible(&measurement, request) {
            return Outcome::Rejected(Failure::new(reason));
        }
        let full =
            self.setup.full_precision.of(&request.settings, &self.setup.space).filter(|_| has_losses(&measurement));
        match full.and_then(|full| self.known_losses(&full)) {
            Some(reference) => self.judged(&measurement, numerics::compared(&measurement.first_losses, reference)),
            None => Outcome::Measured(measurement),
        }
    }

    /// Checks the configs that would be named: the gain by a larger batch, and the losses against full precision. Returns true if
    /// one of them failed, so that another config leads.
    pub(super) fn check_named(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        let mut has_failed = false;
        let implausible = self.implausible_gains();
        for trial in implausible {
            has_failed = true;
            self.amend(trial, on_event)?;
        }
        for config in self.to_be_named() {
            let Some(Uncompared { trial, full }) = self.uncompared(&config) else { continue };
            let Some(measurement) = trial.outcome.measurement() else { continue };
            let began = Instant::now();
            let numerics = match self.reference_losses(&trial, full, on_event)? {
                Ok(reference) => numerics::compared(&measurement.first_losses, reference),
                Err(reason) => Numerics { not_compared: Some(reason), ..Numerics::default() },
            };
            if measurement.numerics.as_ref() == Some(&numerics) {
                continue; // an earlier run of the search had no time either
            }
            let outcome = self.judged(measurement, numerics);
            has_failed |= outcome.failure().is_some();
            let elapsed = trial.elapsed + began.elapsed();
            self.amend(Trial { outcome, elapsed, ..(*trial).clone() }, on_event)?;
        }
        Ok(has_failed)
    }

    /// Returns how long it takes to compare the config that would be named with full precision; zero if it needs no comparison.
    pub(super) fn time_to_compare(&self) -> Duration {
        let of_config = |config: Config| {
            let Uncompared { trial, .. } = self.uncompared(&config)?;
            let measurement = trial.outcome.measurement().filter(|run| has_losses(run))?;
            Some(self.trials.time_to_start() + reference_step(measurement) * u32::try_from(numerics::FEWEST).ok()?)
        };
        self.to_be_named().into_iter().filter_map(of_config).sum()
    }

    /// Returns the configs that would be named now, without the baseline.
    pub(super) fn to_be_named(&self) -> Vec<Config> {
        let study = self.study();
        let named: Vec<Config> = match self.setup.objective.is_pareto() {
            true => study.front().into_iter().map(|member| member.config).collect(),
            false => study.best().into_iter().map(|best| best.winner.config).collect(),
        };
        named.into_iter().filter(|config| self.setup.baseline() != Some(config)).collect()
    }

    /// Returns the trial of a config to compare with full precision; `None` if there is nothing to compare, or it has been done.
    fn uncompared(&self, config: &Config) -> Option<Uncompared> {
        let full = self.setup.full_precision.of(&self.setup.space.settings(config), &self.setup.space)?;
        let of_config = || self.trials.history.trials().iter().filter(|trial| trial.config == *config);
        let measured = || of_config().filter_map(|trial| Some((trial, trial.outcome.measurement()?)));
        let is_compared = |numerics: &Numerics| numerics.not_compared.as_deref() != Some(NO_TIME);
        if measured().any(|(_, run)| run.numerics.as_ref().is_some_and(is_compared)) {
            return None;
        }
        let most = measured().filter(|(_, run)| has_losses(run)).max_by_key(|(_, run)| run.first_losses.len());
        let (trial, _) = most.or_else(|| measured().next())?;
        Some(Uncompared { trial: Arc::clone(trial), full })
    }

    /// Runs the first steps of a config in full precision. Returns their losses, or why there are none.
    fn reference_losses(
        &mut self,
        trial: &Trial,
        full: Settings,
        on_event: OnEvent<'_>,
    ) -> Result<Result<Vec<f64>, String>, TuneError> {
        let measurement = trial.outcome.measurement();
        let Some(measurement) = measurement.filter(|run| has_losses(run)) else {
            let is_live = measurement.is_some_and(|run| run.is_live);
            let reason = if is_live { "its process had trained before" } else { "too few losses were reported" };
            return Ok(Err(reason.to_owned()));
        };
        if let Some(known) = self.known_losses(&full) {
            return Ok(Ok(known));
        }
        let left = self.time_left();
        let in_time = left.saturating_sub(self.trials.time_to_start()).div_duration_f64(reference_step(measurement));
        let count = measurement.first_losses.len().min(in_time as usize);
        if count < numerics::FEWEST || self.setup.is_stopped() {
            return Ok(Err(NO_TIME.to_owned()));
        }
        on_event(Event::Comparing { number: trial.number, settings: &full });
        let request = self.request(trial.config.clone().into(), Purpose::Round);
        let effort = Effort::Losses { count };
        let request = Request { number: trial.number, settings: full, effort, ..request };
        Ok(match self.slots.run(request, on_event)? {
            Outcome::Measured(reference) => Ok(reference.first_losses),
            Outcome::Interrupted => Err(NO_TIME.to_owned()),
            other => {
                let reason = other.failure().map_or("", |failure| failure.reason.as_str());
                Err(format!("full precision could not be run here: {}: {reason}", other.name().replace('_', " ")))
            }
        })
    }

    /// Returns the measurement with the result of the comparison, or `Diverged`.
    fn judged(&self, measurement: &Measurement, numerics: Numerics) -> Outcome {
        let drift = numerics.drift.unwrap_or(0.0);
        if drift > self.setup.limits.loss_tolerance {
            let reason = if drift.is_finite() {
                format!(
                    "the losses of the first steps differ by {:.0} % from full precision (limit {:.0} %)",
                    drift * 100.0,
                    self.setup.limits.loss_tolerance * 100.0
                )
            } else {
                "a loss of the first steps is no finite number".to_owned()
            };
            return Outcome::Diverged(Failure::new(reason));
        }
        Outcome::Measured(Measurement { numerics: Some(numerics), ..measurement.clone() })
    }

    /// Returns the losses of the same steps in full precision, if some trial has them.
    fn known_losses(&self, full: &Settings) -> Option<Vec<f64>> {
        self.trials.history.trials().iter().rev().find_map(|trial| {
            let measurement = trial.outcome.measurement()?;
            let settings = self.setup.space.settings(&trial.config);
            match (self.setup.full_precision.of(&settings, &self.setup.space), &measurement.numerics) {
                (None, _) if self.setup.full_precision.same_steps(&settings, full) => {
                    Some(measurement.first_losses.clone())
                }
                (Some(own), Some(numerics)) if self.setup.full_precision.same_steps(&own, full) => {
                    Some(numerics.reference_losses.clone())
                }
                _ => None,
            }
            .filter(|losses| !losses.is_empty())
        })
    }
}

/// Returns how long a step in full precision may take.
fn reference_step(measurement: &Measurement) -> Duration {
    /// How many times slower it may be: a round number.
    const SLOWER: f64 = 2.0;
    let step = Duration::try_from_secs_f64(measurement.timing.step_seconds.unwrap_or(0.0) * SLOWER);
    step.unwrap_or_default().max(Duration::from_micros(1))
}

/// Returns true if a measurement has the losses of the first steps of a training, enough for a comparison.
fn has_losses(measurement: &Measurement) -> bool {
    !measurement.is_live && measurement.first_losses.len() >= numerics::FEWEST
}
