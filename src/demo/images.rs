//! The image files: synthetic pictures, written once into the data folder, and decoded for each sample.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use png::{ColorType, Compression, Decoder, Encoder};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::error::DemoError;
use super::shape::{CLASSES, COLOURS, Shape};

// Counts up whenever the pictures or their files change.
const VERSION: u32 = 2;
// The pictures do not depend on the seed of a run, so that all runs share one dataset.
const PICTURE_SEED: u64 = 0x6770_7574_756e_6531;
const NOISE: i16 = 16;
const WARM: [i16; COLOURS] = [205, 130, 70];
const COOL: [i16; COLOURS] = [70, 130, 205];
const DIM: [i16; COLOURS] = [60, 60, 60];

/// A complete folder of image files.
#[derive(Debug, Clone)]
pub(super) struct Images {
    folder: PathBuf,
    /// The sizes of the images.
    pub(super) shape: Shape,
}

impl Images {
    /// Opens the dataset below `data_dir`, and first writes it if it is missing or incomplete. A folder appears only when it
    /// is complete, and processes that start at the same time wait for the first process.
    pub(super) fn prepare(data_dir: &Path, shape: Shape) -> Result<Self, DemoError> {
        let Shape { images, image_side: side, .. } = shape;
        let made = Self { folder: data_dir.join(format!("images-{images}x{side}-v{VERSION}")), shape };
        if made.is_complete() {
            return Ok(made);
        }
        let within = |path: &Path, result: io::Result<()>| result.map_err(|source| DemoError::io(path, source));
        within(data_dir, fs::create_dir_all(data_dir))?;
        let lock_path = data_dir.join("lock");
        let lock = File::create(&lock_path).map_err(|source| DemoError::io(&lock_path, source))?;
        // Without locks in the file system, two processes may both write.
        let _ = lock.lock();
        if made.is_complete() {
            return Ok(made);
        }
        let draft = Self { folder: data_dir.join("draft"), shape };
        for leftover in [&draft.folder, &made.folder] {
            let _ = fs::remove_dir_all(leftover);
        }
        within(&draft.folder, fs::create_dir(&draft.folder))?;
        let mut pixels = vec![0; shape.image_bytes()];
        for image in 0..images {
            draw(image, side, &mut pixels);
            write(&draft.path(image), side, &pixels)?;
        }
        within(&made.folder, fs::rename(&draft.folder, &made.folder))?;
        Ok(made)
    }

    fn is_complete(&self) -> bool {
        fs::read_dir(&self.folder).is_ok_and(|entries| entries.count() == self.shape.images)
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

fn write(path: &Path, side: usize, pixels: &[u8]) -> Result<(), DemoError> {
    let file = File::create(path).map_err(|source| DemoError::io(path, source))?;
    let mut encoder = Encoder::new(BufWriter::new(file), side as u32, side as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_compression(Compression::Fast);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(pixels)?;
        writer.finish()
    });
    written.map_err(|error| DemoError::io(path, error))
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
        _ => {
            let (middle, radius) = (side / 2, side / 4 + period / 4);
            let (across, along) = (column.abs_diff(middle + right / 4), row.abs_diff(middle + down / 4));
            across * across + along * along < radius * radius
        }
    };
    let bright = if class_of(image) < 4 { WARM } else { COOL };
    for (index, pixel) in pixels.chunks_exact_mut(COLOURS).enumerate() {
        let colour = if is_bright(index % side, index / side) { bright } else { DIM };
        for (byte, level) in pixel.iter_mut().zip(colour) {
            *byte = (level + lightness + random.random_range(-NOISE..=NOISE)).clamp(0, 255) as u8;
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
        fs::create_dir(folder.path().join("draft")).unwrap();
        fs::remove_file(prepare().path(7)).unwrap();
        let images = prepare();
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
    fn threads_that_prepare_at_once_all_succeed() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| Images::prepare(folder.path(), Shape::TINY).unwrap());
            }
        });
        // The dataset and its lock.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
