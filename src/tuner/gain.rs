//! Whether another probe is worth its cost, as far as the strategy expects.

use crate::strategy::Proposal;
use crate::trial::{History, Purpose};

/// Proposals in a row of which little is expected. One may be chance, and a model is often too sure of itself early on: on
/// recorded tables three in a row ended searches whose best config was 12 % below the table's, ten in a row 5 %, sixty
/// probes without an end 3 %; of training jobs all ended at the table's best.
const IN_A_ROW: usize = 10;

/// Configs that must be known before a model may say that there is nothing to gain.
const FEWEST_CONFIGS: usize = 10;

/// Counts proposals of which little is expected.
pub(super) struct SmallGains {
    least: f64,
    in_a_row: usize,
}

impl SmallGains {
    /// As it is after a history: what was expected of a trial follows from those before it.
    pub(super) fn after(history: &History, least: f64, mut propose: impl FnMut(&History) -> Option<Proposal>) -> Self {
        let mut gains = Self { least, in_a_row: 0 };
        if least <= 0.0 {
            return gains;
        }
        let trials = history.trials();
        let mut searched: Vec<usize> =
            (0..trials.len()).filter(|&at| trials[at].purpose == Purpose::Search).rev().take(IN_A_ROW).collect();
        searched.reverse();
        for at in searched {
            let before: History = trials[..at].iter().cloned().collect();
            if let Some(proposal) = propose(&before) {
                gains.hear(&proposal);
            }
        }
        gains
    }

    /// The next proposal.
    pub(super) fn hear(&mut self, proposal: &Proposal) {
        let is_small = proposal.gain.is_some_and(|gain| gain < self.least);
        self.in_a_row = if is_small { self.in_a_row + 1 } else { 0 };
    }

    /// Whether the search should end.
    pub(super) fn are_enough(&self, history: &History) -> bool {
        self.in_a_row >= IN_A_ROW && history.searched().count() >= FEWEST_CONFIGS
    }
}
