//! Warnings about a measurement: flaws of the job, resources that run out, and the largest batch.

use super::fact::{LARGEST_BATCH, NOT_READ, READ_BATCHES, TRAINED_LARGEST};
use super::measurement::{Growth, HANDED_OUT, Measurement, Resource, SAMPLES_PER_SECOND};
use super::objective::Objective;
use super::quantity::{RunLength, show_bytes, show_count, show_number, show_seconds};

/// The longest time to a limit that matters if the length of the training is unknown: a day, as most trainings are shorter.
const A_DAY: f64 = 24.0 * 3600.0;

/// The longest time that a finite epoch may take. If an epoch would take longer, the sampler is assumed to be endless.
const YEAR: f64 = 365.0 * A_DAY;

impl Measurement {
    /// Returns the warnings about a run of the winner or of the baseline. A flaw of the baseline is only a warning, since the
    /// baseline is never rejected. `run_seconds` is the time of the whole training, if it is known. `goes_on` is true if a resource
    /// grew for longer than an epoch in another run of the config.
    pub fn warnings(&self, run_seconds: Option<f64>, goes_on: bool) -> Vec<String> {
        let surplus = self.surplus_workers().map(|(delivering, workers)| {
            format!("{delivering} of {workers} workers deliver data: the dataset has no part for the others")
        });
        let found = self.recovery().or_else(|| self.flaw()).into_iter();
        found.chain(surplus).chain(self.exhaustion(run_seconds, goes_on)).chain(self.trend_words()).collect()
    }

    fn trend_words(&self) -> Option<String> {
        let trend = self.timing.trend?;
        let (times, how) = if trend > 1.0 { (trend, "slower") } else { (1.0 / trend, "faster") };
        Some(format!(
            "steps become {times:.1} times {how} while they are measured (sorted data, a cache that fills, or a schedule): \
             the rate may not hold for the whole training"
        ))
    }

    /// Returns how many workers deliver data, and how many there are, if some of them have no part of the data.
    pub fn surplus_workers(&self) -> Option<(f64, f64)> {
        Some((self.facts.number("loader.workers_delivering")?, self.facts.number("loader.workers")?))
    }

    /// Returns a sentence if memory ran out and the script then trained with smaller batches.
    pub fn recovery(&self) -> Option<String> {
        let sizes = self.facts.number("recovery.from").zip(self.facts.number("recovery.to"));
        let (from, to) = sizes.map(|(from, to)| (show_count(from), show_count(to)))?;
        Some(format!("memory ran out with a batch of {from} samples, and the script trains with {to}"))
    }

    /// Returns why the job cannot train for a whole epoch, or trains less than its rate says; `None` if nothing shows that.
    pub fn flaw(&self) -> Option<String> {
        let facts = &self.facts;
        if let Some(place) = facts.text("loader.repeats") {
            return Some(format!(
                "all workers of the loader yield the same samples ({place}): each must take its own part, with \
                 torch.utils.data.get_worker_info()"
            ));
        }
        let batch = facts.number("loader.batch_size")?;
        if let Some(before) = facts.number("loader.batch_size_before").filter(|before| *before != batch) {
            return Some(format!("the script changes the batch size while it trains, from {before} to {batch}"));
        }
        let samples = facts.number("loader.samples")?;
        if batch > samples {
            return Some(format!("the dataset has {samples} samples, fewer than a batch of {batch}"));
        }
        let is_left_over = facts.flag("loader.drop_last") == Some(false) && samples % batch == 1.0 && batch > 1.0;
        (is_left_over && facts.flag("batch_norm.needs_two_samples") == Some(true)).then(|| {
            format!(
                "the last batch of an epoch has 1 sample ({samples} samples, {batch} in a batch), on which batch normalisation fails: \
                 set drop_last=True in the DataLoader"
            )
        })
    }

    /// Returns a sentence about a resource whose limit is reached before the end of a training of this many seconds. If the length
    /// is unknown, the limit must be reached within a day.
    ///
    /// A cache fills in the first epoch only. So unless it is known that the growth goes on after an epoch, the limit must be
    /// reached within the epoch.
    pub fn exhaustion(&self, run_seconds: Option<f64>, goes_on: bool) -> Option<String> {
        let epoch = if goes_on || self.grows_beyond_an_epoch() { None } else { self.epoch_seconds() };
        let most = run_seconds.unwrap_or(A_DAY).min(epoch.unwrap_or(f64::INFINITY));
        let growth = self.machine.growth.iter().find(|growth| growth.seconds_left() < most)?;
        Some(growth_words(growth, self.timing.step_seconds))
    }

    /// Returns true if a resource grew, and the steps took longer than an epoch.
    pub fn grows_beyond_an_epoch(&self) -> bool {
        let saw_end = self.timing.epoch_end.is_some() || self.timing.outliers.contains_key("epoch");
        let steps = self.account.as_ref().map(|account| account.steps_s);
        let is_longer = || steps.zip(self.epoch_seconds()).is_some_and(|(steps, epoch)| steps > epoch);
        !self.machine.growth.is_empty() && (saw_end || is_longer())
    }

    fn epoch_seconds(&self) -> Option<f64> {
        Some(self.samples_per_epoch()? / self.throughput?.value)
    }

    /// Returns the seconds of the whole training; `None` if nothing says how long it trains.
    pub fn run_seconds(&self, objective: &Objective) -> Option<f64> {
        let length = objective.stated_run_length().or_else(|| self.positive("run.steps").map(RunLength::Steps));
        let rate = self.throughput.filter(|_| self.unit == SAMPLES_PER_SECOND)?.value;
        match length.or_else(|| self.positive("run.epochs").map(RunLength::Epochs))? {
            RunLength::Epochs(epochs) => Some(epochs * self.samples_per_epoch()? / rate),
            RunLength::Steps(steps) => Some(steps * self.timing.step_seconds?),
            RunLength::Samples(samples) => Some(samples / rate),
        }
    }

    /// Returns the number of samples in an epoch, in the unit of the throughput. `None` if no loader reports a number, or if an
    /// epoch would take more than a year: then the sampler is assumed to be endless.
    ///
    /// The throughput may count another unit than the loader's samples, such as tokens. Then each sample of the loader
    /// counts for as many units as it had in the measured time.
    pub fn samples_per_epoch(&self) -> Option<f64> {
        let counted = self.metrics.get(HANDED_OUT).and_then(|handed_out| Some(self.throughput?.value / handed_out));
        let per_sample = counted.unwrap_or_else(|| f64::from(self.ranks.unwrap_or(1)));
        let of_sampler = self.positive("loader.samples").map(|samples| samples * per_sample);
        let of_batches = || {
            let batch = self.timing.samples_per_step? / self.positive("accumulation").unwrap_or(1.0);
            Some(self.positive("loader.batches")? * batch)
        };
        let has_end = |samples: &f64| self.throughput.is_none_or(|rate| samples / rate.value < YEAR);
        of_sampler.or_else(of_batches).filter(has_end)
    }

    fn positive(&self, fact: &str) -> Option<f64> {
        self.facts.number(fact).filter(|number| *number > 0.0)
    }

    /// Returns a sentence about the largest batch and the memory with it; `None` if all batches have about the same size.
    ///
    /// If no run read the loader ahead, the sentence is about the largest batch that the probe happened to train on.
    pub fn largest_batch_words(&self) -> Option<String> {
        let (times, batches) = (self.facts.number(LARGEST_BATCH)?, show_count(self.facts.number(READ_BATCHES)?));
        let seen = if self.has_trained_largest() { "" } else { " that were seen" };
        let peak = self.memory.peak_bytes.map(|peak| format!("; peak {} with it", show_bytes(peak)));
        let not_read = self.facts.text(NOT_READ);
        let reason = not_read.map(|reason| format!(" (the loader cannot be read ahead: {reason})"));
        let (peak, reason) = (peak.unwrap_or_default(), reason.unwrap_or_default());
        Some(format!("largest of {batches} batches{seen}: {times:.1} times the mean{peak}{reason}"))
    }

    /// Returns true if the peak of memory includes a step with the largest batch of the loader.
    pub fn has_trained_largest(&self) -> bool {
        self.facts.flag(TRAINED_LARGEST) == Some(true)
    }
}

fn growth_words(growth: &Growth, step_seconds: Option<f64>) -> String {
    let seconds = growth.seconds_left();
    // A cast from `f64` to `u64` saturates.
    let amount = |size: f64| match growth.resource {
        Resource::HostMemory | Resource::DeviceMemory => show_bytes(size as u64),
        Resource::OpenFiles => show_number(size),
    };
    let left = amount(growth.left);
    let (what, limit) = match growth.resource {
        Resource::HostMemory => ("host memory grows", format!("the {left} that are left are full")),
        Resource::DeviceMemory => ("device memory grows", format!("the {left} that are left are full")),
        Resource::OpenFiles => ("open files grow", format!("{left} more reach the limit")),
    };
    let of_step = step_seconds.map(|step| format!(" ({} a step)", amount(growth.per_second * step)));
    let steps = step_seconds.map(|step| format!(" ({} steps)", show_number((seconds / step).floor())));
    let (of_step, steps) = (of_step.unwrap_or_default(), steps.unwrap_or_default());
    let (of_second, time) = (amount(growth.per_second), show_seconds(seconds));
    format!("{what} by {of_second} a second{of_step}: {limit} after {time}{steps}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Account, EpochEnd, Estimate, Fact, MachineUse, MemoryUse, Timing};

    fn with(facts: &[(&str, Fact)]) -> Measurement {
        Measurement { facts: facts.iter().cloned().collect(), ..Measurement::default() }
    }

    #[test]
    fn facts_tell_what_cannot_be_right() {
        for (samples, batch, drop_last, batch_norm, expected) in [
            (100.0, 128.0, false, false, Some("the dataset has 100 samples")),
            (129.0, 64.0, false, true, Some("the last batch of an epoch has 1 sample")),
            (129.0, 64.0, true, true, None),
            (129.0, 64.0, false, false, None),
            (128.0, 64.0, false, true, None),
            (9.0, 1.0, false, true, None),
        ] {
            let facts = with(&[
                ("loader.samples", Fact::from(samples)),
                ("loader.batch_size", Fact::from(batch)),
                ("loader.drop_last", Fact::from(drop_last)),
                ("batch_norm.needs_two_samples", Fact::from(batch_norm)),
            ]);
            let flaw = facts.flaw();
            let is_expected = expected.map_or(flaw.is_none(), |words| flaw.as_ref().unwrap().starts_with(words));
            assert!(is_expected, "{samples} {batch} {drop_last} {batch_norm}: {flaw:?}");
        }
    }

    #[test]
    fn a_batch_size_that_the_script_changes_is_told_with_both_sizes() {
        let sizes = |before: f64| {
            with(&[("loader.batch_size", Fact::from(256.0)), ("loader.batch_size_before", before.into())]).flaw()
        };
        let words = "the script changes the batch size while it trains, from 512 to 256";
        assert_eq!(sizes(512.0).as_deref(), Some(words));
        assert_eq!(sizes(256.0), None, "it has changed it back");
        let recovered = with(&[("recovery.from", Fact::from(1024.0)), ("recovery.to", Fact::from(256.0))]);
        let words = "memory ran out with a batch of 1,024 samples, and the script trains with 256";
        assert_eq!(recovered.warnings(None, false), [words]);
    }

    #[test]
    fn a_trend_is_a_warning() {
        let of = |trend| {
            let timing = Timing { trend, ..Timing::default() };
            Measurement { timing, ..Measurement::default() }.warnings(None, false).join("")
        };
        assert_eq!(of(None), "");
        assert!(of(Some(1.8)).starts_with("steps become 1.8 times slower while they are measured"));
        assert!(of(Some(0.5)).starts_with("steps become 2.0 times faster while they are measured"));
    }

    #[test]
    fn a_limit_counts_if_it_is_reached_before_the_end() {
        let gib = 1024.0 * 1024.0 * 1024.0;
        let memory = Growth { resource: Resource::HostMemory, per_second: gib / 4.0, left: 20.0 * gib };
        let mut run = Measurement {
            throughput: Some(Estimate::point(100.0)),
            timing: Timing { step_seconds: Some(0.1), ..Timing::default() },
            machine: MachineUse { growth: vec![memory], ..MachineUse::default() },
            ..Measurement::default()
        };
        let full = "memory grows by 256 MiB a second (25.6 MiB a step): the 20.0 GiB that are left are full after 1m20s \
                    (800 steps)";
        assert_eq!(run.exhaustion(None, false), Some(format!("host {full}")));
        assert_eq!(run.exhaustion(Some(79.0), false), None);
        assert!(run.exhaustion(Some(81.0), false).is_some());
        run.facts.insert(0, "loader.samples", Fact::Number(1000.0));
        assert_eq!(run.exhaustion(None, false), None, "a cache may be full at the end of the epoch, after 10 s");
        assert!(run.exhaustion(None, true).is_some(), "another run of the config grew for longer");
        assert!(!run.grows_beyond_an_epoch());
        let account = |steps_s| Some(Account { steps_s, ..Account::default() });
        run.account = account(11.0);
        assert!(run.exhaustion(None, false).is_some(), "an epoch takes 10 s");
        run.account = account(9.0);
        run.timing.epoch_end = Some(EpochEnd { seconds: 1.0, samples: 1000.0, evaluation_s: None });
        assert!(run.exhaustion(None, false).is_some(), "it grew beyond an epoch");
        let files = Growth { resource: Resource::OpenFiles, per_second: 20.0, left: 964.0 };
        run.machine.growth = vec![files];
        let words = "open files grow by 20.0 a second (2.00 a step): 964 more reach the limit after 48.2 s (482 steps)";
        assert_eq!(run.exhaustion(None, false).as_deref(), Some(words));
        run.machine.growth = vec![Growth { resource: Resource::DeviceMemory, ..memory }];
        assert_eq!(run.exhaustion(None, false), Some(format!("device {full}")));
        run.machine.growth = vec![Growth { per_second: 0.01, ..files }];
        assert_eq!(run.exhaustion(None, false), None, "more than a day");
    }

    #[test]
    fn the_largest_batch_is_one_sentence() {
        let words = |more: &[(&str, Fact)]| {
            let mut run = with(&[(LARGEST_BATCH, Fact::from(1.72)), (READ_BATCHES, Fact::from(12_000.0))]);
            run.memory = MemoryUse { peak_bytes: Some(61 << 30), ..MemoryUse::default() };
            more.iter().for_each(|(name, fact)| run.facts.insert(0, name, fact.clone()));
            run.largest_batch_words().unwrap()
        };
        assert_eq!(with(&[]).largest_batch_words(), None);
        let seen = "largest of 12,000 batches that were seen: 1.7 times the mean; peak 61.0 GiB with it";
        assert_eq!(words(&[]), seen);
        let not_read = words(&[(NOT_READ, Fact::from("its dataset is iterable"))]);
        assert!(not_read.ends_with("(the loader cannot be read ahead: its dataset is iterable)"));
        let trained = words(&[(TRAINED_LARGEST, Fact::from(true))]);
        assert_eq!(trained, "largest of 12,000 batches: 1.7 times the mean; peak 61.0 GiB with it");
    }
}
