//! Measures the memory of a step with the largest batch of an epoch, for the configs that would be named: see
//! [`Mode::LargestBatch`].

use std::time::Duration;

use super::TuneError;
use super::request::Request;
use super::search::{OnEvent, Search};
use crate::model::fact::{LARGEST_BATCH, LARGEST_PEAK, NOT_READ, READ_BATCHES, TRAINED_LARGEST};
use crate::model::{Config, Event, Fact, Failure, Measurement, Outcome, Purpose, Trial};
use crate::probe::{Experiment, Mode};

/// The time to read the loader alone: a round number. Thousands of texts or small images are read within it.
const READING: Duration = Duration::from_secs(5);

/// How much larger the largest batch of an epoch may be than the largest batch of a probe. A round number.
const LARGER: f64 = 2.0;

impl Search<'_, '_> {
    /// Trains a step with the largest batch, with each config that would be named. Returns true if another config would be named
    /// after that.
    pub(super) fn measure_largest_batches(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        let named = self.to_be_named();
        for config in self.without_largest_batch() {
            if self.setup.is_stopped() || self.time_left() < self.time_for_largest_batches() {
                break;
            }
            let of_config = self.trials.history.of(&config).filter(|trial| trial.outcome.measurement().is_some());
            let Some(trial) = of_config.min_by_key(|trial| trial.purpose.is_repeated()).cloned() else { break };
            self.rounds.largest_tried.push(config.clone());
            let experiment = Experiment { seconds: READING, ..Experiment::new(Mode::LargestBatch) };
            let request = self.request(config.into(), Purpose::Baseline);
            let request = Request { number: trial.number, experiment: Some(experiment), ..request };
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

    /// Returns the configs that would be named, and whose largest batch may matter and was not trained on.
    fn without_largest_batch(&self) -> Vec<Config> {
        let is_wanted = |config: &Config| {
            let runs = || self.trials.history.of(config).filter_map(|trial| trial.outcome.measurement());
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
        can_be_read && (is_scarce || run.facts.text("device") != Some("cpu"))
    }
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
        let trained = [
            (TRAINED_LARGEST, Fact::Flag(true)),
            (LARGEST_BATCH, Fact::Number(1.7)),
            (READ_BATCHES, Fact::Number(60.0)),
        ];
        let mut on_device = trained.to_vec();
        on_device.push((LARGEST_PEAK, Fact::Number(80.0)));
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
