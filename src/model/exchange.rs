//! What the exchange between the ranks of a job costs, and what follows for parameters that are about nothing else.

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;

/// What an experiment beside the first probe of a search found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exchange {
    /// The share of the time that the ranks' communication takes and that nothing hides, from 0 to 1; `None` where it was not
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed: Option<Estimate>,
    /// Parameters that stay as they are in that probe, since they could gain next to nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closes: Vec<String>,
    /// Both in words.
    pub words: String,
}
