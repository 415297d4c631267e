//! Computes the mean rate of a steady series, with an interval that is valid for steps that depend on each other.
//!
//! The interval is the wider of two intervals. Each alone is too narrow in some cases that the other interval covers:
//!
//! * The first uses about a hundred short batches, or single steps, and weighs their possible correlations ([`Mixture`]). It stays
//!   valid if measuring stops once it is narrow. But it covers only correlation that fades by the same share from step
//!   to step.
//! * The second is Student's t over the means of about twenty batches, or fewer if neighbours are still correlated. It covers any
//!   dependence. Ten to thirty batches lose very little against a larger number (Schmeiser, "Batch size effects in the analysis of
//!   simulation output", Operations Research 30(3), 1982).
//!
//! A loader with several workers delivers in bursts. If the series repeats itself, the length of a batch is a multiple of the
//! period. Then each batch has the same number of bursts.

use super::autoregressive::Mixture;
use super::shape::period;
use super::{count, student_quantile};

/// Work and the time that it took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// The amount of work.
    pub amount: f64,
    /// The duration in seconds.
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
    /// The spread of the about twenty long batches.
    long: Spread,
    /// The spread of the about a hundred short batches.
    short: Spread,
    /// The distribution of the mean, given that short batches may be correlated; `None` for a single batch.
    mixture: Option<Mixture>,
}

/// The approximate number of long batches.
const LONG: usize = 20;
/// The smallest number of long batches, if a series is long enough.
const FEWEST_BATCHES: usize = 8;

/// The maximum number of short batches, so that a check costs little. A round number.
const SHORT: usize = 100;

impl MeanRate {
    /// Computes the mean over a steady series; `None` if the series has no work.
    pub fn of(series: &[Work]) -> Option<Self> {
        let fewest = FEWEST_BATCHES.min(series.len()).max(1);
        let shortest = series.len().div_ceil(LONG).max(1);
        // The number of steps after which the times repeat.
        let unit = period(&Batched::of(series, 1)?.residuals);
        let unit = unit.filter(|period| series.len() / shortest.next_multiple_of(*period) >= fewest).unwrap_or(1);
        let short = Batched::of(series, series.len().div_ceil(SHORT).max(1).next_multiple_of(unit))?;
        let mut size = shortest.next_multiple_of(unit);
        let long = loop {
            let batched = Batched::of(series, size)?;
            let longer = (size + 1).max(size * 5 / 4).next_multiple_of(unit);
            if batched.is_uncorrelated() || series.len() / longer < fewest {
                break batched;
            }
            size = longer;
        };
        let relative: Vec<f64> = short.residuals.iter().map(|residual| residual / short.mean_seconds).collect();
        let mixture = Mixture::of(&relative);
        Some(Self { rate: long.rate, long: long.spread(), short: short.spread(), mixture })
    }

    /// Returns the ends of the interval that contains the true mean with this confidence, such as 0.95. `None` if a single batch
    /// does not show the spread.
    ///
    /// The interval is also valid at the moment at which measuring stops because the interval is narrow enough.
    pub fn interval(&self, confidence: f64) -> Option<(f64, f64)> {
        /// The tails at each check are smaller by this factor, because there are several checks. The factor is the same
        /// at all checks, as in Pocock, "Group sequential methods in the design and analysis of clinical trials",
        /// Biometrika 64(2), 1977. Step times with long tails need it, because a few steps do not show the tails; the
        /// mixture covers correlation without it. The simulation in `measuring::simulations` gave its value. With 1.5
        /// instead of 1, only 2% of probes with Pareto tails stop early, instead of 5%, and nine in ten of their
        /// intervals contain the true mean. For correlated steps, 2% to 3% more intervals contain it. A factor of 2 is
        /// hardly better.
        const LOOKS: f64 = 1.5;
        /// The smallest time of the upper end, as a share of the mean time, which must not be negative: a round number.
        const SHORTEST: f64 = 0.5;
        let tail = (1.0 - confidence) / 2.0 / LOOKS;
        let (longer, shorter) = (1.0 + self.reach(tail, 1.0)?, (1.0 - self.reach(tail, -1.0)?).max(SHORTEST));
        Some((self.rate / longer, self.rate / shorter))
    }

    /// Returns how far the true time may be from the mean, as a share, towards longer (1) or shorter (-1) times.
    fn reach(&self, tail: f64, towards: f64) -> Option<f64> {
        /// An interval of at least this half width is too wide to stop a probe: a round number, well above usual
        /// widths. Such an interval need not stay valid when measuring stops. So it leaves out the correlations that
        /// look like changes of level, which would make it much wider in short series.
        const WIDE: f64 = 0.1;
        let mixture = self.mixture.as_ref()?;
        let skewness = self.short.by_skewness(tail, towards);
        let strict = mixture.quantile(tail) + skewness;
        let by_correlation =
            if strict <= WIDE { strict } else { (mixture.quantile_of_shorter(tail) + skewness).max(WIDE) };
        let by_batches = self.long.by_student(tail) + self.long.by_skewness(tail, towards);
        Some(by_correlation.max(by_batches))
    }
}

/// How the batches of a series differ.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    batches: usize,
    /// The standard error of the time per unit of work, relative to that time, if batches are independent.
    error: f64,
    skewness: f64,
}

impl Spread {
    fn by_student(&self, tail: f64) -> f64 {
        if self.batches < 2 { 0.0 } else { self.error * student_quantile(self.batches - 1, tail) }
    }

    /// Returns how far a long tail moves this end of the interval outwards.
    ///
    /// The mean of few numbers with a long tail is usually too low. So the end towards the tail moves outwards
    /// (Johnson, "Modified t tests and confidence intervals for asymmetrical populations", JASA 73(363), 1978). Johnson
    /// also moves the other end inwards; here it stays, so the interval is wider.
    fn by_skewness(&self, tail: f64, towards: f64) -> f64 {
        if self.batches < 2 {
            return 0.0;
        }
        let quantile = student_quantile(self.batches - 1, tail);
        let skewness = (self.skewness * towards).max(0.0);
        self.error * skewness * (1.0 + 2.0 * quantile * quantile) / (6.0 * count(self.batches).sqrt())
    }
}

/// The batches of a series. The residual of a batch is its time minus the time that the mean rate predicts.
struct Batched {
    rate: f64,
    mean_seconds: f64,
    residuals: Vec<f64>,
}

impl Batched {
    /// Cuts a series into batches of this size. Drops the remainder at the beginning, which may still have warm-up.
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

    /// Returns true if the correlation of neighbours may be chance, at a level of 20%.
    fn is_uncorrelated(&self) -> bool {
        /// The 90% quantile of the normal distribution, which leaves 10% on either side.
        const QUANTILE: f64 = 1.282;
        self.correlation().abs() <= QUANTILE / count(self.residuals.len()).sqrt()
    }

    fn spread(&self) -> Spread {
        let number = count(self.residuals.len());
        let variance = self.power(2) / (number - 1.0).max(1.0);
        let skewness = if variance > 0.0 { self.power(3) / number / variance.powf(1.5) } else { 0.0 };
        Spread { batches: self.residuals.len(), error: (variance / number).sqrt() / self.mean_seconds, skewness }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Process, Random, works};
    use super::*;

    /// Returns how many intervals over series of this length contain the true mean, which is 1.
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
        use Process::{Autoregressive, Bursts, Independent, LogNormal, Pareto};
        let bursts = [2, 4, 8, 16].map(|period| Bursts(period, 0.1));
        let others = [Independent(0.3), Autoregressive(0.5, 0.1), Autoregressive(0.8, 0.1)];
        let tails = [LogNormal(0.5), LogNormal(1.0), Pareto(3.0)];
        // Short series are covered if they are not strongly correlated.
        let short = [Independent(0.1), Autoregressive(0.3, 0.1), LogNormal(0.5)];
        let long = [&bursts[..], &others, &tails].concat();
        for (processes, lengths, rounds) in [(&long[..], [60, 150, 400], 200), (&short[..], [10, 20, 30], 400)] {
            for (process, length) in processes.iter().flat_map(|process| lengths.map(|length| (*process, length))) {
                let covered = covered(process, length, rounds);
                assert!(covered * 100 >= rounds * 90, "{process:?} of {length}: {covered} of {rounds}");
            }
        }
    }

    #[test]
    fn more_confidence_is_wider_and_one_step_has_no_interval() {
        let series = works(&Process::LogNormal(0.5).times(50, &mut Random(3)));
        let mean = MeanRate::of(&series).unwrap();
        let (low, high) = mean.interval(0.95).unwrap();
        let (lower, higher) = mean.interval(0.99).unwrap();
        assert!(lower < low && low < mean.rate && mean.rate < high && high < higher);
        assert_eq!(MeanRate::of(&series[..1]).unwrap().interval(0.95), None);
        assert_eq!(MeanRate::of(&[]), None);
        assert_eq!(MeanRate::of(&[Work { amount: 0.0, seconds: 1.0 }]), None);
    }
}
