//! Detects that a file has changed. It guards against oversight, not against deception.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest file that is read. A larger file is identified by its size and modification time; no script is that large.
const LARGEST: u64 = 64 << 20;

/// Returns the digest of a file; `None` if it cannot be read.
pub(super) fn of(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let data = file.metadata().ok()?;
    if data.len() > LARGEST {
        let changed = data.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        return Some(format!("{}-{}", data.len(), changed.as_nanos()));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    Some(format!("{:016x}", fold(&text)))
}

/// Folds all bytes into 64 bits, eight at a time, by the multiplications of FNV-1a with a rotation, so that high bits
/// affect low ones.
fn fold(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    let mut digest = BASIS ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        digest = (digest ^ u64::from_le_bytes(word)).wrapping_mul(PRIME).rotate_left(29);
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let text = b"for step in range(100):\n    train(step)\n".repeat(50);
        let whole = fold(&text);
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_ne!(fold(&other), whole, "byte {at}");
        }
        assert_ne!(fold(b"a\0"), fold(b"a"));
        assert_ne!(fold(b""), fold(b"\0\0\0\0\0\0\0\0"));
    }
}
