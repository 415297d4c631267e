//! Coverage: how often intervals hold what they promise, in simulation.

use super::*;
use crate::probe::stats::Random;

/// The probability that a 95 % interval excludes at each end.
const TAIL: f64 = 0.025;

/// A machine: how much runs differ, how precise each is, and how much the machine itself moves from round to round.
#[derive(Debug, Clone, Copy)]
struct Machine {
    between: f64,
    within: f64,
    drift: f64,
}

const MACHINES: [Machine; 6] = [
    Machine { between: 0.01, within: 0.005, drift: 0.0 },
    Machine { between: 0.03, within: 0.01, drift: 0.0 },
    Machine { between: 0.067, within: 0.01, drift: 0.0 },
    Machine { between: 0.02, within: 0.03, drift: 0.0 },
    Machine { between: 0.01, within: 0.005, drift: 0.05 },
    Machine { between: 0.03, within: 0.01, drift: 0.08 },
];

impl Machine {
    /// The rounds of some configs, whose levels are all zero.
    fn rounds(self, configs: usize, rounds: u32, random: &mut Random) -> Vec<Vec<Run>> {
        let machine: Vec<f64> = (0..rounds).map(|_| self.drift * random.normal()).collect();
        let run = |(round, machine): (u32, &f64), random: &mut Random| {
            let value = machine + self.between * random.normal() + self.within * random.normal();
            Run::alone(value, self.within, Some(round))
        };
        (0..configs).map(|_| (0..).zip(&machine).map(|at| run(at, random)).collect()).collect()
    }
}

fn share(hits: usize, of: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let share = hits as f64 / of as f64;
    share
}

/// Fourteen runs of one config: at least thirteen of fourteen intervals hold the mean of the others, and none is wider than
/// one and a half times what the spread of the runs makes necessary.
#[test]
fn an_interval_of_one_run_holds_the_mean_of_the_others() {
    const ROUNDS: usize = 300;
    let mut random = Random(1);
    for machine in MACHINES.into_iter().filter(|machine| machine.drift == 0.0) {
        let (mut held, mut widest, mut least) = (0, 0.0_f64, 14);
        for _ in 0..ROUNDS {
            let runs: Vec<Run> = machine.rounds(1, 14, &mut random).remove(0);
            let noise = RunNoise::of([runs.as_slice()], NoisePrior::RATE);
            let spread = (machine.between.powi(2) + machine.within.powi(2)).sqrt();
            let mut here = 0;
            for at in 0..runs.len() {
                let others: Vec<f64> =
                    runs.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, r)| r.value).collect();
                let again = noise.again(&runs[at..=at]).unwrap();
                let half = again.half_width(TAIL);
                here += usize::from((again.value - stats::mean(&others).unwrap()).abs() <= half);
                widest = widest.max(half / (stats::student_quantile(13, TAIL) * spread));
            }
            held += here;
            least = least.min(here);
        }
        assert!(share(held, ROUNDS * 14) >= 0.95, "{machine:?}: {held}");
        assert!(least >= 12, "{machine:?}: {least} of 14");
        // Seen from one run, those of the same config count as those of others.
        assert!(machine.between < 0.03 || widest < 2.4, "{machine:?}: {widest}");
    }
}

/// Two rounds of four configs, as a search ends: where a further run falls, and the ratio of two configs.
#[test]
fn confirmations_hold_a_further_run_and_differences_their_truth() {
    const ROUNDS: usize = 500;
    let mut random = Random(2);
    let mut steady = Vec::new();
    for machine in MACHINES {
        let (mut again, mut differences, mut half) = (0, 0, 0.0);
        for _ in 0..ROUNDS {
            let configs = machine.rounds(4, 2, &mut random);
            let noise = RunNoise::of(configs.iter().map(Vec::as_slice), NoisePrior::RATE);
            let next = machine.rounds(1, 1, &mut random)[0][0].value;
            let predicted = noise.again(&configs[0]).unwrap();
            again += usize::from((predicted.value - next).abs() <= predicted.half_width(TAIL));
            let difference = noise.difference(&configs[0], &configs[1]).unwrap();
            differences += usize::from(difference.value.abs() <= difference.half_width(TAIL));
            half += difference.half_width(TAIL) / 500.0;
        }
        assert!(half < 4.0 * machine.between.max(0.03), "{machine:?}: {half}");
        assert!(share(differences, ROUNDS) >= 0.91, "{machine:?}: {differences} differences of {ROUNDS}");
        if machine.drift == 0.0 {
            assert!(share(again, ROUNDS) >= 0.90, "{machine:?}: {again} further runs of {ROUNDS}");
            steady.push(again);
        }
    }
    assert!(share(steady.iter().sum(), steady.len() * ROUNDS) >= 0.95, "{steady:?}");
}

/// Where configs differ in how far their runs are apart, as those of training scripts do, a further run still falls into the interval
/// that was learnt of other configs, too.
#[test]
fn a_config_need_not_repeat_as_others_do() {
    const ROUNDS: usize = 400;
    const BETWEEN: f64 = 0.05;
    let mut random = Random(5);
    for degrees in [6, 11, 20] {
        let (mut held, mut all) = (0, 0);
        for _ in 0..ROUNDS {
            // A variance with so many degrees: the mean of squares of as many normal numbers, inverted.
            let mean_square =
                |random: &mut Random| (0..degrees).map(|_| random.normal().powi(2)).sum::<f64>() / f64::from(degrees);
            let spreads: Vec<f64> = (0..12).map(|_| BETWEEN / mean_square(&mut random).sqrt()).collect();
            let runs = |spread: f64, count: usize, random: &mut Random| -> Vec<Run> {
                (0..count).map(|_| Run::alone(spread * random.normal(), 0.0, None)).collect()
            };
            let of_all: Vec<Vec<Run>> = spreads
                .iter()
                .enumerate()
                .map(|(at, &spread)| runs(spread, if at < 6 { 3 } else { 1 }, &mut random))
                .collect();
            let noise = RunNoise::of(of_all.iter().map(Vec::as_slice), NoisePrior::RATE);
            for (own, &spread) in of_all.iter().zip(&spreads) {
                let (again, next) = (noise.again(own).unwrap(), runs(spread, 1, &mut random)[0].value);
                held += usize::from((again.value - next).abs() <= again.half_width(TAIL));
                all += 1;
            }
        }
        assert!(share(held, all) >= 0.935, "{degrees} degrees: {held} of {all}");
    }
}

#[test]
fn exact_numbers_stay_exact() {
    let runs = |value| vec![Run::alone(value, 0.0, None); 2];
    let (a, b) = (runs(3.0), runs(2.0));
    let noise = RunNoise::of([a.as_slice(), b.as_slice()], NoisePrior::NONE);
    let difference = noise.difference(&a, &b).unwrap();
    assert_eq!((difference.value, difference.half_width(TAIL)), (1.0, 0.0));
    assert_eq!(RunNoise::of([&a[..1]], NoisePrior::NONE).difference(&a, &b), None);
}
