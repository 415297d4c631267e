//! Chooses which configs are measured in a process that trains already, and checks that they measure there as they do in
//! a process of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use super::super::adapter::{Applied, Needs};
use super::super::template::{Rendered, Template};
use super::session::Session;
use super::verdict::Verdict;
use super::{CommandStep, Effort, Job, Rate, Start};
use crate::model::fact::LEFT_TRAINING;
use crate::model::{Config, Estimate, Measurement, Outcome, Settings, Value};

/// The live sessions of a search, one at a time.
#[derive(Default)]
pub(super) struct Live {
    pub(super) held: Option<Held>,
    /// Targets that are not changed while a process trains, because that failed or measured otherwise.
    closed: BTreeSet<String>,
    figures: Vec<Figure>,
    /// A config that failed live and is to be repeated.
    doubt: Option<Doubt>,
    remarks: Vec<String>,
    /// Whether a remark says that the script leaves training.
    has_told_of_leaving: bool,
    /// Processes that did not wait when they were asked to, which costs the grace time.
    not_held: u32,
    /// The model was seen on a processor, whatever GPUs there are.
    is_on_processor: bool,
}

/// How many of them are enough.
const MOST_NOT_HELD: u32 = 2;

/// A process that waits between two steps.
pub(super) struct Held {
    pub(super) session: Session,
    /// The number of the trial that started it.
    pub(super) number: u32,
    /// What it was started with, and what it has now.
    pub(super) opened: Settings,
    current: Settings,
}

/// A config that was measured live.
struct Figure {
    number: u32,
    config: Config,
    measurement: Measurement,
    /// What was changed since its process was started.
    changed: Vec<Applied>,
}

struct Doubt {
    number: u32,
    changed: Vec<Applied>,
    how: String,
}

/// What cannot be changed while a process trains.
#[derive(PartialEq)]
struct Fixed {
    rendered: Rendered,
    settings: BTreeMap<String, Value>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("is_held", &self.held.is_some()).field("closed", &self.closed).finish()
    }
}

impl Drop for Held {
    /// It ends as if it had been measured once.
    fn drop(&mut self) {
        if self.session.supervised.is_some() {
            let _ = self.session.close(&Verdict::Enough, &mut |_| ControlFlow::Continue(()));
        }
    }
}

impl Held {
    pub(super) fn new(session: Session, job: &Job<'_>) -> Self {
        let opened = job.settings;
        Self { session, number: job.number, opened: opened.clone(), current: opened.clone() }
    }
}

impl Live {
    /// Whether a process that is started for this job may be kept for others.
    pub(super) fn may_keep(&self, step: &CommandStep, job: &Job<'_>) -> bool {
        self.not_held < MOST_NOT_HELD
            && self.is_for(step, job)
            && step.template.apply.applied.iter().any(|applied| self.is_live(step, applied))
    }

    /// Whether a job may be measured so at all. What is the last word on a config is said by a process of its own.
    fn is_for(&self, step: &CommandStep, job: &Job<'_>) -> bool {
        self.is_able(step) && job.effort != Effort::Losses && job.experiment.is_none() && job.keeps
    }

    /// Whether processes of this step can be given other settings at all.
    fn is_able(&self, step: &CommandStep) -> bool {
        let is_wanted = match step.start {
            Start::Live => true,
            Start::Auto => step.is_gpu && !self.is_on_processor,
            Start::Warm | Start::Fresh => false,
        };
        is_wanted
            && step.template.apply.adapter.is_some()
            // A rate that is printed may be the mean over a time in which the process had another config.
            && matches!(step.rate, Rate::Events)
    }

    /// Whether a target can be changed while a process trains. It cannot where the process has its parameter in another
    /// way, too, other than by the option that is known to mean the same.
    fn is_live(&self, step: &CommandStep, applied: &Applied) -> bool {
        let has = |text: &Template| text.names().any(|(name, _)| name == applied.parameter);
        let template = &step.template;
        let is_in_command = || applied.argument.is_none() && template.command_has(&applied.parameter);
        let is_elsewhere =
            || template.env.iter().map(|(_, text)| text).chain(template.files.iter().map(|(_, text)| text)).any(has);
        let is_used = || is_in_command() || is_elsewhere();
        applied.target.needs != Needs::NewProcess && !self.closed.contains(&applied.name) && !is_used()
    }

    fn fixed(&self, step: &CommandStep, settings: &Settings) -> Fixed {
        let part = |(name, value): (&str, &Value)| {
            let applied = step.template.apply.applied.iter().find(|applied| applied.parameter == name);
            match applied.filter(|applied| self.is_live(step, applied)).map(|applied| applied.target.needs) {
                Some(Needs::NewLoader) if applied.is_some_and(|applied| applied.name.starts_with("dataloader.")) => {
                    None
                }
                Some(_) if value.is_as_it_is() => Some((name.to_owned(), value.clone())),
                Some(needs) => Some((name.to_owned(), needs.fixed(value).cloned().unwrap_or(Value::Bool(true)))),
                None => Some((name.to_owned(), value.clone())),
            }
        };
        let fixed: BTreeMap<String, Value> = settings.iter().filter_map(part).collect();
        let kept = settings.iter().filter(|(name, _)| fixed.contains_key(*name));
        let kept: Settings = kept.map(|(name, value)| (name, value.clone())).collect();
        Fixed { rendered: step.template.render(&kept, &step.gputune, Path::new("")), settings: fixed }
    }

    /// Whether the model was seen on a processor, whatever GPUs there are.
    pub(super) fn is_on_processor(&self) -> bool {
        self.is_on_processor
    }

    /// Hears that a process did not wait between two steps when it was asked to.
    pub(super) fn not_held(&mut self) {
        self.not_held += 1;
    }

    /// Takes the process that waits, if there is one; the second says whether it can be given this job's config.
    pub(super) fn take(&mut self, step: &CommandStep, job: &Job<'_>) -> Option<(Held, bool)> {
        let held = self.held.take()?;
        let fits = self.is_for(step, job) && self.is_switch(step, &held.opened, job.settings);
        Some((held, fits))
    }

    /// Whether a process that was started with one config can be given the other, as far as is known before it is asked.
    pub(super) fn is_switch(&self, step: &CommandStep, opened: &Settings, other: &Settings) -> bool {
        self.is_able(step) && self.fixed(step, opened) == self.fixed(step, other)
    }

    /// Keeps a process in which this job was measured live.
    pub(super) fn keep(&mut self, mut held: Held, job: &Job<'_>) {
        held.current = job.settings.clone();
        self.held = Some(held);
    }

    /// Hears that a config was measured live.
    pub(super) fn measured(&mut self, step: &CommandStep, held: &Held, job: &Job<'_>, outcome: &Outcome) {
        if let Outcome::Measured(measurement) = outcome {
            self.tell_of_leaving(measurement);
            let changed = changes(step, &held.opened, job.settings);
            let (number, config) = (job.number, job.config.clone());
            self.figures.push(Figure { number, config, measurement: measurement.clone(), changed });
        }
    }

    /// Hears that a process cannot be given this config.
    pub(super) fn refused(&mut self, step: &CommandStep, held: &Held, job: &Job<'_>, reason: &str) {
        self.close(&changes(step, &held.current, job.settings), reason);
    }

    /// Hears that a config failed live; whether that is its own fault is seen in a process of its own.
    pub(super) fn failed(&mut self, step: &CommandStep, held: &Held, job: &Job<'_>, how: String) {
        let changed = changes(step, &held.current, job.settings);
        self.doubt = Some(Doubt { number: job.number, changed, how });
    }

    /// Hears how a config ended in a process of its own, and compares that with what it was live.
    pub(super) fn compare(&mut self, job: &Job<'_>, outcome: &Outcome) {
        let Outcome::Measured(own) = outcome else {
            self.doubt = None;
            return;
        };
        self.tell_of_leaving(own);
        self.is_on_processor = own.facts.text("device") == Some("cpu");
        if let Some(doubt) = self.doubt.take_if(|doubt| doubt.number == job.number) {
            let reason =
                format!("probe {} {} while it trained on, and not in a process of its own", doubt.number, doubt.how);
            self.close(&doubt.changed, &reason);
        }
        let figures = self.figures.extract_if(.., |figure| figure.config == *job.config);
        let Some(figure) = figures.last() else { return };
        if let Err(difference) = same_rate(own, &figure.measurement) {
            let reason = format!("of probe {}, {difference} against a process of its own", figure.number);
            self.close(&figure.changed, &reason);
        }
    }

    /// Remarks, once in a search, that probes end because the script leaves training.
    fn tell_of_leaving(&mut self, measurement: &Measurement) {
        let Some(words) = measurement.facts.text(LEFT_TRAINING) else { return };
        if !std::mem::replace(&mut self.has_told_of_leaving, true) {
            self.remarks.push(format!(
                "the script left training, for example to evaluate ({words}); such a probe ends there and keeps its steps"
            ));
        }
    }

    /// From now on these targets are set when a process starts.
    fn close(&mut self, changed: &[Applied], reason: &str) {
        let new: Vec<&Applied> = changed.iter().filter(|applied| !self.closed.contains(&applied.name)).collect();
        if new.is_empty() {
            return;
        }
        let names: Vec<String> = new.iter().map(|applied| format!("`{}`", applied.parameter)).collect();
        self.remarks.push(format!("{} is no longer changed while a process trains: {reason}", names.join(", ")));
        self.closed.extend(changed.iter().map(|applied| applied.name.clone()));
    }

    /// Returns what is to be told of it, once.
    pub(super) fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }
}

/// What is applied otherwise.
fn changes(step: &CommandStep, from: &Settings, to: &Settings) -> Vec<Applied> {
    let differs = |applied: &&Applied| from.get(&applied.parameter) != to.get(&applied.parameter);
    step.template.apply.applied.iter().filter(differs).cloned().collect()
}

/// Compares the throughput of two measurements of a config; the error says how it differs.
fn same_rate(one: &Measurement, other: &Measurement) -> Result<(), String> {
    /// The most by which two runs may differ, whatever their intervals: the widest tie between configs.
    const WIDEST: f64 = 0.1;
    /// The difference that is always allowed: 95% of differences of two processes are smaller if each has a standard deviation of 3%.
    const BETWEEN_RUNS: f64 = 0.083;
    let (Some(before), Some(now)) = (one.throughput, other.throughput) else {
        return Err("it was not measured".to_owned());
    };
    let half = |estimate: Estimate| estimate.relative_half_width().unwrap_or(WIDEST);
    let difference = now.value / before.value - 1.0;
    if difference.abs() > half(before).hypot(half(now)).clamp(BETWEEN_RUNS, WIDEST) {
        return Err(format!("its throughput was {:+.1}%", difference * 100.0));
    }
    Ok(())
}
