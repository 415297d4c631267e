//! Reads the output of programs: the prefixes of launchers, noise, and the exceptions of Python.

/// A line without the prefix of a launcher of several processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'l> {
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

    /// Returns true if the line belongs to the previous line: in a Python traceback, indented lines quote the source.
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
    // A progress bar of tqdm: `45%|####5 | 9/20 [00:01<00:01, 9.1it/s]`.
    let is_progress_bar =
        || line.contains("%|") && line.contains('[') || line.ends_with("it/s]") || line.ends_with("s/it]");
    line.trim().is_empty() || PARTS.iter().any(|part| line.contains(part)) || is_progress_bar()
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exception {
    /// Its class and the first line of its message.
    pub(super) text: String,
    /// The line at which its traceback begins.
    pub(super) at: usize,
    /// True if the previous exception caused it, according to Python (`raise ... from ...`).
    pub(super) is_caused: bool,
    pub(super) rank: Option<u32>,
    /// True if the program continued regardless, according to Python.
    is_ignored: bool,
    /// True if it comes from a process that `multiprocessing` started, or from a thread other than the main thread.
    pub(super) is_of_child: bool,
    pub(super) worker: Option<u32>,
    /// True if it was raised while a process was being started.
    pub(super) at_start_of_process: bool,
    /// True if it was raised while a tensor was being fetched from a data worker.
    pub(super) while_fetching: bool,
}

/// Returns true if a line is only the class of an exception, `RuntimeError:`, whose message begins with a line break.
pub(super) fn is_bare(line: &str) -> bool {
    line.trim_end().ends_with(':') && !line.trim().contains(' ')
}

pub(super) fn exceptions(lines: &[String]) -> Vec<Exception> {
    let mut found = Vec::new();
    // Each rank has its own open traceback, because ranks print at the same time.
    let mut open: Vec<Exception> = Vec::new();
    let mut before = "";
    let mut worker = None;
    // Python prints the note about a cause between two empty lines (traceback.py, `_cause_message`).
    let mut is_caused = false;
    for (at, line) in lines.iter().enumerate() {
        let line = Line::of(line);
        let place = open.iter().position(|exception| exception.rank == line.rank);
        if line.text.trim_end().ends_with("Traceback (most recent call last):") {
            place.map(|place| open.swap_remove(place));
            open.push(Exception {
                at,
                is_caused: std::mem::take(&mut is_caused),
                rank: line.rank,
                is_ignored: before.starts_with("Exception ignored in"),
                is_of_child: before.starts_with("Process ") || before.starts_with("Exception in thread "),
                worker: worker.take().filter(|_| line.text.starts_with("Original Traceback")),
                ..Exception::default()
            });
        } else if let Some(place) = place {
            if line.is_indented() {
                see_frame(&mut open[place], line.text);
            } else if !line.text.is_empty() {
                let mut exception = open.swap_remove(place);
                exception.text = line.text.trim_end().to_owned();
                worker = worker_of(&exception.text);
                found.push(exception);
            }
        } else if let Some(number) = worker_of(line.text) {
            worker = Some(number);
        } else if let Some(last) = found.last_mut().filter(|last| is_bare(&last.text) && last.rank == line.rank) {
            last.text = format!("{} {}", last.text, line.text.trim()).trim_end().to_owned();
        }
        is_caused |= line.text.starts_with("The above exception was the direct cause of the following exception");
        before = line.text;
    }
    found
}

fn see_frame(exception: &mut Exception, frame: &str) {
    let in_file = |name: &str| frame.contains(name) && frame.trim_start().starts_with("File ");
    exception.is_of_child |= in_file("multiprocessing/spawn.py") || in_file("multiprocessing/forkserver.py");
    exception.at_start_of_process |=
        in_file("multiprocessing/popen_spawn_posix.py") || in_file("multiprocessing/popen_forkserver.py");
    exception.while_fetching |= in_file("multiprocessing/resource_sharer.py");
}

/// Returns the number in `ValueError: Caught ValueError in DataLoader worker process 3.`
fn worker_of(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once(" in DataLoader worker process ")?;
    rest.trim_end_matches('.').parse().ok()
}

/// Returns the exception that ended the program or a given rank: the last uncaught exception.
pub(super) fn fatal(exceptions: &[Exception], rank: Option<u32>) -> Option<&Exception> {
    let counts = |exception: &&Exception| !exception.is_ignored && (rank.is_none() || exception.rank == rank);
    let own = exceptions.iter().rev().filter(counts).find(|exception| !exception.is_of_child);
    own.or_else(|| exceptions.iter().rev().find(counts))
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

    const TRACE: &str = "Traceback (most recent call last):\n";

    fn of(text: &str) -> Vec<Exception> {
        exceptions(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_exception_is_the_first_line_below_the_frames() {
        let found = of(&format!(
            "{TRACE}  File \"a.py\", line 1, in <module>\n    f()\nRuntimeError: Error(s) in loading:\n\tMissing key\n\
             \x2010%|# | 1/10 [00:01<?]\n"
        ));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "RuntimeError: Error(s) in loading:");
    }

    #[test]
    fn of_a_chain_the_last_counts_and_ignored_ones_do_not() {
        let found = of(&format!(
            "{TRACE}  File \"a.py\", line 1\nKeyError: 'x'\n\n\
             During handling of the above exception, another exception occurred:\n\n\
             {TRACE}  File \"a.py\", line 3\nValueError: bad\n\
             Exception ignored in: <function f>\n{TRACE}  File \"b.py\"\nTypeError: x\n"
        ));
        assert_eq!(fatal(&found, None).unwrap().text, "ValueError: bad");
    }

    #[test]
    fn a_workers_exception_is_its_own_and_names_it() {
        let found = of(&format!(
            "{TRACE}  File \"t.py\", line 1\nValueError: Caught ValueError in DataLoader worker process 3.\n\
             Original {TRACE}  File \"d.py\", line 10\nValueError: bad image\n"
        ));
        let fatal = fatal(&found, None).unwrap();
        assert_eq!((fatal.text.as_str(), fatal.worker), ("ValueError: bad image", Some(3)));
    }

    #[test]
    fn tracebacks_of_ranks_that_are_printed_at_the_same_time_are_told_apart() {
        let found = of("[rank1]: Traceback (most recent call last):\n[rank0]: Traceback (most recent call last):\n\
                        [rank1]:   File \"a.py\", line 1\n[rank0]:   File \"a.py\", line 2\n\
                        [rank0]: RuntimeError: Connection closed by peer\n[rank1]: ValueError: bad\n");
        assert_eq!(fatal(&found, Some(1)).unwrap().text, "ValueError: bad");
        assert_eq!(fatal(&found, Some(0)).unwrap().text, "RuntimeError: Connection closed by peer");
        assert_eq!(fatal(&found, Some(2)), None);
    }
}
