//! Counts the resource use of a process and its descendants, including ended processes.
//!
//! When a parent waits for an ended process, the kernel adds the process's use to the parent's counters. CPU time is
//! added to `cutime` and `cstime` (proc(5), `/proc/PID/stat`). The bytes that were read are added to the parent's own
//! `read_bytes` (`/proc/PID/io`; `wait_task_zombie` in the kernel's `exit.c`). The probe's supervisor waits for
//! orphans. So nothing is lost when a process ends between two readings, unless its parent ignores SIGCHLD and thus
//! does not wait. Then its use after the last reading is missing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::machine::process_table::{Stat, children_in, descendants_in};

/// Counters of a tree of processes; they only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// CPU time, in clock ticks.
    pub(super) ticks: u64,
    /// Bytes that were read from storage; absent if a process may not be inspected.
    pub(super) read_bytes: Option<u64>,
}

impl Usage {
    fn is_less_than(&self, other: &Self) -> bool {
        let reads_less = self.read_bytes.zip(other.read_bytes).is_some_and(|(own, other)| own < other);
        self.ticks < other.ticks || reads_less
    }
}

#[derive(Debug)]
pub(super) struct Tree {
    proc: PathBuf,
    root: u32,
    /// True if the kernel lists the children of a process (`CONFIG_PROC_CHILDREN`); otherwise all processes are read.
    pub(super) lists_children: bool,
    /// The living processes at the last reading.
    pids: Vec<u32>,
    /// The use of the living processes at the last reading.
    last: Usage,
    /// The use of processes that ended and were not waited for.
    lost: Usage,
}

impl Tree {
    pub(super) fn new(proc: &Path, root: u32) -> Self {
        Self {
            proc: proc.to_owned(),
            root,
            lists_children: proc.join(format!("{root}/task/{root}/children")).exists(),
            pids: Vec::new(),
            last: Usage::default(),
            lost: Usage { ticks: 0, read_bytes: Some(0) },
        }
    }

    /// Returns the living processes at the last reading, including the root.
    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Returns the use until now; `None` if the tree is gone.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let mut now = self.living()?;
        if now.is_less_than(&self.last) {
            // A process may have ended during the reading; by now its parent's counters include its use.
            now = self.living()?;
        }
        self.lost.ticks += self.last.ticks.saturating_sub(now.ticks);
        if let (Some(lost), Some(then), Some(now)) = (&mut self.lost.read_bytes, self.last.read_bytes, now.read_bytes) {
            *lost += then.saturating_sub(now);
        }
        self.last = Usage { read_bytes: now.read_bytes.or(self.last.read_bytes), ..now };
        let read_bytes = now.read_bytes.zip(self.lost.read_bytes).map(|(now, lost)| now + lost);
        Some(Usage { ticks: now.ticks + self.lost.ticks, read_bytes })
    }

    /// Sums the use of the living processes and of the ended children that they waited for. Parents are read before their children,
    /// so that a process that ends during the reading does not count twice.
    fn living(&mut self) -> Option<Usage> {
        self.pids.clear();
        let mut sum = Usage { ticks: self.ticks(self.root)?, read_bytes: Some(0) };
        add(&mut sum.read_bytes, self.read_bytes(self.root));
        self.pids.push(self.root);
        for pid in self.descendants() {
            let Some(ticks) = self.ticks(pid) else { continue };
            sum.ticks += ticks;
            add(&mut sum.read_bytes, self.read_bytes(pid));
            self.pids.push(pid);
        }
        Some(sum)
    }

    fn ticks(&self, pid: u32) -> Option<u64> {
        Stat::read(&self.proc, pid)?.ticks(true)
    }

    /// Returns the bytes that a process has read from storage; an error if it may not be inspected.
    fn read_bytes(&self, pid: u32) -> Result<u64, NotAllowed> {
        match fs::read_to_string(self.proc.join(format!("{pid}/io"))) {
            Ok(text) => {
                let number = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
                number.and_then(|number| number.trim().parse().ok()).ok_or(NotAllowed)
            }
            // The process has just ended; its parent's counters include its use, or soon will.
            Err(why) if why.kind() == ErrorKind::NotFound && !self.proc.join(format!("{pid}/stat")).exists() => Ok(0),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(0),
            Err(_) => Err(NotAllowed),
        }
    }

    /// Returns all descendants of the root, parents before children. Zombies count until their parents wait for them, so
    /// that their use is not added to `lost`.
    fn descendants(&self) -> Vec<u32> {
        if !self.lists_children {
            return descendants_in(&self.proc, self.root, true);
        }
        let mut found = self.children(self.root);
        let mut at = 0;
        while let Some(&pid) = found.get(at) {
            let children = self.children(pid);
            found.extend(children);
            at += 1;
        }
        found
    }

    /// Returns the children of all threads of a process (proc(5), `/proc/PID/task/TID/children`).
    fn children(&self, pid: u32) -> Vec<u32> {
        children_in(&self.proc.join(format!("{pid}/task")))
    }
}

struct NotAllowed;

/// Adds a number to a sum; an absent number makes the sum absent.
fn add(sum: &mut Option<u64>, number: Result<u64, NotAllowed>) {
    *sum = sum.zip(number.ok()).map(|(sum, number)| sum + number);
}
