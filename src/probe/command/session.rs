//! A training process of a command: opened, measured, held, given another config, and closed.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::super::clock_watch::ClockWatch;
use super::super::events::EventSocket;
use super::super::gpu_watch::GpuWatch;
use super::super::hang::Hang;
use super::super::heard::{Heard, Message};
use super::super::hook::{self, Asks};
use super::super::host_watch::HostWatch;
use super::super::measuring::patience::{Patience, Sufficiency};
use super::super::orders::Order;
use super::super::output::Output;
use super::super::protocol;
use super::super::ranks::Attendance;
use super::super::relay::{self, Reach};
use super::super::scratch::Scratch;
use super::super::shared_watch::SharedWatch;
use super::super::supervisor::{Care, Supervised};
use super::super::terminal;
use super::super::timeline::Timeline;
use super::super::trackers;
use super::super::writes::{ProbeScratch, Protection, layer_name};
use super::starting::{Process, environment, rendered_folder, write_rendered, writes_of};
use super::verdict::Verdict;
use super::{CommandProber, CommandStep, Effort, Job, Mode, ProbeError, Rate, Watch, demands};
use crate::machine::{GpuState, nvml::Visible};
use crate::model::fact::{TRACE_ERROR, TRACE_STEPS, TRAINED_LARGEST};
use crate::model::{Progress, STEPS_PER_SECOND};

pub(super) struct Opening<'w> {
    pub(super) process: Process<'w>,
    /// True if the process may be held and receive other settings.
    pub(super) keeps: bool,
    /// The place of the process among the open sessions, counted from 0. Each place has its own layer for writes.
    pub(super) place: usize,
}

/// A training process, with its reports since it received its config.
pub(super) struct Session {
    pub(super) step: Arc<CommandStep>,
    pub(super) job: Job,
    pub(super) messages: Receiver<Message>,
    pub(super) words: Vec<String>,
    /// The time when the process started or received its config.
    pub(super) begin: Instant,
    pub(super) supervised: Option<Supervised>,
    pub(super) care: Care,
    pub(super) clock: ClockWatch,
    pub(super) socket: EventSocket,
    reach: Reach,
    /// The folder of the socket; the supervisor removes it when gputune is killed.
    pub(super) scratch: Scratch,
    /// The folder for the writes of the processes. It is dropped after `supervised`: until then, they may write.
    pub(super) writes: Option<ProbeScratch>,
    pub(super) output: Output,
    pub(super) log: PathBuf,
    pub(super) host: HostWatch,
    pub(super) gpu: GpuWatch,
    pub(super) heard: Heard,
    pub(super) hang: Hang,
    pub(super) patience: Patience,
    /// The bytes of output at the last tick.
    pub(super) output_bytes: u64,
    pub(super) is_forked: bool,
    /// True if the session's processes are stopped while another session trains.
    pub(super) is_stopped: bool,
    /// True if the session's processes are stopped when the session is held.
    pub(super) stops_when_held: bool,
    /// True if the session trained for a block of a duel before.
    pub(super) had_turn: bool,
    /// The place among the open sessions, as in [`Opening::place`].
    pub(super) place: usize,
    /// The index of the current config in this process, from 0.
    pub(super) segment: u32,
}

impl Session {
    pub(super) fn open(
        step: &Arc<CommandStep>,
        (folder, protection): (&Path, Option<&Protection>),
        Opening { process, keeps, place }: Opening<'_>,
        job: &Job,
    ) -> Result<Self, ProbeError> {
        let (sender, messages) = sync_channel(1024);
        let sender = &sender;
        let asked = demands::asked(step, job)?;
        let probe_dir = rendered_folder(folder, job);
        let rendered = step.template.render(&job.settings, &step.gputune, &probe_dir);
        let program = rendered.command.first().cloned().unwrap_or_default();
        let log = folder.join(CommandProber::log_name(job.number, job.effort));
        let logs = log.parent().unwrap_or(folder);
        fs::create_dir_all(logs).map_err(ProbeError::io("create", logs))?;
        let own_dir = step.template.uses_probe_dir().then_some(probe_dir.as_path());
        write_rendered(&rendered, &probe_dir, own_dir.is_some())?;
        let scratch = Scratch::new()?;
        let socket_path = scratch.path().join(relay::SOCKET);
        let socket = EventSocket::bind(&socket_path, sender).map_err(ProbeError::io("listen on", &socket_path))?;
        let asks = Asks { imports: matches!(process, Process::Fresh { tells_imports: true }), live: keeps };
        let mut env = variables(step, rendered.env, job, (scratch.path(), &socket_path), asks)?;
        let own: Vec<PathBuf> = [scratch.path()].into_iter().chain(own_dir).map(Path::to_owned).collect();
        let writes = writes_of(protection, (&layer_name(place), &own), &mut env)?;
        let reach = step.relays.reach(scratch.path())?;

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
            processors: step.slot.as_ref().map(|slot| slot.cores.clone()).unwrap_or_default(),
        };
        let words = order.command.clone();
        // Watch shared memory before the step can make files there: they are then removed even if gputune is killed.
        let shared = SharedWatch::begin(scratch.path());
        let begin = Instant::now();
        let share_bytes = step.slot.as_ref().and_then(|slot| slot.memory_bytes);
        let is_forked = matches!(process, Process::Forked { .. });
        let (supervised, zygote) = process.start(&step.supervisor, &mut order, &writer, sender)?;
        scratch.note(supervised.pid());
        Ok(Self {
            step: Arc::clone(step),
            job: job.clone(),
            messages,
            words,
            begin,
            care: Care::default(),
            clock: ClockWatch::begin(),
            host: HostWatch::new(supervised.pid(), zygote, job.limits.host_memory_headroom, share_bytes, shared),
            supervised: Some(supervised),
            gpu: GpuWatch::none(),
            socket,
            reach,
            scratch,
            writes,
            output,
            log,
            heard: Heard::nothing(Arc::clone(step), &program, asked, begin),
            hang: Hang::default(),
            patience: Patience::new(job, &step.template.apply.under_targets(&job.settings)),
            output_bytes: 0,
            is_forked,
            is_stopped: false,
            stops_when_held: false,
            had_turn: false,
            place,
            segment: 0,
        })
    }

    pub(super) fn unit(&self) -> String {
        if self.heard.is_in_steps { STEPS_PER_SECOND.to_owned() } else { unit_of(&self.step) }
    }

    /// Starts to watch the GPUs. `idle` is their state before the probe.
    pub(super) fn watch_gpus(&mut self, visible: &Visible, idle: GpuState) {
        if let Some(supervised) = &self.supervised {
            self.gpu = GpuWatch::begin(visible, supervised.pid(), idle, self.begin);
        }
    }

    /// Listens until there is a reason to stop measuring.
    pub(super) fn measure(&mut self, watch: Watch<'_>) -> Result<Verdict, ProbeError> {
        const TICK: Duration = Duration::from_millis(50);
        let verdict = self.listen((self.begin + TICK, TICK), |session, now| session.tick(now, watch))?;
        if matches!(verdict, Verdict::Interrupted | Verdict::Disturbed(_)) {
            return Ok(verdict);
        }
        // A standstill makes measurements wrong, and may have caused a failure.
        Ok(self.clock.stood_still().map_or(verdict, Verdict::Disturbed))
    }

    /// Receives messages until a message or `look` gives a verdict. Calls `look` at `next_tick`, then after each
    /// `tick`.
    pub(super) fn listen(
        &mut self,
        (mut next_tick, tick): (Instant, Duration),
        mut look: impl FnMut(&mut Self, Instant) -> Option<Verdict>,
    ) -> Result<Verdict, ProbeError> {
        loop {
            let verdict = match self.messages.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(message) => {
                    let is_over = self.heard.hear(message)?;
                    is_over.then(|| self.heard.diverged.map_or(Verdict::Exited, Verdict::Diverged))
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Verdict::Exited),
            };
            if let Some(verdict) = verdict {
                return Ok(verdict);
            }
            // Limits are also checked between messages, so a flood of messages cannot prevent the check.
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + tick;
                if let Some(verdict) = look(self, now) {
                    return Ok(verdict);
                }
            }
        }
    }

    pub(super) fn timeline(&self, ended: Instant) -> Timeline {
        let host = |from, to| self.host.readings((from, to));
        Timeline::of((self.begin, ended), &self.heard.window, host, |moment| self.gpu.around(moment))
    }

    pub(super) fn progress(&mut self, now: Instant) -> Progress {
        Progress {
            elapsed: now.duration_since(self.begin),
            steps: self.heard.window.steps(),
            throughput: self.patience.estimate(),
            unit: unit_of(&self.step),
            devices: self.host.live(now, &mut self.gpu),
        }
    }

    /// Checks for reasons to end a probe at any time: a stop request, a standstill, too little memory or space.
    pub(super) fn guard(&mut self, now: Instant, watch: Watch<'_>) -> Option<Verdict> {
        if watch(&self.progress(now)) == ControlFlow::Break(()) {
            return Some(Verdict::Interrupted);
        }
        if let Some(supervised) = &self.supervised {
            self.care.look(supervised, now);
        }
        if let Some(reason) = self.clock.stood_still() {
            return Some(Verdict::Disturbed(reason));
        }
        if let Some(node) = self.reach.lost() {
            return Some(Verdict::Disturbed(format!(
                "the relay on {node} has ended, and with it what ranks there say"
            )));
        }
        match self.host.look(now) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(shortage) if shortage.by_probe => return Some(Verdict::HostMemory(shortage.reason)),
            ControlFlow::Break(shortage) => return Some(Verdict::Disturbed(shortage.reason)),
        }
        self.writes.as_mut().and_then(|writes| writes.room.look(now)).map(Verdict::ScratchFull)
    }

    /// Checks limits, memory and stop requests.
    fn tick(&mut self, now: Instant, watch: Watch<'_>) -> Option<Verdict> {
        let bytes = self.output.bytes();
        // Before the first step, any output is progress; after it, only steps are progress. If the rate comes from
        // printed lines, output always counts: between the lines there is no other sign of progress.
        let counts = !self.heard.any_step() || matches!(self.step.rate, Rate::Pattern { .. });
        if counts && bytes > self.output_bytes {
            self.heard.last_progress = now;
        }
        self.output_bytes = bytes;
        let sufficiency = self.patience.look(&self.heard.window);
        if let Some(verdict) = self.guard(now, watch) {
            return Some(verdict);
        }
        let attendance = self.heard.ranks.attendance(now);
        // The experiment ends when one of these facts is reported.
        let awaited: &[&str] = match self.job.mode() {
            Some(Mode::ShortEpochs) => &["epoch_end.seconds"],
            Some(Mode::Trace) => &[TRACE_STEPS, TRACE_ERROR],
            Some(Mode::LargestBatch) => &[TRAINED_LARGEST],
            _ => &[],
        };
        let enough = |is_enough: bool| is_enough.then_some(Verdict::Enough);
        let verdict = match (self.job.effort, sufficiency) {
            (Effort::Losses { count }, _) => enough(self.heard.totals.has_first_losses(count)),
            _ if self.job.mode() == Some(Mode::FirstRun) => enough(self.has_shown_enough(now)),
            _ if !awaited.is_empty() => enough(awaited.iter().any(|name| self.heard.facts.get(name).is_some())),
            (_, Sufficiency::TooLittle) => None,
            (_, Sufficiency::Enough) => Some(Verdict::Enough),
            (_, Sufficiency::StillCompiling) => Some(Verdict::StillCompiling),
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
        self.without_steps_since(now)
    }
}

fn variables(
    step: &CommandStep,
    rendered: Vec<(String, String)>,
    job: &Job,
    (scratch, socket): (&Path, &Path),
    asks: Asks,
) -> Result<BTreeMap<String, String>, ProbeError> {
    let mut env = environment(rendered, job);
    trackers::silence(&mut env, scratch);
    let folder = scratch.join("python");
    let laid_down = hook::lay_down(&folder, socket, job, &step.template.apply, asks);
    laid_down.map_err(ProbeError::io("write the hook to", scratch))?;
    hook::import_first(&mut env, &folder);
    env.insert(protocol::SOCKET.to_owned(), socket.display().to_string());
    env.insert(protocol::CONFIG.to_owned(), serde_json::to_string(&job.settings).unwrap_or_default());
    env.insert(protocol::TRIAL.to_owned(), job.number.to_string());
    Ok(env)
}

/// Starts to read the output of the step. Also returns the descriptor to which the step writes.
fn read_output(
    step: &CommandStep,
    job: &Job,
    log: &Path,
    sender: &SyncSender<Message>,
) -> Result<(Output, OwnedFd), ProbeError> {
    let pipe = |source| ProbeError::Io { action: "make a pipe", path: None, source };
    let (reader, writer) = terminal::open().map_err(pipe)?;
    let pattern = match &step.rate {
        Rate::Pattern { pattern, .. } => Some(pattern.clone()),
        Rate::Events => None,
    };
    let output = Output::read(reader, log, job.limits.log_size, pattern, sender.clone());
    Ok((output.map_err(ProbeError::io("write the log", log))?, writer))
}

fn unit_of(step: &CommandStep) -> String {
    match &step.rate {
        Rate::Events => "samples/s".to_owned(),
        Rate::Pattern { unit, .. } => unit.throughput_unit(),
    }
}
