//! Collects a probe's reports while it runs: steps, rates, memory, errors, and how its process ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::ledger::StepKind;
use super::measuring::throughput::EPOCH;
use super::measuring::window::{DATA_WAIT, StepReport, Window};
use super::orders::{Ending, Report, start_error};
use super::protocol::{ErrorKind, Event};
use super::ranks::Ranks;
use super::totals::{HandedOut, Totals};
use super::{CommandStep, ProbeError, Rate, terminal};
use crate::model::{Account, EVALUATION, FLOPS, Facts};

/// A closed connection is orderly if its rank said `bye`, or does not read orders. `Supervisor` has no report if the
/// supervisor is gone.
pub(super) enum Message {
    Event { event: Event, rank: u32, at: Instant },
    BadLine,
    Closed { rank: u32, is_orderly: bool, at: Instant },
    Readings { numbers: Vec<f64>, at: Instant },
    Supervisor(Option<Report>),
}

pub(super) struct Heard {
    step: Arc<CommandStep>,
    program: String,
    samples_per_step: Option<f64>,
    pub(super) has_samples: bool,
    begin: Instant,
    pub(super) window: Window,
    pub(super) totals: Totals,
    pub(super) facts: Facts,
    /// The samples that the training loader handed out. The throughput may count other samples.
    pub(super) handed_out: HandedOut,
    last_step: Option<StepTime>,
    pub(super) first_step: Option<Instant>,
    /// The number of rates read from printed lines, and the time of the first.
    pub(super) printed: (usize, Option<Instant>),
    mark: Option<String>,
    pub(super) last_progress: Instant,
    pub(super) framework: Option<String>,
    /// The version of the protocol whose orders rank 0 knows.
    pub(super) version: u32,
    pub(super) is_held: bool,
    /// The last segment for which the process has taken the settings, or the reason why it refused them.
    pub(super) configured: Option<(u32, Option<String>)>,
    /// The process id of the command.
    pub(super) pid: Option<u32>,
    /// The processes that can report where they hang, by rank.
    pub(super) pids: BTreeMap<u32, u32>,
    pub(super) ranks: Ranks,
    /// The hook's targets that have not taken effect yet, each with its parameter.
    pub(super) wanted: BTreeMap<String, String>,
    /// True if the window counts steps because no process reports samples.
    pub(super) is_in_steps: bool,
    pub(super) diverged: Option<f64>,
    pub(super) is_done: bool,
    pub(super) bad_lines: u64,
    pub(super) reported: Option<(ErrorKind, String)>,
    /// The parameters without effect at any setting, because nothing in the step uses them.
    pub(super) closes: Vec<String>,
    pub(super) ending: Option<Ending>,
    pub(super) leftovers: usize,
    pub(super) survivors: Vec<u32>,
    pub(super) is_clean: bool,
}

/// The spec's demands on the step's processes, for one config.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) samples_per_step: Option<f64>,
    pub(super) ranks: Option<u32>,
    /// The targets that the hook must apply, each with its parameter.
    pub(super) targets: BTreeMap<String, String>,
}

#[derive(Clone, Copy)]
struct StepTime {
    arrived: Instant,
    /// The time that the process reported, in seconds on its own clock.
    told: Option<f64>,
}

impl Heard {
    pub(super) fn nothing(step: Arc<CommandStep>, program: &str, asked: Asked, begin: Instant) -> Self {
        let is_hooked = step.template.apply.adapter.is_some();
        Self {
            step,
            program: program.to_owned(),
            samples_per_step: asked.samples_per_step,
            has_samples: false,
            begin,
            window: Window::default(),
            totals: Totals::default(),
            facts: Facts::default(),
            handed_out: HandedOut::default(),
            last_step: None,
            first_step: None,
            printed: (0, None),
            mark: None,
            last_progress: begin,
            framework: None,
            version: 1,
            is_held: false,
            configured: None,
            pid: None,
            pids: BTreeMap::new(),
            ranks: Ranks::new(asked.ranks, is_hooked),
            wanted: asked.targets,
            is_in_steps: false,
            diverged: None,
            is_done: false,
            bad_lines: 0,
            reported: None,
            closes: Vec::new(),
            ending: None,
            leftovers: 0,
            survivors: Vec::new(),
            is_clean: false,
        }
    }

    /// Discards the reports on the current settings, before they change. Keeps the reports about the processes.
    pub(super) fn begin_segment(&mut self, asked: Asked, begin: Instant) {
        self.samples_per_step = asked.samples_per_step;
        self.wanted = asked.targets;
        (self.begin, self.last_progress) = (begin, begin);
        (self.window, self.totals) = (Window::default(), Totals::default());
        (self.facts, self.handed_out) = (Facts::default(), HandedOut::default());
        (self.last_step, self.first_step, self.mark, self.printed) = (None, None, None, (0, None));
        self.is_in_steps = false;
    }

    /// Returns true if any step was reported, even a single step without a time.
    pub(super) fn any_step(&self) -> bool {
        self.last_step.is_some() || self.window.steps() > 0
    }

    /// Takes a message. Returns true if it ends the probe: its process has ended, or its loss is no number.
    pub(super) fn hear(&mut self, message: Message) -> Result<bool, ProbeError> {
        match message {
            Message::BadLine => self.bad_lines += 1,
            Message::Closed { rank, is_orderly, at } => self.ranks.closed(rank, is_orderly, at),
            Message::Readings { numbers, at } => {
                if let Rate::Pattern { unit, .. } = &self.step.rate {
                    let rate = |number: &f64| unit.throughput(*number, self.samples_per_step);
                    let rates: Vec<f64> = numbers.iter().map(rate).collect();
                    self.window.push_rates(at.duration_since(self.begin), &rates);
                    self.last_progress = at;
                    self.printed = (self.printed.0 + rates.len(), self.printed.1.or(Some(at)));
                }
            }
            Message::Event { event, rank, at } => return self.hear_event(event, rank, at),
            Message::Supervisor(report) => return self.hear_supervisor(report),
        }
        Ok(false)
    }

    fn hear_event(&mut self, event: Event, rank: u32, at: Instant) -> Result<bool, ProbeError> {
        // Before the first step, any event is progress. After the first step, only steps are progress.
        if !self.any_step() {
            self.last_progress = at;
        }
        match event {
            Event::Step { samples, handed_out, time, seconds, loss, flops, metrics, timed } => {
                if let Some(loss) = loss.filter(|loss| !loss.is_finite()) {
                    self.diverged.get_or_insert(loss);
                    return Ok(true);
                }
                if rank != 0 {
                    return Ok(false);
                }
                self.last_progress = at;
                self.first_step.get_or_insert(at);
                self.ranks.step(at);
                // If the spec states the samples per step, or the rate is printed, the hook's `samples` are those of
                // the loader.
                let is_other = self.samples_per_step.is_some() || !matches!(self.step.rate, Rate::Events);
                let counted = samples.filter(|_| is_other && self.step.template.apply.adapter.is_some());
                self.handed_out.push(at, handed_out.or(counted));
                let seconds = self.push_step(samples, seconds, StepTime { arrived: at, told: time })?;
                self.totals.step(seconds, loss, StepKind { is_marked: self.mark.take().is_some(), is_timed: timed });
                metrics.into_iter().for_each(|(name, number)| self.totals.metric(&name, number.0));
                if let Some(flops) = flops {
                    self.totals.metric(FLOPS, flops);
                }
            }
            Event::Phase { name, seconds } if rank == 0 => self.totals.phase(&name, seconds.0),
            Event::Memory(report) => self.totals.memory(rank, report),
            // If a step has several marks, the first mark counts.
            Event::Mark { name } if rank == 0 => {
                if name == EPOCH {
                    self.window.end_epoch();
                }
                self.mark.get_or_insert(name);
            }
            // A command that gputune ends after `done` may report an error. It still counts as done.
            Event::Error { .. } if self.is_done => {}
            Event::Error { kind, message, parameters } => {
                if kind == ErrorKind::NotApplied && self.reported.is_none() {
                    self.closes = parameters;
                }
                // The first error counts: in a distributed job the other errors follow from it.
                self.reported.get_or_insert_with(|| (kind, terminal::plain(&message)));
                return Ok(true);
            }
            Event::Done => {
                self.is_done = true;
                return Ok(true);
            }
            Event::Hello { framework, rank, ranks, pid, version, .. } => {
                if rank == 0 {
                    self.version = version;
                }
                self.pids.extend(pid.map(|pid| (rank, pid)));
                self.framework = framework.or(self.framework.take());
                self.ranks.hello(rank, ranks);
            }
            Event::Fact { name, value } => self.facts.insert(rank, &name, value),
            Event::Applied { target } => drop(self.wanted.remove(&target)),
            Event::Held => {
                self.is_held = true;
                self.last_step = None;
            }
            Event::Configured { segment, refused } => self.configured = Some((segment, refused)),
            Event::Phase { .. } | Event::Mark { .. } | Event::Bye | Event::Unknown => {}
        }
        Ok(false)
    }

    /// Adds a step and returns its time; `None` for a first step without reported seconds, whose start is unknown.
    fn push_step(
        &mut self,
        samples: Option<f64>,
        seconds: Option<f64>,
        now: StepTime,
    ) -> Result<Option<f64>, ProbeError> {
        if !matches!(self.step.rate, Rate::Events) {
            return Ok(seconds);
        }
        self.has_samples |= samples.is_some();
        let stated = self.samples_per_step;
        // A script knows its number of samples. A hook can only guess it, so the spec's number has priority.
        let is_hooked = self.step.template.apply.adapter.is_some();
        let amount = if is_hooked { stated.or(samples) } else { samples.or(stated) };
        let amount = self.counted(amount)?;
        let before = self.last_step.replace(now);
        let between = before.map(|before| match (before.told, now.told) {
            (Some(before), Some(now)) => now - before,
            _ => now.arrived.duration_since(before.arrived).as_secs_f64(),
        });
        let took = seconds.or(between);
        if took.is_none() {
            self.window.skip(now.arrived.duration_since(self.begin).as_secs_f64(), amount);
        }
        if let Some(seconds) = took {
            self.window.evaluate(self.totals.current(EVALUATION));
            self.window.push(StepReport {
                at: now.arrived.duration_since(self.begin),
                seconds,
                amount,
                waited: self.totals.current(DATA_WAIT),
                mark: self.mark.as_deref(),
            });
        }
        Ok(took)
    }

    /// Returns the split of the wall time since the probe or its segment began.
    pub(super) fn account(&self) -> Option<Account> {
        self.totals.account(self.first_step?.duration_since(self.begin))
    }

    /// Returns a step's work: its samples, or 1 if the window counts steps. The first step without samples makes the
    /// window count steps; this is an error if the spec does not allow it.
    fn counted(&mut self, samples: Option<f64>) -> Result<f64, ProbeError> {
        match samples {
            Some(samples) if !self.is_in_steps => Ok(samples),
            None if !self.step.may_count_steps => Err(ProbeError::NoSamples),
            _ => {
                if !std::mem::replace(&mut self.is_in_steps, true) {
                    self.window.count_steps();
                }
                Ok(1.0)
            }
        }
    }

    fn hear_supervisor(&mut self, report: Option<Report>) -> Result<bool, ProbeError> {
        match report {
            Some(Report::Started { pid }) => {
                self.pid = Some(pid);
                return Ok(false);
            }
            Some(Report::NotStarted { errno, message }) => {
                return Err(start_error(&self.program, &self.step.template.cwd, errno, &message));
            }
            Some(Report::Ended { ending, leftovers }) => (self.ending, self.leftovers) = (Some(ending), leftovers),
            Some(Report::Clean { survivors }) => (self.survivors, self.is_clean) = (survivors, true),
            None => self.is_clean = true,
        }
        Ok(true)
    }
}
