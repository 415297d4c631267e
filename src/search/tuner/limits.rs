//! What is left of a search's limits: of its budget, and of the allocation that it runs in.

use std::time::Duration;

use super::search::Search;
use crate::model::{Slot, quantity::show_duration};
use crate::search::budget::{Budget, Round, StopReason};

impl Search<'_, '_> {
    /// Why no new config may be begun, if so.
    pub(super) fn stop(&mut self) -> Option<StopReason> {
        let running = self.begun_searches();
        let stop = self.budget.stop(&self.history, self.elapsed(), running);
        let others = || {
            let spent =
                |(budget, elapsed): &(Budget, Duration)| budget.stop(&self.history, *elapsed, running).is_some();
            self.in_gpu_time().filter(spent).map(|_| StopReason::GpuTimeSpent).or_else(|| {
                let is_short = self.in_allocation().is_some_and(|left| spent(&left)) || self.is_too_short_for_one();
                is_short.then_some(StopReason::AllocationEnds)
            })
        };
        stop.or_else(others)
    }

    /// How many probes are left, by every limit.
    pub(super) fn probes_left(&self) -> u32 {
        let beside = u32::try_from(self.slots.open()).unwrap_or(u32::MAX);
        let by_budget = self.budget.probes_left(&self.history, beside);
        let by_gpus = self.in_gpu_time().map(|(budget, _)| budget.probes_left(&self.history, 1));
        let until_then = self.usable().map(|left| Budget { time: self.elapsed() + left, ..self.budget });
        let by_allocation = until_then.map(|budget| budget.probes_left(&self.history, beside));
        by_gpus.into_iter().chain(by_allocation).fold(by_budget, u32::min)
    }

    /// Decides how long to measure in the next round of confirmations, or why there is no time for it.
    pub(super) fn round(&self, waiting: usize, is_first: bool) -> Result<Round, StopReason> {
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let round =
            |(budget, elapsed): (Budget, Duration), is_first| budget.round(&self.history, elapsed, waiting, is_first);
        let usual = round((self.budget, self.elapsed()), is_first).ok_or(StopReason::TimeSpent)?;
        let in_gpu_time = self.in_gpu_time().map(|left| round(left, is_first).ok_or(StopReason::GpuTimeSpent));
        // Nothing may end later than the allocation.
        let in_allocation = self.in_allocation().map(|left| round(left, false).ok_or(StopReason::AllocationEnds));
        let shortest = |one, other| if other == Round::Short { other } else { one };
        in_gpu_time.into_iter().chain(in_allocation).try_fold(usual, |one, other| Ok(shortest(one, other?)))
    }

    /// What is to be said where the allocation ends a search.
    pub(super) fn of_the_allocation(&self) -> Option<String> {
        let left = show_duration(self.allocation?.left());
        let probe = show_duration(self.longest_probe());
        Some(format!(
            "the allocation ends in {left}, and a probe may take {probe}: no new config is begun, and what leads is confirmed as far \
             as there is time. Nothing is lost: the same command goes on in another allocation"
        ))
    }

    /// The budget of GPU time as one of wall time for one probe after the other, and what is spent of it.
    fn in_gpu_time(&self) -> Option<(Budget, Duration)> {
        let time = self.budget.gpu_time?;
        let gpus = f64::from(self.gpus_of(self.slots.slot(self.slots.home())).max(1));
        let done: f64 = self.history.trials().iter().map(|trial| trial.gpu_seconds(self.whole_gpus)).sum();
        let runs = self.begun.iter().enumerate().filter_map(|(slot, begun)| {
            let takes = begun.as_ref()?.began.elapsed().max(self.longest_probe());
            Some(takes.as_secs_f64() * f64::from(self.gpus_of(self.slots.slot(slot))))
        });
        let spent = Duration::try_from_secs_f64((done + runs.sum::<f64>()) / gpus).unwrap_or(Duration::MAX);
        Some((Budget { time: time.div_f64(gpus), ..self.budget }, spent))
    }

    /// The GPUs that a probe has there.
    fn gpus_of(&self, slot: Option<&Slot>) -> u32 {
        Slot::count_gpus(slot, self.whole_gpus)
    }

    /// The rest of the allocation as a budget, and what this run of the search has spent of it.
    fn in_allocation(&self) -> Option<(Budget, Duration)> {
        let elapsed = self.begin.elapsed();
        Some((Budget { time: elapsed + self.usable()?, ..self.budget }, elapsed))
    }

    /// What is left of the allocation but for the time to end processes and write results.
    fn usable(&self) -> Option<Duration> {
        Some(self.allocation?.left().saturating_sub(self.limits.grace_time))
    }

    /// Whether a probe that takes as long as the longest would be cut off by the end of the allocation.
    fn is_too_short_for_one(&self) -> bool {
        self.usable().is_some_and(|left| left < self.longest_probe())
    }

    /// How long a probe may take: as long as any of this search has, and before the first as long as it measures.
    fn longest_probe(&self) -> Duration {
        let longest = self.history.searched().map(|trial| trial.elapsed).max();
        longest.unwrap_or(self.limits.measure_time).min(self.limits.probe_time + self.limits.grace_time)
    }
}
