//! How a probe ended.

use serde::{Deserialize, Serialize};

pub use super::measurement::{
    FLOPS, METRICS, MachineUse, Measurement, MemoryUse, Numerics, Outliers, SAMPLES_PER_SECOND, STEPS_PER_SECOND,
    Timing,
};
pub use super::metric::Estimate;

worded! {
    /// The kind of memory that ran out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Memory {
        Device = "device": "The memory of the GPU, or of the CPU if that is the device.";
        Host = "host": "The machine's main memory.";
        Shared = "shared": "Shared memory (`/dev/shm`), through which data workers hand over batches.";
    }
}

/// The error of a probe without a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One clear sentence fragment, such as `exit code 1: ValueError: bad size`.
    pub reason: String,
    /// The last lines that the step printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// Parameters without effect at any setting, because nothing in the step uses them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closes: Vec<String>,
}

/// Formats an error, followed by its causes.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message += &format!(": {inner}");
        cause = inner.source();
    }
    message
}

impl Failure {
    /// Makes a failure without output lines.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::default() }
    }
}

/// How a probe ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "most outcomes are measurements")]
pub enum Outcome {
    /// The probe was measured.
    Measured(Measurement),
    /// The config needs more memory than available.
    OutOfMemory {
        /// The memory that ran out.
        memory: Memory,
        /// The failure: how the lack of memory was recognised.
        #[serde(flatten)]
        failure: Failure,
    },
    /// The probe's time ran out before anything could be measured.
    TimedOut(Failure),
    /// There was no progress for longer than the limit.
    Stalled(Failure),
    /// The step ended on its own: with an error, by a signal, or without a report.
    Crashed(Failure),
    /// The step refused the config.
    Rejected(Failure),
    /// The loss is not a finite number.
    Diverged(Failure),
    /// An outside influence disturbed the measurement.
    Disturbed(Failure),
    /// The search was stopped while the probe ran.
    Interrupted,
}

impl Outcome {
    /// Returns the outcome's name in the journal and the tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Measured(_) => "measured",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::TimedOut(_) => "timed_out",
            Self::Stalled(_) => "stalled",
            Self::Crashed(_) => "crashed",
            Self::Rejected(_) => "rejected",
            Self::Diverged(_) => "diverged",
            Self::Disturbed(_) => "disturbed",
            Self::Interrupted => "interrupted",
        }
    }

    /// Returns the measurement, if the probe ended well.
    pub fn measurement(&self) -> Option<&Measurement> {
        if let Self::Measured(measurement) = self { Some(measurement) } else { None }
    }

    /// Returns the failure, if the probe has one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::OutOfMemory { failure, .. }
            | Self::TimedOut(failure)
            | Self::Stalled(failure)
            | Self::Crashed(failure)
            | Self::Rejected(failure)
            | Self::Diverged(failure)
            | Self::Disturbed(failure) => Some(failure),
            Self::Measured(_) | Self::Interrupted => None,
        }
    }

    /// Returns the parameters that nothing in the step uses. A probe that found such parameters says nothing else about
    /// its config.
    pub fn closes(&self) -> &[String] {
        self.failure().map_or(&[], |failure| failure.closes.as_slice())
    }

    /// Returns outcome and reason without numbers. Failures with equal signatures probably do not depend on the config.
    ///
    /// Running out of memory always depends on the config, so it has no signature.
    pub fn signature(&self) -> Option<String> {
        if matches!(self, Self::OutOfMemory { .. } | Self::Disturbed(_)) {
            return None;
        }
        let reason = &self.failure()?.reason;
        let mut text = String::with_capacity(reason.len());
        for c in reason.chars() {
            let c = if c.is_ascii_digit() { '#' } else { c };
            if !(c == '#' && text.ends_with('#')) {
                text.push(c);
            }
        }
        Some(format!("{}: {text}", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_survives_json() {
        let failure = Failure { reason: "why".to_owned(), last_lines: vec!["line".to_owned()], ..Failure::default() };
        let outcomes = [
            Outcome::Measured(Measurement {
                throughput: Some(Estimate::interval(2.0, 1.0, 3.0)),
                ..Default::default()
            }),
            Outcome::OutOfMemory { memory: Memory::Host, failure: failure.clone() },
            Outcome::TimedOut(failure.clone()),
            Outcome::Stalled(failure.clone()),
            Outcome::Crashed(failure.clone()),
            Outcome::Rejected(failure.clone()),
            Outcome::Diverged(failure.clone()),
            Outcome::Disturbed(failure),
            Outcome::Interrupted,
        ];
        for outcome in outcomes {
            let json = serde_json::to_value(&outcome).unwrap();
            assert_eq!(json["outcome"], outcome.name());
            assert_eq!(serde_json::from_value::<Outcome>(json).unwrap(), outcome);
        }
    }

    #[test]
    fn the_same_crash_has_the_same_signature_whatever_its_numbers() {
        let crash = |reason: &str| Outcome::Crashed(Failure::new(reason)).signature();
        assert_eq!(crash("exit code 1: bad size 8"), crash("exit code 1: bad size 1024"));
        assert_ne!(crash("exit code 1: bad size"), crash("exit code 1: no module"));
        assert_eq!(Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::default() }.signature(), None);
    }
}
