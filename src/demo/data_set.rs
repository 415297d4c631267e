//! The image files on disk, and the manifest that shows if they are complete.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use png::{BitDepth, ColorType, Compression, Encoder};

use super::error::DemoError;
use super::picture::{class_of, draw};
use super::publish::publish_folder;
use super::shape::{CLASSES, Shape};

// Counts up whenever the pictures or their files change.
const VERSION: u32 = 1;
const MANIFEST: &str = "manifest.txt";

/// A complete folder of image files.
#[derive(Debug, Clone)]
pub(super) struct DataSet {
    folder: PathBuf,
    shape: Shape,
}

impl DataSet {
    /// Opens the dataset below `data_dir`, and first writes it if it is missing or stale.
    pub(super) fn prepare(data_dir: &Path, shape: Shape) -> Result<Self, DemoError> {
        let name = format!("images-{}x{}", shape.images, shape.image_side_pixels);
        let manifest = manifest_text(&shape);
        let folder = publish_folder(
            data_dir,
            &name,
            |folder| is_complete(folder, &manifest, shape.images),
            |folder| write_all(folder, &manifest, &shape),
        )?;
        Ok(Self { folder, shape })
    }

    /// Returns the sizes of the images.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the file of an image.
    pub(super) fn image_path(&self, image: usize) -> PathBuf {
        image_path(&self.folder, image)
    }

    /// Returns the class of an image.
    pub(super) fn class(&self, image: usize) -> usize {
        class_of(image)
    }
}

fn image_path(folder: &Path, image: usize) -> PathBuf {
    folder.join(format!("{image:05}-class-{}.png", class_of(image)))
}

fn manifest_text(shape: &Shape) -> String {
    format!(
        "gputune demo images\nversion {VERSION}\nimages {}\nside_pixels {}\nclasses {CLASSES}\n",
        shape.images, shape.image_side_pixels
    )
}

fn is_complete(folder: &Path, manifest: &str, images: usize) -> bool {
    let written = fs::read(folder.join(MANIFEST));
    // The manifest is one additional entry.
    written.is_ok_and(|bytes| bytes == manifest.as_bytes())
        && fs::read_dir(folder).is_ok_and(|entries| entries.flatten().count() == images + 1)
}

fn write_all(folder: &Path, manifest: &str, shape: &Shape) -> Result<(), DemoError> {
    let mut pixels = vec![0; shape.image_bytes()];
    for image in 0..shape.images {
        draw(image, shape.image_side_pixels, &mut pixels);
        write_image(&image_path(folder, image), shape.image_side_pixels, &pixels)?;
    }
    let path = folder.join(MANIFEST);
    fs::write(&path, manifest).map_err(|source| DemoError::io(&path, source))
}

fn write_image(path: &Path, side_pixels: usize, pixels: &[u8]) -> Result<(), DemoError> {
    let side_pixels = u32::try_from(side_pixels).map_err(|error| DemoError::image(path, error))?;
    let file = File::create(path).map_err(|source| DemoError::io(path, source))?;
    let mut file = BufWriter::new(file);
    let mut encoder = Encoder::new(&mut file, side_pixels, side_pixels);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    encoder
        .write_header()
        .and_then(|mut writer| {
            writer.write_image_data(pixels)?;
            writer.finish()
        })
        .map_err(|error| encoding_error(path, error))?;
    file.flush().map_err(|source| DemoError::io(path, source))
}

fn encoding_error(path: &Path, error: png::EncodingError) -> DemoError {
    match error {
        png::EncodingError::IoError(source) => DemoError::io(path, source),
        other => DemoError::image(path, other),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::scratch::ScratchFolder;
    use super::*;

    fn folder_of(data_set: &DataSet) -> PathBuf {
        data_set.folder.clone()
    }

    #[test]
    fn a_complete_data_set_is_reused() {
        let scratch = ScratchFolder::new("reuse");
        let path = DataSet::prepare(scratch.path(), Shape::TINY).unwrap().image_path(0);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
    }

    #[test]
    fn a_wrong_manifest_or_a_missing_image_rebuilds() {
        let scratch = ScratchFolder::new("rebuild");
        let data_set = DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
        let manifest = folder_of(&data_set).join(MANIFEST);
        fs::write(&manifest, "nonsense").unwrap();
        fs::write(data_set.image_path(1), "broken").unwrap();
        DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
        assert_eq!(fs::read_to_string(&manifest).unwrap(), manifest_text(&Shape::TINY));
        assert!(fs::read(data_set.image_path(1)).unwrap().len() > 100);

        fs::remove_file(data_set.image_path(2)).unwrap();
        DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
        assert!(data_set.image_path(2).exists());
    }

    #[test]
    fn leftovers_of_a_killed_process_are_removed() {
        let scratch = ScratchFolder::new("leftover");
        let leftover = scratch.path().join("images-64x20.draft-1-0");
        fs::create_dir(&leftover).unwrap();
        fs::write(leftover.join("00000-class-0.png"), "half").unwrap();
        DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
        assert!(!leftover.exists());
    }

    #[test]
    fn threads_that_prepare_at_once_all_succeed() {
        let scratch = ScratchFolder::new("race");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let data_set = DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
                    assert!(data_set.image_path(Shape::TINY.images - 1).exists());
                });
            }
        });
        // The dataset and its lock.
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_unusable_folder_is_an_error() {
        let scratch = ScratchFolder::new("unusable");
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        let error = DataSet::prepare(&file, Shape::TINY).unwrap_err();
        assert!(matches!(error, DemoError::Io { .. }), "{error}");
    }
}
