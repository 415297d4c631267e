//! When a search ends because there is little to gain, and that it has ended when it is started again.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use gputune::budget::{Budget, StopReason};
use gputune::journal::{Fingerprint, Header, Journal};
use gputune::probe::{Replay, Table};
use gputune::space::Space;
use gputune::study::Study;
use gputune::tuner::Tuner;

/// A table of 200 configs, in which the batch decides everything until it is large enough.
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
    let budget = Budget { probes: 100, confirmations: 0, ..Budget::default() };
    let whole = searched(&journal, budget);
    let trials = whole.history.trials().len();
    assert_eq!(whole.stopped, StopReason::LittleToGain, "after {trials}");
    assert!((10..60).contains(&trials), "{trials}");
    assert_eq!(searched(&journal, budget).history.trials().len(), trials);

    // One that was stopped earlier goes on to the same end.
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
    let budget = Budget { probes: 60, confirmations: 0, least_gain: 0.0, ..Budget::default() };
    let study = searched(&folder.path().join("journal.jsonl"), budget);
    assert_eq!((study.stopped, study.history.trials().len()), (StopReason::ProbesSpent, 60));
}
