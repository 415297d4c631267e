//! The dataset: synthetic pictures in PNG files, written once into the data folder. A sample is a random crop of a
//! picture.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use png::{ColorType, Compression, Decoder, Encoder};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tempfile::NamedTempFile;

use super::DemoError;

/// The version of the dataset, in the name of its folder. Increase it when the pictures or their files change.
const VERSION: u32 = 3;
/// The seed of the pictures. It does not depend on the seed of a run, so that all runs share one dataset.
const PICTURE_SEED: u64 = 0x6770_7574_756e_6531;
/// The largest change of a colour value by noise.
const NOISE: i16 = 16;
const WARM: [i16; COLOURS] = [205, 130, 70];
const COOL: [i16; COLOURS] = [70, 130, 205];
const DIM: [i16; COLOURS] = [60, 60, 60];

/// The mean and the deviation that pixels are normalised with, as shares of 255.
const MEAN: f32 = 0.4;
const DEVIATION: f32 = 0.25;

/// The distance between the images of successive samples. It is a prime that does not divide the number of images, so
/// an epoch has each image once.
const STRIDE: u64 = 101;

/// The values per pixel: red, green and blue.
pub(super) const COLOURS: usize = 3;

/// The number of picture classes, which the network learns to distinguish.
pub(super) const CLASSES: usize = 8;

/// The side of a convolution patch, and the distance between neighbouring patches.
pub(super) const PATCH_SIDE: usize = 6;
pub(super) const PATCH_STEP: usize = 2;
pub(super) const PATCH_VALUES: usize = PATCH_SIDE * PATCH_SIDE * COLOURS;

/// The outputs of the convolution per patch.
pub(super) const CHANNELS: usize = 8;

/// The sizes that are small in tests. Sides are in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// The images in the dataset.
    pub(super) images: usize,
    pub(super) image_side: usize,
    /// The side of the crop that the network sees, scaled from a random part of an image.
    pub(super) crop_side: usize,
    /// The outputs of the hidden layer.
    pub(super) hidden: usize,
}

impl Shape {
    /// The sizes of the shipped job.
    ///
    /// The large hidden layer makes the update per step expensive, which favours large batches. The overlapping patches make the
    /// activations outgrow the cache, which favours small batches.
    pub(super) const STANDARD: Self = Self { images: 384, image_side: 128, crop_side: 48, hidden: 256 };

    /// Sizes that keep unit tests fast.
    #[cfg(test)]
    pub(super) const TINY: Self = Self { images: 64, image_side: 20, crop_side: 16, hidden: 24 };

    pub(super) const fn image_bytes(&self) -> usize {
        self.image_side * self.image_side * COLOURS
    }

    pub(super) const fn crop_values(&self) -> usize {
        self.crop_side * self.crop_side * COLOURS
    }

    pub(super) const fn patches_per_side(&self) -> usize {
        (self.crop_side - PATCH_SIDE) / PATCH_STEP + 1
    }

    pub(super) const fn patches(&self) -> usize {
        self.patches_per_side() * self.patches_per_side()
    }

    /// The outputs of the convolution for one crop.
    pub(super) const fn features(&self) -> usize {
        self.patches() * CHANNELS
    }
}

/// A complete folder of image files.
#[derive(Debug, Clone)]
pub(super) struct Images {
    folder: PathBuf,
    /// The sizes of the images.
    pub(super) shape: Shape,
}

impl Images {
    /// Opens the dataset below `data_dir`, and first writes its missing files. Each file appears only when it is complete, so
    /// processes may start at the same time.
    pub(super) fn prepare(data_dir: &Path, shape: Shape) -> Result<Self, DemoError> {
        let Shape { images, image_side: side, .. } = shape;
        let folder = data_dir.join(format!("images-{images}x{side}-v{VERSION}"));
        fs::create_dir_all(&folder).map_err(|source| DemoError::io(&folder, source))?;
        let made = Self { folder, shape };
        let mut pixels = vec![0; shape.image_bytes()];
        for image in 0..images {
            let path = made.path(image);
            if !path.exists() {
                draw(image, side, &mut pixels);
                write(&path, side, &pixels).map_err(|source| DemoError::io(&path, source))?;
            }
        }
        Ok(made)
    }

    /// Returns the file of an image.
    pub(super) fn path(&self, image: usize) -> PathBuf {
        self.folder.join(format!("{image:05}.png"))
    }

    /// Decodes an image into rows of red, green and blue bytes.
    pub(super) fn decode(&self, image: usize, pixels: &mut [u8]) -> Result<(), DemoError> {
        let path = self.path(image);
        let broken = |error| DemoError::io(&path, error);
        let file = File::open(&path).map_err(|error| DemoError::io(&path, error))?;
        let mut reader = Decoder::new(BufReader::new(file)).read_info().map_err(broken)?;
        if reader.output_color_type().0 != ColorType::Rgb || reader.output_buffer_size() != Some(pixels.len()) {
            return Err(DemoError::io(&path, io::Error::other("it has another size or colour type")));
        }
        reader.next_frame(pixels).map(drop).map_err(broken)
    }
}

/// Returns the class of an image, which is its pattern and its colour family.
pub(super) const fn class_of(image: usize) -> usize {
    image % CLASSES
}

fn write(path: &Path, side: usize, pixels: &[u8]) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    let mut encoder = Encoder::new(BufWriter::new(&mut file), side as u32, side as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_compression(Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    file.persist(path)?;
    Ok(())
}

/// Draws a picture: a pattern in warm or cool colours, under noise. A mirrored picture keeps its pattern.
fn draw(image: usize, side: usize, pixels: &mut [u8]) {
    let mut random = ChaCha8Rng::seed_from_u64(PICTURE_SEED);
    random.set_stream(image as u64);
    let period = random.random_range(6..=12);
    let (right, down) = (random.random_range(0..period), random.random_range(0..period));
    let lightness = random.random_range(-30..=30_i16);
    let half = |position: usize| position % period * 2 < period;
    let is_bright = |column: usize, row: usize| match class_of(image) % 4 {
        0 => half(row + down),
        1 => half(column + right),
        2 => half(row + down) != half(column + right),
        _ => half(row + down + column + right),
    };
    let bright = if class_of(image) < 4 { WARM } else { COOL };
    for (index, pixel) in pixels.chunks_exact_mut(COLOURS).enumerate() {
        let colour = if is_bright(index % side, index / side) { bright } else { DIM };
        for (byte, level) in pixel.iter_mut().zip(colour) {
            *byte = (level + lightness + random.random_range(-NOISE..=NOISE)).clamp(0, 255) as u8;
        }
    }
}

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
    // Along one side of the crop: the two pixels of the image around a pixel of the crop, and the weight of the second.
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
    fn files_hold_the_drawn_pictures_and_a_missing_file_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let prepare = || Images::prepare(folder.path(), Shape::TINY).unwrap();
        // Threads that prepare at the same time all succeed.
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(prepare))));
        fs::remove_file(prepare().path(7)).unwrap();
        let images = prepare();
        assert_eq!(fs::read_dir(&images.folder).unwrap().count(), Shape::TINY.images);
        let (mut drawn, mut decoded) = (vec![0; Shape::TINY.image_bytes()], vec![0; Shape::TINY.image_bytes()]);
        draw(7, Shape::TINY.image_side, &mut drawn);
        images.decode(7, &mut decoded).unwrap();
        assert_eq!(drawn, decoded);
        fs::write(images.path(7), "no image").unwrap();
        for image in [7, 64] {
            assert!(matches!(images.decode(image, &mut decoded), Err(DemoError::Io { .. })), "{image}");
        }
    }

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
