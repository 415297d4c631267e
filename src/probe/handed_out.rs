//! Counts the samples that the training loader hands out, for a throughput that counts something else, such as tokens.

use std::time::Instant;

/// The samples of one run by time, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct HandedOut {
    /// The samples until a time.
    points: Vec<(Instant, f64)>,
    /// True if the samples of some step are unknown.
    is_unknown: bool,
}

impl HandedOut {
    /// Adds the samples of the steps since the last call.
    pub(super) fn push(&mut self, at: Instant, samples: Option<f64>) {
        /// The number of points kept. A round number.
        const KEPT: usize = 4096;
        let Some(samples) = samples.filter(|samples| samples.is_finite() && *samples >= 0.0) else {
            self.is_unknown |= !self.points.is_empty(); // before its first report, a script's steps are those of the hook
            return;
        };
        let before = self.points.last().map_or(0.0, |(_, count)| *count);
        // The hook sends several steps at once.
        self.points.pop_if(|(last, _)| *last == at);
        self.points.push((at, before + samples));
        if self.points.len() == KEPT {
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
    }

    /// Returns the samples per second between two times.
    pub(super) fn rate(&self, (from, to): (Instant, Instant)) -> Option<f64> {
        let mut inside = self.points.iter().filter(|(at, _)| (from..=to).contains(at));
        let (first, last) = (inside.next()?, inside.next_back()?);
        let rate = (last.1 - first.1) / last.0.duration_since(first.0).as_secs_f64();
        (rate.is_finite() && rate > 0.0 && !self.is_unknown).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_is_that_of_the_time_between() {
        let begin = Instant::now();
        let at = |tenths: u32| begin + Duration::from_millis(100) * tenths;
        let mut handed_out = HandedOut::default();
        for step in 0..20_000 {
            let samples = if step < 10_000 { 1.0 } else { 4.0 };
            handed_out.push(at(step), Some(samples));
            handed_out.push(at(step), Some(samples));
        }
        let near = |rate: Option<f64>, right: f64| assert!((rate.unwrap() / right - 1.0).abs() < 0.01, "{rate:?}");
        near(handed_out.rate((at(1000), at(9000))), 20.0);
        near(handed_out.rate((at(11_000), at(19_000))), 80.0);
        assert_eq!(handed_out.rate((at(5), at(5))), None);
        handed_out.push(at(20_000), None);
        assert_eq!(handed_out.rate((at(1000), at(9000))), None, "a step has unknown samples");
    }
}
