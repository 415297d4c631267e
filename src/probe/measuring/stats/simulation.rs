//! Series with known means, for testing the statistics.

use super::Work;
use crate::model::space::Draws;

/// Pseudorandom numbers: uniform and normal.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number between 0 and 1, both excluded.
    pub(crate) fn uniform(&mut self) -> f64 {
        let mut draws = Draws(self.0);
        let share = draws.share();
        self.0 = draws.0;
        share + 0.5 / (1_u64 << 53) as f64
    }

    /// Returns a standard normal number (Box and Muller, 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let (a, b) = (self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

/// Step times with a mean of one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Process {
    /// Independent, normal, with this deviation.
    Independent(f64),
    /// Each step resembles the previous step, with this correlation and deviation.
    Autoregressive(f64, f64),
    /// Nearly all time is spent in every n-th step. The numbers are n and the deviation.
    Bursts(usize, f64),
    /// Log-normal with this deviation of the logarithm: a long tail.
    LogNormal(f64),
    /// Pareto with this exponent: an even longer tail.
    Pareto(f64),
}

impl Process {
    pub(crate) fn times(self, length: usize, random: &mut Random) -> Vec<f64> {
        let mut last = random.normal();
        let phase = (random.uniform() * 64.0) as usize;
        (0..length)
            .map(|step| match self {
                Self::Independent(deviation) => 1.0 + deviation * random.normal(),
                Self::Autoregressive(correlation, deviation) => {
                    last = correlation * last + (1.0 - correlation * correlation).sqrt() * random.normal();
                    1.0 + deviation * last
                }
                Self::Bursts(period, deviation) => {
                    let long = period as f64 - 0.05 * (period as f64 - 1.0);
                    let time = if (step + phase).is_multiple_of(period) { long } else { 0.05 };
                    time * (1.0 + deviation * random.normal())
                }
                Self::LogNormal(sigma) => (sigma * random.normal() - sigma * sigma / 2.0).exp(),
                Self::Pareto(exponent) => random.uniform().powf(-exponent.recip()) * (exponent - 1.0) / exponent,
            })
            .map(|time| time.max(1e-3))
            .collect()
    }
}

pub(crate) fn works(times: &[f64]) -> Vec<Work> {
    times.iter().map(|&seconds| Work { amount: 1.0, seconds }).collect()
}
