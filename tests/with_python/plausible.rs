//! Configs that train less than their rate says, or cannot end an epoch, are rejected and never named.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::python::python_with;
use crate::support::{gputune, stderr};

/// A search of `implausible.py` with two values of an option; the first is the baseline.
struct Case {
    way: &'static str,
    option: &'static str,
    values: [u32; 2],
    /// Why the second value is rejected, if it is.
    reason: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case { way: "repeats", option: "workers", values: [1, 2], reason: Some("Stream.__iter__, implausible.py:") },
    Case { way: "parts", option: "workers", values: [1, 2], reason: None },
    Case {
        way: "one_left",
        option: "batch_size",
        values: [9, 8],
        reason: Some("the last batch of an epoch has 1 sample"),
    },
    Case { way: "small", option: "batch_size", values: [50, 128], reason: Some("the data set has 100 samples") },
    Case { way: "two_parts", option: "workers", values: [2, 3], reason: Some("2 of 3 workers deliver data") },
    Case { way: "memory", option: "batch_size", values: [8, 16], reason: Some("host memory grows by") },
    Case { way: "files", option: "batch_size", values: [8, 16], reason: Some("open files grow by") },
    Case { way: "none", option: "batch_size", values: [50, 128], reason: Some("the data set has 100 samples") },
];

fn search(python: &Path, case: &Case, folder: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild/implausible.py");
    let Case { way, option, values, .. } = case;
    let spec = format!(
        "[step]\ncommand = [{python:?}, {script:?}, \"{way}\", \"--{}\", \"{{{option}}}\"]\nadapter = \"torch\"\n\
         [space]\n{option} = {{ values = {values:?} }}\n[baseline]\n{option} = {}\n\
         [run]\nlength = \"1e12 samples\"\n[limits]\nmeasure_time = \"2s\"\nprecision = 0.0001\n[search]\nstrategy = \"grid\"\ntime = \"2m\"\nrounds = 0\n",
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
    let shown = format!("{}: {}", case.way, stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let out = folder.path().join("gputune-out/spec");
    let trials = fs::read_to_string(out.join("trials.csv")).unwrap();
    let rejected: Vec<&str> = trials.lines().filter(|line| line.contains("rejected")).collect();
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
        // Growth is seen in looks at a process, which a busy machine may delay.
        let tries = if case.reason.is_some_and(|reason| reason.contains("grow")) { 4 } else { 1 };
        let faults: Vec<Option<String>> = (0..tries).map_while(|_| wrong(&python, case).map(Some)).collect();
        assert!(faults.len() < tries, "{}", faults.last().cloned().flatten().unwrap_or_default());
    }
}
