//! Computes the mean rate of a steady series, with an interval that is valid for steps that depend on each other.
//!
//! It uses batch means. The series is cut into batches that are so long that their means hardly depend on each other,
//! and the interval is Student's over those means. With ten to thirty batches, next to nothing is lost against a larger
//! number (Schmeiser, "Batch size effects in the analysis of simulation output", Operations Research 30(3), 1982). So
//! there are about twenty, and fewer where neighbours are still correlated. Remaining correlation and skewness widen
//! the interval, as in ASAP and Skart (Steiger and Wilson, "An improved batch means procedure for simulation output
//! analysis", Management Science 48(12), 2002; Tafazzoli and Wilson, "Skart", IIE Transactions 43(2), 2011).
//!
//!
//! A loader with several workers delivers in bursts. If the series repeats itself, a batch is a multiple of the period
//! long, so that each batch has the same number of bursts.

use super::period::period;
use super::student_quantile;

/// Work and the time that it took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// How much was done.
    pub amount: f64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { amount: self.amount + other.amount, seconds: self.seconds + other.seconds }
    }
}

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Self>>(works: I) -> Self {
        works.fold(Self::default(), std::ops::Add::add)
    }
}

/// A mean rate with its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanRate {
    /// All work divided by all time.
    pub rate: f64,
    /// The standard error of the time per unit of work, as a share of it; includes remaining correlation.
    error: f64,
    /// Skewness of the batches' times.
    skewness: f64,
    batches: usize,
    /// The factor by which remaining correlation enlarges the variance of the mean.
    inflation: f64,
}

/// About how many batches there are, and the fewest where a series is long enough.
const BATCHES: usize = 20;
const FEWEST_BATCHES: usize = 8;

impl MeanRate {
    /// Computes the mean over a steady series; `None` where no work was done in it.
    pub fn of(series: &[Work]) -> Option<Self> {
        let fewest = FEWEST_BATCHES.min(series.len()).max(1);
        let shortest = series.len().div_ceil(BATCHES).max(1);
        let unit = works_period(series).filter(|period| series.len() / shortest.next_multiple_of(*period) >= fewest);
        let unit = unit.unwrap_or(1);
        let mut size = shortest.next_multiple_of(unit);
        loop {
            let batched = Batched::of(series, size)?;
            let longer = (size + 1).max(size * 5 / 4).next_multiple_of(unit);
            if batched.is_uncorrelated() || series.len() / longer < fewest {
                return Some(batched.mean_rate());
            }
            size = longer;
        }
    }

    /// Returns the ends of the interval that contains the true mean with this confidence, such as 0.95; `None` where a
    /// single batch says nothing about spread.
    pub fn interval(&self, confidence: f64) -> Option<(f64, f64)> {
        let tail = (1.0 - confidence) / 2.0;
        Some((self.rate / (1.0 + self.reach(tail, 1.0)?), self.upper_end(tail)?))
    }

    /// Returns the equivalent number of independent batches.
    pub fn independent_batches(&self) -> f64 {
        count(self.batches) / self.inflation
    }

    /// Returns a bound that the true mean exceeds with a probability of at most `tail`.
    pub fn upper_end(&self, tail: f64) -> Option<f64> {
        /// The smallest share of the mean time that the bound may reach, however wide the interval, since no time is
        /// negative. A round number.
        const SHORTEST: f64 = 0.5;
        Some(self.rate / (1.0 - self.reach(tail, -1.0)?).max(SHORTEST))
    }

    /// Returns how far the true time may be from the mean, as a share, towards longer (1) or shorter (-1) times.
    ///
    /// The mean of few numbers with a long tail is mostly too low. The end towards the tail is moved outwards as
    /// Johnson derives it ("Modified t tests and confidence intervals for asymmetrical populations", JASA 73(363),
    /// 1978). The other end stays, which can only make the interval wider.
    fn reach(&self, tail: f64, towards: f64) -> Option<f64> {
        if self.batches < 2 {
            return None;
        }
        // Correlated batches say as much about the spread as a smaller number of independent ones.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no more than there are batches")]
        let degrees = (self.independent_batches().round() as usize).max(2) - 1;
        let quantile = student_quantile(degrees, tail);
        let skewness = (self.skewness * towards).max(0.0);
        Some(
            self.error * (quantile + skewness * (1.0 + 2.0 * quantile * quantile) / (6.0 * count(self.batches).sqrt())),
        )
    }
}

/// The batches of a series: how much more or less time each took than the mean rate predicts.
struct Batched {
    rate: f64,
    mean_seconds: f64,
    residuals: Vec<f64>,
}

impl Batched {
    /// Cuts a series into batches of this size; the remainder is dropped at the beginning, where warm-up may still
    /// show.
    fn of(series: &[Work], size: usize) -> Option<Self> {
        let series = &series[series.len() % size..];
        let total: Work = series.iter().copied().sum();
        if !(total.amount > 0.0 && total.seconds > 0.0) {
            return None;
        }
        let rate = total.amount / total.seconds;
        let batches: Vec<Work> = series.chunks(size).map(|batch| batch.iter().copied().sum()).collect();
        let residuals = batches.iter().map(|batch| batch.seconds - batch.amount / rate).collect();
        Some(Self { rate, mean_seconds: total.seconds / count(batches.len()), residuals })
    }

    fn power(&self, exponent: i32) -> f64 {
        self.residuals.iter().map(|residual| residual.powi(exponent)).sum()
    }

    /// Returns the correlation of neighbours; the mean of the residuals is zero by construction.
    fn correlation(&self) -> f64 {
        let products: f64 = self.residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let squares = self.power(2);
        if squares > 0.0 { products / squares } else { 0.0 }
    }

    /// Whether the correlation of neighbours is within what chance allows at a level of 20 %.
    fn is_uncorrelated(&self) -> bool {
        /// The 90 % quantile of the normal distribution, which leaves 10 % on either side.
        const QUANTILE: f64 = 1.282;
        self.correlation().abs() <= QUANTILE / count(self.residuals.len()).sqrt()
    }

    fn mean_rate(&self) -> MeanRate {
        /// The largest correlation that is believed: a higher one cannot be told from a trend. A round number.
        const STRONGEST: f64 = 0.75;
        let number = count(self.residuals.len());
        // Measured around the mean of a short series, a correlation is too low by (1 + 4 r) / n if the true one is r
        // (Kendall, "Note on bias in the estimation of autocorrelation", Biometrika 41, 1954).
        let correlation = ((self.correlation() + 1.0 / number) / (1.0 - 4.0 / number).max(0.2)).clamp(0.0, STRONGEST);
        let inflation = (1.0 + correlation) / (1.0 - correlation);
        let variance = self.power(2) / (number - 1.0).max(1.0);
        let skewness = if variance > 0.0 { self.power(3) / number / variance.powf(1.5) } else { 0.0 };
        MeanRate {
            rate: self.rate,
            error: (variance * inflation / number).sqrt() / self.mean_seconds,
            skewness,
            batches: self.residuals.len(),
            inflation,
        }
    }
}

/// Returns the number of steps after which the times repeat themselves.
fn works_period(series: &[Work]) -> Option<usize> {
    period(&Batched::of(series, 1)?.residuals)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Process, Random, works};
    use super::*;

    /// Counts how many intervals over series of a length contain the true mean, which is one.
    fn covered(process: Process, length: usize, rounds: usize) -> usize {
        let mut random = Random(7);
        (0..rounds)
            .filter(|_| {
                let series = works(&process.times(length, &mut random));
                let (low, high) = MeanRate::of(&series).unwrap().interval(0.95).unwrap();
                (low..=high).contains(&1.0)
            })
            .count()
    }

    #[test]
    fn intervals_hold_the_true_mean_about_as_often_as_they_say() {
        const ROUNDS: usize = 200;
        for process in [
            Process::Independent(0.3),
            Process::Autoregressive(0.5, 0.1),
            Process::Autoregressive(0.8, 0.1),
            Process::Bursts(2, 0.1),
            Process::Bursts(4, 0.1),
            Process::Bursts(8, 0.1),
            Process::Bursts(16, 0.1),
            Process::LogNormal(0.5),
            Process::LogNormal(1.0),
            Process::Pareto(3.0),
        ] {
            for length in [60, 150, 400] {
                let covered = covered(process, length, ROUNDS);
                assert!(covered * 100 >= ROUNDS * 90, "{process:?} of {length}: {covered} of {ROUNDS}");
            }
        }
    }

    #[test]
    fn short_series_are_covered_where_they_are_not_strongly_correlated() {
        const ROUNDS: usize = 400;
        for process in [Process::Independent(0.1), Process::Autoregressive(0.3, 0.1), Process::LogNormal(0.5)] {
            for length in [10, 20, 30] {
                let covered = covered(process, length, ROUNDS);
                assert!(covered * 100 >= ROUNDS * 90, "{process:?} of {length}: {covered} of {ROUNDS}");
            }
        }
    }

    #[test]
    fn bursts_do_not_widen_the_interval_once_they_are_known() {
        let series = works(&Process::Bursts(4, 0.01).times(200, &mut Random(3)));
        let (low, high) = MeanRate::of(&series).unwrap().interval(0.95).unwrap();
        assert!(high - low < 0.02, "{low} to {high}");
    }

    #[test]
    fn more_confidence_is_wider_and_one_step_has_no_interval() {
        let series = works(&Process::LogNormal(0.5).times(50, &mut Random(3)));
        let mean = MeanRate::of(&series).unwrap();
        let (low, high) = mean.interval(0.95).unwrap();
        let (lower, higher) = mean.interval(0.99).unwrap();
        assert!(lower < low && low < mean.rate && mean.rate < high && high < higher);
        assert!(mean.upper_end(0.005).unwrap() <= higher + 1e-12);
        assert_eq!(MeanRate::of(&series[..1]).unwrap().interval(0.95), None);
        assert_eq!(MeanRate::of(&[]), None);
        assert_eq!(MeanRate::of(&[Work { amount: 0.0, seconds: 1.0 }]), None);
    }
}
