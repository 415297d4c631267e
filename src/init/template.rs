//! A file of settings that is rendered for each probe.

use std::path::PathBuf;

/// A file of settings that is rendered for each probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The text of the template, with settings in it.
    pub text: String,
    /// The path of the file.
    pub config: PathBuf,
    /// True if the script opens the file by a path in its code; else the rendered file replaces it in the command.
    pub is_opened: bool,
}
