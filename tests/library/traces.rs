//! The runs at the end of a search that record a few steps with the profiler.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gputune::model::{Estimate, Fact, Line, Measurement, Outcome, Parameter, Purpose, Settings, Space};
use gputune::probe::{Job, Mode, ProbeError, Prober, Watch};
use gputune::search::{Budget, Fingerprint, Header, Journal, Study, Tuner};

fn space() -> Space {
    Space::new([Parameter::values("x", [1, 2, 3])]).unwrap()
}

fn header() -> Header {
    let nothing = || serde_json::Value::Null;
    Header::new(Fingerprint { device: String::new(), driver: String::new(), command: nothing(), space: nothing() })
}

fn measured(value: f64, facts: &[(&str, Fact)]) -> Outcome {
    let mut measurement =
        Measurement { throughput: Some(Estimate::interval(value, value, value)), ..Measurement::default() };
    measurement.timing.step_seconds = Some(0.1);
    measurement.facts = facts.iter().map(|(name, fact)| ((*name).to_owned(), fact.clone())).collect();
    Outcome::Measured(measurement)
}

/// Writes a journal of all configs, each measured in this many seconds; the second is the fastest.
fn write_journal(path: &Path, elapsed_s: f64, facts: &[(&str, Fact)]) {
    let mut file = std::fs::File::create(path).unwrap();
    writeln!(file, "{}", serde_json::to_string(&header()).unwrap()).unwrap();
    for (trial, value) in [(1, 100.0), (2, 1000.0), (3, 150.0)] {
        let line = Line {
            as_it_is: None,
            trial,
            purpose: if trial == 1 { Purpose::Baseline } else { Purpose::Search },
            config: [("x", i64::from(trial))].into_iter().collect(),
            why: None,
            expected_gain: None,
            ended_at: None,
            slot: None,
            elapsed_s,
            outcome: measured(value, facts),
        };
        writeln!(file, "{}", serde_json::to_string(&line).unwrap()).unwrap();
    }
}

/// Records steps, and notes of which trials.
struct Recording(Arc<Mutex<Vec<u32>>>);

impl Prober for Recording {
    fn probe(&mut self, job: &Job, _watch: Watch<'_>) -> Result<Outcome, ProbeError> {
        assert_eq!(job.experiment.as_ref().map(|asked| asked.mode), Some(Mode::Trace));
        self.0.lock().unwrap().push(job.number);
        let file = Fact::Text(format!("logs/{}", job.number));
        Ok(measured(1.0, &[("trace.steps", Fact::Number(4.0)), ("trace.file", file), ("threads", Fact::Number(9.0))]))
    }
}

/// Continues the journal. Returns the study, the trials that were recorded, and the remarks.
fn resumed(path: &Path) -> (Study, Vec<u32>) {
    let (journal, recovered) = Journal::open(path, &header(), &space()).unwrap();
    let recorded = Arc::default();
    let baseline: Settings = [("x", 1)].into_iter().collect();
    let study = Tuner::with_prober(space(), Recording(Arc::clone(&recorded)))
        .budget(Budget { probes: 3, rounds: 0, time: Duration::from_secs(36_000), ..Budget::default() })
        .baseline(&baseline)
        .unwrap()
        .journal(journal, recovered)
        .run(|_| ())
        .unwrap();
    let recorded = recorded.lock().unwrap().clone();
    (study, recorded)
}

#[test]
fn steps_of_the_baseline_and_of_the_best_config_are_recorded_once_if_they_take_little_of_the_search() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    let trains = [("device", Fact::Text("cuda".to_owned()))];
    for (elapsed_s, facts, expected) in
        [(600.0, trains.as_slice(), vec![1, 2]), (20.0, &trains, vec![]), (600.0, &[], vec![])]
    {
        write_journal(&path, elapsed_s, facts);
        assert_eq!(resumed(&path).1, expected, "{elapsed_s} {facts:?}");
    }
    write_journal(&path, 600.0, &trains);
    resumed(&path);
    let (study, recorded) = resumed(&path);
    assert_eq!(recorded, [0_u32; 0], "known from the journal");
    let best = study.best().unwrap();
    let facts = &study.history.of(&best.winner.config).next().unwrap().outcome.measurement().unwrap().facts;
    assert_eq!((facts.number("trace.steps"), facts.text("trace.file")), (Some(4.0), Some("logs/2")));
    assert_eq!((facts.text("device"), facts.number("threads")), (Some("cuda"), None), "only of the recording");
}
