//! What is known of the best config while a search goes on: not its luckiest run.

use std::collections::HashSet;

use super::repeatability::prior_of;
use crate::model::{Config, Estimate, History, Objective, Trial};
use crate::probe::stats::{self, NORMAL_95};
use crate::search::noise::{NoisePrior, Run, RunNoise};

/// The probability that a run of the best config is slower than the rate below which others are given up. With the error within
/// the run that is given up, a fifth of a per cent, the decision errs with 1 %.
pub(crate) const PRUNING_ERROR: f64 = 0.008;

/// The configs of a search that can be the best, each with the logarithms of the runs that count.
pub(crate) struct Known {
    configs: Vec<(Config, Vec<Run>)>,
    noise: RunNoise,
}

impl Known {
    /// Reads a history; `None` where the objective has no ratios, or nothing was measured in full.
    pub(crate) fn of(objective: &Objective, history: &History, of_rates: NoisePrior) -> Option<Self> {
        let is_whole = |trial: &&Trial| !trial.purpose.is_short();
        let contenders = history.contenders(|outcome| objective.score_of(outcome).is_some()).filter(is_whole);
        let mut configs: Vec<(Config, Vec<Run>)> = Vec::new();
        let (mut is_rate, mut seen) = (false, HashSet::new());
        for trial in contenders.filter(|trial| objective.score_of(&trial.outcome).is_some()) {
            if !seen.insert(&trial.config) {
                continue;
            }
            let runs = history.of(&trial.config).filter(is_whole).filter_map(|trial| {
                let estimate = objective.estimate(trial.outcome.measurement()?)?;
                is_rate |= estimate.low.is_some();
                let half = estimate.relative_half_width().filter(|half| half.is_finite());
                Some(Run::alone(estimate.value.ln(), half.unwrap_or(0.0) / NORMAL_95, None))
            });
            let runs: Vec<Run> = runs.collect();
            if runs.is_empty() || runs.iter().any(|run| !run.value.is_finite()) {
                return None;
            }
            configs.push((trial.config.clone(), runs));
        }
        let noise = RunNoise::of(configs.iter().map(|(_, runs)| runs.as_slice()), prior_of(is_rate, of_rates));
        (!configs.is_empty()).then_some(Self { configs, noise })
    }

    /// Returns the rate that a config must reach to be the best, for an objective of which more is better. Its lower end is
    /// the rate that a run of the best config falls below with a probability of `tail` at most.
    ///
    /// The best of several runs is mostly a lucky one. Where k configs cannot be told from it, its run is expected to be
    /// as far above its level as the largest of k draws of the noise, and that is taken off (the worst case, in which the
    /// levels of all k are equal).
    pub(crate) fn to_beat(&self, tail: f64) -> Option<Estimate> {
        let top = |runs: &[Run]| self.noise.level(runs);
        let levels: Vec<_> = self.configs.iter().filter_map(|(_, runs)| Some((top(runs)?, runs))).collect();
        let (best, runs) = levels.iter().max_by(|(a, _), (b, _)| a.value.total_cmp(&b.value))?;
        let again = self.noise.again(runs)?;
        let half = again.half_width(tail);
        let rivals = levels.iter().filter(|(level, _)| best.value - level.value <= half).count();
        let luck = if runs.len() > 1 { 0.0 } else { best.error * largest_of(rivals) };
        let value = best.value - luck;
        Some(Estimate { value: value.exp(), low: Some((value - half).exp()), high: Some((value + half).exp()) })
    }

    /// Whether a config may be better than another that looks better, with a probability of `tail` or more; `None` where
    /// nothing is known of the noise.
    pub(crate) fn may_be_better(&self, config: &Config, than: &Config, tail: f64) -> Option<bool> {
        let runs = |wanted: &Config| self.configs.iter().find(|(config, _)| config == wanted).map(|(_, runs)| runs);
        let difference = self.noise.difference(runs(config)?, runs(than)?)?;
        Some(difference.value.abs() <= difference.half_width(tail))
    }
}

/// Returns the expected largest of this many draws from the standard normal distribution: Blom, "Statistical estimates and
/// transformed beta-variables", 1958.
fn largest_of(draws: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let tail = 0.625 / (draws as f64 + 0.25);
    if draws < 2 { 0.0 } else { stats::normal_quantile(tail) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Measurement, Outcome, Parameter, Purpose, Space};
    use crate::probe::stats::Random;

    fn known(rates: &[f64], half: f64) -> (Space, Known) {
        let space = Space::new([Parameter::range("x", 0, 99, 1)]).unwrap();
        let trial = |(number, &rate): (u32, &f64)| Trial {
            slot: None,
            number,
            purpose: Purpose::Search,
            config: space.config(number.into()).unwrap(),
            outcome: Outcome::Measured(Measurement {
                throughput: Some(Estimate::interval(rate, rate * (1.0 - half), rate * (1.0 + half))),
                ..Measurement::default()
            }),
            elapsed: Duration::ZERO,
            ended_at: None,
        };
        let history: History = (1..).zip(rates).map(trial).collect();
        let known = Known::of(&Objective::default(), &history, NoisePrior::RATE).unwrap();
        (space, known)
    }

    /// Of eight configs that are equal one looks best. A ninth that is 5 % faster than they are is to be dropped at most twice
    /// in 200 searches, whatever the noise between runs.
    #[test]
    fn the_best_run_is_no_bar_for_a_faster_config() {
        const SEARCHES: usize = 2000;
        let mut random = Random(11);
        for between in [0.01, 0.03, 0.067] {
            let mut dropped = 0;
            for _ in 0..SEARCHES {
                let rates: Vec<f64> = (0..8).map(|_| 100.0 * (between * random.normal()).exp()).collect();
                let (_, known) = known(&rates, 0.01);
                let low = known.to_beat(PRUNING_ERROR).unwrap().low.unwrap();
                dropped += usize::from(105.0 * (between * random.normal()).exp() < low);
            }
            assert!(dropped * 100 <= SEARCHES, "{between}: {dropped} of {SEARCHES}");
        }
    }

    #[test]
    fn what_is_near_may_be_better_and_what_is_far_may_not() {
        let (space, known) = known(&[100.0, 98.0, 80.0], 0.01);
        let config = |number: u64| space.config(number.into()).unwrap();
        assert_eq!(known.may_be_better(&config(2), &config(1), 0.2), Some(true));
        assert_eq!(known.may_be_better(&config(3), &config(1), 0.2), Some(false));
    }

    #[test]
    fn the_largest_of_many_draws_is_further_out() {
        assert_eq!(largest_of(1), 0.0);
        assert!((largest_of(2) - 0.5642).abs() < 0.03, "{}", largest_of(2));
        assert!((largest_of(10) - 1.5388).abs() < 0.02, "{}", largest_of(10));
    }
}
