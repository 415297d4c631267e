//! Metrics that devices report during a probe. Each number has a unit and a source, or is absent.

mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use table::{METRICS, Metric, MetricRow, Origin, SOURCES, Source, SourceRow};

/// The numbers of one device over the measured window; numbers that the device did not report are absent.
pub type Readings = BTreeMap<Metric, Reading>;

/// One number and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The number in the metric's [`Unit`].
    pub value: f64,
    /// The source of the number.
    pub source: Source,
}

/// The unit of a metric's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// 0 to 1; shown in percent.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Watts.
    Watts,
    /// Joules.
    Joules,
    /// Megahertz.
    Megahertz,
    /// A count.
    Count,
    /// CPU cores.
    Cores,
}

impl Unit {
    /// Returns the unit of values in JSON, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
            Self::Watts => "W",
            Self::Joules => "J",
            Self::Megahertz => "MHz",
            Self::Count => "count",
            Self::Cores => "cores",
        }
    }
}

/// The use of one GPU during the measured window of a probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuUse {
    /// Its identity: `GPU-...`, or `MIG-...` for an instance; empty if it could not be queried.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// The numbers that it reported.
    pub readings: Readings,
    /// Codes of the Xid errors, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xids: Vec<u64>,
    /// Why expected numbers are missing, such as `GPM: not supported by this device`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
}

/// One number taken over several GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Together {
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Returns the mean and the spread over the GPUs; `None` if a GPU does not report the metric.
pub(crate) fn together(gpus: &[GpuUse], metric: Metric) -> Option<Together> {
    let told: Option<Vec<f64>> = gpus.iter().map(|gpu| Some(gpu.readings.get(&metric)?.value)).collect();
    let told = told.filter(|told| !told.is_empty())?;
    #[expect(clippy::cast_precision_loss, reason = "a few GPUs")]
    let mean = told.iter().sum::<f64>() / told.len() as f64;
    let least = told.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Together { mean, least, most: told.iter().copied().fold(f64::NEG_INFINITY, f64::max) })
}
