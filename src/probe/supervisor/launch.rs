//! The role between fork and exec of a probe's command. It leaves gputune's terminal, enters the mount namespace, asks to die with
//! the supervisor, and becomes the command.
//!
//! A command that a zygote forks needs no launcher: the zygote's child forks a process, then becomes the supervisor. So
//! the forked process is the supervisor's child, like any command. It waits for its command line.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal};

use super::super::orders::{Cover, Order, Takeover, own_link, receive, send};
use super::super::writes::{self, Layout};
use super::{HOLD, pid_of};

/// The variable that tells a zygote the descriptor of the outer mount namespace.
const WAY_OUT: &str = "GPUTUNE_WAY_OUT";

/// Becomes the command. Standard input is a connection to the supervisor, which sends the layout for writes. The connection
/// closes when the command runs.
pub(super) fn launch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = arguments.next() else { return ExitCode::FAILURE };
    let Ok(mut link) = own_link() else { return ExitCode::FAILURE };
    // In a session of its own, the command can neither read from the user's terminal nor be stopped by it.
    let _ = rustix::process::setsid();
    // The death signal is set again below, since entering another user namespace may clear it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let way_out = match take_cover(&link) {
        Ok(way_out) => way_out,
        Err(error) => {
            let _ = writeln!(link, "{error}");
            return ExitCode::from(127);
        }
    };
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let mut command = Command::new(&program);
    command.envs(way_out.iter().map(|way_out| (WAY_OUT, way_out.as_raw_fd().to_string())));
    let stdout = io::stdout();
    let terminal = if stdout.is_terminal() { stdout.as_fd().try_clone_to_owned().ok() } else { None };
    let error = command.args(arguments).stdin(terminal.map_or_else(Stdio::null, Stdio::from)).exec();
    let _ = writeln!(link, "{}", error.raw_os_error().unwrap_or(0));
    ExitCode::from(127)
}

/// Enters the mount namespace that the supervisor asks for, with the same working folder. Returns a zygote's way out.
fn take_cover(link: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let Cover { layout: Some(layout), is_zygote } = receive(link)? else { return Ok(None) };
    let cwd = std::env::current_dir()?;
    let entered =
        if is_zygote { writes::enter_with_way_out(&layout).map(Some) } else { writes::enter(&layout).map(|()| None) };
    let way_out = entered.map_err(|refused| io::Error::other(refused.words(layout.has_user_namespace())))?;
    std::env::set_current_dir(cwd)?;
    Ok(way_out)
}

/// Enters a mount namespace and stays in it until standard input closes, so that another process can also enter it. Answers with
/// one line on standard input: empty, or the reason for a failure.
pub(super) fn hold() -> io::Result<()> {
    let mut link = own_link()?;
    let layout: Layout = receive(&link)?;
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let answer = writes::enter(&layout).err().map(|refused| refused.words(layout.has_user_namespace()));
    writeln!(link, "{}", answer.unwrap_or_default())?;
    link.read_to_end(&mut Vec::new()).map(drop)
}

/// Waits until the process at the other end runs its command, which closes the connection, or sends an error.
pub(super) fn answer(mut link: impl Read) -> io::Result<()> {
    let mut said = String::new();
    link.read_to_string(&mut said)?;
    let Some(error) = said.lines().next() else { return Ok(()) };
    Err(error.parse().map_or_else(|_| io::Error::other(error.to_owned()), io::Error::from_raw_os_error))
}

/// A process that a zygote's child forked. It waits for its command line.
pub(super) struct Foundling {
    pub(super) pid: Pid,
    link: UnixStream,
}

impl Foundling {
    /// Connects to the process with this process id, which is at the other end of standard output.
    pub(super) fn connected(pid: &str) -> io::Result<Self> {
        let pid = pid_of(pid.parse().map_err(io::Error::other)?)?;
        Ok(Self { pid, link: UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?) })
    }

    pub(super) fn take_over(mut self, order: &Order) -> io::Result<Pid> {
        // The namespace must exist until the process is in it.
        let mounts = order.layout.clone().map(Layout::without_user_namespace).map(Mounts::make).transpose()?;
        let takeover = Takeover {
            arguments: &order.command,
            env: &order.env,
            cwd: &order.cwd,
            mounts: mounts.as_ref().map(|mounts| PathBuf::from(format!("/proc/{}/ns/mnt", mounts.holder.id()))),
        };
        send(&mut self.link, &takeover)?;
        answer(self.link).map(|()| self.pid)
    }
}

/// A mount namespace, which a process keeps in existence until this value is dropped.
struct Mounts {
    holder: Child,
    link: UnixStream,
}

impl Mounts {
    fn make(layout: Layout) -> io::Result<Self> {
        let (mut link, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(HOLD).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let holder = command.spawn()?;
        drop(command);
        send(&mut link, &layout)?;
        let mut answer = String::new();
        BufReader::new(link.try_clone()?).read_line(&mut answer)?;
        let mounts = Self { holder, link };
        match answer.strip_suffix('\n') {
            Some("") => Ok(mounts),
            answer => Err(io::Error::other(answer.unwrap_or("the process that makes the mounts has ended").to_owned())),
        }
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let _ = self.link.shutdown(std::net::Shutdown::Both);
        let _ = self.holder.wait();
    }
}
