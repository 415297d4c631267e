//! Wakes a stopped supervisor, and ends a probe without its supervisor.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitOptions, kill_process, waitpid};

use super::super::shared_watch::SharedWatch;
use super::{Supervised, pid_of};
use crate::machine::{
    process_table::{descendants, is_stopped, parent, started},
    shared::files_of,
};

/// How long processes may take to end without their supervisor: two seconds. SIGKILL usually takes milliseconds.
const ROUNDS: u32 = 400;
const ROUND: Duration = Duration::from_millis(5);

/// Checks if a supervisor was stopped by a signal, and continues it.
#[derive(Debug, Default)]
pub(in super::super) struct Care {
    next: Option<Instant>,
    stopped_since: Option<Instant>,
    woken: u32,
}

impl Care {
    /// Continues a supervisor that stays stopped for `PATIENCE`: a batch system would stop this process by then.
    pub(in super::super) fn look(&mut self, supervised: &Supervised, now: Instant) {
        const PATIENCE: Duration = Duration::from_secs(1);
        self.look_after(supervised.pid(), now, PATIENCE);
    }

    /// Checks the supervisor while it ends the probe. Returns true if it is stopped again and again.
    pub(in super::super) fn look_in_haste(&mut self, supervised: &Supervised, now: Instant) -> bool {
        const MOST: u32 = 5;
        self.look_after(supervised.pid(), now, Duration::ZERO);
        self.woken > MOST
    }

    fn look_after(&mut self, pid: u32, now: Instant, patience: Duration) {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + LOOK_EVERY);
        if !is_stopped(pid) {
            self.stopped_since = None;
            return;
        }
        if now.duration_since(*self.stopped_since.get_or_insert(now)) >= patience {
            wake(pid);
            self.woken += 1;
            self.stopped_since = None;
        }
    }
}

fn wake(pid: u32) {
    let _ = pid_of(pid).map(|pid| kill_process(pid, Signal::CONT));
}

/// Continues all stopped children of this process, so that a supervisor notices the end of this process.
pub fn wake_all() {
    let own = std::process::id();
    let children = descendants(own).into_iter().filter(|pid| parent(*pid) == Some(own) && is_stopped(*pid));
    children.for_each(wake);
}

/// Ends a supervisor whose gputune is gone, and everything that it started. First, the supervisor gets some time to do that itself.
pub(in super::super) fn end_tree(supervisor: u32) {
    const ITS_OWN: u32 = 200;
    let begun = started(supervisor);
    wake(supervisor);
    for _ in 0..ITS_OWN {
        if begun.is_none() || started(supervisor) != begun {
            return;
        }
        std::thread::sleep(ROUND);
    }
    kill_tree(supervisor);
}

/// Kills all descendants of a supervisor, then the supervisor.
pub(super) fn kill_tree(supervisor: u32) {
    for _ in 0..ROUNDS {
        let processes = descendants(supervisor);
        if processes.is_empty() {
            break;
        }
        for pid in processes.into_iter().filter_map(|pid| pid_of(pid).ok()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(ROUND);
    }
    let _ = pid_of(supervisor).map(|pid| kill_process(pid, Signal::KILL));
}

/// Records the shared memory files of a supervisor's processes, before they are ended.
pub(in super::super) fn remember_shared(supervisor: u32, watch: &mut SharedWatch, own: &mut BTreeSet<u32>) {
    let processes = descendants(supervisor);
    watch.see(files_of(&processes));
    own.extend(processes);
}

/// Ends the processes that a killed supervisor left to this process, and repeats that until no processes are found.
pub(super) fn end_orphans(find: impl Fn() -> Vec<u32>) {
    let mut ended: BTreeSet<u32> = BTreeSet::new();
    for _ in 0..ROUNDS {
        let orphans = find();
        for pid in orphans.iter().filter_map(|&pid| pid_of(pid).ok()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        ended.extend(&orphans);
        // Ended orphans wait for `waitpid`. Their children then become orphans and follow.
        ended.retain(|&pid| {
            let asked = pid_of(pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
            !matches!(asked, Ok(Ok(Some(_)) | Err(_)) | Err(_))
        });
        if orphans.is_empty() && ended.is_empty() {
            break;
        }
        std::thread::sleep(ROUND);
    }
}

/// Returns the descendants of this process that belong to no living supervisor.
pub(super) fn orphans(living: &BTreeSet<u32>) -> Vec<u32> {
    let in_charge: BTreeSet<u32> = living.iter().flat_map(|&pid| descendants(pid).into_iter().chain([pid])).collect();
    descendants(std::process::id()).into_iter().filter(|pid| !in_charge.contains(pid)).collect()
}
