//! Runs probes of a command: starts the command under a supervisor, listens to it, and ends it.

mod demands;
mod duel;
mod ending;
mod first_run;
mod live;
mod segments;
mod session;
mod stable;
mod starting;
mod step;
mod verdict;

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::classify;
use super::duel::{Duel, DuelWatch, Duelled, Way};
use super::idle::Idle;
use super::sweep;
use super::warm::{Imports, Told, Warm};
use super::writes::{Protection, WritesError};
use super::{Effort, Experiment, Holds, Job, Limits, Mode, ProbeError, Prober, Rate, Watch};
use crate::machine::{GpuMeter, nvml::Visible};
use crate::model::{Config, Failure, Outcome, Progress};
use demands::KnownWords;
pub use demands::as_it_is_needs;
pub use first_run::{FirstRun, NotedArgument, NotedLoader, NotedVariable, Notes};
use live::{Held, Live};
use segments::Answer;
use session::{Opening, Session};
use stable::{Open, Stable};
use starting::Process;
pub use step::{CommandStep, Start};
use verdict::Verdict;

/// Runs a command for each probe; logs and rendered files go below a folder.
pub struct CommandProber {
    step: Arc<CommandStep>,
    folder: PathBuf,
    /// The memory that was in use before the first probe.
    idle: Option<Idle>,
    known_words: KnownWords,
    /// True if the step is one process and waits on request; `None` if not yet known.
    obeys: Option<bool>,
    live: Live,
    /// The processes that wait for the next round.
    stable: Stable,
    /// True if a process failed next to held processes but succeeded alone. From then on, no process is held.
    is_alone: bool,
    warm: Warm,
    /// The protection of files that the probe does not own, once found. It is dropped after the processes.
    protection: Option<Protection>,
}

impl fmt::Debug for CommandProber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandProber").field("step", &self.step).field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl CommandProber {
    /// Returns a prober that writes logs to `folder/logs` and rendered files to `folder/probes`.
    pub fn new(step: CommandStep, folder: impl Into<PathBuf>) -> Self {
        // In a slot, later readings would include other probes, so read the idle state now.
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

    /// Finds the protection for existing files. If no caller does this, the first probe does.
    ///
    /// # Errors
    /// The requested protection is not available.
    pub fn protect(&mut self) -> Result<&Protection, WritesError> {
        let step = &self.step;
        if self.protection.is_none() {
            self.protection = Some(Protection::find(&step.template, step.writes, &step.supervisor, &self.folder)?);
        }
        self.protection.as_ref().ok_or(WritesError::NoHook)
    }

    /// Records the memory in use before the first probe. Before each later probe, waits until memory use is back to
    /// that level. Returns `Break` if the caller stops waiting.
    fn settle(&mut self, visible: &Visible, watch: Watch<'_>) -> Result<ControlFlow<()>, ProbeError> {
        // Held processes keep their memory, so do not wait for it.
        if let Some(idle) = self.idle.as_mut().filter(|_| self.stable.is_empty()) {
            return idle.wait(visible, watch);
        }
        if self.idle.is_none() {
            self.idle = Some(Self::idle(&self.step));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn idle(step: &CommandStep) -> Idle {
        sweep::sweep();
        Idle::read(if step.is_gpu { GpuMeter::shared().ok() } else { None })
    }

    fn refusal(&self, job: &Job) -> Option<String> {
        let CommandStep { template, rate, samples_per_step, .. } = &*self.step;
        let needs = || as_it_is_needs(template, rate, samples_per_step.as_ref(), &job.settings);
        let of_unmodified = job.config.is_as_it_is().then(needs).flatten();
        of_unmodified
            .or_else(|| template.apply.refusal(&job.settings))
            .or_else(|| job.experiment.as_ref().and_then(|asked| asked.refusal(template.apply.adapter)))
    }

    fn visible(&self, job: &Job) -> Visible {
        let folder = Self::probe_dir(&self.folder, job.number);
        let env = self.step.template.render(&job.settings, &self.step.gputune, &folder).env;
        Visible::of(&env.into_iter().collect())
    }

    /// Returns the log of a trial, relative to the folder.
    pub fn log_name(number: u32, effort: Effort) -> PathBuf {
        let suffix = if effort.is_for_losses() { "-full-precision" } else { "" };
        PathBuf::from(format!("logs/{number:04}{suffix}.log"))
    }

    /// Returns the folder of a trial's rendered files.
    pub fn probe_dir(folder: &Path, number: u32) -> PathBuf {
        folder.join(format!("probes/{number:04}"))
    }
}

/// Returns true if a held process of the same job may have caused the failure.
fn is_failure_beside_others(outcome: &Outcome) -> bool {
    let is_taken = |failure: &Failure| classify::is_taken(&failure.reason);
    matches!(outcome, Outcome::Crashed(_) | Outcome::OutOfMemory { .. } | Outcome::Stalled(_))
        || matches!(outcome, Outcome::Disturbed(failure) if is_taken(failure))
}

/// Returns true if a probe crashed because Slurm ended its whole job. Slurm signals all processes of a job that is
/// cancelled or out of time. This process may receive the signal later than the probe. The config must not be blamed.
fn is_ended_with_all(outcome: &Outcome, watch: Watch<'_>) -> bool {
    /// How much later the signal may arrive: a round number.
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
    fn probe(&mut self, job: &Job, watch: Watch<'_>) -> Result<Outcome, ProbeError> {
        if let Some(reason) = self.refusal(job) {
            return Ok(Outcome::Rejected(Failure::new(reason)));
        }
        self.protect()?;
        if self.is_on_device() {
            // Held processes use device memory that this probe needs.
            self.stable.keep(&[]);
        }
        match self.probe_live(job, watch) {
            Ok(Some(outcome)) => return Ok(outcome),
            // After a switch of settings, a script may stop counting samples, so a separate process decides.
            Ok(None) | Err(ProbeError::NoSamples) => {}
            Err(error) => return Err(error),
        }
        let mut is_second = false;
        loop {
            let mut warm = std::mem::take(&mut self.warm);
            let mut probed = self.probe_somehow(&mut warm, job, watch);
            probed.iter_mut().for_each(|outcome| ending::share(job, outcome, &mut warm.spent));
            self.warm = warm;
            let outcome = match probed {
                // Only the unmodified job is rejected. With settings, the same error ends the search.
                Err(error @ ProbeError::NoSamples)
                    if job.config.is_as_it_is() && self.step.samples_per_step.is_some() =>
                {
                    let reason =
                        format!("the unmodified job cannot be compared: {error}; state the batch size in [baseline]");
                    return Ok(Outcome::Rejected(Failure::new(reason)));
                }
                outcome => outcome?,
            };
            // Held processes may occupy a port, a lock or memory.
            let is_failure = is_failure_beside_others(&outcome);
            if (is_failure || matches!(outcome, Outcome::Disturbed(_))) && !self.stable.is_empty() {
                self.stable.keep(&[]);
                is_second = is_failure;
                continue;
            }
            self.is_alone |= is_second && !is_failure;
            let lines: Vec<String> = outcome.failure().map(demands::said).unwrap_or_default();
            // A data folder is read-only. If the probe writes there, it is no data folder: retry with a layer over it.
            if !self.protection.as_mut().is_some_and(|protection| protection.cover_written(&lines)) {
                if !job.effort.is_for_losses() {
                    self.live.compare(job, &outcome);
                }
                return Ok(if is_ended_with_all(&outcome, watch) { Outcome::Interrupted } else { outcome });
            }
        }
    }

    fn duel(&mut self, duel: &Duel<'_>, watch: DuelWatch<'_>) -> Result<Duelled, ProbeError> {
        let duelled = self.run_duel(duel, watch)?;
        // Compare the final result with the live measurement.
        if duelled.way == Way::InTurn && !(duel.keeps && duel.ways.contains(&Way::Switched)) {
            for (job, outcome) in duel.jobs.iter().zip(&duelled.sides) {
                outcome.iter().for_each(|outcome| self.live.compare(job, outcome));
            }
        }
        Ok(duelled)
    }

    fn holds(&self) -> Holds {
        match self.cannot_hold() {
            None if !self.is_on_device() => Holds::Processes,
            None if self.live.held.is_some() => Holds::OneProcess,
            _ => Holds::Nothing,
        }
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
    /// Runs one process. If requested, also returns the imports that it reported.
    fn probe_once(
        &mut self,
        process: Process<'_>,
        job: &Job,
        watch: Watch<'_>,
    ) -> Result<(Outcome, Option<Told>), ProbeError> {
        let visible = &self.visible(job);
        if self.settle(visible, watch)?.is_break() {
            return Ok((Outcome::Interrupted, None));
        }
        // Read the state of the GPUs before the step can use their memory.
        let idle_gpus = self.idle.as_ref().filter(|_| self.step.is_gpu).map(|idle| idle.gpu_state(visible));
        let is_live = self.live.may_keep(&self.step, job);
        let keeps = is_live || self.may_stay(job);
        let place = self.stable.free_place();
        let opening = Opening { process, keeps, place };
        let mut session = Session::open(&self.step, (&self.folder, self.protection.as_ref()), opening, job)?;
        if let Some(idle_gpus) = idle_gpus {
            session.watch_gpus(visible, idle_gpus);
        }
        // On an error, `Drop` ends the processes.
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
        let outcome = classify::explained(self.outcome(&mut session, &verdict, ended, visible), |_| silence);
        if is_live && verdict.is_good() && !is_held {
            self.live.not_held();
        }
        let is_measured = matches!(outcome, Outcome::Measured(_));
        if is_held && is_measured && is_live {
            self.live.held = Some(Held::new(Open::new(Box::new(session), job), job));
        } else if is_held && is_measured {
            self.stable.put(Open::new(Box::new(session), job));
        } else if is_held {
            session.close(&verdict, watch)?;
        }
        Ok((outcome, told))
    }

    fn is_on_device(&self) -> bool {
        self.step.is_gpu && !self.live.is_on_processor
    }

    /// Returns true if the job's process may be held next to other processes.
    fn may_stay(&self, job: &Job) -> bool {
        let is_alike = !job.effort.is_for_losses() && job.experiment.is_none();
        job.keeps && is_alike && !self.is_on_device() && self.cannot_hold().is_none()
    }

    fn outcome(&self, session: &mut Session, verdict: &Verdict, ended: Instant, visible: &Visible) -> Outcome {
        let (own, over) = (session.host.own(), Instant::now());
        let mut outcome = session.outcome(verdict);
        session.tell_times(&mut outcome, (ended, over));
        if let Some(idle) = &self.idle {
            outcome = idle.judge(outcome, visible, &own);
        }
        session.keep_files(&mut outcome);
        outcome
    }

    /// Measures a config in the waiting process. Returns `None` if that process cannot take the config, or if the
    /// config fails there. A new process must then measure it.
    fn probe_live(&mut self, job: &Job, watch: Watch<'_>) -> Result<Option<Outcome>, ProbeError> {
        let step = Arc::clone(&self.step);
        let Some((mut held, fits)) = self.live.take(&step, job) else { return Ok(None) };
        let session = &mut held.process.session;
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
        let visible = &self.visible(job);
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
            return Ok(None); // the training ended, and another config ran part of it
        }
        match &mut outcome {
            Outcome::Measured(measurement) => {
                measurement.first_losses.clear(); // these are not the losses of the first steps
                measurement.is_live = true;
            }
            Outcome::Interrupted | Outcome::Disturbed(_) => return Ok(Some(outcome)),
            failed => {
                let how = format!("ended as {}", failed.name().replace('_', " "));
                self.live.failed(&step, &held, job, how);
                if is_held {
                    held.process.session.close(&verdict, watch)?;
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
