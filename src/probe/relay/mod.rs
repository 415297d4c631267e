//! Probes whose processes run on several nodes.
//!
//! On each node there is a *relay* for the whole search. For each probe it makes the probe's folder under the same path as here, with the hook
//! and a socket, and hands on what processes there say, over the standard streams of the command that started it: no port, no token, and
//! what ends here ends there. `docs/nodes.md` describes the lines. [`Relays`] is the side of the probe, [`serve()`] that of the node.

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

/// What a relay is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToRelay {
    /// A probe begins: make its folder, with these files in it.
    Open { folder: PathBuf, files: Vec<(PathBuf, String)> },
    /// Lines for the process at the other end of a connection.
    Order { connection: u64, text: String },
    /// The probe is over.
    Close { folder: PathBuf },
}

/// What a relay says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromRelay {
    /// First of all: who it is.
    Here(Here),
    /// Processes of this node can reach the socket.
    Reached { folder: PathBuf },
    /// They cannot.
    Cannot { folder: PathBuf, reason: String, hint: String },
    /// A process has connected.
    Connected { folder: PathBuf, connection: u64 },
    /// What it said.
    Heard { connection: u64, text: String },
    /// It is gone.
    Left { connection: u64 },
}

/// Who a relay is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Here {
    gputune_version: String,
    device: Device,
}

/// The version of this program; relays must be of the same.
const GPUTUNE: &str = env!("CARGO_PKG_VERSION");
