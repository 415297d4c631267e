//! What comes to a search while it runs: further slots, and what is to be said of those that were turned away.

use std::collections::VecDeque;

use super::slots::{InSlot, OnEvent};
use crate::model::{Event, Slot};
use crate::probe::Prober;

/// Something that has come.
pub enum Arrival<'p> {
    /// A slot, with what probes there.
    Slot(Slot, Box<dyn Prober + Send + 'p>),
    /// A line for whoever follows the search.
    Remark(String),
}

/// Where they come from, and those that wait until they can take part.
pub(super) struct Arrivals<'p> {
    next: Box<dyn FnMut() -> Option<Arrival<'p>> + 'p>,
    waiting: VecDeque<InSlot<'p>>,
}

impl<'p> Arrivals<'p> {
    pub(super) fn from(next: Box<dyn FnMut() -> Option<Arrival<'p>> + 'p>) -> Self {
        Self { next, waiting: VecDeque::new() }
    }

    /// Looks what has come, and passes remarks on.
    pub(super) fn look(&mut self, on_event: OnEvent<'_>) {
        while let Some(arrival) = (self.next)() {
            match arrival {
                Arrival::Slot(slot, prober) => self.waiting.push_back((Some(slot), prober)),
                Arrival::Remark(text) => on_event(Event::Remark { text: &text }),
            }
        }
    }

    /// Takes a slot that waits.
    pub(super) fn take(&mut self) -> Option<InSlot<'p>> {
        self.waiting.pop_front()
    }
}
