//! Finds the frameworks that an installed package trains with, if the script itself imports none.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use super::command::Command;
use super::source::Source;

const SCRIPT: &str = include_str!("packages.py");

impl Source {
    /// Adds the modules that the imported packages import. The command's interpreter finds the packages, and imports nothing. The
    /// source stays as it is if the interpreter does not answer.
    #[must_use]
    pub fn with_packages(mut self, command: &Command, python: &str, cwd: &Path) -> Self {
        let imported: BTreeSet<&str> = self.modules.iter().filter_map(|module| module.split('.').next()).collect();
        let words = command.interpreter(python);
        let Some((program, options)) = words.split_first().filter(|_| !imported.is_empty()) else { return self };
        let Ok(asked) = serde_json::to_string(&imported) else { return self };
        let mut process = Process::new(program);
        process.args(options).args(["-c", SCRIPT, &asked]).current_dir(cwd).stdin(Stdio::null()).stderr(Stdio::null());
        let Ok(output) = process.output() else { return self };
        let told = String::from_utf8_lossy(&output.stdout);
        let found: Vec<String> =
            told.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        self.modules.extend(found);
        self
    }
}
