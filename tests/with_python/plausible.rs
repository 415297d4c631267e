//! Configs that train less than their rate says, or cannot end an epoch, are never named.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::python::python_with;
use crate::support::{gputune, stderr};

const ADAPTER: &str = "adapter = \"torch\"";
const PRINTED: &str = "throughput = { pattern = '([0-9.]+) it/s', unit = \"it/s\" }\nsamples_per_step = \"batch_size\"";

/// A search of `implausible.py`.
struct Case {
    way: &'static str,
    /// The option that is searched, with its values; the first is the baseline.
    option: &'static str,
    values: &'static [u32],
    step: &'static str,
    /// The named value, and the reason why each other value is rejected, if it is.
    named: u32,
    reason: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        way: "repeats",
        option: "workers",
        values: &[1, 2],
        step: ADAPTER,
        named: 1,
        reason: Some("Stream.__iter__, implausible.py:"),
    },
    Case { way: "parts", option: "workers", values: &[1, 2], step: ADAPTER, named: 2, reason: None },
    Case {
        way: "one_left",
        option: "batch_size",
        values: &[9, 8],
        step: ADAPTER,
        named: 9,
        reason: Some("the last batch of an epoch has 1 sample"),
    },
    Case {
        way: "small",
        option: "batch_size",
        values: &[50, 128],
        step: ADAPTER,
        named: 50,
        reason: Some("the data set has 100 samples"),
    },
    Case {
        way: "none",
        option: "batch_size",
        values: &[50, 128],
        step: ADAPTER,
        named: 50,
        reason: Some("the data set has 100 samples"),
    },
    Case {
        way: "deaf",
        option: "batch_size",
        values: &[8, 16, 32],
        step: PRINTED,
        named: 8,
        reason: Some("a step takes the same time with batch_size"),
    },
    Case { way: "skips", option: "batch_size", values: &[8, 16], step: ADAPTER, named: 8, reason: None },
];

fn search(python: &Path, case: &Case, folder: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild/implausible.py");
    let Case { way, option, values, step, .. } = case;
    let spec = format!(
        "[step]\ncommand = [{python:?}, {script:?}, \"{way}\", \"--{}\", \"{{{option}}}\"]\n{step}\n\
         [space]\n{option} = {{ values = {values:?} }}\n[baseline]\n{option} = {}\n\
         [limits]\nmeasure_time = \"2s\"\n[search]\nstrategy = \"grid\"\ntime = \"1m\"\nrounds = {}\n",
        option.replace('_', "-"),
        values[0],
        // Only this way is found by comparing configs.
        if *way == "deaf" { 3 } else { 0 },
    );
    fs::write(folder.join("spec.toml"), spec).unwrap();
    Command::new(gputune())
        .args(["search", "spec.toml"])
        .current_dir(folder)
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap()
}

#[test]
fn a_rate_that_cannot_be_right_never_wins() {
    let Some(python) = python_with(&["torch"]) else { return };
    for case in CASES {
        let folder = tempfile::tempdir().unwrap();
        let output = search(&python, case, folder.path());
        let shown = format!("{}: {}", case.way, stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{shown}");
        let out = folder.path().join("gputune-out/spec");
        let best: Value = serde_json::from_slice(&fs::read(out.join("best.json")).unwrap()).unwrap();
        assert_eq!(best["config"][case.option], case.named, "{shown}");
        let Some(reason) = case.reason else { continue };
        let trials = fs::read_to_string(out.join("trials.csv")).unwrap();
        let rejected = trials.lines().filter(|line| line.contains("rejected") && line.contains(reason)).count();
        assert_eq!(rejected, case.values.len() - 1, "{shown}{trials}");
    }
}
