//! The cost of communication between the ranks of a job, and the communication parameters that it makes irrelevant.

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;

/// The result of an experiment next to the first probe of a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exchange {
    /// The share of the time that unhidden communication between ranks takes, from 0 to 1; `None` if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed: Option<Estimate>,
    /// Parameters that keep their settings of that probe, since changing them could gain next to nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closes: Vec<String>,
    /// The share and the closed parameters, in words.
    pub words: String,
}
