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

#[test]
fn the_notebook_tunes_the_pytorch_example() {
    let Some(interpreter) = python_with(&["torch"]) else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (example, folder) = (source.join("examples/pytorch"), tempfile::tempdir().unwrap());
    std::fs::copy(example.join("train.py"), folder.path().join("train.py")).unwrap();
    let notebook = std::fs::read_to_string(example.join("tune.ipynb")).unwrap();
    let short = notebook.replacen(r#"time=\"3m\""#, r#"time=\"2m\", probes=1"#, 1);
    assert_ne!(short, notebook);
    std::fs::write(folder.path().join("tune.ipynb"), short).unwrap();
    let runner = source.join("tests/python/notebook.py");
    let output = python(&interpreter, folder.path()).arg(runner).arg("tune.ipynb").output().unwrap();
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    let shown = stdout(&output);
    for part in [
        "gputune: 100%|██████████| 1/1 probes",
        "<tr><th>command</th><td>gputune run gputune-out/train</td></tr></table>\n",
        "\n{'batch_size': 32, ",
        "\nCounter({('baseline', 'measured'): 1})\n",
        "\n'gputune run gputune-out/train'\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("asking `"), "a quiet search tells of its question to the script: {shown}");
}
