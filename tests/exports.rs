//! What other programs open is opened by them: exports of a search, and the best config in the forms of frameworks.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gputune::budget::StopReason;
use gputune::objective::{Goal, Objective};
use support::python::python_with;
use support::{kept, stderr, stdout};

/// Runs a script of `tests/python` with arguments, and gives what it printed.
fn python(modules: &[&str], script: &str, arguments: &[&Path]) -> Option<String> {
    let python = python_with(modules)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(script);
    let output = Command::new(python).arg(script).args(arguments).env("PYTHONWARNINGS", "ignore").output().unwrap();
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    Some(stdout(&output))
}

fn export(folder: &Path, format: &str) -> PathBuf {
    let out = folder.with_extension(format);
    let (folder, place) = (folder.display().to_string(), out.display().to_string());
    let output = Command::new(support::gputune())
        .args(["report", &folder, "--format", format, "--out", &place])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    out
}

#[test]
fn tensorboard_reads_the_hyperparameters_and_scalars_of_a_search() {
    let folder = tempfile::tempdir().unwrap();
    let search = folder.path().join("search");
    kept::write(&search);
    if let Some(said) = python(&["tensorboard"], "read_tensorboard.py", &[&export(&search, "tensorboard")]) {
        insta::assert_snapshot!(said);
    }
}

#[test]
fn optuna_reads_the_trials_of_a_search() {
    let folder = tempfile::tempdir().unwrap();
    let search = folder.path().join("search");
    kept::write(&search);
    let Some(said) = python(&["optuna"], "read_optuna.py", &[&export(&search, "optuna")]) else { return };
    insta::assert_snapshot!(said);
    let weighed = folder.path().join("weighed");
    let goals = ["throughput", "energy_per_sample"].map(|metric| (Goal::known(metric).unwrap(), 1.0));
    let objective = Objective::weighted(goals).unwrap();
    kept::write_with(&weighed, &objective, &kept::trials(), Some(StopReason::TimeSpent));
    let front = folder.path().join("front");
    kept::write_front(&front);
    for (search, directions) in [(&weighed, "directions: score maximize"), (&front, "energy_per_sample minimize")] {
        let said = python(&["optuna"], "read_optuna.py", &[&export(search, "optuna")]).unwrap();
        assert!(said.contains(directions), "{said}");
    }
}

/// The best config of a search in a form, as a file.
fn emitted(folder: &Path, format: &str, name: &str) -> PathBuf {
    kept::write(&folder.join("search"));
    let output = Command::new(support::gputune())
        .args(["emit", "search", "--format", format])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("note: effective batch 32 -> 256 (8x): learning rate x8"), "{}", stderr(&output));
    let path = folder.join(name);
    fs::write(&path, output.stdout).unwrap();
    path
}

#[test]
fn hugging_face_reads_its_training_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let path = emitted(folder.path(), "huggingface", "arguments.json");
    python(&["transformers", "accelerate"], "read_config.py", &[Path::new("huggingface"), &path]);
}

#[test]
fn lightning_reads_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = emitted(folder.path(), "lightning", "config.yaml");
    python(&["lightning", "jsonargparse"], "read_config.py", &[Path::new("lightning"), &path]);
}

#[test]
fn accelerate_reads_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = emitted(folder.path(), "accelerate", "accelerate.yaml");
    python(&["accelerate"], "read_config.py", &[Path::new("accelerate"), &path]);
}

#[test]
fn deepspeed_reads_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = emitted(folder.path(), "deepspeed", "deepspeed.json");
    python(&["accelerate"], "read_config.py", &[Path::new("deepspeed"), &path]);
}
