//! Summarises how the probes of a search were measured: time saved, unstable probes, steps left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::escape::plain;
use crate::model::{Measurement, Outliers, Spent, quantity::show_seconds};
use crate::search::Study;

/// The summary of a search's measurements.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Care {
    /// Probes that stopped before the measuring time was over.
    pub stopped_early: usize,
    /// The seconds of measuring that these probes saved.
    pub saved_s: f64,
    /// Probes whose interval was still wider than requested when measuring ended.
    pub unstable: usize,
    /// Steps that were left out of throughputs, by cause, such as `epoch` or `checkpoint`.
    pub outliers: BTreeMap<String, Outliers>,
    /// The wall time of the probes with a measurement, by use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
    /// Seconds of probes without a measurement, or whose time was not broken down.
    pub failing_s: f64,
    /// Seconds of the search that belong to no probe.
    pub thinking_s: f64,
    /// Probes that were forked from a process with its imports done.
    pub forked: usize,
    /// Probes in a process that had measured another config before.
    pub live: usize,
}

impl Care {
    /// Summarises all probes. Rounds add to the times only, not to the counts.
    pub(super) fn of(study: &Study) -> Self {
        let mut care = Self::default();
        for trial in study.history.trials() {
            match trial.outcome.measurement().and_then(|run| run.spent) {
                Some(spent) => *care.spent.get_or_insert_default() += spent,
                None => care.failing_s += trial.elapsed.as_secs_f64(),
            }
            // A round measures a config whose probe was already counted.
            let Some(measurement) = trial.outcome.measurement().filter(|run| run.round.is_none()) else { continue };
            if let Some(saved) = measurement.timing.saved_seconds.filter(|saved| *saved > 0.0) {
                care.stopped_early += 1;
                care.saved_s += saved;
            }
            care.forked += usize::from(measurement.is_forked && !measurement.is_live);
            care.live += usize::from(measurement.is_live);
            care.unstable += usize::from(measurement.timing.is_unstable);
            for (kind, outliers) in &measurement.timing.outliers {
                let sum = care.outliers.entry(kind.clone()).or_default();
                sum.steps += outliers.steps;
                sum.seconds += outliers.seconds;
            }
        }
        let in_probes = care.failing_s + care.spent.map_or(0.0, |spent| spent.total());
        care.thinking_s = (study.elapsed.as_secs_f64() - in_probes).max(0.0);
        care
    }

    /// Returns where the time of the search went, without parts below a tenth of a second.
    fn time_line(&self) -> Option<String> {
        const SHORTEST: f64 = 0.1;
        let spent = self.spent?;
        let others = [("failing", self.failing_s), ("thinking", self.thinking_s)];
        let long = spent.parts().into_iter().chain(others).filter(|(_, seconds)| *seconds >= SHORTEST);
        let shown: Vec<String> = long.map(|(what, seconds)| format!("{} {what}", show_seconds(seconds))).collect();
        let live = match self.live {
            0 => String::new(),
            1 => "; 1 probe was measured in a process that trained before".to_owned(),
            count => format!("; {count} probes were measured in processes that trained before"),
        };
        let forked = match self.forked {
            0 => String::new(),
            1 => "; 1 probe was forked".to_owned(),
            count => format!("; {count} probes were forked"),
        };
        Some(format!("time      {}{forked}{live}", shown.join(", "))).filter(|_| !shown.is_empty())
    }

    /// Returns the lines for the terminal; empty if there is nothing to report.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let probes = |count: usize| if count == 1 { "1 probe".to_owned() } else { format!("{count} probes") };
        if self.stopped_early > 0 {
            let saved = show_seconds(self.saved_s);
            lines.push(format!("saved     {saved} of measuring: {} stopped early", probes(self.stopped_early)));
        }
        if self.unstable > 0 {
            let count = probes(self.unstable);
            lines.push(format!("unstable  {count} did not reach the precision in the time for measuring"));
        }
        if !self.outliers.is_empty() {
            let seconds: f64 = self.outliers.values().map(|outliers| outliers.seconds).sum();
            lines.push(format!("left out  {} ({})", shown_outliers(&self.outliers), show_seconds(seconds)));
        }
        lines.extend(self.time_line());
        lines
    }
}

/// Lists the steps that were left out, by kind: `3 epoch, 1 other`.
pub(super) fn shown_outliers(outliers: &BTreeMap<String, Outliers>) -> String {
    let kinds = outliers.iter().map(|(kind, outliers)| format!("{} {}", outliers.steps, plain(kind)));
    format!("{} steps", kinds.collect::<Vec<_>>().join(", "))
}

/// Lists the steps that one trial left out, for a cell of a table.
pub(super) fn left_out(measurement: Option<&Measurement>) -> String {
    let outliers = measurement.map(|measurement| &measurement.timing.outliers).filter(|outliers| !outliers.is_empty());
    outliers.map(shown_outliers).unwrap_or_default()
}
