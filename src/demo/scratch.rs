//! A folder for one test, removed with the test.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// A fresh folder below the system's temporary folder.
pub(super) struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Creates the folder of the test called `name`.
    pub(super) fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("gputune-demo-test-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
