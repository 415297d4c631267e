//! Chooses the candidate that is worth most: by its expected improvement, times the probability that the config runs.

use std::f64::consts::PI;

use libm::{exp, log as ln};

use super::candidates::Chunk;
use super::points::Points;
use super::process::{Belief, Feasibility, Process};
use crate::model::{Config, Space};
use crate::probe::stats::normal_tail;

/// Appends (difference from the main mean, probability) for each alternative mean of a config.
pub(super) type Others<'m> = dyn Fn(&Config, &mut Vec<(f64, f64)>) + 'm;

pub(super) struct Judge<'m> {
    pub(super) space: &'m Space,
    pub(super) process: &'m Process,
    pub(super) feasibility: Option<&'m Feasibility>,
    /// The best standardised value so far.
    pub(super) best: f64,
    /// Multiplies each predicted standard deviation; 1 trusts the process.
    pub(super) doubt: f64,
    /// A config's prior mean, and its variance, which only the rough bound uses.
    pub(super) offset: &'m dyn Fn(&Config) -> (f64, f64),
    /// The parameters that the offset depends on.
    pub(super) reads: &'m [usize],
    /// The probability that a config fits into memory, without its other risks of failure.
    pub(super) fits: &'m dyn Fn(&Config) -> f64,
    /// The alternative means with their probabilities. The mean itself has the remaining probability.
    pub(super) others: &'m Others<'m>,
    /// The most candidates that are refined.
    pub(super) most_refined: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) config: Config,
    pub(super) belief: Belief,
    pub(super) chance: f64,
    /// The factor of `chance` that is the probability of fitting into memory.
    pub(super) fits: f64,
    /// The expected improvement in standard units; failures count as no improvement.
    pub(super) improvement: f64,
}

/// Returns what the probability of fitting into memory adds to the logarithm of a candidate's worth. Running out of
/// memory costs more than a probe without gain: it takes as long, says less, and may harm other work on the device. So
/// the probability counts twice, and candidates that hardly fit come last.
pub(super) fn risk(fits: f64) -> f64 {
    /// The probability of fitting below which a config hardly fits. A round number.
    const HARDLY: f64 = 0.05;
    /// Added for a config that hardly fits. It is below the logarithm of any other worth.
    const LAST: f64 = -1e6;
    2.0 * ln(fits) + if fits < HARDLY { LAST } else { 0.0 }
}

/// A candidate with an upper bound of its worth.
struct Bounded<'c> {
    config: &'c Config,
    bound: f64,
    /// The probability that it runs, if it fits into memory.
    chance: f64,
}

impl Judge<'_> {
    /// Finds the best of the open candidates.
    ///
    /// First, each candidate gets a quick bound of its worth. The candidates with the highest bounds are refined, until no bound is
    /// above the best refined worth. Refining all candidates gives the same result, with two exceptions. One is that the limit
    /// is reached. The other is a candidate that is best only because of an alternative mean, since the quick bound uses only
    /// the likeliest mean.
    pub(super) fn choose(&self, chunks: &[Chunk], mut is_open: impl FnMut(&Config) -> bool) -> Option<Choice> {
        let mut bounds = self.bounds(chunks);
        bounds.sort_by(|a, b| b.bound.total_cmp(&a.bound));
        let open = bounds.iter().filter(|bounded| is_open(bounded.config));
        let top: Vec<&Bounded<'_>> = open.take(self.most_refined).collect();
        let points = Points::of(self.space, &self.process.axes, top.iter().map(|bounded| bounded.config));
        let factors = self.process.factors(&points);
        let mut best: Option<(f64, Choice)> = None;
        for (at, bounded) in top.into_iter().enumerate() {
            if best.as_ref().is_some_and(|(worth, _)| bounded.bound <= *worth) {
                break;
            }
            let (worth, choice) = self.refined(bounded, self.process.belief(&factors, points.point(at)));
            if best.as_ref().is_none_or(|(highest, _)| worth > *highest) {
                best = Some((worth, choice));
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// Returns the logarithm of the expected improvement of a config that runs, averaged over its possible means.
    fn expected(&self, config: &Config, belief: Belief) -> f64 {
        let expected = |shift: f64| ln_expected_improvement(belief.mean + shift, belief.deviation, self.best);
        let mut others = Vec::new();
        (self.others)(config, &mut others);
        if others.is_empty() {
            return expected(0.0);
        }
        let own = 1.0 - others.iter().map(|(_, weight)| weight).sum::<f64>();
        others.push((0.0, own));
        others.retain(|(_, weight)| *weight > 0.0);
        others.iter_mut().for_each(|(shift, _)| *shift = expected(*shift));
        // The largest is factored out, because all of them may be too small for floats.
        let largest = others.iter().map(|(each, _)| *each).fold(f64::NEG_INFINITY, f64::max);
        if !largest.is_finite() {
            return largest;
        }
        largest + ln(others.iter().map(|(each, weight)| weight * exp(each - largest)).sum())
    }

    fn bounds<'c>(&self, chunks: &'c [Chunk]) -> Vec<Bounded<'c>> {
        let mut bounds = Vec::with_capacity(chunks.iter().map(|chunk| chunk.configs.len()).sum());
        for chunk in chunks {
            let factors = self.process.factors(&chunk.points);
            let mut sweep = self.process.sweep(&factors);
            let runs = self.feasibility.map(|model| (model, model.process.factors(&chunk.points)));
            let mut runs = runs.as_ref().map(|(model, factors)| (model, model.process.sweep(factors)));
            let mut last: Option<(&[u32], (f64, f64))> = None;
            for (at, config) in chunk.configs.iter().enumerate() {
                let point = chunk.points.point(at);
                let is_same = |other: &[u32]| self.reads.iter().all(|&axis| other[axis] == point[axis]);
                let (offset, variance) = match last {
                    Some((other, offset)) if is_same(other) => offset,
                    _ => (self.offset)(config),
                };
                last = Some((point, (offset, variance)));
                let belief = sweep.at(point);
                let widest = (belief.deviation * belief.deviation + variance).sqrt() * self.doubt;
                let chance = runs.as_mut().map_or(1.0, |(model, sweep)| model.chance_of(sweep.at(point).mean));
                let improvement = ln_expected_improvement(belief.mean + offset, widest, self.best);
                // NaN would sort first; `max` replaces it.
                let bound = (improvement + ln(chance) + risk((self.fits)(config))).max(f64::NEG_INFINITY);
                bounds.push(Bounded { config, bound, chance });
            }
        }
        bounds
    }

    /// Returns a candidate with its exact worth, from the belief of the process.
    fn refined(&self, bounded: &Bounded<'_>, belief: Belief) -> (f64, Choice) {
        let config = bounded.config;
        let mean = belief.mean + (self.offset)(config).0;
        let belief = Belief { mean, deviation: belief.deviation * self.doubt };
        let (improvement, fits) = (self.expected(config, belief), (self.fits)(config));
        let worth = (improvement + ln(bounded.chance) + risk(fits)).max(f64::NEG_INFINITY);
        let chance = bounded.chance * fits;
        let improvement = exp(improvement + ln(chance));
        (worth, Choice { config: config.clone(), belief, chance, fits, improvement })
    }
}

/// Returns the logarithm of the expected improvement over `best` for a normally distributed value (Jones, Schonlau and Welch,
/// "Efficient global optimization of expensive black-box functions", 1998). This form does not underflow (Ament et al., "Unexpected
/// improvements to expected improvement", 2023).
fn ln_expected_improvement(mean: f64, deviation: f64, best: f64) -> f64 {
    ln(deviation) + ln_unit_improvement((mean - best) / deviation)
}

/// ln(φ(z) + z Φ(z)).
fn ln_unit_improvement(z: f64) -> f64 {
    /// Below this value the sum suffers from cancellation, and its asymptotic series is more accurate.
    const CANCELS: f64 = -6.0;
    if z > CANCELS {
        let density = exp(-0.5 * z * z) / (2.0 * PI).sqrt();
        ln(density + z * normal_tail(-z))
    } else {
        -0.5 * z * z - 0.5 * ln(2.0 * PI) - 2.0 * ln(-z) + libm::log1p(-3.0 / (z * z))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Parameter, Walk};
    use crate::search::strategy::bayes::{
        candidates::chunks,
        kernel::{Factor, Shape},
        points::axes,
        process::Data,
    };
    use crate::search::tests::numbers;

    fn judge<'m>(space: &'m Space, process: &'m Process, best: f64) -> Judge<'m> {
        Judge {
            space,
            process,
            feasibility: None,
            best,
            doubt: 1.0,
            offset: &|_| (0.0, 0.0),
            reads: &[],
            fits: &|_| 1.0,
            others: &|_, _| (),
            most_refined: usize::MAX,
        }
    }

    #[test]
    fn the_choice_is_the_best_of_all_candidates_fully_refined() {
        let knobs = [("a", 9), ("b", 6), ("c", 4), ("d", 7)];
        let space = Space::new(knobs.map(|(name, last)| Parameter::range(name, 0, last, 1))).unwrap();
        let configs: Vec<Config> = Walk::new(&space).collect();
        let (axes, chunks) = (axes(&space), chunks(&space, configs.clone()));
        let level = |config: &Config, at: usize| f64::from(config.level(at).unwrap());
        for (known, doubt) in [(5, 1.0), (31, 1.5), (80, 1.0), (80, 2.0)] {
            let some: Vec<&Config> = configs.iter().step_by(17).take(known).collect();
            let values = some.iter().map(|config| (level(config, 0) - 6.0).sin() + 0.1 * level(config, 3)).collect();
            let points = Points::of(&space, &axes, some.iter().copied());
            let data = Data::exact(points.clone(), values);
            let shape = Shape { lengths: vec![-0.3; 4], variance: 1.0, noise: 0.01 };
            let process = Process::new(&data, &axes, &shape).unwrap();
            let ran: Vec<bool> = some.iter().map(|config| (level(config, 1) + level(config, 3)) % 3.0 < 2.0).collect();
            assert!(ran.contains(&false) && ran.contains(&true), "{known}");
            let feasibility = &Feasibility::of(points, &ran, &axes).unwrap();
            let (runs, offset) = (&feasibility.process, |config: &Config| (0.1 * level(config, 2), 0.0));
            let judge = judge(&space, &process, 1.2);
            let judge = Judge { feasibility: Some(feasibility), doubt, offset: &offset, reads: &[2], ..judge };
            let is_open = |config: &Config| !some.contains(&config);
            let worth = |config: &Config, point: &[u32], prepared: &[Vec<Factor>; 2]| {
                let belief = process.belief(&prepared[0], point);
                let chance = feasibility.chance_of(runs.belief(&prepared[1], point).mean);
                ln_expected_improvement(belief.mean + offset(config).0, doubt * belief.deviation, 1.2) + ln(chance)
            };
            let all = chunks.iter().flat_map(|chunk| {
                let prepared = [process.factors(&chunk.points), runs.factors(&chunk.points)];
                let each = chunk.configs.iter().enumerate();
                let worths = each.map(move |(at, config)| (worth(config, chunk.points.point(at), &prepared), config));
                worths.collect::<Vec<_>>()
            });
            let open = all.filter(|(_, config)| is_open(config));
            let (top, config) = open.max_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap();
            let choice = judge.choose(&chunks, is_open).unwrap();
            assert_eq!(&choice.config, config, "{known}");
            assert!((choice.improvement - exp(top)).abs() < 1e-12);
        }
    }

    #[test]
    fn worths_that_are_far_too_small_for_a_number_are_told_apart() {
        let space = numbers(0, 9);
        let configs: Vec<Config> = Walk::new(&space).collect();
        let axes = axes(&space);
        let data = Data::exact(Points::of(&space, &axes, &configs[..2]), vec![0.0, 1.0]);
        let shape = Shape { lengths: vec![0.0], variance: 1.0, noise: 1e-4 };
        let process = Process::new(&data, &axes, &shape).unwrap();
        let others: &Others<'_> = &|_, into| into.extend([(0.0, 0.25), (-2.0, 0.25)]);
        let judge = Judge { others, ..judge(&space, &process, 1.0) };
        for mean in [0.0, -20.0, -60.0, -200.0] {
            let worth = |mean: f64| judge.expected(&configs[5], Belief { mean, deviation: 1.0 });
            assert!(worth(mean) > worth(mean - 1.0) && worth(mean - 1.0).is_finite(), "{mean}");
            // Three quarters keep the mean itself, and the other means add next to nothing.
            let alone = ln_expected_improvement(mean, 1.0, 1.0);
            assert!(worth(mean) <= alone && worth(mean) > alone + ln(0.75) - 1e-9, "{mean}");
        }
    }

    #[test]
    fn who_doubts_the_process_goes_farther_from_the_best() {
        let space = numbers(0, 99);
        let configs: Vec<Config> = Walk::new(&space).collect();
        let (axes, chunks) = (axes(&space), chunks(&space, configs.clone()));
        let known: Vec<&Config> = configs.iter().step_by(10).take(4).collect();
        let data = Data::exact(Points::of(&space, &axes, known.iter().copied()), vec![0.0, 0.9, 1.0, 0.8]);
        let shape = Shape { lengths: vec![-0.7], variance: 0.1, noise: 1e-4 };
        let process = Process::new(&data, &axes, &shape).unwrap();
        let chosen = |doubt: f64| {
            let judge = Judge { doubt, ..judge(&space, &process, 1.0) };
            let choice = judge.choose(&chunks, |config| !known.contains(&config)).unwrap();
            choice.config.level(0).unwrap().abs_diff(20)
        };
        assert!(chosen(1.0) <= 10 && chosen(4.0) > 20, "{} {}", chosen(1.0), chosen(4.0));
    }

    #[test]
    fn expected_improvement_is_known_at_a_few_places_and_grows_without_a_jump() {
        // φ(0) = 0.39894; and far above the best, the improvement equals the difference.
        assert!((ln_expected_improvement(1.0, 2.0, 1.0) - (2.0 * 0.398_942_28_f64).ln()).abs() < 1e-6);
        assert!((ln_expected_improvement(9.0, 0.1, 1.0) - 8.0_f64.ln()).abs() < 1e-9);
        assert!(ln_expected_improvement(0.0, 2.0, 1.0) > ln_expected_improvement(0.0, 1.0, 1.0));
        let places: Vec<f64> = (0..4000).map(|step| ln_unit_improvement(-30.0 + f64::from(step) * 0.01)).collect();
        assert!(places.is_sorted_by(|a, b| a < b) && places.iter().all(|place| place.is_finite()));
    }
}
