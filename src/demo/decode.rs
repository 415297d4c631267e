//! Reads and decodes one image file.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use png::{BitDepth, ColorType, Decoder, DecodingError, Limits};

use super::error::DemoError;

const READ_BYTES: usize = 16 * 1024;
// Far more than an image of the dataset needs, far less than a forged header could ask for.
const DECODER_LIMIT_BYTES: usize = 1024 * 1024;

/// Decodes a square image of eight-bit red, green and blue into `pixels`.
pub(super) fn decode_image(path: &Path, side_pixels: usize, pixels: &mut [u8]) -> Result<(), DemoError> {
    let file = File::open(path).map_err(|source| DemoError::io(path, source))?;
    let limits = Limits { bytes: DECODER_LIMIT_BYTES };
    let input = BufReader::with_capacity(READ_BYTES, file.take(DECODER_LIMIT_BYTES as u64));
    let mut reader =
        Decoder::new_with_limits(input, limits).read_info().map_err(|error| decoding_error(path, error))?;
    let (width, height) = reader.info().size();
    let kind = reader.output_color_type();
    if (width as usize, height as usize) != (side_pixels, side_pixels)
        || kind != (ColorType::Rgb, BitDepth::Eight)
        || reader.output_buffer_size() != Some(pixels.len())
    {
        let reason = format!("{width} x {height} {kind:?} where a square of {side_pixels} is due");
        return Err(DemoError::image(path, reason));
    }
    reader.next_frame(pixels).map_err(|error| decoding_error(path, error))?;
    Ok(())
}

fn decoding_error(path: &Path, error: DecodingError) -> DemoError {
    match error {
        // A truncated file is broken, not inaccessible.
        DecodingError::IoError(source) if source.kind() != ErrorKind::UnexpectedEof => DemoError::io(path, source),
        other => DemoError::image(path, other),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::data_set::DataSet;
    use super::super::picture::draw;
    use super::super::scratch::ScratchFolder;
    use super::super::shape::Shape;
    use super::*;

    #[test]
    fn files_hold_the_drawn_pictures() {
        let scratch = ScratchFolder::new("decode");
        let data_set = DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
        let side_pixels = Shape::TINY.image_side_pixels;
        let mut drawn = vec![0; Shape::TINY.image_bytes()];
        let mut decoded = drawn.clone();
        draw(7, side_pixels, &mut drawn);
        decode_image(&data_set.image_path(7), side_pixels, &mut decoded).unwrap();
        assert_eq!(drawn, decoded);
    }

    #[test]
    fn broken_files_are_errors() {
        let scratch = ScratchFolder::new("broken");
        let data_set = DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
        let good = fs::read(data_set.image_path(0)).unwrap();
        let path = scratch.path().join("broken.png");
        let mut pixels = vec![0; Shape::TINY.image_bytes()];
        let mut wrong_byte = good.clone();
        wrong_byte[good.len() / 2] ^= 0xff;
        for bytes in [&b""[..], b"no image", &good[..good.len() / 2], &wrong_byte] {
            fs::write(&path, bytes).unwrap();
            let error = decode_image(&path, 20, &mut pixels).unwrap_err();
            assert!(matches!(error, DemoError::Decode { .. }), "{error}");
        }
        fs::write(&path, &good).unwrap();
        assert!(decode_image(&path, 21, &mut pixels).is_err());
    }

    #[test]
    fn a_missing_file_is_an_access_error() {
        let error = decode_image(Path::new("/nowhere/0.png"), 1, &mut [0; 3]).unwrap_err();
        assert!(matches!(error, DemoError::Io { .. }));
    }
}
