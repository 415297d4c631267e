//! The random crop, scale, flip and brightness of one sample, and its normalisation.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::shape::{COLOURS, Shape};

const MEAN: f32 = 0.4;
const DEVIATION: f32 = 0.25;

/// The augmentation of one sample on its way into a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Augmentation {
    side_pixels: usize,
    left_pixels: usize,
    top_pixels: usize,
    flip: bool,
    brightness: f32,
}

impl Augmentation {
    /// Draws the augmentation of a sample. The same seed and number always give the same augmentation.
    pub(super) fn of_sample(seed: u64, sample: u64, shape: &Shape) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(sample);
        let whole_pixels = shape.image_side_pixels;
        let side_pixels = random.random_range(whole_pixels * 2 / 3..=whole_pixels);
        Self {
            side_pixels,
            left_pixels: random.random_range(0..=whole_pixels - side_pixels),
            top_pixels: random.random_range(0..=whole_pixels - side_pixels),
            flip: random.random(),
            brightness: random.random_range(0.8..1.2),
        }
    }

    /// Writes the part of `image` at the size of a crop, with values around zero.
    pub(super) fn apply(&self, shape: &Shape, image: &[u8], crop: &mut [f32]) {
        let image_row = shape.image_side_pixels * COLOURS;
        let crop_row = shape.crop_side_pixels * COLOURS;
        let step_pixels = self.side_pixels as f32 / shape.crop_side_pixels as f32;
        let scale = self.brightness / (255.0 * DEVIATION);
        for (row, target) in crop.chunks_exact_mut(crop_row).enumerate() {
            let down = Sampling::at(row, step_pixels, self.side_pixels);
            let row_at = |offset| {
                let start = (self.top_pixels + offset) * image_row + self.left_pixels * COLOURS;
                &image[start..start + self.side_pixels * COLOURS]
            };
            let (upper, lower) = (row_at(down.first), row_at(down.second));
            for (column, pixel) in target.chunks_exact_mut(COLOURS).enumerate() {
                let column = if self.flip { shape.crop_side_pixels - 1 - column } else { column };
                let across = Sampling::at(column, step_pixels, self.side_pixels);
                for (colour, value) in pixel.iter_mut().enumerate() {
                    let mixed = down.mix(across.along(upper, colour), across.along(lower, colour));
                    *value = mixed * scale - MEAN / DEVIATION;
                }
            }
        }
    }
}

/// The two pixels on either side of a crop's pixel, along one side.
#[derive(Debug, Clone, Copy)]
struct Sampling {
    first: usize,
    second: usize,
    share_of_second: f32,
}

impl Sampling {
    fn at(index: usize, step_pixels: f32, side_pixels: usize) -> Self {
        let position = ((index as f32 + 0.5) * step_pixels - 0.5).max(0.0);
        let first = (position as usize).min(side_pixels - 1);
        Self { first, second: (first + 1).min(side_pixels - 1), share_of_second: position - first as f32 }
    }

    fn along(&self, row: &[u8], colour: usize) -> f32 {
        let value = |pixel: usize| f32::from(row[pixel * COLOURS + colour]);
        self.mix(value(self.first), value(self.second))
    }

    fn mix(&self, first: f32, second: f32) -> f32 {
        first + (second - first) * self.share_of_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_one_augmentation_per_seed() {
        let draw = |seed, sample| Augmentation::of_sample(seed, sample, &Shape::TINY);
        assert_eq!(draw(1, 5), draw(1, 5));
        assert_ne!(draw(1, 5), draw(1, 6));
        assert_ne!(draw(1, 5), draw(2, 5));
    }

    #[test]
    fn a_flip_mirrors_the_pixels_and_keeps_their_colours() {
        let shape = Shape { image_side_pixels: 3, crop_side_pixels: 2, ..Shape::TINY };
        let image: Vec<u8> = (0..27).collect();
        let crop = |flip| {
            let mut crop = vec![0.0; 12];
            let augmentation = Augmentation { side_pixels: 2, left_pixels: 1, top_pixels: 1, flip, brightness: 1.0 };
            augmentation.apply(&shape, &image, &mut crop);
            crop.iter().map(|value| ((value * DEVIATION + MEAN) * 255.0).round() as u8).collect::<Vec<_>>()
        };
        assert_eq!(crop(false), [12, 13, 14, 15, 16, 17, 21, 22, 23, 24, 25, 26]);
        assert_eq!(crop(true), [15, 16, 17, 12, 13, 14, 24, 25, 26, 21, 22, 23]);
    }

    #[test]
    fn scaling_mixes_neighbours_and_stays_inside() {
        // A step of two pixels is in the middle between the first two.
        let middle = Sampling::at(0, 2.0, 4);
        assert_eq!((middle.first, middle.second), (0, 1));
        assert_eq!(middle.mix(10.0, 20.0), 15.0);
        let last = Sampling::at(7, 0.5, 4);
        assert_eq!((last.first, last.second), (3, 3));
    }
}
