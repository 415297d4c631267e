//! The ways to start a probe of a command.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How probes of a command are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// As processes of their own.
    Fresh,
    /// Forked from a process that has done the imports, where that is possible.
    Warm,
    /// In a process that trains already, where only settings differ that can change there; else warm, unless the first
    /// config measures otherwise when it is forked. On a processor too.
    Live,
    /// As `live` for training on a GPU. On a processor never live, since the memory that one config has left to the process
    /// makes the next faster than it is (`docs/adapters.md`).
    #[default]
    Auto,
}
