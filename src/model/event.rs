//! Events that a search reports while it runs.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::metric::{GpuUse, Readings};
use crate::model::objective::Judgement;
use crate::model::outcome::Estimate;
use crate::model::space::Settings;
use crate::model::trial::{Purpose, Slot, Trial};

/// News of a running probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Time since the probe began.
    #[serde(rename = "elapsed_s", with = "crate::model::quantity::seconds")]
    pub elapsed: Duration,
    /// Number of steps (or readings of a rate) until now.
    pub steps: u64,
    /// The throughput until now.
    pub throughput: Option<Estimate>,
    /// The unit of the throughput.
    pub unit: String,
    /// The device readings of the last seconds, updated about once a second.
    pub devices: Arc<DeviceReadings>,
}

/// The device readings of a running probe over the last seconds; empty until a device reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceReadings {
    /// Readings of the probe's processes: CPU, memory, reads from storage.
    #[serde(skip_serializing_if = "Readings::is_empty")]
    pub host: Readings,
    /// Readings of each GPU that the probe uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUse>,
}

/// One report of a running search.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A probe begins.
    Started {
        /// The probe's number.
        number: u32,
        /// Why it is run.
        purpose: Purpose,
        /// The settings of the probed config.
        settings: &'a Settings,
        /// The number of configs probed before.
        searched: usize,
        /// Why the strategy proposed the config, if it gives a reason.
        reason: Option<&'a str>,
        /// The slot that it runs in, if probes run in parallel.
        slot: Option<&'a Slot>,
        /// The expected remaining time of the search; `None` before two probes allow an estimate.
        left: Option<Duration>,
    },
    /// A running probe has progress to report.
    Progress {
        /// The probe.
        number: u32,
        /// The progress.
        progress: &'a Progress,
    },
    /// A probe ended, and is in the journal.
    Finished {
        /// The finished trial.
        trial: &'a Trial,
        /// Its settings.
        settings: &'a Settings,
        /// The objective's judgement, if the probe was measured.
        judgement: Option<&'a Judgement>,
        /// True if the trial is the best until now; if the result is a front, true if the trial is on the front.
        is_best: bool,
    },
    /// A remark, such as a change in how probes are run or parameters that cannot gain anything.
    Remark {
        /// The remark, in one line.
        text: &'a str,
    },
    /// A remark that casts doubt, such as a disturbed probe or a stated baseline that differs from the unmodified job.
    Warning {
        /// The remark, in one line.
        text: &'a str,
    },
    /// A config was disturbed at every attempt; it is postponed and retried later.
    PutBack {
        /// The probe.
        number: u32,
        /// The cause of the disturbance.
        reason: &'a str,
    },
    /// A later check has changed a trial: its losses were compared, its rate cannot be right, or its config failed in a round.
    Amended {
        /// The changed trial.
        trial: &'a Trial,
        /// Its settings.
        settings: &'a Settings,
    },
    /// A round begins: configs are measured next to each other.
    RoundBegins {
        /// Its number, counted from 1.
        number: u32,
        /// The number of configs in it.
        configs: usize,
        /// The expected remaining time of the search.
        left: Option<Duration>,
    },
    /// A round ended.
    RoundEnds {
        /// Its number.
        number: u32,
        /// Each config except the first, with its speed in this round as a multiple of the first config's speed.
        ratios: &'a [(Settings, f64)],
    },
}
