//! The Pythons that run the scripts of tests, if they are installed.

use std::cell::Cell;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex};

/// Modules that take a core for seconds to import.
const HEAVY: &[&str] = &["accelerate", "jax", "keras", "lightning", "tensorflow", "torch", "transformers"];

/// A Python, and a turn for heavy modules. Most tests wait most of their time, so more tests than cores run at once, but at most
/// two tests with a framework.
pub(crate) struct Python {
    path: PathBuf,
    _turn: Option<Turn>,
}

impl Deref for Python {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<std::ffi::OsStr> for Python {
    fn as_ref(&self) -> &std::ffi::OsStr {
        self.path.as_os_str()
    }
}

impl Python {
    /// Gives the turn to other tests, for a script that soon hangs and then needs no core.
    pub(crate) fn hangs(self) -> Self {
        Self { path: self.path.clone(), _turn: None }
    }
}

/// One of two turns, given back when dropped.
struct Turn;

static FREE: (Mutex<usize>, Condvar) = (Mutex::new(2), Condvar::new());

thread_local! {
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

impl Turn {
    /// Waits for a turn, unless this test has one.
    fn take() -> Option<Self> {
        if HAS_TURN.replace(true) {
            return None;
        }
        let (free, changed) = &FREE;
        let mut free = changed.wait_while(free.lock().unwrap(), |free| *free == 0).unwrap();
        *free -= 1;
        Some(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HAS_TURN.set(false);
        *FREE.0.lock().unwrap() += 1;
        FREE.1.notify_one();
    }
}

/// Returns a Python with these modules: from `GPUTUNE_TEST_PYTHON`, from `.ci/python-env`, or from the machine.
///
/// If no Python has them, prints a line; the test then has nothing to do.
pub(crate) fn python_with(modules: &[&str]) -> Option<Python> {
    let is_heavy = modules.iter().any(|module| HEAVY.contains(module));
    let path = path_with(modules)?;
    Some(Python { path, _turn: is_heavy.then(Turn::take).flatten() })
}

fn path_with(modules: &[&str]) -> Option<PathBuf> {
    let named = std::env::var_os("GPUTUNE_TEST_PYTHON").map(PathBuf::from);
    let made = super::profile().parent().map(|build| build.join("python/bin/python"));
    let own = ["python3", "/usr/bin/python3"].map(PathBuf::from);
    let found = named.into_iter().chain(made).chain(own).find(|python| has(python, modules));
    if found.is_none() {
        eprintln!("NOT RUN: there is no python3 with {}; .ci/python-env makes one", modules.join(", "));
    }
    found
}

/// Returns a Python with a torch that loads `torch.backends` entry points (2.5 and later), and with a working `torchrun`.
pub(crate) fn python_with_new_torch() -> Option<Python> {
    let script =
        "from importlib.metadata import version; assert tuple(map(int, version('torch').split('.')[:2])) >= (2, 5)";
    python_with(&["torch"]).filter(|python| runs(python, script))
}

/// Returns the distribution's Python if its torch is older than 2.5, which loads no `torch.backends` entry points.
pub(crate) fn python_with_old_torch() -> Option<Python> {
    let python = PathBuf::from("/usr/bin/python3");
    let script = "import torch; assert tuple(map(int, torch.__version__.split('.')[:2])) < (2, 5)";
    let found = runs(&python, script).then_some(python);
    if found.is_none() {
        eprintln!("NOT RUN: /usr/bin/python3 has no torch of before 2.5; .ci/python-env installs it on Debian 12");
    }
    found.map(|path| Python { path, _turn: Turn::take() })
}

/// Looks for the modules without importing them: some take seconds.
fn has(python: &Path, modules: &[&str]) -> bool {
    let script =
        format!("from importlib.util import find_spec as find; assert all(find(name) for name in {modules:?})");
    runs(python, &script)
}

fn runs(python: &Path, script: &str) -> bool {
    Command::new(python).args(["-c", script]).output().is_ok_and(|output| output.status.success())
}
