//! Runs probes of a command: starts it under a supervisor, listens to it, ends it.

mod demands;
mod ending;
mod environment;
mod run;
mod spending;
mod starting;
mod step;
mod surroundings;
mod verdict;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use super::idle::Idle;
use super::sweep;
use super::warm::{Imports, Told, Warm};
use super::writes::{Protection, WritesError};
use super::{Effort, Experiment, Job, Mode, ProbeError, Prober, Rate, Watch};
use crate::machine::{GpuMeter, nvml::Visible};
use crate::model::{Failure, Outcome};
pub use demands::as_it_is_needs;
use environment::KnownWords;
use run::Run;
use starting::Process;
pub use step::CommandStep;

/// Runs a command for each probe; logs and rendered files go below a folder.
#[derive(Debug)]
pub struct CommandProber {
    step: CommandStep,
    folder: PathBuf,
    /// The memory that was in use before the first probe.
    idle: Option<Idle>,
    /// The words of commands that reached a step.
    known_words: KnownWords,
    /// The protection of files that are not the probe's, once it has been found.
    protection: Option<Protection>,
    warm: Warm,
}

impl CommandProber {
    /// A prober that puts logs into `folder/logs` and rendered files into `folder/probes`.
    pub fn new(step: CommandStep, folder: impl Into<PathBuf>) -> Self {
        Self {
            step,
            folder: folder.into(),
            idle: None,
            known_words: KnownWords::default(),
            protection: None,
            warm: Warm::default(),
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
        if let Some(idle) = &mut self.idle {
            return idle.wait(visible, watch);
        }
        sweep::sweep();
        let meter = if self.step.is_gpu { GpuMeter::shared().ok() } else { None };
        self.idle = Some(Idle::read(meter));
        Ok(ControlFlow::Continue(()))
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

impl Prober for CommandProber {
    fn probe(&mut self, job: &Job<'_>, watch: Watch<'_>) -> Result<Outcome, ProbeError> {
        if let Some(reason) = demands::refusal_as_it_is(&self.step, job) {
            return Ok(Outcome::Rejected(Failure::new(reason)));
        }
        if let Some(reason) = self.step.template.apply.refusal(job.settings) {
            return Ok(Outcome::Rejected(Failure::new(reason)));
        }
        if let Some(reason) = job.experiment.and_then(|asked| asked.refusal(self.step.template.apply.adapter)) {
            return Ok(Outcome::Rejected(Failure::new(reason)));
        }
        let visible = self.visible(job);
        self.protect()?;
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
            let lines: Vec<String> = outcome.failure().map(demands::said).unwrap_or_default();
            // A folder that the probe writes to is no data folder: with a layer over it the same probe may succeed.
            if !self.protection.as_mut().is_some_and(|protection| protection.cover_written(&lines)) {
                return Ok(outcome);
            }
        }
    }

    fn remarks(&mut self) -> Vec<String> {
        self.warm.remarks()
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
        let is_proof = process.is_proof();
        // This must happen before the step can hold any memory.
        let idle_gpus = self.idle.as_ref().filter(|_| self.step.is_gpu).map(|idle| idle.gpu_state(visible));
        let (sender, messages) = sync_channel(1024);
        let mut run = Run::start(&self.step, (&self.folder, self.protection.as_ref()), process, job, &sender)?;
        if let Some(idle_gpus) = idle_gpus {
            run.watch_gpus(visible, idle_gpus);
        }
        drop(sender);
        // An error leaves through `Drop`, which ends the processes too.
        let verdict = run.listen(&messages, watch)?;
        let verdict = run.in_time(verdict);
        let ended = Instant::now();
        run.end(&messages, &verdict, watch)?;
        if job.effort == Effort::Probe && !is_proof {
            run.timeline(ended).keep(&self.folder, job.number);
        }
        if run.heard.any_step() {
            self.known_words.learn(&run.words);
        }
        if let Some(blamed) = run.of_environment(&verdict, &self.known_words) {
            return blamed.map(|outcome| (outcome, None));
        }
        let told = Imports::read(run.scratch.path(), &run.words, run.heard.pid);
        let (silence, own, times) = (run.silence(), run.host.own(), run.times(ended));
        let mut outcome = demands::explained(run.outcome(verdict), silence);
        times.tell(&mut outcome);
        let outcome = match &self.idle {
            Some(idle) => idle.judge(outcome, visible, &own),
            None => outcome,
        };
        Ok((outcome, told))
    }
}
