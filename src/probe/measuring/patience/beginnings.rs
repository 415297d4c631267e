//! Tests of probes that begin slowly, such as those of models that are compiled, and of scripts that leave training.

use super::super::window::StepReport;
use super::tests::{patience_with, run, run_marked, times};
use super::*;
use crate::probe::stats::simulation::{Process, Random};

/// Steps of 50 ms that compile, then steps of 5 ms, as a model has that is faster once it is compiled.
fn compiled(first: usize) -> impl Iterator<Item = (f64, Option<&'static str>)> {
    std::iter::repeat_n((0.05, Some("recompile")), first).chain(std::iter::repeat_n((0.005, None), 4000))
}

#[test]
fn compilations_are_neither_measured_nor_compared() {
    let rival = Some(Estimate::interval(66.0, 65.0, 67.0));
    let (decided, window) = run_marked(patience_with(&Limits::default(), rival), compiled(300));
    let throughput = window.throughput().unwrap();
    assert_eq!(decided, Sufficiency::Enough);
    assert!((throughput.estimate.value - 200.0).abs() < 4.0 && throughput.compiling_steps == 300, "{throughput:?}");
    let (decided, window) = run_marked(patience_with(&Limits::default(), rival), compiled(1000));
    assert_eq!((decided, window.throughput()), (Sufficiency::StillCompiling, None));
    assert!((20.0..20.4).contains(&window.compiling().unwrap().seconds), "{:?}", window.compiling());
}

#[test]
fn a_short_probe_gives_compilations_as_much_time() {
    let short = Effort::Screen { one_in: std::num::NonZeroU32::new(10).unwrap() };
    let (decided, window) = run_marked(Patience::within(&Limits::default(), short), compiled(300));
    assert_eq!(decided, Sufficiency::Enough);
    assert!(window.throughput().unwrap().estimate.value > 190.0);
}

#[test]
fn a_process_that_only_warms_up_may_compile_for_the_whole_probe() {
    let limits = Limits { measure_time: Duration::from_secs(1), precision: Some(1.0), ..Limits::default() };
    let (decided, window) = run_marked(patience_with(&limits, None), compiled(300));
    assert_eq!(decided, Sufficiency::Enough);
    assert!(window.throughput().unwrap().estimate.value > 190.0);
}

#[test]
fn a_rate_that_rises_is_not_given_up() {
    let rises = (0..400).map(|at| 0.2 / (1.0 + f64::from(at) / 100.0)).collect::<Vec<f64>>();
    let rival = Some(Estimate::interval(40.0, 39.0, 41.0));
    let (decided, throughput) = run(patience_with(&Limits::default(), rival), &rises);
    assert_ne!(decided, Sufficiency::Loses, "{throughput:?}");
}

#[test]
fn a_second_look_comes_a_second_later() {
    let rival = Some(Estimate::interval(1000.0, 990.0, 1010.0));
    let slow = times(Process::Independent(0.05), 0.005, &mut Random(8));
    let (decided, throughput) = run(patience_with(&precise(), rival), &slow);
    assert_eq!(decided, Sufficiency::Loses);
    assert!(throughput.ended >= Duration::from_millis(1500), "{throughput:?}");
    // Other work on the machine for a second and a half, then steps that are as fast.
    let stretch = [0.02; 75].into_iter().chain([0.001; 15_000]).collect::<Vec<f64>>();
    assert_ne!(run(patience_with(&precise(), rival), &stretch).0, Sufficiency::Loses);
}

/// Limits with which no interval is narrow enough.
fn precise() -> Limits {
    Limits { precision: Some(1e-9), ..Limits::default() }
}

#[test]
fn a_script_has_left_training_after_the_time_for_measuring_or_many_steps() {
    let watched = |limits: &Limits, seconds: f64, count: usize| {
        let (mut window, mut patience) = (Window::default(), patience_with(limits, None));
        for at in 1..=count {
            let at = Duration::from_secs_f64(seconds * at as f64);
            window.push(StepReport { at, seconds, amount: 1.0, waited: 0.0, mark: None });
        }
        patience.look(&window);
        patience
    };
    let leaves_after = |patience: &Patience| (1..600).find(|&at| patience.has_left(Duration::from_secs(at)));
    let short = Limits { measure_time: Duration::from_secs(1), ..Limits::default() };
    assert_eq!(leaves_after(&watched(&Limits::default(), 0.01, 30)), Some(10), "the time for measuring");
    assert_eq!(leaves_after(&watched(&short, 0.01, 30)), Some(3), "never sooner");
    assert_eq!(leaves_after(&watched(&short, 0.4, 30)), Some(8), "twenty steps");
    assert_eq!(leaves_after(&watched(&short, 0.01, 5)), None, "too few steps");
    let mut waits = watched(&short, 0.01, 30);
    waits.wait_on(Duration::from_secs(3));
    assert_eq!(leaves_after(&waits), Some(6), "the next look");
    assert_eq!(leaves_after(&Patience { may_leave: false, ..watched(&short, 0.01, 30) }), None);
}
