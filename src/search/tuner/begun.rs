//! Probes to run, and probes under way.

use std::time::Instant;

use super::order::Order;
use crate::model::{Measurement, Purpose};
use crate::search::strategy::Proposal;

/// A config to probe.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) proposal: Proposal,
    pub(super) purpose: Purpose,
    /// The slot in which it failed, if it is retried elsewhere for that reason.
    pub(super) failed_in: Option<usize>,
    /// True if the probe uses its whole time even if it is precise earlier. Probes that start together then measure together.
    pub(super) takes_its_time: bool,
    /// True if the probe only loads the machine while other probes measure. It is not recorded.
    pub(super) is_load: bool,
}

impl Wanted {
    pub(super) fn new(proposal: Proposal, purpose: Purpose) -> Self {
        Self { proposal, purpose, failed_in: None, takes_its_time: false, is_load: false }
    }
}

/// A probe under way.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) order: Order,
    pub(super) purpose: Purpose,
    pub(super) proposal: Proposal,
    pub(super) began: Instant,
    /// The measurement, while the cost of the exchange between ranks is being measured.
    pub(super) waits_for_exchange: Option<Measurement>,
    pub(super) failed_in: Option<usize>,
    pub(super) is_load: bool,
}
