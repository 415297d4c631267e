//! One finished trial in the journal's format, with names and values instead of levels.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    /// Names and values; for an unmodified job, the settings that it reports.
    pub config: Settings,
    /// For an unmodified job, the few settings that it was given nevertheless; `None` for all other trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_it_is: Option<Settings>,
    /// Why the strategy proposed it, if it gives a reason. (A failure has a `reason` on the same line.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The gain that the strategy expected, as a share of the best result at that time, if it gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_gain: Option<f64>,
    /// Wall time of the probe in seconds.
    pub elapsed_s: f64,
    /// When the probe ended, in seconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<f64>,
    /// The slot that it ran in, if probes ran in parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Line {
    /// Returns the trial, with its config in the space.
    ///
    /// # Errors
    /// The space has no such config.
    pub fn trial(&self, space: &Space) -> Result<Trial, LocateError> {
        let config = match &self.as_it_is {
            Some(set) => space.as_it_is_with(set),
            None => space.locate(&self.config.chosen(space)),
        };
        Ok(Trial {
            number: self.trial,
            purpose: self.purpose,
            config: config?,
            outcome: self.outcome.clone(),
            elapsed: Duration::try_from_secs_f64(self.elapsed_s).unwrap_or_default(),
            ended_at: self.ended_at,
            slot: self.slot.clone(),
        })
    }
}

/// Returns the settings of a trial; for an unmodified job, the settings that it reports.
pub fn settings_of(trial: &Trial, space: &Space) -> Settings {
    match trial.outcome.measurement() {
        Some(measurement) if trial.config.is_as_it_is() => {
            arrival::used(space, &measurement.facts, &space.settings(&trial.config))
        }
        _ => space.settings(&trial.config),
    }
}
