//! A supervisor, as gputune sees it.

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

use rustix::process::Pid;

use super::super::cgroup::{self, Cgroup};
use super::super::locked;
use super::super::orders::{Order, Report, Stop, read_line, send};
use super::{ADOPTS_ORPHANS, Care, SUPERVISE, end_orphans, kill_tree, orphans, pid_of};
use crate::machine::process_table::{has_ended, started};

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

    /// Ends what a killed supervisor left: the members of its control group, and the orphans of this process.
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
