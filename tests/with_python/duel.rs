//! Two configs head to head, through the real binary, with the real torch.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gputune::model::{Config, Settings, Walk};
use gputune::probe::duel::{Duel, DuelEnd, Side, Way};
use gputune::probe::{CommandProber, Job, Prober};
use gputune::spec::Spec;

use crate::support::python::{Python, python_with};
use crate::support::{Search, gputune, stderr, stdout};

/// Each step takes as many milliseconds as `--sleep` says. With ALONE=1, a second process of the job runs out of memory.
const JOB: &str = r#"
import argparse, fcntl, os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--sleep", type=float, default=2)
args = parser.parse_args()
if os.environ.get("ALONE"):
    lock = open("lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
loader = DataLoader(TensorDataset(torch.randn(65536, 8)), args.batch, shuffle=True)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
while True:
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        time.sleep(args.sleep / 1000)
        optimizer.step()
"#;

const SPACE: &str = "[space]\nbatch = { values = [8, 16], apply = \"dataloader.batch_size\", argument = \"--batch\" }\nsleep = { values = [2, 4] }\n[baseline]\nbatch = 8\nsleep = 4\n";

fn torch() -> Option<Python> {
    python_with(&["torch"])
}

fn compare(python: &Path, step: &str, sides: [&str; 2]) -> (serde_json::Value, String) {
    let words = [python.display().to_string(), "job.py".to_owned(), "--sleep".to_owned(), "{sleep}".to_owned()];
    let search =
        Search::of_command(&words, &format!("adapter = \"torch\"\n{step}\n{SPACE}[limits]\nprobe_time = \"60s\"\n"));
    fs::write(search.folder.path().join("job.py"), JOB).unwrap();
    let mut command = Command::new(gputune());
    command.args(["compare", "spec.toml", sides[0], sides[1], "--rounds", "2", "--time", "5m", "--json"]);
    let output = command.current_dir(search.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    search.assert_no_survivors();
    (serde_json::from_str(&stdout(&output)).unwrap(), stderr(&output))
}

#[test]
fn two_scripts_take_turns_and_the_faster_is_found() {
    let Some(python) = torch() else { return };
    let (report, text) = compare(&python, "", ["sleep=2", "sleep=4"]);
    assert_eq!(report["way"], "in_turn", "{text}");
    // An interval from two rounds is wide.
    let ratio = report["ratio"]["value"].as_f64().unwrap();
    assert!((1.05..3.0).contains(&ratio), "{}", report["ratio"]);
    assert_eq!(report["blocks"].as_array().unwrap().len(), 8);
    for side in ["a", "b"] {
        let outcome = &report[side]["outcome"];
        assert_eq!((&outcome["outcome"], &outcome["samples_per_step"]), (&"measured".into(), &8.0.into()), "{outcome}");
    }
}

#[test]
fn where_two_do_not_fit_one_process_switches() {
    let Some(python) = torch() else { return };
    let (report, text) =
        compare(&python, "start = \"live\"\nenv = { ALONE = \"1\" }\nwrites = \"allow\"", ["batch=16", "baseline"]);
    assert_eq!(report["way"], "switched", "{text}");
    assert!(text.contains("processes cannot train in turn: B ended next to A as out of memory"), "{text}");
    let ratio = report["ratio"]["value"].as_f64().unwrap();
    assert!((1.1..4.0).contains(&ratio), "twice the samples in a step of the same length: {}", report["ratio"]);
    for (side, batch) in [("a", 16.0), ("b", 8.0)] {
        assert_eq!(report[side]["outcome"]["samples_per_step"], batch);
        assert_eq!(report[side]["outcome"]["is_live"], true);
    }
}

/// A prober that has forked before forks both configs.
#[test]
fn both_are_forked_where_forks_measure_the_same() {
    let Some(python) = torch() else { return };
    let words = [python.display().to_string(), "job.py".to_owned(), "--sleep".to_owned(), "{sleep}".to_owned()];
    let step = "adapter = \"torch\"\nstart = \"warm\"\n";
    let limits = "[limits]\nprobe_time = \"60s\"\nmeasure_time = \"1s\"\n";
    let search = Search::of_command(&words, &format!("{step}{SPACE}{limits}"));
    fs::write(search.folder.path().join("job.py"), JOB).unwrap();
    let spec = Spec::load(&search.folder.path().join("spec.toml")).unwrap();
    let (device, limits) = (spec.device().unwrap(), spec.limits);
    let space = spec.space;
    let mut prober =
        CommandProber::new(spec.step.into_command(gputune().into(), gputune().into(), &device), search.out());
    let configs: Vec<Config> = Walk::new(&space).take(3).collect();
    let settings: Vec<Settings> = configs.iter().map(|config| space.settings(config)).collect();
    let job = |at: usize| Job::new(u32::try_from(at + 1).unwrap(), &configs[at], &settings[at], &limits);
    // The first probe reports its imports, the second starts the process to fork from.
    for at in [0, 1] {
        let outcome = prober.probe(&job(at), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(outcome.measurement().is_some(), "{outcome:?}");
    }
    let jobs = [job(1), job(2), job(0)];
    let time = Duration::from_secs(300);
    let duel = Duel { jobs: &jobs, half_width: 0.02, rounds: 1, time, ways: Way::ALL, seed: None, keeps: false };
    let duelled = prober.duel(&duel, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((duelled.way, duelled.end, duelled.rounds), (Way::InTurn, DuelEnd::AllRounds, 1), "{duelled:?}");
    for side in Side::first(3) {
        assert!(duelled.side(side).unwrap().measurement().unwrap().is_forked, "{side}");
    }
    // The prober still works.
    let outcome = prober.probe(&job(0), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(outcome.measurement().is_some_and(|run| run.is_forked), "{outcome:?} {:?}", prober.remarks());
    drop(prober);
    search.assert_no_survivors();
}
