//! Runs next to the search that measure what a probe does not see: the cost of the exchange between ranks, and of the end of an epoch.
//!
//! Parameters that affect only the exchange stay closed if they could gain next to nothing. The end of an epoch is measured for the
//! baseline and the config that would be named. A probe rarely sees a whole epoch, so a run with short epochs goes through a few ends of
//! epochs: see [`Mode::ShortEpochs`].

use std::time::Duration;

use super::TuneError;
use super::request::Request;
use super::search::{OnEvent, Search};
use crate::diagnosis::{self, Differential, Evidence, Ran};
use crate::model::{
    Config, EpochEnd, Event, Exchange, Measurement, Outcome, Purpose, SAMPLES_PER_SECOND, Trial, quantity::show_seconds,
};
use crate::probe::{Experiment, Limits, Mode};

/// The time for runs with short epochs: this share of the search so far, or this many seconds if that is more.
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
    /// Returns the probe without communication to compare a measured probe with; `None` if the job cannot train without it.
    pub(super) fn without_exchange(&self, of: &Request, measurement: &Measurement) -> Option<Request> {
        let evidence = Evidence::of(measurement, self.setup.around.clone());
        let can_be_had = evidence.why_not_without_communication().is_none();
        let experiment = Some(Experiment::new(Mode::NoCommunication));
        can_be_had.then(|| Request { experiment, ..of.clone() })
    }

    /// Returns the measurement with the cost of the exchange between ranks, and reports that cost.
    pub(super) fn with_exchange(
        &self,
        measurement: Measurement,
        without: Option<Outcome>,
        on_event: OnEvent<'_>,
    ) -> Measurement {
        let mut evidence = Evidence::of(&measurement, self.setup.around.clone());
        let failure = match &without {
            Some(Outcome::Measured(_)) | None => None,
            Some(Outcome::OutOfMemory { memory, .. }) => Some(format!("without it the {memory} memory is not enough")),
            Some(other) => Some(other.failure().map_or_else(|| other.name().to_owned(), |known| known.reason.clone())),
        };
        if let Some(Outcome::Measured(run)) = without {
            evidence.runs.push((Differential::NoCommunication, Ran::Measured(Box::new(run))));
        }
        let exchange: Exchange = diagnosis::exchange(&evidence, failure.as_deref(), &self.setup.exchanging);
        on_event(Event::Remark { text: &exchange.words });
        Measurement { exchange: Some(exchange), ..measurement }
    }

    /// Returns true if this probe must measure the cost of the exchange between ranks: it is unknown, and no other probe measures
    /// it.
    pub(super) fn is_exchange_unknown(&self, purpose: Purpose) -> bool {
        let is_whole = matches!(purpose, Purpose::Baseline | Purpose::Search);
        let is_asked = self.probes.begun().any(|other| other.waits_for_exchange.is_some());
        !self.setup.exchanging.is_empty() && self.trials.history.exchange().is_none() && is_whole && !is_asked
    }

    /// Measures the end of an epoch for the baseline and for each config that would be named. Returns true if another config would be
    /// named after that.
    pub(super) fn measure_epoch_ends(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        if self.setup.is_stopped() {
            return Ok(false);
        }
        let named = self.to_be_named();
        let until = self.clock.elapsed() + self.time_for_epoch_ends();
        for config in self.without_epoch_end() {
            let left = until.saturating_sub(self.clock.elapsed()).min(self.time_left());
            let Some((trial, request)) = self.short_epochs(&config, left) else { break };
            self.rounds.ends_tried.push(config);
            let Outcome::Measured(run) = self.slots.run(request, on_event)? else { break };
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
        let each = self.trials.time_to_start().as_secs_f64() + EPOCHS * EPOCH_SECONDS;
        let most = (self.clock.elapsed().as_secs_f64() * SHARE).max(SECONDS);
        let seconds = if each > most { 0.0 } else { most };
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns the configs whose whole run is compared, and whose end of an epoch can be measured and is not known.
    fn without_epoch_end(&self) -> Vec<Config> {
        let named = self.to_be_named();
        if named.is_empty() || !self.setup.compares_rates() {
            return Vec::new();
        }
        let is_wanted = |config: &Config| {
            let runs = || self.trials.history.of(config).filter_map(|trial| trial.outcome.measurement());
            let is_known = runs().any(|run| run.timing.epoch_end.is_some());
            !is_known && runs().any(|run| batches(run).is_some()) && !self.rounds.ends_tried.contains(config)
        };
        self.setup.baseline().cloned().into_iter().chain(named).filter(is_wanted).collect()
    }

    /// Returns the run that measures the end of an epoch, and the trial that gets the result; `None` if a loader's epochs are not
    /// known, or there is no time.
    fn short_epochs(&self, config: &Config, left: Duration) -> Option<(Trial, Request)> {
        let of_config = self.trials.history.of(config).filter(|trial| trial.outcome.measurement().is_some());
        let trial = of_config.min_by_key(|trial| trial.purpose.is_repeated())?;
        let measurement = trial.outcome.measurement()?;
        let batches = batches(measurement)?;
        let step = measurement.timing.step_seconds?;
        let takes = self.trials.time_to_start().as_secs_f64() + EPOCHS * f64::from(batches.0) * step / batches.1;
        if takes > left.as_secs_f64() {
            return None;
        }
        let experiment = Experiment { batches: batches.0, ..Experiment::new(Mode::ShortEpochs) };
        let request = self.request(config.clone().into(), Purpose::Baseline);
        let limits = Limits { probe_time: self.setup.limits.probe_time.min(left), ..self.setup.limits };
        let request = Request { number: trial.number, limits, experiment: Some(experiment), ..request };
        Some((trial.clone(), request))
    }
}

/// Returns the batches of a short epoch, and how many a step has; `None` if no loader says how many an epoch has.
fn batches(measurement: &Measurement) -> Option<(u32, f64)> {
    let fact = |name: &str| measurement.facts.number(name);
    let whole = fact("loader.batches").filter(|_| measurement.unit == SAMPLES_PER_SECOND)?;
    let per_step = fact("accumulation").unwrap_or(1.0).max(1.0);
    let steps = (EPOCH_SECONDS / measurement.timing.step_seconds?).max(FEWEST_STEPS);
    let queued = fact("loader.workers").unwrap_or(0.0) * fact("loader.prefetch_factor").unwrap_or(2.0);
    let batches = (steps * per_step).max(2.0 * queued).min(whole).ceil() as u32;
    Some((batches, per_step))
}
