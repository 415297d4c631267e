//! Makes the probers of a search: one with the whole machine, or one for each slot.

use std::path::Path;

use gputune::diagnosis::Around;
use gputune::machine::Shares;
use gputune::model::{Slot, Space};
use gputune::probe::{CommandProber, CommandStep};
use gputune::search::Tuner;

use super::exit::{Exit, Failed};
use super::writes;

/// The parts of the machine that probes have, and whether training will have the whole of it.
pub(super) struct Slots {
    slots: Vec<Slot>,
    is_whole: bool,
}

impl Slots {
    /// Divides the machine.
    ///
    /// # Errors
    /// There is less than the shares ask for.
    pub(super) fn of(shares: &Shares, is_gpu: bool) -> Result<Self, Failed> {
        let slots = shares.divide(is_gpu);
        let slots = slots.map_err(|error| Failed::because(Exit::Usage, &error).hint(error.hint()))?;
        Ok(Self { is_whole: slots.is_empty() || !shares.has_shape(), slots })
    }

    /// What a probe has, on which its trials depend.
    pub(super) fn shape(&self) -> Option<String> {
        self.slots.first().filter(|_| !self.is_whole).map(Slot::shape)
    }

    /// Makes the tuner with its probers, and says what becomes of their writes.
    ///
    /// # Errors
    /// The protection that is asked for cannot be had.
    pub(super) fn tuner(
        self,
        space: Space,
        step: &CommandStep,
        out: &Path,
        quiet: bool,
    ) -> Result<Tuner<'static>, Failed> {
        let shape = self.slots.first().filter(|_| !self.is_whole);
        let around = shape.map_or_else(Around::processors, |slot| Around::with_cores(slot.cores.len()));
        let in_slot = |slot: Slot| (slot.clone(), CommandProber::new(step.clone().in_slot(slot), out));
        let mut slots: Vec<(Slot, CommandProber)> = self.slots.into_iter().map(in_slot).collect();
        let mut whole = self.is_whole.then(|| CommandProber::new(step.clone(), out));
        for (at, prober) in whole.iter_mut().chain(slots.iter_mut().map(|(_, prober)| prober)).enumerate() {
            // One of them speaks for all.
            writes::announce(prober, quiet || at > 0)?;
        }
        let tuner = match whole {
            Some(prober) if slots.is_empty() => Tuner::with_prober(space, prober),
            whole => Tuner::with_slots(space, whole, slots),
        };
        Ok(tuner.around(around))
    }
}
