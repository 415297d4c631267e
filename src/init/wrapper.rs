//! Reads a shell script around a training run: the command that it runs, and if it passes its arguments on.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::command::{Command, SHELLS, base};

/// The bytes of a shell script that are read.
const MOST_BYTES: u64 = 64 * 1024;
/// Words that may precede a command and run it unchanged.
const RUNNERS: &[&str] = &["exec", "nohup", "time", "command", "srun", "env"];
/// The notations for all arguments of a shell script.
const ALL_ARGUMENTS: &[&str] = &["$@", "${@}", "$*"];

/// The command that a shell script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrapped {
    pub(super) command: Box<Command>,
    /// True if the script passes its arguments on to the command.
    pub(super) forwards: bool,
    /// The variables that the script sets whatever the environment has.
    pub(super) sets: Vec<String>,
}

impl Command {
    /// Reads the shell script that a command runs, if any; the script's first training line becomes the inner command.
    #[must_use]
    pub fn looked_into(mut self, cwd: &Path, python: &str) -> Self {
        let text = shell_script(&self, cwd).filter(|_| self.script_word().is_none());
        self.wrapped = text.and_then(|text| {
            let lines = lines(&text);
            let sets = lines.iter().flat_map(|line| variables_of(line)).collect();
            let wrapped = lines.iter().find_map(|line| trains(line, python))?;
            Some(Wrapped { sets, ..wrapped })
        });
        self
    }

    /// Returns true if the shell script around the command sets this variable itself.
    pub(super) fn sets(&self, variable: &str) -> bool {
        self.wrapped.as_ref().is_some_and(|wrapped| wrapped.sets.iter().any(|name| name == variable))
    }
}

/// Returns the text of the shell script that a command names.
fn shell_script(command: &Command, cwd: &Path) -> Option<String> {
    let program = command.words.first()?;
    let is_shell = SHELLS.contains(&base(program));
    let file = if is_shell { command.words.get(1).filter(|word| !word.starts_with('-'))? } else { program };
    let mut bytes = Vec::new();
    fs::File::open(cwd.join(file)).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let first = text.lines().next().unwrap_or_default();
    let has_shell =
        first.starts_with("#!") && SHELLS.iter().any(|shell| first.split(['/', ' ']).any(|word| word == *shell));
    (is_shell || has_shell).then_some(text)
}

/// Returns the lines of a script without comments; lines that end with a backslash are joined.
fn lines(text: &str) -> Vec<String> {
    let whole = text.replace("\\\n", " ");
    whole.lines().map(|line| line.trim().to_owned()).filter(|line| !line.starts_with('#')).collect()
}

/// Returns the training command in a line: a command that runs a Python script.
fn trains(line: &str, python: &str) -> Option<Wrapped> {
    let mut words = words(line);
    let end =
        words.iter().position(|word| matches!(word.as_str(), "|" | "||" | "&&" | ";" | "&" | ">" | ">>" | "2>&1"));
    words.truncate(end.unwrap_or(words.len()));
    let is_front = |word: &&String| RUNNERS.contains(&word.as_str()) || assignment(word).is_some();
    let front = words.iter().take_while(is_front).count();
    words.drain(..front);
    let forwards = words.iter().any(|word| ALL_ARGUMENTS.contains(&word.as_str()));
    words.retain(|word| !ALL_ARGUMENTS.contains(&word.as_str()));
    let command = Command::new(words, python);
    let is_training = command.script_word().is_some() && command.words.len() > 1;
    is_training.then(|| Wrapped { command: Box::new(command), forwards, sets: Vec::new() })
}

/// Returns name and value of an assignment such as `A=1`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Returns the variables that a line sets at its front. A value such as `${A:-1}` keeps the value of the environment.
fn variables_of(line: &str) -> Vec<String> {
    let words = words(line);
    let is_front =
        |word: &&String| word.as_str() == "export" || RUNNERS.contains(&word.as_str()) || assignment(word).is_some();
    let set = words.iter().take_while(is_front).filter_map(|word| assignment(word));
    let is_own =
        |(name, value): &(&str, &str)| !value.contains(&format!("${name}")) && !value.contains(&format!("${{{name}"));
    set.filter(is_own).map(|(name, _)| name.to_owned()).collect()
}

/// Splits a line into words without their quotes; variables stay as written.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut open, mut quote) = (Vec::new(), String::new(), false, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(known), c) if c == known => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, open) = (Some(c), true),
            (None, ';') => {
                words.extend((open || !word.is_empty()).then(|| std::mem::take(&mut word)));
                words.push(";".to_owned());
                open = false;
            }
            (None, c) if c.is_whitespace() => {
                words.extend((open || !word.is_empty()).then(|| std::mem::take(&mut word)));
                open = false;
            }
            (None, c) => word.push(c),
        }
    }
    words.extend((open || !word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_trains_is_found() {
        for (text, inner, forwards) in [
            (
                "set -e\nexport A=1\nCUDA_VISIBLE_DEVICES=0 python train.py --bs 4 \"$@\" > log\n",
                "python train.py --bs 4",
                true,
            ),
            (
                "torchrun --nproc_per_node=2 \\\n  train.py \\\n  --bs 4\n",
                "torchrun --nproc_per_node=2 train.py --bs 4",
                false,
            ),
            ("# python old.py\nexec python -m pkg.train 'a b'; echo done\n", "python -m pkg.train a b", false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("run.sh"), text).unwrap();
            let words = ["bash", "run.sh"].map(str::to_owned).to_vec();
            let command = Command::new(words, "python3").looked_into(folder.path(), "python3");
            let wrapped = command.wrapped.clone().unwrap();
            assert_eq!((wrapped.command.words.join(" ").as_str(), wrapped.forwards), (inner, forwards), "{text}");
            assert_eq!(command.takes_arguments(), forwards);
        }
        let text = "export A=1 B=2\nC=3 exec python t.py D=4\nexport E=${E:-5}\nF=$F:x\n";
        let sets: Vec<String> = text.lines().flat_map(variables_of).collect();
        assert_eq!(sets, ["A", "B", "C"]);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("run.sh"), "#!/bin/sh\ntouch ran\n").unwrap();
        let command = Command::new(vec!["./run.sh".to_owned()], "python3").looked_into(folder.path(), "python3");
        assert_eq!(command.wrapped, None);
    }
}
