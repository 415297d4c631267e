//! What is to be probed, and what is under way.

use std::time::Instant;

use super::order::Order;
use crate::model::{Measurement, Purpose};
use crate::search::strategy::Proposal;

/// A config that is to be probed.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) proposal: Proposal,
    pub(super) purpose: Purpose,
    /// The slot in which it has failed, if it is tried elsewhere for that reason.
    pub(super) failed_in: Option<usize>,
    /// Whether it is measured for all of its time, however soon it is precise enough: then those that begin at the same time
    /// measure at the same time.
    pub(super) takes_its_time: bool,
}

impl Wanted {
    pub(super) fn new(proposal: Proposal, purpose: Purpose) -> Self {
        Self { proposal, purpose, failed_in: None, takes_its_time: false }
    }
}

/// A probe under way.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) order: Order,
    pub(super) purpose: Purpose,
    pub(super) proposal: Proposal,
    pub(super) began: Instant,
    /// What was measured, while the losses in full precision are found out.
    pub(super) waits_for_losses: Option<Measurement>,
    /// What was measured, while it is found out what the exchange between ranks costs.
    pub(super) waits_for_exchange: Option<Measurement>,
    pub(super) failed_in: Option<usize>,
}
