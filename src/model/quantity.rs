//! Parses and formats sizes, durations and lengths of a training: `70GiB`, `1h30m`, `90 epochs`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The error for a string that is no size, duration or length of a training.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}; write it like {example}")]
pub struct QuantityError {
    text: String,
    what: &'static str,
    example: &'static str,
}

const BYTE_UNITS: &[(&str, f64)] = &[
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
];

const TIME_UNITS: &[(&str, f64)] =
    &[("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// Parses a size such as `70GiB` (binary units) or `70GB` (decimal units), in bytes.
///
/// # Errors
/// The string is not a number with such a unit, or is negative.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let error = || QuantityError { text: text.to_owned(), what: "size", example: "`512MiB` or `70GB`" };
    let (number, unit) = split(text).ok_or_else(error)?;
    let factor = factor(BYTE_UNITS, unit).ok_or_else(error)?;
    let bytes = number * factor;
    // Checked to be within range.
    (bytes.is_finite() && (0.0..1.8e19).contains(&bytes)).then_some(bytes as u64).ok_or_else(error)
}

/// Parses a duration such as `500ms`, `60s`, `20m` or `1h30m`.
///
/// # Errors
/// The string is not a sequence of numbers with such units, or is negative.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let error = || QuantityError { text: text.to_owned(), what: "duration", example: "`60s`, `20m` or `1h30m`" };
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(error());
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(error)?;
        let unit_end = rest[unit_at..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |end| unit_at + end);
        let (number, unit) = split(&rest[..unit_end]).ok_or_else(error)?;
        seconds += number * factor(TIME_UNITS, unit).ok_or_else(error)?;
        rest = rest[unit_end..].trim_start();
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| error())
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic()).filter(|&at| at > 0)?;
    let number: f64 = text[..at].trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number, &text[at..]))
}

fn factor(units: &[(&str, f64)], unit: &str) -> Option<f64> {
    units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|&(_, factor)| factor)
}

/// Formats a size with three digits: `1.50 GiB`.
pub fn show_bytes(bytes: u64) -> String {
    let size = bytes as f64;
    match ["B", "KiB", "MiB", "GiB", "TiB"]
        .iter()
        .enumerate()
        .find(|(power, _)| size < 1024_f64.powi(*power as i32 + 1))
    {
        Some((0, unit)) => format!("{bytes} {unit}"),
        Some((power, unit)) => format!("{} {unit}", three_digits(size / 1024_f64.powi(power as i32))),
        None => format!("{} PiB", three_digits(size / 1024_f64.powi(5))),
    }
}

/// Formats a duration: `350 ms`, `12.4 s`, `3m20s`, `1h05m`.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let total = seconds.round() as u64;
    match total {
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m{:02}s", total / 60, total % 60),
        _ => format!("{}h{:02}m", total / 3600, total % 3600 / 60),
    }
}

/// Formats seconds, short times with three digits: `31.4 µs`, `28.1 ms`, `1.24 s`, `3m20s`.
pub fn show_seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1e-3 => format!("{} µs", three_digits(seconds * 1e6)),
        _ if seconds < 1.0 => format!("{} ms", three_digits(seconds * 1e3)),
        _ if seconds < 60.0 => format!("{} s", three_digits(seconds)),
        _ => show_duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
    }
}

/// Formats a number with about three digits and thousands separators.
pub fn show_number(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        return number.to_string();
    }
    if size >= 1e9 || (size > 0.0 && size < 1e-3) {
        return format!("{number:.2e}");
    }
    if size < 999.5 {
        return three_digits(number);
    }
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}", grouped(&format!("{size:.0}")))
}

/// Puts thousands separators between digits.
pub(super) fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count, such as of samples; whole numbers have no fraction.
pub fn show_count(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1000.0 { format!("{number:.0}") } else { show_number(number) }
}

fn three_digits(number: f64) -> String {
    match number.abs() {
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        size if size >= 0.9995 || size == 0.0 => format!("{number:.2}"),
        size if size >= 0.09995 => format!("{number:.3}"),
        _ => format!("{number:.4}"),
    }
}

/// The length of the whole training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum RunLength {
    /// Passes over the training data.
    Epochs(f64),
    /// Steps of the optimizer with the batch of the baseline: a config with a larger batch needs fewer.
    Steps(f64),
    /// Samples.
    Samples(f64),
}

impl RunLength {
    /// Parses a length such as `90 epochs`, `100000 steps` or `1e9 samples`.
    ///
    /// # Errors
    /// The string is not a number larger than zero with one of these units.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let example = "`90 epochs`, `100000 steps` or `1e9 samples`";
        let error = || QuantityError { text: text.to_owned(), what: "length of a training", example };
        let (number, unit) = text.trim().split_once(char::is_whitespace).ok_or_else(error)?;
        let number: f64 = number.replace('_', "").parse().map_err(|_| error())?;
        if !(number > 0.0 && number.is_finite()) {
            return Err(error());
        }
        match unit.trim() {
            "epoch" | "epochs" => Ok(Self::Epochs(number)),
            "step" | "steps" => Ok(Self::Steps(number)),
            "sample" | "samples" => Ok(Self::Samples(number)),
            _ => Err(error()),
        }
    }

    fn number_and_unit(self) -> (f64, &'static str) {
        match self {
            Self::Epochs(number) => (number, "epoch"),
            Self::Steps(number) => (number, "step"),
            Self::Samples(number) => (number, "sample"),
        }
    }
}

impl fmt::Display for RunLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = self.number_and_unit();
        let s = if number == 1.0 { "" } else { "s" };
        write!(f, "{} {unit}{s}", show_count(number))
    }
}

impl From<RunLength> for String {
    fn from(length: RunLength) -> Self {
        let (number, unit) = length.number_and_unit();
        format!("{number} {unit}s")
    }
}

impl TryFrom<String> for RunLength {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        Self::parse(&text)
    }
}

/// Writes and reads a duration as a number of seconds, for serde's `with`.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_know_binary_and_decimal_units() {
        assert_eq!(parse_bytes("70GiB").unwrap(), 70 << 30);
        assert_eq!(parse_bytes("0.5 GB").unwrap(), 500_000_000);
        assert_eq!(parse_bytes("10b").unwrap(), 10);
        for bad in ["", "70", "GiB", "-1GB", "1 parsec", "1e400GB", "nanGB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_can_be_sums() {
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_duration(" 1.5 min ").unwrap(), Duration::from_secs(90));
        for bad in ["", "60", "s", "-1s", "1x", "1h30", "1e300d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn people_see_about_three_digits() {
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(1_610_612_736), "1.50 GiB");
        assert_eq!([350, 12_400].map(Duration::from_millis).map(show_duration), ["350 ms", "12.4 s"]);
        assert_eq!([200, 3900].map(Duration::from_secs).map(show_duration), ["3m20s", "1h05m"]);
        assert_eq!([1_234_567.0, 12.345, 0.0].map(show_number), ["1,234,567", "12.3", "0.00"]);
        assert_eq!([32.0, 31.94, 4096.0].map(show_count), ["32", "31.9", "4,096"]);
    }

    #[test]
    fn lengths_are_read_and_written() {
        for (text, length, shown) in [
            ("90 epochs", RunLength::Epochs(90.0), "90 epochs"),
            ("1 epoch", RunLength::Epochs(1.0), "1 epoch"),
            ("100_000 steps", RunLength::Steps(1e5), "100,000 steps"),
            ("1e9 samples", RunLength::Samples(1e9), "1.00e9 samples"),
        ] {
            assert_eq!(RunLength::parse(text), Ok(length));
            assert_eq!(length.to_string(), shown);
            assert_eq!(RunLength::parse(&String::from(length)), Ok(length));
        }
        for text in ["", "90", "epochs", "-1 epochs", "0 steps", "ten epochs", "90 hours", "inf samples"] {
            assert!(RunLength::parse(text).unwrap_err().to_string().contains("`90 epochs`"), "{text}");
        }
    }
}
