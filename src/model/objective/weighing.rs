//! Turns several goals into one number: by stated weights, or by a new weighting for each proposal.

use serde::{Deserialize, Serialize};

use super::front;
use super::goal::{Goal, with_half_width};
use crate::model::outcome::Estimate;
use crate::model::space::permutation::{GAMMA, mix, share};

/// Goals with weights that sum to 1. The score is the product of metric ratios, each raised to its goal's weight.
///
/// Another unit or reference multiplies all scores by the same factor. The logarithm of the product is a weighted sum of
/// logarithms. Sources: Bridgman, "Dimensional analysis", 1922; Miller and Starr, "Executive decisions and operations research",
/// 1969.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Weighted {
    pub(super) goals: Vec<Goal>,
    pub(super) weights: Vec<f64>,
    /// The metrics whose score is 1. Default: 1 for every metric.
    pub(super) reference: Option<Vec<f64>>,
}

impl Weighted {
    /// Normalises weights, which must be larger than zero and may have any proportion.
    pub(super) fn new(weights: impl IntoIterator<Item = (Goal, f64)>) -> Self {
        let (goals, weights): (Vec<Goal>, Vec<f64>) = weights.into_iter().unzip();
        let sum: f64 = weights.iter().sum();
        Self { goals, weights: weights.into_iter().map(|weight| weight / sum).collect(), reference: None }
    }

    /// Returns how many times better than the reference some metrics are. Each metric must be larger than zero.
    ///
    /// The metrics depend on the same throughput, so their intervals are added as if fully correlated. The sum is never too narrow.
    pub(super) fn score(&self, metrics: &[Estimate]) -> Estimate {
        let mut logarithm = 0.0;
        let mut half: Option<f64> = None;
        for (at, ((goal, weight), metric)) in self.goals.iter().zip(&self.weights).zip(metrics).enumerate() {
            let reference = self.reference.as_ref().and_then(|numbers| numbers.get(at)).copied().unwrap_or(1.0);
            let ratio = libm::log(metric.value / reference);
            logarithm += weight * goal.score(ratio);
            if let Some(width) = metric.relative_half_width() {
                half = Some(half.unwrap_or(0.0) + weight * width);
            }
        }
        with_half_width(libm::exp(logarithm), half)
    }
}

/// The weight of the sum that is added to the maximum, the rho of ParEGO. If two configs are equal in the worst goal, the
/// config that is better in the other goals scores higher.
const SUM: f64 = 0.05;

/// Goals with the weights of one proposal, and with their scales.
///
/// It follows ParEGO (Knowles, IEEE Transactions on Evolutionary Computation 10, 2006): the augmented Chebyshev function over
/// normalised goals, with new weights each time. So any strategy that maximises one number covers the whole front, including
/// concave parts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scalarised {
    pub(super) goals: Vec<Goal>,
    pub(super) weights: Vec<f64>,
    axes: Vec<Axis>,
    /// The weighted mean of the ranges. The score is exp(-size * distance), so a difference of scores is about a relative gain.
    size: f64,
}

/// The normalisation of a goal: 0 at the best known number, 1 at the other end of the front.
#[derive(Debug, Clone, PartialEq)]
struct Axis {
    /// True if differences are ratios, because all known numbers are larger than zero.
    is_ratio: bool,
    best: f64,
    range: f64,
}

impl Scalarised {
    /// Makes the weighting after `trials` trials; `known` has the goals' numbers of the feasible trials.
    pub(super) fn new(goals: &[Goal], known: &[Vec<f64>], trials: usize, seed: u64) -> Self {
        let weights = weights(goals.len(), trials, seed);
        let scores: Vec<Vec<f64>> =
            known.iter().map(|row| goals.iter().zip(row).map(|(goal, number)| goal.score(*number)).collect()).collect();
        let on_front = front::non_dominated(&scores);
        let axes: Vec<Axis> = (0..goals.len())
            .map(|at| {
                let is_ratio = known.iter().all(|row| row[at] > 0.0);
                let place = |row: &[f64]| goals[at].score(transformed(is_ratio, row[at]));
                let ends =
                    |rows: &mut dyn Iterator<Item = f64>| Some(front::ends(rows)).filter(|(low, high)| low <= high);
                let on_front = ends(&mut on_front.iter().map(|&row| place(&known[row])));
                Axis::of(is_ratio, on_front, ends(&mut known.iter().map(|row| place(row))))
            })
            .collect();
        let size = weights.iter().zip(&axes).map(|(weight, axis)| weight * axis.size()).sum();
        Self { goals: goals.to_vec(), weights, axes, size }
    }

    /// Returns the score of some metrics. It is larger than zero, larger is better, and about 1 is the best possible.
    pub(super) fn score(&self, metrics: &[Estimate]) -> Estimate {
        let places = || self.goals.iter().zip(&self.axes).zip(metrics);
        let costs: Vec<f64> = places().map(|((goal, axis), metric)| axis.cost(goal, metric.value)).collect();
        let value = libm::exp(-self.size * self.chebyshev(&costs));
        let widths: Vec<Option<f64>> = places().map(|((_, axis), metric)| axis.half_width(metric)).collect();
        let half = widths.iter().any(Option::is_some).then(|| {
            let worse: Vec<f64> = costs.iter().zip(&widths).map(|(cost, width)| cost + width.unwrap_or(0.0)).collect();
            self.size * (self.chebyshev(&worse) - self.chebyshev(&costs))
        });
        with_half_width(value, half)
    }

    fn chebyshev(&self, costs: &[f64]) -> f64 {
        let weighted = || self.weights.iter().zip(costs).map(|(weight, cost)| weight * cost);
        weighted().fold(f64::NEG_INFINITY, f64::max) + SUM * weighted().sum::<f64>()
    }
}

impl Axis {
    fn of(is_ratio: bool, front: Option<(f64, f64)>, all: Option<(f64, f64)>) -> Self {
        /// The smallest relative range; a narrower range is replaced. A round number; nothing was measured for it.
        const NARROWEST: f64 = 0.01;
        let Some((_, best)) = all else { return Self { is_ratio, best: 0.0, range: 1.0 } };
        let narrowest = if is_ratio { NARROWEST } else { NARROWEST * best.abs().max(f64::MIN_POSITIVE) };
        let wide = |ends: Option<(f64, f64)>| ends.map(|(low, high)| high - low).filter(|range| *range > narrowest);
        Self { is_ratio, best, range: wide(front).or_else(|| wide(all)).unwrap_or(narrowest) }
    }

    /// Returns the range as a difference of logarithms, or as a share if the axis is not logarithmic.
    fn size(&self) -> f64 {
        if self.is_ratio { self.range } else { (self.range / self.best.abs().max(self.range)).min(1.0) }
    }

    /// Returns the distance from the best in units of the range; negative for a number better than the best.
    fn cost(&self, goal: &Goal, number: f64) -> f64 {
        /// Bounds the distance so that no logarithm or exponential overflows; larger differences do not matter.
        const FARTHEST: f64 = 20.0;
        let place = goal.score(transformed(self.is_ratio, number));
        ((self.best - place) / self.range).clamp(-FARTHEST, FARTHEST)
    }

    fn half_width(&self, metric: &Estimate) -> Option<f64> {
        let share = metric.relative_half_width().filter(|half| half.is_finite())?;
        Some(if self.is_ratio { share } else { share * metric.value.abs() } / self.range)
    }
}

fn transformed(is_ratio: bool, number: f64) -> f64 {
    if is_ratio { libm::log(number.max(f64::MIN_POSITIVE)) } else { number }
}

/// Returns non-negative weights that sum to 1, spread evenly over all such weights.
///
/// They follow a sequence that fills the range evenly (Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018).
/// Gaps between sorted uniform numbers are uniformly distributed over all such weights (Devroye, "Non-uniform random variate
/// generation", 1986, chapter V).
fn weights(goals: usize, trials: usize, seed: u64) -> Vec<f64> {
    let free = goals.saturating_sub(1);
    let root = root(free);
    let mut cuts: Vec<f64> = Vec::new();
    let mut step = 1.0;
    for at in 0..free {
        step /= root;
        let place = begin(seed, at as u64) + trials as f64 * step;
        cuts.push(place - place.floor());
    }
    cuts.sort_by(f64::total_cmp);
    cuts.push(1.0);
    let mut last = 0.0;
    cuts.into_iter().map(|cut| cut - std::mem::replace(&mut last, cut)).collect()
}

/// Finds the root above 1 of x^(n + 1) = x + 1, the base of the sequence: 1.618 for one free weight.
fn root(free: usize) -> f64 {
    (0..64).fold(2.0, |root, _| libm::pow(1.0 + root, 1.0 / (free as f64 + 1.0)))
}

/// Returns the start of the sequence, from 0 to 1: the seed, well mixed.
fn begin(seed: u64, dimension: u64) -> f64 {
    share(mix(seed.wrapping_add(dimension.wrapping_add(1).wrapping_mul(GAMMA))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::objective::Direction;

    fn goals() -> [Goal; 2] {
        ["throughput", "power"].map(|metric| Goal::known(metric).unwrap())
    }

    fn points(row: &[f64]) -> Vec<Estimate> {
        row.iter().copied().map(Estimate::point).collect()
    }

    fn rows(rows: &[[f64; 2]]) -> Vec<Vec<f64>> {
        rows.iter().map(|row| row.to_vec()).collect()
    }

    #[test]
    fn weights_add_up_to_one_and_reach_every_corner() {
        for count in 2..6 {
            let all: Vec<Vec<f64>> = (0..400).map(|trials| weights(count, trials, 7)).collect();
            for weights in &all {
                assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12 && weights.iter().all(|w| *w >= 0.0));
            }
            for at in 0..count {
                let mean = all.iter().map(|weights| weights[at]).sum::<f64>() / 400.0;
                assert!((mean - 1.0 / count as f64).abs() < 0.08, "{count} {at}: {mean}");
                assert!(all.iter().any(|weights| weights[at] > 0.5), "{count} {at}");
            }
        }
        assert_ne!(weights(2, 3, 0), weights(2, 3, 1));
        assert!(weights(2, 4, 0).iter().zip(weights(2, 5, 0)).any(|(a, b)| (a - b).abs() > 0.2), "far from the last");
    }

    #[test]
    fn what_is_dominated_scores_less_whatever_the_weights() {
        let known = rows(&[[100.0, 300.0], [80.0, 200.0], [50.0, 150.0], [40.0, 350.0]]);
        for trials in 0..50 {
            let question = Scalarised::new(&goals(), &known, trials, 0);
            let scores: Vec<f64> = known.iter().map(|row| question.score(&points(row)).value).collect();
            assert!(scores[3] < scores[1], "{:?}", question.weights);
            let best = scores.into_iter().fold(0.0, f64::max);
            assert!(best > 0.2 && best < 1.5, "{best}");
        }
    }

    #[test]
    fn each_end_is_asked_for_by_its_own_weight_and_the_middle_though_the_front_is_concave() {
        // In logarithms, the middle point lies below the line between the ends, so no weighted sum has its maximum there.
        let known = rows(&[[100.0, 400.0], [69.0, 200.0], [50.0, 100.0]]);
        let mut asked = [0; 3];
        for trials in 0..100 {
            let question = Scalarised::new(&goals(), &known, trials, 3);
            let score = |at: usize| question.score(&points(&known[at])).value;
            asked[(0..3).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap()] += 1;
        }
        assert!(asked.iter().all(|count| *count > 15), "{asked:?}");
    }

    #[test]
    fn nothing_known_equal_numbers_and_numbers_below_zero_give_finite_scores() {
        let goals = [Goal::new("gain", Direction::Maximize), Goal::known("loss").unwrap()];
        let tables: [&[[f64; 2]]; 4] =
            [&[], &[[1.0, 1.0]], &[[0.0, -1.0], [0.0, -1.0]], &[[-5.0, 1e300], [f64::MIN_POSITIVE, -1e300]]];
        for table in tables {
            let question = Scalarised::new(&goals, &rows(table), 1, 0);
            for row in [[1.0, 2.0], [-1.0, 0.0], [1e308, -1e308], [0.0, 5e-324]] {
                let score = question.score(&[Estimate::interval(row[0], -1e9, 1e9), Estimate::point(row[1])]);
                assert!(score.value.is_finite() && score.value >= 0.0, "{table:?} {row:?} {score:?}");
            }
        }
    }

    #[test]
    fn an_interval_of_a_goal_is_one_of_the_score() {
        let question = Scalarised::new(&goals(), &rows(&[[100.0, 300.0], [80.0, 200.0]]), 0, 0);
        let wide = question.score(&[Estimate::interval(90.0, 81.0, 99.0), Estimate::point(250.0)]);
        let point = question.score(&points(&[90.0, 250.0]));
        assert_eq!((wide.value, point.low), (point.value, None));
        assert!(wide.relative_half_width().unwrap() >= 0.0);
    }

    #[test]
    fn a_weighted_product_counts_ratios_and_intervals_by_their_weight() {
        let product = Weighted::new(goals().into_iter().zip([2.0, 1.0]));
        let score = |row: &[f64]| product.score(&points(row)).value;
        let is_near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(is_near(score(&[200.0, 400.0]) / score(&[100.0, 100.0]), 1.0), "four times the power");
        assert!(is_near(score(&[200.0, 100.0]) / score(&[100.0, 100.0]), 2.0_f64.powf(2.0 / 3.0)));
        let ratio = |unit: f64| score(&[10.0, 300.0 * unit]) / score(&[10.0, 200.0 * unit]);
        assert!(is_near(ratio(1.0), ratio(1000.0)), "another unit changes no ratio");
        let wide = product.score(&[Estimate::interval(100.0, 97.0, 103.0), Estimate::interval(50.0, 47.0, 53.0)]);
        assert!(is_near(wide.relative_half_width().unwrap(), 0.02 + 0.02));
        assert_eq!(product.score(&points(&[1.0, 1.0])), Estimate::point(1.0));
    }
}
