//! The processes that a search keeps between two duels. Each is stopped until its next block.
//!
//! A process that waits between two steps computes nothing, but its loader workers continue until their queue is full.
//! During that time they take CPU time from the other session. The full queue then makes this session's next steps too
//! fast. SIGSTOP stops the process and its workers, and leaves the queue unchanged.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::super::supervisor::signal_to;
use super::Job;
use super::session::Session;
use super::verdict::Verdict;
use crate::machine::process_table::{descendants, is_stopped};
use crate::model::Config;

/// How long processes may take to stop, each after its current system call: a round number, below a block's time.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Stable {
    open: Vec<Open>,
    /// The configs whose next process must not be forked.
    fresh: Vec<Config>,
}

pub(super) struct Open {
    pub(super) config: Config,
    /// The number of the trial that started the process.
    pub(super) number: u32,
    pub(super) session: Box<Session>,
}

impl Open {
    pub(super) fn new(session: Box<Session>, job: &Job) -> Self {
        Self { config: job.config.clone(), number: job.number, session }
    }
}

impl Stable {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Keeps a process, and stops it until its next block.
    pub(super) fn put(&mut self, mut open: Open) {
        self.fresh.retain(|config| *config != open.config);
        open.session.pause();
        self.open.retain(|other| other.config != open.config);
        self.open.push(open);
    }

    pub(super) fn take(&mut self, config: &Config) -> Option<Open> {
        let at = self.open.iter().position(|open| open.config == *config)?;
        Some(self.open.remove(at))
    }

    /// Ends the processes of all other configs.
    pub(super) fn keep(&mut self, configs: &[Config]) {
        // Ask all processes to end before waiting for the first, so that they end at the same time.
        let others = self.open.iter_mut().filter(|open| !configs.contains(&open.config));
        others.for_each(|open| open.session.ask_to_end());
        self.open.retain(|open| configs.contains(&open.config));
    }

    /// Ends the process of a config. If the process was forked, the next process of the config is fresh.
    pub(super) fn restart(&mut self, config: &Config) {
        let is_forked = self.take(config).is_some_and(|open| open.session.is_forked);
        if is_forked && !self.fresh.contains(config) {
            self.fresh.push(config.clone());
        }
    }

    pub(super) fn needs_fresh(&self, config: &Config) -> bool {
        self.fresh.contains(config)
    }

    /// Returns the lowest place that no open session has.
    pub(super) fn free_place(&self) -> usize {
        let is_taken = |place: &usize| self.open.iter().any(|open| open.session.place == *place);
        (0..).find(|place| !is_taken(place)).unwrap_or(0)
    }
}

impl Drop for Stable {
    fn drop(&mut self) {
        self.keep(&[]);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.session.supervised.is_some() {
            let _ = self.session.close(&Verdict::Enough, &mut |_| ControlFlow::Continue(()));
        }
    }
}

impl Session {
    /// Stops all processes of the session. If they do not all stop in time, all continue.
    pub(super) fn pause(&mut self) {
        let Some(root) = self.supervised.as_ref().map(|supervised| supervised.pid()) else { return };
        let deadline = Instant::now() + PATIENCE;
        self.is_stopped = true;
        loop {
            // The next pass of this loop stops the processes that start during this pass.
            let moving: Vec<u32> = descendants(root).into_iter().filter(|pid| !is_stopped(*pid)).collect();
            if moving.is_empty() {
                return;
            }
            if Instant::now() >= deadline {
                return self.resume();
            }
            moving.into_iter().for_each(|pid| signal_to(pid, Signal::STOP));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn resume(&mut self) {
        if !std::mem::take(&mut self.is_stopped) {
            return;
        }
        if let Some(root) = self.supervised.as_ref().map(|supervised| supervised.pid()) {
            descendants(root).into_iter().for_each(|pid| signal_to(pid, Signal::CONT));
        }
    }
}
