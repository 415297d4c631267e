//! Explains why `gputune search` and `gputune diagnose` refuse the options of a script, and what to run instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};

use super::exit::Failed;
use super::{Cli, init, paths};

/// Returns the failure for an option of the script, with the command to run instead; `words` is without the program.
pub(super) fn refused(error: &Error, words: &[String]) -> Option<Failed> {
    let ContextValue::String(option) = error.get(ContextKind::InvalidArg)? else { return None };
    let script = words.iter().position(|word| word.ends_with(".py"))?;
    let command = words[..script].iter().position(|word| word == "search" || word == "diagnose")?;
    let behind = &words[script + 1..];
    let is_of_script = behind.iter().any(|word| word.starts_with(option.as_str()));
    if error.kind() != ErrorKind::UnknownArgument || !is_of_script || behind.iter().any(|word| word == "--") {
        return None;
    }
    let name = words[command].as_str();
    let (own, of_script) = divided(name, behind);
    let mut line = vec!["gputune".to_owned()];
    line.extend_from_slice(&words[..script]);
    line.extend(own);
    if name == "search" {
        line[command + 1] = "tune".to_owned();
    } else {
        line.extend(["--".to_owned(), init::python()]);
    }
    line.push(words[script].clone());
    line.extend(of_script);
    let message = format!("`{option}` is no option of `gputune {name}`");
    Some(Failed::usage(message).hint(format!("a script's own options: {}", paths::line(&line))))
}

/// Divides the words behind a script into options of gputune with their values, and words of the script.
fn divided(command: &str, words: &[String]) -> (Vec<String>, Vec<String>) {
    let cli = Cli::command();
    let arguments = cli.find_subcommand(command).into_iter().flat_map(clap::Command::get_arguments);
    let known: Vec<(&str, bool)> =
        arguments.filter_map(|argument| Some((argument.get_long()?, argument.get_action().takes_values()))).collect();
    let (mut own, mut of_script) = (Vec::new(), Vec::new());
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name));
        match known.iter().find(|(known, _)| Some(*known) == name) {
            Some((_, takes_value)) => {
                own.push(word.clone());
                own.extend(words.next_if(|_| *takes_value && !word.contains('=')).cloned());
            }
            None => of_script.push(word.clone()),
        }
    }
    (own, of_script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// Returns the hint for a command line that is refused; `None` if its refusal is clap's own.
    fn hint(line: &str) -> Option<String> {
        let words: Vec<String> = shlex::split(line).unwrap();
        let error = Cli::try_parse_from(std::iter::once("gputune".to_owned()).chain(words.clone())).unwrap_err();
        match refused(&error, &words)? {
            Failed::Error { hint, .. } => hint,
            _ => None,
        }
    }

    #[test]
    fn the_options_of_a_script_are_answered_with_the_command_that_takes_them() {
        let tune = |words: &str| Some(format!("a script's own options: gputune {words}"));
        assert_eq!(hint("search train.py --epochs 2"), tune("tune train.py --epochs 2"));
        assert_eq!(hint("search 'a b.py' --name='x y' -b 4"), tune("tune 'a b.py' '--name=x y' -b 4"));
        let moved = "search --time 5m train.py --epochs 2 --probes 3 --fresh";
        assert_eq!(hint(moved), tune("tune --time 5m --probes 3 --fresh train.py --epochs 2"));
        let diagnose = hint("diagnose --quiet train.py --epochs 2").unwrap();
        assert!(diagnose.starts_with("a script's own options: gputune diagnose --quiet -- "), "{diagnose}");
        assert!(diagnose.ends_with(" train.py --epochs 2"), "{diagnose}");
    }

    #[test]
    fn other_mistakes_are_left_to_clap() {
        for line in ["search --lr 2 train.py", "search spec.toml --lr 2", "report a.py --lr 2", "search a.py --time"] {
            assert_eq!(hint(line), None, "{line}");
        }
    }
}
