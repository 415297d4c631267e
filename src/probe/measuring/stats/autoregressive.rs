//! The error of a mean of few numbers whose neighbours are correlated to an unknown degree.
//!
//! The numbers are treated as an autoregressive series of the first order: x' = φ x + noise. Ten or twenty numbers
//! hardly show φ: half of its estimates are far too low. A low estimate makes the interval too narrow, and a narrow
//! interval stops the probe. So this interval relies on no estimate. It weighs every φ by how well φ explains the
//! numbers (Zellner and Tiao, "Bayesian analysis of the regression model with autocorrelated errors", JASA 59(307),
//! 1964). Mean and noise are integrated out, given flat priors of the mean and of the logarithm of the noise. Each φ
//! gives a Student's t distribution of the mean. The interval is the interval of the mixture of these distributions.
//!
//! Such an interval may be checked any number of times. The numbers tell the same about the mean, whatever the reason
//! why the series ends (Edwards, Lindman and Savage, "Bayesian statistical inference for psychological research",
//! Psychological Review 70(3), 1963). But the interval contains the mean as often as it states only on average over the
//! prior, not for each process. Simulations (`measuring::simulations`) show for which processes it does.

use super::{count, student_quantile, student_tail};

/// The number of correlations in a mixture.
const PLACES: usize = 32;

/// The mixture of the distributions of a mean, around its estimate: a weight and a standard error for each correlation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mixture {
    degrees: usize,
    parts: [Part; PLACES],
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    weight: f64,
    error: f64,
    /// The factor by which the correlation enlarges the variance of the mean of a long series.
    inflation: f64,
}

impl Mixture {
    /// Weighs the correlations of a series by its residuals, whose sum is zero; `None` for less than two numbers.
    ///
    /// The prior is flat in the logarithm of 1 / (1 - φ), the number of steps for which numbers stay similar: nothing
    /// is known about this number, and 2 is as likely as 20.
    pub(super) fn of(residuals: &[f64]) -> Option<Self> {
        /// The strongest correlation: numbers stay similar for a hundred steps. A series has about a hundred numbers,
        /// so a stronger correlation would look like a change of level, as at the end of warm-up.
        const STRONGEST: f64 = 0.99;
        let moments = Moments::of(residuals)?;
        let step = -f64::ln(1.0 - STRONGEST) / count(PLACES);
        let correlation = |place: usize| -f64::exp_m1(-step * (count(place) + 0.5));
        let likelihoods: [f64; PLACES] = std::array::from_fn(|place| moments.log_likelihood(correlation(place)));
        let largest = likelihoods.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let whole: f64 = likelihoods.iter().map(|likelihood| (likelihood - largest).exp()).sum();
        let parts = std::array::from_fn(|place| Part {
            weight: (likelihoods[place] - largest).exp() / whole,
            error: moments.error_of_mean(correlation(place)),
            inflation: (1.0 + correlation(place)) / (1.0 - correlation(place)),
        });
        Some(Self { degrees: residuals.len() - 1, parts })
    }

    /// Returns the distance that the true mean exceeds, on one side, with a probability of `tail`.
    pub(super) fn quantile(&self, tail: f64) -> f64 {
        self.quantile_of(tail, |_| true)
    }

    /// Returns the quantile without the correlations for which numbers stay similar for at least half of the series.
    /// Such strong correlations look like changes of level, and would make the interval of a short series very wide.
    pub(super) fn quantile_of_shorter(&self, tail: f64) -> f64 {
        // 1 / (1 - φ) = n / 2 is an inflation of n - 1.
        let longest = count(self.degrees).max(2.0);
        let weight: f64 = self.parts.iter().filter(|part| part.inflation <= longest).map(|part| part.weight).sum();
        // If the weaker correlations hardly explain the series, use the full mixture.
        if weight < tail { self.quantile(tail) } else { self.quantile_of(tail, |part| part.inflation <= longest) }
    }

    /// Returns the quantile of the parts for which `counts` returns true.
    fn quantile_of(&self, tail: f64, counts: impl Fn(&Part) -> bool) -> f64 {
        /// Parts are left out if together they weigh less than this share of the tail.
        const NEGLIGIBLE: f64 = 0.01;
        /// The number of bisections: right to a thousandth if the largest error is thirty times the smallest.
        const HALVINGS: u32 = 16;
        let all: f64 = self.parts.iter().filter(|part| counts(part)).map(|part| part.weight).sum();
        let least = all * tail * NEGLIGIBLE / count(PLACES);
        let parts: Vec<&Part> = self.parts.iter().filter(|part| counts(part) && part.weight > least).collect();
        let student = student_quantile(self.degrees, tail);
        let (mut low, mut high) = parts.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), part| {
            (low.min(part.error * student), high.max(part.error * student))
        });
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let beyond: f64 =
                parts.iter().map(|part| part.weight / all * student_tail(self.degrees, middle / part.error)).sum();
            if beyond > tail { low = middle } else { high = middle }
        }
        high
    }
}

/// The sums over a series that its likelihood needs.
struct Moments {
    number: f64,
    squares: f64,
    /// The sum of the products of neighbours.
    products: f64,
    /// The sum of the first and the last number.
    ends: f64,
    /// The sum of the squares of the first and the last number.
    end_squares: f64,
}

impl Moments {
    fn of(residuals: &[f64]) -> Option<Self> {
        let [first, .., last] = *residuals else { return None };
        Some(Self {
            number: count(residuals.len()),
            squares: residuals.iter().map(|residual| residual * residual).sum(),
            products: residuals.windows(2).map(|pair| pair[0] * pair[1]).sum(),
            ends: first + last,
            end_squares: first * first + last * last,
        })
    }

    /// Returns the information about the mean in units of the noise, and the squares of the noise around the best-fitting mean.
    fn fit(&self, correlation: f64) -> (f64, f64) {
        let new = 1.0 - correlation;
        let information = new * (self.number - (self.number - 2.0) * correlation);
        // The numbers between the ends sum up to the negative of the ends.
        let shift = new * self.ends * correlation;
        let squares = self.squares + correlation * correlation * (self.squares - self.end_squares)
            - 2.0 * correlation * self.products;
        (information, (squares - shift * shift / information).max(f64::MIN_POSITIVE))
    }

    /// Returns the logarithm of the likelihood, with mean and noise integrated out.
    fn log_likelihood(&self, correlation: f64) -> f64 {
        let (information, squares) = self.fit(correlation);
        ((1.0 - correlation * correlation) / information).ln() / 2.0 - (self.number - 1.0) / 2.0 * squares.ln()
    }

    /// Returns the standard error of the mean of a series with this correlation and length.
    fn error_of_mean(&self, correlation: f64) -> f64 {
        let (_, squares) = self.fit(correlation);
        let variance = squares / (self.number - 1.0) / (1.0 - correlation * correlation);
        let new = 1.0 - correlation;
        let alike = 1.0 - correlation.powf(self.number);
        let inflation = (1.0 + correlation) / new - 2.0 * correlation * alike / (self.number * new * new);
        (variance * inflation / self.number).sqrt()
    }
}
