//! Tests of probes that begin slowly, such as probes of compiled models, and of scripts that leave training.

use super::super::window::StepReport;
use super::tests::{patience_with, run_marked};
use super::*;

/// Returns steps of 50 ms that compile, then steps of 5 ms, as in a model that is faster after compilation.
fn compiled(first: usize) -> impl Iterator<Item = (f64, Option<&'static str>)> {
    std::iter::repeat_n((0.05, Some("recompile")), first).chain(std::iter::repeat_n((0.005, None), 4000))
}

#[test]
fn compilations_are_not_measured() {
    let (decided, window) = run_marked(patience_with(&Limits::default()), compiled(300));
    let throughput = window.throughput().unwrap();
    assert_eq!(decided, Sufficiency::Enough);
    assert!((throughput.estimate.value - 200.0).abs() < 4.0 && throughput.compiling_steps == 300, "{throughput:?}");
    let (decided, window) = run_marked(patience_with(&Limits::default()), compiled(1000));
    assert_eq!((decided, window.throughput()), (Sufficiency::StillCompiling, None));
    assert!((20.0..20.4).contains(&window.compiling().unwrap().seconds), "{:?}", window.compiling());
}

#[test]
fn a_short_probe_gives_compilations_as_much_time() {
    let short = Effort::Part { one_in: std::num::NonZeroU32::new(10).unwrap() };
    let (decided, window) = run_marked(Patience::within(&Limits::default(), short), compiled(300));
    assert_eq!(decided, Sufficiency::Enough);
    assert!(window.throughput().unwrap().estimate.value > 190.0);
}

#[test]
fn a_process_that_only_warms_up_may_compile_for_the_whole_probe() {
    let limits = Limits { measure_time: Duration::from_secs(1), precision: Some(1.0), ..Limits::default() };
    let (decided, window) = run_marked(patience_with(&limits), compiled(300));
    assert_eq!(decided, Sufficiency::Enough);
    assert!(window.throughput().unwrap().estimate.value > 190.0);
}

#[test]
fn a_script_has_left_training_after_the_time_for_measuring_or_many_steps() {
    let watched = |limits: &Limits, seconds: f64, count: usize| {
        let (mut window, mut patience) = (Window::default(), patience_with(limits));
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
