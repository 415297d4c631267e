//! Converts paths for steps and for messages.

use std::path::{Path, PathBuf};

/// Returns the path of this executable, which `{gputune}` stands for in a step.
pub(super) fn gputune_path() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("gputune"))
}

/// Returns the absolute path. Links are resolved only if the path exists.
pub(super) fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Returns the path relative to the current folder, which is shorter to read.
pub(super) fn relative(path: &Path) -> &Path {
    let here = std::env::current_dir().ok();
    here.and_then(|here| path.strip_prefix(here).ok()).filter(|path| !path.as_os_str().is_empty()).unwrap_or(path)
}
