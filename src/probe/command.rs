//! Probes of a command: started under a supervisor, listened to, ended.

mod demands;
mod surroundings;
mod verdict;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::events::EventSocket;
use super::gpu_watch::GpuWatch;
use super::hang::{self, Hang};
use super::heard::{Heard, Message};
use super::hook::{self, PYTHONPATH};
use super::host_watch::HostWatch;
use super::idle::Idle;
use super::orders::Order;
use super::output::{Output, OutputSettings};
use super::patience::{Patience, Sufficiency};
use super::protocol::{self, Event};
use super::ranks::Attendance;
use super::supervisor::Supervised;
use super::timeline::Timeline;
use super::{Effort, Experiment, Job, Mode, ProbeError, Prober, Rate, StepTemplate, Watch};
use crate::event::Progress;
use crate::outcome::{Failure, Outcome};
use crate::space::Expression;
use crate::telemetry::nvml::Visible;
use crate::telemetry::{GpuMeter, GpuState};
use surroundings::{environment, io_error, rendered_folder, scratch_folder};
use verdict::Verdict;

/// What a command prober runs and how it reads it.
#[derive(Debug)]
pub struct CommandStep {
    /// The command, its environment and its files.
    pub template: StepTemplate,
    /// How throughput is read.
    pub rate: Rate,
    /// Samples per step, where the step does not tell.
    pub samples_per_step: Option<Expression>,
    /// How many processes of a distributed job must report, where that is stated.
    pub ranks: Option<Expression>,
    /// What `{gputune}` stands for.
    pub gputune: PathBuf,
    /// The executable that supervises: `gputune`, or one that calls [`supervisor::run_if_asked`].
    ///
    /// [`supervisor::run_if_asked`]: super::supervisor::run_if_asked
    pub supervisor: PathBuf,
    /// Whether the device is a GPU; if not, the memory of the probe's processes is device memory.
    pub is_gpu: bool,
}

/// Runs a command for each probe; logs and rendered files go below a folder.
#[derive(Debug)]
pub struct CommandProber {
    step: CommandStep,
    folder: PathBuf,
    /// What was in use before the first probe.
    idle: Option<Idle>,
}

impl CommandProber {
    /// A prober that puts logs into `folder/logs` and rendered files into `folder/probes`.
    pub fn new(step: CommandStep, folder: impl Into<PathBuf>) -> Self {
        Self { step, folder: folder.into(), idle: None }
    }

    /// Remembers what is in use before the first probe, and waits for it before each further one; `Break` when the
    /// caller does not want to wait any more.
    fn settle(&mut self, visible: &Visible, watch: Watch<'_>) -> Result<ControlFlow<()>, ProbeError> {
        if let Some(idle) = &mut self.idle {
            return idle.wait(visible, watch);
        }
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
        // Before the step can hold anything.
        let idle_gpus = self.idle.as_ref().filter(|_| self.step.is_gpu).map(|idle| idle.gpu_state(&visible));
        let (sender, messages) = sync_channel(1024);
        let mut run = Run::start(&self.step, &self.folder, job, &sender)?;
        if let Some(idle_gpus) = idle_gpus {
            run.watch_gpus(&visible, idle_gpus);
        }
        drop(sender);
        // An error leaves through `Drop`, which ends the processes too.
        let verdict = run.listen(&messages, watch)?;
        let ended = Instant::now();
        run.end(&messages, &verdict)?;
        if job.effort == Effort::Probe {
            run.timeline(ended).keep(&self.folder, job.number);
        }
        let (silence, own) = (run.silence(), run.host.own());
        let outcome = demands::explained(run.outcome(verdict), silence);
        Ok(match &self.idle {
            Some(idle) => idle.judge(outcome, &visible, &own),
            None => outcome,
        })
    }
}

/// One running probe.
struct Run<'r> {
    step: &'r CommandStep,
    job: &'r Job<'r>,
    unit: String,
    begin: Instant,
    supervised: Option<Supervised>,
    socket: EventSocket,
    /// The folder of the socket; the supervisor removes it when this process is killed.
    scratch: tempfile::TempDir,
    output: Output,
    log: PathBuf,
    host: HostWatch,
    gpu: GpuWatch,
    heard: Heard<'r>,
    /// Where it hangs, if it does.
    hang: Hang,
    patience: Patience,
    output_bytes: u64,
}

impl<'r> Run<'r> {
    fn start(
        step: &'r CommandStep,
        folder: &Path,
        job: &'r Job<'r>,
        sender: &SyncSender<Message>,
    ) -> Result<Self, ProbeError> {
        let asked = demands::asked(step, job)?;
        let probe_dir = rendered_folder(folder, job);
        let rendered = step.template.render(job.settings, &step.gputune, &probe_dir);
        let program = rendered.command.first().cloned().unwrap_or_default();
        let log = folder.join(CommandProber::log_name(job.number, job.effort));
        let logs = log.parent().unwrap_or(folder);
        fs::create_dir_all(logs).map_err(io_error("create", logs))?;
        if step.template.uses_probe_dir() {
            // What an interrupted try of the same trial left would change this one.
            match fs::remove_dir_all(&probe_dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("empty", &probe_dir)(error));
                }
                _ => {}
            }
            fs::create_dir_all(&probe_dir).map_err(io_error("create", &probe_dir))?;
        }
        for (path, text) in &rendered.files {
            let parent = path.parent().unwrap_or(&probe_dir);
            fs::create_dir_all(parent).map_err(io_error("create", parent))?;
            fs::write(path, text).map_err(io_error("write", path))?;
        }
        let scratch = scratch_folder()?;
        let socket_path = scratch.path().join("events");
        let socket = EventSocket::bind(&socket_path, sender).map_err(io_error("listen on", &socket_path))?;
        let mut env = environment(rendered.env, job);
        let theirs = env.get(PYTHONPATH).map(Into::into).or_else(|| std::env::var_os(PYTHONPATH));
        let laid_down = hook::lay_down(scratch.path(), &socket_path, job, &step.template.apply, theirs);
        if let Some(path) = laid_down.map_err(io_error("write the hook to", scratch.path()))? {
            env.insert(PYTHONPATH.to_owned(), path.to_string_lossy().into_owned());
        }
        env.insert(protocol::SOCKET.to_owned(), socket_path.display().to_string());
        env.insert(protocol::CONFIG.to_owned(), serde_json::to_string(job.settings).unwrap_or_default());
        env.insert(protocol::TRIAL.to_owned(), job.number.to_string());

        let pipe = |source| ProbeError::Io { action: "make a pipe", path: None, source };
        let (reader, writer) = io::pipe().map_err(pipe)?;
        let pattern = match &step.rate {
            Rate::Pattern { pattern, .. } => Some(pattern.clone()),
            Rate::Events => None,
        };
        let settings = OutputSettings { log: log.clone(), log_size: job.limits.log_size, pattern };
        let output = Output::read(reader, settings, sender.clone()).map_err(io_error("write the log", &log))?;
        let grace_ms = u64::try_from(job.limits.grace_time.as_millis()).unwrap_or(u64::MAX);
        let order =
            Order { command: rendered.command, env, cwd: rendered.cwd, grace_ms, scratch: scratch.path().to_owned() };
        let begin = Instant::now();
        let supervised = Supervised::start(&step.supervisor, &order, &writer, sender.clone(), Message::Supervisor)
            .map_err(io_error("start the supervisor", &step.supervisor))?;
        Ok(Self {
            step,
            job,
            unit: match &step.rate {
                Rate::Events => "samples/s".to_owned(),
                Rate::Pattern { unit, .. } => unit.throughput_unit(),
            },
            begin,
            host: HostWatch::new(supervised.pid(), job.limits.host_memory_headroom),
            supervised: Some(supervised),
            gpu: GpuWatch::none(),
            socket,
            scratch,
            output,
            log,
            heard: Heard::nothing(step, &program, asked, begin),
            hang: Hang::default(),
            patience: Patience::new(job, &step.template.apply.under_targets(job.settings)),
            output_bytes: 0,
        })
    }

    /// Watches the GPUs, too, from here on; `idle` is what was in use before the probe.
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
            // Also between messages: a flood of them must not keep the limits from being looked at.
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                if let Some(verdict) = self.tick(watch) {
                    return Ok(verdict);
                }
            }
        }
    }

    /// What it did until it was to end.
    fn timeline(&self, ended: Instant) -> Timeline {
        let host = |from, to| self.host.readings((from, to));
        Timeline::of((self.begin, ended), &self.heard.window, host, |moment| self.gpu.around(moment))
    }

    /// Looks at limits, memory and the caller's wish.
    fn tick(&mut self, watch: Watch<'_>) -> Option<Verdict> {
        let now = Instant::now();
        let bytes = self.output.bytes();
        // Before the first step, anything printed is a sign of life; after it only steps are. A step that prints its
        // rate now and then has no other way to show any.
        let counts = !self.heard.any_step() || matches!(self.step.rate, Rate::Pattern { .. });
        if counts && bytes > self.output_bytes {
            self.heard.last_progress = now;
        }
        self.output_bytes = bytes;
        let sufficiency = self.patience.look(&self.heard.window);
        let progress = Progress {
            elapsed: now.duration_since(self.begin),
            steps: self.heard.window.steps(),
            throughput: self.patience.estimate(),
            unit: self.unit.clone(),
            devices: self.host.live(now, &mut self.gpu),
        };
        if watch(&progress) == ControlFlow::Break(()) {
            return Some(Verdict::Interrupted);
        }
        match self.host.look(now) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(shortage) if shortage.by_probe => return Some(Verdict::HostMemory(shortage.reason)),
            ControlFlow::Break(shortage) => return Some(Verdict::Disturbed(shortage.reason)),
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

    /// Ends all processes of the probe and waits for the last words of everybody.
    fn end(&mut self, messages: &Receiver<Message>, verdict: &Verdict) -> Result<(), ProbeError> {
        const LAST_WORDS: Duration = Duration::from_secs(2);
        if !self.heard.is_clean {
            self.gpu.look();
            self.host.last_look();
            let hangs = match verdict {
                Verdict::Stalled => true,
                Verdict::TimeIsUp => self.heard.window.throughput().is_none(),
                _ => false,
            };
            if hangs {
                self.hang = hang::ask(self.scratch.path(), &self.heard.pids, &self.host.living());
            }
        }
        // What a step that ended by itself said last may still be under way; what one that was stopped says does not
        // count any more.
        let counts = matches!(verdict, Verdict::Exited);
        let grace_time = self.job.limits.grace_time;
        let time_to_end = if self.heard.reported.is_some() {
            // Its own way to end may print more about the error.
            grace_time.min(LAST_WORDS)
        } else if verdict.is_good() && self.heard.any_step() && self.socket.order_stop() {
            // A step that ends by itself does so between two steps, and leaves nothing half done.
            grace_time
        } else {
            Duration::ZERO
        };
        if !time_to_end.is_zero() {
            let deadline = Instant::now() + time_to_end;
            while self.heard.ending.is_none() && !self.heard.is_clean && Instant::now() < deadline {
                self.hear_late(messages, counts)?;
            }
        }
        if let Some(supervised) = self.supervised.as_mut().filter(|_| !self.heard.is_clean) {
            supervised.stop();
        }
        while !self.heard.is_clean {
            self.hear_late(messages, counts)?;
        }
        self.supervised = None;
        self.host.clean();
        self.socket.close();
        let deadline = Instant::now() + LAST_WORDS;
        while !(self.output.is_finished() && self.socket.is_drained()) && Instant::now() < deadline {
            self.hear_late(messages, counts)?;
        }
        while let Ok(message) = messages.try_recv() {
            self.hear_last(message, counts)?;
        }
        if !self.heard.survivors.is_empty() {
            let pids = self.heard.survivors.iter().take(5).copied().collect();
            return Err(ProbeError::Survivors { count: self.heard.survivors.len(), pids });
        }
        match self.output.log_error() {
            Some(error) => Err(io_error("write the log", &self.log)(error)),
            None => Ok(()),
        }
    }

    fn hear_late(&mut self, messages: &Receiver<Message>, counts: bool) -> Result<(), ProbeError> {
        match messages.recv_timeout(Duration::from_millis(20)) {
            Ok(message) => self.hear_last(message, counts),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                self.heard.is_clean = true;
                Ok(())
            }
        }
    }

    fn hear_last(&mut self, message: Message, counts: bool) -> Result<(), ProbeError> {
        let is_about_the_end = matches!(
            message,
            Message::Supervisor(_) | Message::Event { event: Event::Memory { .. } | Event::Fact { .. }, .. }
        );
        if counts || is_about_the_end {
            self.heard.hear(message)?;
        }
        Ok(())
    }
}
