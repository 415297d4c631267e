//! Compares the accounts of the baseline and the best config, and names the largest branch that is left.

use serde::{Deserialize, Serialize};

use crate::diagnosis::{self, Account, Around};
use crate::model::{Config, Measurement, quantity::show_seconds};
use crate::search::Study;

/// A branch of the account, for the baseline and for the best config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// The label of the branch in [`BRANCHES`](crate::diagnosis::BRANCHES).
    pub branch: String,
    /// Seconds per thousand samples with the baseline; per thousand steps if samples are not counted.
    pub was_s: f64,
    /// The same seconds with the best config.
    pub is_s: f64,
}

impl Spending {
    /// Returns the branches of the baseline and the best config, the largest remaining branch first, and the work that they cover.
    /// Returns `None` if either has no account, or only one counts samples.
    pub(super) fn of(study: &Study) -> Option<(Vec<Self>, &'static str)> {
        let (best, baseline) = (study.best()?, study.baseline.as_ref()?);
        if best.winner.config == *baseline {
            return None;
        }
        let (was, work) =
            study.history.of(baseline).find_map(|trial| spent(study, baseline, trial.outcome.measurement()?))?;
        let (is, work_now) = spent(study, &best.winner.config, &best.winner.measurement)?;
        if work != work_now {
            return None;
        }
        let of =
            |all: &[(String, f64)], name: &str| all.iter().find(|(known, _)| known == name).map_or(0.0, |(_, s)| *s);
        let mut names: Vec<&String> = was.iter().chain(&is).map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        let row = |name: &&String| Self { branch: (*name).clone(), was_s: of(&was, name), is_s: of(&is, name) };
        let mut rows: Vec<Self> = names.iter().map(row).collect();
        rows.sort_by(|a, b| b.is_s.total_cmp(&a.is_s));
        Some((rows, work))
    }

    /// Returns the rows that are large enough to be shown.
    pub(super) fn shown(rows: &[Self]) -> Vec<&Self> {
        let (was, is): (f64, f64) = rows.iter().fold((0.0, 0.0), |(was, is), row| (was + row.was_s, is + row.is_s));
        rows.iter().filter(|row| row.was_s >= LEAST * was || row.is_s >= LEAST * is).collect()
    }

    /// Returns the sentence on the largest remaining branch.
    pub(super) fn next(rows: &[Self]) -> Option<String> {
        let next = rows.first()?;
        let is: f64 = rows.iter().map(|row| row.is_s).sum();
        let share = next.is_s / is.max(f64::MIN_POSITIVE) * 100.0;
        Some(format!("the next factor is in {}: {share:.0} % of the remaining time", next.branch))
    }

    /// Returns the lines for the terminal, each indented by a label of ten characters; `work` is the work that they cover.
    pub(super) fn lines(rows: &[Self], work: &str) -> Vec<String> {
        let Some(next) = Self::next(rows) else { return Vec::new() };
        let title = format!("of {work}");
        let width = rows.iter().map(|row| row.branch.len()).max().unwrap_or(0).max(title.len());
        let mut lines: Vec<String> = Self::shown(rows)
            .into_iter()
            .map(|row| {
                format!(
                    "          {:<width$}  {:>8}  {:>8}",
                    row.branch,
                    show_seconds(row.was_s),
                    show_seconds(row.is_s)
                )
            })
            .collect();
        lines.insert(0, format!("account   {:<width$}  {:>8}  {:>8}", title, "was", "is"));
        lines.push(format!("          {next}"));
        lines
    }
}

/// The smallest share of an account that is shown; half a percent is rounded to one.
const LEAST: f64 = 0.005;

/// Returns the seconds of each branch per thousand samples (per thousand steps if samples are not counted), and that work.
fn spent(study: &Study, config: &Config, measurement: &Measurement) -> Option<(Vec<(String, f64)>, &'static str)> {
    let settings = study.settings(config);
    let evidence = diagnosis::evidence_of(&study.space, &settings, measurement, Around::default());
    let account = Account::of(&evidence)?;
    let step = evidence.step()?;
    let samples = measurement.timing.samples_per_step.filter(|samples| *samples > 0.0);
    let work = if samples.is_some() { "1,000 samples" } else { "1,000 steps" };
    // The time outside of steps is added to the time of the steps.
    let outside = account.share(diagnosis::Branch::Outside).min(0.99);
    let all = step / samples.unwrap_or(1.0) * 1000.0 / (1.0 - outside);
    let of_branch = |(branch, share): (diagnosis::Branch, f64)| (branch.row().label.to_owned(), share * all);
    Some((account.branches().into_iter().map(of_branch).collect(), work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shrank_and_what_is_left_stand_side_by_side() {
        let row = |branch: &str, was_s: f64, is_s: f64| Spending { branch: branch.to_owned(), was_s, is_s };
        let rows = [row("device busy", 2.0, 1.9), row("waiting for data", 6.0, 0.1), row("copies", 0.001, 0.001)];
        let lines = Spending::lines(&rows, "1,000 steps");
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[0].starts_with("account   of 1,000 steps "), "{lines:#?}");
        assert!(lines[2].contains("waiting for data") && lines[2].contains("6.00 s"), "{lines:#?}");
        assert_eq!(lines[3], "          the next factor is in device busy: 95 % of the remaining time");
        assert!(Spending::lines(&[], "1,000 samples").is_empty());
    }
}
