//! The length of the whole training, for which a config is chosen.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::quantity::show_count;

/// How long the whole training is.
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

/// The error for a text that is no length of a training.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no length of a training; write it like `90 epochs`, `100000 steps` or `1e9 samples`")]
pub struct RunLengthError(String);

impl RunLength {
    /// Parses a length such as `90 epochs`, `100000 steps` or `1e9 samples`.
    ///
    /// # Errors
    /// The text is not a number larger than zero with one of these units.
    pub fn parse(text: &str) -> Result<Self, RunLengthError> {
        let error = || RunLengthError(text.to_owned());
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
}

impl fmt::Display for RunLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match *self {
            Self::Epochs(number) => (number, "epoch"),
            Self::Steps(number) => (number, "step"),
            Self::Samples(number) => (number, "sample"),
        };
        let s = if number == 1.0 { "" } else { "s" };
        write!(f, "{} {unit}{s}", show_count(number))
    }
}

impl From<RunLength> for String {
    fn from(length: RunLength) -> Self {
        match length {
            RunLength::Epochs(number) => format!("{number} epochs"),
            RunLength::Steps(number) => format!("{number} steps"),
            RunLength::Samples(number) => format!("{number} samples"),
        }
    }
}

impl TryFrom<String> for RunLength {
    type Error = RunLengthError;

    fn try_from(text: String) -> Result<Self, RunLengthError> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
