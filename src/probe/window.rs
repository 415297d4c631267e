//! From step times to a throughput: the one place that decides what a probe measured and when it is enough.

use std::time::Duration;

use super::{Effort, Limits};
use crate::outcome::Estimate;
use crate::stats;

/// Observations that are kept one by one; beyond it neighbours are added up, so that a flood of steps fits.
const KEPT: usize = 1 << 14;

#[derive(Debug, Clone, Copy)]
struct Observation {
    /// When it ended, in seconds since the probe began.
    at: f64,
    /// How long it took, in seconds.
    seconds: f64,
    /// What was done in that time, in the unit of the throughput without the "per second".
    amount: f64,
}

/// The observations of one probe.
#[derive(Debug, Default)]
pub(super) struct Window {
    observations: Vec<Observation>,
    /// Steps behind each observation.
    stride: u64,
    open: Option<(Observation, u64)>,
    steps: u64,
}

/// What a window comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Throughput {
    pub(super) estimate: Estimate,
    /// Steps that the estimate rests on.
    pub(super) steps: u64,
    /// Steps before them that were dropped.
    pub(super) warmup_steps: u64,
    /// Typical seconds per step.
    pub(super) step_seconds: f64,
    /// Time from the end of warm-up to the last step.
    pub(super) measured: Duration,
}

impl Window {
    /// Adds a step that took so many seconds and did so much.
    pub(super) fn push_step(&mut self, at: Duration, seconds: f64, amount: f64) {
        if !(seconds > 0.0 && seconds.is_finite() && amount.is_finite() && amount >= 0.0) {
            return;
        }
        self.steps += 1;
        let step = Observation { at: at.as_secs_f64(), seconds, amount };
        let (sum, count) = match self.open.take() {
            Some((sum, count)) => {
                (Observation { at: step.at, seconds: sum.seconds + seconds, amount: sum.amount + amount }, count + 1)
            }
            None => (step, 1),
        };
        if count < self.stride.max(1) {
            self.open = Some((sum, count));
            return;
        }
        self.observations.push(sum);
        if self.observations.len() >= KEPT {
            self.observations = self.observations.chunks(2).map(merge).collect();
            self.stride = self.stride.max(1) * 2;
        }
    }

    /// Adds a rate that the step printed.
    pub(super) fn push_rate(&mut self, at: Duration, rate: f64) {
        self.push_step(at, 1.0, rate);
    }

    /// Steps so far, warm-up included.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// The throughput so far: the median over blocks of steps, after warm-up.
    ///
    /// Blocks, because a loader with several workers delivers in bursts: of the steps 1, 1, 1, 20 ms the median alone
    /// would call the slow one an exception. With n observations there are about 2 √n blocks of √n / 2.
    pub(super) fn throughput(&self) -> Option<Throughput> {
        let seconds: Vec<f64> = self.observations.iter().map(|step| step.seconds / step.amount.max(1e-300)).collect();
        let cut = stats::warmup_length(&seconds);
        let steady = &self.observations[cut..];
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "the root of a count"
        )]
        let block = ((steady.len() as f64).sqrt() / 2.0).round().max(1.0) as usize;
        let rates: Vec<f64> = steady
            .chunks(block)
            .filter(|steps| steps.len() == block)
            .map(|steps| steps.iter().map(|s| s.amount).sum::<f64>() / steps.iter().map(|s| s.seconds).sum::<f64>())
            .collect();
        let estimate = stats::median_with_interval(&rates)?;
        let stride = self.stride.max(1);
        let times: Vec<f64> = steady.iter().map(|step| step.seconds).collect();
        #[expect(clippy::cast_precision_loss, reason = "a count of steps")]
        let step_seconds = stats::median(&times)? / stride as f64;
        let begin =
            cut.checked_sub(1).map_or_else(|| steady[0].at - steady[0].seconds, |last| self.observations[last].at);
        let end = steady.last()?.at;
        Some(Throughput {
            estimate,
            steps: steady.len() as u64 * stride,
            warmup_steps: cut as u64 * stride,
            step_seconds,
            measured: Duration::try_from_secs_f64(end - begin).unwrap_or_default(),
        })
    }

    /// Whether measuring longer is not worth it.
    pub(super) fn is_enough(&self, limits: &Limits, effort: Effort) -> bool {
        const FEWEST_STEPS: u64 = 10;
        let factor = match effort {
            Effort::Probe | Effort::Losses => 1,
            Effort::Confirm => 2,
        };
        let Some(throughput) = self.throughput() else { return false };
        // A cut at half of the series means that warm-up may not be over.
        let settled = throughput.warmup_steps < throughput.steps;
        let measured = throughput.measured;
        let long = limits.measure_time * factor;
        let shortest = Duration::from_millis(500).min(limits.measure_time) * factor;
        let precise = throughput
            .estimate
            .relative_half_width()
            .is_some_and(|width| width * f64::from(factor) <= limits.precision);
        (settled && throughput.steps >= FEWEST_STEPS && measured >= shortest && (precise || measured >= long))
            || measured >= long * 2 && throughput.steps >= 3
    }
}

fn merge(steps: &[Observation]) -> Observation {
    Observation {
        at: steps.last().map_or(0.0, |step| step.at),
        seconds: steps.iter().map(|step| step.seconds).sum(),
        amount: steps.iter().map(|step| step.amount).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(seconds: impl IntoIterator<Item = f64>) -> Window {
        let mut window = Window::default();
        let mut at = 0.0;
        for step in seconds {
            at += step;
            window.push_step(Duration::from_secs_f64(at), step, 32.0);
        }
        window
    }

    #[test]
    fn steady_steps_give_their_rate() {
        let throughput = window([0.01; 100]).throughput().unwrap();
        assert!((throughput.estimate.value - 3200.0).abs() < 1.0, "{throughput:?}");
        assert!((throughput.step_seconds - 0.01).abs() < 1e-9);
    }

    #[test]
    fn warm_up_and_a_hiccup_do_not_count() {
        let mut steps = vec![0.5, 0.2, 0.05];
        steps.extend([0.01; 60]);
        steps[40] = 1.0;
        let throughput = window(steps).throughput().unwrap();
        assert!((throughput.estimate.value - 3200.0).abs() < 32.0, "{throughput:?}");
        assert!(throughput.warmup_steps >= 3);
    }

    #[test]
    fn bursts_of_a_loader_count_in_full() {
        let steps = (0..400).map(|step| if step % 4 == 3 { 0.037 } else { 0.001 });
        let throughput = window(steps).throughput().unwrap();
        assert!((throughput.estimate.value - 3200.0).abs() < 200.0, "{throughput:?}");
    }

    #[test]
    fn one_rate_is_taken_as_it_is() {
        let mut window = Window::default();
        window.push_rate(Duration::from_secs(3), 1234.5);
        assert_eq!(window.throughput().unwrap().estimate, Estimate::point(1234.5));
        assert!(!window.is_enough(&Limits::default(), Effort::Probe));
    }

    #[test]
    fn a_flood_of_steps_is_folded() {
        let flood = window(std::iter::repeat_n(1e-6, 200_000));
        assert!(flood.observations.len() <= KEPT);
        assert_eq!(flood.steps(), 200_000);
        let throughput = flood.throughput().unwrap();
        assert!((throughput.estimate.value / 32e6 - 1.0).abs() < 1e-6, "{throughput:?}");
        assert!((throughput.step_seconds / 1e-6 - 1.0).abs() < 1e-6, "{throughput:?}");
    }

    #[test]
    fn measuring_ends_when_precise_or_long_enough() {
        let limits = Limits { measure_time: Duration::from_secs(5), ..Limits::default() };
        assert!(!window([0.01; 20]).is_enough(&limits, Effort::Probe), "too short");
        assert!(window([0.01; 100]).is_enough(&limits, Effort::Probe));
        let noisy = |count| window((0..count).map(|step| 0.1 + 0.2 * f64::from(step * 7919 % 13) / 13.0));
        assert!(!noisy(15).is_enough(&limits, Effort::Probe), "not precise");
        assert!(noisy(40).is_enough(&limits, Effort::Probe), "long enough");
        assert!(!noisy(40).is_enough(&limits, Effort::Confirm), "a leader is measured longer");
    }

    #[test]
    fn nonsense_is_left_out() {
        let mut window = Window::default();
        for (seconds, amount) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, -1.0)] {
            window.push_step(Duration::ZERO, seconds, amount);
        }
        assert_eq!(window.steps(), 0);
        assert!(window.throughput().is_none());
    }
}
