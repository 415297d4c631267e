//! Runs probes on another node. A *driver* on this node sends requests to a *worker* on that node, as lines of JSON.
//! `docs/design/workers.md` describes the lines.
//!
//! One worker serves a node for a whole search. It offers the node's GPUs and cores, and supervises probes as on this machine.
//! Start with [`Node`], the driver's side; [`serve()`] is the other side.

mod door;
pub(super) mod error;
mod launchers;
mod node;
mod serve;
mod token;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Job;
use crate::machine::Device;
use crate::model::{Outcome, Progress, Slot};

pub use door::{Door, Knock, dial};
pub use error::WorkerError;
pub use launchers::{Called, Commands, Dialling, LAUNCHERS, Launcher, OnNode, Start, Wanted, Workers};
pub use node::{Life, Node, Remote};
pub use serve::{Parting, Site, serve};
pub use token::Token;

/// The version of the line format.
pub const VERSION: u32 = 1;

/// The interval of heartbeats, and the silence after which the other side counts as lost. Round numbers: a stalled network or a
/// stopped process shows within half a minute, and a machine under load does not count as lost.
const HEARTBEAT: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToWorker {
    Hello(Hello),
    Probe(Box<Asked>),
    Stop { slot: usize, attempt: u64 },
    Heartbeat,
    Goodbye,
    Refused(Refusal),
}

/// The description of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the line format.
    pub version: u32,
    /// The program's version, which must be the same on both sides.
    pub gputune_version: String,
    /// The absolute path of the spec, which the node must have.
    pub spec: PathBuf,
    /// The content of the spec.
    pub text: String,
}

impl Hello {
    /// Returns the hello of this program.
    pub fn new(spec: PathBuf, text: String) -> Self {
        Self { version: VERSION, gputune_version: env!("CARGO_PKG_VERSION").to_owned(), spec, text }
    }
}

/// The resources of a node for a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the line format.
    pub version: u32,
    /// The program's version.
    pub gputune_version: String,
    /// The name that the worker uses for itself.
    pub host: String,
    /// The device that trains.
    pub device: Device,
    /// The slots, in order.
    pub slots: Vec<Slot>,
    /// A line that describes how probes' writes are treated.
    pub writes: String,
    /// The number of GPUs of a probe, if the slots name no GPUs.
    pub gpus: u32,
    /// How long the node may be used, in seconds; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_s: Option<f64>,
}

/// The reason why a worker cannot serve a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The reason.
    pub reason: String,
    /// The remedy.
    pub hint: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    slot: usize,
    /// The request's number, which rises with each request of this driver. The worker's answers repeat it. An answer
    /// with another number belongs to an earlier request and is ignored.
    attempt: u64,
    #[serde(flatten)]
    job: Job,
}

/// `NoTime` answers a probe that would not fit into the rest of the allocation. Its times are in seconds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromWorker {
    Welcome(Box<Welcome>),
    Refused(Refusal),
    Heartbeat,
    Progress(Box<News>),
    Ended(Box<Ended>),
    NoTime { slot: usize, attempt: u64, left_s: f64, takes_s: f64 },
}

#[derive(Debug, Serialize, Deserialize)]
struct News {
    slot: usize,
    attempt: u64,
    #[serde(flatten)]
    progress: Progress,
}

#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    slot: usize,
    attempt: u64,
    /// The outcome, or the reason why no config can be probed.
    outcome: Result<Outcome, Refused>,
    remarks: Vec<String>,
    log: String,
}

/// The reason why no config can be probed on that node.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Refused {
    reason: String,
    hint: Option<String>,
    last_lines: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::orders::read_line;
    use super::*;

    #[test]
    fn a_cut_off_or_malformed_line_is_an_error() {
        assert!(read_line::<ToWorker>(&mut "".as_bytes()).unwrap().is_none());
        for text in ["\"heartbeat\"", "nonsense\n", "{\"probe\":{}}\n", "\u{0}\n"] {
            assert!(read_line::<ToWorker>(&mut text.as_bytes()).is_err(), "{text}");
        }
        assert!(matches!(read_line(&mut "\"heartbeat\"\n".as_bytes()), Ok(Some(ToWorker::Heartbeat))));
    }
}
