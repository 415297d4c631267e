//! The examples in Python, run for real if their interpreter and packages are installed; otherwise a line reports the skip.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{self, python::python_with};
use crate::support::{stderr, stdout};

/// Searches a copy of an example with another interpreter and a smaller budget.
fn search(example: &str, python: &Path) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example);
    for entry in fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        fs::copy(&entry, folder.path().join(entry.file_name().unwrap())).unwrap();
    }
    let spec = fs::read_to_string(folder.path().join("gputune.toml")).unwrap();
    let spec = spec.replacen("\"python3\"", &format!("\"{}\"", python.display()), 1);
    let from = spec.find("[search]").unwrap_or(spec.len());
    let small = "[search]\nprobes = 2\nrounds = 0\n";
    fs::write(folder.path().join("gputune.toml"), format!("{}{small}", &spec[..from])).unwrap();
    Command::new(support::gputune()).args(["search", "gputune.toml"]).current_dir(folder.path()).output().unwrap()
}

#[test]
fn a_step_that_reports_events_from_python() {
    let Some(python) = python_with(&["json", "socket"]) else { return };
    let output = search("events", &python);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("batch_size = "), "{}", stdout(&output));
}

#[test]
fn an_unmodified_pytorch_script() {
    let Some(python) = python_with(&["torch"]) else { return };
    let output = search("pytorch", &python);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("batch_size = "), "{}", stdout(&output));
}
