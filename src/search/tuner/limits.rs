//! Decides when to stop probing new configs: the budget or the allocation runs out, or the expected gains are small.

use std::time::Duration;

use super::search::Search;
use crate::model::{Config, Count, Estimate, History, Objective, Outcome, Slot, Space, Trial, quantity::show_duration};
use crate::probe::Holds;
use crate::search::budget::{Budget, StopReason, expected_probe};
use crate::search::rounds::CLEAR;
use crate::search::study::WIDEST_TIE;

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

/// The fewest and the most proposals whose expected gains are summed. The search ends if the sum is below the least gain.
///
/// One small gain is no reason to end. On recorded kernel tables, probes with an expected gain below 1% gained 0.3% each. Searches
/// that ended after ten such probes in a row ended after 31 probes, 4.6% below the table's best.
///
/// The numbers were chosen on twelve tables, as means of 40 seeds; no table was held out. Sums of 8, 10 and 12 proposals end kernel
/// searches 2.9%, 2.4% and 2.0% below the best, after 59, 66 and 75 probes. They end searches of training jobs at the table's best,
/// after 12.8, 14.8 and 16.8 probes.
///
/// A larger space has more left to find, so the sum has log2(configs) proposals. The spaces of the training jobs have at most 2^8
/// configs and end as with a sum of 8. The kernels have 2^12 to 2^15 configs and end 2.0% below the best, after 79 probes. Larger
/// spaces were not tried.
///
/// Correcting the expected gains by the gains so far did not help: the two mostly agree.
const TOGETHER: (usize, usize) = (8, 16);

/// The search ends after this many proposals in a row whose expected gains are below the noise. A single such gain may be chance.
const IN_A_ROW: usize = 10;

/// The fewest known configs before small expected gains may end a search. A round number.
const FEWEST_CONFIGS: usize = 10;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SmallGains {
    least: f64,
    together: usize,
    /// Each expected gain with the noise of the best config at that time, oldest first.
    last: Vec<(f64, f64)>,
}

impl SmallGains {
    pub(super) fn new(space: &Space, least: f64) -> Self {
        Self { least, together: together(space), last: Vec::new() }
    }

    /// Restores the state from a history and the expected gains of its trials.
    pub(super) fn after(
        space: &Space,
        history: &History,
        expected: &[Option<f64>],
        objective: &Objective,
        least: f64,
    ) -> Self {
        let mut gains = Self::new(space, least);
        let mut best: Option<(f64, f64)> = None;
        for (at, trial) in history.trials().iter().enumerate() {
            if trial.purpose.is_repeated() {
                continue;
            }
            gains.hear(expected.get(at).copied().flatten(), best.map_or(0.0, |(_, noise)| noise));
            if let Some(score) = objective.score_of(&trial.outcome)
                && best.is_none_or(|(top, _)| score > top)
            {
                best = Some((score, noise(objective, &trial.outcome)));
            }
        }
        gains
    }

    /// Adds the expected gain of the next proposal, and the [noise] of the best config.
    pub(super) fn hear(&mut self, gain: Option<f64>, noise: f64) {
        match gain {
            Some(gain) => self.last.push((gain, noise)),
            None => self.last.clear(),
        }
        if self.last.len() > self.together.max(IN_A_ROW) {
            self.last.remove(0);
        }
    }

    /// Returns why the search should end; `None` if it should go on.
    pub(super) fn are_enough(&self, history: &History) -> Option<StopReason> {
        if self.least <= 0.0 || history.count_searched() < FEWEST_CONFIGS {
            return None;
        }
        let of_last = |count: usize| self.last.len().checked_sub(count).map(|from| &self.last[from..]);
        if of_last(self.together).is_some_and(|last| last.iter().map(|(gain, _)| gain).sum::<f64>() < self.least) {
            return Some(StopReason::LittleToGain);
        }
        let are_noise = |last: &[(f64, f64)]| last.iter().all(|(gain, noise)| gain < noise);
        of_last(IN_A_ROW).is_some_and(are_noise).then_some(StopReason::GainWithinNoise)
    }
}

/// Returns the number of gains that are summed.
fn together(space: &Space) -> usize {
    let configs = match space.count() {
        Count::Exact(count) => count as f64,
        Count::Unknown => f64::INFINITY,
    };
    let bits = configs.log2().ceil().clamp(0.0, 64.0) as usize;
    bits.clamp(TOGETHER.0, TOGETHER.1)
}

/// Returns the smallest gain, as a share of the best, that measurements can show: a quarter of the width of the best's 95%
/// interval.
///
/// Let h be the half width. If two equal configs are measured this well, their difference is below h * sqrt(2) in 95% of cases. An
/// expected gain is a gain times its probability, about one half for a proposal that may as well be worse. So expected gains below
/// about h / 2 cannot be shown. h is limited to the widest tie: the wide interval of one config must not end the search.
pub(super) fn noise(objective: &Objective, best: &Outcome) -> f64 {
    best.measurement().and_then(|run| objective.estimate(run)).map_or(0.0, |estimate| noise_of(&estimate))
}

/// Returns the [`noise`] of the best config from its interval.
pub(super) fn noise_of(best: &Estimate) -> f64 {
    let half = best.relative_half_width().filter(|half| *half > 0.0);
    half.map_or(0.0, |half| half.min(WIDEST_TIE) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::tests::{measured, numbers};

    fn history(trials: u128, half: f64) -> History {
        let outcome = || measured(Estimate::interval(100.0, 100.0 - half, 100.0 + half));
        crate::search::tests::history((1..=trials).map(|at| (numbers(0, 99).config(at).unwrap(), outcome())))
    }

    #[test]
    fn what_is_below_the_least_gain_ends_it_and_what_is_below_the_noise_too() {
        for (gain, half, least, expected) in [
            (0.001, 1.0, 0.01, Some(StopReason::LittleToGain)),
            // Eight of these are 1.6%.
            (0.002, 0.1, 0.01, None),
            // Half of a half width of 1% is 0.5%, and half of 6% is 3%.
            (0.02, 1.0, 0.01, None),
            (0.02, 6.0, 0.01, Some(StopReason::GainWithinNoise)),
            (0.04, 6.0, 0.01, None),
            // However noisy the best is, a gain of more than 5% is worth a probe.
            (0.04, 90.0, 0.01, Some(StopReason::GainWithinNoise)),
            (0.06, 90.0, 0.01, None),
            // Zero never stops a search.
            (0.0, 1.0, 0.0, None),
        ] {
            let (history, objective) = (history(12, half), Objective::default());
            let gains = SmallGains::after(&numbers(0, 99), &history, &[Some(gain); 12], &objective, least);
            assert_eq!(gains.are_enough(&history), expected, "{gain} {half} {least}");
        }
    }

    #[test]
    fn more_is_looked_at_where_there_is_more_to_look_at() {
        let of = |last: i64| together(&numbers(0, last));
        assert_eq!([of(99), of(255), of(4091), of(1 << 20)], [8, 8, 12, 16]);
    }

    #[test]
    fn what_the_history_says_is_what_was_heard() {
        let (history, objective) = (history(30, 4.0), Objective::default());
        let expected: Vec<Option<f64>> =
            (0..30).map(|at| if at % 13 == 5 { None } else { Some(0.03 * f64::from(at % 3)) }).collect();
        let space = numbers(0, 99);
        let mut heard = SmallGains::new(&space, 0.01);
        for (at, gain) in expected.iter().enumerate() {
            let noise = if at == 0 { 0.0 } else { noise(&objective, &history.trials()[0].outcome) };
            heard.hear(*gain, noise);
            let before: History = history.trials()[..=at].iter().cloned().collect();
            assert_eq!(SmallGains::after(&space, &before, &expected[..=at], &objective, 0.01), heard, "at {at}");
        }
    }

    #[test]
    fn metrics_without_an_interval_have_no_noise() {
        let noise = |estimate| noise(&Objective::default(), &measured(estimate));
        assert_eq!(noise(Estimate::point(3.0)), 0.0);
        assert_eq!(noise(Estimate::interval(100.0, f64::NEG_INFINITY, f64::INFINITY)), WIDEST_TIE / 2.0);
        assert_eq!(noise(Estimate::interval(0.0, 0.0, 0.0)), 0.0);
    }
}
