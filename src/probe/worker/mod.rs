//! Probes on another node: a worker there runs them, for a driver here, over lines of JSON. `docs/cluster.md` describes the lines.
//!
//! One worker serves a node for a whole search: it hands out the node's GPUs and cores, and runs probes with the same supervision
//! as here. Start with [`Node`], the driver's side; [`serve()`] is the other.

mod dial;
mod door;
mod launchers;
mod link;
mod node;
mod serve;
mod token;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Effort, Experiment, Limits};
use crate::machine::Device;
use crate::model::{Config, DeviceReadings, Estimate, Outcome, Progress, Settings, Slot};

pub use dial::{DialError, dial};
pub use door::{Door, DoorError, Knock};
pub use launchers::{Called, Commands, Dialling, LAUNCHERS, Launcher, LauncherError, OnNode, Start, Wanted, Workers};
pub use link::Life;
pub use node::{Node, NodeError, Remote};
pub use serve::{Parting, Site, serve};
pub use token::{Token, TokenError};

/// The version of the lines.
pub const VERSION: u32 = 1;

/// How often either side says that it lives, and the silence after which the other counts as gone. Round numbers: a stalled network
/// or a stopped process shows within half a minute, and a machine under load is not taken for a dead one.
const HEARTBEAT: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(30);

/// What a driver says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToWorker {
    Hello(Hello),
    Probe(Box<Asked>),
    /// The probe is not wanted any more.
    Stop {
        slot: usize,
        attempt: u64,
    },
    Heartbeat,
    /// The search is over.
    Goodbye,
    /// The worker is not wanted.
    Refused(Refusal),
}

/// What a search is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the lines.
    pub version: u32,
    /// The program's version; the other must be the same.
    pub gputune_version: String,
    /// The spec, as an absolute path, which the node must have.
    pub spec: PathBuf,
    /// What is in it.
    pub text: String,
}

impl Hello {
    /// The hello of this program.
    pub fn new(spec: PathBuf, text: String) -> Self {
        Self { version: VERSION, gputune_version: env!("CARGO_PKG_VERSION").to_owned(), spec, text }
    }
}

/// What a node has for a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the lines.
    pub version: u32,
    /// The program's version.
    pub gputune_version: String,
    /// What the worker calls itself.
    pub host: String,
    /// The device that trains.
    pub device: Device,
    /// The slots, in their order.
    pub slots: Vec<Slot>,
    /// What becomes of what probes write, in a line.
    pub writes: String,
    /// The GPUs of a probe where the slots name none.
    pub gpus: u32,
    /// How long the node may be used, in seconds; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_s: Option<f64>,
}

/// Why a worker cannot serve a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// Why not.
    pub reason: String,
    /// What to do about it.
    pub hint: String,
}

/// A probe that is asked for.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    slot: usize,
    /// Its number among all that this driver asks for. Lines with another one are late.
    attempt: u64,
    number: u32,
    config: Config,
    settings: Settings,
    limits: Limits,
    effort: Effort,
    #[serde(default)]
    experiment: Option<Experiment>,
    keeps: bool,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromWorker {
    Welcome(Box<Welcome>),
    Refused(Refusal),
    Heartbeat,
    Progress(Box<News>),
    Ended(Box<Ended>),
    NoTime(NoTime),
}

/// News of a running probe.
#[derive(Debug, Serialize, Deserialize)]
struct News {
    slot: usize,
    attempt: u64,
    elapsed_s: f64,
    steps: u64,
    throughput: Option<Estimate>,
    unit: String,
    devices: DeviceReadings,
}

impl News {
    fn of(slot: usize, attempt: u64, progress: &Progress) -> Self {
        Self {
            slot,
            attempt,
            elapsed_s: progress.elapsed.as_secs_f64(),
            steps: progress.steps,
            throughput: progress.throughput,
            unit: progress.unit.clone(),
            devices: DeviceReadings::clone(&progress.devices),
        }
    }

    fn progress(self) -> Progress {
        Progress {
            elapsed: Duration::try_from_secs_f64(self.elapsed_s).unwrap_or_default(),
            steps: self.steps,
            throughput: self.throughput,
            unit: self.unit,
            devices: self.devices.into(),
        }
    }
}

/// A probe is not begun, since it would not fit into the rest of the allocation.
#[derive(Debug, Serialize, Deserialize)]
struct NoTime {
    slot: usize,
    attempt: u64,
    /// What is left, and how long a probe may take, in seconds.
    left_s: f64,
    takes_s: f64,
}

/// How a probe ended.
#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    slot: usize,
    attempt: u64,
    /// The outcome, or why no config can be probed.
    outcome: Result<Outcome, Refused>,
    /// What the prober has to say.
    remarks: Vec<String>,
    /// The end of the probe's log.
    log: String,
}

/// Why no config can be probed there.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Refused {
    reason: String,
    hint: Option<String>,
    last_lines: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::lines::{line_of, read_line};
    use super::*;
    use crate::model::{Failure, Measurement};

    #[test]
    fn what_is_said_is_what_is_heard() {
        let outcomes = [
            Ok(Outcome::Measured(Measurement { throughput: Some(Estimate::point(3.5)), ..Measurement::default() })),
            Ok(Outcome::Crashed(Failure::new("why"))),
            Err(Refused { reason: "no".to_owned(), hint: None, last_lines: vec!["x".to_owned()] }),
        ];
        for outcome in outcomes {
            let said = Ended { slot: 1, attempt: 7, outcome, remarks: Vec::new(), log: "é\n".to_owned() };
            let line = line_of(&FromWorker::Ended(Box::new(said))).unwrap();
            let heard: FromWorker = read_line(&mut line.as_slice()).unwrap().unwrap();
            assert_eq!(line_of(&heard).unwrap(), line);
        }
    }

    #[test]
    fn what_is_cut_off_or_no_line_is_an_error() {
        assert!(read_line::<ToWorker>(&mut "".as_bytes()).unwrap().is_none());
        for text in ["\"heartbeat\"", "nonsense\n", "{\"probe\":{}}\n", "\u{0}\n"] {
            assert!(read_line::<ToWorker>(&mut text.as_bytes()).is_err(), "{text}");
        }
        assert!(matches!(read_line(&mut "\"heartbeat\"\n".as_bytes()), Ok(Some(ToWorker::Heartbeat))));
    }
}
