//! Recognises errors of the environment in a program's last words: a missing module, a wrong command line, or a prompt.

use std::sync::LazyLock;

use regex::Regex;

use super::super::orders::Ending;
use super::traceback::{self, Line};
use super::{exception_words, last_words};
use crate::machine::process_table;

/// Returns a missing module, in the words of the exception that ended the program.
pub(in super::super) fn missing_module(reported: Option<&str>, lines: &[String], ranks: u32) -> Option<String> {
    let deciding = traceback::deciding(lines, ranks);
    let said = match reported {
        Some(message) => {
            let lines: Vec<String> = message.lines().map(str::to_owned).collect();
            exception_words(&lines).or_else(|| lines.first().cloned())
        }
        None => exception_words(deciding),
    };
    // `python -m no_such_module` prints no exception, and a program that catches the exception prints no traceback.
    let bare = |words: &String| is_missing(words) || words.contains(": No module named ") && !words.contains('\'');
    said.filter(|said| is_missing(said))
        .or_else(|| last_words(deciding).filter(|words| reported.is_none() && bare(words)))
}

/// Returns true if an exception comes from the import system, and reports a missing package or a wrong version.
fn is_missing(exception: &str) -> bool {
    const BROKEN: &[&str] = &["cannot import name", "cannot open shared object file", "undefined symbol"];
    let text =
        exception.strip_prefix("rank ").and_then(|text| text.split_once(": ")).map_or(exception, |(_, text)| text);
    text.starts_with("ModuleNotFoundError: ")
        || text.starts_with("ImportError: ") && BROKEN.iter().any(|broken| text.contains(broken))
}

/// Finds the line of an argument parser with the error: `train.py: error: ...` (argparse), `Error: ...` (Click).
pub(in super::super) fn says_usage_error(lines: &[String]) -> Option<&str> {
    let texts = lines.iter().rev().map(|line| Line::of(line).text);
    texts.into_iter().find(|text| text.to_lowercase().contains("error: "))
}

/// Error texts after which the same command may succeed at another time, in lower case.
const TAKEN: &[&str] = &[
    "address already in use",
    "eaddrinuse",
    "errno 98]",
    "database is locked",
    "could not acquire lock",
    "the file lock",
    " lock file",
    "pid file",
    // Only with a file: without a file, this error is a failed fork, because of too many workers.
    "errno 11] resource temporarily unavailable: '",
    "instance is already running",
    "licensed number of users",
    "licences are in use",
    "licenses are in use",
    "could not check out a licen",
    "disk quota exceeded",
    "temporary failure in name resolution",
    "max retries exceeded with url",
    "too many requests for url",
];

/// Returns true if a crash has its cause outside of the config: another program uses a port, a lock or a service.
pub(in super::super) fn is_taken(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    TAKEN.iter().any(|text| reason.contains(text))
}

/// Adds the process that listens on the error's port, if it is visible. The port is in the error or the traceback.
pub(super) fn with_holder(reason: String, last_lines: &[String]) -> String {
    /// Finds a port in an error: `port: 29500`, or the number in `host:29500`.
    static PORT: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?i)(?:\bport\D{0,3}|[\]\w.]:)([1-9][0-9]{1,4})\b").ok());
    /// Finds a port in quoted source code: `port=8080)`, or `, 8080)` after the host.
    static QUOTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?:\bport ?= ?|, )([1-9][0-9]{1,4})\)").ok());
    let port = |pattern: &LazyLock<Option<Regex>>, text: &str| {
        pattern.as_ref().and_then(|pattern| pattern.captures(text)?[1].parse::<u16>().ok())
    };
    let held = |port: u16| Some((port, process_table::listener(port)?));
    let is_of_address =
        ["address already in use", "eaddrinuse"].iter().any(|text| reason.to_lowercase().contains(text));
    let mut quoted = last_lines.iter().rev().filter(|_| is_of_address).filter_map(|line| port(&QUOTED, line));
    match port(&PORT, &reason).and_then(held).or_else(|| quoted.find_map(held)) {
        Some((port, pid)) => format!("{reason}; {} listens on port {port}", process_table::named(pid)),
        None => reason,
    }
}

/// Returns the ending of the command, or of the rank that failed first.
pub(in super::super) fn first_ending(ending: Ending, lines: &[String]) -> Ending {
    traceback::root_cause(lines).map_or(ending, |cause| cause.ending)
}

pub(in super::super) fn with_last_words(ending: Ending, lines: &[String]) -> String {
    let words = says_usage_error(lines).map(|line| line.trim().to_owned()).or_else(|| last_words(lines));
    words.map_or_else(|| ending.to_string(), |words| super::cut(&format!("{ending}: {words}")))
}

#[derive(Debug, Default, Clone, Copy)]
pub(in super::super) struct Question<'a> {
    /// The script's line that asked, if the hook noted it; empty if the line is unknown.
    pub(in super::super) place: Option<&'a str>,
    /// True if the script had made a step. Its end then has another cause, unless the error names the input.
    pub(in super::super) has_trained: bool,
}

/// Returns a sentence about the prompt, if the program failed because it asked for input, which a probe does not have.
/// Such a program prints `EOFError` (Python's `input`) or `Aborted!` (click and typer), or the hook noted the line that
/// asked.
pub(in super::super) fn asked_for_input(reason: &str, last_lines: &[String], asked: Question<'_>) -> Option<String> {
    /// The start of Python's traceback. A prompt may precede it on the same line.
    const TRACEBACK: &str = "Traceback (most recent call last):";
    let is_aborted = || last_words(last_lines).is_some_and(|line| matches!(line.trim(), "Aborted!" | "Aborted."));
    // On a terminal that was closed, the exception has no text.
    let is_bare = reason.trim_end().trim_end_matches(':').ends_with("EOFError");
    let is_failure = reason.contains("EOFError: EOF when reading a line") || is_bare || is_aborted();
    let lines = || last_lines.iter().rev().map(|line| Line::of(line).text.trim());
    let is_prompt = |text: &&str| !text.is_empty() && text.ends_with(['?', ':', ']', ')', '>']);
    let at = asked.place.filter(|place| !place.is_empty()).map(|place| format!(" at {place}")).unwrap_or_default();
    if !is_failure {
        let is_noted = asked.place.is_some() && !asked.has_trained;
        return is_noted.then(|| format!("the script asks for input{at}, and a probe has none"));
    }
    let before_trace = lines().find_map(|line| line.strip_suffix(TRACEBACK)).map(str::trim);
    let prompt = before_trace.or_else(|| lines().skip(1).find(is_prompt)).filter(|text| !text.is_empty());
    let shown = prompt.map(|text| format!(" (`{}`)", super::cut(text))).unwrap_or_default();
    Some(format!("the script asks for input{at}{shown}, and a probe has none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_missing_module_is_known_by_the_exception_that_ended_the_program() {
        let missing = |text: &str| missing_module(None, &lines(text), 0);
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
        let bare = "/usr/bin/python3: No module named train";
        assert_eq!(missing(bare).as_deref(), Some(bare));
        let caught = traceback("ModuleNotFoundError: No module named 'apex'");
        assert_eq!(missing(&format!("{caught}{}", traceback("ValueError: bad"))), None, "it was caught");
        assert_eq!(missing(&traceback("ImportError: please pass a larger batch")), None);
        assert_eq!(missing_module(Some("ValueError: bad"), &[caught], 0), None);
    }

    #[test]
    fn a_port_that_something_else_has_is_no_fault_of_the_config() {
        for reason in [
            "DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, \
             useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            "sqlite3.OperationalError: database is locked",
            "BlockingIOError: [Errno 11] Resource temporarily unavailable: '/data/train.lock'",
            "FlexNet: Licensed number of users already reached for feature solver (-4,132), server 27000@licences",
            "RuntimeError: another instance is already running (pid file /tmp/train.pid)",
        ] {
            assert!(is_taken(reason), "{reason}");
        }
        for reason in [
            "ValueError: batch size 98 is already in use",
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "RuntimeError: This event loop is already running",
        ] {
            assert!(!is_taken(reason), "{reason}");
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let quoted = lines(&format!("    server = HTTPServer((\"127.0.0.1\", {port}), Handler)"));
        let named = with_holder("OSError: [Errno 98] Address already in use".to_owned(), &quoted);
        assert!(named.ends_with(&format!("listens on port {port}")), "{named}");
    }

    #[test]
    fn a_prompt_is_named() {
        let error = "EOFError: EOF when reading a line";
        let trace =
            |prompt: &str| format!("{prompt}Traceback (most recent call last):\n  File \"t.py\", line 3\n{error}");
        let named = "the script asks for input (`Overwrite? [y/N]`), and a probe has none";
        for (reason, output, expected) in [
            (error, trace("Overwrite? [y/N] "), Some(named)),
            (error, trace(""), Some("the script asks for input, and a probe has none")),
            ("EOFError: ", trace("Name: "), Some("the script asks for input (`Name:`), and a probe has none")),
            ("EOFError: Ran out of input", "EOFError: Ran out of input".to_owned(), None), // of pickle
            ("exit code 1: Aborted! no data", "Aborted! no data".to_owned(), None),
        ] {
            let found = asked_for_input(reason, &lines(&output), Question::default());
            assert_eq!(found.as_deref(), expected, "{output}");
        }
        let trained = Question { place: Some("train.py:3"), has_trained: true };
        assert_eq!(asked_for_input("no step after 10 s", &[], trained), None);
    }
}
