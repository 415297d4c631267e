//! `pip install .` brings the command and the Python package. Without Python or the package index, a line reports the skip.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{self, python::python_with};
use crate::support::{stderr, stdout};

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).env_remove("PYTHONPATH").output().unwrap()
}

/// Returns the output of a program that must succeed.
fn printed(program: &Path, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{} {arguments:?}: {}", program.display(), stderr(&output));
    stdout(&output).trim().to_owned()
}

/// Makes a fresh environment with pip.
fn environment(folder: &Path) -> Option<PathBuf> {
    let python = python_with(&["venv", "ensurepip"])?;
    printed(&python, &["-m", "venv", folder.to_str().unwrap()]);
    Some(folder.join("bin/python"))
}

/// Returns true if the package index answers: it has the build tools of the wheel.
fn index_answers(python: &Path, folder: &Path) -> bool {
    let folder = folder.join("downloads").display().to_string();
    run(python, &["-m", "pip", "download", "--quiet", "--no-deps", "--dest", &folder, "maturin>=1.9,<2"])
        .status
        .success()
}

#[test]
fn pip_installs_the_command_and_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let Some(python) = environment(&folder.path().join("venv")) else { return };
    // The profile of these tests, so that the build reuses their compiled parts.
    support::gputune(); // while Cargo's is there: the build below takes it away and brings another
    let build = support::profile();
    let profile = if build.ends_with("release") { "release" } else { "dev" };
    let output = Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "."])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", build.parent().unwrap())
        .env("MATURIN_PEP517_ARGS", format!("--profile {profile}"))
        .env_remove("PYTHONPATH")
        .output()
        .unwrap();
    if !output.status.success() && !index_answers(&python, folder.path()) {
        return eprintln!("NOT RUN: the package index cannot be reached, so no wheel can be built");
    }
    assert!(output.status.success(), "{}", stderr(&output));

    let command = folder.path().join("venv/bin/gputune");
    assert_eq!(printed(&command, &["--version"]), concat!("gputune ", env!("CARGO_PKG_VERSION")));
    let script = "import gputune; gputune.step(samples=1); print(gputune.config(batch_size=8))";
    assert_eq!(printed(&python, &["-c", script]), "{'batch_size': 8}");
    let files = printed(&python, &["-m", "pip", "show", "--files", "gputune"]);
    for file in ["gputune/__init__.py", "gputune/integrations/lightning.py", "gputune/py.typed", "bin/gputune"] {
        assert!(files.contains(file), "{file} is missing: {files}");
    }
    assert!(!files.contains("sitecustomize"), "it would run in every Python: {files}");
    assert!(files.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))), "{files}");
    let module = printed(&python, &["-m", "gputune", "--version"]);
    let version = printed(&python, &["-c", "import gputune; print('gputune', gputune.__version__)"]);
    assert_eq!([module, version], [concat!("gputune ", env!("CARGO_PKG_VERSION")); 2]);
    assert_eq!(tuned(&python, folder.path()), "16 gputune-out/train");
    let spec = fs::read_to_string(folder.path().join("gputune-out/train/gputune.toml")).unwrap();
    assert!(spec.contains("preset any"), "the script uses none of the frameworks that gputune's package knows: {spec}");
}

/// Tunes a script that only imports gputune, and returns the best batch size and the folder of the search.
fn tuned(python: &Path, folder: &Path) -> String {
    let script = "import time, gputune\nsize = gputune.config(batch_size=8)['batch_size']\n\
        while True:\n    time.sleep(0.004)\n    gputune.step(samples=size)\n";
    fs::write(folder.join("train.py"), script).unwrap();
    let tune = "import gputune; study = gputune.tune('train.py', time='170s', probes=3, set={'batch_size': 16})\n\
        print(study.best['batch_size'], study.folder)";
    let output = Command::new(python).args(["-c", tune]).current_dir(folder).env_remove("PYTHONPATH").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).trim().to_owned()
}
