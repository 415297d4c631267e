//! Ends a probe: asks its processes to end, then ends them, waits for their last output and events, and records the time spent.

use std::ops::ControlFlow;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::super::hang;
use super::super::heard::Message;
use super::super::kept_file::{self, TRACE};
use super::super::protocol::{Event, Order};
use super::verdict::Verdict;
use super::{Job, Mode, ProbeError, Session, Watch};
use crate::model::fact::{Fact, IMPORT_SECONDS, TRACE_FILE};
use crate::model::{Outcome, Spent};

/// How long output and events may lag behind the end of the processes.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long gputune waits for the supervisor after the grace time. A working supervisor gives up on processes earlier.
const LONGEST: Duration = Duration::from_secs(40);

impl Session {
    /// Ends all processes of the probe and waits for their last output and events.
    ///
    /// Keeps asking the caller during this time: if the caller stops the search, the rest of the grace time is skipped.
    pub(super) fn close(&mut self, verdict: &Verdict, watch: Watch<'_>) -> Result<(), ProbeError> {
        // A stopped process neither receives an order nor ends by SIGTERM.
        self.resume();
        // Once the caller stops waiting, the processes get no grace time.
        let mut hurries = false;
        // If the caller stopped the probe, do not ask again.
        let is_asked = matches!(verdict, Verdict::Interrupted);
        let mut asks = |run: &mut Self| !is_asked && watch(&run.progress(Instant::now())) == ControlFlow::Break(());
        if !self.heard.is_clean {
            self.look_once_more(verdict, &mut asks, &mut hurries);
        }
        // The last messages of a command that ended on its own may still arrive. Messages of a stopped command no longer count.
        let counts = matches!(verdict, Verdict::Exited);
        let deadline = Instant::now() + self.time_to_end(verdict);
        while !hurries && self.heard.ending.is_none() && !self.heard.is_clean && Instant::now() < deadline {
            self.hear_late(counts)?;
            hurries = asks(self);
        }
        self.end_processes(counts, hurries, &mut asks)?;
        self.supervised = None;
        self.host.clean();
        self.socket.close();
        let deadline = Instant::now() + LAST_WORDS;
        while !(self.output.is_finished() && self.socket.is_drained()) && Instant::now() < deadline && !asks(self) {
            self.hear_late(counts)?;
        }
        while let Ok(message) = self.messages.try_recv() {
            self.hear_last(message, counts)?;
        }
        if !self.heard.survivors.is_empty() {
            let pids = self.heard.survivors.iter().take(5).copied().collect();
            return Err(ProbeError::Survivors { count: self.heard.survivors.len(), pids });
        }
        match self.output.log_error() {
            Some(error) => Err(ProbeError::io("write the log", &self.log)(error)),
            None => Ok(()),
        }
    }

    /// Asks the processes to end before their next step, without waiting for their end.
    pub(super) fn ask_to_end(&mut self) {
        self.resume();
        self.socket.order(&Order::Stop);
    }

    /// Keeps the files that the hook has written for the user, and names the trace of the steps.
    pub(super) fn keep_files(&self, outcome: &mut Outcome) {
        kept_file::keep(self.scratch.path(), &self.log, outcome);
        if let Outcome::Measured(measurement) = outcome
            && self.job.mode() == Some(Mode::Trace)
            && let Some(name) = TRACE.of_log(&self.log).as_deref().and_then(|path| path.file_name())
        {
            measurement.facts.insert(0, TRACE_FILE, Fact::Text(format!("logs/{}", name.display())));
        }
    }

    /// Checks the processes once more while they still exist, and asks hanging processes for their position.
    fn look_once_more(&mut self, verdict: &Verdict, asks: &mut dyn FnMut(&mut Self) -> bool, hurries: &mut bool) {
        self.gpu.look();
        self.host.last_look();
        let hangs = match verdict {
            Verdict::Stalled => true,
            Verdict::TimeIsUp => self.heard.window.throughput().is_none() && self.heard.window.compiling().is_none(),
            _ => false,
        };
        if hangs {
            self.look_where_it_is(&mut |run| {
                *hurries |= asks(run);
                !*hurries
            });
        }
    }

    /// Asks the processes for their position in the code. Stops waiting for answers once `go_on` returns false.
    pub(super) fn look_where_it_is(&mut self, go_on: &mut dyn FnMut(&mut Self) -> bool) {
        let (folder, pids, living) = (self.scratch.path().to_owned(), self.heard.pids.clone(), self.host.living());
        self.hang = hang::ask(&folder, &pids, &living, &mut || go_on(self));
    }

    fn time_to_end(&self, verdict: &Verdict) -> Duration {
        let grace_time = self.job.limits.grace_time;
        if self.heard.reported.is_some() {
            // A command that ends because of an error may print more about it.
            grace_time.min(LAST_WORDS)
        } else if verdict.is_good() && (self.heard.any_step() || self.segment > 0) && self.socket.order(&Order::Stop) {
            // A command that follows the order ends between two training steps, so no step is left half done.
            grace_time
        } else {
            Duration::ZERO
        }
    }

    /// Makes the supervisor end all processes and waits until they are gone. Ends them directly if the supervisor does not answer.
    fn end_processes(
        &mut self,
        counts: bool,
        mut hurries: bool,
        asks: &mut dyn FnMut(&mut Self) -> bool,
    ) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.job.limits.grace_time + LONGEST;
        if let Some(supervised) = self.supervised.as_mut().filter(|_| !self.heard.is_clean) {
            supervised.stop(hurries);
        }
        while !self.heard.is_clean {
            self.hear_late(counts)?;
            if !hurries && asks(self) {
                hurries = true;
                self.supervised.iter_mut().for_each(|supervised| supervised.stop(true));
            }
            let Some(supervised) = &mut self.supervised else { break };
            let now = Instant::now();
            if !self.heard.is_clean && (self.care.look_in_haste(supervised, now) || now >= deadline) {
                self.heard.survivors = supervised.end_without_it();
                self.heard.is_clean = true;
            }
        }
        Ok(())
    }

    fn hear_late(&mut self, counts: bool) -> Result<(), ProbeError> {
        match self.messages.recv_timeout(Duration::from_millis(20)) {
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
            Message::Supervisor(_) | Message::Event { event: Event::Memory(_) | Event::Fact { .. }, .. }
        );
        if counts || is_about_the_end {
            self.heard.hear(message)?;
        }
        Ok(())
    }

    /// Adds to a measurement how the wall time was spent. Measuring ended at `ended`, and the processes at `over`.
    pub(super) fn tell_times(&self, outcome: &mut Outcome, (ended, over): (Instant, Instant)) {
        let Outcome::Measured(measurement) = outcome else { return };
        let time = |from: Instant, to: Instant| to.saturating_duration_since(from);
        let first_step = self.heard.first_step.unwrap_or(ended);
        let importing = measurement.facts.number(IMPORT_SECONDS).unwrap_or(0.0);
        let measuring = measurement.timing.measured_seconds.unwrap_or(0.0);
        measurement.is_forked = self.is_forked;
        measurement.spent = Some(Spent::of(
            (time(self.begin, first_step), importing),
            (time(first_step, ended), measuring),
            time(ended, over),
        ));
    }
}

/// Moves the time of a probe that is not a trial to `common`. Adds `common` to the time of the next measured trial.
pub(super) fn share(job: &Job, outcome: &mut Outcome, common: &mut Spent) {
    let Outcome::Measured(measurement) = outcome else { return };
    let Some(spent) = &mut measurement.spent else { return };
    if job.number == 0 || job.effort.is_for_losses() {
        *common += measurement.spent.take().unwrap_or_default();
    } else {
        *spent += std::mem::take(common);
    }
}
