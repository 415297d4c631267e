//! gputune's side of a zygote: a supervised Python process that has done the script's imports, and forks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Deserialize;
use serde_json::json;

use super::{Imports, LOAD_TIME};
use crate::probe::hook::{self, PYTHONPATH};
use crate::probe::orders::{Order, Report};
use crate::probe::scratch::Scratch;
use crate::probe::supervisor::{ADOPT, Supervised, Tell};
use crate::probe::trackers::{self, SILENCERS};
use crate::probe::writes::{ProbeScratch, Protection};
use crate::probe::{CommandStep, adapter, protocol};

/// The variable that names the socket to the zygote.
const SOCKET: &str = "GPUTUNE_ZYGOTE";

/// The longest time for imports and for a fork: round numbers far above the usual times.
const LONGEST_IMPORT: Duration = Duration::from_secs(180);
const LONGEST_FORK: Duration = Duration::from_secs(10);

/// Variables that packages set and read on first use.
const SET_LATE: &[&str] = &["PYTORCH_NVML_BASED_CUDA_CHECK", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"];

/// A process to fork probes from, or a process that still imports.
pub(in crate::probe) struct Zygote {
    pub(super) began: Instant,
    supervised: Supervised,
    listener: UnixListener,
    /// The connection, once the zygote has opened it.
    link: Option<Link>,
    /// The variables that the spec and the probe set at its start.
    env: BTreeMap<String, String>,
    /// The variables that were read at import; empty before all imports are done.
    reads: BTreeSet<String>,
    /// The imported files, with their stamps at import; empty before all imports are done.
    files: BTreeMap<PathBuf, Stamp>,
    reports: Receiver<Option<Report>>,
    /// Its memory pages also count for its children.
    pub(in crate::probe) pid: Option<u32>,
    _scratch: Scratch,
    _writes: Option<ProbeScratch>,
}

/// The time of a file's last change in nanoseconds, and its size in bytes. A different stamp means that the file
/// changed.
type Stamp = (i64, u64);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Ready { reads: BTreeSet<String>, files: BTreeMap<PathBuf, Stamp> },
    Forked { forked: u32 },
    Unfit { unfit: String },
}

/// The reason why no zygote or no forked process exists.
#[derive(Debug)]
pub(in crate::probe) enum NoFork {
    /// This job cannot use a zygote.
    Unfit(String),
    /// The zygote has ended or does not answer, but a new zygote may work.
    Lost(String),
}

impl Zygote {
    /// Starts a zygote for probes with these variables; its log goes below `folder`. The error is the reason why that fails.
    pub(super) fn start(
        (step, imports): (&CommandStep, &Imports),
        (folder, protection): (&Path, Option<&Protection>),
        grace: Duration,
        env: &BTreeMap<String, String>,
    ) -> Result<Self, NoFork> {
        let told = |error: io::Error| NoFork::Lost(format!("no process to fork from can be started: {error}"));
        let scratch = Scratch::new().map_err(|error| NoFork::Lost(error.to_string()))?;
        let python = scratch.path().join("python");
        adapter::install(&python).map_err(told)?;
        let address = scratch.path().join("zygote");
        let listener = UnixListener::bind(&address).map_err(told)?;
        listener.set_nonblocking(true).map_err(told)?;
        let own = [scratch.path().to_owned()];
        // Two zygotes may live at a time.
        let name = format!("zygote-{}", scratch.path().file_name().unwrap_or_default().display());
        let writes = protection.map(|protection| protection.for_probe(&name, &own)).transpose();
        let writes = writes.map_err(told)?.flatten();
        let layout = writes.as_ref().and_then(|writes| writes.layout.clone());
        let drops_capabilities =
            layout.as_ref().is_some_and(|layout| layout.has_user_namespace()) && !rustix::process::geteuid().is_root();
        // The zygote shares the layer store of the probes, which is removed after gputune ends.
        let store = protection.and_then(Protection::store).map(Path::to_owned);
        let layer = writes.as_ref().map(|writes| writes.folder.clone()).into_iter().chain(store);
        let script = adapter::start_zygote(&python).display().to_string();
        let options = imports.options.iter().cloned().chain([script]);
        let order = Order {
            command: [imports.executable.display().to_string()].into_iter().chain(options).collect(),
            env: its_environment(env, scratch.path(), &address),
            cwd: step.template.cwd.clone(),
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            to_remove: [scratch.path().to_owned()].into_iter().chain(layer).collect(),
            layout,
            is_zygote: true,
            processors: step.slot.as_ref().map(|slot| slot.cores.clone()).unwrap_or_default(),
        };
        let task = json!({
            "modules": imports.modules,
            "environment": imports.environment,
            "load_time": LOAD_TIME.split(' ').collect::<Vec<_>>(),
            "own": own_variables(),
            "options": imports.options,
            "supervisor": step.supervisor.canonicalize().map_err(told)?,
            "adopt": ADOPT,
            "hook": python,
            // gputune's own values of this config's variables, for later configs that do not set these variables.
            "of_config": env.keys().map(|name| (name.clone(), std::env::var(name).ok())).collect::<BTreeMap<_, _>>(),
            "drops_capabilities": drops_capabilities,
        });
        // Pass the task in a file: the zygote must import during the second probe, while nobody accepts its connection.
        fs::write(address.with_extension("json"), task.to_string()).map_err(told)?;
        let log = open_log(&folder.join("logs")).map_err(told)?;
        let (sender, reports) = sync_channel(16);
        let tell = Box::new(move |report| sender.send(report).is_ok());
        let supervised = Supervised::start(&step.supervisor, &order, log.as_fd(), tell).map_err(told)?;
        scratch.note(supervised.pid());
        Ok(Self {
            began: Instant::now(),
            supervised,
            listener,
            link: None,
            env: env.clone(),
            reads: BTreeSet::new(),
            files: BTreeMap::new(),
            reports,
            pid: None,
            _scratch: scratch,
            _writes: writes,
        })
    }

    /// Returns true if a probe with these variables may be forked from the zygote: variables read at import have the same values.
    pub(super) fn fits(&self, env: &BTreeMap<String, String>) -> bool {
        let is_read =
            |name: &&String| self.reads.contains(*name) || LOAD_TIME.split(' ').any(|front| name.starts_with(front));
        env.keys().chain(self.env.keys()).filter(is_read).all(|name| env.get(name) == self.env.get(name))
    }

    pub(super) fn is_alive(&mut self) -> bool {
        loop {
            match self.reports.try_recv() {
                Ok(Some(Report::Ended { .. } | Report::Clean { .. }) | None) | Err(TryRecvError::Disconnected) => {
                    return false;
                }
                Ok(Some(_)) => {}
                Err(TryRecvError::Empty) => return !self.supervised.is_clean(),
            }
        }
    }

    /// Forks a process for the order, with its output to the pipe. The error is the reason why that fails.
    pub(in crate::probe) fn fork(
        &mut self,
        order: &Order,
        output: BorrowedFd<'_>,
        tell: Tell,
    ) -> Result<Supervised, NoFork> {
        let told = |error: io::Error| NoFork::Lost(format!("the process to fork from does not answer: {error}"));
        // Checked here, because the zygote may see the files through a layer that hides later changes.
        if let Some((path, _)) = self.files.iter().find(|(path, then)| stamp(path) != Some(**then)) {
            return Err(NoFork::Unfit(format!("{} has changed since it was imported", path.display())));
        }
        let link = self.link.as_mut().ok_or_else(|| told(io::ErrorKind::NotConnected.into()))?;
        let (ours, theirs) = UnixStream::pair().map_err(told)?;
        link.send_with(b"{}\n", &[theirs.as_fd(), output]).map_err(told)?;
        drop(theirs);
        let deadline = Instant::now() + LONGEST_FORK;
        loop {
            match link.hear().map_err(told)? {
                Some(Answer::Forked { forked }) => return Supervised::forked(ours, forked, order, tell).map_err(told),
                Some(Answer::Unfit { unfit }) => return Err(NoFork::Unfit(unfit)),
                Some(Answer::Ready { .. }) => {
                    return Err(NoFork::Lost("the process to fork from is out of step".to_owned()));
                }
                None if Instant::now() >= deadline => return Err(told(io::ErrorKind::TimedOut.into())),
                None => {}
            }
        }
    }

    /// Returns true if all imports are done. Waits only a moment for the zygote's answer. The error is the reason why
    /// no zygote is available.
    pub(super) fn is_ready(&mut self) -> Result<bool, NoFork> {
        const PAUSE: Duration = Duration::from_millis(5);
        self.check()?;
        let lost = |error: io::Error| NoFork::Lost(error.to_string());
        if self.link.is_none() {
            match self.listener.accept() {
                Ok((stream, _)) => self.link = Some(Link::new(stream).map_err(lost)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) => return Err(lost(error)),
            }
        }
        let Some(link) = &mut self.link else { return Ok(false) };
        match link.hear().map_err(|error| ended(&error.to_string()))? {
            Some(Answer::Ready { reads, files }) => {
                self.check()?;
                self.reads = reads;
                // Leave out files that the import itself made: they exist only in the zygote's layer.
                self.files = files.into_iter().filter(|(path, _)| path.exists()).collect();
                Ok(true)
            }
            Some(Answer::Unfit { unfit }) => Err(NoFork::Unfit(unfit)),
            Some(Answer::Forked { .. }) => Err(NoFork::Lost("the process to fork from forked unasked".to_owned())),
            None => Ok(false),
        }
    }

    fn check(&mut self) -> Result<(), NoFork> {
        if self.began.elapsed() >= LONGEST_IMPORT {
            return Err(NoFork::Unfit(format!("importing took more than {} s", LONGEST_IMPORT.as_secs())));
        }
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Some(Report::Started { pid }) => self.pid = Some(pid),
                Some(Report::NotStarted { message, .. }) => return Err(NoFork::Unfit(message)),
                Some(Report::Ended { ending, .. }) => return Err(ended(&ending.to_string())),
                Some(Report::Clean { .. }) | None => return Err(ended("its supervisor is gone")),
            }
        }
        Ok(())
    }
}

/// Returns the zygote's environment variables: the variables of its probes, and the variables for the hook and the
/// socket.
fn its_environment(env: &BTreeMap<String, String>, scratch: &Path, address: &Path) -> BTreeMap<String, String> {
    let mut its_env = env.clone();
    trackers::silence(&mut its_env, scratch);
    hook::import_first(&mut its_env, &scratch.join("python"));
    its_env.insert(SOCKET.to_owned(), address.display().to_string());
    its_env
}

/// Opens the log of the output during imports, which is only needed after a failure. Zygotes that live at the same time
/// append to the same log.
fn open_log(logs: &Path) -> io::Result<File> {
    fs::create_dir_all(logs)?;
    File::options().append(true).create(true).open(logs.join("zygote.log"))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let status = fs::metadata(path).ok()?;
    Some((status.mtime().checked_mul(1_000_000_000)?.checked_add(status.mtime_nsec())?, status.len()))
}

/// Variables that gputune sets for each probe, and variables that do not affect imports.
fn own_variables() -> Vec<&'static str> {
    let silencers = SILENCERS.iter().map(|silencer| silencer.variable);
    let own = [protocol::SOCKET, protocol::CONFIG, protocol::TRIAL, protocol::WRITES, protocol::SCRATCH, PYTHONPATH];
    silencers.chain(own).chain(["GPUTUNE_TRAINER"]).chain(SET_LATE.iter().copied()).collect()
}

fn ended(how: &str) -> NoFork {
    NoFork::Lost(format!("the process to fork from ended while it imported ({how})"))
}

/// Lines of JSON to and from a zygote.
struct Link {
    stream: BufReader<UnixStream>,
    /// The part of the next line that has arrived.
    unread: Vec<u8>,
}

impl Link {
    fn new(stream: UnixStream) -> io::Result<Self> {
        /// The longest wait for an answer before the caller may stop waiting.
        const TICK: Duration = Duration::from_millis(50);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(LONGEST_FORK))?;
        Ok(Self { stream: BufReader::new(stream), unread: Vec::new() })
    }

    fn send_with(&mut self, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent =
            rustix::net::sendmsg(self.stream.get_ref(), &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?;
        if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Returns the next answer, if one arrives within the tick.
    fn hear(&mut self) -> io::Result<Option<Answer>> {
        match self.stream.read_until(b'\n', &mut self.unread) {
            Ok(_) if self.unread.ends_with(b"\n") => {
                Ok(Some(serde_json::from_slice(&std::mem::take(&mut self.unread))?))
            }
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_second_zygote_keeps_the_log_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        let (mut first, mut second) = (open_log(&logs).unwrap(), open_log(&logs).unwrap());
        first.write_all(b"one\n").unwrap();
        second.write_all(b"two\n").unwrap();
        first.write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(logs.join("zygote.log")).unwrap(), "one\ntwo\nthree\n");
    }
}
