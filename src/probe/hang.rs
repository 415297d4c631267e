//! Finds out where a probe without progress hangs, by asking its processes.
//!
//! A process that said `hello` with its `pid` writes the stacks of all its threads on SIGUSR2, as Python's `faulthandler.register`
//! does. The file is `python/stacks-PID.txt` in the probe's folder.

mod stacks;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::machine::process_table::{command, is_stopped};
use stacks::{Place, Stack};

/// The time limit for answers.
const PATIENCE: Duration = Duration::from_secs(1);

/// The result of the questions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hang {
    /// The place, in words: `waiting for the data loader (train.py:45)`.
    pub(super) reason: Option<String>,
    /// The main threads' stacks, as Python writes them.
    pub(super) lines: Vec<String>,
    /// True if the first rank that answers waits for its data loader or for other ranks, or is stopped by a signal.
    pub(super) is_blocked: bool,
}

/// Returns the file that a process writes its stacks to.
fn stacks_file(folder: &Path, pid: u32) -> PathBuf {
    folder.join("python").join(format!("stacks-{pid}.txt"))
}

/// Asks each rank's process where it is. Signals only processes in `living`, because SIGUSR2 ends a process that does not expect
/// it. Keeps calling `go_on` while it waits.
pub(super) fn ask(folder: &Path, pids: &BTreeMap<u32, u32>, living: &[u32], go_on: &mut dyn FnMut() -> bool) -> Hang {
    let mut waiting: Vec<Asked> = Vec::new();
    let mut answers: BTreeMap<u32, Answer> = BTreeMap::new();
    for (&rank, &pid) in pids.iter().filter(|(_, pid)| living.contains(pid)) {
        let file = stacks_file(folder, pid);
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

/// A process that was asked.
struct Asked {
    rank: u32,
    file: PathBuf,
    before: u64,
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
    let is_blocked = answers.values().next().is_some_and(|answer| match answer {
        Answer::Stack(stack) => stack.place(is_distributed).is_wait(),
        Answer::Stopped(_) => true,
        Answer::Silent => false,
    });
    for (&rank, answer) in answers {
        let words = match answer {
            Answer::Stack(stack) => {
                let prefix = if is_distributed { format!("[rank{rank}]: ") } else { String::new() };
                lines.extend(stack.lines().iter().map(|line| format!("{prefix}{line}")));
                stack.place(is_distributed).to_string()
            }
            Answer::Stopped(pid) => format!("stopped by a signal (process {pid})"),
            Answer::Silent => Place::Unknown.to_string(),
        };
        match ranks_at.iter_mut().find(|(known, _)| *known == words) {
            Some((_, ranks)) => ranks.push(rank),
            None => ranks_at.push((words, vec![rank])),
        }
    }
    let words = ranks_at.into_iter().map(|(words, ranks)| match (is_distributed, ranks.as_slice()) {
        (false, _) => words,
        (true, [rank]) => format!("rank {rank}: {words}"),
        (true, ranks) => {
            format!("ranks {}: {words}", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        }
    });
    Hang { reason: Some(words.collect::<Vec<_>>().join("; ")), lines, is_blocked }
}

/// Finds a process that a signal has stopped, when no process answered.
fn stopped(living: &[u32]) -> Hang {
    let reason = living.iter().find(|pid| is_stopped(**pid)).map(|&pid| match command(pid) {
        Some(command) => format!("process {pid} (`{command}`) is stopped by a signal"),
        None => format!("process {pid} is stopped by a signal"),
    });
    Hang { is_blocked: reason.is_some(), reason, lines: Vec::new() }
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
        // `living` does not contain this process, so no signal is sent. Otherwise this process would die.
        let own = BTreeMap::from([(0, std::process::id())]);
        assert_eq!(ask(Path::new("/nowhere"), &own, &[], &mut || true), Hang::default());
    }
}
