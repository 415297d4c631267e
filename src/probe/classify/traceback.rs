//! Reads the output of programs: the prefixes of launchers, noise, and the exceptions of Python. Finds the error that
//! ended a program, and skips errors that the program recovered from.

use std::collections::BTreeSet;

use super::super::orders::Ending;
use super::{failure_texts, is_complaint};

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

/// Returns the lines from the fatal exception on, including exceptions that caused it (`raise ... from ...`).
///
/// Returns all lines if no exception was fatal, or if the exception only follows from an earlier message of a library.
/// Also returns all lines if the job has several ranks, because the last exception is then usually a complaint about
/// another rank.
pub(super) fn deciding(lines: &[String], ranks: u32) -> &[String] {
    if has_peers(lines, ranks) {
        return lines;
    }
    let mut exceptions = exceptions(lines);
    exceptions.retain(|exception| !exception.text.contains("ChildFailedError"));
    let Some(fatal) = fatal(&exceptions, None) else { return &lines[bare_error(lines)..] };
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
    let words = |line: &&(usize, &String)| !line.1.trim().is_empty() && !is_noise(line.1);
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
    fn tracebacks_of_ranks_that_are_printed_at_the_same_time_are_told_apart() {
        let text = "[rank1]: Traceback (most recent call last):\n[rank0]: Traceback (most recent call last):\n\
                    [rank1]:   File \"a.py\", line 1\n[rank0]:   File \"a.py\", line 2\n\
                    [rank0]: RuntimeError: Connection closed by peer\n[rank1]: ValueError: bad\n";
        let found = exceptions(&text.lines().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(fatal(&found, Some(1)).unwrap().text, "ValueError: bad");
        assert_eq!(fatal(&found, Some(0)).unwrap().text, "RuntimeError: Connection closed by peer");
        assert_eq!(fatal(&found, Some(2)), None);
    }
}
