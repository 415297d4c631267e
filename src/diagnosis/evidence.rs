//! The evidence about a job: an observed probe, differential probes, and the machine.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::machine::{Machine, Processors};
use crate::model::{
    Estimate, Measurement, Memory, Metric, Precision, Readings, SAMPLES_PER_SECOND, STEPS_PER_SECOND,
    fact::LOADER_RATE, quantity::show_number,
};

/// The prefix of the facts with the cores that the loader alone kept busy; the number of workers follows it.
const LOADER_CORES: &str = "loader_only.cores.";

/// If twice the batch gives this many times the samples per second, most of a step is a fixed cost: a step of twice the batch takes
/// only 1.3 times as long.
pub(super) const MOSTLY_FIXED: f64 = 1.54;

/// The description of a differential probe.
#[derive(Debug)]
pub struct DifferentialRow {
    /// The differential probe.
    pub differential: Differential,
    /// The name in JSON.
    pub name: &'static str,
    /// The name on the screen.
    pub label: &'static str,
    /// A description of the measurement.
    pub measures: &'static str,
}

/// Makes [`Differential`] and [`DIFFERENTIALS`] from the same rows.
macro_rules! differentials {
    ($($differential:ident = $name:literal ($label:literal): $about:literal, $measures:literal;)*) => {
        /// A probe that changes one thing about the observed probe, so that the difference shows the cost of that thing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[non_exhaustive]
        pub enum Differential {
            $(#[doc = $about] #[serde(rename = $name)] $differential,)*
        }

        /// The differential probes, in the order of [`Differential`].
        pub const DIFFERENTIALS: &[DifferentialRow] = &[$(DifferentialRow {
            differential: Differential::$differential,
            name: $name,
            label: $label,
            measures: $measures,
        }),*];
    };
}

differentials! {
    Replay = "replay" ("replayed batches"): "Trains on the first batches again and again, so nothing is loaded.",
        "the first batches come again and again: the rate with a perfect loader";
    LoaderOnly = "loader_only" ("loader alone"): "Runs the loader alone, with several numbers of workers.",
        "the loader runs without training, with several numbers of workers: the rate of the data";
    Cold = "cold" ("cold cache"): "Repeats the probe after the data's files were dropped from the page cache.",
        "the job after the dataset's files were dropped from the page cache: the cost of storage";
    OneThread = "one_thread" ("one thread"): "Trains with one thread for each operation.",
        "the job with one thread for each operation, if its cores are shared: the cost of threads that wait for each other";
    DoubleBatch = "double_batch" ("twice the batch"): "Trains on replayed batches of twice the size.",
        "replayed batches of twice the size: the fixed cost of a step";
    EightBatches = "eight_batches" ("eight times the batch"): "Trains on replayed batches of eight times the size, if twice the size gained much.",
        "replayed batches of eight times the size, if most of a step is a fixed cost: the gain of a large batch";
    HalfBatch = "half_batch" ("half the batch"): "Trains on replayed batches of half the size, if twice the size does not fit.",
        "replayed batches of half the size, if twice the size does not fit: the gain of a larger batch";
    OtherPrecision = "other_precision" ("bf16"): "Trains on replayed batches in another precision.",
        "replayed batches in bf16, or in fp16 if the GPU has no bf16: the cost of the precision";
    Pinned = "pinned" ("pinned batches"): "Trains with batches in page-locked memory.",
        "the job with `pin_memory`: the cost of copies from pageable memory";
    NoCommunication = "no_communication" ("no communication"): "Trains while the ranks exchange neither gradients nor weights.",
        "the job without the exchange of DistributedDataParallel or fully_shard: the communication that nothing hides";
    OneRank = "one_rank" ("one rank"): "Trains with one rank instead of many.",
        "the job with one process of `torchrun`: how much the ranks cost each other";
}

impl Differential {
    /// Returns its description.
    pub fn row(self) -> &'static DifferentialRow {
        // The macro keeps both in the same order.
        &DIFFERENTIALS[self as usize]
    }
}

/// The result of a differential probe.
#[derive(Debug, Clone, PartialEq)]
pub enum Ran {
    /// It was measured.
    Measured(Box<Measurement>),
    /// It ran out of memory, which counts as evidence.
    OutOfMemory(Memory),
    /// It could not run or gave no result, with the reason.
    Failed(String),
    /// It was left out, with the reason.
    LeftOut(String),
}

/// Facts about the machine that do not come from a probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Around {
    /// CPU cores that the job may use, within the quota of its control group.
    pub cores: Option<f64>,
    /// Memory that is available without swapping, in bytes.
    pub memory_available: Option<u64>,
    /// Total memory, within the limit of the control group, in bytes.
    pub memory: Option<u64>,
    /// The size of `/dev/shm` in bytes.
    pub shared_memory: Option<u64>,
    /// The lowest compute capability of the visible GPUs.
    pub compute_capability: Option<(i32, i32)>,
    /// The warnings of [`machine`](crate::machine): the rule's name and the message.
    pub warnings: Vec<(String, String)>,
}

impl Around {
    /// Returns only the number of CPU cores, which takes no time.
    pub fn processors() -> Self {
        Self { cores: Some(Processors::look().effective()), ..Self::default() }
    }

    /// Returns only this number of CPU cores.
    pub fn with_cores(cores: usize) -> Self {
        Self { cores: Some(cores as f64), ..Self::default() }
    }

    /// Returns the facts about a machine.
    pub fn of(machine: &Machine) -> Self {
        let host = &machine.host;
        let visible = machine.gpus.iter().filter(|gpu| gpu.is_visible);
        Self {
            cores: Some(host.processors.effective()),
            memory_available: host.memory_available_bytes,
            memory: host.memory_bytes,
            shared_memory: host.shared_memory_bytes,
            compute_capability: visible.filter_map(|gpu| gpu.compute_capability).min(),
            warnings: machine.warnings.iter().map(|found| (found.rule.to_owned(), found.message.clone())).collect(),
        }
    }
}

/// All evidence of a diagnosis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// The measurement of the unmodified job.
    pub observed: Measurement,
    /// The differential probes, in the order in which they ran.
    pub runs: Vec<(Differential, Ran)>,
    /// The machine.
    pub around: Around,
}

fn sound(number: f64) -> Option<f64> {
    (number.is_finite() && number >= 0.0).then_some(number)
}

fn positive(number: f64) -> Option<f64> {
    sound(number).filter(|number| *number > 0.0)
}

pub(super) fn ratio(above: f64, below: f64) -> Option<f64> {
    positive(positive(above)? / positive(below)?)
}

impl Evidence {
    /// Returns the evidence of a single probe.
    pub fn of(measurement: &Measurement, around: Around) -> Self {
        Self { observed: measurement.clone(), runs: Vec::new(), around }
    }

    /// Returns the measurement of a differential probe.
    pub fn run(&self, differential: Differential) -> Option<&Measurement> {
        self.runs.iter().rev().find_map(|(which, ran)| match ran {
            Ran::Measured(measurement) if *which == differential => Some(measurement.as_ref()),
            _ => None,
        })
    }

    /// Returns the first differential probe that ran out of memory, with the kind of memory.
    pub fn ran_out_of_memory(&self) -> Option<(Differential, Memory)> {
        self.runs.iter().find_map(|(which, ran)| match ran {
            Ran::OutOfMemory(memory) => Some((*which, *memory)),
            _ => None,
        })
    }

    /// Returns a number that the job reported about itself.
    pub fn number(&self, name: &str) -> Option<f64> {
        sound(self.observed.facts.number(name)?)
    }

    /// Returns a flag that the job reported about itself.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.observed.facts.flag(name)
    }

    /// Returns a string that the job reported about itself.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.observed.facts.text(name)
    }

    /// Returns true if the job trains on a GPU.
    pub fn is_gpu(&self) -> bool {
        match self.text("device") {
            Some(device) => device != "cpu",
            None => !self.observed.machine.gpus.is_empty(),
        }
    }

    /// Returns the wall time of a step in seconds.
    pub fn step(&self) -> Option<f64> {
        positive(self.observed.timing.step_seconds?)
    }

    /// Returns the share of a step that a phase takes, at most 1.
    pub fn share(&self, phase: &str) -> Option<f64> {
        let seconds = sound(*self.observed.phase_seconds.get(phase)?)?;
        Some((seconds / self.step()?).min(1.0))
    }

    /// Returns the share of a step that belongs to no phase: the host's own work between the phases.
    pub fn overhead(&self) -> Option<f64> {
        let phases = &self.observed.phase_seconds;
        if phases.is_empty() {
            return None;
        }
        let told: f64 = phases.values().copied().filter_map(sound).sum();
        Some((1.0 - told / self.step()?).clamp(0.0, 1.0))
    }

    /// Returns a fact in seconds per step as a share of a step, at most 1.
    pub fn share_of_fact(&self, name: &str) -> Option<f64> {
        Some((self.number(name)? / self.step()?).min(1.0))
    }

    /// Returns true if rates count steps, because the job does not report the samples of a step.
    pub fn is_in_steps(&self) -> bool {
        self.observed.unit == STEPS_PER_SECOND
    }

    /// Formats a rate in the unit of this evidence.
    pub fn shown_rate(&self, rate: f64) -> String {
        let unit = if self.is_in_steps() { STEPS_PER_SECOND } else { SAMPLES_PER_SECOND };
        format!("{} {unit}", show_number(rate))
    }

    /// Returns the samples per second of the observed job, all ranks together. They are computed from the steps if the throughput has
    /// another unit. If the job does not report samples, the result is steps per second.
    pub fn rate(&self) -> Option<Estimate> {
        rate(&self.observed)
    }

    /// Returns the samples per second of a differential probe. `None` if only steps are counted and its steps have another batch size or
    /// fewer ranks, so they cannot be compared.
    pub fn rate_of(&self, differential: Differential) -> Option<Estimate> {
        const OTHER_STEPS: [Differential; 4] =
            [Differential::DoubleBatch, Differential::EightBatches, Differential::HalfBatch, Differential::OneRank];
        let run = self.run(differential)?;
        let is_in_steps = run.unit == STEPS_PER_SECOND;
        self.rate_of_run(run).filter(|_| !(is_in_steps && OTHER_STEPS.contains(&differential)))
    }

    /// Returns the samples per second of a run, or its steps per second if the job's rates count steps.
    pub(super) fn rate_of_run(&self, run: &Measurement) -> Option<Estimate> {
        rate(run).filter(|_| (run.unit == STEPS_PER_SECOND) == self.is_in_steps())
    }

    /// Returns the speedup of a differential probe over the job, with a lower bound.
    pub fn gain_of(&self, differential: Differential) -> Option<Gain> {
        Gain::between(self.rate_of(differential)?, self.rate()?)
    }

    /// Returns the speedup of replayed batches over the job.
    pub fn gain_without_loader(&self) -> Option<Gain> {
        self.gain_of(Differential::Replay)
    }

    /// Returns the factor by which watching slows the observed job, at least 1. Replayed batches run unwatched, so the slowdown is
    /// their gain beyond the wait for data. It is large if a script writes often, since the hook counts each write.
    pub(super) fn cost_of_watching(&self) -> f64 {
        let wait = self.share("data_wait").unwrap_or(0.0);
        self.gain_without_loader().map_or(1.0, |gain| (gain.times * (1.0 - wait)).max(1.0))
    }

    /// Returns the gain in samples per second of a differential probe with replayed batches over the job's own replayed batches.
    pub fn gain_over_replay(&self, differential: Differential) -> Option<Gain> {
        Gain::between(self.rate_of(differential)?, self.rate_of(Differential::Replay)?)
    }

    /// Returns the samples per second of the loader alone, all ranks together, by its number of workers.
    pub fn loader_rates(&self) -> BTreeMap<u32, f64> {
        let run = self.run(Differential::LoaderOnly).filter(|_| !self.is_in_steps());
        let Some(run) = run else { return BTreeMap::new() };
        let ranks = f64::from(self.observed.ranks.unwrap_or(1).max(1));
        let rates = run.facts.numbered(LOADER_RATE).into_iter();
        rates.filter_map(|(workers, rate)| Some((workers, positive(rate)? * ranks))).collect()
    }

    /// Returns the cores that the loader alone kept busy, by its number of workers.
    pub fn loader_cores(&self) -> BTreeMap<u32, f64> {
        let run = self.run(Differential::LoaderOnly);
        let used = run.map(|run| run.facts.numbered(LOADER_CORES)).unwrap_or_default().into_iter();
        used.filter_map(|(workers, cores)| Some((workers, sound(cores)?))).collect()
    }

    /// Returns the samples per second of the loader alone with the job's number of workers.
    pub fn loader_rate(&self) -> Option<f64> {
        self.loader_rates().get(&self.workers()?).copied()
    }

    /// Returns the number of workers of the training loader.
    pub fn workers(&self) -> Option<u32> {
        whole(self.number("loader.workers")?)
    }

    /// Returns the batch size of the training loader.
    pub fn batch_size(&self) -> Option<u32> {
        whole(self.number("loader.batch_size")?).filter(|size| *size > 0)
    }

    /// Returns the most batches that can wait in the queues of all workers together.
    pub fn queue(&self) -> Option<f64> {
        let prefetch = self.number("loader.prefetch_factor").unwrap_or(2.0);
        Some(self.number("loader.workers")? * prefetch)
    }

    /// Returns the time to collate a batch, per sample: wall time and CPU time in seconds.
    pub fn collate_each(&self) -> (f64, f64) {
        let batch = self.number("loader.batch_size").unwrap_or(1.0);
        let each = |name: &str| ratio(self.number(name)?, batch);
        let wall = each("loader.collate_seconds").unwrap_or(0.0);
        (wall, each("loader.collate_cpu_seconds").unwrap_or(wall).min(wall))
    }

    /// Returns the wall time to load one sample, including its part of collating, in seconds.
    pub fn item_wall(&self) -> Option<f64> {
        Some(self.number("loader.item_seconds")? + self.collate_each().0)
    }

    /// Returns the CPU time to load one sample, including its part of collating, in seconds.
    pub fn item_cpu(&self) -> Option<f64> {
        Some(self.number("loader.item_cpu_seconds")? + self.collate_each().1)
    }

    /// Returns the share of a sample's time, in the dataset and in collating, that is CPU time.
    pub fn item_cpu_share(&self) -> Option<f64> {
        let share = ratio(self.item_cpu()?, self.item_wall()?);
        share.map(|share| share.min(1.0)).or_else(|| Some(0.0).filter(|_| self.item_wall() > Some(0.0)))
    }

    /// Returns a reading of the host.
    pub fn host(&self, metric: Metric) -> Option<f64> {
        reading(&self.observed.machine.host, metric)
    }

    /// Returns a reading of the GPUs: the mean over the GPUs that report it.
    pub fn gpu(&self, metric: Metric) -> Option<f64> {
        let told: Vec<f64> =
            self.observed.machine.gpus.iter().filter_map(|gpu| reading(&gpu.readings, metric)).collect();
        crate::probe::stats::mean(&told)
    }

    /// Returns the share of CPU time that other programs took while almost no core was idle; 0 otherwise.
    pub fn foreign(&self) -> f64 {
        self.observed.machine.foreign_cpu_share.and_then(sound).map_or(0.0, |share| share.min(1.0))
    }

    /// Returns the share of CPU time that other programs took while the loader ran alone, or while the job trained if that is more.
    pub(super) fn foreign_beside_loader(&self) -> f64 {
        let then = self.run(Differential::LoaderOnly).and_then(|run| run.machine.foreign_cpu_share).and_then(sound);
        then.unwrap_or(0.0).min(1.0).max(self.foreign())
    }

    /// Returns the CPU cores that the job may use.
    pub fn cores(&self) -> Option<f64> {
        positive(self.around.cores?)
    }

    /// Returns the message of a warning about the machine.
    pub fn warning(&self, rule: &str) -> Option<&str> {
        self.around.warnings.iter().find(|(name, _)| name == rule).map(|(_, message)| message.as_str())
    }

    /// Returns the precision of the training.
    pub fn precision(&self) -> Option<Precision> {
        Precision::named(self.text("precision")?)
    }

    /// Returns the number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.observed.ranks.unwrap_or(1).max(1)
    }
}

fn reading(readings: &Readings, metric: Metric) -> Option<f64> {
    sound(readings.get(&metric)?.value)
}

fn whole(number: f64) -> Option<u32> {
    (number.fract() == 0.0 && (0.0..=1e9).contains(&number)).then_some(number as u32)
}

/// Returns the samples per second, or steps per second if the throughput counts steps.
fn rate(measurement: &Measurement) -> Option<Estimate> {
    if [SAMPLES_PER_SECOND, STEPS_PER_SECOND].contains(&measurement.unit.as_str())
        && let Some(throughput) = measurement.throughput
        && positive(throughput.value).is_some()
    {
        return Some(throughput);
    }
    Some(Estimate::point(ratio(measurement.timing.samples_per_step?, measurement.timing.step_seconds?)?))
}

/// A speedup, with the lower bound that the intervals allow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// The point estimate.
    pub times: f64,
    /// The lower bound: the slow end of one interval over the fast end of the other.
    pub at_least: f64,
}

impl Gain {
    pub(super) fn between(fast: Estimate, slow: Estimate) -> Option<Self> {
        let times = ratio(fast.value, slow.value)?;
        let at_least = ratio(fast.low.unwrap_or(fast.value), slow.high.unwrap_or(slow.value)).unwrap_or(0.0);
        Some(Self { times, at_least: at_least.min(times) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Fact, Timing};

    #[test]
    fn numbers_that_cannot_be_meant_are_not_there() {
        let mut evidence = Evidence::default();
        evidence.observed.facts =
            [("loader.workers", Fact::from(-1.0)), ("threads", Fact::from(2.0))].into_iter().collect();
        assert_eq!((evidence.number("loader.workers"), evidence.number("threads")), (None, Some(2.0)));
        evidence.observed.timing.step_seconds = Some(0.0);
        evidence.observed.phase_seconds.insert("data_wait".to_owned(), 1.0);
        assert_eq!(evidence.share("data_wait"), None);
        evidence.observed.timing.step_seconds = Some(0.5);
        assert_eq!(evidence.share("data_wait"), Some(1.0));
    }

    #[test]
    fn a_gain_is_at_least_what_the_intervals_allow() {
        let gain =
            Gain::between(Estimate::interval(200.0, 180.0, 220.0), Estimate::interval(100.0, 95.0, 120.0)).unwrap();
        assert_eq!((gain.times, gain.at_least), (2.0, 1.5));
        assert_eq!(Gain::between(Estimate::point(1.0), Estimate::point(0.0)), None);
        assert_eq!(Gain::between(Estimate::point(f64::NAN), Estimate::point(1.0)), None);
    }

    #[test]
    fn rates_are_samples_whatever_throughput_counts() {
        let mut measurement = Measurement {
            throughput: Some(Estimate::point(9000.0)),
            unit: "tokens/s".to_owned(),
            timing: Timing { samples_per_step: Some(8.0), step_seconds: Some(0.5), ..Default::default() },
            ..Measurement::default()
        };
        assert_eq!(rate(&measurement).unwrap().value, 16.0);
        measurement.unit = "samples/s".to_owned();
        assert_eq!(rate(&measurement).unwrap().value, 9000.0);
    }

    #[test]
    fn rates_of_steps_are_compared_with_rates_of_steps_only() {
        let measured = |unit: &str, rate| {
            let throughput = Some(Estimate::point(rate));
            let measurement = Measurement { throughput, unit: unit.to_owned(), ..Measurement::default() };
            Ran::Measured(Box::new(measurement))
        };
        let Ran::Measured(observed) = measured("steps/s", 4.0) else { panic!("it is") };
        let mut evidence = Evidence { observed: *observed, ..Evidence::default() };
        for (differential, unit) in [
            (Differential::Replay, "steps/s"),
            (Differential::DoubleBatch, "steps/s"),
            (Differential::Pinned, "samples/s"),
        ] {
            evidence.runs.push((differential, measured(unit, 8.0)));
        }
        assert_eq!(evidence.gain_of(Differential::Replay).map(|gain| gain.times), Some(2.0));
        assert_eq!(evidence.gain_of(Differential::DoubleBatch), None, "twice the work in a step");
        assert_eq!(evidence.gain_of(Differential::Pinned), None);
        assert_eq!(evidence.shown_rate(4.0), "4.00 steps/s");
    }
}
