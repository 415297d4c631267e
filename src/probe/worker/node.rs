//! The driver's side of a node with a worker: the connection, and a prober for each slot. The connection is the
//! standard streams of a command, or a TCP connection that the worker opened.

use std::fs;
use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::{Asked, Ended, FromWorker, HEARTBEAT, Hello, Refusal, SILENCE, ToWorker, VERSION, Welcome, WorkerError};
use crate::machine::Allocation;
use crate::model::fact::TRACE_FILE;
use crate::model::{Outcome, Progress, Slot};
use crate::probe::orders::{end_within, read_line, send};
use crate::probe::{CommandProber, Job, ProbeError, Prober, Watch, locked};

/// How long a worker may take to start: a node may wake up, a slow file system may load a large program. A round number.
const LONGEST_START: Duration = Duration::from_secs(120);

/// Makes the error for a worker that ended, or sent an unexpected message.
fn silent(host: &str, reason: &str) -> WorkerError {
    const HINT: &str = "does the node have this gputune under the same path, and may it be run there?";
    WorkerError::new(format!("no usable answer from the worker on {host}: {reason}"), HINT)
}

/// A node with a worker.
#[derive(Debug)]
pub struct Node {
    host: String,
    welcome: Welcome,
    link: Arc<Link>,
    /// The worker's messages for each slot.
    inboxes: Vec<Receiver<FromWorker>>,
}

impl Node {
    /// Starts a worker on a node by a command. The command's standard streams belong to the worker.
    ///
    /// # Errors
    /// The command cannot be run, or its program cannot serve this search.
    pub fn start(host: &str, mut command: Command, hello: Hello) -> Result<Self, WorkerError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |source: io::Error| {
            let hint = format!("is `{program}` installed here, and in the PATH?");
            WorkerError::new(format!("cannot start a worker on {host} by `{program}`"), hint).caused_by(source)
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let Some(output) = child.stdout.take() else { return Err(failed(io::ErrorKind::BrokenPipe.into())) };
        let input = child.stdin.take();
        Self::over(host, Link::to(Peer::Command(child, input)), output, hello)
    }

    /// Greets a worker that has dialled in and sent the token.
    pub(super) fn dialled(host: &str, stream: TcpStream, hello: Hello) -> Result<Self, WorkerError> {
        let output = stream.try_clone().map_err(|error| silent(host, &error.to_string()))?;
        Self::over(host, Link::to(Peer::Stream(stream)), output, hello)
    }

    fn over(host: &str, link: Link, output: impl Read + Send + 'static, hello: Hello) -> Result<Self, WorkerError> {
        let link = Arc::new(link);
        let silent = |reason: &str| silent(host, reason);
        link.say(&ToWorker::Hello(hello)).map_err(|error| silent(&error.to_string()))?;
        let (lines, heard) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let line = read_line::<FromWorker>(&mut output);
                let is_last = !matches!(line, Ok(Some(_)));
                if lines.send(line).is_err() || is_last {
                    return;
                }
            }
        });
        let welcome = match heard.recv_timeout(LONGEST_START) {
            Ok(Ok(Some(FromWorker::Welcome(welcome)))) => *welcome,
            Ok(Ok(Some(FromWorker::Refused(refusal)))) => {
                return Err(WorkerError::new(format!("the worker on {host} refuses: {refusal}"), refusal.hint));
            }
            Ok(Ok(Some(_))) => return Err(silent("unexpected message")),
            Ok(Ok(None)) => return Err(silent("it has ended")),
            Ok(Err(error)) => return Err(silent(&error.to_string())),
            Err(_) => return Err(silent(&format!("nothing came for {} s", LONGEST_START.as_secs()))),
        };
        if welcome.version != VERSION {
            let theirs = welcome.version;
            return Err(silent(&format!("it speaks version {theirs} of the protocol, and this is {VERSION}")));
        }
        let (senders, inboxes): (Vec<Sender<FromWorker>>, Vec<_>) = welcome.slots.iter().map(|_| channel()).unzip();
        let weak = Arc::downgrade(&link);
        std::thread::spawn(move || {
            while let Ok(Ok(Some(line))) = heard.recv() {
                let Some(link) = weak.upgrade() else { return };
                link.hear();
                drop(link);
                let slot = match &line {
                    FromWorker::Progress(news) => news.slot,
                    FromWorker::Ended(ended) => ended.slot,
                    FromWorker::NoTime { slot, .. } => *slot,
                    FromWorker::Heartbeat | FromWorker::Welcome(_) | FromWorker::Refused(_) => continue,
                };
                let _ = senders.get(slot).map(|slot| slot.send(line));
            }
        });
        let weak = Arc::downgrade(&link);
        std::thread::spawn(move || {
            while weak.upgrade().is_some_and(|link| link.say(&ToWorker::Heartbeat).is_ok()) {
                std::thread::sleep(HEARTBEAT);
            }
        });
        Ok(Self { host: host.to_owned(), welcome, link, inboxes })
    }

    /// Returns a handle that shows whether the worker is still alive.
    pub fn life(&self) -> Life {
        Life(Arc::downgrade(&self.link))
    }

    /// Gives the node another name.
    #[must_use]
    pub fn called(self, host: String) -> Self {
        Self { host, ..self }
    }

    /// Rejects the worker.
    pub fn refuse(self, refusal: Refusal) {
        let _ = self.link.say(&ToWorker::Refused(refusal));
    }

    /// Returns the name of its host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the resources of the node.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns how long the node may be used, from now on.
    pub fn allocation(&self) -> Option<Allocation> {
        Allocation::lasting(Duration::try_from_secs_f64(self.welcome.time_left_s?).ok()?)
    }

    /// Returns a prober for each slot. Logs go below `out`; `first` is the search's number for the first of these slots.
    pub fn into_probers(self, out: &Path, first: u32) -> Vec<(Slot, Remote)> {
        let Self { host, welcome, link, inboxes } = self;
        let remote = |((number, at), (slot, inbox)): ((u32, usize), (Slot, Receiver<FromWorker>))| {
            // The slot uses the name under which the node was requested.
            let slot = Slot { number, host: host.clone(), ..slot };
            let remote = Remote {
                slot: at,
                host: host.clone(),
                link: Arc::clone(&link),
                inbox,
                out: out.to_owned(),
                remarks: Vec::new(),
            };
            (slot, remote)
        };
        (first..).zip(0..).zip(welcome.slots.into_iter().zip(inboxes)).map(remote).collect()
    }
}

/// Runs probes in a slot of another node.
#[derive(Debug)]
pub struct Remote {
    /// The index of the slot on its node, from 0.
    slot: usize,
    host: String,
    link: Arc<Link>,
    inbox: Receiver<FromWorker>,
    out: PathBuf,
    remarks: Vec<String>,
}

impl Remote {
    fn lost(&self, reason: &str) -> ProbeError {
        // Give the worker up now, so that a worker on that node can connect again.
        self.link.give_up();
        ProbeError::Lost { host: self.host.clone(), reason: reason.to_owned() }
    }

    /// Writes the end of the log, and records the remarks of the worker's prober.
    fn ended(&mut self, job: &Job, ended: Ended) -> Result<Outcome, ProbeError> {
        self.remarks.extend(ended.remarks);
        let log = self.out.join(CommandProber::log_name(job.number, job.effort));
        let logs = log.parent().unwrap_or(&self.out);
        fs::create_dir_all(logs).map_err(ProbeError::io("create", logs))?;
        fs::write(&log, ended.log).map_err(ProbeError::io("write the log", &log))?;
        let outcome = ended.outcome.map(|mut outcome| {
            if let Outcome::Measured(measurement) = &mut outcome {
                measurement.facts.remove(TRACE_FILE); // it stays on the node
            }
            outcome
        });
        outcome.map_err(|refused| ProbeError::OnNode {
            host: self.host.clone(),
            reason: refused.reason,
            hint: refused.hint,
            last_lines: refused.last_lines,
        })
    }
}

impl Prober for Remote {
    fn probe(&mut self, job: &Job, watch: Watch<'_>) -> Result<Outcome, ProbeError> {
        const TICK: Duration = Duration::from_millis(50);
        static ATTEMPTS: AtomicU64 = AtomicU64::new(1);
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        let asked = Asked { slot: self.slot, attempt, job: job.clone() };
        self.link.say(&ToWorker::Probe(Box::new(asked))).map_err(|error| self.lost(&error.to_string()))?;
        let (mut progress, mut is_stopped) = (Progress::default(), false);
        loop {
            match self.inbox.recv_timeout(TICK) {
                Ok(FromWorker::Progress(news)) if news.attempt == attempt => progress = news.progress,
                Ok(FromWorker::Ended(ended)) if ended.attempt == attempt => return self.ended(job, *ended),
                Ok(FromWorker::NoTime { attempt: of, left_s, takes_s, .. }) if of == attempt => {
                    let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
                    let (left, takes) = (seconds(left_s), seconds(takes_s));
                    return Err(ProbeError::NoTime { host: self.host.clone(), left, takes });
                }
                // These lines belong to an attempt that was given up.
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost("its connection has ended")),
            }
            if self.link.is_silent() {
                return Err(self.lost(&format!("nothing was heard of it for {} s", SILENCE.as_secs())));
            }
            if watch(&progress).is_break() && !is_stopped {
                is_stopped = true;
                let stop = ToWorker::Stop { slot: self.slot, attempt };
                self.link.say(&stop).map_err(|error| self.lost(&error.to_string()))?;
            }
        }
    }

    fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }
}

#[derive(Debug)]
enum Peer {
    /// A command whose standard streams belong to the worker.
    Command(Child, Option<ChildStdin>),
    /// A worker that has dialled in.
    Stream(TcpStream),
}

#[derive(Debug)]
struct Link {
    peer: Mutex<Peer>,
    /// The time of the worker's last line; `None` after the worker was given up.
    heard: Mutex<Option<Instant>>,
}

/// A handle that shows if a worker is still alive.
#[derive(Debug, Clone)]
pub struct Life(Weak<Link>);

impl Life {
    /// Returns true if the worker is alive.
    pub fn goes_on(&self) -> bool {
        self.0.upgrade().is_some_and(|link| !link.is_silent())
    }
}

impl Link {
    fn to(peer: Peer) -> Self {
        Self { peer: Mutex::new(peer), heard: Mutex::new(Some(Instant::now())) }
    }

    fn say(&self, message: &ToWorker) -> io::Result<()> {
        match &mut *locked(&self.peer) {
            Peer::Command(_, Some(input)) => send(input, message),
            Peer::Command(_, None) => Err(io::ErrorKind::BrokenPipe.into()),
            Peer::Stream(stream) => send(stream, message),
        }
    }

    fn hear(&self) {
        if let Some(heard) = &mut *locked(&self.heard) {
            *heard = Instant::now();
        }
    }

    fn is_silent(&self) -> bool {
        locked(&self.heard).is_none_or(|heard| heard.elapsed() > SILENCE)
    }

    /// Closes the worker's input, which ends the worker.
    fn give_up(&self) {
        locked(&self.heard).take();
        match &mut *locked(&self.peer) {
            Peer::Command(_, input) => drop(input.take()),
            Peer::Stream(stream) => drop(stream.shutdown(Shutdown::Both)),
        }
    }
}

impl Drop for Link {
    /// Tells the worker that the search is over, and closes its input. A command that hangs is killed.
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let _ = self.say(&ToWorker::Goodbye);
        self.give_up();
        if let Peer::Command(child, _) = &mut *locked(&self.peer) {
            end_within(PATIENCE, child);
        }
    }
}
