//! A search ends if there is little to gain, and a restart does not continue it.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use gputune::model::{Estimate, Measurement, Outcome, Parameter, Progress, Purpose, Space, Spent};
use gputune::probe::{Holds, Job, ProbeError, Prober, Replay, Table};
use gputune::search::{
    Budget, Fingerprint, Header, Journal, StopReason, Strategy, Study, Tuner,
    strategy::{self, Proposal, View},
};

/// A table of 200 configs. Only the batch matters until it is large enough.
fn table() -> (Space, Replay) {
    let mut text = "batch_size,color,shape,status,value\n".to_owned();
    for batch in 1..=10 {
        for rest in 0..20 {
            let speed = f64::from(batch.min(6)) * 100.0;
            text += &format!("{batch},{},{},ok,{speed}\n", rest % 4, rest / 4);
        }
    }
    Table::from_csv(text.as_bytes()).unwrap().into_replay(&[]).unwrap()
}

fn searched(journal: &Path, budget: Budget) -> Study {
    let (space, replay) = table();
    let nothing = || serde_json::Value::Null;
    let header =
        Header::new(Fingerprint { device: String::new(), driver: String::new(), command: nothing(), space: nothing() });
    let (journal, recovered) = Journal::open(journal, &header, &space).unwrap();
    Tuner::with_prober(space, replay).budget(budget).journal(journal, recovered).run(|_| ()).unwrap()
}

#[test]
fn a_search_with_little_to_gain_ends_and_has_ended_when_it_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let budget = Budget { probes: 100, rounds: 0, ..Budget::default() };
    let whole = searched(&journal, budget);
    let trials = whole.history.trials().len();
    assert_eq!(whole.stopped, StopReason::LittleToGain, "after {trials}");
    assert!((10..60).contains(&trials), "{trials}");
    assert_eq!(searched(&journal, budget).history.trials().len(), trials);

    // A search that was stopped earlier continues to the same end.
    let parts = folder.path().join("parts.jsonl");
    for probes in [5, 12, 100] {
        let study = searched(&parts, Budget { probes, ..budget });
        if probes == 100 {
            assert_eq!((study.stopped, study.history.trials().len()), (StopReason::LittleToGain, trials));
        }
    }
}

#[test]
fn nothing_ends_a_search_that_wants_no_least_gain() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget { probes: 60, rounds: 0, least_gain: 0.0, ..Budget::default() };
    let study = searched(&folder.path().join("journal.jsonl"), budget);
    assert_eq!((study.stopped, study.history.trials().len()), (StopReason::ProbesSpent, 60));
}

/// Expects the same gain of every proposal.
struct Expects(f64);

impl Strategy for Expects {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        let next = (strategy::strategy("grid").unwrap().build)().propose(view)?;
        Some(Proposal { gain: Some(self.0), ..next })
    }
}

/// Measures the same rate for every config, within this share.
struct Within(f64);

impl Prober for Within {
    fn probe(&mut self, _: &Job, _: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Outcome, ProbeError> {
        let throughput = Some(Estimate::interval(100.0, 100.0 * (1.0 - self.0), 100.0 * (1.0 + self.0)));
        Ok(Outcome::Measured(Measurement { throughput, ..Measurement::default() }))
    }
}

#[test]
fn a_gain_that_measurements_cannot_tell_from_none_ends_a_search_and_it_says_so() {
    let stopped = |gain, noise, least_gain| {
        let space = Space::new([Parameter::range("x", 0, 99, 1)]).unwrap();
        let budget = Budget { probes: 40, rounds: 0, least_gain, ..Budget::default() };
        Tuner::with_prober(space, Within(noise))
            .with_strategy(Expects(gain))
            .budget(budget)
            .run(|_| ())
            .unwrap()
            .stopped
    };
    assert_eq!(stopped(0.02, 0.01, 0.01), StopReason::ProbesSpent);
    assert_eq!(stopped(0.02, 0.06, 0.01), StopReason::GainWithinNoise);
    assert_eq!(stopped(0.001, 0.06, 0.01), StopReason::LittleToGain);
    assert_eq!(stopped(0.02, 0.06, 0.0), StopReason::ProbesSpent, "zero never ends a search");
    assert!(StopReason::GainWithinNoise.to_string().contains("less than the noise"));
}

/// Starts a process for each config of a round.
struct HoldsNothing;

impl Prober for HoldsNothing {
    fn probe(&mut self, job: &Job, _: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Outcome, ProbeError> {
        std::thread::sleep(START);
        let x = job.settings.iter().find_map(|(_, value)| value.as_f64()).unwrap();
        let throughput = Some(Estimate::interval(100.0 * x, 99.0 * x, 101.0 * x));
        let spent = Some(Spent { starting_s: START.as_secs_f64(), ..Spent::default() });
        Ok(Outcome::Measured(Measurement { throughput, spent, ..Measurement::default() }))
    }

    fn holds(&self) -> Holds {
        Holds::Nothing
    }
}

const START: Duration = Duration::from_millis(700);

#[test]
fn a_last_round_has_the_baseline_and_the_fastest_if_there_is_no_time_to_start_more() {
    // On a busy machine a start may take longer, so that the time ends sooner.
    let mut tries = (0..5).map(|_| compared_at_the_end());
    let is_right = |compared: &Vec<String>| compared.starts_with(&["x=1", "x=3"].map(str::to_owned));
    let compared = tries.find(is_right).expect("a round of the baseline and the fastest");
    assert!(!compared.contains(&"x=2".to_owned()), "{compared:?}");
}

/// Returns the configs of the rounds, in order.
fn compared_at_the_end() -> Vec<String> {
    // Three probes and a round of two processes take five starts, and two slices as long as a start. Another process does not fit.
    let space = Space::new([Parameter::range("x", 1, 3, 1)]).unwrap();
    let budget = Budget { probes: 3, time: START * 8, ..Budget::default() };
    let baseline = [("x", 1)].into_iter().collect();
    let tuner = Tuner::with_prober(space, HoldsNothing).budget(budget).baseline(&baseline).unwrap();
    let study = tuner.with_strategy(Expects(0.5)).run(|_| ()).unwrap();
    let rounds = study.history.trials().iter().filter(|trial| trial.purpose == Purpose::Round);
    rounds.map(|trial| study.settings(&trial.config).line()).collect()
}
