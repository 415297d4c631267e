//! Configs that train less than their rate says, or cannot end an epoch, are rejected and never named.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::python::python_with;
use crate::support::{gputune, stderr};

/// A search of a script of `tests/wild` with some values of an option; the first is the baseline.
struct Case {
    script: &'static str,
    way: &'static str,
    option: &'static str,
    values: &'static [u32],
    /// Why the last value is rejected, or out of memory, if it is.
    reason: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        script: "implausible.py",
        way: "repeats",
        option: "workers",
        values: &[1, 2],
        reason: Some("Stream.__iter__, implausible.py:"),
    },
    Case { script: "implausible.py", way: "parts", option: "workers", values: &[1, 2], reason: None },
    Case {
        script: "implausible.py",
        way: "one_left",
        option: "batch_size",
        values: &[9, 8],
        reason: Some("the last batch of an epoch has 1 sample"),
    },
    Case {
        script: "implausible.py",
        way: "small",
        option: "batch_size",
        values: &[50, 128],
        reason: Some("the dataset has 100 samples"),
    },
    Case {
        script: "implausible.py",
        way: "two_parts",
        option: "workers",
        values: &[2, 3],
        reason: Some("2 of 3 workers deliver data"),
    },
    Case {
        script: "implausible.py",
        way: "memory",
        option: "batch_size",
        values: &[8, 16],
        reason: Some("host memory grows by"),
    },
    Case {
        script: "implausible.py",
        way: "files",
        option: "batch_size",
        values: &[8, 16],
        reason: Some("open files grow by"),
    },
    Case {
        script: "implausible.py",
        way: "none",
        option: "batch_size",
        values: &[50, 128],
        reason: Some("the dataset has 100 samples"),
    },
    Case {
        script: "recovers.py",
        way: "halves",
        option: "batch_size",
        values: &[16, 32],
        reason: Some("memory ran out with a batch of 32 samples, and the script trains with 16"),
    },
    Case {
        script: "recovers.py",
        way: "decides",
        option: "batch_size",
        values: &[16, 32],
        reason: Some("`batch_size` was set to 32, the script trains with 24"),
    },
    Case { script: "recovers.py", way: "healthy", option: "batch_size", values: &[16, 32], reason: None },
];

fn search(python: &Path, case: &Case, folder: &Path) -> Output {
    let Case { script, option, values, .. } = case;
    let way = if case.way.is_empty() { String::new() } else { format!("{:?}, ", case.way) };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild").join(script);
    let spec = format!(
        "[step]\ncommand = [{python:?}, {script:?}, {way}\"--{}\", \"{{{option}}}\"]\nadapter = \"torch\"\n\
         [space]\n{option} = {{ values = {values:?} }}\n[baseline]\n{option} = {}\n\
         [run]\nlength = \"1e12 samples\"\n[limits]\nmeasure_time = \"2s\"\nprecision = 0.0001\n[search]\nstrategy = \"grid\"\ntime = \"170s\"\nrounds = 0\n",
        option.replace('_', "-"),
        values[0],
    );
    fs::write(folder.join("spec.toml"), spec).unwrap();
    let mut command = Command::new(gputune());
    command.args(["search", "spec.toml"]).current_dir(folder).env("OMP_NUM_THREADS", "1").output().unwrap()
}

/// Searches a case, and returns what is wrong with its result.
fn wrong(python: &Path, case: &Case) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let output = search(python, case, folder.path());
    let shown = format!("{} {}: {}", case.script, case.way, stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let out = folder.path().join("gputune-out/spec");
    let trials = fs::read_to_string(out.join("trials.csv")).unwrap();
    let is_rejected = |line: &&str| line.contains("rejected") || line.contains("out_of_memory");
    let rejected: Vec<&str> = trials.lines().filter(is_rejected).collect();
    let best: Value = serde_json::from_slice(&fs::read(out.join("best.json")).unwrap()).unwrap();
    let is_right = match case.reason {
        None => rejected.is_empty(),
        Some(reason) => {
            let is_named = rejected.len() == 1 && rejected[0].contains(reason);
            is_named && best["config"][case.option] == case.values[0]
        }
    };
    (!is_right).then(|| shown + &trials)
}

#[test]
fn a_rate_that_cannot_be_right_never_wins() {
    let Some(python) = python_with(&["torch"]) else { return };
    for case in CASES {
        // Growth is seen in looks at a process, which a busy machine may delay. It may also stop for most of a short measurement.
        let tries = if case.reason.is_some_and(|reason| reason.contains("grow")) { 4 } else { 3 };
        let faults: Vec<Option<String>> = (0..tries).map_while(|_| wrong(&python, case).map(Some)).collect();
        assert!(faults.len() < tries, "{}", faults.last().cloned().flatten().unwrap_or_default());
    }
}

#[test]
fn a_schedule_for_a_number_of_steps_is_named_with_the_number_for_the_new_batch_size() {
    let Some(python) = python_with(&["torch"]) else { return };
    let case = Case { script: "schedules.py", way: "cosine", option: "batch_size", values: &[8, 64], reason: None };
    let folder = tempfile::tempdir().unwrap();
    let output = search(&python, &case, folder.path());
    let best = fs::read(folder.path().join("gputune-out/spec/best.json")).unwrap();
    let best: Value = serde_json::from_slice(&best).unwrap();
    let words = best["learning_rate"]["schedule"].as_str().unwrap_or_default();
    let expected = "makes CosineAnnealingLR for 1,003 steps: 125 for this batch size";
    assert!(words.starts_with("schedules.py:") && words.ends_with(expected), "{words} {}", stderr(&output));
    let shown = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(words), "{shown}");
}
