//! The rest of a search's limits: of its budget, and of the allocation that it runs in.

use std::time::Duration;

use super::rounds::{MOST, NEW};
use super::search::Search;
use crate::model::{Slot, quantity::show_duration};
use crate::search::budget::{Budget, StopReason, expected_probe};

impl Search<'_, '_> {
    /// Returns why no new config may be started; `None` if it may.
    pub(super) fn reason_to_stop(&mut self) -> Option<StopReason> {
        let running = self.begun_searches();
        let reserve = self.reserve();
        let stop = self.budget.stop(&self.history, self.elapsed(), running, reserve);
        let others = || {
            let spent = |(budget, elapsed): &(Budget, Duration)| {
                budget.stop(&self.history, *elapsed, running, reserve).is_some()
            };
            self.in_gpu_time().filter(spent).map(|_| StopReason::GpuTimeSpent).or_else(|| {
                let is_short = self.in_allocation().is_some_and(|left| spent(&left)) || self.is_too_short_for_one();
                is_short.then_some(StopReason::AllocationEnds)
            })
        };
        stop.or_else(others)
    }

    /// Returns how many probes are left under every limit.
    pub(super) fn probes_left(&self) -> u32 {
        let beside = u32::try_from(self.slots.open()).unwrap_or(u32::MAX);
        let reserve = self.reserve();
        let left = |budget: &Budget, elapsed, beside| budget.probes_left(&self.history, elapsed, beside, reserve);
        let by_budget = left(&self.budget, self.elapsed(), beside);
        let by_gpus = self.in_gpu_time().map(|(budget, spent)| left(&budget, spent, 1));
        let by_allocation = self.in_allocation().map(|(budget, spent)| left(&budget, spent, beside));
        by_gpus.into_iter().chain(by_allocation).fold(by_budget, u32::min)
    }

    /// Returns the wall time left for probes and rounds.
    pub(super) fn time_left(&self) -> Duration {
        let by_budget = self.budget.for_probes().saturating_sub(self.elapsed());
        let by_gpus = self.in_gpu_time().map(|(budget, spent)| budget.time.saturating_sub(spent));
        by_gpus.into_iter().chain(self.usable()).fold(by_budget, Duration::min)
    }

    /// Returns how long this search is expected to go on; `None` until two probes have shown how long a probe takes. The sum covers
    /// the probes left, a round for every few of them, and a last round with another process of the leader.
    pub(super) fn expected_left(&self) -> Option<Duration> {
        const FEWEST: usize = 2;
        if self.history.count_searched() < FEWEST {
            return None;
        }
        let probes = if self.is_in_last_rounds { 0 } else { self.probes_left() };
        let beside = u32::try_from(self.slots.open().max(1)).unwrap_or(u32::MAX);
        let for_probes = expected_probe(&self.history) * probes / beside;
        if !self.has_rounds() {
            return Some(for_probes.min(self.time_left()));
        }
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let rounds = probes.div_ceil(count(NEW)) + 1;
        let for_rounds = self.time_per_config() * count(MOST) * rounds / beside + self.time_to_start();
        Some((for_probes + for_rounds).min(self.time_left()))
    }

    /// Returns the time that a process takes from its start to its first step.
    pub(super) fn time_to_start(&self) -> Duration {
        let first = self.history.trials().first().and_then(|trial| trial.outcome.measurement()?.spent);
        let seconds = first.map_or(0.0, |spent| spent.importing_s + spent.starting_s);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns the time to reserve for rounds. It suffices to prove that a config is faster, with a second process of it and of the
    /// baseline. If it is clear which config to name, it is one more round.
    fn reserve(&self) -> Duration {
        /// Three rounds with each of two processes.
        const ROUNDS: u32 = 6;
        const CONFIGS: u32 = 3;
        if !self.has_rounds() {
            return Duration::ZERO;
        }
        let round = self.time_per_config() * CONFIGS;
        if self.is_clear {
            return round + self.rounds.time_for_checks;
        }
        round * ROUNDS + self.time_to_start() * 2 + self.rounds.time_for_checks
    }

    /// Returns the message for a search that ends with its allocation.
    pub(super) fn of_the_allocation(&self) -> Option<String> {
        let left = show_duration(self.allocation?.left());
        let probe = show_duration(self.longest_probe());
        Some(format!(
            "the allocation ends in {left}, and a probe may take {probe}: no new config starts, but rounds continue while time \
             is left. Nothing is lost: the same command goes on in another allocation"
        ))
    }

    /// Returns the budget of GPU time as wall time for one probe after the other, and how much of it is spent.
    fn in_gpu_time(&self) -> Option<(Budget, Duration)> {
        let time = self.budget.gpu_time?;
        let gpus = f64::from(self.gpus_of(self.slots.slot(self.slots.home())).max(1));
        let done: f64 = self.history.trials().iter().map(|trial| trial.gpu_seconds(self.whole_gpus)).sum();
        let runs = self.begun.iter().enumerate().filter_map(|(slot, begun)| {
            let takes = begun.as_ref()?.began.elapsed().max(self.longest_probe());
            Some(takes.as_secs_f64() * f64::from(self.gpus_of(self.slots.slot(slot))))
        });
        let rounds = self.in_round.iter().enumerate().filter_map(|(slot, round)| {
            let takes = round.as_ref()?.takes(self.time_per_config());
            Some(takes.as_secs_f64() * f64::from(self.gpus_of(self.slots.slot(slot))))
        });
        let done = done + self.load_gpu_seconds;
        let spent =
            Duration::try_from_secs_f64((done + runs.chain(rounds).sum::<f64>()) / gpus).unwrap_or(Duration::MAX);
        Some((Budget { time: time.div_f64(gpus), ..self.budget }, spent))
    }

    /// Returns the number of GPUs of a probe in a slot.
    pub(super) fn gpus_of(&self, slot: Option<&Slot>) -> u32 {
        Slot::count_gpus(slot, self.whole_gpus)
    }

    /// Returns the rest of the allocation as a budget, and the time that this run of the search has taken.
    fn in_allocation(&self) -> Option<(Budget, Duration)> {
        let elapsed = self.begin.elapsed();
        Some((Budget { time: elapsed + self.usable()?, ..self.budget }, elapsed))
    }

    /// Returns the time left in the allocation, without the time to end processes and write results.
    fn usable(&self) -> Option<Duration> {
        Some(self.allocation?.left().saturating_sub(self.limits.grace_time))
    }

    /// Returns true if the allocation would end before a probe as long as the longest.
    fn is_too_short_for_one(&self) -> bool {
        self.usable().is_some_and(|left| left < self.longest_probe())
    }

    /// Returns how long a probe may take: as long as the longest of this search, or the measuring time before the first.
    fn longest_probe(&self) -> Duration {
        let longest = self.history.searched().map(|trial| trial.elapsed).max();
        longest.unwrap_or(self.limits.measure_time).min(self.limits.probe_time + self.limits.grace_time)
    }
}
