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

/// Splits a line into words, quoted as in a shell ("Quoting" in POSIX); nothing is expanded.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut begun) = (Vec::new(), String::new(), false);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                begun = true;
                loop {
                    match letters.next() {
                        None => return Err(format!("a {letter} is not closed")),
                        Some(end) if end == letter => break,
                        Some('\\') if letter == '"' => word.extend(letters.next()),
                        Some(inner) => word.push(inner),
                    }
                }
            }
            '\\' => {
                begun = true;
                word.extend(letters.next());
            }
            blank if blank.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            other => {
                begun = true;
                word.push(other);
            }
        }
    }
    if begun {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let split = |line: &str| words(line).unwrap();
        assert_eq!(
            split(r#"python train.py --name "a b" 'c"d' e\ f ''"#),
            ["python", "train.py", "--name", "a b", "c\"d", "e f", ""]
        );
        assert_eq!(split("  "), Vec::<String>::new());
        assert!(words("'a").is_err() && words("\"a\\").is_err());
    }
}
