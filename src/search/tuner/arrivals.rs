//! Slots that join a running search, and remarks about slots that were turned away.

use std::collections::VecDeque;

use super::slots::{InSlot, OnEvent};
use crate::model::{Event, Slot};
use crate::probe::Prober;

/// A slot or a remark that reaches a running search.
pub enum Arrival<'p> {
    /// A slot with its prober.
    Slot(Slot, Box<dyn Prober + Send + 'p>),
    /// A line to show to the user.
    Remark(String),
}

/// The source of arrivals, and the slots that wait until they can take part.
pub(super) struct Arrivals<'p> {
    next: Box<dyn FnMut() -> Option<Arrival<'p>> + 'p>,
    waiting: VecDeque<InSlot<'p>>,
}

impl<'p> Arrivals<'p> {
    pub(super) fn from(next: Box<dyn FnMut() -> Option<Arrival<'p>> + 'p>) -> Self {
        Self { next, waiting: VecDeque::new() }
    }

    /// Collects new slots, and passes remarks on.
    pub(super) fn look(&mut self, on_event: OnEvent<'_>) {
        while let Some(arrival) = (self.next)() {
            match arrival {
                Arrival::Slot(slot, prober) => self.waiting.push_back((Some(slot), prober)),
                Arrival::Remark(text) => on_event(Event::Remark { text: &text }),
            }
        }
    }

    /// Takes a waiting slot.
    pub(super) fn take(&mut self) -> Option<InSlot<'p>> {
        self.waiting.pop_front()
    }
}
