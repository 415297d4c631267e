//! The memory of a step with the largest batch of an epoch decides whether a config fits, if memory is scarce.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::python::python_with;
use crate::support::{gputune, stderr, stdout};

const MIB: u64 = 1 << 20;

/// Searches `longest.py` in fresh processes, whose memory is their own, and returns the named batch size, everything that was shown, and the journal.
fn search(python: &Path, folder: &Path, limits: &str) -> (u64, String, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild/longest.py");
    let spec = format!(
        "[step]\ncommand = [{python:?}, {script:?}, \"--batch-size\", \"{{batch_size}}\"]\nadapter = \"torch\"\nstart = \"fresh\"\n\
         [space]\nbatch_size = {{ values = [1, 16] }}\n[baseline]\nbatch_size = 1\n\
         [limits]\nmeasure_time = \"1s\"\n{limits}\n[search]\nstrategy = \"grid\"\ntime = \"3m\"\nrounds = 0\n"
    );
    fs::write(folder.join("spec.toml"), spec).unwrap();
    let mut command = Command::new(gputune());
    command.args(["search", "spec.toml"]).current_dir(folder).env("OMP_NUM_THREADS", "1");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let out = folder.join("gputune-out/spec");
    let trials = fs::read_to_string(out.join("trials.csv")).unwrap();
    let shown = stderr(&output) + &stdout(&output) + &trials;
    let best: Value = serde_json::from_slice(&fs::read(out.join("best.json")).unwrap()).unwrap();
    let journal = fs::read_to_string(out.join("journal.jsonl")).unwrap();
    (best["config"]["batch_size"].as_u64().unwrap(), shown, journal)
}

/// Returns the largest number of this name in a journal.
fn number(journal: &str, name: &str) -> u64 {
    let name = format!("\"{name}\":");
    let after = journal.split(&name).skip(1);
    let digits = after.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    digits.max().unwrap_or_else(|| panic!("no {name}: {journal}"))
}

#[test]
fn a_config_whose_largest_batch_does_not_fit_is_not_named() {
    let Some(python) = python_with(&["torch"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (named, shown, journal) = search(&python, folder.path(), "");
    assert_eq!(named, 16, "{shown}");
    assert!(!shown.contains("largest of"), "there is enough memory: {shown}");

    // The largest batch takes 625 MiB more than the others.
    let (capacity, peak) = (number(&journal, "memory_capacity_bytes"), number(&journal, "peak_memory_bytes"));
    let free = (capacity - peak - 300 * MIB) / MIB;
    let folder = tempfile::tempdir().unwrap();
    let (named, shown, _) = search(&python, folder.path(), &format!("memory_headroom = \"{free}MiB\""));
    assert_eq!(named, 1, "{shown}");
    assert!(shown.contains("largest of ") && shown.contains("of memory free, less than"), "{shown}");
}
