//! Encodes Protocol Buffers and TFRecord, as far as events need them.
//!
//! This encoder is our own: six messages with four kinds of fields need less code than a generator and its output
//! (<https://protobuf.dev/programming-guides/encoding/>).

/// A message under construction, field by field.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a whole number, a boolean or an enum.
    pub(super) fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// Adds a `double`.
    pub(super) fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// Adds a `float`.
    pub(super) fn float(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 5);
        self.bytes.extend((value as f32).to_le_bytes());
        self
    }

    /// Adds a string.
    pub(super) fn text(self, field: u64, text: &str) -> Self {
        self.block(field, text.as_bytes())
    }

    /// Adds another message.
    pub(super) fn message(self, field: u64, message: &Self) -> Self {
        self.block(field, &message.bytes)
    }

    fn block(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend(bytes);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// Makes a record of a TFRecord file.
pub(super) fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(data.len() + 16);
    bytes.extend(length);
    bytes.extend(masked_crc(&length).to_le_bytes());
    bytes.extend(data);
    bytes.extend(masked_crc(data).to_le_bytes());
    bytes
}

/// Returns a checksum as TFRecord stores it: rotated, plus a constant, so that data may contain checksums (`crc32c.h`).
fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Computes CRC-32C (RFC 3720, appendix B.4) with a table of all bytes.
fn crc32c(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    !data.iter().fold(!0, |crc, byte| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // From RFC 3720, B.4, and the usual check value.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn fields_are_written_as_the_specification_has_them() {
        assert_eq!(Message::new().number(1, 150).bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").bytes(), b"\x12\x07testing");
        assert_eq!(Message::new().message(3, &Message::new().number(1, 150)).bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::new().float(2, 1.0).bytes(), [0x15, 0, 0, 0x80, 0x3f]);
    }
}
