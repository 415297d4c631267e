//! Accounts for every buffer that the job holds, against an optional limit.

use super::error::DemoError;

/// The bytes that one job holds, which do not change after its start.
///
/// It counts parameters, momentum, gradients, activations, batches including the prefetched batches, and the loaders' scratch. It
/// does not count the program, its stacks, and the short-lived memory of image decoders and matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoMemory {
    /// The bytes held.
    pub bytes: u64,
    /// The limit in force, if any.
    pub limit_bytes: Option<u64>,
}

impl DemoMemory {
    /// Allocates a zeroed buffer whose length is the product of `sizes`.
    pub(super) fn buffer<T: Copy + Default>(&mut self, sizes: &[usize]) -> Result<Vec<T>, DemoError> {
        let Self { bytes, limit_bytes } = *self;
        let length = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
        let requested =
            length.and_then(|length| length.checked_mul(size_of::<T>())).map_or(u64::MAX, |size| size as u64);
        let total = bytes.saturating_add(requested);
        let (mut buffer, length) = (Vec::new(), length.unwrap_or(usize::MAX));
        if total > limit_bytes.unwrap_or(u64::MAX - 1) || buffer.try_reserve_exact(length).is_err() {
            return Err(DemoError::OutOfMemory { requested_bytes: requested, in_use_bytes: bytes, limit_bytes });
        }
        buffer.resize(length, T::default());
        self.bytes = total;
        Ok(buffer)
    }
}
