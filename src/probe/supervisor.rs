//! The supervisor: a process between gputune and a probe that makes sure that no process of the probe survives.
//!
//! A probe's command may start workers that leave its process group, daemons that fork twice, or children that ignore
//! SIGTERM; and gputune itself may be killed. So the command does not run below gputune but below a supervisor, which
//! is the same executable in another role:
//!
//! * it is a *child subreaper* (prctl(2), `PR_SET_CHILD_SUBREAPER`): whatever loses its parent becomes its child, so
//!   everything that the command ever started is among its descendants;
//! * its standard input closes when gputune dies, however that happens; it also asks for SIGTERM in that case
//!   (`PR_SET_PDEATHSIG`);
//! * the command gets a process group of its own and, where the kernel permits, a control group of its own, whose
//!   `cgroup.kill` ends all members at once, also when the supervisor itself was killed;
//! * a second short role, between fork and exec of the command, asks for SIGKILL at the supervisor's death.
//!
//! Only processes that descend from the probe are ever signalled; nothing is found by name.
//!
//! The first argument chooses the role. A program that uses the library with a [`CommandProber`] either names the
//! `gputune` executable, or calls [`run_if_asked`] first thing in `main` and names itself.
//!
//! [`CommandProber`]: super::CommandProber

mod adopt;
mod care;
mod launch;
mod supervised;

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::CpuSet;

use super::cgroup::Cgroup;
use super::orders::{Cover, Ending, Order, Report, Stop};
use super::shared_watch::SharedWatch;
use super::sweep;
use super::writes::{self, REHEARSE, answer_rehearsal};
use crate::machine::process_table::{descendants, own_children};

use adopt::Foundling;
pub use care::wake_all;
pub(super) use care::{Care, end_tree, remember_shared};
use care::{end_orphans, kill_tree, orphans};
use launch::{hold, launch};
pub(super) use supervised::Supervised;

/// The first arguments that choose a role.
const SUPERVISE: &str = "__supervise";
const LAUNCH: &str = "__launch";
const HOLD: &str = "__hold";
/// A zygote starts this one, see [`Foundling`].
pub(super) const ADOPT: &str = "__adopt";

/// Takes a supervisor's role if the arguments ask for one; the exit code is then the program's.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        SUPERVISE => Some(exit_code(&supervise(None))),
        ADOPT => {
            let foundling = arguments.next().and_then(|pid| Foundling::connected(pid.to_str()?).ok());
            Some(foundling.map_or(ExitCode::FAILURE, |foundling| exit_code(&supervise(Some(foundling)))))
        }
        LAUNCH => Some(launch(arguments)),
        HOLD => Some(exit_code(&hold())),
        REHEARSE => Some(exit_code(&answer_rehearsal())),
        _ => None,
    }
}

fn exit_code(result: &io::Result<()>) -> ExitCode {
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the descendants of a killed supervisor are handed to this process.
static ADOPTS_ORPHANS: AtomicBool = AtomicBool::new(false);

/// Makes this process the parent of whatever a killed supervisor leaves, so that nothing survives even then.
///
/// Only for a program that starts no other processes, since every descendant of this process is then ended.
///
/// # Errors
/// The kernel refuses, which happens only before Linux 3.4.
pub fn adopt_orphans() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    ADOPTS_ORPHANS.store(true, Ordering::Relaxed);
    Ok(())
}

/// Has this process be killed when its parent is gone; at once if that is another than expected.
///
/// # Errors
/// The kernel refuses, or the parent is another.
pub fn end_with(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_there = rustix::process::getppid().is_some_and(|own| own.as_raw_nonzero().get() == parent);
    if is_there { Ok(()) } else { Err(io::Error::other("the process that started this one is gone")) }
}

fn pid_of(id: u32) -> io::Result<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("a process id that is none"))
}

/// What reaches the supervisor's loop.
enum Notice {
    Stop {
        at_once: bool,
    },
    /// gputune is gone, or somebody asked the supervisor to end.
    Orphaned,
    ChildEnded,
}

/// The reason for ending a probe's processes, which decides how that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// gputune asked for it, or the command ended by itself.
    Orderly,
    /// gputune does not want to wait.
    Hasty,
    /// gputune is gone.
    AtOnce,
}

/// Binds this thread, and what it starts from now on, to some processors (sched_setaffinity(2)).
fn bind(processors: &[u32]) -> io::Result<()> {
    if processors.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &processor in processors.iter().filter(|processor| (**processor as usize) < CpuSet::MAX_CPU) {
        set.set(processor as usize);
    }
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}

/// Runs the supervisor from start to end; its command is the foundling if there is one.
fn supervise(foundling: Option<Foundling>) -> io::Result<()> {
    // This comes first, so that a parent that is already dead is noticed by the closed connection below.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(link.try_clone()?);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line)?;
    bind(&order.processors)?;

    let (sender, notices) = sync_channel(64);
    forward_signals(sender.clone())?;
    let waker = sender.clone();
    std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            if let Ok(Stop { at_once }) = serde_json::from_str(&line) {
                let _ = sender.send(Notice::Stop { at_once });
            }
        }
        let _ = sender.send(Notice::Orphaned);
    });
    let supervision =
        Supervision { link, order: &order, cgroup: None, joining: Arc::default(), waker, main: None, shared: None };
    if supervision.run(foundling, &notices) == End::AtOnce {
        order.to_remove.iter().for_each(|folder| writes::remove_unless_used(folder));
        if order.is_zygote {
            // A probe that was about to start has a folder of which no supervisor has been told.
            sweep::sweep();
        }
    }
    Ok(())
}

/// Forwards signals to the loop: SIGCHLD wakes it, and signals that would end the supervisor make it end its processes
/// first.
fn forward_signals(notices: SyncSender<Notice>) -> io::Result<()> {
    use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let notice = if signal == SIGCHLD { Notice::ChildEnded } else { Notice::Orphaned };
            // A full channel already has enough to wake the loop.
            match notice {
                Notice::ChildEnded => drop(notices.try_send(notice)),
                _ => drop(notices.send(notice)),
            }
        }
    });
    Ok(())
}

struct Supervision<'o> {
    link: UnixStream,
    order: &'o Order,
    cgroup: Option<Arc<Cgroup>>,
    /// Whether the command is being moved into its control group.
    joining: Arc<AtomicBool>,
    /// Tells the loop that the command was moved: it may have ended meanwhile.
    waker: SyncSender<Notice>,
    main: Option<Pid>,
    /// The files in shared memory and their processes, for when gputune is gone.
    shared: Option<(SharedWatch, BTreeSet<u32>)>,
}

impl Supervision<'_> {
    fn run(mut self, foundling: Option<Foundling>, notices: &Receiver<Notice>) -> End {
        let adopted = foundling.as_ref().map(Foundling::pid);
        match foundling.map_or_else(|| self.start(), |foundling| foundling.take_over(self.order)) {
            Ok(pid) => {
                self.main = Some(pid);
                self.join_cgroup(pid);
                self.report(&Report::Started { pid: pid.as_raw_nonzero().get().cast_unsigned() });
            }
            Err(error) => {
                if let Some(pid) = adopted {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
                }
                let errno = error.raw_os_error().unwrap_or(0);
                self.report(&Report::NotStarted { errno, message: error.to_string() });
                return End::Orderly;
            }
        }
        let end = self.wait_for_the_end(notices);
        let (mut end, survivors) = self.end_all(notices, end);
        // If gputune was killed, a step that writes to it may end by itself before that is noticed here.
        if !self.report(&Report::Clean { survivors }) {
            end = End::AtOnce;
            self.remember_shared();
        }
        if let Some((watch, own)) = self.shared.take() {
            watch.clean(&own);
        }
        end
    }

    fn start(&self) -> io::Result<Pid> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let mut launch = Command::new("/proc/self/exe");
        launch.arg(LAUNCH).args(&self.order.command);
        launch.envs(&self.order.env).current_dir(&self.order.cwd).process_group(0);
        launch.stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = launch.spawn()?;
        drop(launch);
        let cover = Cover { layout: self.order.layout.clone(), is_zygote: self.order.is_zygote };
        let mut line = serde_json::to_vec(&cover)?;
        line.push(b'\n');
        // One that is gone already is noticed by its silence.
        let _ = ours.write_all(&line);
        let mut said = String::new();
        BufReader::new(ours).read_to_string(&mut said)?;
        let Some(error) = said.lines().next() else { return pid_of(child.id()) };
        let _ = rustix::process::waitpid(Some(pid_of(child.id())?), WaitOptions::empty());
        Err(error.parse().map_or_else(|_| io::Error::other(error.to_owned()), io::Error::from_raw_os_error))
    }

    /// Moves the command into its control group, in a thread. The kernel first waits for all processors to pass a
    /// quiescent point (`cgroup_threadgroup_rwsem`), which takes seconds on an overloaded machine; neither the command
    /// nor its end may wait for that.
    fn join_cgroup(&mut self, pid: Pid) {
        let Some(cgroup) = Cgroup::create().map(Arc::new) else { return };
        self.cgroup = Some(Arc::clone(&cgroup));
        let waker = self.waker.clone();
        let joining = Arc::clone(&self.joining);
        joining.store(true, Ordering::Release);
        let join = move || {
            cgroup.add(pid);
            joining.store(false, Ordering::Release);
            // A full channel already has enough to wake the loop.
            let _ = waker.try_send(Notice::ChildEnded);
        };
        if std::thread::Builder::new().spawn(join).is_err() {
            self.joining.store(false, Ordering::Release);
        }
    }

    /// Returns when the command ended or somebody wants it to.
    fn wait_for_the_end(&mut self, notices: &Receiver<Notice>) -> End {
        // The time-out is only a safety net; ends are noticed by SIGCHLD.
        loop {
            match notices.recv_timeout(Duration::from_millis(500)) {
                Ok(Notice::Stop { at_once: false }) => return End::Orderly,
                Ok(Notice::Stop { at_once: true }) => return End::Hasty,
                Ok(Notice::Orphaned) | Err(RecvTimeoutError::Disconnected) => return End::AtOnce,
                Ok(Notice::ChildEnded) | Err(RecvTimeoutError::Timeout) => {
                    self.reap();
                    if self.main.is_none() {
                        return End::Orderly;
                    }
                    if self.order.is_zygote {
                        self.end_foundlings();
                    }
                }
            }
        }
    }

    /// Ends what a killed supervisor of a probe has left to this one.
    fn end_foundlings(&self) {
        for pid in own_children().into_iter().filter_map(|pid| pid_of(pid).ok()) {
            if self.main != Some(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Ends every descendant: politely first, unless there is no time. Returns those that cannot be ended.
    fn end_all(&mut self, notices: &Receiver<Notice>, mut end: End) -> (End, Vec<u32>) {
        const STUBBORN: Duration = Duration::from_secs(30);
        /// How long the supervisors below a zygote may take: they end their probes at once. A round number.
        const OF_ZYGOTES: Duration = Duration::from_secs(10);
        let grace = Duration::from_millis(self.order.grace_ms);
        let begin = Instant::now();
        let mut kill_at = if end == End::Orderly { begin + grace } else { begin };
        if self.order.is_zygote {
            // Supervisors of probes end with it, and tidy up first.
            self.main.map(|main| rustix::process::kill_process(main, Signal::KILL));
            kill_at = begin + OF_ZYGOTES;
        }
        let mut asked = false;
        while self.reap() {
            if end == End::AtOnce {
                self.remember_shared();
            }
            if !asked && !self.order.is_zygote && self.may_ask(begin) {
                asked = true;
                self.signal(Signal::TERM);
                self.signal(Signal::CONT);
            }
            let now = Instant::now();
            if now >= kill_at {
                if let Some(cgroup) = &self.cgroup {
                    cgroup.kill();
                }
                self.signal(Signal::KILL);
            }
            if now >= kill_at + STUBBORN {
                return (end, descendants(std::process::id()));
            }
            match notices.recv_timeout(Duration::from_millis(5)) {
                Ok(Notice::Orphaned) => {
                    end = End::AtOnce;
                    kill_at = if self.order.is_zygote { kill_at } else { kill_at.min(now) };
                }
                Ok(Notice::Stop { at_once: true }) if !self.order.is_zygote => kill_at = kill_at.min(now),
                Ok(Notice::Stop { .. } | Notice::ChildEnded) | Err(_) => {}
            }
        }
        (end, Vec::new())
    }

    /// Notes what the probe has in shared memory, in addition to gputune's notes.
    fn remember_shared(&mut self) {
        if self.shared.is_some() {
            return;
        }
        let recorded = self.order.to_remove.first().and_then(|scratch| SharedWatch::recorded(scratch));
        let Some((mut watch, mut own)) = recorded else { return };
        remember_shared(std::process::id(), &mut watch, &mut own);
        self.shared = Some((watch, own));
    }

    /// Whether leftovers of a command that ended by itself may also be about to end, as multiprocessing's helpers are.
    fn may_ask(&self, begin: Instant) -> bool {
        self.main.is_some() || begin.elapsed() >= Duration::from_millis(100)
    }

    /// Waits for all children that have ended; returns `false` when there are none left, and so no descendants.
    fn reap(&mut self) -> bool {
        if self.joining.load(Ordering::Acquire) {
            // Until the command has been moved, its process id must not be reused.
            return true;
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if self.main == Some(pid) {
                        self.main = None;
                        let ending = status
                            .exit_status()
                            .map(Ending::Exited)
                            .or_else(|| status.terminating_signal().map(Ending::Signalled))
                            .unwrap_or(Ending::Exited(-1));
                        let leftovers = descendants(std::process::id()).len();
                        self.report(&Report::Ended { ending, leftovers });
                    }
                }
                Ok(None) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(main) = self.main {
            let _ = rustix::process::kill_process_group(main, signal);
        }
        for pid in descendants(std::process::id()).into_iter().filter_map(|pid| pid_of(pid).ok()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Reports to gputune; returns whether gputune is still there.
    fn report(&mut self, report: &Report) -> bool {
        let Ok(mut line) = serde_json::to_vec(report) else { return true };
        line.push(b'\n');
        self.link.write_all(&line).is_ok()
    }
}
