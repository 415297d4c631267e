//! Searches that end with the allocation, or because their GPU time is spent.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::{Duration, Instant};

use gputune::machine::Allocation;
use gputune::model::{Event, Parameter, Settings, Space};
use gputune::probe::{Step, StepError, TrainingStep};
use gputune::search::{Budget, Fingerprint, Header, Journal, StopReason, Study, Tuner};

struct Sleeps;

impl TrainingStep for Sleeps {
    fn step(&mut self, settings: &Settings) -> Result<Step, StepError> {
        std::thread::sleep(Duration::from_millis(2));
        Ok(Step::new(settings.integer("x").unwrap().unsigned_abs()))
    }
}

const BUDGET: Budget =
    Budget { probes: 1000, time: Duration::from_secs(3600), gpu_time: None, rounds: 1000, least_gain: 0.0 };

fn search(
    journal: &Path,
    budget: Budget,
    slots: u32,
    allocation: Option<Duration>,
    remarks: &mut Vec<String>,
) -> Study {
    let space = Space::new([Parameter::range("x", 1, 1000, 1)]).unwrap();
    let header = Header::new(Fingerprint {
        device: String::new(),
        driver: String::new(),
        command: serde_json::Value::Null,
        space: serde_json::Value::Null,
    });
    let (journal, recovered) = Journal::open(journal, &header, &space).unwrap();
    Tuner::slots(space, slots, |_| Sleeps)
        .budget(budget)
        .strategy("random")
        .unwrap()
        .measure_time(Duration::from_millis(60))
        .limits(gputune::probe::Limits {
            measure_time: Duration::from_millis(60),
            grace_time: Duration::from_millis(100),
            precision: Some(0.000_01),
            ..Default::default()
        })
        .compare_slots(false)
        .journal(journal, recovered)
        .allocation(allocation.and_then(Allocation::lasting))
        .whole_gpus(3)
        .run(|event| {
            if let Event::Remark { text } = event {
                remarks.push(text.to_owned());
            }
        })
        .unwrap()
}

#[test]
fn a_search_ends_before_its_allocation_does_and_goes_on_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let mut known = 0;
    for _ in 0..2 {
        let (begin, mut remarks) = (Instant::now(), Vec::new());
        let study = search(&journal, BUDGET, 2, Some(Duration::from_millis(2500)), &mut remarks);
        // 250 ms more: processes of a busy machine end late.
        assert!(begin.elapsed() < Duration::from_millis(2750), "{:?}", begin.elapsed());
        assert_eq!(study.stopped, StopReason::AllocationEnds);
        assert!(remarks.iter().any(|text| text.contains("the allocation ends in")), "{remarks:?}");
        assert!(study.history.searched().count() > known + 2, "it used the time");
        assert!(study.best().is_some_and(|best| best.winner.rounds > 0), "what leads is confirmed in time");
        known = study.history.searched().count();
    }
    let study = search(&journal, BUDGET, 2, Some(Duration::ZERO), &mut Vec::new());
    assert_eq!((study.stopped, study.history.searched().count()), (StopReason::AllocationEnds, known));
}

#[test]
fn gpu_time_is_that_of_all_slots_and_counts_earlier_runs() {
    let folder = tempfile::tempdir().unwrap();
    let spent = |study: &Study| study.history.trials().iter().map(|trial| trial.gpu_seconds(3)).sum::<f64>();
    for slots in [1, 4] {
        let journal = folder.path().join(format!("{slots}.jsonl"));
        let budget = |seconds| Budget { gpu_time: Some(Duration::from_secs(seconds)), ..BUDGET };
        let study = search(&journal, budget(5), slots, None, &mut Vec::new());
        assert_eq!(study.stopped, StopReason::GpuTimeSpent, "{slots}");
        // At most half is reserved for rounds, which may need less.
        assert!((2.0..5.5).contains(&spent(&study)), "{slots}: {}", spent(&study));
        let trials = study.history.trials().len();
        let study = search(&journal, budget(5), slots, None, &mut Vec::new());
        assert!(study.history.trials().len() <= trials + 1, "{slots}: nothing is left of it");
        let study = search(&journal, budget(9), slots, None, &mut Vec::new());
        assert!((3.6..10.5).contains(&spent(&study)), "{slots}: {}", spent(&study));
    }
}
