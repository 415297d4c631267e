//! Tracks the processes of a distributed job: which processes have reported, how many are expected, and which are lost.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time after the first step of rank 0 in which other ranks may still say `hello`. A round number.
const REPORT_TIME: Duration = Duration::from_secs(5);

/// Steps of rank 0 that may arrive after another rank died: the current step, and a step that overlaps with it.
const LATE_STEPS: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The number of processes that must report, if the spec states it.
    stated: Option<u32>,
    /// True if a hook is loaded in every process, so that all processes report if one does.
    is_hooked: bool,
    /// The number of processes in the job, as the processes report it.
    told: Option<u32>,
    known: BTreeMap<u32, Rank>,
    first_step: Option<Instant>,
}

#[derive(Debug, Default)]
struct Rank {
    /// The number of its open connections.
    open: u32,
    /// Set if the last connection of the rank closed without the expected `bye`.
    gone: Option<Gone>,
}

#[derive(Debug, Clone, Copy)]
struct Gone {
    at: Instant,
    /// The steps of rank 0 since then.
    steps_since: u32,
}

/// The result of comparing the reported processes with the expected number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attendance {
    Complete,
    /// Too few have reported, in words. The missing processes have a little time left.
    Missing(String),
    /// Too few have reported for too long, or too many have reported, in words.
    Wrong(String),
}

impl Ranks {
    pub(super) fn new(stated: Option<u32>, is_hooked: bool) -> Self {
        Self { stated, is_hooked, ..Self::default() }
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.known.len()).unwrap_or(u32::MAX)
    }

    /// Records the `hello` on a new connection: the rank of the process and the number of ranks.
    pub(super) fn hello(&mut self, rank: u32, ranks: Option<u32>) {
        const MOST: usize = 1 << 16;
        self.told = ranks.max(self.told);
        if self.known.len() < MOST || self.known.contains_key(&rank) {
            let rank = self.known.entry(rank).or_default();
            rank.open += 1;
            rank.gone = None;
        }
    }

    pub(super) fn closed(&mut self, rank: u32, is_orderly: bool, at: Instant) {
        if let Some(rank) = self.known.get_mut(&rank) {
            rank.open = rank.open.saturating_sub(1);
            rank.gone = (rank.open == 0 && !is_orderly).then_some(Gone { at, steps_since: 0 });
        }
    }

    pub(super) fn step(&mut self, at: Instant) {
        self.first_step.get_or_insert(at);
        for gone in self.known.values_mut().filter_map(|rank| rank.gone.as_mut()) {
            gone.steps_since = gone.steps_since.saturating_add(1);
        }
    }

    pub(super) fn attendance(&self, now: Instant) -> Attendance {
        let told = self.told.filter(|_| self.is_hooked);
        let Some(expected) = self.stated.or(told) else { return Attendance::Complete };
        let late = self.first_step.is_some_and(|first| now.saturating_duration_since(first) >= REPORT_TIME);
        match self.count().cmp(&expected) {
            Ordering::Equal => Attendance::Complete,
            Ordering::Less if !late => Attendance::Missing(self.wrong(expected)),
            _ => Attendance::Wrong(self.wrong(expected)),
        }
    }

    fn wrong(&self, expected: u32) -> String {
        let count = self.count();
        let processes = if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
        match self.stated {
            Some(_) => format!("{processes} reported, {expected} were to (ranks = {expected})"),
            None => format!("{processes} reported, and the job has {expected}"),
        }
    }

    /// Returns the rank that was lost first, among the ranks that left without `bye`.
    pub(super) fn first_lost(&self) -> Option<u32> {
        let lost = self.known.iter().filter_map(|(rank, state)| Some((state.gone.as_ref()?.at, *rank)));
        lost.min().map(|(_, rank)| rank)
    }

    /// Returns a message if a process is gone while the other processes wait for it.
    pub(super) fn lost(&self, now: Instant, grace: Duration) -> Option<String> {
        let is_lost = |gone: &Gone| gone.steps_since <= LATE_STEPS && now.saturating_duration_since(gone.at) >= grace;
        let lost = self.known.iter().find(|(_, rank)| rank.gone.as_ref().is_some_and(is_lost));
        let (rank, _) = lost.filter(|_| self.known.values().any(|rank| rank.open > 0))?;
        Some(format!("rank {rank} is gone (its connection closed) while the other ranks wait"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_get_a_little_time() {
        let begin = Instant::now();
        let reason = "1 process reported, and the job has 2".to_owned();
        for (is_hooked, at_once, later) in [
            (true, Attendance::Missing(reason.clone()), Attendance::Wrong(reason)),
            (false, Attendance::Complete, Attendance::Complete),
        ] {
            let mut ranks = Ranks::new(None, is_hooked);
            ranks.hello(0, Some(2));
            ranks.step(begin);
            assert_eq!((ranks.attendance(begin), ranks.attendance(begin + REPORT_TIME)), (at_once, later));
        }
    }

    #[test]
    fn a_rank_is_lost_only_while_the_other_ranks_wait() {
        const GRACE: Duration = Duration::from_secs(5);
        let begin = Instant::now();
        let mut ranks = Ranks::new(None, true);
        [0, 1].into_iter().for_each(|rank| ranks.hello(rank, Some(2)));
        ranks.closed(1, false, begin);
        assert_eq!((ranks.first_lost(), ranks.lost(begin, GRACE)), (Some(1), None));
        assert!(ranks.lost(begin + GRACE, GRACE).is_some());
        (0..=LATE_STEPS).for_each(|_| ranks.step(begin));
        assert_eq!(ranks.lost(begin + GRACE, GRACE), None, "the other ranks go on");
        ranks.hello(1, Some(2));
        [0, 1].into_iter().for_each(|rank| ranks.closed(rank, false, begin));
        assert_eq!(ranks.lost(begin + GRACE, GRACE), None, "nobody waits");
        ranks.hello(0, Some(2));
        ranks.hello(1, Some(2));
        assert_eq!(ranks.lost(begin + GRACE, GRACE), None, "both are back");
    }
}
