//! The one model of noise: how far a run of a config, started again, falls from what was measured.
//!
//! On the scale of logarithms a run's rate is the level of its config, plus the level of the machine in that round, plus
//! what is special to the run, plus the error within the run:
//!
//! ```text
//! y = config + round + run + error        run ~ N(0, t²), error ~ N(0, s²), s known from the run's own steps
//! ```
//!
//! `t²` is estimated from everything that was measured more than once ([`spread`]), and shrunk towards a [`NoisePrior`]. Whatever
//! compares configs asks a [`RunNoise`]: ties, the claim to be faster, which configs lead, pruning, the intervals in
//! reports.

mod prior;
mod spread;

use crate::probe::stats;

pub use prior::NoisePrior;

/// One run of a config, on the scale on which runs are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Run {
    /// What was measured; a logarithm, where noise is a share.
    pub(crate) value: f64,
    /// The standard error within the run; zero where it is not known.
    pub(crate) error: f64,
    /// The same against the other runs of its round: less, where they were measured in turn.
    pub(crate) beside: f64,
    /// The round of comparisons that it belongs to: runs of a round were measured within a short time.
    pub(crate) round: Option<u32>,
}

impl Run {
    /// A run that was measured on its own.
    pub(crate) fn alone(value: f64, error: f64, round: Option<u32>) -> Self {
        Self { value, error, beside: error, round }
    }

    /// The error against other runs of the round, if that within the run is this many times as large: it is never the
    /// larger one.
    fn beside_if(&self, factor: f64) -> f64 {
        self.beside.min(self.error * factor)
    }
}

/// A variance between runs, as it was estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Variance {
    value: f64,
    /// The factor for the variance of what is computed from the runs, where they differ more than `value` explains.
    factor: f64,
    /// Degrees of freedom.
    degrees: usize,
}

/// What repeated runs, and the prior, say about the noise between runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RunNoise {
    /// Between runs of a round.
    within_rounds: Option<Variance>,
    /// Between runs at any time: what changes from round to round is part of it.
    overall: Option<Variance>,
    /// The factor by which the variances within runs are too large, at most one.
    overstated: f64,
    /// How many runs beyond the first of each config there are.
    repetitions: usize,
}

/// A number with its standard error and its degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Uncertain {
    /// The number.
    pub(crate) value: f64,
    /// Its standard error.
    pub(crate) error: f64,
    degrees: usize,
}

impl Uncertain {
    /// Returns half the width of the interval that excludes the probability `tail` at each end.
    pub(crate) fn half_width(&self, tail: f64) -> f64 {
        if self.error > 0.0 { stats::student_quantile(self.degrees, tail) * self.error } else { 0.0 }
    }
}

impl RunNoise {
    /// Estimates the noise from the runs of all configs, each config's together.
    pub(crate) fn of<'r>(configs: impl IntoIterator<Item = &'r [Run]>, prior: NoisePrior) -> Self {
        let configs: Vec<&[Run]> = configs.into_iter().collect();
        let overstated = spread::overstated(&configs);
        let factor = overstated.sqrt();
        let scaled = |run: &Run| Run { error: run.error * factor, beside: run.beside_if(factor), ..*run };
        let owned: Vec<Vec<Run>> = configs.iter().map(|runs| runs.iter().map(scaled).collect()).collect();
        let configs: Vec<&[Run]> = owned.iter().map(Vec::as_slice).collect();
        let overall = spread::between_runs(&configs, prior);
        let within_rounds = spread::within_rounds(&configs, prior);
        let repetitions = configs.iter().map(|runs| runs.len().saturating_sub(1)).sum();
        Self { within_rounds, overall, overstated, repetitions }
    }

    /// Returns the level of a config; `None` where there is no run, or nothing tells how far runs differ.
    pub(crate) fn level(&self, runs: &[Run]) -> Option<Uncertain> {
        let between = self.overall?;
        let weights = runs.iter().map(|run| (run.value, (self.within(run) + between.value).recip()));
        weighted(weights, between)
    }

    /// Returns where another run of a config falls: its level, with the error of the level and that of the new run.
    ///
    /// How far apart runs of this config are its own runs tell, and those of others as far as configs are alike in that.
    pub(crate) fn again(&self, runs: &[Run]) -> Option<Uncertain> {
        let level = self.level(runs)?;
        let between = self.overall?;
        let own = runs.len().saturating_sub(1).min(between.degrees);
        let degrees = own + alike(between.degrees - own);
        Some(Uncertain { error: (level.error * level.error + between.factor * between.value).sqrt(), degrees, ..level })
    }

    /// Returns how much higher the level of `a` is than that of `b`.
    ///
    /// Where both were measured in the same rounds, differences within rounds are taken, which a drift of the machine does
    /// not touch.
    pub(crate) fn difference(&self, a: &[Run], b: &[Run]) -> Option<Uncertain> {
        self.paired(a, b).or_else(|| {
            let (a, b) = (self.level(a)?, self.level(b)?);
            Some(Uncertain { value: a.value - b.value, error: a.error.hypot(b.error), degrees: a.degrees })
        })
    }

    /// The variance within a run.
    fn within(&self, run: &Run) -> f64 {
        self.overstated * run.error * run.error
    }

    fn paired(&self, a: &[Run], b: &[Run]) -> Option<Uncertain> {
        /// The fewest degrees of freedom: with one, an interval is three times as wide as with two, and useless.
        const FEWEST_DEGREES: usize = 2;
        let between = self.within_rounds.filter(|between| between.degrees >= FEWEST_DEGREES)?;
        let in_round = |run: &&Run| a.iter().find(|other| other.round.is_some() && other.round == run.round);
        let pairs = b.iter().filter_map(|run| Some((in_round(&run)?, run)));
        let differences = pairs.map(|(a, b)| {
            let beside = |run: &Run| run.beside_if(self.overstated.sqrt()).powi(2);
            let variance = beside(a) + beside(b) + 2.0 * between.value;
            (a.value - b.value, variance.recip())
        });
        weighted(differences, between)
    }

    /// Returns the standard deviation between runs at any time; `None` where nothing tells it.
    pub(crate) fn deviation(&self) -> Option<f64> {
        self.overall.map(|between| (between.factor * between.value).sqrt())
    }

    /// The number of runs beyond the first of each config.
    pub(crate) fn repetitions(&self) -> usize {
        self.repetitions
    }
}

/// How many repetitions of a config those of other configs are worth to it.
///
/// The spread of a config is that of all times a factor of its own, whose square is taken to have an inverse chi-square distribution
/// with so many degrees (Smyth, "Linear models and empirical Bayes methods", 2004): by section 6.2 there, twenty configs of a training
/// script, each run five times, showed 11, and twenty of the demo step 4 (`benches/results/truth.md`). That of all is known with
/// `others` degrees itself; the two doubts add up.
fn alike(others: usize) -> usize {
    const BETWEEN_CONFIGS: usize = 11;
    (others * BETWEEN_CONFIGS).div_ceil((others + BETWEEN_CONFIGS).max(1))
}

/// Returns the mean of values with these weights; `None` without any. Equal values without any error stay exact.
fn weighted(values: impl Iterator<Item = (f64, f64)>, between: Variance) -> Option<Uncertain> {
    let values: Vec<(f64, f64)> = values.collect();
    if values.iter().any(|(_, weight)| weight.is_infinite()) {
        let exact: Vec<f64> = values.iter().filter(|(_, w)| w.is_infinite()).map(|(value, _)| *value).collect();
        return Some(Uncertain { value: stats::mean(&exact)?, error: 0.0, degrees: between.degrees });
    }
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let sum: f64 = values.iter().map(|(value, weight)| value * weight).sum();
    let error = (between.factor / total).sqrt();
    (total > 0.0).then(|| Uncertain { value: sum / total, error, degrees: between.degrees })
}

#[cfg(test)]
mod tests;
