//! Converts paths and commands for steps and for messages.

use std::path::{Path, PathBuf};

use gputune::report::emit::shell_word;

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

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns a path as a word for a shell.
pub(super) fn word(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

/// Returns a command as a line for a shell.
pub(super) fn line(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}
