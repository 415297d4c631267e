//! What a search reports while it runs.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::metric::{GpuUse, Readings};
use crate::model::objective::Judgement;
use crate::model::outcome::Estimate;
use crate::model::slot::Slot;
use crate::model::space::Settings;
use crate::model::trial::{Purpose, Trial};

/// News of a running probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Time since the probe began.
    pub elapsed: Duration,
    /// Steps (or readings of a rate) so far.
    pub steps: u64,
    /// The throughput so far.
    pub throughput: Option<Estimate>,
    /// Its unit.
    pub unit: String,
    /// What the devices reported over the last seconds; read anew about once a second.
    pub devices: Arc<DeviceReadings>,
}

/// What the devices of a running probe reported over the last seconds, as far as they report anything yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceReadings {
    /// Readings of the probe's processes: processors, memory, reads from storage.
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
    /// A journal was found, and its trials are kept.
    Resumed {
        /// How many there are.
        trials: usize,
        /// Whether a line that was cut off in writing had to be dropped.
        healed: bool,
    },
    /// The trials to come cannot be compared with those in the journal, so a new era begins in it.
    NewEra {
        /// What is different, one entry each.
        differences: &'a [String],
        /// The trials of the eras before.
        trials: usize,
    },
    /// The search learns from an earlier study.
    WarmStart {
        /// Its folder or journal as it was given, or its name.
        place: &'a str,
        /// The number of earlier trials that say something about configs of the space.
        trials: usize,
        /// The number of the space's parameters that the earlier study has, too.
        in_common: usize,
        /// How many parameters the space has.
        parameters: usize,
    },
    /// A probe begins.
    Started {
        /// Its number.
        number: u32,
        /// Why it is run.
        purpose: Purpose,
        /// What is probed.
        settings: &'a Settings,
        /// Configs probed before it.
        searched: usize,
        /// Why the strategy proposed the config, where it says so.
        reason: Option<&'a str>,
        /// Where it runs, among others that run at the same time.
        slot: Option<&'a Slot>,
        /// How long the search is expected to go on; `None` until two probes have shown it.
        left: Option<Duration>,
    },
    /// A running probe has news.
    Progress {
        /// The probe.
        number: u32,
        /// The news.
        progress: &'a Progress,
    },
    /// A probe ended, and is in the journal.
    Finished {
        /// The trial.
        trial: &'a Trial,
        /// Its settings.
        settings: &'a Settings,
        /// What the objective makes of it, where it was measured.
        judgement: Option<&'a Judgement>,
        /// Whether it is the best so far; if the result is a front, whether it is on the front of the trials so far.
        is_best: bool,
    },
    /// Something outside disturbed a probe, and the same config is probed again.
    Disturbed {
        /// The probe.
        number: u32,
        /// Who or what disturbed it.
        reason: &'a str,
    },
    /// The job runs as it is for a moment, to compare a stated baseline with it.
    LookingAtJob,
    /// The stated baseline is not what the job does when nothing is set.
    BaselineDiffers {
        /// What was stated and what the job has, one clause for each parameter.
        differences: &'a [String],
    },
    /// The prober tells how probes are run from now on, or the search what its space cannot change.
    Remark {
        /// What it tells, in one line.
        text: &'a str,
    },
    /// A config was disturbed at every try: it is put back and tried later.
    PutBack {
        /// The probe.
        number: u32,
        /// Who or what disturbed it.
        reason: &'a str,
    },
    /// The same config runs in full precision for a few steps, for its losses.
    Comparing {
        /// The probe whose losses are compared.
        number: u32,
        /// What is run.
        settings: &'a Settings,
    },
    /// A round begins: configs are measured next to each other.
    RoundBegins {
        /// Its number, counted from 1.
        number: u32,
        /// How many configs are in it.
        configs: usize,
        /// How long the search is expected to go on.
        left: Option<Duration>,
    },
    /// A round ended.
    RoundEnds {
        /// Its number.
        number: u32,
        /// The configs besides the first, each with how many times as fast as the first it was in this round.
        ratios: &'a [(Settings, f64)],
    },
}
