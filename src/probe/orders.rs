//! The messages between gputune's processes, one line of JSON each: orders to a supervisor, and its reports.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ProbeError;
use super::writes::Layout;

/// The longest line to read. A measurement has some ten thousand bytes, the hook's files some hundred thousand.
const LONGEST_LINE: u64 = 16 << 20;

/// Reads a line. Returns `None` at the end, and an error for a line that is not of this protocol.
pub(super) fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    input.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        // The line is too long, or the other side ended in the middle of it.
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads the first line. Input that is buffered behind that line is lost.
pub(super) fn receive<T: DeserializeOwned>(input: impl Read) -> io::Result<T> {
    read_line(&mut BufReader::new(input))?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

pub(super) fn send(output: &mut (impl Write + ?Sized), message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// Waits for a process that is about to end, and kills it after this time.
pub(super) fn end_within(patience: Duration, child: &mut Child) {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns the connection that this process has as its standard input.
pub(super) fn own_link() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Returns true if the process at the other end belongs to this user or to root (unix(7), `SO_PEERCRED`).
pub(super) fn is_own(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid() || peer.uid.is_root())
}

/// The first message from gputune to the supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) command: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: PathBuf,
    pub(super) grace_ms: u64,
    /// Folders to remove at the end, by gputune or, if gputune is gone, by the supervisor. The first folder has the
    /// socket and gputune's notes on the probe.
    pub(super) to_remove: Vec<PathBuf>,
    /// The mount namespace for the command; `None` for gputune's own namespace.
    pub(super) layout: Option<Layout>,
    /// True if the command is a zygote, whose children have their own supervisors.
    pub(super) is_zygote: bool,
    /// The CPUs that the command may use; empty for the CPUs of gputune.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) processors: Vec<u32>,
}

/// A message from a supervisor to the process that launches the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cover {
    pub(super) layout: Option<Layout>,
    pub(super) is_zygote: bool,
}

/// A message from a supervisor to a process that a zygote forked. It has everything that a new process would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Takeover<'o> {
    pub(super) arguments: &'o [String],
    pub(super) env: &'o BTreeMap<String, String>,
    pub(super) cwd: &'o Path,
    /// The file of the mount namespace to enter; `None` if the probe has no namespace of its own.
    pub(super) mounts: Option<PathBuf>,
}

/// Ends all processes, after the grace time or at once. If the connection closes, gputune is gone: kill all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stop {
    pub(super) at_once: bool,
}

/// A supervisor's report. At `Ended`, `leftovers` of the command's processes still exist. At `Clean`, no process is
/// left except the `survivors`, which even SIGKILL did not end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    Started { pid: u32 },
    NotStarted { errno: i32, message: String },
    Ended { ending: Ending, leftovers: usize },
    Clean { survivors: Vec<u32> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    Exited(i32),
    Signalled(i32),
}

impl Ending {
    pub(super) fn is_success(self) -> bool {
        self == Self::Exited(0)
    }

    /// Returns true if SIGKILL ended the process, or its shell reports that.
    pub(super) fn killed(self) -> bool {
        matches!(self, Self::Signalled(9) | Self::Exited(137))
    }

    /// Returns the ending by the signal with this description in glibc (strsignal(3)).
    pub(super) fn by_description(description: &str) -> Option<Self> {
        let (signal, ..) = SIGNALS.iter().find(|(.., text)| !text.is_empty() && *text == description)?;
        Some(Self::Signalled(*signal))
    }
}

/// Signals with their names, and the descriptions that shells print.
const SIGNALS: &[(i32, &str, &str)] = &[
    (1, "SIGHUP", "Hangup"),
    (2, "SIGINT", "Interrupt"),
    (3, "SIGQUIT", ""),
    (4, "SIGILL", "Illegal instruction"),
    (6, "SIGABRT", "Aborted"),
    (7, "SIGBUS", "Bus error"),
    (8, "SIGFPE", "Floating point exception"),
    (9, "SIGKILL", "Killed"),
    (11, "SIGSEGV", "Segmentation fault"),
    (13, "SIGPIPE", ""),
    (15, "SIGTERM", "Terminated"),
    (24, "SIGXCPU", ""),
    (25, "SIGXFSZ", ""),
];

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, number, signal) = match *self {
            // A shell adds 128 to the signal that ended its command (POSIX, "Exit Status for Commands").
            Self::Exited(code) => ("exit code", code, code - 128),
            Self::Signalled(signal) => ("killed by signal", signal, signal),
        };
        match SIGNALS.iter().find(|(known, ..)| *known == signal) {
            Some((_, name, _)) => write!(f, "{words} {number} ({name})"),
            None => write!(f, "{words} {number}"),
        }
    }
}

/// Makes the error for a program that exec refused with this error number, as seen from the command's working folder.
pub(super) fn start_error(program: &str, cwd: &Path, errno: i32, message: &str) -> ProbeError {
    const NO_SUCH_FILE: i32 = 2;
    const PERMISSION_DENIED: i32 = 13;
    let path = cwd.join(program);
    let is_path = program.contains('/');
    let (reason, hint) = if !cwd.is_dir() {
        let reason = format!("the folder {} does not exist", cwd.display());
        (reason, "set `cwd` in [step] to the folder that the command runs in".to_owned())
    } else if errno == NO_SUCH_FILE
        && is_path
        && let Some(interpreter) = missing_interpreter(&path)
    {
        let hint = "fix the first line of the script, or name an interpreter in the command";
        (format!("its interpreter `{interpreter}` does not exist"), hint.to_owned())
    } else if errno == NO_SUCH_FILE {
        let hint = if is_path { "is the path right, seen from `cwd`?" } else { "is it installed, and in PATH?" };
        ("no such program".to_owned(), hint.to_owned())
    } else if errno == PERMISSION_DENIED {
        ("permission denied".to_owned(), format!("make it executable: chmod +x {program}"))
    } else {
        (message.to_owned(), "try the command in a shell; `gputune check` prints it".to_owned())
    };
    ProbeError::Start { program: program.to_owned(), reason, hint }
}

/// Returns the program in the `#!` line of a script if that program does not exist.
fn missing_interpreter(script: &Path) -> Option<String> {
    let mut start = [0; 256];
    let count = fs::File::open(script).ok()?.read(&mut start).ok()?;
    let text = String::from_utf8_lossy(&start[..count]);
    let program = text.strip_prefix("#!")?.lines().next()?.split_whitespace().next()?.to_owned();
    (!Path::new(&program).exists()).then_some(program)
}
