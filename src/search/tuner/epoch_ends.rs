//! Measures what the end of an epoch costs, for the baseline and the config that would be named.
//!
//! A probe rarely sees a whole epoch. So a run with short epochs goes through a few ends of epochs: see [`Mode::ShortEpochs`].

use std::time::Duration;

use super::TuneError;
use super::order::Order;
use super::search::{OnEvent, Search};
use crate::model::{Config, EpochEnd, Event, Measurement, Outcome, SAMPLES_PER_SECOND, Trial, quantity::show_seconds};
use crate::probe::{Effort, Experiment, Limits, Mode};

/// The time for these runs: this share of the search so far, or this many seconds if that is more.
const SHARE: f64 = 0.15;
const SECONDS: f64 = 10.0;

/// The epochs of a run: the first has the warm-up, and the end of the second counts.
const EPOCHS: f64 = 3.0;

/// The time of a short epoch in seconds, and its fewest steps: so many that its steps have a usual time, and that a loader's queue is
/// full again in half of them. Round numbers.
const EPOCH_SECONDS: f64 = 0.5;
const FEWEST_STEPS: f64 = 8.0;

/// The time in seconds below which the end of an epoch is told as short.
const SHORT: f64 = 0.001;

impl Search<'_, '_> {
    /// Measures the end of an epoch for the baseline and for each config that would be named. Returns true if another config would be
    /// named after that.
    pub(super) fn measure_epoch_ends(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        if self.is_stopped() {
            return Ok(false);
        }
        let named = self.to_be_named();
        let until = self.elapsed() + self.time_for_epoch_ends();
        for config in self.without_epoch_end() {
            let left = until.saturating_sub(self.elapsed()).min(self.time_left());
            let Some((trial, order)) = self.short_epochs(&config, left) else { break };
            self.rounds.ends_tried.push(config);
            let Outcome::Measured(run) = self.slots.run(order, on_event)? else { break };
            let Outcome::Measured(measurement) = &trial.outcome else { break };
            let fact = |name: &str| run.facts.number(name);
            let (Some(seconds), Some(samples)) = (fact("epoch_end.seconds"), measurement.samples_per_epoch()) else {
                break;
            };
            let end = EpochEnd { seconds, evaluation_s: fact("epoch_end.evaluation_seconds"), samples };
            let mut measurement = measurement.clone();
            measurement.timing.epoch_end = Some(end);
            let takes = if seconds < SHORT { "less than 1 ms".to_owned() } else { show_seconds(seconds) };
            let text = format!("the end of an epoch takes {takes} with the config of #{}", trial.number);
            on_event(Event::Remark { text: &text });
            self.amend(Trial { outcome: Outcome::Measured(measurement), ..trial }, on_event)?;
        }
        Ok(self.to_be_named() != named)
    }

    /// Returns the time to reserve for these runs; zero if none is needed.
    pub(super) fn time_for_epoch_ends(&self) -> Duration {
        let needed = self.without_epoch_end().len();
        if needed == 0 {
            return Duration::ZERO;
        }
        let each = self.time_to_start().as_secs_f64() + EPOCHS * EPOCH_SECONDS;
        let most = (self.elapsed().as_secs_f64() * SHARE).max(SECONDS);
        let seconds = if each > most { 0.0 } else { most };
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns the configs whose whole run is compared, and whose end of an epoch can be measured and is not known.
    fn without_epoch_end(&self) -> Vec<Config> {
        let named = self.to_be_named();
        if named.is_empty() || !self.compares_rates() {
            return Vec::new();
        }
        let is_wanted = |config: &Config| {
            let runs = || self.history.of(config).filter_map(|trial| trial.outcome.measurement());
            let is_known = runs().any(|run| run.timing.epoch_end.is_some());
            !is_known && runs().any(|run| batches(run).is_some()) && !self.rounds.ends_tried.contains(config)
        };
        self.baseline.cloned().into_iter().chain(named).filter(is_wanted).collect()
    }

    /// Returns the run that measures the end of an epoch, and the trial that gets the result; `None` if a loader's epochs are not
    /// known, or there is no time.
    fn short_epochs(&self, config: &Config, left: Duration) -> Option<(Trial, Order)> {
        let of_config = self.history.of(config).filter(|trial| trial.outcome.measurement().is_some());
        let trial = of_config.min_by_key(|trial| trial.purpose.is_repeated())?;
        let measurement = trial.outcome.measurement()?;
        let batches = batches(measurement)?;
        let step = measurement.timing.step_seconds?;
        let takes = self.time_to_start().as_secs_f64() + EPOCHS * f64::from(batches.0) * step / batches.1;
        if takes > left.as_secs_f64() {
            return None;
        }
        let experiment = Experiment { batches: batches.0, ..Experiment::new(Mode::ShortEpochs) };
        let order = Order {
            number: trial.number,
            settings: self.set_by(config),
            config: config.clone(),
            limits: Limits { probe_time: self.limits.probe_time.min(left), ..*self.limits },
            effort: Effort::Probe,
            experiment: Some(experiment),
            keeps: false,
            is_after_disturbance: false,
        };
        Some((trial.clone(), order))
    }
}

/// Returns the batches of a short epoch, and how many a step has; `None` if no loader says how many an epoch has.
fn batches(measurement: &Measurement) -> Option<(u32, f64)> {
    let fact = |name: &str| measurement.facts.number(name);
    let whole = fact("loader.batches").filter(|_| measurement.unit == SAMPLES_PER_SECOND)?;
    let per_step = fact("accumulation").unwrap_or(1.0).max(1.0);
    let steps = (EPOCH_SECONDS / measurement.timing.step_seconds?).max(FEWEST_STEPS);
    let queued = fact("loader.workers").unwrap_or(0.0) * fact("loader.prefetch_factor").unwrap_or(2.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "such casts saturate")]
    let batches = (steps * per_step).max(2.0 * queued).min(whole).ceil() as u32;
    Some((batches, per_step))
}
