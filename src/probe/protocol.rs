//! The protocol for a training step's reports: JSON lines to a Unix socket. `docs/protocol.md` describes it for other languages.

mod reporter;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::model::{Fact, Settings, Value};
pub use reporter::Reporter;

/// The version of the protocol that introduced the orders `hold`, `configure` and `go`.
pub(super) const VERSION_OF_HOLD: u32 = 2;

/// The environment variable that holds the path of the socket.
pub const SOCKET: &str = "GPUTUNE_SOCKET";

/// The environment variable that holds the config as a JSON object.
pub const CONFIG: &str = "GPUTUNE_CONFIG";

/// The environment variable that holds the number of the trial.
pub const TRIAL: &str = "GPUTUNE_TRIAL";

/// The environment variable with the handling of the probe's writes: `scratch`, `guard` or `allow`.
pub const WRITES: &str = "GPUTUNE_WRITES";

/// The environment variable that holds a folder which is removed after the probe. Guards redirect writes to this folder.
pub const SCRATCH: &str = "GPUTUNE_SCRATCH";

/// The environment variable with replacements for files that the script opens: a JSON object from path to path.
pub const REPLACED_FILES: &str = "GPUTUNE_REPLACED_FILES";

/// The most bytes of a line. A longer line counts as bad.
pub const LONGEST_LINE: usize = 256 * 1024;

/// One line from a training step to gputune.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The first line of a connection. It is optional.
    Hello {
        /// Framework and version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        framework: Option<String>,
        /// Rank of the process in a distributed job.
        #[serde(default)]
        rank: u32,
        /// Number of processes in the distributed job (its world size), if the process knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ranks: Option<u32>,
        /// The process id as the process itself sees it, if the process can report its stacks on SIGUSR2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
        /// True if the process reads orders, and says `bye` when it ends in an orderly way.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        orders: bool,
        /// The version of this protocol whose orders the process knows.
        #[serde(default = "first_version", skip_serializing_if = "is_first_version")]
        version: u32,
    },
    /// A training step ended.
    Step {
        /// Samples that the whole job processed in the step.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
        samples: Option<f64>,
        /// Samples that the training loader handed out since the last step, if `samples` counts something else.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
        handed_out: Option<f64>,
        /// The time of its end, in seconds on any clock that only goes forward. Without it, the time of arrival counts.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
        time: Option<f64>,
        /// Its duration in seconds. Without it, the time since the previous step counts.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
        seconds: Option<f64>,
        /// The loss.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
        loss: Option<f64>,
        /// Floating-point operations of the step in all ranks together. A multiplication and an addition count as two.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
        flops: Option<f64>,
        /// Further numbers.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_nothing")]
        metrics: BTreeMap<String, Number>,
        /// False if the phases of this step were not timed.
        #[serde(default = "is_timed", skip_serializing_if = "Clone::clone")]
        timed: bool,
    },
    /// Time spent in a phase of the current step.
    Phase {
        /// The phase: `data_wait`, `host_to_device`, `forward`, `backward`, `optimizer`, or another name.
        name: String,
        /// The duration in seconds.
        seconds: Number,
    },
    /// Device memory.
    Memory(MemoryReport),
    /// The current step is unusual, so its time says nothing about other steps.
    Mark {
        /// Its name: `epoch`, `evaluation`, `checkpoint`, `recompile`, or another name.
        name: String,
    },
    /// A setting took effect.
    Applied {
        /// The target of `apply`, such as `dataloader.num_workers`.
        target: String,
    },
    /// A fact that the process reports about itself. If several facts have the same name, the last counts.
    Fact {
        /// Its name; [`FACTS`](crate::model::FACTS) has the names that gputune knows.
        name: String,
        /// Its value.
        value: Fact,
    },
    /// The step cannot continue.
    Error {
        /// The kind of error.
        #[serde(default)]
        kind: ErrorKind,
        /// The message.
        #[serde(default)]
        message: String,
        /// For [`ErrorKind::NotApplied`], the parameters whose settings found nothing to act on. All later probes keep
        /// the script's own settings for these parameters.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parameters: Vec<String>,
    },
    /// Training is over.
    Done,
    /// The process ends in an orderly way, whatever its exit code.
    Bye,
    /// The process waits between two steps, as ordered, and has reported all earlier steps.
    Held,
    /// The process has taken other settings, which apply from its next step on.
    Configured {
        /// The number of the segment in the order.
        segment: u32,
        /// The reason if the process has not taken the settings and must be ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

/// The memory of a device, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// The number of the device, for a process with several devices.
    pub device: u32,
    /// True if the last report did not reset the peaks, so they also cover the time before that report.
    pub goes_on: bool,
    /// The peak of the memory that tensors hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    /// The peak of the memory that the framework holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<u64>,
    /// The memory that tensors hold now, between two steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use: Option<u64>,
    /// The memory in use on the device outside the framework: the driver's context, libraries, other processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<u64>,
    /// The device's memory capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// How often the allocator freed its caches and tried again, in total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// How often an allocation has failed since the last report of this device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u64>,
}

/// One line from gputune to a process that reads orders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Order {
    /// Enough was measured: end the run with exit code 0.
    Stop,
    /// Wait at the end of this step. Since version 2.
    Hold,
    /// Take these settings while waiting. Since version 2.
    Configure {
        /// The number of the segment that begins: the part of the run with this config. The process returns this
        /// number.
        segment: u32,
        /// The config.
        config: Settings,
        /// The settings to apply: for each target, a setting and its parameter.
        apply: BTreeMap<String, Setting>,
    },
    /// Go on with the next step. Since version 2.
    Go,
    /// An order of a later version.
    #[serde(other)]
    Unknown,
}

/// A setting to apply to a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The parameter.
    pub parameter: String,
    /// Its setting.
    pub value: Value,
}

impl Setting {
    /// Returns the settings to apply, by target.
    pub fn all<'a>(applied: impl Iterator<Item = (&'a super::adapter::Applied, &'a Value)>) -> BTreeMap<String, Self> {
        let one = |(applied, value): (&super::adapter::Applied, &Value)| {
            (applied.name.clone(), Self { parameter: applied.parameter.clone(), value: value.clone() })
        };
        applied.map(one).collect()
    }
}

fn is_timed() -> bool {
    true
}

fn first_version() -> u32 {
    1
}

fn is_first_version(version: &u32) -> bool {
    *version == first_version()
}

/// The kind of an error that a step reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// Device memory ran out.
    OutOfMemory,
    /// The step does not accept the config.
    Rejected,
    /// A setting found nothing to act on.
    NotApplied,
    /// The loss is not a finite number.
    Diverged,
    /// Anything else.
    #[default]
    #[serde(other)]
    Failed,
}

/// A number that a step reports: `1.5`, `"nan"`, `"inf"`, `"-inf"` or `null`, which also means "not a number".
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Number(pub f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer).map(|number| Self(number.unwrap_or(f64::NAN)))
    }
}

/// Reads metrics; `null` means that there are none.
fn or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Number>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads an optional number, which may also be a string such as `"nan"`.
fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number, \"nan\" or \"inf\"")]
    enum Written {
        Plain(f64),
        Text(String),
    }
    match Option::<Written>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Written::Plain(number)) => Ok(Some(number)),
        Some(Written::Text(text)) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

impl Event {
    /// Reads a line. Accepts bare `NaN` and `Infinity`: Python writes them although JSON has no such numbers.
    ///
    /// # Errors
    /// The line is not an event.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line).or_else(|error| {
            let text = String::from_utf8_lossy(line);
            if !text.contains("NaN") && !text.contains("Infinity") {
                return Err(error);
            }
            serde_json::from_str(&with_quoted_numbers(&text))
        })
    }
}

/// Writes bare `NaN` and `Infinity` as strings. Strings stay unchanged.
fn with_quoted_numbers(text: &str) -> String {
    let (mut quoted, mut is_string) = (String::with_capacity(text.len()), false);
    for part in text.split_inclusive('"') {
        if is_string {
            quoted.push_str(part);
            // After an odd number of backslashes, the quotation mark is part of the string.
            let content = part.strip_suffix('"').unwrap_or(part);
            let backslashes = content.len() - content.trim_end_matches('\\').len();
            is_string = backslashes % 2 == 1;
        } else {
            let bare = part.replace("-Infinity", "\"-inf\"").replace("Infinity", "\"inf\"");
            quoted.push_str(&bare.replace("NaN", "\"nan\""));
            is_string = true;
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_a_round_trip() {
        let metrics = BTreeMap::from([("accuracy".to_owned(), Number(0.5))]);
        let (samples, handed_out, time, loss, flops) = (Some(32.0), Some(2.0), Some(1.5), Some(0.25), Some(1e12));
        let step = Event::Step { samples, handed_out, time, seconds: None, loss, flops, metrics, timed: false };
        let hello = Event::Hello { framework: None, rank: 3, ranks: Some(4), pid: None, orders: true, version: 2 };
        for event in [step, Event::Done, hello] {
            assert_eq!(Event::parse(&serde_json::to_vec(&event).unwrap()).unwrap(), event);
        }
    }

    #[test]
    fn a_loss_may_be_no_number_as_python_writes_it() {
        for (written, read) in [("NaN", f64::NAN), ("\"nan\"", f64::NAN), ("-Infinity", f64::NEG_INFINITY)] {
            let line = format!(r#"{{"event":"step","loss":{written}}}"#);
            let Event::Step { loss, .. } = Event::parse(line.as_bytes()).unwrap() else { panic!("no step") };
            assert!(loss == Some(read) || loss.unwrap().is_nan() && read.is_nan(), "{line}");
        }
    }

    #[test]
    fn a_name_that_contains_nan_does_not_lose_the_step() {
        let line = br#"{"event":"step","samples":8,"metrics":{"NaN share":NaN,"a \"-Infinity\\":Infinity}}"#;
        let Event::Step { samples: Some(8.0), metrics, .. } = Event::parse(line).unwrap() else { panic!("no step") };
        assert!(metrics["NaN share"].0.is_nan());
        assert_eq!(metrics["a \"-Infinity\\"], Number(f64::INFINITY));
    }

    #[test]
    fn a_metric_that_is_no_number_does_not_lose_the_step() {
        let line = br#"{"event":"step","samples":8,"metrics":{"accuracy":NaN,"other":null,"good":1}}"#;
        let Event::Step { samples: Some(8.0), metrics, .. } = Event::parse(line).unwrap() else { panic!("no step") };
        assert!(metrics["accuracy"].0.is_nan() && metrics["other"].0.is_nan());
        assert_eq!(metrics["good"], Number(1.0));
        let line = br#"{"event":"step","samples":8,"metrics":null}"#;
        assert!(matches!(Event::parse(line), Ok(Event::Step { .. })));
    }
}
