//! The supervisor: a process between gputune and a probe that makes sure that no process of the probe survives.
//!
//! A probe's command may start workers that leave its process group, daemons that fork twice, or children that ignore SIGTERM.
//! gputune itself may also be killed. So the command runs below a supervisor instead of directly below gputune. The supervisor is
//! the same executable in another role.
//!
//! * The supervisor is a *child subreaper* (prctl(2), `PR_SET_CHILD_SUBREAPER`): it becomes the parent of all orphans below it.
//!   So every process that the command ever started is among its descendants.
//! * The supervisor's standard input closes when gputune dies, in any way. It also asks for SIGTERM in that case
//!   (`PR_SET_PDEATHSIG`).
//! * The command gets its own session and, if the kernel permits it, its own control group. The group's `cgroup.kill` ends
//!   all members at once. That works even after the supervisor itself was killed.
//! * The launcher role, between fork and exec, makes the kernel kill the command if the supervisor dies.
//!
//! Only processes that descend from the probe are ever signalled. No process is found by name.
//!
//! The first argument chooses the role. A program that uses the library with a [`CommandProber`] either names the `gputune`
//! executable, or calls [`run_if_asked`] at the start of `main` and names itself.
//!
//! [`CommandProber`]: super::CommandProber

mod launch;
mod supervised;

use std::collections::BTreeSet;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::CpuSet;

use super::cgroup::Cgroup;
use super::orders::{Cover, Ending, Order, Report, Stop, own_link, read_line, send};
use super::shared_watch::SharedWatch;
use super::sweep;
use super::writes::{self, REHEARSE, answer_rehearsal};
use crate::machine::process_table::{descendants, own_children};

use launch::{Foundling, answer, hold, launch};
pub use supervised::wake_all;
pub(super) use supervised::{Care, Supervised, Tell, end_tree, remember_shared};

/// The first arguments that choose a role.
const SUPERVISE: &str = "__supervise";
const LAUNCH: &str = "__launch";
const HOLD: &str = "__hold";
/// A zygote starts this role, see [`Foundling`].
pub(super) const ADOPT: &str = "__adopt";

/// Takes a supervisor's role if the arguments ask for one. The program must then exit with the returned code.
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

/// True if this process adopts the descendants of a killed supervisor.
static ADOPTS_ORPHANS: AtomicBool = AtomicBool::new(false);

/// Makes this process the parent of every process that a killed supervisor leaves, so that no process survives even then.
///
/// Use it only in a program that starts no other processes. Every descendant of this process is then ended.
///
/// # Errors
/// The kernel refuses, which happens only before Linux 3.4.
pub fn adopt_orphans() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    ADOPTS_ORPHANS.store(true, Ordering::Relaxed);
    Ok(())
}

/// Makes the kernel kill this process when its parent dies. Fails at once if the parent is not the expected process.
///
/// # Errors
/// The kernel refuses, or the parent is a different process.
pub fn end_with(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_there = rustix::process::getppid().is_some_and(|own| own.as_raw_nonzero().get() == parent);
    if is_there { Ok(()) } else { Err(io::Error::other("the process that started this one is gone")) }
}

fn pid_of(id: u32) -> io::Result<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("invalid process id"))
}

/// Sends a signal to a process, unless it has ended.
pub(super) fn signal_to(pid: u32, signal: Signal) {
    let _ = pid_of(pid).map(|pid| rustix::process::kill_process(pid, signal));
}

enum Notice {
    End(End),
    ChildEnded,
}

/// The reason for ending a probe's processes. It decides how they are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// gputune asked for it, or the command ended on its own.
    Orderly,
    /// gputune does not want to wait.
    Hasty,
    /// gputune is gone, or a signal asked the supervisor to end.
    AtOnce,
}

/// Binds this thread, and every process that it starts later, to some CPUs (sched_setaffinity(2)).
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

/// Runs the supervisor from start to end. If a foundling is given, it becomes the command.
fn supervise(foundling: Option<Foundling>) -> io::Result<()> {
    // Set the death signal before reading the link. If gputune is already dead, no signal comes, but the link is closed.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    let link = own_link()?;
    let mut lines = BufReader::new(link.try_clone()?);
    let order: Order = read_line(&mut lines)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    bind(&order.processors)?;

    let (sender, notices) = sync_channel(64);
    forward_signals(sender.clone())?;
    let waker = sender.clone();
    std::thread::spawn(move || {
        while let Ok(Some(Stop { at_once })) = read_line(&mut lines) {
            let _ = sender.send(Notice::End(if at_once { End::Hasty } else { End::Orderly }));
        }
        let _ = sender.send(Notice::End(End::AtOnce));
    });
    let supervision =
        Supervision { link, order: &order, cgroup: None, joining: Arc::default(), waker, main: None, shared: None };
    if supervision.run(foundling, &notices) == End::AtOnce {
        order.to_remove.iter().for_each(|folder| writes::remove_unless_used(folder));
        if order.is_zygote {
            // A probe that the zygote was about to start may have a folder that no supervisor knows.
            sweep::sweep();
        }
    }
    Ok(())
}

/// Forwards signals to the loop: SIGCHLD wakes it, and signals that would end the supervisor make it end its processes first.
fn forward_signals(notices: SyncSender<Notice>) -> io::Result<()> {
    use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGCHLD {
                // A full channel already has enough notices to wake the loop.
                let _ = notices.try_send(Notice::ChildEnded);
            } else {
                let _ = notices.send(Notice::End(End::AtOnce));
            }
        }
    });
    Ok(())
}

struct Supervision<'o> {
    link: UnixStream,
    order: &'o Order,
    cgroup: Option<Arc<Cgroup>>,
    /// True while the command is being moved into its control group.
    joining: Arc<AtomicBool>,
    /// Tells the loop that the command was moved, since the command may have ended during the move.
    waker: SyncSender<Notice>,
    main: Option<Pid>,
    /// The files in shared memory and their processes, for the case that gputune is gone.
    shared: Option<(SharedWatch, BTreeSet<u32>)>,
}

impl Supervision<'_> {
    fn run(mut self, foundling: Option<Foundling>, notices: &Receiver<Notice>) -> End {
        let adopted = foundling.as_ref().map(|foundling| foundling.pid);
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
        // If gputune was killed, a broken pipe may end the command before the supervisor notices.
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
        launch.envs(&self.order.env).current_dir(&self.order.cwd);
        launch.stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = launch.spawn()?;
        drop(launch);
        let cover = Cover { layout: self.order.layout.clone(), is_zygote: self.order.is_zygote };
        // An error means that the launcher has ended. `reap` notices that later.
        let _ = send(&mut ours, &cover);
        let pid = pid_of(child.id())?;
        answer(ours).map(|()| pid).inspect_err(|_| {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        })
    }

    /// Moves the command into its control group, in a thread. The kernel first waits for all CPUs to pass a quiescent point
    /// (`cgroup_threadgroup_rwsem`), which takes seconds on an overloaded machine. Neither the command nor its end may wait for
    /// the move.
    fn join_cgroup(&mut self, pid: Pid) {
        let Some(cgroup) = Cgroup::create().map(Arc::new) else { return };
        self.cgroup = Some(Arc::clone(&cgroup));
        let waker = self.waker.clone();
        let joining = Arc::clone(&self.joining);
        joining.store(true, Ordering::Release);
        let join = move || {
            cgroup.add(pid);
            joining.store(false, Ordering::Release);
            // A full channel already has enough notices to wake the loop.
            let _ = waker.try_send(Notice::ChildEnded);
        };
        if std::thread::Builder::new().spawn(join).is_err() {
            self.joining.store(false, Ordering::Release);
        }
    }

    /// Waits until the command ends, or until gputune or a signal asks for its end.
    fn wait_for_the_end(&mut self, notices: &Receiver<Notice>) -> End {
        // The time-out is only a safety net: SIGCHLD announces each end.
        loop {
            match notices.recv_timeout(Duration::from_millis(500)) {
                Ok(Notice::End(end)) => return end,
                Err(RecvTimeoutError::Disconnected) => return End::AtOnce,
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

    /// Kills the supervisor's other children below a zygote: processes that have lost their own supervisor.
    fn end_foundlings(&self) {
        for pid in own_children().into_iter().filter_map(|pid| pid_of(pid).ok()) {
            if self.main != Some(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Sends SIGTERM to every descendant, and SIGKILL at the end of the grace period. A zygote gets SIGKILL at once. Returns the
    /// processes that cannot be ended.
    fn end_all(&mut self, notices: &Receiver<Notice>, mut end: End) -> (End, Vec<u32>) {
        /// How long processes may remain after the first SIGKILL: a round number. Then the supervisor gives up.
        const STUBBORN: Duration = Duration::from_secs(30);
        /// The time limit for the supervisors below a zygote, which end their probes at once. A round number.
        const OF_ZYGOTES: Duration = Duration::from_secs(10);
        const ALONE: Duration = Duration::from_millis(100);
        let grace = Duration::from_millis(self.order.grace_ms);
        let begin = Instant::now();
        let mut kill_at = if end == End::Orderly { begin + grace } else { begin };
        if self.order.is_zygote {
            // Killing the zygote makes the probes' supervisors clean up and end.
            self.main.map(|main| rustix::process::kill_process(main, Signal::KILL));
            kill_at = begin + OF_ZYGOTES;
        }
        let mut asked = false;
        while self.reap() {
            if end == End::AtOnce {
                self.remember_shared();
            }
            // After the command's end, leftover processes first get a moment to end alone.
            let may_ask = self.main.is_some() || begin.elapsed() >= ALONE;
            if !asked && !self.order.is_zygote && may_ask {
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
            let notice = notices.recv_timeout(Duration::from_millis(5));
            if let Ok(Notice::End(demand @ (End::AtOnce | End::Hasty))) = notice {
                end = if demand == End::AtOnce { demand } else { end };
                kill_at = if self.order.is_zygote { kill_at } else { kill_at.min(now) };
            }
        }
        (end, Vec::new())
    }

    /// Reads gputune's notes on files in shared memory, and adds the files of the processes that still run.
    fn remember_shared(&mut self) {
        if self.shared.is_some() {
            return;
        }
        let recorded = self.order.to_remove.first().and_then(|scratch| SharedWatch::recorded(scratch));
        let Some((mut watch, mut own)) = recorded else { return };
        remember_shared(std::process::id(), &mut watch, &mut own);
        self.shared = Some((watch, own));
    }

    /// Waits for all children that have ended. Returns `false` if no children are left, and so no descendants.
    fn reap(&mut self) -> bool {
        if self.joining.load(Ordering::Acquire) {
            // The command's process id must not be reused until the command has been moved.
            return true;
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if self.main == Some(pid) {
                        self.main = None;
                        let exited = status.exit_status().map(Ending::Exited);
                        let ending = exited.or_else(|| status.terminating_signal().map(Ending::Signalled));
                        let ending = ending.unwrap_or(Ending::Exited(-1));
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
        descendants(std::process::id()).into_iter().for_each(|pid| signal_to(pid, signal));
    }

    /// Reports to gputune. Returns true if gputune still exists.
    fn report(&mut self, report: &Report) -> bool {
        send(&mut self.link, report).is_ok()
    }
}
