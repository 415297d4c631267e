//! The Python functions `tune`, `search` and `load` with the real binary, and the notebook in `examples`.

use std::path::Path;
use std::process::Command;

use crate::support::{self, python::python_with};
use crate::support::{stderr, stdout};

/// Returns a command in a folder, with the binary in `PATH` and the package in `PYTHONPATH`.
fn python(python: &Path, folder: &Path) -> Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(support::gputune()).parent().unwrap();
    let mut command = Command::new(python);
    command.current_dir(folder).env("PYTHONPATH", source.join("python"));
    command.env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap()));
    command
}

#[test]
fn python_searches_with_the_binary() {
    let Some(interpreter) = python_with(&["ctypes"]) else { return };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python");
    let output = python(&interpreter, &tests).args(["-m", "unittest", "searching"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).ends_with("\nOK\n"), "{}", stderr(&output));
}
