//! Recognises a printed rate that is a mean since the start of the script, and takes it apart.
//!
//! The mean is `n / (t - s)`: `n` samples since a start `s`. The script may count the time for preparations, so the
//! mean is too low at first. It may count samples from before a resumed run, so the mean is too high at first. The
//! difference from the true rate `R` shrinks like `1 / (t - s)`, for minutes.

use super::stats::count;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stretch {
    /// The end of the stretch, in seconds since the probe began.
    pub(super) at: f64,
    pub(super) seconds: f64,
    pub(super) rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    /// The arrival, in seconds since the probe began.
    pub(super) at: f64,
    pub(super) rate: f64,
}

#[derive(Debug, Default)]
pub(super) struct RunningMean {
    lines: Vec<Line>,
    /// The start of the mean, if the lines have the shape of a mean.
    start: Option<f64>,
    /// The last line that ended a stretch.
    last: Option<Line>,
    /// True after a line that contradicts the mean.
    is_refuted: bool,
}

impl RunningMean {
    /// Takes a line. Returns `None` unless the lines are means. When they first prove to be means, returns true and the
    /// stretches of all lines, which replace the earlier rates. Later, returns false and this line's stretch, if any.
    pub(super) fn take(&mut self, line: Line) -> Option<(bool, Vec<Stretch>)> {
        /// How many lines determine the start. The first lines say most about it.
        const KEPT: usize = 64;
        /// For lines that arrive late.
        const TOLERANCE: f64 = 0.01;
        if self.is_refuted {
            return None;
        }
        if self.lines.len() < KEPT {
            self.lines.push(line);
            self.start = start(&self.lines).or(self.start);
        }
        let start = self.start?;
        let Some(last) = self.last else {
            let first = *self.lines.first()?;
            self.last = Some(first);
            let stretches = self.lines.clone().into_iter().filter_map(|line| self.since_last(start, line)).collect();
            return Some((true, stretches));
        };
        // Refuted if fewer samples were trained than at an earlier line.
        self.is_refuted = samples(start, line) < samples(start, last) * (1.0 - TOLERANCE);
        (!self.is_refuted).then(|| (false, self.since_last(start, line).into_iter().collect()))
    }

    /// Returns the stretch since the last stretch; `None` if the line adds no samples, or another rank printed it.
    fn since_last(&mut self, start: f64, line: Line) -> Option<Stretch> {
        /// Ranks that all print send their lines within this time: a round number.
        const AT_ONCE_S: f64 = 0.01;
        let last = self.last?;
        let (seconds, samples) = (line.at - last.at, samples(start, line) - samples(start, last));
        if seconds < AT_ONCE_S || samples <= 0.0 {
            return None;
        }
        self.last = Some(line);
        Some(Stretch { at: line.at, seconds, rate: samples / seconds })
    }
}

/// Returns the number of samples since the start, according to a line.
fn samples(start: f64, line: Line) -> f64 {
    line.rate * (line.at - start)
}

/// Returns the start of the mean, if the lines have the shape of a mean. A fit to the first half of the lines must give
/// the same true rate as a fit to all lines. This excludes rates that are smoothed, or that change in another way.
fn start(lines: &[Line]) -> Option<f64> {
    /// The fewest lines. All three are round numbers.
    const FEWEST: usize = 10;
    /// The least change between the first and the last line, as a share of the last line's rate.
    const CHANGE: f64 = 0.1;
    /// The largest difference between the rates of the two fits, as a share of the last line's rate.
    const DIFFERENCE: f64 = 0.02;
    let (first, last) = lines.first().zip(lines.last()).filter(|_| lines.len() >= FEWEST)?;
    let has_changed = (last.rate - first.rate).abs() >= CHANGE * last.rate;
    let (half, all) = (fit(&lines[..lines.len() / 2])?, fit(lines)?);
    let is_steady = (half.rate - all.rate).abs() <= DIFFERENCE * last.rate;
    (has_changed && is_steady).then_some(all.start)
}

struct Fit {
    rate: f64,
    start: f64,
}

/// Fits a mean to lines. Returns `None` if the fit is not close.
///
/// With `n = c + R t`, the mean `r = n / (t - s)` is `r t = c + R t + s r`: linear in `c`, `R` and `s`, which least squares find.
fn fit(lines: &[Line]) -> Option<Fit> {
    /// The largest residual, as a share of the change between the first and the last line: a round number.
    const RESIDUAL: f64 = 0.02;
    /// A script cannot have started much before its probe.
    const EARLIEST: f64 = -1.0;
    let (first, last) = lines.first().zip(lines.last())?;
    let mean = |of: fn(&Line) -> f64| lines.iter().map(of).sum::<f64>() / count(lines.len());
    let (at, rate, product) = (mean(|line| line.at), mean(|line| line.rate), mean(|line| line.at * line.rate));
    let sum = |of: &dyn Fn(f64, f64, f64) -> f64| {
        let centred = |line: &Line| of(line.at - at, line.rate - rate, line.at * line.rate - product);
        lines.iter().map(centred).sum::<f64>()
    };
    let (tt, tr, rr) = (sum(&|t, _, _| t * t), sum(&|t, r, _| t * r), sum(&|_, r, _| r * r));
    let (ty, ry) = (sum(&|t, _, y| t * y), sum(&|_, r, y| r * y));
    let determinant = tt * rr - tr * tr;
    let (rate, start) = ((ty * rr - ry * tr) / determinant, (ry * tt - ty * tr) / determinant);
    let is_possible = rate > 0.0 && (EARLIEST..first.at).contains(&start);
    let residual = sum(&|t, r, y| (y - rate * t - start * r).powi(2)) / count(lines.len());
    // Divided by the mean time since the start, the residual of the product is a residual of the rate.
    let is_close = residual.sqrt() / (at - start) <= RESIDUAL * (last.rate - first.rate).abs();
    (is_possible && is_close).then_some(Fit { rate, start })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::stats::simulation::Random;

    /// Returns lines each 0.2 s, from 3 s to 13 s, of a step that takes 1,000 samples in a second after 2 s of preparations.
    fn lines(rate: impl Fn(f64) -> f64) -> Vec<Line> {
        (0..50).map(|line| 3.0 + 0.2 * f64::from(line)).map(|at| Line { at, rate: rate(at) }).collect()
    }

    /// Returns the rate over all stretches that count at the end, or nothing if the lines are no means.
    fn rate(lines: &[Line]) -> Option<f64> {
        let mut mean = RunningMean::default();
        let (mut stretches, mut is_mean) = (Vec::new(), false);
        for line in lines {
            let taken = mean.take(*line);
            is_mean = taken.is_some();
            stretches.extend(taken.into_iter().flat_map(|(_, stretches)| stretches));
        }
        let seconds: f64 = stretches.iter().map(|stretch| stretch.seconds).sum();
        let samples: f64 = stretches.iter().map(|stretch| stretch.seconds * stretch.rate).sum();
        is_mean.then(|| samples / seconds)
    }

    #[test]
    fn a_mean_since_the_start_gives_the_rate_between_its_lines() {
        let prepared = |at: f64| 1000.0 * (at - 2.0) / (at - 0.5);
        let resumed = |at: f64| (50_000.0 + 1000.0 * (at - 2.0)) / (at - 2.0);
        for (name, lines) in [("prepared", lines(prepared)), ("resumed", lines(resumed))] {
            let found = rate(&lines).unwrap_or_default();
            assert!((found / 1000.0 - 1.0).abs() < 0.001, "{name}: {found}");
            // Printed with one decimal, and up to 2 ms late.
            let mut random = Random(3);
            let printed = lines
                .iter()
                .map(|line| Line { at: line.at + 0.002 * random.uniform(), rate: (line.rate * 10.0).round() / 10.0 });
            let found = rate(&printed.collect::<Vec<_>>()).unwrap_or_default();
            assert!((found / 1000.0 - 1.0).abs() < 0.02, "{name}: {found}");
        }
    }

    #[test]
    fn other_rates_are_no_means() {
        let mut random = Random(5);
        let noises: Vec<f64> = (0..50).map(|_| random.normal()).collect();
        let noise = |at: f64| noises[((at - 3.0) / 0.2).round() as usize];
        assert_eq!(rate(&lines(|_| 1000.0)), None, "steady");
        assert_eq!(rate(&lines(|at| 1000.0 + 50.0 * noise(at))), None, "noise");
        assert_eq!(rate(&lines(|at| 2000.0 - 50.0 * at)), None, "slower and slower");
        assert_eq!(rate(&lines(|at| 2000.0 - 50.0 * at + 20.0 * noise(at))), None, "slower and slower, with noise");
        assert_eq!(rate(&lines(|at| if at < 5.0 { 500.0 } else { 1000.0 })), None, "a step");
        for (change, seconds) in [(-800.0, 0.5), (-800.0, 2.0), (-800.0, 10.0), (800.0, 1.0), (800.0, 5.0)] {
            let smoothed = |at: f64| 1000.0 + change * (-(at - 3.0) / seconds).exp();
            assert_eq!(rate(&lines(smoothed)), None, "smoothed, {change} {seconds}");
        }
    }

    #[test]
    fn a_line_that_no_mean_can_have_ends_it() {
        let mut all = lines(|at| 1000.0 * (at - 2.0) / (at - 0.5));
        assert!(rate(&all).is_some());
        all.push(Line { at: 13.2, rate: 500.0 });
        assert_eq!(rate(&all), None);
    }
}
