//! Probes whose processes run on several nodes.
//!
//! Each node has a *relay* for the whole search: a command that gputune starts on the node. For each probe, the relay
//! makes a folder under the same path as on this machine, with the hook and a socket. Processes on the node send their
//! messages to the socket, and the relay forwards the messages over its standard streams. So it needs no port and no
//! token, and it ends with gputune. `docs/design/workers.md` describes the lines. [`Relays`] is the probe's side,
//! [`serve()`] the node's side.

mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::orders::{end_within, read_line, send};
use super::scratch::{NOTE, OWNER};
use super::worker::error::WorkerError;
use super::{ProbeError, locked};
use crate::machine::Device;
pub use serve::serve;

/// The socket in a probe's folder.
pub(super) const SOCKET: &str = "events";

/// `Open` makes a probe's folder, with these files. `Order` has lines for the process at the other end of a connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToRelay {
    Open { folder: PathBuf, files: Vec<(PathBuf, String)> },
    Order { connection: u64, text: String },
    Close { folder: PathBuf },
}

/// `Here` is the first message. After `Reached`, processes on the node can reach the probe in this folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromRelay {
    Here { gputune_version: String, device: Device },
    Reached { folder: PathBuf },
    Cannot { folder: PathBuf, reason: String, hint: String },
    Connected { folder: PathBuf, connection: u64 },
    Heard { connection: u64, text: String },
    Left { connection: u64 },
}

const GPUTUNE: &str = env!("CARGO_PKG_VERSION");

/// How long a relay may take to start and to answer: as long as a worker, because a node may have to wake up.
const LONGEST_START: Duration = Duration::from_secs(120);

/// The commands that start relays, each with the name of its node.
type Commands = dyn Fn() -> Result<Vec<(String, Command)>, WorkerError> + Send + Sync;

/// The relays of a step; none if its processes run only on this machine. The first probe starts them. If a relay has ended, the
/// next probe starts all of them again.
#[derive(Clone, Default)]
pub struct Relays {
    how: Option<(Arc<Commands>, Device)>,
    running: Arc<Mutex<Vec<Arc<Relay>>>>,
}

impl fmt::Debug for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relays").field(&self.how.as_ref().map(|(_, device)| device)).finish()
    }
}

impl Relays {
    /// Returns relays that these commands start. If the device is a GPU, all nodes must have the same GPU model and
    /// driver.
    pub fn by(
        commands: impl Fn() -> Result<Vec<(String, Command)>, WorkerError> + Send + Sync + 'static,
        device: Device,
    ) -> Self {
        Self { how: Some((Arc::new(commands), device)), running: Arc::default() }
    }

    /// Makes the socket in a probe's folder reachable from all nodes. The nodes receive the folder's files.
    pub(super) fn reach(&self, folder: &Path) -> Result<Reach, ProbeError> {
        if self.how.is_none() {
            return Ok(Reach::default());
        }
        let mut running = locked(&self.running);
        let relays = self.started(&mut running)?;
        let files = files(folder).map_err(ProbeError::io("read", folder))?;
        // After any later error, dropping `reach` closes the folder on all relays.
        let reach = Reach { relays: relays.to_vec(), folder: folder.to_owned() };
        for relay in relays {
            relay.open(folder, &files)?;
        }
        relays.iter().try_for_each(|relay| relay.is_open(folder))?;
        Ok(reach)
    }

    /// Returns the relays, all of them running.
    fn started<'r>(&self, running: &'r mut Vec<Arc<Relay>>) -> Result<&'r [Arc<Relay>], ProbeError> {
        let Some((commands, device)) = &self.how else { return Ok(running) };
        if running.is_empty() || running.iter().any(|relay| relay.is_lost()) {
            running.clear();
            let commands = commands().map_err(|none| on("this machine", none.to_string(), none.hint().to_owned()))?;
            let begun = commands.into_iter().map(|(host, command)| Relay::start(host, command));
            let begun = begun.collect::<Result<Vec<_>, _>>()?;
            *running = begun.into_iter().map(|relay| relay.greet(device)).collect::<Result<_, _>>()?;
        }
        Ok(running)
    }
}

struct Relay {
    host: String,
    child: Mutex<Child>,
    input: Arc<Mutex<Option<ChildStdin>>>,
    answers: Mutex<Receiver<FromRelay>>,
    /// The folders of the probes that are open on the relay.
    open: Arc<Mutex<BTreeSet<PathBuf>>>,
    is_lost: Arc<AtomicBool>,
}

impl Relay {
    fn start(host: String, mut command: Command) -> Result<Self, ProbeError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let cannot = |error: io::Error| {
            let reason = format!("cannot start a relay by `{program}`: {error}");
            on(&host, reason, format!("is `{program}` installed here?"))
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| cannot(io::ErrorKind::BrokenPipe.into()))?;
        let (sender, answers) = channel();
        let relay = Self {
            host,
            child: Mutex::new(child),
            input: Arc::new(Mutex::new(input)),
            answers: Mutex::new(answers),
            open: Arc::default(),
            is_lost: Arc::default(),
        };
        let (input, open, lost) = (Arc::clone(&relay.input), Arc::clone(&relay.open), Arc::clone(&relay.is_lost));
        std::thread::spawn(move || {
            let mut streams: BTreeMap<u64, UnixStream> = BTreeMap::new();
            let mut output = BufReader::new(output);
            while let Ok(Some(line)) = read_line(&mut output) {
                match line {
                    FromRelay::Connected { folder, connection } if locked(&open).contains(&folder) => {
                        streams.extend(connected(&folder, connection, &input).map(|stream| (connection, stream)));
                    }
                    FromRelay::Heard { connection, text } => {
                        // A finished probe no longer listens.
                        if streams.get_mut(&connection).is_some_and(|to| to.write_all(text.as_bytes()).is_err()) {
                            streams.remove(&connection);
                        }
                    }
                    FromRelay::Left { connection } => {
                        if let Some(stream) = streams.remove(&connection) {
                            let _ = stream.shutdown(Shutdown::Write);
                        }
                    }
                    FromRelay::Connected { .. } => {}
                    answer => drop(sender.send(answer)),
                }
            }
            // Do this before the connections end, because ended connections look like ended ranks.
            lost.store(true, Ordering::Release);
        });
        Ok(relay)
    }

    /// Receives the identity of the relay, and rejects a relay that does not fit.
    fn greet(self, own: &Device) -> Result<Arc<Self>, ProbeError> {
        match self.answer()? {
            FromRelay::Here { gputune_version, .. } if gputune_version != GPUTUNE => {
                let reason = format!("it has gputune {gputune_version}, and this is {GPUTUNE}");
                Err(on(&self.host, reason, "install the same gputune on all nodes".to_owned()))
            }
            FromRelay::Here { device, .. } if own.is_gpu && device != *own => {
                let named = |device: &Device| format!("{} (driver {})", device.name, device.driver);
                let reason = format!("it has {}, and this machine {}", named(&device), named(own));
                let hint = "ask for nodes of one kind, by --constraint or a --gres with a type";
                Err(on(&self.host, reason, hint.to_owned()))
            }
            FromRelay::Here { .. } => Ok(Arc::new(self)),
            other => Err(self.strange(&other)),
        }
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    fn open(&self, folder: &Path, files: &[(PathBuf, String)]) -> Result<(), ProbeError> {
        locked(&self.open).insert(folder.to_owned());
        let told = say(&self.input, &ToRelay::Open { folder: folder.to_owned(), files: files.to_vec() });
        told.map_err(|error| on(&self.host, format!("its relay has ended: {error}"), ENDED.to_owned()))
    }

    fn is_open(&self, folder: &Path) -> Result<(), ProbeError> {
        loop {
            match self.answer()? {
                FromRelay::Reached { folder: of } if of == folder => return Ok(()),
                FromRelay::Cannot { folder: of, reason, hint } if of == folder => {
                    let reason = format!("its processes cannot reach the probe at {}: {reason}", folder.display());
                    return Err(on(&self.host, reason, hint));
                }
                // These answers are about a probe that was given up.
                FromRelay::Reached { .. } | FromRelay::Cannot { .. } => {}
                other => return Err(self.strange(&other)),
            }
        }
    }

    fn answer(&self) -> Result<FromRelay, ProbeError> {
        let reason = match locked(&self.answers).recv_timeout(LONGEST_START) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => format!("its relay says nothing for {} s", LONGEST_START.as_secs()),
            Err(RecvTimeoutError::Disconnected) => "its relay has ended".to_owned(),
        };
        Err(on(&self.host, reason, ENDED.to_owned()))
    }

    fn strange(&self, said: &FromRelay) -> ProbeError {
        on(&self.host, format!("its relay said {said:?}"), ENDED.to_owned())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        const LONGEST: Duration = Duration::from_secs(2);
        // Closing its input ends the relay.
        locked(&self.input).take();
        end_within(LONGEST, &mut locked(&self.child));
    }
}

const ENDED: &str =
    "does the node have this gputune under the same path, and may it be run there? The same command goes on";

/// The relays through which a probe is reached. Dropping this value closes the probe's folder on these relays.
#[derive(Default)]
pub(super) struct Reach {
    relays: Vec<Arc<Relay>>,
    folder: PathBuf,
}

impl Reach {
    /// Returns a node whose processes can no longer be heard.
    pub(super) fn lost(&self) -> Option<&str> {
        self.relays.iter().find(|relay| relay.is_lost()).map(|relay| relay.host.as_str())
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        for relay in &self.relays {
            locked(&relay.open).remove(&self.folder);
            let _ = say(&relay.input, &ToRelay::Close { folder: self.folder.clone() });
        }
    }
}

/// Connects to the probe's socket for a process of another node, and forwards the orders for the process.
fn connected(folder: &Path, connection: u64, input: &Arc<Mutex<Option<ChildStdin>>>) -> Option<UnixStream> {
    /// A write to a probe that does not read fails after this time, because it delays the messages of all other
    /// processes. A round number, far longer than a running probe takes to read.
    const PATIENCE: Duration = Duration::from_secs(10);
    let stream = UnixStream::connect(folder.join(SOCKET)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let (orders, input) = (stream.try_clone().ok()?, Arc::clone(input));
    std::thread::spawn(move || {
        let mut orders = BufReader::new(orders);
        let mut text = String::new();
        while orders.read_line(&mut text).is_ok_and(|read| read > 0) {
            let order = ToRelay::Order { connection, text: std::mem::take(&mut text) };
            if say(&input, &order).is_err() {
                return;
            }
        }
    });
    Some(stream)
}

fn say(input: &Mutex<Option<ChildStdin>>, message: &ToRelay) -> io::Result<()> {
    send(locked(input).as_mut().ok_or(io::ErrorKind::BrokenPipe)?, message)
}

/// Returns the text files in a probe's folder, by relative path, without the files about this process.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(inside) = folders.pop() {
        for entry in fs::read_dir(inside)? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            let is_ours = [OWNER, NOTE].iter().any(|name| path.file_name().is_some_and(|file| file == *name));
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && !is_ours {
                let text = fs::read_to_string(&path)?;
                found.push((path.strip_prefix(folder).unwrap_or(&path).to_owned(), text));
            }
        }
    }
    Ok(found)
}

fn on(host: &str, reason: String, hint: String) -> ProbeError {
    ProbeError::OnNode { host: host.to_owned(), reason, hint: Some(hint), last_lines: Vec::new() }
}
