//! Probes that are forked from a process with the imports done, through the real binary, with the real torch.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gputune::model::{Line, Measurement, Outcome};

use crate::support::python::{Python, python_with};
use crate::support::{Search, stderr};

/// A job with spawned workers. Its own modules start a thread and read the arguments at import, and act at exit.
const JOB: &str = r#"
import atexit, os, sys, threading
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import own

def main():
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(4096, 8)), own.BATCH, num_workers=1, multiprocessing_context="spawn",
                        persistent_workers=True)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(own.EPOCHS):
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

if __name__ == "__main__":
    atexit.register(lambda: print("at exit", own.BATCH))
    print("main", __file__ == os.path.abspath("job.py"), sys.argv, own.thread.is_alive(), torch.get_num_threads())
    print("terminal", os.get_terminal_size(0).columns, os.isatty(1), os.isatty(2), repr(sys.stdin.read()))
    main()
    print("over")
"#;
const OWN: &str = r#"
import sys, threading, time
BATCH, EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 8, int(sys.argv[2]) if len(sys.argv) > 2 else 1
thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
thread.start()
"#;

const SHORT: &str = "[limits]\nprobe_time = \"60s\"\nstall_time = \"50s\"\nmeasure_time = \"300ms\"\n";

fn torch() -> Option<Python> {
    python_with(&["torch"])
}

/// Returns a search of the job over batch sizes, with more in `[step]`.
fn search(python: &Path, epochs: &str, step: &str, more: &str) -> Search {
    let words = [python.display().to_string(), "job.py".to_owned(), "{batch}".to_owned(), epochs.to_owned()];
    let limits = if more.contains("[limits]") { "" } else { SHORT };
    let step = format!("adapter = \"torch\"\n{step}\n{limits}{more}");
    let space = "[space]\nbatch = { values = [8, 16, 32, 64] }\n";
    let search = Search::of_command(&words, &format!("{step}{}", if more.contains("[space]") { "" } else { space }));
    fs::write(search.folder.path().join("job.py"), JOB).unwrap();
    fs::write(search.folder.path().join("own.py"), OWN).unwrap();
    search
}

fn number(line: &Line, name: &str) -> i64 {
    line.config.get(name).and_then(|value| value.as_i64()).unwrap()
}

fn measured(lines: &[Line]) -> Vec<&Measurement> {
    lines.iter().filter_map(|line| line.outcome.measurement()).collect()
}

#[test]
fn all_probes_but_the_first_are_forked_and_run_the_whole_script() {
    let Some(python) = torch() else { return };
    // A run of two epochs is measured to the second end, so it also runs its exit handlers, unless its first epoch takes long.
    const UNTIL_THE_END: &str = "[limits]\nprecision = 0.000001\nmeasure_time = \"500s\"\nprobe_time = \"600s\"\n";
    let search = search(&python, "2", "start = \"warm\"", UNTIL_THE_END);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    let forked: Vec<bool> = measured(&lines).iter().map(|run| run.is_forked).collect();
    assert_eq!(forked, [false, true, true, true], "{}", stderr(&output));
    let mut whole = 0;
    for line in &lines {
        let log = fs::read_to_string(search.out().join(format!("logs/{:04}.log", line.trial))).unwrap();
        let batch = number(line, "batch");
        assert!(log.contains(&format!("main True ['job.py', '{batch}', '2'] True")), "{log}");
        assert!(log.contains("terminal 200 True True ''"), "{log}");
        let ended_itself = matches!(&line.outcome, Outcome::Measured(run) if run.timing.saved_seconds.is_none());
        whole += usize::from(ended_itself);
        assert!(!ended_itself || log.ends_with(&format!("over\nat exit {batch}\n")), "{log}");
    }
    assert!(whole > 0);
    // With the same seed and script, the first losses are equal to the last digit.
    let losses = |batch: i64, lines: &[Line]| {
        let of_it = |line: &&Line| number(line, "batch") == batch;
        lines.iter().find(of_it).unwrap().outcome.measurement().unwrap().first_losses.clone()
    };
    let fresh = self::search(&python, "2", "start = \"fresh\"", UNTIL_THE_END);
    assert_eq!(fresh.run().status.code(), Some(0));
    assert!(measured(&fresh.lines()).iter().all(|run| !run.is_forked));
    for batch in [8, 16, 32, 64] {
        assert_eq!(losses(batch, &lines), losses(batch, &fresh.lines()), "{batch}");
        assert!(!losses(batch, &lines).is_empty());
    }
    let summary = fs::read_to_string(search.out().join("summary.md")).unwrap();
    assert!(summary.contains("3 probes were forked") && summary.contains(" importing, "), "{summary}");
    search.assert_no_survivors();
}

#[test]
fn a_variable_that_is_read_when_libraries_are_loaded_has_its_setting_in_each_probe() {
    let Some(python) = torch() else { return };
    let space =
        "[space]\nthreads = { values = [1, 2], apply = \"env.OMP_NUM_THREADS\" }\nbatch = { values = [8, 16] }\n";
    let search = search(&python, "100000", "start = \"warm\"", space);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    assert_eq!(lines.len(), 4);
    for line in &lines {
        let run = line.outcome.measurement().unwrap();
        let threads = number(line, "threads");
        assert_eq!(run.facts.number("threads").map(|number| number.round()), Some(threads as f64), "{:?}", line.config);
    }
    assert!(measured(&lines).iter().any(|run| run.is_forked));
}

#[test]
fn what_cannot_be_forked_is_told_and_measured_all_the_same() {
    let Some(python) = torch() else { return };
    const SETS: &str = "import os\nos.environ['OMP_NUM_THREADS'] = '1'\n";
    const THREADS: &str = "import noisy\n";
    let cases = [
        ("", SETS, "the script sets OMP_NUM_THREADS itself, which is read when packages are imported"),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True, name='noise').start()\n",
            THREADS,
            "an import started a thread (noise)",
        ),
        ("import torch\ntorch.cuda.is_initialized = lambda: True\n", THREADS, "an import has initialised the GPU"),
    ];
    for (package, first, reason) in cases {
        let search = search(
            &python,
            "100000",
            "start = \"warm\"\nenv = { PYTHONPATH = \"lib/site-packages\" }",
            "[search]\nprobes = 2\nrounds = 0\n",
        );
        let folder = search.folder.path();
        fs::create_dir_all(folder.join("lib/site-packages/noisy")).unwrap();
        fs::write(folder.join("lib/site-packages/noisy/__init__.py"), package).unwrap();
        fs::write(folder.join("job.py"), format!("{first}{JOB}")).unwrap();
        let output = search.run();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let told = format!("each probe imports everything anew: {reason}\n");
        assert!(stderr(&output).contains(&told), "{}", stderr(&output));
        let lines = search.lines();
        assert!(measured(&lines).len() == 2 && measured(&lines).iter().all(|run| !run.is_forked), "{lines:?}");
        search.assert_no_survivors();
    }
}

/// Starts the search and waits until some probes are forked.
fn under_way(search: &Search) -> Child {
    let mut command = search.command();
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(400);
    while !measured(&journal(search)).iter().any(|run| run.is_forked) {
        assert!(Instant::now() < deadline, "no probe was forked");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn journal(search: &Search) -> Vec<Line> {
    let path = search.out().join("journal.jsonl");
    gputune::search::journal::read(&path).map(|journal| journal.1).unwrap_or_default()
}

/// Returns the descendants of a process with this word in their command lines.
fn below(root: u32, word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()) {
            open.push(pid);
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).contains(word) {
                found.push(pid);
            }
        }
    }
    found
}

fn kill(pid: u32) {
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
}

const MANY: &str = "[space]\nbatch = { range = [8, 47] }\n[search]\nstrategy = \"grid\"\nrounds = 0\n";

#[test]
fn a_search_survives_the_death_of_what_it_forks_from() {
    let Some(python) = torch() else { return };
    let search = search(&python, "100000", "start = \"warm\"", &MANY.replace("47", "13"));
    let mut child = under_way(&search);
    for word in ["start_zygote", "__adopt"] {
        for pid in below(child.id(), word) {
            kill(pid);
        }
        std::thread::sleep(Duration::from_millis(1500));
    }
    assert!(child.wait().unwrap().success());
    let lines = search.lines();
    assert_eq!(measured(&lines).len(), 6, "{lines:?}");
    search.assert_no_survivors();
}

#[test]
fn nothing_is_left_when_gputune_is_killed_and_the_search_goes_on() {
    let Some(python) = torch() else { return };
    let search = search(&python, "100000", "start = \"warm\"", &MANY.replace("47", "13"));
    let mut child = under_way(&search);
    child.kill().unwrap();
    child.wait().unwrap();
    search.assert_no_survivors();
    let kept = journal(&search).len();
    assert!(kept >= 2);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(measured(&search.lines()).len(), 6);
    search.assert_no_survivors();
}
