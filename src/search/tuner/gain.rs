//! Whether another probe is worth its cost, as far as the strategy expects.

use crate::model::{History, Objective, Outcome, Purpose};
use crate::search::budget::StopReason;
use crate::search::study::WIDEST_TIE;

/// Proposals in a row of which little is expected. One may be chance, and a model is often too sure of itself early on: on
/// recorded tables three in a row ended searches whose best config was 12 % below the table's, ten in a row 5 %, sixty
/// probes without an end 3 %; of training jobs all ended at the table's best.
const IN_A_ROW: usize = 10;

/// Configs that must be known before a model may say that there is nothing to gain.
const FEWEST_CONFIGS: usize = 10;

/// Counts proposals of which little is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SmallGains {
    least: f64,
    in_a_row: usize,
    /// How many of those expected more than the least, but less than measurements can tell apart.
    within_noise: usize,
}

impl SmallGains {
    pub(super) fn new(least: f64) -> Self {
        Self { least, in_a_row: 0, within_noise: 0 }
    }

    /// As it is after a history, of whose trials these gains were expected.
    pub(super) fn after(history: &History, expected: &[Option<f64>], objective: &Objective, least: f64) -> Self {
        let mut gains = Self::new(least);
        let mut best: Option<(f64, f64)> = None;
        for (at, trial) in history.trials().iter().enumerate() {
            if trial.purpose == Purpose::Confirm {
                continue;
            }
            gains.hear(expected.get(at).copied().flatten(), best.map_or(0.0, |(_, noise)| noise));
            if let Some(score) = objective.score_of(&trial.outcome).filter(|_| !trial.purpose.is_short())
                && best.is_none_or(|(top, _)| score > top)
            {
                best = Some((score, noise(objective, &trial.outcome)));
            }
        }
        gains
    }

    /// The gain that is expected of the next proposal, and the [noise] of the best so far.
    pub(super) fn hear(&mut self, gain: Option<f64>, noise: f64) {
        match gain {
            Some(gain) if gain < self.least => self.in_a_row += 1,
            Some(gain) if gain < noise => {
                self.in_a_row += 1;
                self.within_noise += 1;
            }
            _ => (self.in_a_row, self.within_noise) = (0, 0),
        }
    }

    /// Why the search should end, if it should.
    pub(super) fn are_enough(&self, history: &History) -> Option<StopReason> {
        let enough = self.least > 0.0 && self.in_a_row >= IN_A_ROW && history.searched().count() >= FEWEST_CONFIGS;
        let reason = if self.within_noise > 0 { StopReason::GainWithinNoise } else { StopReason::LittleToGain };
        enough.then_some(reason)
    }
}

/// The gain, as a share of the best, that measurements cannot tell from none: half of what half the best's 95 % interval
/// is.
///
/// Two configs measured as well as the best differ by chance by up to its half width h times the root of 2. What is
/// expected on average weighs a gain with its probability, which for a proposal that may as well be worse is about a half:
/// below h / 2 no gain is in sight that a repetition would confirm. A best that never settled must not end the search on
/// its own, so h counts up to the widest tie.
pub(super) fn noise(objective: &Objective, best: &Outcome) -> f64 {
    let half = best.measurement().and_then(|measurement| objective.estimate(measurement)?.relative_half_width());
    half.filter(|half| *half > 0.0).map_or(0.0, |half| half.min(WIDEST_TIE) / 2.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Estimate, Measurement, Parameter, Space, Trial};

    fn measured(value: f64, half: f64) -> Outcome {
        let throughput = Some(Estimate::interval(value, value - half, value + half));
        Outcome::Measured(Measurement { throughput, ..Measurement::default() })
    }

    fn history(trials: usize, half: f64) -> History {
        let space = Space::new([Parameter::range("x", 0, 99, 1)]).unwrap();
        (1..)
            .take(trials)
            .map(|number| Trial {
                number,
                purpose: Purpose::Search,
                config: space.config(number.into()).unwrap(),
                outcome: measured(100.0, half),
                elapsed: Duration::ZERO,
            })
            .collect()
    }

    fn stop(gain: f64, half: f64, least: f64) -> Option<StopReason> {
        let history = history(12, half);
        let expected = vec![Some(gain); 12];
        SmallGains::after(&history, &expected, &Objective::default(), least).are_enough(&history)
    }

    #[test]
    fn what_is_below_the_least_gain_ends_it_and_what_is_below_the_noise_too() {
        assert_eq!(stop(0.005, 1.0, 0.01), Some(StopReason::LittleToGain));
        assert_eq!(stop(0.02, 1.0, 0.01), None, "half of a half width of 1 % is 0.5 %");
        assert_eq!(stop(0.02, 6.0, 0.01), Some(StopReason::GainWithinNoise), "half of 6 % is 3 %");
        assert_eq!(stop(0.04, 6.0, 0.01), None);
        assert_eq!(stop(0.04, 90.0, 0.01), Some(StopReason::GainWithinNoise));
        assert_eq!(stop(0.06, 90.0, 0.01), None, "however noisy, a gain of more than 5 % is worth a look");
        assert_eq!(stop(0.0, 1.0, 0.0), None, "zero never stops a search");
    }

    #[test]
    fn what_the_history_says_is_what_was_heard() {
        let (history, objective) = (history(30, 4.0), Objective::default());
        let expected: Vec<Option<f64>> =
            (0..30).map(|at| if at % 13 == 5 { None } else { Some(0.03 * f64::from(at % 3)) }).collect();
        let mut heard = SmallGains::new(0.01);
        for (at, gain) in expected.iter().enumerate() {
            let noise = if at == 0 { 0.0 } else { noise(&objective, &history.trials()[0].outcome) };
            heard.hear(*gain, noise);
            let before: History = history.trials()[..=at].iter().cloned().collect();
            assert_eq!(SmallGains::after(&before, &expected[..=at], &objective, 0.01), heard, "at {at}");
        }
    }

    #[test]
    fn metrics_without_an_interval_have_no_noise() {
        let objective = Objective::default();
        let point = Measurement { throughput: Some(Estimate::point(3.0)), ..Measurement::default() };
        assert_eq!(noise(&objective, &Outcome::Measured(point)), 0.0);
        assert_eq!(noise(&objective, &measured(100.0, f64::INFINITY)), WIDEST_TIE / 2.0);
        assert_eq!(noise(&objective, &measured(0.0, 0.0)), 0.0);
    }
}
