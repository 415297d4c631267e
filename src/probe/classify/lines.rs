//! Reads lines of output: removes the prefixes of launchers, and separates noise from messages.

/// A line without the prefix of a launcher of several processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'l> {
    /// The rank that the prefix names.
    pub(super) rank: Option<u32>,
    pub(super) text: &'l str,
}

impl<'l> Line<'l> {
    /// Removes the prefixes `[rank3]: ` (PyTorch), `[default3]:` (torchrun with tees) and `[1,3]<stderr>:` (Open MPI).
    pub(super) fn of(line: &'l str) -> Self {
        let plain = Self { rank: None, text: line };
        let Some((inside, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) else { return plain };
        let digits = inside.trim_start_matches(|c: char| !c.is_ascii_digit());
        let digits = digits.rsplit(',').next().unwrap_or(digits);
        let rest = rest.strip_prefix("<stderr>").or_else(|| rest.strip_prefix("<stdout>")).unwrap_or(rest);
        match (digits.parse(), rest.strip_prefix(':')) {
            (Ok(rank), Some(text)) => Self { rank: Some(rank), text: text.strip_prefix(' ').unwrap_or(text) },
            _ => plain,
        }
    }

    /// Returns true if it belongs to the previous line: in a Python traceback, indented lines quote the source.
    pub(super) fn is_indented(&self) -> bool {
        self.text.starts_with([' ', '\t'])
    }
}

/// Returns true if a line is noise: a progress bar, a warning at exit, advice.
pub(super) fn is_noise(line: &str) -> bool {
    const PARTS: &[&str] = &[
        "resource_tracker",
        "warnings.warn(",
        "Exception ignored in",
        "note: run with `RUST_BACKTRACE",
        "lost sys.stderr",
        "UserWarning:",
        "FutureWarning:",
        "DeprecationWarning:",
    ];
    line.trim().is_empty() || PARTS.iter().any(|part| line.contains(part)) || is_progress_bar(line)
}

/// Returns true if a line is a progress bar of tqdm: `45%|####5 | 9/20 [00:01<00:01, 9.1it/s]`.
fn is_progress_bar(line: &str) -> bool {
    (line.contains("%|") && line.contains('[')) || line.ends_with("it/s]") || line.ends_with("s/it]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_launchers_are_taken_off() {
        for (line, rank, text) in [
            ("[rank3]: ValueError: bad", Some(3), "ValueError: bad"),
            ("[rank0]:   File \"a.py\"", Some(0), "  File \"a.py\""),
            ("[default12]:hello", Some(12), "hello"),
            ("[1,2]<stderr>:MemoryError", Some(2), "MemoryError"),
            ("[12:30] epoch 1", None, "[12:30] epoch 1"),
            ("[W socket.cpp:1] x", None, "[W socket.cpp:1] x"),
            ("plain [1]: text", None, "plain [1]: text"),
            ("", None, ""),
        ] {
            assert_eq!(Line::of(line), Line { rank, text }, "{line}");
        }
    }

    #[test]
    fn progress_bars_and_warnings_at_exit_are_noise() {
        assert!(is_noise(" 45%|####5     | 9/20 [00:01<00:01,  9.10it/s]"));
        assert!(is_noise("resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 6 leaked"));
        assert!(is_noise("  "));
        assert!(!is_noise("ValueError: 45% is too much"));
    }
}
