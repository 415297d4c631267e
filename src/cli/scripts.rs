//! Finds the script that trains, and decides whether it may be asked for its help.

use std::fs;
use std::io::Read;
use std::path::Path;

use gputune::init::{Command, Source};
use gputune::report::emit::shell_word;

use super::exit::{Exit, Failed};
use super::questions;

/// Common names of training scripts, the likeliest first.
const LIKELY: &[&str] = &["train.py", "main.py", "training.py", "trainer.py", "finetune.py", "pretrain.py", "run.py"];
/// Names that training scripts never have.
const NEVER: &[&str] = &["setup.py", "conftest.py", "__init__.py", "__main__.py"];
/// The most scripts that are offered for a choice.
const SHOWN: usize = 9;

/// Returns the command of a folder: its one obvious script, or the answer to a question. `to` is gputune's command, for hints.
pub(super) fn of_folder(folder: &Path, asks: bool, to: &str) -> Result<Vec<String>, Failed> {
    let scripts = candidates(folder)?;
    let likely: Vec<&String> = LIKELY.iter().filter_map(|name| scripts.iter().find(|script| script == name)).collect();
    if let (Some(only), 1) | (Some(only), _) = (likely.first(), likely.len())
        && (likely.len() == 1 || !asks)
    {
        return Ok(vec![(*only).clone()]);
    }
    if let [only] = scripts.as_slice() {
        return Ok(vec![only.clone()]);
    }
    if !asks {
        let (message, hint) = match scripts.first() {
            None => (
                "there is no Python script in this folder".to_owned(),
                format!("name the command that trains: gputune {to} -- COMMAND"),
            ),
            Some(first) => (
                format!(
                    "several scripts could train: {}",
                    scripts.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ")
                ),
                format!("name the script, such as: gputune {to} {}", shell_word(first)),
            ),
        };
        return Err(Failed::new(Exit::Usage, message).hint(hint));
    }
    if scripts.is_empty() {
        return questions::ask("Which command trains?", "", words);
    }
    let mut ordered: Vec<String> = likely.into_iter().cloned().collect();
    ordered.extend(scripts.iter().filter(|script| !LIKELY.contains(&script.as_str())).cloned());
    ordered.truncate(SHOWN);
    say!("Which command trains?");
    for (at, script) in ordered.iter().enumerate() {
        say!("  {}  {script}", at + 1);
    }
    questions::ask("number, or the command", "1", |answer| {
        if let Ok(number) = answer.parse::<usize>() {
            let script = number.checked_sub(1).and_then(|at| ordered.get(at)).cloned();
            return script
                .map(|script| vec![script])
                .ok_or_else(|| format!("there are numbers from 1 to {}", ordered.len()));
        }
        words(answer)
    })
}

/// Splits a command into words as a shell does; nothing is expanded.
fn words(command: &str) -> Result<Vec<String>, String> {
    match shlex::split(command) {
        None => Err("a quote or a backslash is left open".to_owned()),
        Some(words) if words.is_empty() => Err("write it as you would type it".to_owned()),
        Some(words) => Ok(words),
    }
}

fn candidates(folder: &Path) -> Result<Vec<String>, Failed> {
    let entries = fs::read_dir(folder).map_err(|error| {
        Failed::new(Exit::Impossible, format!("cannot read the folder {}: {error}", folder.display()))
    })?;
    let is_script = |name: &String| {
        name.ends_with(".py")
            && !name.starts_with(['.', '_'])
            && !name.starts_with("test_")
            && !NEVER.contains(&name.as_str())
    };
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    let mut names: Vec<String> =
        files.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_script).collect();
    names.sort();
    Ok(names)
}

/// Returns the reason not to ask a command for its help: it would train instead of answering.
pub(super) fn no_help(command: &Command, source: &Source, cwd: &Path) -> Option<String> {
    if command.script(cwd).is_some() && command.takes_arguments() {
        return (!source.parses_arguments())
            .then(|| "The script has no parser of arguments, so it was not asked for its help.".to_owned());
    }
    if !command.takes_arguments() || is_text(command, cwd) {
        return Some(
            "A shell script may train whatever its arguments are, so it was not asked for its help.".to_owned(),
        );
    }
    None
}

/// Returns true if the command runs a shell script: by its interpreter, or by its first line.
fn is_text(command: &Command, cwd: &Path) -> bool {
    let program = command.words.first().map_or("", String::as_str);
    let base = program.rsplit('/').next().unwrap_or(program);
    if matches!(base, "sh" | "bash" | "dash" | "zsh" | "make" | "just") {
        return true;
    }
    let mut start = [0; 2];
    let read = fs::File::open(cwd.join(program)).and_then(|mut file| file.read_exact(&mut start));
    program.contains('/') && read.is_ok() && start == *b"#!"
}
