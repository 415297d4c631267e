//! Measures several configs in one process: holds the process between two steps and changes its settings there.

use std::fs;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::super::clock_watch::ClockWatch;
use super::super::hang::Hang;
use super::super::measuring::patience::Patience;
use super::super::protocol::{Order, Setting, VERSION_OF_HOLD};
use super::session::Session;
use super::verdict::Verdict;
use super::{CommandProber, Job, ProbeError, Watch, demands};

pub(super) enum Answer {
    Done,
    /// The process cannot follow the order, for this reason.
    Refused(String),
    /// The process did not answer in time, or has ended.
    None,
    /// The caller stops waiting.
    Interrupted,
}

impl Session {
    /// Measures the current config of the process. Then holds the process for another config if `keeps` is true and
    /// this is possible; otherwise closes it. Returns the verdict, the end of measuring, and true if the process is
    /// held. If the script left training, measuring ended with the last step before that.
    pub(super) fn measure_and_hold(
        &mut self,
        keeps: bool,
        watch: Watch<'_>,
    ) -> Result<(Verdict, Instant, bool), ProbeError> {
        let verdict = self.measure(watch)?;
        // The time outside of training is neither warm-up nor measuring.
        let outside = if let Verdict::LeftTraining(outside) = verdict { outside } else { Duration::ZERO };
        let ended = Instant::now().checked_sub(outside).unwrap_or(self.begin);
        let may_hold = keeps && verdict.is_good() && self.can_go_on();
        let is_held = may_hold && matches!(self.hold(self.job.limits.grace_time, watch)?, Answer::Done);
        if !is_held {
            self.close(&verdict, watch)?;
        }
        Ok((verdict, ended, is_held))
    }

    /// Returns true if the process can receive another config: it follows orders, is one process, and has not ended.
    pub(super) fn can_go_on(&self) -> bool {
        self.obeys() && self.heard.ending.is_none()
    }

    /// Returns true if the session is one process that follows orders, which the hook only does if asked at its start.
    pub(super) fn obeys(&self) -> bool {
        self.heard.version >= VERSION_OF_HOLD && self.heard.ranks.count() == 1
    }

    /// Makes the process wait at the end of its step. After the answer, the reports of all its steps have been read.
    pub(super) fn hold(&mut self, patience: Duration, watch: Watch<'_>) -> Result<Answer, ProbeError> {
        if !self.socket.order(&Order::Hold) {
            return Ok(Answer::None);
        }
        let answer = self.answer(patience, watch, |session| session.heard.is_held.then_some(Answer::Done))?;
        // Without a stop, the loader workers would fill their queue, and the next steps would be too fast.
        if self.stops_when_held && matches!(answer, Answer::Done) {
            self.pause();
        }
        self.gpu.look();
        self.host.last_look();
        Ok(answer)
    }

    /// Gives a held process another config, and discards the reports on the config before.
    pub(super) fn configure(&mut self, job: &Job, watch: Watch<'_>) -> Result<Answer, ProbeError> {
        self.resume();
        let begin = Instant::now();
        let asked = demands::asked_in_session(&self.step, job)?;
        self.job = job.clone();
        self.segment += 1;
        self.begin = begin;
        self.clock = ClockWatch::begin();
        self.hang = Hang::default();
        self.heard.begin_segment(asked, begin);
        self.patience = Patience::new(job, &self.step.template.apply.under_targets(&job.settings));
        let segment = self.segment;
        let order = Order::Configure {
            segment,
            config: job.settings.clone(),
            apply: Setting::all(self.step.template.apply.in_session(&job.settings)),
        };
        self.note_log(job)?;
        if !self.socket.order(&order) {
            return Ok(Answer::None);
        }
        // The process first ends its loader workers, which may be loading a sample.
        let patience = self.job.limits.stall_time;
        let answer = self.answer(patience, watch, |session| match &session.heard.configured {
            Some((answered, refused)) if *answered == segment => {
                Some(refused.clone().map_or(Answer::Done, Answer::Refused))
            }
            _ => None,
        })?;
        // The workers and caches of the last config are gone now.
        self.host.begin_anew();
        Ok(answer)
    }

    /// Writes into the log of this trial which file has the output of its process.
    fn note_log(&self, job: &Job) -> Result<(), ProbeError> {
        let name = CommandProber::log_name(job.number, job.effort);
        let Some(path) = name.file_name().map(|name| self.log.with_file_name(name)) else { return Ok(()) };
        // The process received its first config again, so this is the log with its output.
        if path == self.log {
            return Ok(());
        }
        let whole = self.log.file_name().unwrap_or_default().display();
        let text =
            format!("gputune: measured in a process that measured another config before; its output is in {whole}\n");
        fs::write(&path, text).map_err(ProbeError::io("write the log", &path))
    }

    pub(super) fn go(&mut self) {
        self.heard.is_held = false;
        self.socket.order(&Order::Go);
    }

    /// Receives messages until `read` finds the answer to an order.
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
            if let Ok(message) = self.messages.recv_timeout(next_tick.saturating_duration_since(Instant::now()))
                && self.heard.hear(message)?
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
