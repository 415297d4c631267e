//! Finds the error that ended a program in its output, and skips errors that the program recovered from.

use std::collections::BTreeSet;

use super::super::orders::Ending;
use super::traceback::{self, Line};
use super::{failure_texts, is_complaint};

/// Returns the lines from the fatal exception on, including exceptions that caused it (`raise ... from ...`).
///
/// Returns all lines if no exception was fatal, or if the exception only follows from an earlier message of a library.
/// Also returns all lines if the job has several ranks, because the last exception is then usually a complaint about
/// another rank.
pub(super) fn deciding(lines: &[String], ranks: u32) -> &[String] {
    if has_peers(lines, ranks) {
        return lines;
    }
    let mut exceptions = traceback::exceptions(lines);
    exceptions.retain(|exception| !exception.text.contains("ChildFailedError"));
    let Some(fatal) = traceback::fatal(&exceptions, None) else { return &lines[bare_error(lines)..] };
    if follows_from_another(&fatal.text) || fatal.while_fetching {
        return lines;
    }
    let chain = exceptions.iter().rposition(|exception| exception.at == fatal.at).unwrap_or(0);
    let causes = (1..=chain).rev().take_while(|&at| exceptions[at].is_caused).count();
    &lines[exceptions[chain - causes].at..]
}

/// Returns true if other ranks may have printed some of the lines.
fn has_peers(lines: &[String], ranks: u32) -> bool {
    let named: BTreeSet<u32> = lines.iter().filter_map(|line| Line::of(line).rank).collect();
    let alone = ranks == 1 || named.len() == 1;
    ranks > 1 || named.len() > 1 || (root_cause(lines).is_some() && !alone)
}

/// Returns true if an exception only follows from an error that was printed before it. Examples are a lost data worker,
/// a lost rank, or a failed collective, for which NCCL prints the cause (`NCCL WARN ...`).
fn follows_from_another(text: &str) -> bool {
    let lower = text.to_lowercase();
    failure_texts::meaning(text) == Some(failure_texts::Meaning::WorkerLost)
        || is_complaint(text)
        || lower.contains("nccl error")
        || lower.contains("unhandled cuda error")
}

/// Returns the place of the last line without noise, if it looks like a printed exception with an unknown text; else 0.
fn bare_error(lines: &[String]) -> usize {
    let words = |line: &&(usize, &String)| !line.1.trim().is_empty() && !traceback::is_noise(line.1);
    let Some((at, last)) = lines.iter().enumerate().collect::<Vec<_>>().iter().rev().find(words).copied() else {
        return 0;
    };
    let has_form = last.split_once(": ").is_some_and(|(class, _)| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        (class.ends_with("Error") || class.ends_with("Exception")) && class.chars().all(is_name)
    });
    if has_form && failure_texts::meaning(last).is_none() && !follows_from_another(last) { at } else { 0 }
}

/// The rank that failed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RootCause {
    pub(super) rank: u32,
    pub(super) ending: Ending,
}

/// Reads the part below `Root Cause (first observed failure):`
/// (torch/distributed/elastic/multiprocessing/errors, `ChildFailedError.format_msg`).
pub(super) fn root_cause(lines: &[String]) -> Option<RootCause> {
    let from = lines.iter().rposition(|line| line.contains("Root Cause (first observed failure):"))?;
    let field = |name: &str| {
        lines[from..].iter().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.split_whitespace().next())?
        })
    };
    let rank = field("rank")?.parse().ok()?;
    let code: i32 = field("exitcode")?.parse().ok()?;
    let ending = if code < 0 { Ending::Signalled(-code) } else { Ending::Exited(code) };
    Some(RootCause { rank, ending })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LACK: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";

    fn has_lack(text: &str, ranks: u32) -> bool {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        deciding(&lines, ranks).iter().any(|line| line.contains(LACK))
    }

    fn traceback(text: &str) -> String {
        format!("Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n{text}\n")
    }

    #[test]
    fn what_was_caught_is_not_what_ended_it() {
        let caught = traceback(LACK);
        assert!(has_lack(&caught, 0), "it ended it");
        assert!(!has_lack(&format!("{caught}trying half\n{}", traceback("KeyError: 'x'")), 0));
        let handling = "\nDuring handling of the above exception, another exception occurred:\n\n";
        assert!(!has_lack(&format!("{caught}{handling}{}", traceback("KeyError: 'x'")), 1));
        assert!(!has_lack(&format!("{LACK}; trying half\n{}", traceback("KeyError: 'x'")), 0));
        assert!(!has_lack(&format!("{LACK}\nValueError: no picture\n"), 0), "without tracebacks");
        assert!(has_lack(&format!("{LACK}\ntidying up\n"), 0));
        assert!(has_lack(&format!("{LACK}\nRuntimeError: CUDA error: device-side assert triggered\n"), 0));
    }

    #[test]
    fn what_caused_it_counts() {
        let cause = "\nThe above exception was the direct cause of the following exception:\n\n";
        let text = format!("{}{cause}{}", traceback(LACK), traceback("RuntimeError: training failed"));
        assert!(has_lack(&text, 0));
        let message = traceback(&format!("BackendCompilerFailed: backend='inductor' raised:\n{LACK}"));
        assert!(has_lack(&message, 0), "it is in the message");
        let ignored = format!("{}Exception ignored in: <function f>\n{}", traceback(LACK), traceback("TypeError: x"));
        assert!(has_lack(&ignored, 0));
        for follows in [
            "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly",
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled cuda error",
        ] {
            assert!(has_lack(&format!("{LACK}\n{}", traceback(follows)), 0), "{follows}");
        }
    }

    #[test]
    fn of_several_ranks_the_first_word_counts() {
        let other = format!("{}{}", traceback(LACK), traceback("ValueError: collective aborted"));
        assert!(has_lack(&other, 2) && !has_lack(&other, 1));
        let prefixed = format!(
            "[rank1]: {LACK}\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"a\"\n[rank0]: E: x\n"
        );
        assert!(has_lack(&prefixed, 0));
    }

    #[test]
    fn the_first_failure_is_read_and_not_those_that_follow_from_it() {
        let text = "el.py FAILED\n---\nFailures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 7)\n---\n\
                    Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-21_11:56:30\n  host      : localhost\n\
                    \x20 rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 8)  (SIGKILL)\n  error_file: <N/A>\n";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(root_cause(&lines), Some(RootCause { rank: 1, ending: Ending::Signalled(9) }));
        assert_eq!(root_cause(&lines[..6]), None);
    }
}
