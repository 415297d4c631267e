//! The image of each sample, and the random crop, scale, flip and brightness of each sample.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::shape::{COLOURS, Shape};

const MEAN: f32 = 0.4;
const DEVIATION: f32 = 0.25;

/// A prime that shares no factor with the number of images.
const STRIDE: u64 = 101;

/// Maps a sample number, which counts up through all epochs, to an image. Every epoch has every image once.
pub(super) fn image_of(seed: u64, sample: u64, shape: &Shape) -> usize {
    (sample.wrapping_mul(STRIDE).wrapping_add(seed) % shape.images as u64) as usize
}

/// Writes a random part of an image at the size of a crop, with values around zero. The same seed and sample always give the
/// same crop.
pub(super) fn augment(seed: u64, sample: u64, shape: &Shape, image: &[u8], crop: &mut [f32]) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(sample);
    let (whole, target) = (shape.image_side, shape.crop_side);
    let side = random.random_range(whole * 2 / 3..=whole);
    let (left, top) = (random.random_range(0..=whole - side), random.random_range(0..=whole - side));
    let is_flipped: bool = random.random();
    let scale = random.random_range(0.8..1.2) / (255.0 * DEVIATION);
    // The two pixels on either side of a crop's pixel, along one side, and the share of the second.
    let neighbours = |index: usize| {
        let position = ((index as f32 + 0.5) * side as f32 / target as f32 - 0.5).max(0.0);
        let first = (position as usize).min(side - 1);
        (first, (first + 1).min(side - 1), position - first as f32)
    };
    let mix = |first: f32, second: f32, share: f32| first + (second - first) * share;
    for (row, pixels) in crop.chunks_exact_mut(target * COLOURS).enumerate() {
        let (upper, lower, down) = neighbours(row);
        let [upper, lower] = [upper, lower].map(|offset| &image[((top + offset) * whole + left) * COLOURS..]);
        for (column, pixel) in pixels.chunks_exact_mut(COLOURS).enumerate() {
            let (first, second, along) = neighbours(if is_flipped { target - 1 - column } else { column });
            for (colour, value) in pixel.iter_mut().enumerate() {
                let at = |row: &[u8], pixel: usize| f32::from(row[pixel * COLOURS + colour]);
                let [above, below] = [upper, lower].map(|row| mix(at(row, first), at(row, second), along));
                *value = mix(above, below, down) * scale - MEAN / DEVIATION;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_every_image_once_and_a_sample_one_augmentation_per_seed() {
        for shape in [Shape::TINY, Shape::STANDARD] {
            let mut images: Vec<_> = (0..shape.images as u64).map(|sample| image_of(3, sample, &shape)).collect();
            images.sort_unstable();
            assert_eq!(images, (0..shape.images).collect::<Vec<_>>());
        }
        let shape = Shape::TINY;
        let image: Vec<u8> = (0..shape.image_bytes()).map(|index| (index % 251) as u8).collect();
        let crop = |seed, sample| {
            let mut crop = vec![0.0; shape.crop_values()];
            augment(seed, sample, &shape, &image, &mut crop);
            crop
        };
        assert_eq!(crop(1, 5), crop(1, 5));
        assert_ne!(crop(1, 5), crop(1, 6));
        assert_ne!(crop(1, 5), crop(2, 5));
    }
}
