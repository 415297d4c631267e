//! One finished trial as it is kept in the journal, with names and values instead of levels.

use serde::{Deserialize, Serialize};

use crate::model::Config;
use crate::model::LocateError;
use crate::model::Outcome;
use crate::model::Purpose;
use crate::model::Settings;
use crate::model::Slot;
use crate::model::Space;
use crate::model::Trial;
use crate::model::arrival;

/// One finished trial, as a line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The trial's number.
    pub trial: u32,
    /// Why it was run.
    pub purpose: Purpose,
    /// Names and values; for a job that was run as it is, those that it reports to have used.
    pub config: Settings,
    /// If the job was run as it is, the few settings that it was given, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_it_is: Option<Settings>,
    /// Why the strategy proposed it, where it says. (A failure has a `reason` on the same line.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The gain that the strategy expected from it, as a share of the best at that time, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_gain: Option<f64>,
    /// Wall time of the probe in seconds.
    pub elapsed_s: f64,
    /// When it was over, in seconds of Unix time; absent in journals that were written before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<f64>,
    /// Where it ran, among others that ran at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Line {
    /// Returns the probed config, as a config of the space.
    ///
    /// # Errors
    /// The space has no such config.
    pub fn locate(&self, space: &Space) -> Result<Config, LocateError> {
        match &self.as_it_is {
            Some(set) => space.as_it_is_with(set),
            None => space.locate(&self.config.chosen(space)),
        }
    }
}

/// Returns what a trial ran with: its settings, or, for a job that sets nothing, those that it reports to have used.
pub fn settings_of(trial: &Trial, space: &Space) -> Settings {
    match trial.outcome.measurement() {
        Some(measurement) if trial.config.is_as_it_is() => {
            arrival::used(space, &measurement.facts, &space.settings(&trial.config))
        }
        _ => space.settings(&trial.config),
    }
}
