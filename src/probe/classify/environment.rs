//! Recognises errors of the environment in a program's last words: a missing module, or a command line that it does not
//! accept.

use super::super::orders::Ending;
use super::{elastic, ended_by, exception_words, last_words, lines::Line};

/// Returns a missing module, in the words of the exception that ended the program.
pub(in super::super) fn missing_module(reported: Option<&str>, lines: &[String], ranks: u32) -> Option<String> {
    let deciding = ended_by::deciding(lines, ranks);
    let said = match reported {
        Some(message) => {
            let lines: Vec<String> = message.lines().map(str::to_owned).collect();
            exception_words(&lines).or_else(|| lines.first().cloned())
        }
        None => exception_words(deciding),
    };
    // `python -m no_such_module` prints no exception, and a program that catches its last one prints no traceback.
    let bare = |words: &String| is_missing(words) || words.contains(": No module named ") && !words.contains('\'');
    said.filter(|said| is_missing(said))
        .or_else(|| last_words(deciding).filter(|words| reported.is_none() && bare(words)))
}

/// Whether an exception comes from the import system and says that something is not installed, or has a version that
/// does not fit.
fn is_missing(exception: &str) -> bool {
    const BROKEN: &[&str] = &["cannot import name", "cannot open shared object file", "undefined symbol"];
    let text =
        exception.strip_prefix("rank ").and_then(|text| text.split_once(": ")).map_or(exception, |(_, text)| text);
    text.starts_with("ModuleNotFoundError: ")
        || text.starts_with("ImportError: ") && BROKEN.iter().any(|broken| text.contains(broken))
}

/// Finds the line in which an argument parser says what is wrong: `train.py: error: ...` (argparse), `Error: ...`
/// (Click).
pub(in super::super) fn says_usage_error(lines: &[String]) -> Option<&str> {
    let texts = lines.iter().rev().map(|line| Line::of(line).text);
    texts.into_iter().find(|text| text.to_lowercase().contains("error: "))
}

/// Returns how the command ended, or the rank of it that failed first.
pub(in super::super) fn first_ending(ending: Ending, lines: &[String]) -> Ending {
    elastic::root_cause(lines).map_or(ending, |cause| cause.ending)
}

/// How a program ended, with the last that it said.
pub(in super::super) fn with_last_words(ending: Ending, lines: &[String]) -> String {
    let words = says_usage_error(lines).map(|line| line.trim().to_owned()).or_else(|| last_words(lines));
    words.map_or_else(|| ending.to_string(), |words| super::cut(&format!("{ending}: {words}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Option<String> {
        missing_module(None, &text.lines().map(str::to_owned).collect::<Vec<_>>(), 0)
    }

    #[test]
    fn a_missing_module_is_known_by_the_exception_that_ended_the_program() {
        let traceback = |last: &str| format!("Traceback (most recent call last):\n  File \"t.py\", line 1\n{last}\n");
        for last in [
            "ModuleNotFoundError: No module named 'torch'",
            "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
            "ImportError: cannot import name 'x' from 'y' (/y.py)",
        ] {
            assert_eq!(missing(&traceback(last)).as_deref(), Some(last));
            assert_eq!(missing_module(Some(last), &[], 0).as_deref(), Some(last));
        }
        assert!(missing_module(Some("rank 1: ModuleNotFoundError: No module named 'x'"), &[], 2).is_some());
        assert_eq!(
            missing("/usr/bin/python3: No module named train").as_deref(),
            Some("/usr/bin/python3: No module named train")
        );
        let caught = traceback("ModuleNotFoundError: No module named 'apex'");
        assert_eq!(missing(&format!("{caught}{}", traceback("ValueError: bad"))), None, "it was caught");
        assert_eq!(missing(&traceback("ImportError: please pass a larger batch")), None);
        assert_eq!(missing_module(Some("ValueError: bad"), &[caught], 0), None);
    }

    #[test]
    fn the_line_of_a_parser_is_quoted() {
        let lines = ["usage: t.py [-h]", "t.py: error: unrecognized arguments: --x", ""].map(str::to_owned);
        assert_eq!(with_last_words(Ending::Exited(2), &lines), "exit code 2: t.py: error: unrecognized arguments: --x");
        assert_eq!(with_last_words(Ending::Exited(2), &[]), "exit code 2");
        assert_eq!(
            with_last_words(Ending::Exited(127), &["sh: 1: pithon: not found".to_owned()]),
            "exit code 127: sh: 1: pithon: not found"
        );
    }
}
