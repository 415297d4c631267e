//! The memory of the job: its buffers, and the three types of the numbers in them.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::DemoError;

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

/// A storage type for the network's numbers. All arithmetic is in `f32`.
pub(super) trait Scalar: Copy + Default + PartialEq + std::fmt::Debug + Send + 'static {
    /// The factor of the loss, chosen so that no gradient falls below the smallest number of the type.
    const LOSS_SCALE: f32;

    /// Converts stored values into an equally long slice.
    fn load(stored: &[Self], values: &mut [f32]);

    /// Rounds values into an equally long slice.
    fn store(values: &[f32], stored: &mut [Self]);

    /// Returns the values themselves if no conversion is needed.
    fn as_f32(_stored: &[Self]) -> Option<&[f32]> {
        None
    }

    /// Returns the values themselves if no conversion is needed.
    fn as_f32_mut(_stored: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

impl Scalar for f32 {
    const LOSS_SCALE: f32 = 1.0;

    fn load(stored: &[Self], values: &mut [f32]) {
        values.copy_from_slice(stored);
    }

    fn store(values: &[f32], stored: &mut [Self]) {
        stored.copy_from_slice(values);
    }

    fn as_f32(stored: &[Self]) -> Option<&[f32]> {
        Some(stored)
    }

    fn as_f32_mut(stored: &mut [Self]) -> Option<&mut [f32]> {
        Some(stored)
    }
}

// The shifts are written out because they become vector code, unlike the general conversions.
impl Scalar for bf16 {
    const LOSS_SCALE: f32 = 1.0;

    fn load(stored: &[Self], values: &mut [f32]) {
        for (value, stored) in values.iter_mut().zip(stored) {
            *value = f32::from_bits(u32::from(stored.to_bits()) << 16);
        }
    }

    fn store(values: &[f32], stored: &mut [Self]) {
        for (stored, value) in stored.iter_mut().zip(values) {
            let bits = value.to_bits();
            let to_even = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
            let kept = if value.is_nan() { 0x7fc0_0000 } else { to_even };
            *stored = Self::from_bits((kept >> 16) as u16);
        }
    }
}

impl Scalar for f16 {
    // The mean over a batch leaves gradients near 1e-6, and the smallest number of the type is 6e-8. The largest gradients, near 1,
    // stay far below its maximum of 65504.
    const LOSS_SCALE: f32 = 1024.0;

    fn load(stored: &[Self], values: &mut [f32]) {
        stored.convert_to_f32_slice(values);
    }

    fn store(values: &[f32], stored: &mut [Self]) {
        stored.convert_from_f32_slice(values);
    }
}

/// Returns stored values as `f32`. Values of another type are converted into `room`.
pub(super) fn loaded<'a, S: Scalar>(stored: &'a [S], room: &'a mut [f32]) -> &'a [f32] {
    if let Some(values) = S::as_f32(stored) {
        return values;
    }
    let room = &mut room[..stored.len()];
    S::load(stored, room);
    room
}

/// Changes stored values as `f32`. Values of another type are converted into `room`, changed there, and converted back.
pub(super) fn changed<S: Scalar>(stored: &mut [S], room: &mut [f32], change: impl FnOnce(&mut [f32])) {
    if let Some(values) = S::as_f32_mut(stored) {
        return change(values);
    }
    let room = &mut room[..stored.len()];
    S::load(stored, room);
    change(room);
    S::store(room, stored);
}
