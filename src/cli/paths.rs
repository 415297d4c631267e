//! Paths as steps and people see them.

use std::path::{Path, PathBuf};

/// The path of this executable, as `{gputune}` gives it to a step.
pub(super) fn gputune_path() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("gputune"))
}

/// The path from the root; of a folder that is not there yet, as far as it can be told.
pub(super) fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// The path as seen from here, which is shorter to read.
pub(super) fn relative(path: &Path) -> &Path {
    let here = std::env::current_dir().ok();
    here.and_then(|here| path.strip_prefix(here).ok()).filter(|path| !path.as_os_str().is_empty()).unwrap_or(path)
}
