//! Commands that gputune prints, and a shell that runs them as they are printed.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::gputune;

/// Returns the commands in a text: after a label or a colon up to the end of the line, or between backticks. Words in capitals
/// stand for something that only the user knows, so commands with such words are left out.
pub(crate) fn printed(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let label = ["next ", "gputune ", "(cd "].into_iter().find(|label| line.starts_with(label));
        let mut starts: Vec<usize> = match label {
            Some("next ") => vec!["next ".len()],
            Some(_) => vec![0],
            None => {
                let marks = [": gputune ", ": chmod ", ": mv "].into_iter();
                marks.flat_map(|mark| line.match_indices(mark)).map(|(at, _)| at + ": ".len()).collect()
            }
        };
        starts.sort_unstable();
        for start in starts {
            // An explanation follows after three blanks, further advice after a semicolon.
            let command = line[start..].trim().split("   ").next().unwrap_or_default();
            found.extend(command.split("; ").next().map(str::to_owned));
        }
        // An error names the command that has no such option.
        let advice = if line.contains(" is no option of `") { "" } else { line };
        found.extend(
            advice.split('`').skip(1).step_by(2).filter(|code| code.starts_with("gputune ")).map(str::to_owned),
        );
    }
    let is_placeholder = |word: &str| word.len() > 2 && word.chars().all(|sign| sign.is_ascii_uppercase());
    found.retain(|command| !command.is_empty() && !command.split(' ').any(is_placeholder));
    found
}

/// Runs a command in a folder as a user does who copies it into a shell.
pub(crate) fn shell(folder: &Path, command: &str) -> Output {
    shell_command(folder, command).output().unwrap()
}

pub(crate) fn shell_command(folder: &Path, command: &str) -> Command {
    let programs = Path::new(gputune()).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    shell
}
