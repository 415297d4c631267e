//! Stops the processes of a session while another has its turn.
//!
//! A process that waits between two steps computes nothing, but the workers of its loader go on until their queue is full: for that
//! time they take processors from the other, and the queue makes this one's next steps too fast. SIGSTOP reaches them all, and
//! leaves the queue as it was.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::session::Session;
use crate::machine::process_table::{descendants, is_stopped};

/// How long a process may take to stop: one in a system call that cannot be interrupted does so after it. A round number, far
/// below a block.
const PATIENCE: Duration = Duration::from_millis(100);

impl Session {
    /// Stops all of its processes; returns whether all stand still. If not, none is stopped.
    pub(in super::super) fn pause(&mut self) -> bool {
        let Some(root) = self.supervised.as_ref().map(|supervised| supervised.pid()) else { return false };
        let deadline = Instant::now() + PATIENCE;
        self.is_stopped = true;
        loop {
            // Those that were started meanwhile are in the next list.
            let moving: Vec<u32> = descendants(root).into_iter().filter(|pid| !is_stopped(*pid)).collect();
            if moving.is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                self.resume();
                return false;
            }
            signal(&moving, Signal::STOP);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Session {
    /// Lets its processes go on where they were stopped.
    pub(in super::super) fn resume(&mut self) {
        if !std::mem::take(&mut self.is_stopped) {
            return;
        }
        if let Some(root) = self.supervised.as_ref().map(|supervised| supervised.pid()) {
            signal(&descendants(root), Signal::CONT);
        }
    }
}

fn signal(pids: &[u32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
        let _ = kill_process(pid, signal);
    }
}
