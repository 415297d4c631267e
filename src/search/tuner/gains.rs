//! Ends a search when the expected gains of its next configs are small.

use crate::model::{Count, Estimate, History, Objective, Outcome, Space};
use crate::search::budget::StopReason;
use crate::search::study::WIDEST_TIE;

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
/// Let h be half the width. If two equal configs are measured this well, their difference is below h * sqrt(2) in 95%
/// of cases. An expected gain is a gain times its probability, which is about one half for a proposal that may as well
/// be worse. So expected gains below about h / 2 cannot be shown. `noise_of` limits h to the widest tie, because the
/// wide interval of one config must not end the search.
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
