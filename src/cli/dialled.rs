//! Workers that dial in: the first worker begins the search, and later workers join it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use gputune::machine::Device;
use gputune::model::{Slot, Space};
use gputune::probe::worker::{Dialling, Door, Hello, Knock, Life, Node, Refusal, Token, Wanted, Welcome, Workers};
use gputune::search::{Arrival, Tuner};

use super::exit::{Exit, Failed};
use super::{diagnostic, interrupt, paths};

/// The most refusals that gputune prints, so that a peer that dials all the time does not fill the log. A round number.
const MOST_TOLD: usize = 20;

/// The first worker, and the connections of later workers.
pub(super) struct Dialled {
    first: Node,
    knocks: Knocks,
    workers: Option<Box<dyn Workers>>,
}

/// The connections to the listener.
struct Knocks {
    heard: Receiver<Knock>,
    /// The number of refused connections.
    told: usize,
}

impl Knocks {
    /// Returns a line about a refused peer, unless too many were refused.
    fn turned(&mut self, host: &str, reason: &str) -> Option<String> {
        self.told += 1;
        match self.told {
            0..=MOST_TOLD => Some(format!("refused a connection from {host}: {reason}")),
            n if n == MOST_TOLD + 1 => Some("refused more connections; further refusals are not shown".to_owned()),
            _ => None,
        }
    }
}

impl Dialled {
    /// Listens, lets the launcher call workers, and waits for the first worker without a time limit.
    pub(super) fn wait(
        wanted: &Wanted<'_>,
        token_file: Option<&Path>,
        way: &Dialling,
        hello: Hello,
    ) -> Result<Self, Failed> {
        let token = token(token_file, way)?;
        let address = wanted.listen.map_or_else(|| (way.address)(wanted), |listen| Ok(listen.to_owned()));
        let door = Door::open(&address?, token.clone())?;
        let at = door.address();
        let shown = token_file.map(|file| format!(": gputune worker --dial {at} --token-file {}", paths::word(file)));
        say!("{:<10} {at} for workers{}", "listening", shown.unwrap_or_default());
        let heard = door.answer(hello);
        let mut workers = (way.call)(wanted, at, &token)?;
        let stop = interrupt::stop_flag()?;
        let mut knocks = Knocks { heard, told: 0 };
        let mut asked = Instant::now();
        let first = loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Failed::new(Exit::Interrupted, "interrupted before a worker had come"));
            }
            match knocks.heard.recv_timeout(Duration::from_millis(100)) {
                Ok(Knock::Worker(node)) => break *node,
                Ok(Knock::Turned { host, reason }) => {
                    knocks.turned(&host, &reason).iter().for_each(|line| diagnostic::print_warning(line));
                }
                Err(RecvTimeoutError::Timeout) if asked.elapsed() >= Duration::from_secs(2) => {
                    if let Some(reason) = workers.as_mut().and_then(|workers| workers.have_failed()) {
                        let message = format!("no worker has come: {reason}");
                        return Err(Failed::impossible(message).hint(
                            "fix that; every node needs this gputune and the spec's folder under the same paths",
                        ));
                    }
                    asked = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failed::impossible("workers can no longer connect"));
                }
            }
        };
        Ok(Self { first, knocks, workers })
    }

    pub(super) fn device(&self) -> &Device {
        &self.first.welcome().device
    }

    pub(super) fn first(&self) -> &Node {
        &self.first
    }

    pub(super) fn workers(&mut self) -> Option<Box<dyn Workers>> {
        self.workers.take()
    }

    /// Makes the tuner with the slots of the first worker and of later workers.
    pub(super) fn tuner(self, space: Space, out: &Path, quiet: bool) -> Tuner<'static> {
        let Self { first, mut knocks, workers: _ } = self;
        let mut reception = Reception::of(first.welcome(), out);
        if !quiet {
            say!("{:<10} {}", "writes", first.welcome().writes);
        }
        let first = reception.let_in(first).unwrap_or_default();
        if !quiet {
            let host = first.first().map_or("", |(slot, _)| slot.host.as_str());
            say!("{:<10} {host}: {} slots", "node", first.len());
        }
        let mut waiting: VecDeque<Arrival<'static>> = VecDeque::new();
        let arrivals = move || {
            while let Ok(knock) = knocks.heard.try_recv() {
                let (host, reason) = match knock {
                    Knock::Turned { host, reason } => (host, reason),
                    Knock::Worker(node) => {
                        let host = node.host().to_owned();
                        match reception.let_in(*node) {
                            Ok(slots) => {
                                let arrival = |(slot, remote)| Arrival::Slot(slot, Box::new(remote));
                                waiting.extend(slots.into_iter().map(arrival));
                                continue;
                            }
                            Err(reason) => (host, reason),
                        }
                    }
                };
                waiting.extend(knocks.turned(&host, &reason).map(Arrival::Remark));
            }
            waiting.pop_front()
        };
        Tuner::with_slots(space, None, first).arrivals(arrivals)
    }
}

/// Reads the token from the file; makes a fresh token if the launcher passes it to the workers.
fn token(file: Option<&Path>, way: &Dialling) -> Result<Token, Failed> {
    match file {
        Some(file) => Ok(Token::read(file)?),
        None if !way.needs_token_file => Ok(Token::fresh()?),
        None => Err(Failed::usage("workers that dial in need a token")
            .hint("run `gputune cluster token FILE`, then set token_file = \"FILE\" in [machine]")),
    }
}

/// The conditions for serving this search, and the known workers.
struct Reception {
    device: Device,
    shape: Option<String>,
    out: PathBuf,
    known: Vec<Known>,
}

/// A worker that is or was connected.
struct Known {
    name: String,
    first: u32,
    slots: Vec<Slot>,
    life: Life,
}

impl Reception {
    fn of(first: &Welcome, out: &Path) -> Self {
        let shape = first.slots.first().map(Slot::shape);
        Self { device: first.device.clone(), shape, out: out.to_owned(), known: Vec::new() }
    }

    /// Admits a worker on the same device, with slots of the same shape and GPUs that no other worker holds.
    fn let_in(&mut self, node: Node) -> Result<Vec<(Slot, gputune::probe::worker::Remote)>, String> {
        let welcome = node.welcome();
        let slots = welcome.slots.clone();
        if let Err(refusal) = self.fits(welcome) {
            let reason = refusal.reason.clone();
            node.refuse(refusal);
            return Err(reason);
        }
        let name = self.free_name(&plain(&welcome.host, node.host()));
        // A worker that returns gets its earlier slot numbers.
        let before = self.known.iter().position(|known| known.name == name && known.slots.len() == slots.len());
        let next = self.known.iter().map(|known| known.first + count(known.slots.len())).max().unwrap_or(1);
        let first = before.map_or(next, |at| self.known.remove(at).first);
        self.known.push(Known { name: name.clone(), first, slots, life: node.life() });
        Ok(node.called(name).into_probers(&self.out, first))
    }

    fn fits(&self, welcome: &Welcome) -> Result<(), Refusal> {
        let (own, its) = (&self.device, &welcome.device);
        let refusal = |reason: String, hint: &str| Err(Refusal { reason, hint: hint.to_owned() });
        if own != its {
            let [its, own] = [its, own].map(|device| format!("{} (driver {})", device.name, device.driver));
            let reason = format!("it has {its}, and the search is of {own}");
            return refusal(reason, "start workers on one kind of device");
        }
        let shape = welcome.slots.first().map(Slot::shape);
        if let (Some(its), Some(own)) = (&shape, &self.shape)
            && shape != self.shape
        {
            let reason = format!("its slots have {its}, but the slots of the search have {own}");
            let hint = "give all workers the same share, or state it: gpus_per_slot and cores_per_slot in [machine]";
            return refusal(reason, hint);
        }
        let held = self.known.iter().filter(|known| known.life.goes_on()).flat_map(|known| &known.slots);
        let held: Vec<&String> = held.flat_map(|slot| &slot.gpus).collect();
        // The same GPU number on two machines means two GPUs; a GPU's UUID is unique.
        let is_name = |gpu: &&String| gpu.starts_with("GPU-") || gpu.starts_with("MIG-");
        let mut its = welcome.slots.iter().flat_map(|slot| &slot.gpus).filter(is_name);
        match its.find(|gpu| held.contains(gpu)) {
            Some(gpu) => refusal(format!("another worker holds {gpu}"), "give each worker GPUs of its own"),
            None => Ok(()),
        }
    }

    /// Returns the name, with a number if a connected worker has the same name.
    fn free_name(&self, name: &str) -> String {
        let is_there = |name: &str| self.known.iter().any(|known| known.name == name && known.life.goes_on());
        let numbered = (2..=self.known.len() + 1).map(|number| format!("{name}#{number}"));
        std::iter::once(name.to_owned()).chain(numbered).find(|name| !is_there(name)).unwrap_or_else(|| name.to_owned())
    }
}

/// Returns the printable characters of a name, or the address if no characters are left.
fn plain(name: &str, address: &str) -> String {
    /// The longest name of a machine (RFC 1035, 2.3.4).
    const LONGEST: usize = 253;
    let name: String = name.chars().filter(|letter| letter.is_ascii_graphic()).take(LONGEST).collect();
    if name.is_empty() { address.to_owned() } else { name }
}

fn count(slots: usize) -> u32 {
    u32::try_from(slots).unwrap_or(u32::MAX)
}
