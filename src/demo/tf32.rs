//! Numbers that are stored in 32 bits and multiplied with a mantissa of 10 bits, as on the tensor cores of a GPU.

use super::scalar::{Scalar, Storage};

/// A single whose lower 13 bits are dropped in products. On a CPU this saves neither time nor memory. It shows the losses that a
/// GPU would give.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Tf32(f32);

impl Scalar for Tf32 {
    const STORAGE: Storage = Storage::F32;
    const LOSS_SCALE: f32 = 1.0;

    fn load(stored: &[Self], values: &mut [f32]) {
        for (value, stored) in values.iter_mut().zip(stored) {
            *value = stored.0;
        }
    }

    fn load_factors(stored: &[Self], values: &mut [f32]) {
        for (value, stored) in values.iter_mut().zip(stored) {
            *value = rounded(stored.0);
        }
    }

    fn store(values: &[f32], stored: &mut [Self]) {
        for (stored, value) in stored.iter_mut().zip(values) {
            stored.0 = *value;
        }
    }

    fn is_zero(self) -> bool {
        self.0 == 0.0
    }

    fn write_bytes(stored: &[Self], bytes: &mut [u8]) {
        for (value, target) in stored.iter().zip(bytes.chunks_exact_mut(Self::BYTES)) {
            target.copy_from_slice(&value.0.to_ne_bytes());
        }
    }
}

/// Rounds to the nearest, halves away from zero: `cvt.rna.tf32.f32` of the PTX instruction set.
fn rounded(value: f32) -> f32 {
    if value.is_finite() { f32::from_bits((value.to_bits() + 0x1000) & !0x1fff) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_bits_of_mantissa_are_left() {
        for (value, kept) in [
            (1.0, 1.0),
            (1.0 + f32::EPSILON, 1.0),
            (1.0 + 2.0_f32.powi(-10), 1.0 + 2.0_f32.powi(-10)),
            (1.0 + 2.0_f32.powi(-11), 1.0 + 2.0_f32.powi(-10)),
            (-1.0 - 2.0_f32.powi(-11), -1.0 - 2.0_f32.powi(-10)),
            (f32::INFINITY, f32::INFINITY),
        ] {
            let mut values = [0.0];
            Tf32::load_factors(&[Tf32(value)], &mut values);
            assert_eq!(values, [kept], "{value}");
        }
        assert!(rounded(f32::NAN).is_nan());
    }
}
