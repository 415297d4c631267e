//! Searches in which probes are disturbed, or that end before they can compare anything.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use gputune::model::{
    Config, Estimate, Failure, Measurement, Memory, Outcome, Parameter, Purpose, Settings, Space, Trial,
};
use gputune::probe::{Job, ProbeError, Prober};
use gputune::search::{Budget, StopReason, Study, TuneError, Tuner};

/// Measures `x = 1`, and is disturbed in all other configs.
struct Disturbing;

impl Prober for Disturbing {
    fn probe(
        &mut self,
        job: &Job,
        _: &mut dyn FnMut(&gputune::model::Progress) -> std::ops::ControlFlow<()>,
    ) -> Result<Outcome, ProbeError> {
        Ok(if job.settings.integer("x") == Some(1) { measured() } else { disturbed() })
    }
}

fn measured() -> Outcome {
    let throughput = Some(Estimate::interval(100.0, 99.0, 101.0));
    Outcome::Measured(Measurement { throughput, ..Measurement::default() })
}

fn disturbed() -> Outcome {
    Outcome::Disturbed(Failure::new("heat"))
}

fn space() -> Space {
    Space::new([Parameter::range("x", 1, 3, 1)]).unwrap()
}

fn config(x: i64) -> Config {
    let settings: Settings = [("x", x)].into_iter().collect();
    space().locate(&settings).unwrap()
}

#[test]
fn a_search_whose_alternatives_are_all_disturbed_ends_with_an_error() {
    let space = Space::new([Parameter::range("x", 1, 2, 1)]).unwrap();
    let baseline: Settings = [("x", 1)].into_iter().collect();
    // A turn of a disturbed config takes six seconds.
    let budget = Budget { time: Duration::from_secs(8), rounds: 0, ..Budget::default() };
    let tuner = Tuner::with_prober(space, Disturbing).budget(budget).baseline(&baseline).unwrap();
    let error = tuner.strategy("grid").unwrap().run(|_| ()).unwrap_err();
    assert!(matches!(&error, TuneError::Disturbed(reason) if reason == "heat"), "{error}");
}

/// Returns a search with the baseline `x = 1`.
fn study(trials: &[(i64, Outcome)], stopped: StopReason) -> Study {
    let purpose = |x: i64| if x == 1 { Purpose::Baseline } else { Purpose::Search };
    let trials =
        (1..).zip(trials).map(|(number, (x, outcome))| Trial::new(number, purpose(*x), config(*x), outcome.clone()));
    let elapsed = Duration::from_secs(60);
    Study { baseline: Some(config(1)), stopped, elapsed, ..Study::new(space(), trials) }
}

#[test]
fn a_search_that_compared_nothing_cannot_tell() {
    use StopReason::{AllocationEnds, LittleToGain, ProbesSpent, SpaceExhausted, TimeSpent};
    let lack = || Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("out of memory") };
    let cannot_tell = |trials: &[(i64, Outcome)], stopped| study(trials, stopped).cannot_tell();
    for stopped in [TimeSpent, AllocationEnds, SpaceExhausted] {
        assert!(cannot_tell(&[], stopped), "no probe ended: {stopped}");
        assert!(cannot_tell(&[(2, measured()), (3, measured())], stopped), "the baseline is missing: {stopped}");
        assert!(!cannot_tell(&[(1, measured()), (2, lack())], stopped), "the alternative failed: {stopped}");
        assert!(!cannot_tell(&[(1, lack()), (2, measured())], stopped), "the baseline does not fit: {stopped}");
    }
    let only_baseline = [(1, measured())];
    assert!(cannot_tell(&only_baseline, TimeSpent) && cannot_tell(&only_baseline, AllocationEnds));
    for stopped in [ProbesSpent, SpaceExhausted, LittleToGain] {
        assert!(!cannot_tell(&only_baseline, stopped), "no limit of time kept it from more: {stopped}");
    }
}
