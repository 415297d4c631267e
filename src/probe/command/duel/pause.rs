//! Stops the processes of a session while another session trains.
//!
//! A process that waits between two steps computes nothing, but its loader workers continue until their queue is full. During that
//! time they take CPU time from the other session. The full queue then makes this session's next steps too fast. SIGSTOP stops all
//! of them and leaves the queue unchanged.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::session::Session;
use crate::machine::process_table::{descendants, is_stopped};

/// How long a process may take to stop. A process in an uninterruptible system call stops only after the call. A round number, far
/// below a block.
const PATIENCE: Duration = Duration::from_millis(100);

impl Session {
    /// Stops all processes of the session. Returns true if all stand still; otherwise no process stays stopped.
    pub(in super::super) fn pause(&mut self) -> bool {
        let Some(root) = self.supervised.as_ref().map(|supervised| supervised.pid()) else { return false };
        let deadline = Instant::now() + PATIENCE;
        self.is_stopped = true;
        loop {
            // Processes that start during this round are in the next list.
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
    /// Continues the stopped processes of the session.
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
