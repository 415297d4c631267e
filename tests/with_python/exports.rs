//! Other programs open their files: exports of a search, and the best config in the formats of frameworks.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, python::python_with};
use crate::support::{kept, stderr, stdout};
use gputune::model::{Goal, Objective};
use gputune::search::StopReason;

/// Runs a script of `tests/python` with arguments, and returns its output.
fn python(modules: &[&str], script: &str, arguments: &[&Path]) -> Option<String> {
    let python = python_with(modules)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(script);
    let output = Command::new(&python).arg(script).args(arguments).env("PYTHONWARNINGS", "ignore").output().unwrap();
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

/// Writes the best config of a search to a file, in a format.
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

/// Runs `gputune emit search --apply FILE`, and returns its exit code, standard output and standard error.
fn apply(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(support::gputune()).args(["emit", "search"]).args(arguments).current_dir(folder).output().unwrap();
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn the_best_config_goes_into_a_file_that_is_there_and_nothing_else_of_it_changes() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    kept::write(&path("search"));
    let text =
        "# mine\ntrain:\n  batch_size: 32  # per device\n  precision: fp32\ndata: {workers: 0, pin_memory: no}\n";
    fs::write(path("real.yaml"), text).unwrap();
    fs::set_permissions(path("real.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.yaml", path("train.yaml")).unwrap();

    let (code, said, error) = apply(folder.path(), &["--apply", "train.yaml"]);
    assert_eq!((code, said.as_str()), (Some(2), ""));
    assert!(error.contains("`prefetch`, `ratio` are no settings of the file"), "{error}");
    assert_eq!(fs::read_to_string(path("real.yaml")).unwrap(), text);

    let changes = ["--apply", "train.yaml", "--skip", "ratio", "--map", "prefetch=data.prefetch_factor", "--add"];
    let (code, said, error) = apply(folder.path(), &[&changes[..], &["--dry-run"]].concat());
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("nothing was written"), "{error}");
    assert_eq!(fs::read_to_string(path("real.yaml")).unwrap(), text);
    assert_eq!(apply(folder.path(), &changes).1, said);
    insta::assert_snapshot!(said);
    let written = "# mine\ntrain:\n  batch_size: 256  # per device\n  precision: bf16\ndata: {prefetch_factor: 2, workers: 4, pin_memory: yes}\n";
    assert_eq!(fs::read_to_string(path("real.yaml")).unwrap(), written);
    assert!(path("train.yaml").is_symlink());
    assert_eq!(fs::metadata(path("real.yaml")).unwrap().permissions().mode() & 0o777, 0o640);

    let (code, said, error) = apply(folder.path(), &changes);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(error.contains("has the best config already"), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_is_one_error_and_stays() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    kept::write(&path("search"));
    fs::write(path("locked.toml"), "batch_size = 1\n").unwrap();
    fs::set_permissions(path("locked.toml"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::write(path("bad.json"), "{\"batch_size\": }").unwrap();
    for (arguments, code, expected) in [
        (&["--apply", "none.toml"][..], 2, "cannot read none.toml"),
        (&["--apply", "locked.toml", "--add"], 3, "cannot write locked.toml: it is read-only"),
        (&["--apply", "bad.json"], 2, "bad.json: expected value at line 1"),
        (&["--apply", "search"], 2, "is of no language that can be written"),
        (&["--apply", "locked.toml", "--map", "batch=x"], 2, "the best config has no parameter `batch`"),
        (&["--apply", "locked.toml", "--map", "batch"], 2, "write NAME=PATH"),
        (&["--apply", "locked.toml", "--format", "json"], 2, "cannot be used with"),
    ] {
        let (found, _, error) = apply(folder.path(), arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    assert_eq!(fs::read_to_string(path("locked.toml")).unwrap(), "batch_size = 1\n");
}
