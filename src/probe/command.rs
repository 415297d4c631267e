//! Runs probes of a command: starts it under a supervisor, listens to it, ends it.

mod demands;
mod ending;
mod environment;
mod spending;
mod starting;
mod step;
mod surroundings;
mod verdict;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::clock_watch::ClockWatch;
use super::events::EventSocket;
use super::gpu_watch::GpuWatch;
use super::hang::Hang;
use super::heard::{Heard, Message};
use super::hook::{self, PYTHONPATH};
use super::host_watch::HostWatch;
use super::idle::Idle;
use super::measuring::patience::{Patience, Sufficiency};
use super::orders::Order;
use super::output::{Output, OutputSettings};
use super::protocol;
use super::ranks::Attendance;
use super::scratch::Scratch;
use super::shared_watch::SharedWatch;
use super::supervisor::{Care, Supervised};
use super::sweep;
use super::timeline::Timeline;
use super::trackers;
use super::warm::{Imports, Told, Warm};
use super::writes::{ProbeScratch, Protection, WritesError};
use super::{Effort, Experiment, Job, Mode, ProbeError, Prober, Rate, Watch};
use crate::machine::{GpuMeter, GpuState, nvml::Visible};
use crate::model::{Failure, Outcome, Progress, STEPS_PER_SECOND};
pub use demands::as_it_is_needs;
use environment::KnownWords;
use starting::Process;
pub use step::CommandStep;
use surroundings::{environment, rendered_folder, write_rendered, writes_of};
use verdict::Verdict;

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
        if self.settle(&visible, watch)?.is_break() {
            return Ok(Outcome::Interrupted);
        }
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

/// One running probe.
struct Run<'r> {
    step: &'r CommandStep,
    job: &'r Job<'r>,
    /// The command, with its settings.
    words: Vec<String>,
    unit: String,
    begin: Instant,
    supervised: Option<Supervised>,
    /// Checks whether somebody has stopped the supervisor.
    care: Care,
    /// Notices when this process, or the machine, stood still.
    clock: ClockWatch,
    socket: EventSocket,
    /// The folder of the socket; the supervisor removes it when this process is killed.
    scratch: Scratch,
    /// The folder for its writes. It is dropped after the processes, because they may still write.
    writes: Option<ProbeScratch>,
    output: Output,
    log: PathBuf,
    host: HostWatch,
    gpu: GpuWatch,
    heard: Heard<'r>,
    /// Where the probe hangs, if it does.
    hang: Hang,
    patience: Patience,
    output_bytes: u64,
    is_forked: bool,
}

impl<'r> Run<'r> {
    fn start(
        step: &'r CommandStep,
        (folder, protection): (&Path, Option<&Protection>),
        process: Process<'_>,
        job: &'r Job<'r>,
        sender: &SyncSender<Message>,
    ) -> Result<Self, ProbeError> {
        let asked = demands::asked(step, job)?;
        let probe_dir = rendered_folder(folder, job);
        let rendered = step.template.render(job.settings, &step.gputune, &probe_dir);
        let program = rendered.command.first().cloned().unwrap_or_default();
        let log = folder.join(process.log_name(job));
        let logs = log.parent().unwrap_or(folder);
        fs::create_dir_all(logs).map_err(ProbeError::io("create", logs))?;
        let own_dir = step.template.uses_probe_dir().then_some(probe_dir.as_path());
        write_rendered(&rendered, &probe_dir, own_dir.is_some())?;
        let scratch = Scratch::new()?;
        let socket_path = scratch.path().join("events");
        let socket = EventSocket::bind(&socket_path, sender).map_err(ProbeError::io("listen on", &socket_path))?;
        let mut env = environment(rendered.env, job);
        trackers::silence(&mut env, scratch.path());
        let theirs = env.get(PYTHONPATH).map(Into::into).or_else(|| std::env::var_os(PYTHONPATH));
        let laid_down =
            hook::lay_down(scratch.path(), &socket_path, job, &step.template.apply, process.tells_imports(), theirs);
        let path = laid_down.map_err(ProbeError::io("write the hook to", scratch.path()))?;
        env.insert(PYTHONPATH.to_owned(), path.to_string_lossy().into_owned());
        env.insert(protocol::SOCKET.to_owned(), socket_path.display().to_string());
        env.insert(protocol::CONFIG.to_owned(), serde_json::to_string(job.settings).unwrap_or_default());
        env.insert(protocol::TRIAL.to_owned(), job.number.to_string());
        let own: Vec<PathBuf> = [scratch.path()].into_iter().chain(own_dir).map(Path::to_owned).collect();
        let writes = writes_of(protection, &own, &mut env)?;

        let (output, writer) = read_output(step, job, &log, sender)?;
        let grace_ms = u64::try_from(job.limits.grace_time.as_millis()).unwrap_or(u64::MAX);
        let store = protection.and_then(Protection::store).map(Path::to_owned);
        let mut order = Order {
            command: rendered.command,
            env,
            cwd: rendered.cwd,
            grace_ms,
            to_remove: [scratch.path().to_owned()].into_iter().chain(store).collect(),
            layout: writes.as_ref().and_then(|writes| writes.layout.clone()),
            is_zygote: false,
        };
        let words = order.command.clone();
        // Before the step can make any files, and so that they can be removed even if gputune is killed from now on.
        let shared = SharedWatch::begin(scratch.path());
        let begin = Instant::now();
        let is_forked = process.is_forked();
        let (supervised, zygote) = process.start(&step.supervisor, &mut order, &writer, sender)?;
        scratch.note(supervised.pid());
        Ok(Self {
            step,
            job,
            unit: unit_of(step),
            words,
            begin,
            care: Care::default(),
            clock: ClockWatch::begin(),
            host: HostWatch::new(supervised.pid(), zygote, job.limits.host_memory_headroom, shared),
            supervised: Some(supervised),
            gpu: GpuWatch::none(),
            socket,
            scratch,
            writes,
            output,
            log,
            heard: Heard::nothing(step, &program, asked, begin),
            hang: Hang::default(),
            patience: Patience::new(job, &step.template.apply.under_targets(job.settings)),
            output_bytes: 0,
            is_forked,
        })
    }

    /// What throughput counts.
    fn unit(&self) -> String {
        if self.heard.is_in_steps { STEPS_PER_SECOND.to_owned() } else { self.unit.clone() }
    }

    /// Starts to watch the GPUs, too; `idle` is what was in use before the probe.
    fn watch_gpus(&mut self, visible: &Visible, idle: GpuState) {
        if let Some(supervised) = &self.supervised {
            self.gpu = GpuWatch::begin(visible, supervised.pid(), idle, self.begin);
        }
    }

    /// Listens until there is a reason to end the probe.
    fn listen(&mut self, messages: &Receiver<Message>, watch: Watch<'_>) -> Result<Verdict, ProbeError> {
        const TICK: Duration = Duration::from_millis(50);
        let mut next_tick = self.begin + TICK;
        loop {
            let verdict = match messages.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(message) => self.heard.hear(message)?.map(Verdict::from),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Verdict::Exited),
            };
            if let Some(verdict) = verdict {
                return Ok(verdict);
            }
            // The limits are checked between messages too, so that a flood of messages cannot prevent it.
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                if let Some(verdict) = self.tick(watch) {
                    return Ok(verdict);
                }
            }
        }
    }

    /// Returns what the probe did until it was to end.
    fn timeline(&self, ended: Instant) -> Timeline {
        let host = |from, to| self.host.readings((from, to));
        Timeline::of((self.begin, ended), &self.heard.window, host, |moment| self.gpu.around(moment))
    }

    /// Returns the news of the running probe.
    fn progress(&mut self, now: Instant) -> Progress {
        Progress {
            elapsed: now.duration_since(self.begin),
            steps: self.heard.window.steps(),
            throughput: self.patience.estimate(),
            unit: self.unit.clone(),
            devices: self.host.live(now, &mut self.gpu),
        }
    }

    /// Returns the verdict, unless this process or the machine stood still meanwhile: then measurements are wrong, and
    /// a failure may be due to the standstill.
    fn in_time(&self, verdict: Verdict) -> Verdict {
        if matches!(verdict, Verdict::Interrupted | Verdict::Disturbed(_)) {
            return verdict;
        }
        self.clock.stood_still().map_or(verdict, Verdict::Disturbed)
    }

    /// Checks limits, memory and whether the caller wants to stop.
    fn tick(&mut self, watch: Watch<'_>) -> Option<Verdict> {
        let now = Instant::now();
        let bytes = self.output.bytes();
        // Before the first step, any printed text shows progress; after it only steps do. A step that prints its rate
        // now and then has no other way to show progress.
        let counts = !self.heard.any_step() || matches!(self.step.rate, Rate::Pattern { .. });
        if counts && bytes > self.output_bytes {
            self.heard.last_progress = now;
        }
        self.output_bytes = bytes;
        let sufficiency = self.patience.look(&self.heard.window);
        if watch(&self.progress(now)) == ControlFlow::Break(()) {
            return Some(Verdict::Interrupted);
        }
        if let Some(supervised) = &self.supervised {
            self.care.look(supervised, now);
        }
        if let Some(reason) = self.clock.stood_still() {
            return Some(Verdict::Disturbed(reason));
        }
        match self.host.look(now) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(shortage) if shortage.by_probe => return Some(Verdict::HostMemory(shortage.reason)),
            ControlFlow::Break(shortage) => return Some(Verdict::Disturbed(shortage.reason)),
        }
        if let Some(full) = self.writes.as_mut().and_then(|writes| writes.room.look(now)) {
            return Some(Verdict::ScratchFull(full));
        }
        let attendance = self.heard.ranks.attendance(now);
        let verdict = match (self.job.effort, sufficiency) {
            (Effort::Losses, _) if self.heard.totals.has_first_losses() => Some(Verdict::Enough),
            (Effort::Losses, _) | (_, Sufficiency::TooLittle) => None,
            (_, Sufficiency::Enough) => Some(Verdict::Enough),
            (_, Sufficiency::Loses) => Some(Verdict::Loses),
        };
        if verdict.is_some() && !matches!(attendance, Attendance::Missing(_)) {
            return verdict;
        }
        if let Attendance::Wrong(reason) = attendance {
            return Some(Verdict::Ranks(reason));
        }
        if let Some(reason) = self.heard.ranks.lost(now, self.job.limits.grace_time) {
            return Some(Verdict::Ranks(reason));
        }
        if now.duration_since(self.begin) >= self.job.limits.probe_time {
            return Some(Verdict::TimeIsUp);
        }
        (now.duration_since(self.heard.last_progress) >= self.job.limits.stall_time).then_some(Verdict::Stalled)
    }
}

/// Starts to read what the step prints into the pipe.
fn read_output(
    step: &CommandStep,
    job: &Job<'_>,
    log: &Path,
    sender: &SyncSender<Message>,
) -> Result<(Output, io::PipeWriter), ProbeError> {
    let pipe = |source| ProbeError::Io { action: "make a pipe", path: None, source };
    let (reader, writer) = io::pipe().map_err(pipe)?;
    let pattern = match &step.rate {
        Rate::Pattern { pattern, .. } => Some(pattern.clone()),
        Rate::Events => None,
    };
    let settings = OutputSettings { log: log.to_owned(), log_size: job.limits.log_size, pattern };
    let output = Output::read(reader, settings, sender.clone()).map_err(ProbeError::io("write the log", log))?;
    Ok((output, writer))
}

/// What the throughput counts.
fn unit_of(step: &CommandStep) -> String {
    match &step.rate {
        Rate::Events => "samples/s".to_owned(),
        Rate::Pattern { unit, .. } => unit.throughput_unit(),
    }
}
