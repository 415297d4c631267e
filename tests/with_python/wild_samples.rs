//! Unmodified scripts of typical shapes: how gputune counts their samples in a search and in a diagnosis.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::python::python_with;
use crate::support::{gputune, stderr, stdout};
use serde_json::Value;

fn wild(script: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild").join(script).display().to_string()
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(gputune());
    command.args(arguments).current_dir(folder).env("OMP_NUM_THREADS", "1").output().unwrap()
}

/// Writes a spec in its own folder, for a command in TOML.
fn with_spec(python: &Path, arguments: &[&str], more: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let words: Vec<&str> = [python.to_str().unwrap()].into_iter().chain(arguments.iter().copied()).collect();
    let limits = "[limits]\nprobe_time = \"120s\"\nstall_time = \"90s\"\nmeasure_time = \"6s\"\n";
    let search = "[search]\nprobes = 1\nrounds = 0\n";
    let command = serde_json::to_string(&words).unwrap();
    let path = folder.path().join("spec.toml");
    fs::write(&path, format!("# A job\n[step]\ncommand = {command}\n{more}{limits}{search}")).unwrap();
    (folder, path)
}

const BATCHES: &str = "[space]\nbatch_size = { values = [20], apply = \"arg\" }\n";

#[test]
fn where_nobody_knows_the_samples_a_search_asks_with_a_line_that_works() {
    let Some(python) = python_with(&["torch"]) else { return };
    let script = wild("no_loader.py");
    let (folder, path) = with_spec(&python, &[&script], &format!("adapter = \"torch\"\n{BATCHES}"));
    let output = run(folder.path(), &["search", "spec.toml"]);
    let shown = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{shown}");
    assert!(shown.contains("the samples per step are unknown"), "{shown}");
    assert!(shown.contains("below [step], line 2 of spec.toml"), "{shown}");
    let line = shown.lines().find(|line| line.contains("samples_per_step = ")).unwrap().trim();
    assert_eq!(line, "samples_per_step = \"batch_size\"");
    // The unmodified job does not report its batch size, so the spec states the baseline.
    let text = fs::read_to_string(&path).unwrap().replace("[step]\n", &format!("[step]\n{line}\n"));
    let text = text.replace("[search]\n", "[baseline]\nbatch_size = 20\n[search]\n");
    fs::write(&path, text).unwrap();
    let output = run(folder.path(), &["search", "spec.toml", "--fresh"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let best: Value =
        serde_json::from_slice(&fs::read(folder.path().join("gputune-out/spec/best.json")).unwrap()).unwrap();
    assert_eq!(best["throughput"]["unit"], "samples/s", "{best}");
}

#[test]
fn where_nobody_knows_the_samples_a_diagnosis_counts_steps() {
    let Some(python) = python_with(&["torch"]) else { return };
    let script = wild("no_loader.py");
    let (folder, _) = with_spec(&python, &[&script], &format!("adapter = \"torch\"\n{BATCHES}"));
    let output = run(folder.path(), &["diagnose", "spec.toml", "--json", "--time", "170s"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["unit"], "steps/s", "{report}");
    assert!(report["throughput"]["value"].as_f64().unwrap() > 1.0, "{report}");
}

#[test]
fn samples_are_what_the_sampler_handed_out_and_a_mismatch_is_told() {
    let Some(python) = python_with(&["torch"]) else { return };
    let script = wild("collated.py");
    let arguments = [script.as_str(), "time_first", "--epochs", "100"];
    let (folder, _) = with_spec(&python, &arguments, &format!("adapter = \"torch\"\n{BATCHES}"));
    let output = run(folder.path(), &["probe", "spec.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = stdout(&output);
    assert!(shown.contains("6 per step, counted by the sampler"), "{shown}");
    assert!(shown.contains("the leading dimension of a batch is 9, and its sampler handed out 6"), "{shown}");
    let output = run(folder.path(), &["search", "spec.toml"]);
    let shown = stderr(&output);
    assert!(shown.contains("is 9, and its sampler handed out 6: that is what samples are here"), "{shown}");
}

#[test]
fn a_rate_that_is_printed_each_ten_steps_at_mixed_speeds_is_that_of_the_time() {
    let Some(python) = python_with(&[]) else { return };
    let script = wild("printed_rates.py");
    for (unit, together) in [("samples/s", "1"), ("ms/step", "1"), ("samples/s", "9")] {
        let per_step = if unit == "ms/step" { "samples_per_step = \"batch_size\"\n" } else { "" };
        let more = format!(
            "throughput = {{ pattern = ': ([0-9.]+) {unit}', unit = \"{unit}\" }}\n{per_step}[space]\n\
             batch_size = {{ values = [16], apply = \"arg\" }}\n"
        );
        let arguments = [script.as_str(), "--unit", unit, "--together", together, "--seconds", "30"];
        let (folder, _) = with_spec(&python, &arguments, &more);
        let output = run(folder.path(), &["search", "spec.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let out = folder.path().join("gputune-out/spec");
        let log = fs::read_to_string(out.join("logs/0001.log")).unwrap();
        let last = log.lines().rev().find_map(|line| line.strip_prefix("true ")).unwrap();
        let truth: f64 = last.trim().parse().unwrap();
        let best: Value = serde_json::from_slice(&fs::read(out.join("best.json")).unwrap()).unwrap();
        let found = best["throughput"]["value"].as_f64().unwrap();
        assert!((found / truth - 1.0).abs() < 0.25, "{unit}, {together} together: {found} and not {truth}");
    }
}

#[test]
fn a_rate_is_read_however_it_is_written() {
    let Some(python) = python_with(&[]) else { return };
    let script = wild("printed_styles.py");
    let found = |style: &str| {
        let (pattern, unit) = match style {
            "label" => ("samples/s: ([0-9.]+)", "samples/s"),
            "swapped" => ("([0-9.]+)\\s*it/s", "it/s"),
            _ => ("([0-9.]+)\\s*samples/s", "samples/s"),
        };
        let per_step = if unit == "it/s" { "samples_per_step = \"batch_size\"\n" } else { "" };
        let more = format!(
            "throughput = {{ pattern = '{pattern}', unit = \"{unit}\" }}\n{per_step}[space]\n\
             batch_size = {{ values = [128], apply = \"arg\" }}\n"
        );
        let (folder, _) = with_spec(&python, &[&script, "--style", style], &more);
        let output = run(folder.path(), &["search", "spec.toml"]);
        assert_eq!(output.status.code(), Some(0), "{style}: {}", stderr(&output));
        let best = fs::read(folder.path().join("gputune-out/spec/best.json")).unwrap();
        serde_json::from_slice::<Value>(&best).unwrap()["throughput"]["value"].as_f64().unwrap()
    };
    // A step takes 67.6 ms, and longer on a busy machine.
    std::thread::scope(|scope| {
        for style in ["commas", "exponent", "factor", "decimal_comma", "colours", "label", "swapped"] {
            scope.spawn(move || {
                let rate = found(style);
                assert!((300.0..1900.0).contains(&rate), "{style}: {rate}");
            });
        }
    });
}
