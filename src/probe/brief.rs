//! Runs a command for its printed output, such as its help, under a supervisor and with a short time limit.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::ProbeError;
use super::orders::{Order, Report, start_error};
use super::scratch::Scratch;
use super::supervisor::{Care, Supervised};

/// A command to run for its printed output.
#[derive(Debug, Clone)]
pub struct Brief {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables to set in addition to the inherited ones.
    pub env: BTreeMap<String, String>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Its time limit.
    pub time: Duration,
}

/// The output of a command, and how the command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// Standard output and standard error together, at most the first megabyte. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// How the command ended.
    pub end: PrintedEnd,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrintedEnd {
    /// It exited with code 0.
    Success,
    /// It failed: `exit code 2`.
    Failure(String),
    /// gputune ended it because its time was up.
    TimeIsUp,
    /// gputune ended it because it printed more than a megabyte.
    TooMuch,
}

/// The most bytes of output to keep. A round number: a long help has some tens of thousands.
const MOST_BYTES: u64 = 1024 * 1024;
/// The time between SIGTERM and SIGKILL. A round number: a command that prints its help has nothing to save.
const GRACE: Duration = Duration::from_millis(500);

/// How often to check if the command is to be ended, or has ended; and how long its end may take.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(40);

impl Brief {
    /// Runs the command under a supervisor (see [`supervisor`](super::supervisor)); `supervisor` is its executable. On
    /// return, none of the command's processes is left.
    ///
    /// # Errors
    /// The command cannot be started, or its processes cannot be ended.
    pub fn run(self, supervisor: &Path) -> Result<Printed, ProbeError> {
        let io = |action| move |source| ProbeError::Io { action, path: None, source };
        let scratch = Scratch::new()?;
        let (reader, writer) = io::pipe().map_err(io("make a pipe"))?;
        let (sender, reports) = sync_channel(16);
        let program = self.command.first().cloned().unwrap_or_default();
        let cwd = self.cwd.clone();
        let order = Order {
            command: self.command,
            env: self.env,
            cwd: self.cwd,
            grace_ms: u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX),
            to_remove: vec![scratch.path().to_owned()],
            ..Order::default()
        };
        let tell = Box::new(move |report| sender.send(report).is_ok());
        let mut supervised = Supervised::start(supervisor, &order, writer.as_fd(), tell)
            .map_err(ProbeError::io("start the supervisor", supervisor))?;
        scratch.note(supervised.pid());
        drop(writer);
        let is_too_much = Arc::new(AtomicBool::new(false));
        let has_read_most = Arc::clone(&is_too_much);
        let read = move || {
            let mut text = Vec::new();
            let _ = reader.take(MOST_BYTES + 1).read_to_end(&mut text);
            has_read_most.store(text.len() as u64 > MOST_BYTES, Ordering::Relaxed);
            text
        };
        let output = std::thread::Builder::new().name("output".to_owned()).spawn(read).map_err(io("start a thread"))?;
        let deadline = Instant::now() + self.time;
        let (mut care, mut ending, mut is_late) = (Care::default(), None, false);
        let survivors = loop {
            match reports.recv_timeout(LOOK_EVERY) {
                Ok(Some(Report::NotStarted { errno, message })) => {
                    return Err(start_error(&program, &cwd, errno, &message));
                }
                Ok(Some(Report::Started { .. })) => {}
                Ok(Some(Report::Ended { ending: how, .. })) => ending = Some(how),
                Ok(Some(Report::Clean { survivors })) => break survivors,
                Ok(None) | Err(RecvTimeoutError::Disconnected) => break Vec::new(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            is_late |= now >= deadline;
            if is_late || is_too_much.load(Ordering::Relaxed) {
                supervised.stop(false);
                if care.look_in_haste(&supervised, now) || now >= deadline + LONGEST {
                    break supervised.end_without_it();
                }
            }
        };
        drop(supervised);
        if !survivors.is_empty() {
            let pids = survivors.iter().take(5).copied().collect();
            return Err(ProbeError::Survivors { count: survivors.len(), pids });
        }
        let mut text = output.join().unwrap_or_default();
        let most = usize::try_from(MOST_BYTES).unwrap_or(usize::MAX);
        let end = match ending {
            _ if text.len() > most => PrintedEnd::TooMuch,
            _ if is_late => PrintedEnd::TimeIsUp,
            Some(ending) if ending.is_success() => PrintedEnd::Success,
            Some(ending) => PrintedEnd::Failure(ending.to_string()),
            None => PrintedEnd::Failure("an unknown end".to_owned()),
        };
        text.truncate(most);
        Ok(Printed { text: String::from_utf8_lossy(&text).into_owned(), end })
    }
}
