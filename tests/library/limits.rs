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

/// Asserts that one of several attempts has no fault: a busy machine may stand still for seconds.
fn assert_once(fault: impl Fn() -> Option<String>) {
    const TRIES: usize = 5;
    let faults: Vec<String> = (0..TRIES).map_while(|_| fault()).collect();
    assert!(faults.len() < TRIES, "{faults:#?}");
}

#[test]
fn a_search_ends_before_its_allocation_does_and_goes_on_in_another() {
    assert_once(fault_with_allocations);
}

fn fault_with_allocations() -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let mut known = 0;
    for _ in 0..2 {
        let (begin, mut remarks) = (Instant::now(), Vec::new());
        let study = search(&journal, BUDGET, 2, Some(Duration::from_millis(2500)), &mut remarks);
        let (took, count) = (begin.elapsed(), study.history.searched().count());
        assert_eq!(study.stopped, StopReason::AllocationEnds);
        assert!(remarks.iter().any(|text| text.contains("the allocation ends in")), "{remarks:?}");
        let is_confirmed = study.best().is_some_and(|best| best.winner.rounds > 0);
        // 250 ms more: processes of a busy machine end late.
        if took > Duration::from_millis(2750) || count <= known + 2 || !is_confirmed {
            return Some(format!("{took:?}, {known} trials and then {count}, confirmed: {is_confirmed}"));
        }
        known = count;
    }
    let study = search(&journal, BUDGET, 2, Some(Duration::ZERO), &mut Vec::new());
    assert_eq!((study.stopped, study.history.searched().count()), (StopReason::AllocationEnds, known));
    None
}

#[test]
fn gpu_time_is_that_of_all_slots_and_counts_earlier_runs() {
    for slots in [1, 4] {
        assert_once(|| fault_with_gpu_time(slots));
    }
}

fn fault_with_gpu_time(slots: u32) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let spent = |study: &Study| study.history.trials().iter().map(|trial| trial.gpu_seconds(3)).sum::<f64>();
    let journal = folder.path().join("journal.jsonl");
    let budget = |seconds| Budget { gpu_time: Some(Duration::from_secs(seconds)), ..BUDGET };
    let study = search(&journal, budget(5), slots, None, &mut Vec::new());
    assert_eq!(study.stopped, StopReason::GpuTimeSpent, "{slots}");
    let (first, trials) = (spent(&study), study.history.trials().len());
    let study = search(&journal, budget(5), slots, None, &mut Vec::new());
    let more = study.history.trials().len() - trials;
    let whole = spent(&search(&journal, budget(9), slots, None, &mut Vec::new()));
    // At most half is reserved for rounds, which may need less. A second search has no time left.
    let is_right = (2.0..5.5).contains(&first) && more <= 1 && (3.6..10.5).contains(&whole);
    (!is_right).then(|| format!("{slots} slots: {first} s, {more} more trials, {whole} s"))
}
