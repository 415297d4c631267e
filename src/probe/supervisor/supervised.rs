//! A supervisor, as gputune sees it: it is started, woken if a signal stopped it, and replaced if it is gone.

use std::collections::BTreeSet;
use std::io::{self, BufReader};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use super::super::cgroup::{self, Cgroup};
use super::super::locked;
use super::super::orders::{Order, Report, Stop, read_line, send};
use super::super::shared_watch::SharedWatch;
use super::{ADOPTS_ORPHANS, SUPERVISE, pid_of, signal_to};
use crate::machine::process_table::{descendants, has_ended, is_stopped, parent, started};
use crate::machine::shared::files_of;

pub(in super::super) struct Supervised {
    link: UnixStream,
    pid: Pid,
    process: Process,
    is_clean: Arc<AtomicBool>,
    /// Reads the supervisor's reports until it is gone.
    reader: Option<JoinHandle<()>>,
}

/// Passes on a supervisor's report, or `None` when the supervisor is gone. Returns false if nobody listens.
pub(in super::super) type Tell = Box<dyn Fn(Option<Report>) -> bool + Send>;

/// The supervisors that this process has started and not yet waited for.
static LIVING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

enum Process {
    Own(std::process::Child),
    /// A child of a zygote. It began at this clock tick.
    OfZygote(Option<u64>),
}

impl Supervised {
    /// Starts a supervisor that carries out the order.
    pub(in super::super) fn start(
        executable: &Path,
        order: &Order,
        output: BorrowedFd<'_>,
        tell: Tell,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // This lock keeps the new supervisor from being taken for an orphan before it is registered.
        let mut living = locked(&LIVING);
        let process = Command::new(executable)
            .arg0("gputune: supervisor")
            .arg(SUPERVISE)
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(output.try_clone_to_owned()?)
            .stderr(output.try_clone_to_owned()?)
            .spawn()?;
        living.insert(process.id());
        drop(living);
        Self::begin(ours, pid_of(process.id())?, Process::Own(process), order, tell)
    }

    /// Gives the order to a supervisor that a zygote forked, at the other end of `link`.
    pub(in super::super) fn forked(link: UnixStream, pid: u32, order: &Order, tell: Tell) -> io::Result<Self> {
        Self::begin(link, pid_of(pid)?, Process::OfZygote(started(pid)), order, tell)
    }

    fn begin(link: UnixStream, pid: Pid, process: Process, order: &Order, tell: Tell) -> io::Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(10);
        // A stopped supervisor must not block this process.
        link.set_write_timeout(Some(PATIENCE))?;
        let mut supervised = Self { link, pid, process, is_clean: Arc::default(), reader: None };
        send(&mut supervised.link, order)?;
        let is_clean = Arc::clone(&supervised.is_clean);
        let mut lines = BufReader::new(supervised.link.try_clone()?);
        let reader = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
            while let Ok(Some(report)) = read_line(&mut lines) {
                is_clean.fetch_or(matches!(report, Report::Clean { .. }), Ordering::Relaxed);
                if !tell(Some(report)) {
                    return;
                }
            }
            tell(None);
        })?;
        supervised.reader = Some(reader);
        Ok(supervised)
    }

    /// Returns the supervisor's process id. The supervisor is the ancestor of all the probe's processes.
    pub(in super::super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Tells the supervisor to end the probe, after the grace time or at once. Does nothing if it is gone.
    pub(in super::super) fn stop(&mut self, at_once: bool) {
        let _ = send(&mut self.link, &Stop { at_once });
    }

    /// Ends a supervisor that does not answer, and its processes. Returns the processes that even SIGKILL does not end.
    pub(in super::super) fn end_without_it(&mut self) -> Vec<u32> {
        kill_tree(self.pid());
        self.clear();
        if self.leaves_orphans() { self.orphans() } else { Vec::new() }
    }

    /// Waits for the supervisor to end, or ends it and its processes. Returns true if it did its work.
    fn wait(&mut self) -> bool {
        const LONGEST: Duration = Duration::from_secs(40);
        const LOOK_EVERY: Duration = Duration::from_millis(1);
        let mut care = Care::default();
        let deadline = Instant::now() + LONGEST;
        loop {
            if let Some(is_success) = self.result() {
                return is_success;
            }
            let now = Instant::now();
            if care.look_in_haste(self, now) || now >= deadline {
                kill_tree(self.pid());
                let Process::Own(process) = &mut self.process else { return false };
                // After the deadline, do not wait: the process may be in a system call that never returns.
                return now < deadline && process.wait().is_ok_and(|status| status.success());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns true if the supervisor did its work; `None` while it lives.
    fn result(&mut self) -> Option<bool> {
        match &mut self.process {
            Process::Own(process) => match process.try_wait() {
                Ok(status) => status.map(|status| status.success()),
                Err(_) => Some(false),
            },
            Process::OfZygote(began) => {
                let is_over = has_ended(self.pid.as_raw_nonzero().get().cast_unsigned(), *began)
                    && (self.is_clean() || self.reader.as_ref().is_none_or(JoinHandle::is_finished));
                is_over.then(|| self.is_clean())
            }
        }
    }

    /// Returns true if the supervisor reported, before it ended, that no process of its probe is left.
    pub(in super::super) fn is_clean(&self) -> bool {
        self.is_clean.load(Ordering::Relaxed)
    }

    /// Ends the processes that a killed supervisor left: the members of its control group, and the orphans of this
    /// process.
    fn clear(&self) {
        if let Some(path) = Cgroup::folder_of(self.pid()) {
            cgroup::end(&path);
        }
        if self.leaves_orphans() {
            end_orphans(|| self.orphans());
        }
    }

    /// Returns this process's descendants that belong to no other supervisor. The lock keeps supervisors from starting.
    fn orphans(&self) -> Vec<u32> {
        let living = locked(&LIVING);
        let others = living.iter().copied().filter(|&pid| pid != self.pid()).collect();
        orphans(&others)
    }

    /// Returns true if this process gets the supervisor's orphans. Below a zygote, the zygote's supervisor gets them.
    fn leaves_orphans(&self) -> bool {
        ADOPTS_ORPHANS.load(Ordering::Relaxed) && matches!(self.process, Process::Own(_))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.link.shutdown(std::net::Shutdown::Both);
        if !self.wait() {
            self.clear();
        }
        locked(&LIVING).remove(&self.pid());
    }
}

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
    signal_to(pid, Signal::CONT);
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
fn kill_tree(supervisor: u32) {
    for _ in 0..ROUNDS {
        let processes = descendants(supervisor);
        if processes.is_empty() {
            break;
        }
        processes.into_iter().for_each(|pid| signal_to(pid, Signal::KILL));
        std::thread::sleep(ROUND);
    }
    signal_to(supervisor, Signal::KILL);
}

/// Records the shared memory files of a supervisor's processes, before they are ended.
pub(in super::super) fn remember_shared(supervisor: u32, watch: &mut SharedWatch, own: &mut BTreeSet<u32>) {
    let processes = descendants(supervisor);
    watch.see(files_of(&processes));
    own.extend(processes);
}

/// Ends the processes that a killed supervisor left to this process, and repeats that until no processes are found.
fn end_orphans(find: impl Fn() -> Vec<u32>) {
    let mut ended: BTreeSet<u32> = BTreeSet::new();
    for _ in 0..ROUNDS {
        let orphans = find();
        orphans.iter().for_each(|&pid| signal_to(pid, Signal::KILL));
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
fn orphans(living: &BTreeSet<u32>) -> Vec<u32> {
    let in_charge: BTreeSet<u32> = living.iter().flat_map(|&pid| descendants(pid).into_iter().chain([pid])).collect();
    descendants(std::process::id()).into_iter().filter(|pid| !in_charge.contains(pid)).collect()
}
