//! Device memory that is booked while it is held.

use std::ops::Deref;

use super::super::error::DemoError;
use super::super::memory::{Charge, Ledger};
use super::device::Device;

/// A device and the account of its memory.
pub(super) struct Account<'a, D> {
    device: &'a D,
    ledger: &'a Ledger,
}

impl<'a, D: Device> Account<'a, D> {
    /// Books memory of `device` in `ledger`.
    pub(super) fn new(device: &'a D, ledger: &'a Ledger) -> Self {
        Self { device, ledger }
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &'a D {
        self.device
    }

    /// Allocates zeroed memory of as many bytes as the product of `sizes`.
    pub(super) fn memory(&self, sizes: &[usize]) -> Result<Held<D>, DemoError> {
        let (memory, charge) = self.ledger.book(sizes, |bytes| self.device.memory(bytes))?;
        Ok(Held { memory, _charge: charge })
    }

    /// Allocates room for a batch.
    pub(super) fn slot(&self, pixel_bytes: usize, labels: usize) -> Result<(D::Slot, Charge), DemoError> {
        self.ledger.book(&[pixel_bytes.saturating_add(labels)], |_| self.device.slot(pixel_bytes, labels))
    }
}

/// Memory of a device.
pub(super) struct Held<D: Device> {
    // Declared before the charge, so that the memory is free before the account shows it as free.
    memory: D::Memory,
    _charge: Charge,
}

impl<D: Device> Deref for Held<D> {
    type Target = D::Memory;

    fn deref(&self) -> &D::Memory {
        &self.memory
    }
}
