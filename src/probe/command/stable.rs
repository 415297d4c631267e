//! Processes that wait between two rounds, each stopped until its next slice.

use std::ops::ControlFlow;

use super::session::Session;
use super::verdict::Verdict;
use crate::model::Config;

/// The held processes, in the order of their start.
#[derive(Default)]
pub(super) struct Stable {
    open: Vec<Open>,
    /// The configs whose next process must not be forked.
    fresh: Vec<Config>,
}

/// A waiting process.
pub(super) struct Open {
    pub(super) config: Config,
    /// The number of the trial that started it.
    pub(super) number: u32,
    pub(super) session: Box<Session>,
}

impl std::fmt::Debug for Stable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stable").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl Stable {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Keeps a process, and stops it until its next slice.
    pub(super) fn put(&mut self, mut open: Open) {
        self.fresh.retain(|config| *config != open.config);
        open.session.pause();
        self.open.retain(|other| other.config != open.config);
        self.open.push(open);
    }

    /// Takes the process of a config, if one is held.
    pub(super) fn take(&mut self, config: &Config) -> Option<Open> {
        let at = self.open.iter().position(|open| open.config == *config)?;
        Some(self.open.remove(at))
    }

    /// Ends the processes of all other configs.
    pub(super) fn keep(&mut self, configs: &[Config]) {
        // All are asked before the first is waited for, so that they end at the same time.
        let others = self.open.iter_mut().filter(|open| !configs.contains(&open.config));
        others.for_each(|open| open.session.ask_to_end());
        self.open.retain(|open| configs.contains(&open.config));
    }

    /// Ends the process of a config, so that the next round uses another process. The next process is fresh if the ended process
    /// was forked.
    pub(super) fn restart(&mut self, config: &Config) {
        let is_forked = self.take(config).is_some_and(|open| open.session.is_forked);
        if is_forked && !self.fresh.contains(config) {
            self.fresh.push(config.clone());
        }
    }

    /// Returns true if the next process of a config must be fresh.
    pub(super) fn needs_fresh(&self, config: &Config) -> bool {
        self.fresh.contains(config)
    }

    /// Returns a place among the open sessions that is free.
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
    /// Ends the process as after a single measurement.
    fn drop(&mut self) {
        if self.session.supervised.is_some() {
            let _ = self.session.close(&Verdict::Enough, &mut |_| ControlFlow::Continue(()));
        }
    }
}
