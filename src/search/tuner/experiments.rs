//! Experiments: runs next to the search, which measure what a probe cannot see.
//!
//! Parameters that affect only the exchange between ranks stay closed if they could gain next to nothing. The end of an epoch is
//! measured for the baseline and the current winner. A probe rarely sees a whole epoch, so a run with short epochs goes through a
//! few ends of epochs: see [`Mode::ShortEpochs`]. A step with the largest batch of an epoch shows the memory that the config needs:
//! see [`Mode::LargestBatch`]. After all measurements, the framework's profiler records a few steps.

use std::time::Duration;

use super::TuneError;
use super::request::Request;
use super::search::{OnEvent, Search};
use crate::diagnosis::{self, Differential, Evidence, Ran};
use crate::model::fact::{
    LARGEST_BATCH, LARGEST_PEAK, NOT_READ, READ_BATCHES, TRACE, TRACE_ERROR, TRACE_FILE, TRACE_STEPS, TRAINED_LARGEST,
};
use crate::model::{
    Config, EpochEnd, Event, Exchange, Fact, Failure, Measurement, Outcome, Purpose, SAMPLES_PER_SECOND, Trial,
    quantity::show_seconds,
};
use crate::probe::{Effort, Experiment, Limits, Mode};

/// The time for runs with short epochs: this share of the search so far, or this many seconds if that is more.
const EPOCH_ENDS_SHARE: f64 = 0.15;
const EPOCH_ENDS_SECONDS: f64 = 10.0;

/// The epochs of a run: the first has the warm-up, and the end of the second counts.
const EPOCHS: f64 = 3.0;

/// The time of a short epoch in seconds, and its fewest steps: enough to know the usual step time, and to fill a loader's queue
/// again in half of them. Round numbers.
const EPOCH_SECONDS: f64 = 0.5;
const FEWEST_STEPS: f64 = 8.0;

/// The time in seconds below which the end of an epoch is reported as "less than 1 ms".
const SHORT: f64 = 0.001;

/// The time to read the loader alone: a round number. Thousands of texts or small images are read within it.
const READING: Duration = Duration::from_secs(5);

/// How much larger the largest batch of an epoch may be than the largest batch of a probe. A round number.
const LARGER: f64 = 2.0;

/// The share of the search so far that both recordings may take. Otherwise nothing is recorded. A round number.
const TRACES_SHARE: f64 = 0.05;

/// The steps before and in a recording (`_hook/tracing.py`), and the seconds to write and read it. Both are rounded up.
const TRACE_LENGTH: f64 = 16.0;
const TRACE_WRITING: f64 = 3.0;

/// The fact that shows that an adapter's hook took part in the training.
const DEVICE: &str = "device";

impl Search<'_, '_> {
    /// Makes the request for a run that tells more about a trial.
    fn experiment(&self, trial: &Trial, experiment: Experiment) -> Request {
        let request = self.request(trial.config.clone().into(), Purpose::Baseline);
        Request { number: trial.number, experiment: Some(experiment), ..request }
    }

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

    /// Returns true if this probe must measure the cost of the exchange between ranks, since no other probe does.
    pub(super) fn is_exchange_unknown(&self, purpose: Purpose) -> bool {
        let is_whole = matches!(purpose, Purpose::Baseline | Purpose::Search);
        let is_asked = self.probes.begun().any(|other| other.waits_for_exchange.is_some());
        !self.setup.exchanging.is_empty() && self.trials.history.exchange().is_none() && is_whole && !is_asked
    }

    /// Measures the ends of epochs of the baseline and of the current winners. Returns true if that changes the winners.
    pub(super) fn measure_epoch_ends(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        if self.setup.is_stopped() {
            return Ok(false);
        }
        let named = self.to_be_named();
        for config in self.without_epoch_end() {
            let left = self.time_for_epoch_ends().min(self.time_left());
            let Some((mut trial, request)) = self.short_epochs(&config, left) else { break };
            self.rounds.ends_tried.push(config);
            let began = self.clock.elapsed();
            let outcome = self.slots.run(request, on_event)?;
            self.rounds.ends_time += self.clock.elapsed().saturating_sub(began);
            let Outcome::Measured(run) = outcome else { break };
            let Outcome::Measured(measurement) = &mut trial.outcome else { break };
            let fact = |name: &str| run.facts.number(name);
            let (Some(seconds), Some(samples)) = (fact("epoch_end.seconds"), measurement.samples_per_epoch()) else {
                break;
            };
            let evaluation_s = fact("epoch_end.evaluation_seconds");
            measurement.timing.epoch_end = Some(EpochEnd { seconds, evaluation_s, samples });
            let takes = if seconds < SHORT { "less than 1 ms".to_owned() } else { show_seconds(seconds) };
            let text = format!("the end of an epoch takes {takes} with the config of #{}", trial.number);
            on_event(Event::Remark { text: &text });
            self.amend(trial, on_event)?;
        }
        Ok(self.to_be_named() != named)
    }

    /// Returns the time to reserve for these runs; zero if none is needed.
    pub(super) fn time_for_epoch_ends(&self) -> Duration {
        if self.without_epoch_end().is_empty() {
            return Duration::ZERO;
        }
        let each = self.trials.time_to_start().as_secs_f64() + EPOCHS * EPOCH_SECONDS;
        let most = (self.clock.elapsed().as_secs_f64() * EPOCH_ENDS_SHARE).max(EPOCH_ENDS_SECONDS);
        let most = most - self.rounds.ends_time.as_secs_f64();
        Duration::try_from_secs_f64(if each > most { 0.0 } else { most }).unwrap_or_default()
    }

    /// Returns true if the end of an epoch was measured for the baseline.
    pub(super) fn is_epoch_end_known(&self) -> bool {
        let known = |config: &Config| self.trials.runs_of(config).any(|run| run.timing.epoch_end.is_some());
        self.setup.baseline().is_some_and(known)
    }

    /// Returns the configs whose whole run is compared, and whose end of an epoch can be measured and is not known.
    fn without_epoch_end(&self) -> Vec<Config> {
        let named = self.to_be_named();
        if named.is_empty() || !self.setup.compares_rates() {
            return Vec::new();
        }
        let is_wanted = |config: &Config| {
            let runs = || self.trials.runs_of(config);
            let is_known = runs().any(|run| run.timing.epoch_end.is_some());
            !is_known && runs().any(|run| batches(run).is_some()) && !self.rounds.ends_tried.contains(config)
        };
        self.setup.baseline().cloned().into_iter().chain(named).filter(is_wanted).collect()
    }

    /// Returns the run that measures the end of an epoch, and the trial that gets the result, if epochs are known and there is
    /// time.
    fn short_epochs(&self, config: &Config, left: Duration) -> Option<(Trial, Request)> {
        let trial = self.trials.measured(config)?;
        let measurement = trial.outcome.measurement()?;
        let (batches, per_step) = batches(measurement)?;
        let step = measurement.timing.step_seconds?;
        let takes = self.trials.time_to_start().as_secs_f64() + EPOCHS * f64::from(batches) * step / per_step;
        if takes > left.as_secs_f64() {
            return None;
        }
        let request = self.experiment(trial, Experiment { batches, ..Experiment::new(Mode::ShortEpochs) });
        let limits = Limits { probe_time: request.limits.probe_time.min(left), ..request.limits };
        Some((trial.clone(), Request { limits, ..request }))
    }

    /// Trains a step on the largest batch with each current winner. Returns true if that changes the winners.
    pub(super) fn measure_largest_batches(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        let named = self.to_be_named();
        for config in self.without_largest_batch() {
            if self.setup.is_stopped() || self.time_left() < self.time_for_largest_batches() {
                break;
            }
            let Some(trial) = self.trials.measured(&config).cloned() else { break };
            self.rounds.largest_tried.push(config);
            let request =
                self.experiment(&trial, Experiment { seconds: READING, ..Experiment::new(Mode::LargestBatch) });
            let outcome = self.slots.run(request, on_event)?;
            let measured = trial.outcome.measurement();
            let Some(outcome) = measured.and_then(|before| with_largest(before, outcome)) else { continue };
            if let Some(words) = outcome.measurement().and_then(Measurement::largest_batch_words) {
                on_event(Event::Remark { text: &format!("{words}, with the config of #{}", trial.number) });
            }
            self.amend(Trial { outcome, ..trial }, on_event)?;
        }
        Ok(self.to_be_named() != named)
    }

    /// Returns the time to reserve for these runs; zero if none is needed.
    pub(super) fn time_for_largest_batches(&self) -> Duration {
        let count = u32::try_from(self.without_largest_batch().len()).unwrap_or(u32::MAX);
        (self.trials.time_to_start() + READING).saturating_mul(count)
    }

    /// Returns the current winners whose largest batch may matter and was not trained on.
    fn without_largest_batch(&self) -> Vec<Config> {
        let is_wanted = |config: &Config| {
            let runs = || self.trials.runs_of(config);
            let is_known = self.rounds.largest_tried.contains(config) || runs().any(Measurement::has_trained_largest);
            !is_known && runs().any(|run| self.may_need_more_memory(run))
        };
        self.to_be_named().into_iter().filter(is_wanted).collect()
    }

    /// Returns true if batches differ in size, the loader can be read ahead, and a larger batch may be too large. The memory of a
    /// GPU always matters, the memory of the host only if it is scarce.
    fn may_need_more_memory(&self, run: &Measurement) -> bool {
        let Some(times) = run.facts.number(LARGEST_BATCH) else { return false };
        let can_be_read = run.facts.get(NOT_READ).is_none() && run.ranks.unwrap_or(1) == 1;
        let (Some(peak), Some(capacity)) = (run.memory.peak_bytes, run.memory.capacity_bytes) else { return false };
        let usable = capacity.saturating_sub(self.setup.objective.headroom().of(capacity));
        let is_scarce = peak as f64 * times * LARGER > usable as f64;
        can_be_read && (is_scarce || run.facts.text(DEVICE) != Some("cpu"))
    }

    /// Records steps of the baseline and of the best config with the framework's profiler, if there is time.
    pub(super) fn take_traces(&mut self, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        let needed = self.time_for_traces();
        if needed.is_zero() || needed > self.time_left() {
            return Ok(());
        }
        for mut trial in self.untraced() {
            if self.setup.is_stopped() {
                break;
            }
            let request = self.experiment(&trial, Experiment::new(Mode::Trace));
            let request = Request { effort: Effort::Brief, ..request };
            let Outcome::Measured(run) = self.slots.run(request, on_event)? else { break };
            let Outcome::Measured(measurement) = &mut trial.outcome else { break };
            let facts = run.facts.iter().filter(|(name, _)| name.starts_with(TRACE));
            facts.for_each(|(name, fact)| measurement.facts.insert(0, name, fact.clone()));
            let number = trial.number;
            let text = match (run.facts.text(TRACE_FILE), run.facts.text(TRACE_ERROR)) {
                (_, Some(error)) => format!("no steps of #{number} were recorded: {error}"),
                (Some(file), None) => format!("a few steps of #{number} were recorded: {file}"),
                (None, None) => format!("a few steps of #{number} were recorded"),
            };
            on_event(Event::Remark { text: &text });
            self.amend(trial, on_event)?;
        }
        Ok(())
    }

    /// Returns the time to reserve for recordings; zero if they would take too large a share of the search.
    pub(super) fn time_for_traces(&self) -> Duration {
        let start = self.trials.time_to_start().as_secs_f64();
        let step = |trial: &Trial| trial.outcome.measurement().and_then(|run| run.timing.step_seconds);
        let each = |trial: &Trial| start + TRACE_LENGTH * step(trial).unwrap_or(0.0) + TRACE_WRITING;
        let needed: f64 = self.untraced().iter().map(each).sum();
        let most = self.clock.elapsed().as_secs_f64() * TRACES_SHARE;
        Duration::try_from_secs_f64(if needed > most { 0.0 } else { needed }).unwrap_or_default()
    }

    /// Returns a trial of the baseline and of the best config, if a hook took part and no steps were recorded.
    fn untraced(&self) -> Vec<Trial> {
        let Some(best) = self.study().best().map(|best| best.winner.config) else { return Vec::new() };
        let baseline = self.setup.baseline().filter(|baseline| **baseline != best).cloned();
        let untraced = |config: Config| {
            let has = |name: &str| self.trials.runs_of(&config).any(|run| run.facts.get(name).is_some());
            let is_wanted = has(DEVICE) && !has(TRACE_STEPS) && !has(TRACE_ERROR);
            self.trials.measured(&config).filter(|_| is_wanted).cloned()
        };
        baseline.into_iter().chain([best]).filter_map(untraced).collect()
    }
}

/// Returns the number of batches in a short epoch, and in a step; `None` if no loader reports the batches of an epoch.
fn batches(measurement: &Measurement) -> Option<(u32, f64)> {
    let fact = |name: &str| measurement.facts.number(name);
    let whole = fact("loader.batches").filter(|_| measurement.unit == SAMPLES_PER_SECOND)?;
    let per_step = fact("accumulation").unwrap_or(1.0).max(1.0);
    let steps = (EPOCH_SECONDS / measurement.timing.step_seconds?).max(FEWEST_STEPS);
    let queued = fact("loader.workers").unwrap_or(0.0) * fact("loader.prefetch_factor").unwrap_or(2.0);
    let batches = (steps * per_step).max(2.0 * queued).min(whole).ceil() as u32;
    Some((batches, per_step))
}

/// Returns a measurement with the memory of the largest batch, as an outcome; `None` if no step with it was seen.
fn with_largest(before: &Measurement, outcome: Outcome) -> Option<Outcome> {
    match outcome {
        Outcome::Measured(run) if run.has_trained_largest() => {
            let mut measurement = before.clone();
            for name in [LARGEST_BATCH, READ_BATCHES, TRAINED_LARGEST] {
                if let Some(fact) = run.facts.get(name) {
                    measurement.facts.insert(0, name, fact.clone());
                }
            }
            let on_device = run.facts.get(LARGEST_PEAK).and_then(Fact::as_number).map(|bytes| bytes as u64);
            let peak = on_device.or(run.memory.peak_bytes);
            let memory = &mut measurement.memory;
            memory.peak_bytes = memory.peak_bytes.max(peak);
            memory.allocator_retries = memory.allocator_retries.max(run.memory.allocator_retries);
            Some(Outcome::Measured(measurement))
        }
        Outcome::OutOfMemory { memory, failure } => {
            let reason = format!("with the largest batch of an epoch: {}", failure.reason);
            Some(Outcome::OutOfMemory { memory, failure: Failure { reason, ..failure } })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Memory, MemoryUse};

    fn measured(peak: u64, facts: &[(&str, Fact)]) -> Measurement {
        let memory = MemoryUse { peak_bytes: Some(peak), ..MemoryUse::default() };
        let mut run = Measurement { memory, ..Measurement::default() };
        facts.iter().for_each(|(name, fact)| run.facts.insert(0, name, fact.clone()));
        run
    }

    #[test]
    fn a_measurement_gets_the_memory_of_the_largest_batch() {
        let before = measured(50, &[]);
        let (batch, read) = ((LARGEST_BATCH, Fact::Number(1.7)), (READ_BATCHES, Fact::Number(60.0)));
        let trained = [(TRAINED_LARGEST, Fact::Flag(true)), batch, read];
        let on_device = [&trained[..], &[(LARGEST_PEAK, Fact::Number(80.0))]].concat();
        for (run, peak) in [
            (measured(70, &trained), Some(70)),
            (measured(40, &trained), Some(50)),
            (measured(90, &on_device), Some(80)),
            (measured(90, &[(TRAINED_LARGEST, Fact::Flag(false))]), None),
        ] {
            let outcome = with_largest(&before, Outcome::Measured(run));
            let seen = outcome.as_ref().and_then(Outcome::measurement);
            assert_eq!(seen.and_then(|run| run.memory.peak_bytes), peak);
            assert_eq!(seen.is_some(), seen.is_some_and(Measurement::has_trained_largest));
        }
        let lacks = Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("CUDA out of memory") };
        let failure = with_largest(&before, lacks).unwrap();
        assert_eq!(failure.failure().unwrap().reason, "with the largest batch of an epoch: CUDA out of memory");
    }
}
