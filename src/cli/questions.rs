//! Asks questions on a terminal: one line each, with Enter for the default.

use std::io::{self, BufRead};

use super::exit::{Exit, Failed};

/// How often a question is repeated after an invalid answer: a round number.
const TRIES: usize = 3;

/// Asks until an answer is valid.
///
/// # Errors
/// The input ended, or no answer was valid.
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
            Err(error) => return Err(Failed::because(Exit::Impossible, &error)),
        }
        let answer = line.trim();
        match read(if answer.is_empty() { default } else { answer }) {
            Ok(value) => return Ok(value),
            Err(problem) => say!("  {problem}"),
        }
    }
    Err(Failed::new(Exit::Usage, "none of these answers can be used: nothing was written"))
}

/// Asks for one of several choices, each with a description; the first is the default.
pub(super) fn choose<'c, T>(question: &str, choices: &'c [(String, T)]) -> Result<&'c T, Failed> {
    say!("{question}");
    for (at, (line, _)) in choices.iter().enumerate() {
        say!("  {}  {line}", at + 1);
    }
    ask("number", "1", |answer| {
        let number = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let chosen = number.and_then(|at| choices.get(at)).map(|(_, value)| value);
        chosen.ok_or_else(|| format!("answer with a number from 1 to {}", choices.len()))
    })
}
