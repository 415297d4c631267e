//! A file of settings that is rendered for each probe.

use std::path::PathBuf;

/// A file of settings that is rendered for each probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The text of the template, with settings in it.
    pub text: String,
    /// The path of the file; the template replaces it in the command.
    pub config: PathBuf,
}
