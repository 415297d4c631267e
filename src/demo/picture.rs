//! The synthetic pictures: a pattern in warm or cool colours, under noise.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::shape::{CLASSES, COLOURS};

// The pictures do not depend on the seed of a run, so that all runs share one data set.
const PICTURE_SEED: u64 = 0x6770_7574_756e_6531;
const NOISE: i16 = 16;
const WARM: [i16; COLOURS] = [205, 130, 70];
const COOL: [i16; COLOURS] = [70, 130, 205];
const DIM: [i16; COLOURS] = [60, 60, 60];

/// Returns the class of an image, which is its pattern and its colour family.
pub(super) const fn class_of(image: usize) -> usize {
    image % CLASSES
}

/// Draws an image into rows of red, green and blue bytes.
pub(super) fn draw(image: usize, side_pixels: usize, pixels: &mut [u8]) {
    let mut random = ChaCha8Rng::seed_from_u64(PICTURE_SEED);
    random.set_stream(image as u64);
    let pattern = Pattern::new(class_of(image) % 4, side_pixels, &mut random);
    let bright = if class_of(image) < 4 { WARM } else { COOL };
    let lightness = random.random_range(-30..=30_i16);
    for (index, pixel) in pixels.chunks_exact_mut(COLOURS).enumerate() {
        let inside = pattern.contains(index % side_pixels, index / side_pixels);
        let colour = if inside { bright } else { DIM };
        for (byte, level) in pixel.iter_mut().zip(colour) {
            let noisy = level + lightness + random.random_range(-NOISE..=NOISE);
            *byte = noisy.clamp(0, 255) as u8;
        }
    }
}

/// The place of the bright colour. A mirrored picture keeps its pattern.
struct Pattern {
    kind: usize,
    period_pixels: usize,
    shift_pixels: (usize, usize),
    side_pixels: usize,
}

impl Pattern {
    fn new(kind: usize, side_pixels: usize, random: &mut ChaCha8Rng) -> Self {
        let period_pixels = random.random_range(6..=12);
        Self {
            kind,
            period_pixels,
            shift_pixels: (random.random_range(0..period_pixels), random.random_range(0..period_pixels)),
            side_pixels,
        }
    }

    fn contains(&self, column: usize, row: usize) -> bool {
        let (right, down) = self.shift_pixels;
        let half = |position: usize| position % self.period_pixels * 2 < self.period_pixels;
        match self.kind {
            0 => half(row + down),
            1 => half(column + right),
            2 => half(row + down) != half(column + right),
            _ => {
                let middle = self.side_pixels / 2;
                let radius = self.side_pixels / 4 + self.period_pixels / 4;
                let across = column.abs_diff(middle + right / 4);
                let along = row.abs_diff(middle + down / 4);
                across * across + along * along < radius * radius
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_always_the_same_and_unlike_others() {
        let picture = |image| {
            let mut pixels = vec![0; 20 * 20 * COLOURS];
            draw(image, 20, &mut pixels);
            pixels
        };
        assert_eq!(picture(3), picture(3));
        assert_ne!(picture(3), picture(3 + CLASSES));
    }

    #[test]
    fn colour_families_are_visible() {
        let red_over_blue = |image| {
            let mut pixels = vec![0; 20 * 20 * COLOURS];
            draw(image, 20, &mut pixels);
            let sum =
                |colour| -> u64 { pixels.iter().skip(colour).step_by(COLOURS).map(|&byte| u64::from(byte)).sum() };
            sum(0) > sum(2)
        };
        assert!((0..4).all(red_over_blue));
        assert!(!(4..8).any(red_over_blue));
    }
}
