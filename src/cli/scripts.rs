//! Finds the script that trains. If several scripts could train, asks the user on a terminal. Also decides if a script
//! can be run with `--help`.

use std::fs;
use std::io::{self, BufRead, Read};
use std::path::Path;

use gputune::init::{Command, Source};
use gputune::report::emit::shell_word;

use super::exit::{Exit, Failed};

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
    let likeliest = likely.first().copied().filter(|_| likely.len() == 1 || !asks);
    if let Some(script) = likeliest.or(scripts.first().filter(|_| scripts.len() == 1)) {
        return Ok(vec![script.clone()]);
    }
    if !asks {
        let Some(first) = scripts.first() else {
            return Err(Failed::usage("there is no Python script in this folder")
                .hint(format!("name the command that trains: gputune {to} -- COMMAND")));
        };
        let shown = scripts.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        return Err(Failed::usage(format!("several scripts could train: {shown}"))
            .hint(format!("name the script, such as: gputune {to} {}", shell_word(first))));
    }
    if scripts.is_empty() {
        return ask("Which command trains?", "", words);
    }
    let mut ordered: Vec<&String> = likely;
    ordered.extend(scripts.iter().filter(|script| !LIKELY.contains(&script.as_str())));
    ordered.truncate(SHOWN);
    list("Which command trains?", ordered.iter().map(|script| script.as_str()));
    ask("number, or the command", "1", |answer| {
        let Ok(number) = answer.parse::<usize>() else { return words(answer) };
        let script = number.checked_sub(1).and_then(|at| ordered.get(at));
        script
            .map(|script| vec![(*script).clone()])
            .ok_or_else(|| format!("there are numbers from 1 to {}", ordered.len()))
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
    let entries = fs::read_dir(folder)
        .map_err(|error| Failed::impossible(format!("cannot read the folder {}: {error}", folder.display())))?;
    let is_script = |name: &String| {
        name.ends_with(".py")
            && !name.starts_with(['.', '_'])
            && !name.starts_with("test_")
            && !NEVER.contains(&name.as_str())
    };
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    let mut names: Vec<String> = files.filter_map(|it| it.file_name().into_string().ok()).filter(is_script).collect();
    names.sort();
    Ok(names)
}

/// How often a question is repeated after an invalid answer: a round number.
const TRIES: usize = 3;

/// Asks on a terminal until an answer is valid, [`TRIES`] times at most; Enter means the default.
pub(super) fn ask<T>(question: &str, default: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, Failed> {
    let mut input = io::stdin().lock();
    for _ in 0..TRIES {
        let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
        say_part!("{question}{shown} ");
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(0) => {
                say!();
                return Err(Failed::new(Exit::Interrupted, "no answer: nothing was written"));
            }
            Ok(_) => {}
            // The input may not be valid UTF-8.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => line.clear(),
            Err(error) => return Err(error.into()),
        }
        let answer = line.trim();
        match read(if answer.is_empty() { default } else { answer }) {
            Ok(value) => return Ok(value),
            Err(problem) => say!("  {problem}"),
        }
    }
    Err(Failed::usage("none of these answers can be used: nothing was written"))
}

/// Asks for one of several choices, each with a description; the first is the default.
pub(super) fn choose<'c, T>(question: &str, choices: &'c [(String, T)]) -> Result<&'c T, Failed> {
    list(question, choices.iter().map(|(line, _)| line.as_str()));
    ask("number", "1", |answer| {
        let number = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let chosen = number.and_then(|at| choices.get(at)).map(|(_, value)| value);
        chosen.ok_or_else(|| format!("answer with a number from 1 to {}", choices.len()))
    })
}

fn list<'l>(question: &str, lines: impl Iterator<Item = &'l str>) {
    say!("{question}");
    for (at, line) in lines.enumerate() {
        say!("  {}  {line}", at + 1);
    }
}

/// Returns the reason not to ask a command for its help, if the command could train instead of printing help.
pub(super) fn no_help(command: &Command, source: &Source, cwd: &Path) -> Option<String> {
    if command.script(cwd).is_some() && command.takes_arguments() {
        return (!source.parses_arguments())
            .then(|| "The script has no parser of arguments, so it was not asked for its help.".to_owned());
    }
    if !command.takes_arguments() || is_shell_script(command, cwd) {
        return Some(
            "A shell script may train whatever its arguments are, so it was not asked for its help.".to_owned(),
        );
    }
    None
}

/// Returns true if the command runs a shell script: by its interpreter, or by its first line.
fn is_shell_script(command: &Command, cwd: &Path) -> bool {
    let program = command.program();
    let base = program.rsplit('/').next().unwrap_or(program);
    if matches!(base, "sh" | "bash" | "dash" | "zsh" | "make" | "just") {
        return true;
    }
    let mut start = [0; 2];
    let read = fs::File::open(cwd.join(program)).and_then(|mut file| file.read_exact(&mut start));
    program.contains('/') && read.is_ok() && start == *b"#!"
}
