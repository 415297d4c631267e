//! A supervisor whose command already exists: a process that a zygote forked, which waits for its command line.
//!
//! The zygote's child that becomes the supervisor first forks the waiting process. So the waiting process is the supervisor's
//! child, like any command.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

use super::super::orders::{Order, Takeover};
use super::super::writes::Layout;
use super::{HOLD, pid_of};

/// The forked process.
pub(super) struct Foundling {
    pid: Pid,
    link: UnixStream,
}

impl Foundling {
    /// Connects to the process with this process id, which is at the other end of standard output.
    pub(super) fn connected(pid: &str) -> io::Result<Self> {
        let pid = pid_of(pid.parse().map_err(io::Error::other)?)?;
        Ok(Self { pid, link: UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?) })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Makes the process run the order's command.
    pub(super) fn take_over(mut self, order: &Order) -> io::Result<Pid> {
        // The namespace must exist until the process is in it.
        let mounts = order.layout.clone().map(Layout::without_user_namespace).map(Mounts::make).transpose()?;
        let takeover = Takeover {
            arguments: &order.command,
            env: &order.env,
            cwd: &order.cwd,
            mounts: mounts.as_ref().map(|mounts| PathBuf::from(format!("/proc/{}/ns/mnt", mounts.holder.id()))),
        };
        let mut line = serde_json::to_vec(&takeover)?;
        line.push(b'\n');
        self.link.write_all(&line)?;
        let mut said = String::new();
        self.link.read_to_string(&mut said)?;
        let Some(error) = said.lines().next() else { return Ok(self.pid) };
        Err(error.parse().map_or_else(|_| io::Error::other(error.to_owned()), io::Error::from_raw_os_error))
    }
}

/// A mount namespace, held by a process until this is dropped.
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
        let mut line = serde_json::to_vec(&layout)?;
        line.push(b'\n');
        link.write_all(&line)?;
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
