//! The three storage types and their conversion from and to 32 bits.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A storage type for the network's numbers. All arithmetic is in `f32`.
pub(super) trait Scalar: Copy + Default + std::fmt::Debug + Send + 'static {
    /// The factor of the loss, chosen so that no gradient falls below the smallest number of the type.
    const LOSS_SCALE: f32;

    /// Converts stored values into an equally long slice.
    fn load(stored: &[Self], values: &mut [f32]);

    /// Rounds values into an equally long slice.
    fn store(values: &[f32], stored: &mut [Self]);

    /// Returns true if the value is zero of either sign.
    fn is_zero(self) -> bool;

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

    fn is_zero(self) -> bool {
        self == 0.0
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

    fn is_zero(self) -> bool {
        self.to_bits() & 0x7fff == 0
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

    fn is_zero(self) -> bool {
        self.to_bits() & 0x7fff == 0
    }
}

/// Returns stored values as 32 bits, converted into `room` if they are not.
pub(super) fn loaded<'a, S: Scalar>(stored: &'a [S], room: &'a mut [f32]) -> &'a [f32] {
    if let Some(values) = S::as_f32(stored) {
        return values;
    }
    let room = &mut room[..stored.len()];
    S::load(stored, room);
    room
}

/// Changes stored values as 32 bits, converted into `room` and back if they are not.
pub(super) fn changed<S: Scalar>(stored: &mut [S], room: &mut [f32], change: impl FnOnce(&mut [f32])) {
    if let Some(values) = S::as_f32_mut(stored) {
        return change(values);
    }
    let room = &mut room[..stored.len()];
    S::load(stored, room);
    change(room);
    S::store(room, stored);
}
