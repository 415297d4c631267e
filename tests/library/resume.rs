//! A search with many trials in its journal continues as if it had not stopped, and computes nothing again.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gputune::model::{
    Estimate, Failure, Line, Measurement, Memory, Objective, Outcome, Parameter, Purpose, Settings, Space,
};
use gputune::probe::{Step, StepError};
use gputune::search::{
    Budget, Fingerprint, Header, Journal, Recovered, StopReason, Strategy, Study, Tuner,
    strategy::{self, Proposal, View},
};

const TRIALS: u32 = 2_000;

fn space() -> Space {
    Space::new([
        Parameter::range("batch_size", 1, 40, 1),
        Parameter::range("workers", 0, 9, 1),
        Parameter::values("layout", ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]),
    ])
    .unwrap()
}

fn header() -> Header {
    let nothing = || serde_json::Value::Null;
    Header::new(Fingerprint { device: String::new(), driver: String::new(), command: nothing(), space: nothing() })
}

/// Returns the outcome of the step: a ninth of the configs do not fit.
fn outcome(settings: &Settings) -> Outcome {
    let (batch, workers) = (settings.integer("batch_size").unwrap(), settings.integer("workers").unwrap());
    if batch > 36 {
        return Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("full") };
    }
    let speed = 100.0 + (batch * 10 - (workers - 4).pow(2)) as f64;
    let throughput = Some(Estimate::interval(speed, speed * 0.99, speed * 1.01));
    Outcome::Measured(Measurement { throughput, ..Measurement::default() })
}

/// Writes a journal of trials in the order of the strategy `random`; each trial expected this gain.
fn write_journal(path: &Path, space: &Space, expected_gain: Option<f64>) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    writeln!(file, "{}", serde_json::to_string(&header()).unwrap()).unwrap();
    let order = gputune::model::Permutation::new(space.raw_size().unwrap(), 7);
    for number in 1..=TRIALS {
        let config = space.config(order.at(u128::from(number)).unwrap()).unwrap();
        let settings = space.settings(&config);
        let outcome = outcome(&settings);
        let line = Line {
            as_it_is: None,
            trial: number,
            purpose: Purpose::Search,
            config: settings,
            why: None,
            expected_gain,
            ended_at: None,
            slot: None,
            elapsed_s: 0.1,
            outcome,
        };
        writeln!(file, "{}", serde_json::to_string(&line).unwrap()).unwrap();
    }
}

/// Counts its questions.
struct Counting {
    inner: Box<dyn Strategy>,
    asked: Arc<AtomicUsize>,
}

impl Strategy for Counting {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.inner.propose(view)
    }
}

/// Continues a journal; also returns the number of questions to the strategy.
fn resumed(path: &Path, strategy: &str, budget: Budget) -> (Study, usize) {
    let space = space();
    let (journal, recovered) = Journal::open(path, &header(), &space).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let inner = (strategy::strategy(strategy).unwrap().build)();
    let step = |settings: &Settings| -> Result<Step, StepError> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(Step::new(settings.integer("batch_size").unwrap().unsigned_abs()))
    };
    let study = Tuner::new(space, step)
        .with_strategy(Counting { inner, asked: Arc::clone(&asked) })
        .measure_time(Duration::from_millis(20))
        .budget(budget)
        .journal(journal, recovered)
        .run(|_| ())
        .unwrap();
    (study, asked.load(Ordering::Relaxed))
}

fn budget(probes: u32) -> Budget {
    Budget { probes, rounds: 0, time: Duration::from_secs(36_000), ..Budget::default() }
}

#[test]
fn thousands_of_trials_are_taken_up_again_and_nothing_is_asked_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    for strategy in ["random", "anneal", "grid"] {
        write_journal(&path, &space(), None);
        let (study, asked) = resumed(&path, strategy, budget(TRIALS));
        assert_eq!((study.history.trials().len(), study.stopped), (TRIALS as usize, StopReason::ProbesSpent));
        assert_eq!(asked, 1, "{strategy}: only for what would come next");
        let (study, asked) = resumed(&path, strategy, budget(TRIALS + 3));
        assert_eq!((study.history.trials().len(), asked), (TRIALS as usize + 3, 4), "{strategy}");
        for trial in &study.history.trials()[TRIALS as usize..] {
            let is_new = study.history.of(&trial.config).all(|other| other.number > TRIALS);
            assert!(is_new, "{strategy}: known before");
            assert!(study.settings(&trial.config).integer("batch_size").unwrap() <= 36, "{strategy}: known not to fit");
        }
    }
}

#[test]
fn what_was_expected_is_in_the_journal_and_ends_the_search_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    write_journal(&path, &space(), Some(0.0001));
    let (_, recovered): (_, Recovered) = Journal::open(&path, &header(), &space()).unwrap();
    assert_eq!(recovered.expected_gains, vec![Some(0.0001); TRIALS as usize]);
    // `random` expects no gain, which does not end a search.
    let (study, _) = resumed(&path, "random", budget(TRIALS + 1));
    assert_eq!(study.stopped, StopReason::ProbesSpent);
}

/// The walls of a history cover all its failures: implied failures are left out.
#[test]
fn of_hundreds_of_failures_those_that_say_something_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    let space = space();
    write_journal(&path, &space, None);
    let (_, recovered) = Journal::open(&path, &header(), &space).unwrap();
    let history = recovered.trials.into_iter().collect();
    let objective = Objective::default();
    let view = View::new(&space, &objective, &history, &[], None);
    let failures = history.trials().iter().filter(|trial| trial.outcome.measurement().is_none()).count();
    assert!(failures > 100, "{failures}");
    assert!(view.walls().len() <= 10, "one for each layout at most: {}", view.walls().len());
}

#[test]
fn a_measurement_before_the_search_is_the_baselines_first() {
    let space = Space::new([Parameter::values("x", [1, 2])]).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let step = move |settings: &Settings| -> Result<Step, StepError> {
        counted.fetch_add(usize::from(settings.integer("x") == Some(1)), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        Ok(Step::new(1))
    };
    let baseline = space.settings(&space.first().unwrap());
    let throughput = Some(Estimate::point(123.0));
    let measured = Measurement { throughput, unit: "samples/s".to_owned(), ..Measurement::default() };
    let study = Tuner::new(space, step)
        .budget(Budget { rounds: 0, ..budget(2) })
        .measure_time(Duration::from_millis(50))
        .baseline(&baseline)
        .unwrap()
        .baseline_measured((measured, Duration::from_secs(3)))
        .run(|_| ())
        .unwrap();
    let trials = study.history.trials();
    assert_eq!((trials.len(), trials[0].purpose, trials[0].elapsed), (2, Purpose::Baseline, Duration::from_secs(3)));
    assert_eq!(trials[0].outcome.measurement().unwrap().throughput, throughput);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "the baseline is not measured again");
}
