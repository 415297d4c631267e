//! Compares the losses of a config's first steps with those in full precision.

use std::time::{Duration, Instant};

use super::TuneError;
use super::request::Request;
use super::search::{OnEvent, Search};
use crate::model::{Config, Event, Failure, Measurement, Numerics, Outcome, Purpose, Settings, Trial};
use crate::probe::Effort;
use crate::search::numerics;

/// Why a config was not compared. A continued search may still compare it.
const NO_TIME: &str = "no time was left";

impl Search<'_, '_> {
    /// Returns a measurement whose losses were compared, or `Diverged`, if some trial has the losses in full precision.
    pub(super) fn with_judged_losses(&self, measurement: Measurement, settings: &Settings) -> Outcome {
        let full = self.setup.full_precision.of(settings, &self.setup.space);
        match full.filter(|_| has_losses(&measurement)).and_then(|full| self.known_losses(&full)) {
            Some(reference) => self.judged(&measurement, numerics::compared(&measurement.first_losses, reference)),
            None => Outcome::Measured(measurement),
        }
    }

    /// Compares the losses of the current winners. Returns true if a winner failed.
    pub(super) fn check_losses(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        let mut has_failed = false;
        for config in self.to_be_named() {
            let Some((trial, full)) = self.uncompared(&config) else { continue };
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
            self.amend(Trial { outcome, elapsed, ..trial }, on_event)?;
        }
        Ok(has_failed)
    }

    /// Returns how long it takes to compare the current winners with full precision; zero if they need no comparison.
    pub(super) fn time_to_compare(&self) -> Duration {
        let of_config = |config: Config| {
            let (trial, _) = self.uncompared(&config)?;
            let measurement = trial.outcome.measurement().filter(|run| has_losses(run))?;
            Some(self.trials.time_to_start() + reference_step(measurement) * u32::try_from(numerics::FEWEST).ok()?)
        };
        self.to_be_named().into_iter().filter_map(of_config).sum()
    }

    pub(super) fn to_be_named(&self) -> Vec<Config> {
        let study = self.study();
        let named: Vec<Config> = match self.setup.objective.is_pareto() {
            true => study.front().into_iter().map(|member| member.config).collect(),
            false => study.best().into_iter().map(|best| best.winner.config).collect(),
        };
        named.into_iter().filter(|config| self.setup.baseline() != Some(config)).collect()
    }

    /// Returns the trial with the losses of a config to compare, and the config's settings in full precision; `None` if there is
    /// nothing to compare, or it has been done.
    fn uncompared(&self, config: &Config) -> Option<(Trial, Settings)> {
        let full = self.setup.full_precision.of(&self.setup.space.settings(config), &self.setup.space)?;
        let is_compared = |numerics: &Numerics| numerics.not_compared.as_deref() != Some(NO_TIME);
        if self.trials.runs_of(config).any(|run| run.numerics.as_ref().is_some_and(is_compared)) {
            return None;
        }
        let trials = || self.trials.history.of(config);
        let measured = || trials().filter_map(|trial| Some((trial, trial.outcome.measurement()?)));
        let most = measured().filter(|(_, run)| has_losses(run)).max_by_key(|(_, run)| run.first_losses.len());
        let (trial, _) = most.or_else(|| measured().next())?;
        Some((trial.clone(), full))
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
        let text = format!("      {}  runs in full precision, to compare the losses", full.line());
        on_event(Event::Remark { text: &text });
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
