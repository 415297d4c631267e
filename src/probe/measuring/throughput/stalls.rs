//! Tests with unmarked stalls of many sizes and distances: the rate must match the run, and the interval must contain the true
//! rate.

use std::time::Duration;

use super::Throughput;
use crate::probe::measuring::{
    patience::tests::run_probe,
    window::{StepReport, Window},
};
use crate::probe::stats::simulation::Random;

/// Steps of 10 ms, with some longer steps.
#[derive(Debug, Clone, Copy)]
struct Stalls {
    /// The length of a stalled step, in normal steps.
    times: f64,
    /// The mean number of steps from one stall to the next.
    distance: usize,
    /// The variation of distances: 0 is constant; at 1, each step stalls with the same probability.
    irregularity: f64,
    /// True if a stalled step reports that it waited for its data.
    is_wait: bool,
}

impl Stalls {
    const STEP: f64 = 0.01;

    /// Returns the samples per second of an endless run with 32 samples per step.
    fn rate(self) -> f64 {
        let distance = self.distance as f64;
        32.0 * distance / (Self::STEP * (distance - 1.0 + self.times))
    }

    /// Returns the times of steps, each with its wait for data.
    fn steps(self, count: usize, random: &mut Random) -> Vec<(f64, f64)> {
        let mut next = self.next(random) * random.uniform();
        (0..count)
            .map(|at| {
                let time = Self::STEP * (1.0 + 0.03 * random.normal());
                if (at as f64) < next {
                    return (time, 0.0);
                }
                next += self.next(random);
                let stall = Self::STEP * (self.times - 1.0);
                (time + stall, if self.is_wait { stall } else { 0.0 })
            })
            .collect()
    }

    fn next(self, random: &mut Random) -> f64 {
        let by_chance = -random.uniform().ln();
        self.distance as f64 * (1.0 - self.irregularity + self.irregularity * by_chance)
    }
}

fn throughput(steps: &[(f64, f64)]) -> Throughput {
    let (mut window, mut at) = (Window::default(), 0.0);
    for &(seconds, waited) in steps {
        at += seconds;
        window.push(StepReport { at: Duration::from_secs_f64(at), seconds, amount: 32.0, waited, mark: None });
    }
    window.throughput().unwrap()
}

/// Returns stalls as long as 3.5 to 100 steps, every 55 to 400 steps, at regular and irregular distances.
fn all() -> impl Iterator<Item = Stalls> {
    let sizes = [3.5, 10.0, 30.0, 60.0, 100.0].into_iter();
    let kinds = sizes.flat_map(|times| [55, 60, 150, 400].map(|distance| (times, distance)));
    kinds.flat_map(|(times, distance)| {
        [(0.0, false), (0.2, false), (1.0, false), (0.2, true)].map(|(irregularity, is_wait)| Stalls {
            times,
            distance,
            irregularity,
            is_wait,
        })
    })
}

#[test]
fn the_rate_of_a_window_is_what_was_done_in_it_however_stalls_come() {
    let mut random = Random(5);
    for stalls in all() {
        for count in [120, 250, 1000, 4000] {
            let steps = stalls.steps(count, &mut random);
            let found = throughput(&steps);
            let behind = &steps[usize::try_from(found.warmup_steps).unwrap()..];
            let done = 32.0 * behind.len() as f64 / behind.iter().map(|(seconds, _)| seconds).sum::<f64>();
            let off = found.estimate.value / done;
            // The mean begins with a whole batch, so up to a twentieth of the steps may be missing at its start.
            assert!((0.94..=1.06).contains(&off), "{stalls:?} in {count} steps: {off}, {found:?}");
            let left_out: f64 = found.outliers.values().map(|outliers| outliers.seconds).sum();
            assert!(left_out <= 0.01 * found.measured.as_secs_f64() + 1e-9, "{stalls:?}: {found:?}");
        }
    }
}

/// Returns the stalls that take a large part of the time, every sixty steps.
fn large() -> impl Iterator<Item = Stalls> {
    all().filter(|stalls| stalls.distance == 60 && [30.0, 60.0].contains(&stalls.times))
}

#[test]
fn the_interval_holds_the_true_rate() {
    const ROUNDS: usize = 40;
    let mut random = Random(6);
    for stalls in large().chain(all().filter(|stalls| stalls.distance == 150 && stalls.times == 10.0)) {
        let (mut covered, mut seconds) = (0, 0.0);
        for _ in 0..ROUNDS {
            let estimate = throughput(&stalls.steps(1800, &mut random)).estimate;
            covered += usize::from((estimate.low.unwrap()..=estimate.high.unwrap()).contains(&stalls.rate()));
            seconds += estimate.value.recip() / ROUNDS as f64;
        }
        assert!(covered * 100 >= ROUNDS * 90, "{stalls:?}: {covered} of {ROUNDS}");
        let off = seconds.recip() / stalls.rate();
        assert!((off - 1.0).abs() < 0.03, "{stalls:?}: the mean is {off} of the true rate");
    }
}

#[test]
fn a_probe_goes_on_until_it_has_seen_stalls_that_come_each_sixty_steps() {
    const ROUNDS: usize = 8;
    let mut random = Random(7);
    for stalls in large().filter(|stalls| stalls.irregularity < 1.0) {
        for _ in 0..ROUNDS {
            let steps = stalls.steps(1500, &mut random);
            let estimate = run_probe(&steps.iter().map(|(seconds, _)| *seconds).collect::<Vec<f64>>());
            let off = estimate.value * 32.0 / stalls.rate();
            assert!(off < 1.15, "{stalls:?}: {off}");
        }
    }
}
