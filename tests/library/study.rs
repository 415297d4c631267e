//! Conclusions about the best config from trials: ranking, ties, and the speedup.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use gputune::model::{
    Config, Constraint, Direction, Estimate, Failure, InRound, Measurement, Memory, MemoryUse, Objective, OnTie,
    Outcome, Parameter, Purpose, Settings, Space, Trial,
};
use gputune::search::{Best, StopReason, Study, Verdict};

fn space() -> Space {
    Space::new([Parameter::powers_of_two("batch_size", 8, 64), Parameter::range("workers", 0, 8, 2)]).unwrap()
}

fn config(batch: i64, workers: i64) -> Config {
    let settings: Settings = [("batch_size", batch), ("workers", workers)].into_iter().collect();
    space().locate(&settings).unwrap()
}

fn speed(value: f64) -> Outcome {
    Outcome::Measured(Measurement { throughput: Some(Estimate::point(value)), ..Measurement::default() })
}

fn speed_within(value: f64, half: f64) -> Outcome {
    let throughput = Some(Estimate::interval(value, value - half, value + half));
    Outcome::Measured(Measurement { throughput, ..Measurement::default() })
}

fn with_memory(value: f64, peak: u64) -> Outcome {
    let throughput = Some(Estimate::point(value));
    Outcome::Measured(Measurement {
        throughput,
        memory: MemoryUse { peak_bytes: Some(peak), ..Default::default() },
        ..Measurement::default()
    })
}

fn loss(value: f64) -> Outcome {
    let metrics = [("loss".to_owned(), value)].into();
    Outcome::Measured(Measurement { metrics, ..Measurement::default() })
}

fn crash() -> Outcome {
    Outcome::Crashed(Failure::new("exit code 1"))
}

use Purpose::{Baseline, Round, Search};

/// Returns the outcome of a config's next round; every second round is another process. A rate with an interval has noise.
fn in_round(outcome: &Outcome, number: u32) -> Outcome {
    let mut outcome = outcome.clone();
    if let Outcome::Measured(run) = &mut outcome {
        let noisy = run.throughput.filter(|rate| rate.low.is_some()).map(|rate| rate.value);
        let slices = noisy.map(|rate| vec![rate * 0.998, rate * 1.002]).unwrap_or_default();
        run.round = Some(InRound { number, process: number % 2, slices });
    }
    outcome
}

/// Returns a study of trials in this order; the baseline is the config of the first trial with that purpose.
fn study(objective: Objective, trials: &[(Purpose, (i64, i64), Outcome)]) -> Study {
    let baseline = trials.iter().find(|(purpose, ..)| *purpose == Baseline);
    let round = |at: usize| {
        let (_, config, _) = &trials[at];
        let own = trials[..=at].iter().filter(|(purpose, other, _)| *purpose == Round && other == config);
        u32::try_from(own.count()).unwrap()
    };
    let trials = (1..).zip(trials.iter().enumerate()).map(|(number, (at, (purpose, (batch, workers), outcome)))| {
        let outcome = if *purpose == Round { in_round(outcome, round(at)) } else { outcome.clone() };
        let trial = Trial::new(number, *purpose, config(*batch, *workers), outcome);
        Trial { elapsed: Duration::from_secs(1), ..trial }
    });
    let baseline = baseline.map(|(_, (batch, workers), _)| config(*batch, *workers));
    Study { objective, baseline, stopped: StopReason::SpaceExhausted, ..Study::new(space(), trials) }
}

fn fastest(trials: &[(Purpose, (i64, i64), Outcome)]) -> Study {
    study(Objective::default(), trials)
}

fn winner(study: &Study) -> Settings {
    study.settings(&study.best().unwrap().winner.config)
}

fn assert_winner(study: &Study, batch: i64, workers: i64) {
    assert_eq!(winner(study).line(), format!("batch_size={batch} workers={workers}"));
}

#[test]
fn without_a_feasible_trial_there_is_no_best() {
    assert!(fastest(&[]).best().is_none());
    let failed = Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("full") };
    let study = fastest(&[(Baseline, (8, 0), crash()), (Search, (16, 0), failed), (Search, (8, 2), speed(f64::NAN))]);
    assert!(study.best().is_none() && study.ranking().is_empty());
}

#[test]
fn the_largest_metric_wins_and_the_speedup_is_against_the_baseline() {
    let study =
        fastest(&[(Baseline, (8, 0), speed(10.0)), (Search, (16, 0), speed(30.0)), (Search, (32, 0), speed(20.0))]);
    let best = study.best().unwrap();
    assert_winner(&study, 16, 0);
    assert!((best.unproven_speedup.unwrap().value - 3.0).abs() < 1e-12);
    assert_eq!((best.verdict, best.speedup), (Verdict::Unproven, None), "nothing was measured again");
    assert!(best.ties.is_empty());
    let order: Vec<f64> = study.ranking().iter().map(|entry| entry.estimate.value).collect();
    assert_eq!(order, [30.0, 20.0, 10.0]);
}

#[test]
fn the_least_cost_wins_where_less_is_better() {
    let objective = Objective::new("loss", Direction::Minimize);
    let study =
        study(objective, &[(Baseline, (8, 0), loss(4.0)), (Search, (16, 0), loss(1.0)), (Search, (32, 0), loss(2.0))]);
    assert_winner(&study, 16, 0);
    assert!((study.best().unwrap().unproven_speedup.unwrap().value - 4.0).abs() < 1e-12, "four times less");
}

#[test]
fn a_config_that_failed_when_it_was_repeated_is_not_feasible() {
    let trials = [
        (Baseline, (8, 0), speed(10.0)),
        (Search, (64, 0), speed(99.0)),
        (Search, (16, 0), speed(20.0)),
        (Round, (64, 0), crash()),
        (Round, (16, 0), speed(19.0)),
        (Round, (8, 0), speed(10.0)),
        (Round, (64, 0), speed(99.0)),
        (Round, (16, 0), speed(19.5)),
        (Round, (8, 0), speed(10.1)),
    ];
    let study = fastest(&trials);
    assert_winner(&study, 16, 0);
    assert!(study.ranking().iter().all(|entry| entry.config != config(64, 0)));
}

#[test]
fn a_disturbed_repetition_says_nothing() {
    let disturbed = Outcome::Disturbed(Failure::new("somebody else used the device"));
    let study = fastest(&[
        (Search, (8, 0), speed(10.0)),
        (Search, (16, 0), speed(20.0)),
        (Round, (16, 0), disturbed.clone()),
        (Round, (16, 0), speed(19.0)),
        (Search, (32, 0), disturbed),
    ]);
    assert_winner(&study, 16, 0);
    assert_eq!(study.ranking().len(), 2);
}

/// Two configs in three rounds with a noise of a few percent, and a third config far behind.
fn noisy(second: f64) -> Vec<(Purpose, (i64, i64), Outcome)> {
    let mut trials =
        vec![(Baseline, (8, 0), speed(50.0)), (Search, (16, 8), speed(103.0)), (Search, (16, 2), speed(1.02 * second))];
    for (first, other, last) in [(0.97, 1.0, 1.03), (1.0, 1.03, 0.97), (1.03, 0.97, 1.0)] {
        trials.push((Round, (16, 8), speed(100.0 * first)));
        trials.push((Round, (16, 2), speed(second * other)));
        trials.push((Round, (8, 0), speed(50.0 * last)));
    }
    trials
}

/// Three rounds, each slower than the one before by far more than the configs differ.
#[test]
fn what_slows_the_whole_machine_from_round_to_round_cancels() {
    let mut trials =
        vec![(Baseline, (8, 0), speed(50.0)), (Search, (16, 8), speed(103.0)), (Search, (16, 2), speed(99.0))];
    for (drift, noise) in [(1.0, 1.002), (0.9, 0.999), (0.8, 0.999)] {
        trials.push((Round, (16, 8), speed_within(100.0 * drift * noise, 0.5)));
        trials.push((Round, (16, 2), speed_within(93.0 * drift, 0.5)));
        trials.push((Round, (8, 0), speed_within(50.0 * drift, 0.5)));
    }
    let study = fastest(&trials);
    assert_winner(&study, 16, 8);
    let best = study.best().unwrap();
    assert!(best.ties.is_empty(), "7 % apart in every round");
    let speedup = best.speedup.unwrap();
    assert!((speedup.value - 2.0).abs() < 0.01, "{speedup:?}");
    assert!(speedup.low.unwrap() > 1.9 && speedup.high.unwrap() < 2.1, "{speedup:?}");
}

#[test]
fn of_configs_within_the_noise_the_one_with_fewer_workers_is_named() {
    let study = fastest(&noisy(99.0));
    let best = study.best().unwrap();
    assert_winner(&study, 16, 2);
    assert_eq!(best.ties.iter().map(|tie| tie.config.clone()).collect::<Vec<_>>(), [config(16, 8)]);
    let fastest_named = Study { objective: Objective::default().on_tie(OnTie::Fastest), ..fastest(&noisy(99.0)) };
    assert_winner(&fastest_named, 16, 8);
}

#[test]
fn configs_beyond_the_noise_are_no_ties() {
    let study = fastest(&noisy(80.0));
    assert_winner(&study, 16, 8);
    assert!(study.best().unwrap().ties.is_empty());
}

#[test]
fn the_speedup_has_an_interval_around_it() {
    let Best { speedup, winner, .. } = fastest(&noisy(80.0)).best().unwrap();
    let speedup = speedup.unwrap();
    assert!((speedup.value - 2.0).abs() < 1e-9);
    assert!(speedup.low.unwrap() < 2.0 && 2.0 < speedup.high.unwrap());
    assert!(speedup.low.unwrap() > 1.7 && speedup.high.unwrap() < 2.3, "{speedup:?}");
    assert_eq!(winner.rounds, 3);
    assert!(winner.estimate.low.unwrap() < 100.0 && winner.estimate.high.unwrap() > 100.0);
}

#[test]
fn the_baseline_is_kept_where_nothing_beats_it_beyond_the_noise() {
    let mut trials = vec![(Baseline, (8, 0), speed(100.0)), (Search, (64, 8), speed(101.0))];
    for noise in [0.97, 1.03] {
        trials.push((Round, (8, 0), speed_within(100.0 * noise, 3.0)));
        trials.push((Round, (64, 8), speed_within(101.0 / noise, 3.0)));
    }
    let study = fastest(&trials);
    assert_winner(&study, 8, 0);
    assert_eq!(study.best().unwrap().speedup, Some(Estimate::interval(1.0, 1.0, 1.0)));
}

#[test]
fn only_a_config_of_a_round_is_named_where_there_is_one() {
    let study = fastest(&[
        (Search, (8, 0), speed(100.0)),
        (Search, (16, 4), speed(100.0)),
        (Round, (16, 4), speed(98.0)),
        (Round, (16, 4), speed(102.0)),
    ]);
    assert_winner(&study, 16, 4);
}

#[test]
fn a_flattering_first_measurement_does_not_count_once_there_are_rounds() {
    let study = fastest(&[
        (Search, (16, 0), speed(150.0)),
        (Search, (32, 0), speed(120.0)),
        (Round, (16, 0), speed(100.0)),
        (Round, (16, 0), speed(101.0)),
        (Round, (32, 0), speed(119.0)),
        (Round, (32, 0), speed(120.0)),
    ]);
    assert_winner(&study, 32, 0);
}

#[test]
fn less_memory_comes_before_fewer_workers_and_fewer_changes_come_last() {
    let by_memory =
        fastest(&[(Search, (8, 0), with_memory(10.0, 2_000_000)), (Search, (64, 8), with_memory(10.0, 1_000_000))]);
    assert_winner(&by_memory, 64, 8);
    let by_size =
        fastest(&[(Search, (8, 8), with_memory(10.0, 1_000_000)), (Search, (8, 2), with_memory(10.0, 1_000_000))]);
    assert_winner(&by_size, 8, 2);
    let unknown = fastest(&[(Search, (64, 8), speed(10.0)), (Search, (8, 0), with_memory(10.0, 1_000_000))]);
    assert_winner(&unknown, 8, 0);
}

#[test]
fn of_equally_large_configs_the_one_with_fewer_changes_is_named() {
    let space = || Space::new([Parameter::range("a", 0, 2, 1), Parameter::range("b", 0, 2, 1)]).unwrap();
    let at = |a: i64, b: i64| space().locate(&[("a", a), ("b", b)].into_iter().collect()).unwrap();
    let trial = |number, config, value| Trial::new(number, Search, config, speed(value));
    let trials = [trial(1, at(0, 2), 1.0), trial(2, at(1, 1), 5.0), trial(3, at(2, 0), 5.0)];
    let study = Study { baseline: Some(at(2, 2)), ..Study::new(space(), trials) };
    assert_eq!(winner(&study).line(), "a=2 b=0");
}

#[test]
fn overlapping_intervals_are_ties_where_there_was_no_round() {
    let cheaper = |speed| {
        fastest(&[
            (Search, (16, 8), speed_within(100.0, 3.0)),
            (Search, (16, 0), speed_within(speed, 3.0)),
            (Search, (8, 0), speed_within(80.0, 3.0)),
        ])
    };
    let study = cheaper(98.5);
    assert_winner(&study, 16, 0);
    assert_eq!(study.best().unwrap().ties.len(), 1);
    // A cheaper config that probably costs 4% is a tie, but is not named.
    let study = cheaper(96.0);
    assert_winner(&study, 16, 8);
    assert_eq!(study.best().unwrap().ties.len(), 1);
}

/// The best of two configs after rounds with these rates of the baseline and the other config.
fn after_rounds(rates: &[(f64, f64)]) -> Best {
    let mut trials = vec![(Baseline, (8, 0), speed_within(100.0, 30.0)), (Search, (16, 0), speed_within(130.0, 30.0))];
    for (baseline, other) in rates {
        trials.push((Round, (8, 0), speed_within(*baseline, 5.0)));
        trials.push((Round, (16, 0), speed_within(*other, 5.0)));
    }
    fastest(&trials).best().unwrap()
}

#[test]
fn a_config_that_won_every_round_is_not_called_as_fast_as_the_baseline() {
    let best = after_rounds(&[(60.0, 150.0), (100.0, 105.0)]);
    assert_eq!((best.verdict, best.winner.config), (Verdict::TiedWithBaseline, config(8, 0)));
    let ahead = best.ahead.unwrap();
    assert_eq!((ahead.config, ahead.rounds), (config(16, 0), 2));
    assert!(ahead.speedup.value > 1.5 && ahead.speedup.low.unwrap() < 1.0, "{:?}", ahead.speedup);
    assert_eq!(after_rounds(&[(60.0, 150.0), (100.0, 105.0), (100.0, 99.0)]).ahead, None, "it lost one");
}

#[test]
fn a_config_that_won_three_rounds_clearly_is_named_however_far_they_are_apart() {
    let best = after_rounds(&[(60.0, 360.0), (100.0, 130.0), (90.0, 117.0)]);
    assert_eq!((best.verdict, best.speedup, best.winner.config), (Verdict::Unproven, None, config(16, 0)));
    assert!(best.unproven_speedup.unwrap().low.unwrap() < 1.0);
}

/// Returns the outcome of a probe beside other programs.
fn beside_others(mut outcome: Outcome) -> Outcome {
    if let Outcome::Measured(run) = &mut outcome {
        run.machine.foreign_cpu_share = Some(0.5);
    }
    outcome
}

#[test]
fn a_speedup_holds_without_other_programs_too() {
    // Beside another program, the baseline is 20 times slower, and the other config hardly is.
    let after = |alone: f64| {
        let other = beside_others(speed_within(alone, 0.01));
        let probes = [(Baseline, (8, 0), speed_within(19_000.0, 0.01)), (Search, (16, 0), other)];
        let beside = [(800.0, 21_000.0), (850.0, 22_000.0), (780.0, 20_000.0), (810.0, 21_500.0)];
        let rounds = beside.iter().flat_map(|(baseline, other)| {
            let of = |config, rate| (Round, config, speed_within(rate, 0.01));
            [of((8, 0), *baseline), of((16, 0), *other)]
        });
        fastest(&probes.into_iter().chain(rounds).collect::<Vec<_>>()).best().unwrap()
    };
    let best = after(38_000.0);
    let speedup = best.speedup.unwrap();
    assert_eq!(best.verdict, Verdict::Faster);
    assert!(speedup.value > 20.0 && (speedup.low.unwrap() - 2.0).abs() < 0.01, "{speedup:?}");
    let of_slice = after(15_000.0).speedup.unwrap().low.unwrap();
    assert!((of_slice - 22_000.0 / 19_000.0).abs() < 0.01, "a slice was faster than the probe: {of_slice}");
    let slower = fastest(&[
        (Baseline, (8, 0), speed_within(40_000.0, 0.01)),
        (Search, (16, 0), beside_others(speed_within(15_000.0, 0.01))),
        (Round, (8, 0), speed_within(800.0, 0.01)),
        (Round, (16, 0), speed_within(21_000.0, 0.01)),
        (Round, (8, 0), speed_within(810.0, 0.01)),
        (Round, (16, 0), speed_within(20_000.0, 0.01)),
    ]);
    let best = slower.best().unwrap();
    assert_eq!(best.verdict, Verdict::TiedWithBaseline);
    assert!(best.ahead.unwrap().speedup.low.unwrap() < 1.0, "only beside other programs");
}

#[test]
fn a_speedup_that_falls_from_round_to_round_is_that_of_the_last_rounds() {
    let rates = |change: f64| -> Vec<(f64, f64)> {
        (0..12).map(|round| (100.0, 156.0 + change * (f64::from(round) - 5.5))).collect()
    };
    let best = after_rounds(&rates(-8.0));
    assert_eq!((best.verdict, best.winner.config), (Verdict::Faster, config(16, 0)));
    let trend = best.trend.unwrap();
    assert_eq!((trend.config, trend.rounds, trend.counted), (config(16, 0), 12, 6));
    assert!(trend.from > 1.9 && trend.to < 1.21, "{} to {}", trend.from, trend.to);
    assert!((best.speedup.unwrap().value - 1.32).abs() < 0.01, "{:?}", best.speedup);
    let steady = after_rounds(&rates(0.0));
    assert_eq!(steady.trend, None);
    assert!((steady.speedup.unwrap().value - 1.56).abs() < 0.01, "{:?}", steady.speedup);
}

#[test]
fn a_config_whose_interval_is_above_one_is_named_though_two_rounds_are_no_proof() {
    let best = after_rounds(&[(60.0, 120.0), (100.0, 205.0)]);
    assert_eq!((best.verdict, best.speedup, best.winner.config), (Verdict::Unproven, None, config(16, 0)));
    assert!(best.unproven_speedup.unwrap().low.unwrap() > 1.0);
    assert!((best.lowest_speedup.unwrap() - 2.0).abs() < 1e-9);
    assert_eq!(best.ahead, None);
}

#[test]
fn constraints_decide_before_speed_does() {
    let objective = Objective::default().constraint(Constraint::parse("peak_memory < 1MiB").unwrap());
    let study = study(
        objective,
        &[
            (Search, (64, 0), with_memory(99.0, 2 << 20)),
            (Search, (8, 0), with_memory(10.0, 1000)),
            (Search, (16, 0), speed(50.0)),
        ],
    );
    assert_winner(&study, 8, 0);
}

/// Asserts that no number of a study is NaN.
fn assert_all_numbers(study: &Study) {
    let is_number = |estimate: &Estimate| {
        [Some(estimate.value), estimate.low, estimate.high].into_iter().flatten().all(f64::is_finite)
            && estimate.low.is_none_or(|low| low <= estimate.value)
            && estimate.high.is_none_or(|high| high >= estimate.value)
    };
    let best = study.best().unwrap();
    assert!(study.ranking().iter().all(|entry| is_number(&entry.estimate)), "{:?}", study.ranking());
    assert!(best.speedup.as_ref().is_none_or(is_number), "{:?}", best.speedup);
}

#[test]
fn negative_and_zero_metrics_are_compared_and_have_no_speedup() {
    let objective = |direction| Objective::new("loss", direction);
    for (direction, better, worse) in [
        (Direction::Maximize, -1.0, -5.0),
        (Direction::Maximize, 0.0, -5.0),
        (Direction::Maximize, 5.0, 0.0),
        (Direction::Minimize, -5.0, -1.0),
        (Direction::Minimize, 0.0, 1.0),
        (Direction::Minimize, -1.0, 1.0),
    ] {
        let mut trials = vec![(Baseline, (8, 0), loss(worse)), (Search, (16, 0), loss(better))];
        let once = study(objective(direction), &trials);
        assert_winner(&once, 16, 0);
        assert_all_numbers(&once);
        for noise in [-0.01, 0.01] {
            trials.push((Round, (8, 0), loss(worse + noise)));
            trials.push((Round, (16, 0), loss(better + noise)));
        }
        let confirmed = study(objective(direction), &trials);
        assert_winner(&confirmed, 16, 0);
        assert_all_numbers(&confirmed);
        assert_eq!(confirmed.best().unwrap().speedup, None, "{worse} to {better}");
        assert!(confirmed.best().unwrap().ties.is_empty());
    }
}

#[test]
fn extreme_metrics_stay_numbers() {
    let values = [f64::MAX, f64::MIN_POSITIVE, 1e-320, 1e300, 1.0];
    for a in values {
        for b in values {
            let trials = [
                (Baseline, (8, 0), speed(a)),
                (Search, (16, 0), speed(b)),
                (Round, (8, 0), speed(b)),
                (Round, (16, 0), speed(a)),
                (Round, (8, 0), speed(a)),
            ];
            for count in 2..=trials.len() {
                assert_all_numbers(&fastest(&trials[..count]));
            }
        }
    }
}

#[test]
fn exactly_repeated_numbers_tie_with_the_same_number() {
    for value in [0.1, 0.7, 3.3, 1e9 / 3.0] {
        let mut trials = vec![(Search, (16, 8), speed(value)), (Search, (16, 0), speed(value))];
        for _ in 0..3 {
            trials.push((Round, (16, 8), speed(value)));
        }
        trials.push((Round, (16, 0), speed(value)));
        assert_winner(&fastest(&trials), 16, 0);
    }
}
