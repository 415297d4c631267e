//! Processes that wait between two rounds, each stopped until its next slice.

use std::ops::ControlFlow;

use super::session::Session;
use super::verdict::Verdict;
use crate::model::Config;

/// The processes that are held, in the order in which they were started.
#[derive(Default)]
pub(super) struct Stable {
    open: Vec<Open>,
    /// The configs whose next process is a fresh one.
    fresh: Vec<Config>,
}

/// A process that waits.
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
        self.open.retain(|open| configs.contains(&open.config));
    }

    /// Ends the process of a config, so that another one is seen: a fresh one if it was forked.
    pub(super) fn restart(&mut self, config: &Config) {
        let is_forked = self.take(config).is_some_and(|open| open.session.is_forked);
        if is_forked && !self.fresh.contains(config) {
            self.fresh.push(config.clone());
        }
    }

    /// Whether the next process of a config is to be a fresh one.
    pub(super) fn needs_fresh(&self, config: &Config) -> bool {
        self.fresh.contains(config)
    }

    /// A place among the open sessions that no process has.
    pub(super) fn free_place(&self) -> usize {
        let is_taken = |place: &usize| self.open.iter().any(|open| open.session.place == *place);
        (0..).find(|place| !is_taken(place)).unwrap_or(0)
    }
}

impl Drop for Open {
    /// It ends as if it had been measured once.
    fn drop(&mut self) {
        if self.session.supervised.is_some() {
            let _ = self.session.close(&Verdict::Enough, &mut |_| ControlFlow::Continue(()));
        }
    }
}
