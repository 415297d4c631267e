//! Summarises how the probes of a search were measured: time saved, unsteady probes, steps left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::escape::plain;
use crate::model::{Measurement, Outcome, Outliers, quantity::show_seconds};
use crate::search::Study;

/// The summary of a search's measurements.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Care {
    /// Probes that stopped before the time for measuring was over.
    pub stopped_early: usize,
    /// Those of them that stopped because they were slower than the best.
    pub pruned: usize,
    /// The seconds of measuring that this saved.
    pub saved_s: f64,
    /// Probes whose interval was still wider than asked for when measuring ended.
    pub unstable: usize,
    /// Steps that were left out of throughputs, by what happened in them.
    pub outliers: BTreeMap<String, Outliers>,
}

impl Care {
    /// Over all probes, confirmations included.
    pub(super) fn of(study: &Study) -> Self {
        let mut care = Self::default();
        for trial in study.history.trials() {
            let Some(measurement) = trial.outcome.partial_measurement() else { continue };
            let is_pruned = matches!(trial.outcome, Outcome::Pruned(_));
            if let Some(saved) = measurement.timing.saved_seconds.filter(|saved| *saved > 0.0) {
                care.stopped_early += 1;
                care.saved_s += saved;
            }
            care.pruned += usize::from(is_pruned);
            care.unstable += usize::from(measurement.timing.is_unstable && !is_pruned);
            for (kind, outliers) in &measurement.timing.outliers {
                let sum = care.outliers.entry(kind.clone()).or_default();
                sum.steps += outliers.steps;
                sum.seconds += outliers.seconds;
            }
        }
        care
    }

    /// Returns lines for people; none where there is nothing to report.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let probes = |count: usize| if count == 1 { "1 probe".to_owned() } else { format!("{count} probes") };
        if self.stopped_early > 0 {
            let pruned = match self.pruned {
                0 => String::new(),
                count => format!(" ({count} of them slower than the best)"),
            };
            let saved = show_seconds(self.saved_s);
            lines.push(format!("saved     {saved} of measuring: {} stopped early{pruned}", probes(self.stopped_early)));
        }
        if self.unstable > 0 {
            let count = probes(self.unstable);
            lines.push(format!("unstable  {count} did not reach the precision in the time for measuring"));
        }
        if !self.outliers.is_empty() {
            let seconds: f64 = self.outliers.values().map(|outliers| outliers.seconds).sum();
            lines.push(format!("left out  {} ({})", shown_outliers(&self.outliers), show_seconds(seconds)));
        }
        lines
    }
}

/// Steps that were left out, by kind: `3 epoch, 1 other`.
pub(super) fn shown_outliers(outliers: &BTreeMap<String, Outliers>) -> String {
    let kinds = outliers.iter().map(|(kind, outliers)| format!("{} {}", outliers.steps, plain(kind)));
    format!("{} steps", kinds.collect::<Vec<_>>().join(", "))
}

/// The steps that one trial left out, for a cell of a table.
pub(super) fn left_out(measurement: Option<&Measurement>) -> String {
    let outliers = measurement.map(|measurement| &measurement.timing.outliers).filter(|outliers| !outliers.is_empty());
    outliers.map(shown_outliers).unwrap_or_default()
}
