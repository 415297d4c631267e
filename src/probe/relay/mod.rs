//! Probes whose processes run on several nodes.
//!
//! Each node has a *relay* for the whole search. For each probe, the relay makes the probe's folder under the same path as on this
//! machine, with the hook and a socket. It forwards the messages of processes on its node over the standard streams of the command
//! that started it. So it needs no port and no token, and it ends with gputune. `docs/design/workers.md` describes the lines.
//! [`Relays`] is the probe's side, [`serve()`] the node's side.

mod near;
mod serve;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::machine::Device;

pub(super) use near::Reach;
pub use near::{NoRelays, Relays};
pub use serve::serve;

/// The socket in a probe's folder.
pub(super) const SOCKET: &str = "events";

/// The messages to a relay.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToRelay {
    /// A probe starts: make its folder, with these files.
    Open { folder: PathBuf, files: Vec<(PathBuf, String)> },
    /// Lines for the process at the other end of a connection.
    Order { connection: u64, text: String },
    /// The probe is over.
    Close { folder: PathBuf },
}

/// The messages of a relay.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromRelay {
    /// The first message: the identity of the relay.
    Here(Here),
    /// Processes of this node can reach the socket.
    Reached { folder: PathBuf },
    /// Processes of this node cannot reach the socket.
    Cannot { folder: PathBuf, reason: String, hint: String },
    /// A process has connected.
    Connected { folder: PathBuf, connection: u64 },
    /// Lines from the process.
    Heard { connection: u64, text: String },
    /// The process has disconnected.
    Left { connection: u64 },
}

/// The identity of a relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Here {
    gputune_version: String,
    device: Device,
}

/// The version of this program, which relays must share.
const GPUTUNE: &str = env!("CARGO_PKG_VERSION");
