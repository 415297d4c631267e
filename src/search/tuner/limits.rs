//! Decides when to stop probing new configs: the budget or the allocation runs out.

use std::time::Duration;

use super::search::Search;
use crate::model::{Config, Slot, Trial, quantity::show_duration};
use crate::probe::Holds;
use crate::search::budget::{Budget, StopReason, expected_probe};
use crate::search::rounds::CLEAR;

/// The most configs in a round: the baseline, the incumbent and two more. More configs would put more time between their slices.
pub(super) const MOST: usize = 4;

/// How many new configs a round needs while the search goes on.
pub(super) const NEW: usize = 2;

impl Search<'_, '_> {
    /// Returns why no new config may be started; `None` if it may.
    pub(super) fn reason_to_stop(&mut self) -> Option<StopReason> {
        let running = self.probes.count_searches();
        let reserve = self.reserve();
        let stop = self.setup.budget.stop(&self.trials.history, self.clock.elapsed(), running, reserve);
        let others = || {
            let spent = |(budget, elapsed): &(Budget, Duration)| {
                budget.stop(&self.trials.history, *elapsed, running, reserve).is_some()
            };
            self.in_gpu_time().filter(spent).map(|_| StopReason::GpuTimeSpent).or_else(|| {
                // A probe as long as the longest must fit into the rest of the allocation.
                let is_short = self.usable().is_some_and(|left| left < self.longest_probe());
                let ends = is_short || self.in_allocation().is_some_and(|left| spent(&left));
                ends.then_some(StopReason::AllocationEnds)
            })
        };
        stop.or_else(others)
    }

    pub(super) fn probes_left(&self) -> u32 {
        let beside = u32::try_from(self.slots.open()).unwrap_or(u32::MAX);
        let reserve = self.reserve();
        let left =
            |budget: &Budget, elapsed, beside| budget.probes_left(&self.trials.history, elapsed, beside, reserve);
        let by_budget = left(&self.setup.budget, self.clock.elapsed(), beside);
        let by_gpus = self.in_gpu_time().map(|(budget, spent)| left(&budget, spent, 1));
        let by_allocation = self.in_allocation().map(|(budget, spent)| left(&budget, spent, beside));
        by_gpus.into_iter().chain(by_allocation).fold(by_budget, u32::min)
    }

    pub(super) fn time_left(&self) -> Duration {
        let by_budget = self.setup.budget.for_probes().saturating_sub(self.clock.elapsed());
        let by_gpus = self.in_gpu_time().map(|(budget, spent)| budget.time.saturating_sub(spent));
        by_gpus.into_iter().chain(self.usable()).fold(by_budget, Duration::min)
    }

    /// Returns how long this search is expected to go on; `None` before two probes have shown how long a probe takes. The sum
    /// covers the probes left, a round for every [`NEW`] probes, and a last round with a new process of the leader.
    pub(super) fn expected_left(&self) -> Option<Duration> {
        const FEWEST: usize = 2;
        if self.trials.history.count_searched() < FEWEST {
            return None;
        }
        let probes = if self.rounds.is_in_last_rounds { 0 } else { self.probes_left() };
        let beside = u32::try_from(self.slots.open().max(1)).unwrap_or(u32::MAX);
        let for_probes = expected_probe(&self.trials.history) * probes / beside;
        if !self.has_rounds() {
            return Some(for_probes.min(self.time_left()));
        }
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let rounds = probes.div_ceil(count(NEW)) + 1;
        let for_rounds = self.time_per_config() * count(MOST) * rounds / beside + self.trials.time_to_start_anew();
        Some((for_probes + for_rounds).min(self.time_left()))
    }

    /// Returns the time to reserve for rounds. Usually it suffices to prove that a config is faster, including the start of
    /// processes for it and for the baseline. It is one round once the winner is clear, or after few configs without a clear lead.
    fn reserve(&self) -> Duration {
        /// Three rounds with each of two processes.
        const ROUNDS: u32 = 6;
        const CONFIGS: u32 = 3;
        const ANEW: u32 = 2;
        /// Up to this many configs, no time is reserved to prove a small lead. A round number.
        const FEW: usize = 5;
        if !self.has_rounds() {
            return Duration::ZERO;
        }
        let round = self.time_per_config() * CONFIGS;
        if self.rounds.is_clear {
            return round + self.rounds.time_for_checks;
        }
        let first = if self.slots.holds == Holds::Processes { 0 } else { 2 };
        let first = self.trials.time_to_start() * first;
        if self.trials.history.count_searched() <= FEW && !self.is_clearly_ahead() {
            return first + round + self.time_for_checks();
        }
        round * ROUNDS + first + self.trials.time_to_start_anew() * ANEW + self.rounds.time_for_checks
    }

    /// Returns true if a config is so much faster than the baseline that a proof is worth more than further probes.
    fn is_clearly_ahead(&self) -> bool {
        let objective = &self.setup.objective;
        let feasible = self.trials.history.searched().filter(|trial| objective.score_of(&trial.outcome).is_some());
        let rate_of = |trial: &Trial| Some((trial.config.clone(), trial.outcome.measurement()?.throughput?.value));
        let rates: Vec<(Config, f64)> = feasible.filter_map(rate_of).collect();
        let baseline = rates.iter().find(|(config, _)| Some(config) == self.setup.baseline()).map(|(_, rate)| *rate);
        let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        !self.setup.compares_rates() || baseline.is_none_or(|baseline| best > baseline * (1.0 + CLEAR))
    }

    /// Returns the message for a search that ends with its allocation.
    pub(super) fn of_the_allocation(&self) -> Option<String> {
        let left = show_duration(self.setup.allocation?.left());
        let probe = show_duration(self.longest_probe());
        Some(format!(
            "the allocation ends in {left}, and a probe may take {probe}: no new config starts, but rounds continue while time \
             is left. Nothing is lost: the same command goes on in another allocation"
        ))
    }

    /// Returns the budget of GPU time, converted to wall time of probes that run one at a time, and how much of it is spent.
    fn in_gpu_time(&self) -> Option<(Budget, Duration)> {
        let time = self.setup.budget.gpu_time?;
        let gpus_of = |slot: usize| f64::from(Slot::count_gpus(self.slots.slot(slot), self.setup.whole_gpus));
        let gpus = gpus_of(self.slots.home()).max(1.0);
        let done: f64 = self.trials.history.trials().iter().map(|trial| trial.gpu_seconds(self.setup.whole_gpus)).sum();
        let runs = self.probes.begun.iter().enumerate().filter_map(|(slot, begun)| {
            let takes = begun.as_ref()?.began.elapsed().max(self.longest_probe());
            Some(takes.as_secs_f64() * gpus_of(slot))
        });
        let rounds = self.probes.in_round.iter().enumerate().filter_map(|(slot, round)| {
            let takes = round.as_ref()?.takes(self.time_per_config());
            Some(takes.as_secs_f64() * gpus_of(slot))
        });
        let done = done + self.clock.load_gpu_seconds;
        let spent =
            Duration::try_from_secs_f64((done + runs.chain(rounds).sum::<f64>()) / gpus).unwrap_or(Duration::MAX);
        Some((Budget { time: time.div_f64(gpus), ..self.setup.budget }, spent))
    }

    /// Returns the rest of the allocation as a budget, and the time that this run of the search has taken.
    fn in_allocation(&self) -> Option<(Budget, Duration)> {
        let elapsed = self.clock.begin.elapsed();
        Some((Budget { time: elapsed + self.usable()?, ..self.setup.budget }, elapsed))
    }

    /// Returns the time left in the allocation, without the time to end processes and write results.
    fn usable(&self) -> Option<Duration> {
        Some(self.setup.allocation?.left().saturating_sub(self.setup.limits.grace_time))
    }

    /// Returns how long a probe may take: as long as the longest of this search, or the measuring time before the first.
    fn longest_probe(&self) -> Duration {
        let limits = &self.setup.limits;
        let longest = self.trials.history.searched().map(|trial| trial.elapsed).max();
        longest.unwrap_or(limits.measure_time).min(limits.probe_time + limits.grace_time)
    }
}
