//! `gpu/acceptance.sh`, as far as it goes without a GPU.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::python::{python_with, python_with_new_torch};
use support::{stderr, stdout};

fn acceptance(python: &Path, arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/acceptance.sh");
    // No GPU, even where there is one: what this tests is what needs none.
    let mut command = Command::new(script);
    command.args(arguments).env("PYTHON", python).env("CUDA_VISIBLE_DEVICES", "").output().unwrap()
}

fn python() -> Option<PathBuf> {
    python_with(&["json"])
}

fn results(out: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(out.join("results.json")).unwrap()).unwrap()
}

#[test]
fn checks_are_listed_and_wrong_names_refused() {
    let Some(python) = python() else { return };
    let output = acceptance(&python, &["--list"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for check in ["device", "bench", "meters", "gpm", "sigkill", "oom", "quickstart", "images-grid"] {
        assert!(stdout(&output).lines().any(|line| line.starts_with(check)), "{check}");
    }
    for arguments in [&["--only", "nonsense"][..], &["no-such-binary"], &[]] {
        let output = acceptance(&python, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    }
}

#[test]
fn what_needs_a_gpu_is_skipped_without_one_and_nothing_is_called_passed() {
    let Some(python) = python() else { return };
    if Command::new("nvidia-smi").output().is_ok_and(|output| output.status.success()) {
        eprintln!("NOT RUN: there is a GPU");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let [out_text, state_text] = [&out, &state].map(|path| path.display().to_string());
    let output = acceptance(&python, &[support::gputune(), "--out", &out_text, "--state", &state_text]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let totals = &results(&out)["totals"];
    assert_eq!((&totals["passed"], &totals["failed"]), (&0.into(), &0.into()));
    assert!(totals["skipped"].as_u64().unwrap() > 10);
    assert!(stdout(&output).contains("skipped: no GPU"), "{}", stdout(&output));
    assert!(std::fs::read_dir(&out).unwrap().count() <= 8);
}

#[test]
fn a_grid_becomes_a_table_that_can_be_replayed() {
    let Some(python) = python_with_new_torch() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let [out_text, state_text] = [&out, &state].map(|path| path.display().to_string());
    let arguments = [support::gputune(), "--tiny", "--only", "images-grid", "--out", &out_text, "--state", &state_text];
    let output = acceptance(&python, &arguments);
    let shown = format!("{}\n{}", stdout(&output), stderr(&output));
    assert_eq!(results(&out)["totals"]["failed"], 0, "{shown}");
    let table = out.join("images-grid.csv").display().to_string();
    let replayed = Command::new(support::gputune()).args(["replay", &table, "--json"]).output().unwrap();
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    assert!(stdout(&replayed).contains("\"optimum\""));
}
