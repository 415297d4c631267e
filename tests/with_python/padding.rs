//! A config with a higher rate of tokens that trains fewer samples is rejected, and both gains are told.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::python::python_with;
use crate::support::{gputune, stderr};

/// A search of `padded.py` with two values of an option; the first is the baseline.
struct Case {
    rate: &'static str,
    texts: &'static str,
    option: &'static str,
    values: [u32; 2],
    /// True if the second value trains fewer samples in more tokens.
    is_padding: bool,
}

const CASES: &[Case] = &[
    Case { rate: "printed", texts: "uneven", option: "batch_size", values: [4, 32], is_padding: true },
    Case { rate: "reported", texts: "uneven", option: "batch_size", values: [4, 32], is_padding: true },
    Case { rate: "reported", texts: "filled", option: "length", values: [16, 128], is_padding: true },
    Case { rate: "reported", texts: "blocks", option: "length", values: [16, 256], is_padding: false },
    Case { rate: "printed", texts: "even", option: "batch_size", values: [4, 64], is_padding: false },
];

/// Searches a case, and returns what is wrong with its result.
fn wrong(python: &Path, case: &Case) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild/padded.py");
    let Case { rate, texts, option, values, is_padding } = case;
    let throughput = match *rate {
        "printed" => "throughput = { pattern = '([0-9.]+) tokens/s', unit = \"tokens/s\" }\n",
        _ => "",
    };
    let spec = format!(
        "[step]\ncommand = [{python:?}, {script:?}, \"{rate}\", \"{texts}\", \"--{}\", \"{{{option}}}\"]\n\
         adapter = \"torch\"\n{throughput}[space]\n{option} = {{ values = {values:?} }}\n[baseline]\n{option} = {}\n\
         [limits]\nmeasure_time = \"2s\"\nprecision = 0.0001\n[search]\nstrategy = \"grid\"\ntime = \"170s\"\nrounds = 0\n",
        option.replace('_', "-"),
        values[0],
    );
    fs::write(folder.path().join("spec.toml"), spec).unwrap();
    let mut command = Command::new(gputune());
    command.args(["search", "spec.toml"]).current_dir(folder.path()).env("OMP_NUM_THREADS", "1");
    let output = command.output().unwrap();
    let shown = format!("{rate} {texts} {option}: {}", stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{shown}");
    let out = folder.path().join("gputune-out/spec");
    let trials = fs::read_to_string(out.join("trials.csv")).unwrap();
    let best: Value = serde_json::from_slice(&fs::read(out.join("best.json")).unwrap()).unwrap();
    let named = if *is_padding { values[0] } else { values[1] };
    let is_rejected = trials.contains("rejected") && trials.contains("the rate counts padding");
    let is_told = trials.lines().next().is_some_and(|header| header.contains("loader_samples_per_second"));
    let is_right = best["config"][*option] == named && is_rejected == *is_padding && is_told;
    (!is_right).then(|| shown + &trials)
}

#[test]
fn a_rate_that_rises_by_padding_never_wins() {
    let Some(python) = python_with(&["torch"]) else { return };
    for case in CASES {
        let fault = wrong(&python, case);
        assert!(fault.is_none(), "{}", fault.unwrap_or_default());
    }
}
