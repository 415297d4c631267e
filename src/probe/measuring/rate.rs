//! The source of a command's throughput: its events, or a rate that it prints.

use regex::bytes::Regex;

/// The source of the throughput.
#[derive(Debug, Clone)]
pub enum Rate {
    /// The step reports events; see `docs/protocol.md`.
    Events,
    /// The step prints a number, and a pattern finds it.
    Pattern {
        /// The pattern of the number: its first group that takes part in the match, or the whole match.
        pattern: Regex,
        /// The unit of the number.
        unit: RateUnit,
    },
}

/// The unit of a printed number.
#[derive(Debug, Clone, PartialEq)]
pub struct RateUnit {
    /// The unit of time in seconds: 1 for `s`, 0.001 for `ms`.
    seconds: f64,
    /// True if the number is a time per thing (`s/step`), not things per time (`steps/s`).
    inverse: bool,
    /// The counted thing in the singular: `sample`, or `step`.
    thing: String,
}

/// The error for a string that is not a unit of a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no unit of a rate; write it like `samples/s`, `steps/s` or `ms/step`")]
pub struct RateUnitError {
    text: String,
}

const TIMES: &[(&str, f64)] = &[
    ("s", 1.0),
    ("sec", 1.0),
    ("second", 1.0),
    ("seconds", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
    ("min", 60.0),
    ("h", 3600.0),
];
const STEPS: &[&str] = &["step", "steps", "it", "its", "iter", "iters", "iteration", "iterations", "batch", "batches"];

/// Returns the seconds of a unit of time.
pub(in crate::probe) fn seconds_in(word: &str) -> Option<f64> {
    TIMES.iter().find(|(name, _)| *name == word).map(|&(_, seconds)| seconds)
}

impl RateUnit {
    /// Reads `things/time` or `time/thing`.
    ///
    /// # Errors
    /// The string has another format.
    pub fn parse(text: &str) -> Result<Self, RateUnitError> {
        let error = || RateUnitError { text: text.to_owned() };
        let (above, below) = text.trim().split_once('/').ok_or_else(error)?;
        let (above, below) = (above.trim(), below.trim());
        let (seconds, inverse, thing) = match (seconds_in(above), seconds_in(below)) {
            (None, Some(seconds)) => (seconds, false, above),
            (Some(seconds), None) => (seconds, true, below),
            _ => return Err(error()),
        };
        if thing.is_empty() {
            return Err(error());
        }
        let thing = if STEPS.contains(&thing) { "step" } else { thing };
        Ok(Self { seconds, inverse, thing: thing.to_owned() })
    }

    /// Returns true if the number counts steps. Then samples per step must be known to compare batch sizes.
    pub fn counts_steps(&self) -> bool {
        self.thing == "step"
    }

    /// Returns the throughput for a number and this many samples per step.
    pub(in crate::probe) fn throughput(&self, number: f64, samples_per_step: Option<f64>) -> f64 {
        let per_second = if self.inverse { 1.0 / (number * self.seconds) } else { number / self.seconds };
        per_second * samples_per_step.filter(|_| self.counts_steps()).unwrap_or(1.0)
    }

    /// Returns the unit of that throughput.
    pub(in crate::probe) fn throughput_unit(&self) -> String {
        match self.thing.as_str() {
            "step" => "samples/s".to_owned(),
            thing if self.inverse && !thing.ends_with('s') => format!("{thing}s/s"),
            thing => format!("{thing}/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_become_throughputs() {
        let throughput = |unit: &str, number, samples| {
            let unit = RateUnit::parse(unit).unwrap();
            (unit.throughput(number, samples), unit.throughput_unit())
        };
        assert_eq!(throughput("samples/s", 1234.5, None), (1234.5, "samples/s".to_owned()));
        assert_eq!(throughput("tokens/sec", 10.0, Some(8.0)), (10.0, "tokens/s".to_owned()));
        assert_eq!(throughput("it/s", 10.0, Some(8.0)), (80.0, "samples/s".to_owned()));
        assert_eq!(throughput("ms/step", 20.0, Some(8.0)), (400.0, "samples/s".to_owned()));
        assert_eq!(throughput("s/sample", 0.5, None), (2.0, "samples/s".to_owned()));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "samples", "s/s", "a/b", "/s", "s/"] {
            assert!(RateUnit::parse(text).is_err(), "{text}");
        }
    }
}
