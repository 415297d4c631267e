//! Reads the summary that torchrun prints when a rank has failed.

use super::super::orders::Ending;

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
