//! The memory that must stay free.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::quantity;

/// The memory that must stay free.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Headroom {
    /// A share of the device's memory, from 0 to 1.
    Fraction(f64),
    /// A number of bytes.
    Bytes(u64),
}

impl Headroom {
    /// Returns the bytes that must stay free out of a total.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a size is a size"
    )]
    pub fn of(self, capacity_bytes: u64) -> u64 {
        match self {
            Self::Fraction(share) => (capacity_bytes as f64 * share.clamp(0.0, 1.0)) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction(share) => write!(f, "{} %", quantity::show_number(share * 100.0)),
            Self::Bytes(bytes) => f.write_str(&quantity::show_bytes(*bytes)),
        }
    }
}
