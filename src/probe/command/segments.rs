//! Measures several configs in one process: holds it between two steps, and gives it other settings there.

use std::fs;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::super::clock_watch::ClockWatch;
use super::super::hang::Hang;
use super::super::measuring::patience::Patience;
use super::super::protocol::{Order, Setting, VERSION_OF_HOLD};
use super::session::{Session, Task};
use super::verdict::Verdict;
use super::{CommandProber, Job, ProbeError, Watch, demands};

/// What became of an order that a process has to answer.
pub(super) enum Answer {
    /// It has done so.
    Done,
    /// It cannot, for this reason.
    Refused(String),
    /// It did not answer in time, or has ended.
    None,
    /// The caller does not want to wait.
    Interrupted,
}

impl Session {
    /// Measures the config that the process has, then holds it for another where it `keeps` going, or closes it. Returns
    /// why measuring ended, when (a script that left training: with its last step), and whether it is held.
    pub(super) fn measure_and_hold(
        &mut self,
        keeps: bool,
        watch: Watch<'_>,
    ) -> Result<(Verdict, Instant, bool), ProbeError> {
        let verdict = self.measure(watch)?;
        let verdict = self.in_time(verdict);
        // The time outside of training is neither warm-up nor measuring.
        let outside = if let Verdict::LeftTraining(outside) = verdict { outside } else { Duration::ZERO };
        let ended = Instant::now().checked_sub(outside).unwrap_or(self.begin);
        let may_hold = keeps && verdict.is_good() && self.can_go_on();
        let is_held = may_hold && matches!(self.hold(self.task.limits.grace_time, watch)?, Answer::Done);
        if !is_held {
            self.close(&verdict, watch)?;
        }
        Ok((verdict, ended, is_held))
    }

    /// Whether it can be given another config: it understands the orders, and is one process.
    pub(super) fn can_go_on(&self) -> bool {
        self.obeys() && self.heard.ending.is_none()
    }

    /// Whether it understands the orders, which it says where it was asked to be kept, and is one process.
    pub(super) fn obeys(&self) -> bool {
        self.heard.version >= VERSION_OF_HOLD && self.heard.ranks.count() == 1
    }

    /// Has the process wait at the end of its step; all steps before that are known then.
    pub(super) fn hold(&mut self, patience: Duration, watch: Watch<'_>) -> Result<Answer, ProbeError> {
        if !self.socket.order(&Order::Hold) {
            return Ok(Answer::None);
        }
        let answer = self.answer(patience, watch, |session| session.heard.is_held.then_some(Answer::Done))?;
        // The workers of its loader would fill their queue, and the next steps would come too fast.
        if self.stops_when_held && matches!(answer, Answer::Done) {
            self.pause();
        }
        self.gpu.look();
        self.host.last_look();
        Ok(answer)
    }

    /// Gives a process that is held another config, for which nothing is known of it yet.
    pub(super) fn configure(&mut self, job: &Job<'_>, watch: Watch<'_>) -> Result<Answer, ProbeError> {
        self.resume();
        let begin = Instant::now();
        let asked = demands::asked_in_session(&self.step, job)?;
        self.task = Task::of(job);
        self.segment += 1;
        self.begin = begin;
        self.clock = ClockWatch::begin();
        self.hang = Hang::default();
        self.heard.begin_segment(asked, begin);
        self.patience = Patience::new(job, &self.step.template.apply.under_targets(job.settings));
        let segment = self.segment;
        let order = Order::Configure {
            segment,
            config: job.settings.clone(),
            apply: Setting::all(self.step.template.apply.in_session(job.settings)),
        };
        self.note_log(job)?;
        if !self.socket.order(&order) {
            return Ok(Answer::None);
        }
        // It ends the loader's workers first, which may be amid a sample.
        let patience = self.task.limits.stall_time;
        let answer = self.answer(patience, watch, |session| match &session.heard.configured {
            Some((answered, refused)) if *answered == segment => {
                Some(refused.clone().map_or(Answer::Done, Answer::Refused))
            }
            _ => None,
        })?;
        // Now that the workers and caches of the last config are gone.
        self.host.begin_anew();
        Ok(answer)
    }

    /// Says in the trial's own log where its output is.
    fn note_log(&self, job: &Job<'_>) -> Result<(), ProbeError> {
        let name = CommandProber::log_name(job.number, job.effort);
        let Some(path) = name.file_name().map(|name| self.log.with_file_name(name)) else { return Ok(()) };
        // A process that is given the config back with which it was started.
        if path == self.log {
            return Ok(());
        }
        let whole = self.log.file_name().unwrap_or_default().display();
        let text =
            format!("gputune: measured in a process that measured another config before; its output is in {whole}\n");
        fs::write(&path, text).map_err(ProbeError::io("write the log", &path))
    }

    /// Lets a process that is held train on.
    pub(super) fn go(&mut self) {
        self.heard.is_held = false;
        self.socket.order(&Order::Go);
    }

    /// Listens until there is an answer.
    fn answer(
        &mut self,
        patience: Duration,
        watch: Watch<'_>,
        read: impl Fn(&Self) -> Option<Answer>,
    ) -> Result<Answer, ProbeError> {
        const TICK: Duration = Duration::from_millis(50);
        let deadline = Instant::now() + patience;
        let mut next_tick = Instant::now() + TICK;
        while Instant::now() < deadline {
            if let Ok(message) = self.next_message(next_tick.saturating_duration_since(Instant::now()))
                && self.heard.hear(message)?.is_some()
            {
                return Ok(Answer::None);
            }
            if let Some(answer) = read(self) {
                return Ok(answer);
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                if watch(&self.progress(Instant::now())) == ControlFlow::Break(()) {
                    return Ok(Answer::Interrupted);
                }
            }
        }
        Ok(Answer::None)
    }
}
