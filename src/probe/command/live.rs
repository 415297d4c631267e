//! Measures configs in a process that already trains, and compares the results with separate processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::adapter::{Applied, Needs};
use super::super::template::{Rendered, StepTemplate, Template};
use super::stable::Open;
use super::{CommandStep, Job, Rate, Start};
use crate::model::fact::LEFT_TRAINING;
use crate::model::{Config, Estimate, Measurement, Outcome, Settings, Value};

/// The live sessions of a search, one at a time. A live session measures several configs in one process.
#[derive(Default)]
pub(super) struct Live {
    pub(super) held: Option<Held>,
    /// Targets that are no longer changed during training, because a change failed or gave a different throughput.
    closed: BTreeSet<String>,
    figures: Vec<Figure>,
    /// A config that failed live. A separate process must measure it again.
    doubt: Option<Doubt>,
    remarks: Vec<String>,
    has_told_of_leaving: bool,
    /// The number of processes that did not wait when asked. Each costs the grace time.
    not_held: u32,
    /// True if the model runs on the CPU, even if the machine has GPUs.
    pub(super) is_on_processor: bool,
}

/// After this many processes that did not wait when asked, the search stops using live sessions.
const MOST_NOT_HELD: u32 = 2;

/// A process that waits between two steps.
pub(super) struct Held {
    pub(super) process: Open,
    /// The settings at its start; `current` has the present settings.
    pub(super) opened: Settings,
    current: Settings,
}

/// A live measurement.
struct Figure {
    number: u32,
    config: Config,
    measurement: Measurement,
    /// The targets that changed since its process started.
    changed: Vec<Applied>,
}

/// A live failure.
struct Doubt {
    number: u32,
    /// The targets that differ from the config before.
    changed: Vec<Applied>,
    how: String,
}

impl Held {
    pub(super) fn new(process: Open, job: &Job) -> Self {
        Self { process, opened: job.settings.clone(), current: job.settings.clone() }
    }
}

impl Live {
    /// Returns true if the process of this job may be kept for other configs.
    pub(super) fn may_keep(&self, step: &CommandStep, job: &Job) -> bool {
        self.not_held < MOST_NOT_HELD
            && self.is_for(step, job)
            && step.template.apply.applied.iter().any(|applied| self.is_live(step, applied))
    }

    /// Returns true if a job may be measured live. The final measurements of a config need a separate process.
    fn is_for(&self, step: &CommandStep, job: &Job) -> bool {
        self.is_able(step) && !job.effort.is_for_losses() && job.experiment.is_none() && job.keeps
    }

    /// Returns true if processes of this step can receive other settings.
    fn is_able(&self, step: &CommandStep) -> bool {
        let is_wanted = match step.start {
            Start::Live => true,
            Start::Auto => step.is_gpu && !self.is_on_processor,
            Start::Warm | Start::Fresh => false,
        };
        is_wanted
            && step.template.apply.adapter.is_some()
            // A printed rate may be the mean over a time in which the process had another config.
            && matches!(step.rate, Rate::Events)
    }

    /// Returns true if a target can change while a process trains. It cannot change if the command, the environment or
    /// a file also uses the target's parameter, except for a command option that is known to set this target.
    fn is_live(&self, step: &CommandStep, applied: &Applied) -> bool {
        let has = |text: &Template| text.names().any(|(name, _)| name == applied.parameter);
        let StepTemplate { env, files, .. } = &step.template;
        let is_in_command = applied.argument.is_none() && step.template.command_has(&applied.parameter);
        let is_used =
            || is_in_command || env.iter().any(|(_, text)| has(text)) || files.iter().any(|(_, text)| has(text));
        applied.target.needs != Needs::NewProcess && !self.closed.contains(&applied.name) && !is_used()
    }

    /// Returns the parts of a config that cannot change live. Two configs with equal parts can share a process.
    fn fixed(&self, step: &CommandStep, settings: &Settings) -> (Rendered, BTreeMap<String, Value>) {
        let part = |(name, value): (&str, &Value)| {
            let applied = step.template.apply.applied.iter().find(|applied| applied.parameter == name);
            match applied.filter(|applied| self.is_live(step, applied)).map(|applied| applied.target.needs) {
                // A new loader takes any setting, or the script's own.
                Some(Needs::NewLoader) if applied.is_some_and(|applied| applied.name.starts_with("dataloader.")) => {
                    None
                }
                Some(_) if value.is_as_it_is() => Some((name.to_owned(), value.clone())),
                // A setting that can change counts as `true`, so that it equals other such settings.
                Some(needs) => Some((name.to_owned(), needs.fixed(value).cloned().unwrap_or(Value::Bool(true)))),
                None => Some((name.to_owned(), value.clone())),
            }
        };
        let fixed: BTreeMap<String, Value> = settings.iter().filter_map(part).collect();
        let kept = settings.iter().filter(|(name, _)| fixed.contains_key(*name));
        let kept: Settings = kept.map(|(name, value)| (name, value.clone())).collect();
        (step.template.render(&kept, &step.gputune, Path::new("")), fixed)
    }

    pub(super) fn not_held(&mut self) {
        self.not_held += 1;
    }

    /// Takes the waiting process, if any. The second value is true if the process can receive this job's config.
    pub(super) fn take(&mut self, step: &CommandStep, job: &Job) -> Option<(Held, bool)> {
        let held = self.held.take()?;
        let fits = self.is_for(step, job) && self.is_switch(step, &held.opened, &job.settings);
        Some((held, fits))
    }

    /// Returns true if a process started with `opened` can receive `other`, as far as this is known without asking the process.
    pub(super) fn is_switch(&self, step: &CommandStep, opened: &Settings, other: &Settings) -> bool {
        self.is_able(step) && self.fixed(step, opened) == self.fixed(step, other)
    }

    /// Keeps a process whose present config is this job's.
    pub(super) fn keep(&mut self, mut held: Held, job: &Job) {
        held.current = job.settings.clone();
        self.held = Some(held);
    }

    pub(super) fn measured(&mut self, step: &CommandStep, held: &Held, job: &Job, outcome: &Outcome) {
        if let Outcome::Measured(measurement) = outcome {
            self.tell_of_leaving(measurement);
            let changed = changes(step, &held.opened, &job.settings);
            let (number, config) = (job.number, job.config.clone());
            self.figures.push(Figure { number, config, measurement: measurement.clone(), changed });
        }
    }

    pub(super) fn refused(&mut self, step: &CommandStep, held: &Held, job: &Job, reason: &str) {
        self.close(&changes(step, &held.current, &job.settings), reason);
    }

    /// Records that a config failed live. A separate process will show if the config is the cause.
    pub(super) fn failed(&mut self, step: &CommandStep, held: &Held, job: &Job, how: String) {
        let changed = changes(step, &held.current, &job.settings);
        self.doubt = Some(Doubt { number: job.number, changed, how });
    }

    /// Compares a config's outcome in a separate process with its live result. On a difference, closes its targets.
    pub(super) fn compare(&mut self, job: &Job, outcome: &Outcome) {
        let Outcome::Measured(own) = outcome else {
            self.doubt = None;
            return;
        };
        self.tell_of_leaving(own);
        self.is_on_processor = own.facts.text("device") == Some("cpu");
        if let Some(doubt) = self.doubt.take_if(|doubt| doubt.number == job.number) {
            let reason = format!(
                "probe {} {} in a process that went on with new settings, but not in a separate process",
                doubt.number, doubt.how
            );
            self.close(&doubt.changed, &reason);
        }
        let figures = self.figures.extract_if(.., |figure| figure.config == job.config);
        let Some(figure) = figures.last() else { return };
        let same = same_rate(own, &figure.measurement).and_then(|()| same_memory(own, &figure.measurement));
        if let Err(difference) = same {
            let reason = format!("probe {} in such a process: {difference}", figure.number);
            self.close(&figure.changed, &reason);
        }
    }

    /// Adds a remark, once per search, that the script leaves training and that a probe then ends.
    fn tell_of_leaving(&mut self, measurement: &Measurement) {
        let Some(words) = measurement.facts.text(LEFT_TRAINING) else { return };
        if !std::mem::replace(&mut self.has_told_of_leaving, true) {
            self.remarks.push(format!(
                "the script left training, for example to evaluate ({words}); such a probe ends there and keeps its steps"
            ));
        }
    }

    /// Stops changing these targets live. From now on, they are set when a process starts.
    fn close(&mut self, changed: &[Applied], reason: &str) {
        let new: Vec<&Applied> = changed.iter().filter(|applied| !self.closed.contains(&applied.name)).collect();
        if new.is_empty() {
            return;
        }
        let names: Vec<String> = new.iter().map(|applied| format!("`{}`", applied.parameter)).collect();
        self.remarks.push(format!("{} is no longer changed while a process trains: {reason}", names.join(", ")));
        self.closed.extend(changed.iter().map(|applied| applied.name.clone()));
    }

    pub(super) fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }
}

fn changes(step: &CommandStep, from: &Settings, to: &Settings) -> Vec<Applied> {
    let differs = |applied: &&Applied| from.get(&applied.parameter) != to.get(&applied.parameter);
    step.template.apply.applied.iter().filter(differs).cloned().collect()
}

/// Compares the throughput of two measurements of a config. The error describes the difference.
fn same_rate(one: &Measurement, other: &Measurement) -> Result<(), String> {
    /// The largest allowed difference of two runs, even if the intervals are wider. A tie of configs has the same
    /// limit.
    const WIDEST: f64 = 0.1;
    /// The difference that is always allowed. 95% of the differences between two processes are smaller, if the
    /// throughput of processes has a standard deviation of 3%.
    const BETWEEN_RUNS: f64 = 0.083;
    let (Some(before), Some(now)) = (one.throughput, other.throughput) else {
        return Err("no throughput was measured".to_owned());
    };
    let half = |estimate: Estimate| estimate.relative_half_width().unwrap_or(WIDEST);
    let difference = now.value / before.value - 1.0;
    if difference.abs() > half(before).hypot(half(now)).clamp(BETWEEN_RUNS, WIDEST) {
        return Err(format!("throughput {:+.1}% against a separate process", difference * 100.0));
    }
    Ok(())
}

/// Compares the device memory of a config in a separate process and live. The error describes the difference.
fn same_memory(own: &Measurement, live: &Measurement) -> Result<(), String> {
    /// The largest allowed difference: the default headroom, because a larger difference could use it up.
    const WIDEST: f64 = 0.1;
    /// The difference that is always allowed: three segments of PyTorch's allocator, whose number depends on the order of
    /// allocations (`kLargeBuffer` in c10/cuda/CUDACachingAllocator.cpp).
    const SEGMENTS: f64 = 3.0 * 20.0 * 1024.0 * 1024.0;
    let is_of_device = own.facts.text("device").is_some_and(|device| device != "cpu");
    let (Some(before), Some(now)) = (own.memory.peak_bytes, live.memory.peak_bytes) else { return Ok(()) };
    let (before, now) = (before as f64, now as f64);
    if !is_of_device || (now - before).abs() <= (WIDEST * before).max(SEGMENTS) {
        return Ok(());
    }
    Err(format!("device memory {:+.1}% against a separate process", (now / before - 1.0) * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fact::Fact;
    use crate::model::{Parameter, Space};
    use crate::probe::Limits;
    use crate::probe::adapter::TARGETS;

    fn measured(device: &str, mebibytes: u64) -> Measurement {
        let mut measurement = Measurement { throughput: Some(Estimate::point(100.0)), ..Measurement::default() };
        measurement.memory.peak_bytes = Some(mebibytes << 20);
        measurement.facts.insert(0, "device", Fact::Text(device.to_owned()));
        measurement
    }

    #[test]
    fn a_target_is_closed_if_the_rate_is_equal_and_the_memory_is_not() {
        let space = Space::new([Parameter::values("batch_size", [4])]).unwrap();
        let (config, limits) = (space.first().unwrap(), Limits::default());
        let settings = space.settings(&config);
        let job = Job::new(4, &config, &settings, &limits);
        let name = "dataloader.batch_size".to_owned();
        let applied = Applied { parameter: "batch_size".to_owned(), name, target: &TARGETS[0], argument: None };
        for (mebibytes, is_closed) in [(1000, false), (1500, true)] {
            let mut live = Live::default();
            let (config, measurement) = (config.clone(), measured("cuda", mebibytes));
            live.figures.push(Figure { number: 3, config, measurement, changed: vec![applied.clone()] });
            live.compare(&job, &Outcome::Measured(measured("cuda", 1000)));
            assert_eq!(live.closed.contains("dataloader.batch_size"), is_closed, "{mebibytes}");
            assert_eq!(live.remarks().len(), usize::from(is_closed));
        }
    }

    #[test]
    fn memory_of_a_device_that_differs_is_told_and_that_of_the_host_is_not() {
        let same = |device, own, live| same_memory(&measured(device, own), &measured(device, live));
        assert_eq!(same("cuda", 1000, 1090), Ok(()));
        assert_eq!(same("cuda", 100, 150), Ok(()), "three segments");
        assert_eq!(same("cuda", 1000, 1500), Err("device memory +50.0% against a separate process".to_owned()));
        assert_eq!(same("cuda", 1000, 800), Err("device memory -20.0% against a separate process".to_owned()));
        assert_eq!(same("cpu", 1000, 1500), Ok(()));
        assert_eq!(same_memory(&measured("cuda", 1000), &Measurement::default()), Ok(()));
    }
}
