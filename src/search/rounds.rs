//! Compares configs by their differences within rounds.
//!
//! In a round the baseline, the incumbent and a few candidates are measured in short slices, seconds apart. A slow machine slows
//! all of them alike, so it cancels in the difference of two logarithms of rates:
//!
//! ```text
//! ln rate(a) - ln rate(b) = config + process + noise      noise ~ N(0, s²) per round, process ~ N(0, p²) per process
//! ```
//!
//! A training advances by its mean rate over time. So a difference is the logarithm of the ratio of mean rates (delta method; of a
//! ratio of means: Cochran, "Sampling Techniques", 1977, chapter 6).
//!
//! The interval is Student's over rounds. Two rounds alone say little about noise. So the variance borrows a few degrees of freedom
//! from all other comparisons (Smyth, "Linear models and empirical Bayes methods", 2004). The luck of a process does not average
//! out over its rounds, so each process adds its own error.

use std::collections::BTreeSet;

use crate::model::{Objective, Trial};
use crate::probe::stats;

/// How far two processes of one config are expected to be apart, as a share: 1 to 3% on quiet machines.
pub(crate) const PROCESSES_APART: f64 = 0.02;

/// The degrees of freedom that a comparison borrows from all other comparisons.
const BORROWED: usize = 3;

/// The noise of a comparison before anything is known, as a share; it counts as one degree of freedom.
const UNKNOWN_NOISE: f64 = 0.05;

/// The probability of one false claim over a whole search.
const FALSE_CLAIM: f64 = 0.05;

/// The rounds after which a config may first be claimed to be faster.
const FIRST_LOOK: usize = 3;

/// The fewest rounds that prove a config faster if it won all of them, even if its interval is too wide for a claim. Six wins by
/// chance happen once in 64 times. Each doubling of the compared configs needs one more.
const WON_ALL: usize = 6;

/// The lead, as a share, at which a config seems better although its interval is wide. The config must have it in each of at least
/// `FIRST_LOOK` rounds. In one of twelve searches on an overloaded machine, one of two equal configs led by 14% in three rounds.
pub(crate) const CLEAR: f64 = 0.25;

/// The rounds that suffice if even the slowest slice of the config leads the fastest slice of the other config by
/// [`CLEAR`].
const FEW_ROUNDS: usize = 2;

/// How many times faster one of two runs may be only because the load from other programs changed. A round number: a
/// program that takes half of the cores may come or go between the runs.
pub(crate) const LOAD: f64 = 2.0;

/// The result of a config in one round, on the scale on which configs are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Run {
    /// The metric of the round; a logarithm where noise is a share.
    pub(crate) value: f64,
    /// The lowest and the highest slice, if there are several.
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) round: u32,
    /// The process that was measured; `None` if it had measured other configs before.
    pub(crate) process: Option<u32>,
    /// The variance of a difference between two such runs, as the slices of this run show it.
    pub(crate) variance: Option<f64>,
    /// The error of the time that the ends of epochs take, as a share of the rate. It does not average out over rounds.
    pub(crate) of_epochs: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Uncertain {
    pub(crate) value: f64,
    /// The standard error over rounds.
    error: f64,
    degrees: usize,
    /// The standard error that more rounds do not reduce: from the few processes that were seen, and from the ends of
    /// epochs.
    of_processes: f64,
}

impl Uncertain {
    /// Returns half the width of the interval that excludes the probability `tail` at each end.
    pub(crate) fn half_width(&self, tail: f64) -> f64 {
        let of_rounds = if self.error > 0.0 { stats::student_quantile(self.degrees, tail) * self.error } else { 0.0 };
        of_rounds.hypot(stats::normal_quantile(tail) * self.of_processes)
    }

    pub(crate) fn error(&self) -> f64 {
        self.error.hypot(self.of_processes)
    }
}

/// The noise of a search, as all of its rounds show it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Noise {
    /// The variance of a difference within a round.
    variance: f64,
    degrees: usize,
    /// The standard deviation between processes of one config.
    processes_apart: f64,
}

impl Noise {
    /// Estimates the noise from the runs of all configs. Only times and rates have noise: a loss or a peak of memory has none.
    pub(crate) fn of<'r>(configs: impl IntoIterator<Item = &'r [Run]>, has_noise: bool) -> Self {
        if !has_noise {
            return Self { variance: 0.0, degrees: 0, processes_apart: 0.0 };
        }
        let configs: Vec<&[Run]> = configs.into_iter().collect();
        let of_slices: Vec<f64> = configs.iter().flat_map(|runs| runs.iter().filter_map(|run| run.variance)).collect();
        let most = configs.iter().copied().max_by_key(|runs| runs.len()).unwrap_or_default();
        let others = configs.iter().filter(|runs| !std::ptr::eq(**runs, most));
        let (mut squares, mut degrees) = (UNKNOWN_NOISE.powi(2) + of_slices.iter().sum::<f64>(), 1 + of_slices.len());
        for runs in others {
            let differences = differences(&paired(runs, most).collect::<Vec<_>>(), true);
            squares += sum_of_squares(&differences);
            degrees += differences.len().saturating_sub(1);
        }
        Self { variance: squares / degrees as f64, degrees, processes_apart: PROCESSES_APART }
    }

    /// Returns how much higher `a` is than `b`, from the rounds that have both; `None` without such rounds.
    pub(crate) fn difference(&self, a: &[Run], b: &[Run]) -> Option<Uncertain> {
        let pairs: Vec<(&Run, &Run)> = paired(a, b).collect();
        let differences = differences(&pairs, self.processes_apart > 0.0);
        let value = stats::mean(&differences)?;
        let borrowed = self.degrees.min(BORROWED);
        let degrees = differences.len() - 1 + borrowed;
        let squares = sum_of_squares(&differences) + borrowed as f64 * self.variance;
        let error = if degrees == 0 { 0.0 } else { (squares / degrees as f64 / differences.len() as f64).sqrt() };
        let inverse_count =
            |runs: &mut dyn Iterator<Item = Option<u32>>| (runs.collect::<BTreeSet<_>>().len() as f64).recip();
        let of_a = inverse_count(&mut pairs.iter().map(|(a, _)| a.process));
        let of_b = inverse_count(&mut pairs.iter().map(|(_, b)| b.process));
        let of_epochs = |runs: &[Run]| runs.iter().map(|run| run.of_epochs).fold(0.0, f64::max);
        // The end of an epoch takes about as long for both configs, so an error in its time shifts both rates alike.
        let of_processes = (self.processes_apart * (of_a + of_b).sqrt()).hypot(of_epochs(a) - of_epochs(b));
        Some(Uncertain { value, error, degrees, of_processes })
    }

    /// Returns true if `a` is proven to be higher than `b`; `compared` configs are compared with `b`.
    ///
    /// If the metric has noise, there are three proofs. Each needs [`FIRST_LOOK`] rounds and two processes of both
    /// configs.
    ///
    /// - The difference exceeds its interval. Every round is a look that may err (alpha spending): the k-th look has a share of the
    ///   probability of a false claim, and all shares add up to it. The probability is divided by the number of configs
    ///   (Bonferroni), because the best of several looks better than it is.
    /// - `a` won all of its rounds, which are six or more ([`WON_ALL`]), and the difference exceeds what processes
    ///   differ by.
    /// - The slowest slice of `a` leads the fastest slice of `b` by more than load from other programs explains
    ///   ([`is_beyond_load`]), whatever the interval.
    pub(crate) fn is_higher(&self, a: &[Run], b: &[Run], compared: usize) -> bool {
        let Some(difference) = self.difference(a, b) else { return false };
        let rounds = paired(a, b).count();
        if self.processes_apart == 0.0 {
            return difference.value > difference.half_width(FALSE_CLAIM / 2.0);
        }
        if rounds < FIRST_LOOK || processes(a) < 2 || processes(b) < 2 {
            return false;
        }
        let share = FIRST_LOOK as f64 / rounds as f64 / (rounds + 1) as f64;
        let tail = FALSE_CLAIM / 2.0 * share / compared.max(1) as f64;
        let is_beyond_noise = difference.value > difference.half_width(tail);
        let wins = WON_ALL + usize::try_from(compared.max(1).ilog2()).unwrap_or(0);
        let is_beyond_processes = difference.value > stats::normal_quantile(tail) * difference.of_processes;
        is_beyond_noise || is_beyond_load(a, b) || rounds >= wins && is_higher_always(a, b) && is_beyond_processes
    }

    /// Returns true if `a` was higher than `b` in every round, and either clearly so or beyond the interval of the
    /// difference. A proof needs more: enough rounds and processes, and a smaller share of errors for each look.
    pub(crate) fn seems_higher(&self, a: &[Run], b: &[Run], compared: usize) -> bool {
        let tail = FALSE_CLAIM / 2.0 / compared.max(1) as f64;
        let is_beyond_noise = |difference: Uncertain| difference.value > difference.half_width(tail);
        let lowest = lowest_difference(a, b).unwrap_or(0.0);
        let rounds = paired(a, b).count();
        let of_slices = |(a, b): (&Run, &Run)| Some(a.range?.0 - b.range?.1);
        let is_clear_in_slices = || paired(a, b).all(|pair| of_slices(pair).is_some_and(|lead| lead > CLEAR.ln_1p()));
        let is_seen_often = rounds >= FEW_ROUNDS;
        let is_clear = rounds >= FIRST_LOOK && lowest > CLEAR.ln_1p() || is_seen_often && is_clear_in_slices();
        // A single round tells little about noise, so its slices must agree as well. Without slices, the lead must
        // exceed what load from other programs explains.
        let has_slices = || paired(a, b).any(|(a, b)| a.range.is_some() || b.range.is_some());
        let is_sound = is_seen_often || is_clear_in_slices() || lowest > LOAD.ln() && !has_slices();
        let is_likely = is_sound && self.difference(a, b).is_some_and(is_beyond_noise);
        lowest > 0.0 && (is_clear || is_likely)
    }
}

/// Returns true if `a` was higher than `b` in each round that has both, with at least one such round.
pub(crate) fn is_higher_always(a: &[Run], b: &[Run]) -> bool {
    lowest_difference(a, b).is_some_and(|lowest| lowest > 0.0)
}

/// Returns true if the slowest slice of `a` in any round leads the fastest slice of `b` in any round by more than load
/// from other programs explains ([`LOAD`]). On a busy machine, the baseline alone may vary sixfold from round to round,
/// so that its interval is too wide for any proof.
fn is_beyond_load(a: &[Run], b: &[Run]) -> bool {
    let slowest = paired(a, b).map(|(a, _)| a.range.map_or(a.value, |range| range.0)).min_by(f64::total_cmp);
    let fastest = paired(a, b).map(|(_, b)| b.range.map_or(b.value, |range| range.1)).max_by(f64::total_cmp);
    slowest.zip(fastest).is_some_and(|(slowest, fastest)| slowest - fastest > LOAD.ln())
}

pub(crate) fn lowest_difference(a: &[Run], b: &[Run]) -> Option<f64> {
    paired(a, b).map(|(a, b)| a.value - b.value).min_by(f64::total_cmp)
}

/// Returns the runs of both configs in each round that has both.
pub(crate) fn paired<'r>(a: &'r [Run], b: &'r [Run]) -> impl Iterator<Item = (&'r Run, &'r Run)> {
    a.iter().filter_map(|run| Some((run, b.iter().find(|other| other.round == run.round)?)))
}

/// Returns the number of processes in which only this config was measured.
pub(crate) fn processes(runs: &[Run]) -> usize {
    runs.iter().filter_map(|run| run.process).collect::<BTreeSet<u32>>().len()
}

/// Returns the differences of the rounds. For rates, their mean is the logarithm of the ratio of mean rates.
fn differences(pairs: &[(&Run, &Run)], is_rate: bool) -> Vec<f64> {
    if !is_rate {
        return pairs.iter().map(|(a, b)| a.value - b.value).collect();
    }
    // The rates are relative to the highest, so that no exponential is too large.
    let top = pairs.iter().flat_map(|(a, b)| [a.value, b.value]).fold(f64::NEG_INFINITY, f64::max);
    // The influence of each round on the logarithm of the mean rate. The mean of all influences is that logarithm.
    let influences = |of: &dyn Fn(&(&Run, &Run)) -> f64| -> Vec<f64> {
        let rates: Vec<f64> = pairs.iter().map(|pair| (of(pair) - top).exp()).collect();
        let mean = stats::mean(&rates).unwrap_or(1.0);
        rates.iter().map(|rate| mean.ln() + rate / mean - 1.0).collect()
    };
    let (a, b) = (influences(&|(a, _)| a.value), influences(&|(_, b)| b.value));
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn sum_of_squares(values: &[f64]) -> f64 {
    let middle = stats::mean(values).unwrap_or(0.0);
    values.iter().map(|value| (value - middle).powi(2)).sum()
}

/// The scale on which metrics are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Logarithms: noise is a share of a speed.
    Ratio,
    /// The metric itself, for a metric that may be zero or negative and so has no logarithm.
    Difference,
}

/// The error of the measured time of an epoch end, as a share: a probe sees only a few ends. A round number.
const EPOCHS_KNOWN: f64 = 0.2;

impl Scale {
    pub(crate) fn of(mut values: impl Iterator<Item = f64>) -> Self {
        if values.all(|value| value > 0.0) { Self::Ratio } else { Self::Difference }
    }

    pub(crate) fn is_ratio(self) -> bool {
        self == Self::Ratio
    }

    /// Returns a metric on this scale, where metrics are compared by their difference.
    pub(crate) fn point(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    /// Returns the divisor that turns a difference of points into a share.
    pub(crate) fn loss_scale(self, point: f64) -> f64 {
        match self {
            Self::Ratio => 1.0,
            Self::Difference => point.abs().max(f64::MIN_POSITIVE),
        }
    }

    /// The inverse of [`point`](Self::point), kept finite.
    pub(crate) fn value(self, point: f64) -> f64 {
        let value = match self {
            Self::Ratio => point.exp(),
            Self::Difference => point,
        };
        value.clamp(f64::MIN, f64::MAX)
    }

    /// Returns the result of a trial in its round; `None` for a trial outside of rounds.
    pub(crate) fn run(self, trial: &Trial, objective: &Objective) -> Option<Run> {
        let measurement = trial.outcome.measurement()?;
        let round = measurement.round.as_ref()?;
        let value = objective.score(1.0) * self.point(objective.estimate(measurement)?.value);
        // The mean of two slices has half the variance of a slice. A difference of two such means has twice that variance.
        let variance = match round.slices.as_slice() {
            [first, second] if *first > 0.0 && *second > 0.0 => Some((first / second).ln().powi(2) / 2.0),
            _ => None,
        };
        let of_slices = || round.slices.iter().map(|slice| objective.score(1.0) * self.point(*slice));
        let is_several = round.slices.len() > 1 && self.is_ratio();
        let range = is_several
            .then(|| (of_slices().fold(f64::INFINITY, f64::min), of_slices().fold(f64::NEG_INFINITY, f64::max)));
        // A process that had other settings before does not count as the config's own.
        let process = Some(round.process).filter(|_| !measurement.is_live);
        let of_epochs = EPOCHS_KNOWN * measurement.timing.epoch_factor.map_or(0.0, |factor| (1.0 - factor).abs());
        Some(Run { value, range, round: round.number, process, variance, of_epochs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::stats::Random;

    fn runs(values: &[f64], processes: u32) -> Vec<Run> {
        let run = |(round, &value)| Run { value, round, process: Some(round % processes), ..Run::default() };
        (1..).zip(values).map(run).collect()
    }

    #[test]
    fn one_process_proves_nothing_and_neither_do_two_rounds() {
        for (rounds, processes) in [(5, 1), (2, 2)] {
            let (slow, fast) = (runs(&vec![0.0; rounds], processes), runs(&vec![0.5; rounds], processes));
            assert!(!Noise::of([slow.as_slice(), &fast], true).is_higher(&fast, &slow, 1));
        }
    }

    #[test]
    fn a_config_that_wins_every_round_is_higher_however_wide_its_interval() {
        let slow = runs(&[0.0; 8], 2);
        let fast = runs(&[0.1, 1.4, 0.15, 1.2, 0.3, 0.1, 1.5, 0.2], 2);
        let noise = Noise::of([slow.as_slice(), &fast], true);
        assert!(noise.is_higher(&fast, &slow, 4));
        assert_eq!(lowest_difference(&fast, &slow), Some(0.1));
        let once_lost = runs(&[0.1, 1.4, 0.15, 1.2, -0.3, 0.1, 1.5, 0.2], 2);
        assert!(!noise.is_higher(&once_lost, &slow, 4));
    }

    /// A real job: its baseline shared the cores with other programs, which went away during the search.
    #[test]
    fn a_lead_that_no_load_explains_is_a_proof_whatever_the_interval() {
        let rates = |values: [f64; 3]| runs(&values.map(f64::ln), 2);
        let (slow, fast) = (rates([246.2, 1324.6, 1682.0]), rates([4008.4, 4066.7, 3652.8]));
        let noise = Noise::of([slow.as_slice(), &fast], true);
        let difference = noise.difference(&fast, &slow).unwrap();
        assert!(
            difference.value < difference.half_width(FALSE_CLAIM / 2.0 / 4.0 / 5.0),
            "the first of all looks, five configs"
        );
        assert!(noise.is_higher(&fast, &slow, 5));
        assert!(!noise.is_higher(&rates([4008.4, 4066.7, 3300.0]), &slow, 5), "less than twice as fast");
        assert!(!noise.is_higher(&fast[..2], &slow, 5), "two rounds prove nothing");
    }

    #[test]
    fn two_rounds_are_clear_if_all_slices_are() {
        let with_slices = |values: &[f64], apart: f64| -> Vec<Run> {
            let of = |run: Run| Run { range: Some((run.value - apart, run.value + apart)), ..run };
            runs(values, 2).into_iter().map(of).collect()
        };
        let (slow, fast) = (with_slices(&[0.0, -1.0], 0.3), with_slices(&[1.0, 0.0], 0.3));
        let noise = Noise { variance: 1.0, degrees: 9, processes_apart: PROCESSES_APART };
        assert!(noise.seems_higher(&fast, &slow, 8));
        let overlapping = with_slices(&[1.0, 0.0], 0.6);
        assert!(!noise.seems_higher(&overlapping, &slow, 8) && !noise.seems_higher(&fast[..1], &slow, 8));
        let quiet = Noise { variance: 1e-4, ..noise };
        let single = |of: &[Run]| quiet.seems_higher(of, &slow[..1], 8);
        assert!(single(&fast[..1]) && !single(&overlapping[..1]));
        let without_slices = |lead: f64| quiet.seems_higher(&runs(&[lead], 2), &runs(&[0.0], 2), 8);
        assert!(without_slices(1.0) && !without_slices(0.6));
    }

    #[test]
    fn numbers_without_noise_are_exact() {
        let (a, b) = (runs(&[3.0], 1), runs(&[2.0], 1));
        let noise = Noise::of([a.as_slice(), &b], false);
        assert_eq!(noise.difference(&a, &b).unwrap().half_width(0.025), 0.0);
        assert!(noise.is_higher(&a, &b, 1) && !noise.is_higher(&b, &a, 1));
    }

    /// Eight configs equal to the baseline, compared after each of 24 rounds. A process restarts every four rounds.
    #[test]
    fn equal_configs_are_seldom_claimed_to_be_faster() {
        const SEARCHES: usize = 400;
        let mut random = Random(5);
        for (noise_of_round, apart) in [(0.01, 0.01), (0.05, 0.02), (0.2, 0.02)] {
            let mut claimed = 0;
            for _ in 0..SEARCHES {
                let mut configs: Vec<Vec<Run>> = vec![Vec::new(); 9];
                let mut levels = [0.0; 9];
                let mut is_claimed = false;
                for round in 0..24 {
                    if round % 4 == 0 {
                        levels = std::array::from_fn(|_| apart * random.normal());
                    }
                    for (runs, level) in configs.iter_mut().zip(levels) {
                        let value = level + noise_of_round / std::f64::consts::SQRT_2 * random.normal();
                        runs.push(Run { value, round, process: Some(round / 4), ..Run::default() });
                    }
                    let noise = Noise::of(configs.iter().map(Vec::as_slice), true);
                    is_claimed |= configs[1..].iter().any(|runs| noise.is_higher(runs, &configs[0], 8));
                }
                claimed += usize::from(is_claimed);
            }
            assert!(claimed * 20 <= SEARCHES, "{noise_of_round}, {apart}: {claimed} of {SEARCHES}");
        }
    }
}
