//! Finds out where a probe without progress hangs, by asking its processes.
//!
//! On SIGUSR2, a process that said `hello` with its `pid` writes the stacks of all its threads, as Python's
//! `faulthandler.register` does, to `python/stacks-PID.txt` in the probe's folder. They show the place of the hang.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::listed;
use crate::machine::process_table::{command, is_stopped};

/// How long to wait for all stacks: a round number.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hang {
    /// The place, in words: `waiting for the data loader (train.py:45)`.
    pub(super) reason: Option<String>,
    pub(super) lines: Vec<String>,
    /// True if the lowest of the asked ranks waits for its data loader or for other ranks, or is stopped by a signal.
    /// If no rank could be asked, true if any process is stopped.
    pub(super) is_blocked: bool,
}

/// Asks each rank's process for its position. Sends SIGUSR2 only to living processes with a stacks file, because the
/// signal would kill a process that does not handle it. Stops waiting for answers once `go_on` returns false.
pub(super) fn ask(folder: &Path, pids: &BTreeMap<u32, u32>, living: &[u32], go_on: &mut dyn FnMut() -> bool) -> Hang {
    let mut waiting: Vec<Asked> = Vec::new();
    let mut answers: BTreeMap<u32, Answer> = BTreeMap::new();
    for (&rank, &pid) in pids.iter().filter(|(_, pid)| living.contains(pid)) {
        let file = folder.join(format!("python/stacks-{pid}.txt"));
        let Ok(before) = fs::metadata(&file).map(|data| data.len()) else { continue };
        if is_stopped(pid) {
            answers.insert(rank, Answer::Stopped(pid));
        } else if send(pid) {
            waiting.push(Asked { rank, file, before, size: before });
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while !waiting.is_empty() && Instant::now() < deadline && go_on() {
        std::thread::sleep(Duration::from_millis(50));
        waiting.retain_mut(|asked| match asked.answer() {
            Some(stack) => {
                answers.insert(asked.rank, Answer::Stack(stack));
                false
            }
            None => true,
        });
    }
    answers.extend(waiting.iter().map(|asked| (asked.rank, Answer::Silent)));
    if answers.is_empty() { stopped(living) } else { told(&answers) }
}

struct Asked {
    rank: u32,
    file: PathBuf,
    /// The size of the file before the signal, in bytes.
    before: u64,
    /// The size of the file at the last look, in bytes.
    size: u64,
}

impl Asked {
    /// Returns the main thread's stack after it is written completely.
    fn answer(&mut self) -> Option<Stack> {
        let size = fs::metadata(&self.file).ok()?.len();
        if size == self.before || size != std::mem::replace(&mut self.size, size) {
            return None;
        }
        let text = fs::read(&self.file).ok()?;
        let new = text.get(usize::try_from(self.before).ok()?..)?;
        Stack::of_main_thread(&String::from_utf8_lossy(new))
    }
}

enum Answer {
    Stack(Stack),
    Stopped(u32),
    Silent,
}

fn send(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, Signal::USR2).is_ok())
}

/// Combines the answers. Ranks with the same answer appear once.
fn told(answers: &BTreeMap<u32, Answer>) -> Hang {
    let is_distributed = answers.len() > 1;
    let mut ranks_at: Vec<(String, Vec<u32>)> = Vec::new();
    let mut lines = Vec::new();
    let mut is_blocked = None;
    for (&rank, answer) in answers {
        let (words, waits) = match answer {
            Answer::Stack(stack) => {
                let prefix = if is_distributed { format!("[rank{rank}]: ") } else { String::new() };
                lines.extend(stack.lines().iter().map(|line| format!("{prefix}{line}")));
                stack.place(is_distributed)
            }
            Answer::Stopped(pid) => (format!("stopped by a signal (process {pid})"), true),
            Answer::Silent => (SILENT.to_owned(), false),
        };
        is_blocked.get_or_insert(waits);
        match ranks_at.iter_mut().find(|(known, _)| *known == words) {
            Some((_, ranks)) => ranks.push(rank),
            None => ranks_at.push((words, vec![rank])),
        }
    }
    let words = ranks_at.into_iter().map(|(words, ranks)| match (is_distributed, ranks.as_slice()) {
        (false, _) => words,
        (true, [rank]) => format!("rank {rank}: {words}"),
        (true, ranks) => format!("ranks {}: {words}", listed(ranks)),
    });
    let reason = Some(words.collect::<Vec<_>>().join("; "));
    Hang { reason, lines, is_blocked: is_blocked.unwrap_or(false) }
}

const SILENT: &str = "it does not answer";

/// Finds a process that a signal has stopped. Used if no process could be asked.
fn stopped(living: &[u32]) -> Hang {
    let reason = living.iter().find(|pid| is_stopped(**pid)).map(|&pid| match command(pid) {
        Some(command) => format!("process {pid} (`{command}`) is stopped by a signal"),
        None => format!("process {pid} is stopped by a signal"),
    });
    Hang { is_blocked: reason.is_some(), reason, lines: Vec::new() }
}

/// The calls of one thread, innermost call first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stack {
    lines: Vec<String>,
    frames: Vec<Frame>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    file: String,
    line: u32,
    function: String,
}

impl Stack {
    /// Returns the main thread's stack from a dump of all threads: the last stack whose outermost call is a module.
    fn of_main_thread(text: &str) -> Option<Self> {
        let mut stacks: Vec<Self> = Vec::new();
        for line in text.lines() {
            if line.ends_with("(most recent call first):") {
                stacks.push(Self { lines: Vec::new(), frames: Vec::new() });
            } else if let (Some(stack), Some(frame)) = (stacks.last_mut(), Frame::parse(line)) {
                stack.lines.push(line.to_owned());
                stack.frames.push(frame);
            }
        }
        stacks.retain(|stack| !stack.frames.is_empty());
        let is_main = |stack: &Self| stack.frames.last().is_some_and(|frame| frame.function == "<module>");
        let place = stacks.iter().rposition(is_main).or(stacks.len().checked_sub(1))?;
        Some(stacks.swap_remove(place))
    }

    fn lines(&self) -> &[String] {
        const SHOWN: usize = 8;
        &self.lines[..self.lines.len().min(SHOWN)]
    }

    /// Returns the place of the hang in words, and true if it is inside the data loader or a collective. Python does not see
    /// collectives inside PyTorch's own code, so in a distributed job a hang in the backward pass counts as a collective.
    fn place(&self, is_distributed: bool) -> (String, bool) {
        let innermost_own = self.frames.iter().position(Frame::is_users);
        let own = innermost_own.map(|place| self.frames[place].to_string());
        let from = own.as_ref().map(|own| format!(" ({own})")).unwrap_or_default();
        let library = &self.frames[..innermost_own.unwrap_or(self.frames.len())];
        let is_in = |frames: &[Frame], part: &str| frames.iter().any(|frame| frame.file.contains(part));
        if is_in(library, LOADER) {
            return (format!("waiting for the data loader{from}"), true);
        }
        if let Some(frame) = library.iter().rev().find(|frame| frame.is_collective()) {
            return (format!("waiting for other ranks in {}{from}", frame.function), true);
        }
        if is_distributed && (is_in(library, "torch/autograd/") || is_in(library, "torch/_tensor.py")) {
            return (format!("in the backward pass, where ranks wait for each other{from}"), true);
        }
        let words = match own {
            Some(own) if is_in(&self.frames, LOADER) => format!("in the dataset ({own})"),
            Some(own) => format!("in {own}"),
            None => self.frames.first().map_or_else(|| SILENT.to_owned(), |frame| format!("in {frame}")),
        };
        (words, false)
    }
}

/// The folder of PyTorch's data loader.
const LOADER: &str = "torch/utils/data/";

impl Frame {
    /// Reads a line like `  File "/a/train.py", line 45 in <module>`.
    fn parse(line: &str) -> Option<Self> {
        let (file, rest) = line.trim_start().strip_prefix("File \"")?.rsplit_once("\", line ")?;
        let (number, function) = rest.split_once(" in ")?;
        Some(Self { file: file.to_owned(), line: number.parse().ok()?, function: function.to_owned() })
    }

    /// Returns true if the code does not belong to a library, to Python, or to gputune's hook.
    fn is_users(&self) -> bool {
        const OTHERS: &[&str] =
            &["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "/python/gputune/", "<frozen "];
        !OTHERS.iter().any(|part| self.file.contains(part))
    }

    /// Returns true if it is a call of `torch.distributed`, but not the wrapper around each such call.
    fn is_collective(&self) -> bool {
        let is_distributed = ["torch/distributed/", "torch/nn/parallel/"].iter().any(|part| self.file.contains(part));
        is_distributed && self.function != "wrapper"
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.rsplit('/').next().unwrap_or(&self.file);
        write!(f, "{name}:{}", self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_hang_in_the_same_place_are_named_together() {
        let stack = |line: u32| {
            let text = format!(
                "Current thread 0x1 (most recent call first):\n  File \"/a/train.py\", line {line} in <module>\n"
            );
            Answer::Stack(Stack::of_main_thread(&text).unwrap())
        };
        let answers = BTreeMap::from([(0, stack(7)), (1, Answer::Stopped(42)), (2, stack(7)), (3, Answer::Silent)]);
        let hang = told(&answers);
        assert_eq!(
            hang.reason.as_deref(),
            Some("ranks 0, 2: in train.py:7; rank 1: stopped by a signal (process 42); rank 3: it does not answer")
        );
        assert!(!hang.is_blocked, "rank 0 runs");
        assert_eq!(hang.lines[0], "[rank0]:   File \"/a/train.py\", line 7 in <module>");
    }

    #[test]
    fn a_first_rank_that_waits_for_others_is_blocked() {
        let text = "Current thread 0x1 (most recent call first):\n  File \"/site-packages/torch/distributed/c10d.py\", line 1 in \
            all_reduce\n  File \"/a/train.py\", line 7 in <module>\n";
        let waits = || Answer::Stack(Stack::of_main_thread(text).unwrap());
        assert!(told(&BTreeMap::from([(0, waits()), (1, Answer::Silent)])).is_blocked);
        assert!(!told(&BTreeMap::from([(0, Answer::Silent), (1, waits())])).is_blocked);
        assert!(told(&BTreeMap::from([(0, Answer::Stopped(1))])).is_blocked);
    }

    #[test]
    fn nobody_is_asked_who_did_not_say_hello() {
        assert_eq!(ask(Path::new("/nowhere"), &BTreeMap::new(), &[], &mut || true), Hang::default());
        // `living` does not contain this process, so it gets no signal. The signal would kill it.
        let own = BTreeMap::from([(0, std::process::id())]);
        assert_eq!(ask(Path::new("/nowhere"), &own, &[], &mut || true), Hang::default());
    }

    fn place(frames: &str, is_distributed: bool) -> String {
        let text = format!(
            "Thread 0x2 (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 1 in wait\n\n\
                            Current thread 0x1 (most recent call first):\n{frames}"
        );
        Stack::of_main_thread(&text).unwrap().place(is_distributed).0
    }

    const MAIN: &str =
        "  File \"/home/me/train.py\", line 45 in main\n  File \"/home/me/train.py\", line 60 in <module>\n";
    const LIBRARY: &str = "/venv/lib/python3.11/site-packages";

    #[test]
    fn the_loader_the_dataset_and_ones_own_code_are_told_apart() {
        let loader = format!(
            "  File \"/usr/lib/python3.11/queue.py\", line 180 in get\n  File \"{LIBRARY}/torch/utils/data/dataloader.py\", line 1131 in _try_get_data\n"
        );
        assert_eq!(place(&format!("{loader}{MAIN}"), false), "waiting for the data loader (train.py:45)");
        let dataset = format!("  File \"/home/me/data.py\", line 12 in __getitem__\n{loader}{MAIN}");
        assert_eq!(place(&dataset, false), "in the dataset (data.py:12)");
        assert_eq!(place(MAIN, false), "in train.py:45");
    }

    #[test]
    fn collectives_are_named() {
        let file = format!("{LIBRARY}/torch/distributed");
        let frames = format!(
            "  File \"{file}/distributed_c10d.py\", line 4181 in all_reduce\n  File \"{file}/c10d_logger.py\", line 83 in wrapper\n{MAIN}"
        );
        assert_eq!(place(&frames, true), "waiting for other ranks in all_reduce (train.py:45)");
        let backward = format!("  File \"{LIBRARY}/torch/autograd/graph.py\", line 8 in _engine_run_backward\n{MAIN}");
        assert_eq!(place(&backward, true), "in the backward pass, where ranks wait for each other (train.py:45)");
        assert_eq!(place(&backward, false), "in train.py:45");
    }

    #[test]
    fn what_is_no_stack_is_none() {
        assert_eq!(Stack::of_main_thread("Fatal Python error\n"), None);
        assert_eq!(Stack::of_main_thread("Thread 0x1 (most recent call first):\n  ...\n"), None);
    }
}
