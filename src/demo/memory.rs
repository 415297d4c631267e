//! Accounts for every buffer that the job holds, against an optional limit.

use std::mem::size_of;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::DemoError;

/// The bytes that one job holds.
///
/// It counts parameters, momentum, gradients, activations, batches including the prefetched batches, and the loaders' scratch. It
/// does not count the program and its stacks. It also does not count the short-lived memory of an image decoder and a matrix
/// multiplication, which has a fixed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoMemory {
    /// The bytes held now.
    pub in_use_bytes: u64,
    /// The most bytes held at once since the start.
    pub peak_bytes: u64,
    /// The limit in force, if any.
    pub limit_bytes: Option<u64>,
}

/// The shared account of one job. Clones book to the same account.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    account: Arc<Mutex<DemoMemory>>,
}

impl Ledger {
    /// Opens an empty account.
    pub(super) fn new(limit_bytes: Option<u64>) -> Self {
        Self { account: Arc::new(Mutex::new(DemoMemory { in_use_bytes: 0, peak_bytes: 0, limit_bytes })) }
    }

    /// Reads the account.
    pub(super) fn memory(&self) -> DemoMemory {
        *self.lock()
    }

    /// Allocates a zeroed buffer whose length is the product of `sizes`.
    pub(super) fn buffer<T: Copy + Default>(&self, sizes: &[usize]) -> Result<Buffer<T>, DemoError> {
        let refuse = |account: &DemoMemory, requested_bytes| DemoError::OutOfMemory {
            requested_bytes,
            in_use_bytes: account.in_use_bytes,
            limit_bytes: account.limit_bytes,
        };
        let mut account = self.lock();
        let length = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        let bytes = length.and_then(|length| length.checked_mul(size_of::<T>()));
        let (Some(length), Some(bytes)) = (length, bytes.map(|bytes| bytes as u64)) else {
            return Err(refuse(&account, u64::MAX));
        };
        let total_bytes = account.in_use_bytes.saturating_add(bytes);
        let mut values = Vec::new();
        if total_bytes > account.limit_bytes.unwrap_or(u64::MAX) || values.try_reserve_exact(length).is_err() {
            return Err(refuse(&account, bytes));
        }
        account.in_use_bytes = total_bytes;
        account.peak_bytes = account.peak_bytes.max(total_bytes);
        drop(account);
        values.resize(length, T::default());
        Ok(Buffer { values, _charge: Charge { ledger: self.clone(), bytes } })
    }

    // Every update of the account is a plain assignment, so a poisoned lock still guards a consistent value.
    fn lock(&self) -> MutexGuard<'_, DemoMemory> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A booked amount that is returned on drop.
#[derive(Debug)]
struct Charge {
    ledger: Ledger,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut account = self.ledger.lock();
        account.in_use_bytes = account.in_use_bytes.saturating_sub(self.bytes);
    }
}

/// A slice of fixed length whose bytes are booked while it lives.
#[derive(Debug)]
pub(super) struct Buffer<T> {
    // Declared before the charge, so that the memory is free before the account shows it as free.
    values: Vec<T>,
    _charge: Charge,
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_booked_and_given_back() {
        let ledger = Ledger::new(None);
        let first = ledger.buffer::<f32>(&[10, 2]).unwrap();
        let second = ledger.buffer::<u8>(&[5]).unwrap();
        assert_eq!(first.len(), 20);
        assert_eq!(ledger.memory().in_use_bytes, 85);
        drop(first);
        drop(second);
        assert_eq!(ledger.memory().in_use_bytes, 0);
        assert_eq!(ledger.memory().peak_bytes, 85);
    }

    #[test]
    fn the_limit_refuses_before_allocating() {
        let ledger = Ledger::new(Some(100));
        let _held = ledger.buffer::<u8>(&[60]).unwrap();
        let error = ledger.buffer::<u8>(&[41]).unwrap_err();
        assert!(matches!(
            error,
            DemoError::OutOfMemory { requested_bytes: 41, in_use_bytes: 60, limit_bytes: Some(100) }
        ));
        assert!(ledger.buffer::<u8>(&[40]).is_ok());
        assert_eq!(ledger.memory().peak_bytes, 100);
    }

    #[test]
    fn impossible_sizes_are_refused_not_fatal() {
        let ledger = Ledger::new(None);
        assert!(ledger.buffer::<f32>(&[usize::MAX, 2]).is_err());
        assert!(ledger.buffer::<f32>(&[usize::MAX]).is_err());
        assert!(ledger.buffer::<f32>(&[usize::MAX / 5]).is_err());
        assert_eq!(ledger.memory().in_use_bytes, 0);
        assert_eq!(ledger.memory().peak_bytes, 0);
    }
}
