//! Recognises failures of the environment: a missing module or program, or a wrong command line. They do not depend on the config,
//! so they end the search at once and are not trials.

use std::collections::BTreeSet;

use super::super::classify::{self, missing_module, says_usage_error};
use super::super::orders::Ending;
use super::verdict::Verdict;
use super::{ProbeError, Session};
use crate::model::{Failure, Outcome};

const MODULE: &str = "this Python does not have it: activate its environment, or name the right Python in `command`, such as \
     \".venv/bin/python\"; the same gputune command then goes on. If only some configs need it, install it or take them \
     out of [space]";
const PROGRAM: &str =
    "is it installed, may it be run, and is it in the PATH of the command? The same gputune command then goes on";
const USAGE: &str = "fix `command` in [step], or `apply` in [space]; `gputune check` prints the whole command";

/// The words of the commands that reached a step: their arguments are known to be right.
#[derive(Debug, Default)]
pub(super) struct KnownWords(BTreeSet<String>);

impl KnownWords {
    /// Records a command that reached a step.
    pub(super) fn learn(&mut self, command: &[String]) {
        self.0.extend(command.iter().flat_map(|word| parts(word)).map(str::to_owned));
    }

    /// Returns true if an error names a word of this command that is not a known word. Returns false if no word is known, because
    /// the command as a whole may be wrong.
    fn blames_one_of(&self, command: &[String], error: &str) -> bool {
        // Ignore the valid choices, which argparse lists after this string.
        let error = error.split("(choose from").next().unwrap_or_default();
        let of_word = |c: char| !(c.is_ascii_alphanumeric() || "_./+-".contains(c));
        let said: BTreeSet<&str> = error.split(of_word).map(|word| word.trim_end_matches('.')).collect();
        let own = command.iter().flat_map(|word| parts(word)).filter(|word| !self.0.contains(*word));
        !self.0.is_empty() && own.into_iter().any(|word| said.contains(word))
    }
}

/// A word of a command, and its parts before and after the first `=`.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    [word, name, value].into_iter().filter(|part| !part.is_empty())
}

impl Session {
    /// Decides if the environment caused the failure of a command that exited. Returns an error that ends the search, an outcome
    /// if only this config's words are wrong, or `None` if the environment is not the cause.
    pub(super) fn of_environment(&self, verdict: &Verdict, known: &KnownWords) -> Option<Result<Outcome, ProbeError>> {
        if !matches!(verdict, Verdict::Exited) || self.heard.is_done || self.heard.diverged.is_some() {
            return None;
        }
        let last_lines = self.output.last_lines();
        let error = |reason: String, hint: &str| {
            let last_lines = classify::shown(&last_lines);
            Some(Err(ProbeError::Environment { reason, hint: hint.to_owned(), last_lines }))
        };
        let reported = self.heard.reported.as_ref().map(|(_, message)| message.as_str());
        let ending = self.heard.ending.filter(|ending| !ending.is_success());
        if (reported.is_some() || ending.is_some())
            && let Some(missing) = missing_module(reported, &last_lines, self.heard.ranks.count())
        {
            return error(missing, MODULE);
        }
        let ending = classify::first_ending(ending?, &last_lines);
        if reported.is_some() || self.heard.any_step() {
            return None;
        }
        match ending {
            Ending::Exited(126 | 127) => error(classify::with_last_words(ending, &last_lines), PROGRAM),
            Ending::Exited(2) => {
                // A command may require an argument from the space; then the unmodified command fails.
                if self.task.is_as_it_is {
                    let reason = classify::with_last_words(ending, &last_lines);
                    let reason =
                        format!("the unmodified command fails: {reason}; state today's settings in [baseline]");
                    return Some(Ok(Outcome::Rejected(Failure::new(reason))));
                }
                let said = says_usage_error(&last_lines);
                let reason = classify::with_last_words(ending, &last_lines);
                if said.is_some_and(|said| known.blames_one_of(&self.words, said)) {
                    let last_lines = classify::shown(&last_lines);
                    return Some(Ok(Outcome::Rejected(Failure { reason, last_lines, ..Failure::default() })));
                }
                error(reason, USAGE)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_a_word_that_no_other_config_had_is_to_blame() {
        let mut known = KnownWords::default();
        let bf16 = words("python t.py --precision=bf16 --batch 8");
        let choice = "t.py: error: argument --precision: invalid choice: 'bf16' (choose from 'fp32', 'fp16')";
        assert!(!known.blames_one_of(&bf16, choice), "nothing ran so far");
        known.learn(&words("python t.py --precision=fp32 --batch 8"));
        assert!(known.blames_one_of(&bf16, choice));
        assert!(!known.blames_one_of(&bf16, "t.py: error: the following arguments are required: --data"));
        assert!(!known.blames_one_of(&words("python t.py --precision=fp32 --batch 8"), choice), "it ran before");
        let fused = words("python t.py --precision=fp32 --batch 8 --fused");
        assert!(known.blames_one_of(&fused, "t.py: error: unrecognized arguments: --fused"));
        assert!(!known.blames_one_of(&fused, "t.py: error: unrecognized arguments: --batch 8"));
    }
}
