//! The device that a job trains on.

use std::fmt;
use std::str::FromStr;

use super::error::DemoError;

/// The device of a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceChoice {
    /// The first usable GPU if the machine has one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The first GPU. Without a GPU, the job does not start.
    Gpu,
}

impl DeviceChoice {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Cpu, Self::Gpu];
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        })
    }
}

impl FromStr for DeviceChoice {
    type Err = DemoError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|choice| choice.to_string() == text);
        named.ok_or_else(|| DemoError::InvalidOption {
            option: "device",
            value: format!("{text:?}"),
            allowed: "auto, cpu or gpu",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for choice in DeviceChoice::ALL {
            assert_eq!(choice.to_string().parse::<DeviceChoice>().unwrap(), choice);
        }
        assert!("tpu".parse::<DeviceChoice>().is_err());
    }
}
