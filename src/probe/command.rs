//! Runs probes of a command: starts it under a supervisor, listens to it, ends it.

mod demands;
mod duel;
mod ending;
mod environment;
mod live;
mod segments;
mod session;
mod spending;
mod stable;
mod starting;
mod step;
mod surroundings;
mod verdict;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::duel::{Duel, DuelWatch, Duelled, Way};
use super::idle::Idle;
use super::sweep;
use super::warm::{Imports, Told, Warm};
use super::writes::{Protection, WritesError};
use super::{Effort, Experiment, Job, Limits, Mode, ProbeError, Prober, Rate, Start, Watch};
use crate::machine::{GpuMeter, nvml::Visible};
use crate::model::{Config, Failure, Outcome, Progress};
pub use demands::as_it_is_needs;
use environment::KnownWords;
use live::{Held, Live};
use segments::Answer;
use session::{Opening, Session};
use stable::{Open, Stable};
use starting::Process;
pub use step::CommandStep;
use verdict::Verdict;

/// Runs a command for each probe; logs and rendered files go below a folder.
#[derive(Debug)]
pub struct CommandProber {
    step: Arc<CommandStep>,
    folder: PathBuf,
    /// The memory that was in use before the first probe.
    idle: Option<Idle>,
    /// The words of commands that reached a step.
    known_words: KnownWords,
    /// Whether the step is one process, and waits when it is asked to; `None` where it was not asked.
    obeys: Option<bool>,
    live: Live,
    /// The processes that wait for the next round.
    stable: Stable,
    /// Whether a process failed beside those that are held, and not alone.
    is_alone: bool,
    warm: Warm,
    /// The protection of files that are not the probe's, once it has been found. It is dropped after the processes.
    protection: Option<Protection>,
}

impl CommandProber {
    /// A prober that puts logs into `folder/logs` and rendered files into `folder/probes`.
    pub fn new(step: CommandStep, folder: impl Into<PathBuf>) -> Self {
        // Beside others there is no moment later at which nobody runs.
        let idle = step.slot.as_ref().map(|_| Self::idle(&step).beside_others());
        Self {
            step: Arc::new(step),
            folder: folder.into(),
            idle,
            known_words: KnownWords::default(),
            obeys: None,
            protection: None,
            warm: Warm::default(),
            live: Live::default(),
            stable: Stable::default(),
            is_alone: false,
        }
    }

    /// Finds the protection for files of others; if it is not called, the first probe does it.
    ///
    /// # Errors
    /// What the step asks for cannot be had.
    pub fn protect(&mut self) -> Result<&Protection, WritesError> {
        let step = &self.step;
        if self.protection.is_none() {
            self.protection = Some(Protection::find(&step.template, step.writes, &step.supervisor, &self.folder)?);
        }
        self.protection.as_ref().ok_or(WritesError::NoHook)
    }

    /// Records the memory in use before the first probe, and before each further one waits until it is back to that.
    /// `Break` when the caller does not want to wait any longer.
    fn settle(&mut self, visible: &Visible, watch: Watch<'_>) -> Result<ControlFlow<()>, ProbeError> {
        // Those that are held have their memory.
        if let Some(idle) = self.idle.as_mut().filter(|_| self.stable.is_empty()) {
            return idle.wait(visible, watch);
        }
        if self.idle.is_none() {
            self.idle = Some(Self::idle(&self.step));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads what is in use before the first probe.
    fn idle(step: &CommandStep) -> Idle {
        sweep::sweep();
        Idle::read(if step.is_gpu { GpuMeter::shared().ok() } else { None })
    }

    /// Why a job cannot be run at all.
    fn refusal(&self, job: &Job<'_>) -> Option<String> {
        let apply = &self.step.template.apply;
        demands::refusal_as_it_is(&self.step, job)
            .or_else(|| apply.refusal(job.settings))
            .or_else(|| job.experiment.and_then(|asked| asked.refusal(apply.adapter)))
    }

    /// The GPUs that the step sees, as its environment says.
    fn visible(&self, job: &Job<'_>) -> Visible {
        let folder = Self::probe_dir(&self.folder, job.number);
        let env = self.step.template.render(job.settings, &self.step.gputune, &folder).env;
        Visible::of(&env.into_iter().collect())
    }

    /// The log of a trial, relative to the folder.
    pub fn log_name(number: u32, effort: Effort) -> PathBuf {
        let suffix = if effort == Effort::Losses { "-full-precision" } else { "" };
        PathBuf::from(format!("logs/{number:04}{suffix}.log"))
    }

    /// The folder of a trial's rendered files.
    pub fn probe_dir(folder: &Path, number: u32) -> PathBuf {
        folder.join(format!("probes/{number:04}"))
    }
}

/// Whether a probe failed in a way that another process of the same job may cause.
fn is_failure_beside_others(outcome: &Outcome) -> bool {
    let is_taken = |failure: &Failure| super::classify::is_taken(&failure.reason);
    matches!(outcome, Outcome::Crashed(_) | Outcome::OutOfMemory { .. } | Outcome::Stalled(_))
        || matches!(outcome, Outcome::Disturbed(failure) if is_taken(failure))
}

/// Whether a probe crashed since somebody ends all there is: Slurm signals all processes of a job that it cancels or whose time limit
/// is reached, and this one may notice it later than the probe. Otherwise its config would be blamed.
fn is_ended_with_all(outcome: &Outcome, watch: Watch<'_>) -> bool {
    /// How much later: a round number.
    const LATER: Duration = Duration::from_millis(100);
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    let begin = Instant::now();
    while matches!(outcome, Outcome::Crashed(_)) && begin.elapsed() < LATER {
        if watch(&Progress::default()).is_break() {
            return true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    false
}

impl Prober for CommandProber {
    fn probe(&mut self, job: &Job<'_>, watch: Watch<'_>) -> Result<Outcome, ProbeError> {
        if let Some(reason) = self.refusal(job) {
            return Ok(Outcome::Rejected(Failure::new(reason)));
        }
        let visible = self.visible(job);
        self.protect()?;
        if self.step.is_gpu && !self.live.is_on_processor() {
            // What they hold of the device's memory would be missing.
            self.stable.keep(&[]);
        }
        match self.probe_live(job, &visible, watch) {
            Ok(Some(outcome)) => return Ok(outcome),
            // Who counted samples may not know how to go on; a process of its own tells.
            Ok(None) | Err(ProbeError::NoSamples) => {}
            Err(error) => return Err(error),
        }
        let mut is_second = false;
        loop {
            let mut warm = std::mem::take(&mut self.warm);
            let mut probed = self.probe_somehow(&mut warm, job, &visible, watch);
            probed.iter_mut().for_each(|outcome| spending::share(job, outcome, &mut warm.spent));
            self.warm = warm;
            let outcome = match probed {
                // Only for a job that is run as it is: with settings the search cannot go on either.
                Err(error @ ProbeError::NoSamples)
                    if job.config.is_as_it_is() && self.step.samples_per_step.is_some() =>
                {
                    let reason = format!("it cannot be compared as it is: {error}; state the batch size in [baseline]");
                    return Ok(Outcome::Rejected(Failure::new(reason)));
                }
                outcome => outcome?,
            };
            // A port, a lock or the memory may be taken by those that are held.
            let is_failure = is_failure_beside_others(&outcome);
            if (is_failure || matches!(outcome, Outcome::Disturbed(_))) && !self.stable.is_empty() {
                self.stable.keep(&[]);
                is_second = is_failure;
                continue;
            }
            self.is_alone |= is_second && !is_failure;
            let lines: Vec<String> = outcome.failure().map(demands::said).unwrap_or_default();
            // A folder that the probe writes to is no data folder: with a layer over it the same probe may succeed.
            if !self.protection.as_mut().is_some_and(|protection| protection.cover_written(&lines)) {
                if job.effort != Effort::Losses {
                    self.live.compare(job, &outcome);
                }
                return Ok(if is_ended_with_all(&outcome, watch) { Outcome::Interrupted } else { outcome });
            }
        }
    }

    fn duel(&mut self, duel: &Duel<'_>, watch: DuelWatch<'_>) -> Result<Duelled, ProbeError> {
        let duelled = self.run_duel(duel, watch)?;
        // What is named at the end is compared with what it was live.
        if duelled.way == Way::InTurn && !(duel.keeps && duel.ways.contains(&Way::Switched)) {
            for (job, outcome) in duel.jobs.iter().zip(&duelled.sides) {
                outcome.iter().for_each(|outcome| self.live.compare(job, outcome));
            }
        }
        Ok(duelled)
    }

    fn keep(&mut self, configs: &[Config]) {
        self.stable.keep(configs);
    }

    fn restart(&mut self, config: &Config) {
        self.stable.restart(config);
    }

    fn remarks(&mut self) -> Vec<String> {
        [self.warm.remarks(), self.live.remarks()].concat()
    }
}

impl CommandProber {
    /// Runs one process; returns what it told of its imports, too, where it was asked for that.
    fn probe_once(
        &mut self,
        process: Process<'_>,
        job: &Job<'_>,
        visible: &Visible,
        watch: Watch<'_>,
    ) -> Result<(Outcome, Option<Told>), ProbeError> {
        if self.settle(visible, watch)?.is_break() {
            return Ok((Outcome::Interrupted, None));
        }
        // This must happen before the step can hold any memory.
        let idle_gpus = self.idle.as_ref().filter(|_| self.step.is_gpu).map(|idle| idle.gpu_state(visible));
        let is_live = self.live.may_keep(&self.step, job);
        let keeps = is_live || self.may_stay(job);
        let place = self.stable.free_place();
        let opening = Opening { process, keeps, place };
        let mut session = Session::open(&self.step, (&self.folder, self.protection.as_ref()), opening, job)?;
        if let Some(idle_gpus) = idle_gpus {
            session.watch_gpus(visible, idle_gpus);
        }
        // An error leaves through `Drop`, which ends the processes too.
        let (verdict, ended, is_held) = session.measure_and_hold(keeps, watch)?;
        if job.effort == Effort::Probe || job.keeps {
            session.timeline(ended).keep(&self.folder, job.number);
        }
        if session.heard.any_step() {
            self.known_words.learn(&session.words);
            if keeps || session.heard.ranks.count() > 1 {
                self.obeys = Some(session.obeys());
            }
        }
        if let Some(blamed) = session.of_environment(&verdict, &self.known_words) {
            return blamed.map(|outcome| (outcome, None));
        }
        let told = Imports::read(session.scratch.path(), &session.words, session.heard.pid);
        let silence = session.silence();
        let outcome = demands::explained(self.outcome(&mut session, &verdict, ended, visible), silence);
        if is_live && verdict.is_good() && !is_held {
            self.live.not_held();
        }
        let is_measured = matches!(outcome, Outcome::Measured(_));
        if is_held && is_measured && is_live {
            self.live.held = Some(Held::new(session, job));
        } else if is_held && is_measured {
            let (config, number) = (job.config.clone(), job.number);
            self.stable.put(Open { config, number, session: Box::new(session) });
        } else if is_held {
            session.close(&verdict, watch)?;
        }
        Ok((outcome, told))
    }

    /// Whether the process of a job may be held beside others.
    fn may_stay(&self, job: &Job<'_>) -> bool {
        let is_alike = job.effort != Effort::Losses && job.experiment.is_none();
        let is_on_device = self.step.is_gpu && !self.live.is_on_processor();
        job.keeps && is_alike && !is_on_device && self.cannot_hold().is_none()
    }

    /// What came of a measuring.
    fn outcome(&self, session: &mut Session, verdict: &Verdict, ended: Instant, visible: &Visible) -> Outcome {
        let (own, times) = (session.host.own(), session.times(ended));
        let mut outcome = session.outcome(verdict);
        times.tell(&mut outcome);
        match &self.idle {
            Some(idle) => idle.judge(outcome, visible, &own),
            None => outcome,
        }
    }

    /// Measures a config in the process that waits; `None` where there is none for it, or it failed there: then a process
    /// of its own tells.
    fn probe_live(
        &mut self,
        job: &Job<'_>,
        visible: &Visible,
        watch: Watch<'_>,
    ) -> Result<Option<Outcome>, ProbeError> {
        let step = Arc::clone(&self.step);
        let Some((mut held, fits)) = self.live.take(&step, job) else { return Ok(None) };
        let session = &mut held.session;
        if !fits {
            session.close(&Verdict::Enough, watch)?;
            return Ok(None);
        }
        let answer = session.configure(job, watch)?;
        if !matches!(answer, Answer::Done) {
            session.close(&Verdict::Enough, watch)?;
            match answer {
                Answer::Interrupted => return Ok(Some(Outcome::Interrupted)),
                Answer::Refused(reason) => self.live.refused(&step, &held, job, &reason),
                Answer::None | Answer::Done => self.live.failed(&step, &held, job, "ended".to_owned()),
            }
            return Ok(None);
        }
        if let Some(idle) = self.idle.as_ref().filter(|_| step.is_gpu) {
            session.watch_gpus(visible, idle.gpu_state(visible));
        }
        session.go();
        let (verdict, ended, is_held) = session.measure_and_hold(true, watch)?;
        if job.effort == Effort::Probe || job.keeps {
            session.timeline(ended).keep(&self.folder, job.number);
        }
        let mut outcome = self.outcome(session, &verdict, ended, visible);
        if matches!(verdict, Verdict::Exited) && outcome.failure().is_none() {
            return Ok(None); // the training came to its end, of which another config had a part
        }
        match &mut outcome {
            Outcome::Measured(measurement) => {
                measurement.first_losses.clear(); // they are not those of the first steps
                measurement.is_live = true;
            }
            Outcome::Interrupted | Outcome::Disturbed(_) => return Ok(Some(outcome)),
            failed => {
                let how = format!("ended as {}", failed.name().replace('_', " "));
                self.live.failed(&step, &held, job, how);
                if is_held {
                    held.session.close(&verdict, watch)?;
                }
                return Ok(None);
            }
        }
        self.live.measured(&step, &held, job, &outcome);
        if is_held {
            self.live.keep(held, job);
        }
        Ok(Some(outcome))
    }
}
