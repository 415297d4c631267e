//! Shows where time goes: a bar for a step, and lines for the account of a run.

use std::fmt::Write as _;

use serde::Serialize;

use crate::diagnosis::{Account, Branch, Evidence, Leaf};
use crate::model::quantity::show_seconds;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Part {
    /// The name of the phase in the protocol, or `host_overhead` for the rest of the step.
    name: String,
    seconds: f64,
    pub(super) share: f64,
    #[serde(skip)]
    pub(super) label: String,
    /// The character that draws it.
    #[serde(skip)]
    sign: char,
}

/// The phases in drawing order, with their characters.
const PHASES: &[(&str, &str, char)] = &[
    ("data_wait", "data wait", '░'),
    ("host_to_device", "host to device", '▒'),
    ("forward", "forward", '█'),
    ("backward", "backward", '▓'),
    ("optimizer", "optimizer", '▚'),
    ("communication", "communication", '≈'),
];
const OVERHEAD: (&str, &str, char) = ("host_overhead", "host overhead", '·');

/// Returns the phases of a step, then the rest of it as host overhead; empty if the job reports no phase.
pub(super) fn parts(evidence: &Evidence) -> Vec<Part> {
    let Some(step) = evidence.step() else { return Vec::new() };
    let known = |name: &str| PHASES.iter().any(|(phase, _, _)| *phase == name);
    let seconds = |name: &str| {
        let seconds = evidence.observed.phase_seconds.get(name).copied();
        seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0)
    };
    let usual = PHASES.iter().filter_map(|(name, label, sign)| Some((*name, *label, *sign, seconds(name)?)));
    let others = evidence.observed.phase_seconds.keys().filter(|name| !known(name));
    let others = others.filter_map(|name| Some((name.as_str(), name.as_str(), '+', seconds(name)?)));
    let mut all: Vec<(&str, &str, char, f64)> = usual.chain(others).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let in_phases: f64 = all.iter().map(|(.., seconds)| seconds).sum();
    let (name, label, sign) = OVERHEAD;
    all.push((name, label, sign, (step - in_phases).max(0.0)));
    // If a device works ahead of its host, the phases may add up to more than the step.
    let whole = in_phases.max(step);
    let part = |(name, label, sign, seconds): (&str, &str, char, f64)| {
        let (name, label) = (name.to_owned(), label.to_owned());
        Part { name, seconds, share: seconds / whole, label, sign }
    };
    all.into_iter().map(part).collect()
}

/// Draws the bar with each part in proportion. A part of at least 1% gets at least one character if the bar has room.
pub(super) fn drawn(parts: &[Part], width: usize) -> String {
    let mut bar = String::new();
    let mut end = 0.0;
    for part in parts {
        end += part.share;
        let until = (end * width as f64).round() as usize;
        let drawn = bar.chars().count();
        let least = usize::from(part.share >= 0.01);
        let count = until.saturating_sub(drawn).max(least).min(width.saturating_sub(drawn));
        bar.extend(std::iter::repeat_n(part.sign, count));
    }
    bar
}

/// Returns what each character stands for, with its share.
pub(super) fn legend(parts: &[Part]) -> Vec<String> {
    parts.iter().map(|part| format!("{} {} {:.0} %", part.sign, part.label, part.share * 100.0)).collect()
}

/// The names of leaves on the screen; a leaf that is not listed keeps its own name.
const LABELS: &[(&str, &str)] = &[
    ("importing", "imports"),
    ("starting", "the rest of the start"),
    ("evaluation", "evaluation"),
    ("checkpoint", "checkpoints"),
    ("epoch_edge", "edges of epochs"),
    ("data_wait", "data wait"),
    ("host_to_device", "host to device"),
    ("operations", "operations of the loop"),
    ("other", "other work of the GPU"),
    ("logging", "writing logs"),
    ("reading", "reading numbers of tensors"),
    ("own_code", "the loop's own code"),
    ("python", "Python within the model"),
];

fn leaf_label(leaf: &Leaf) -> &str {
    LABELS.iter().find(|(name, _)| *name == leaf.name).map_or(&leaf.name, |(_, label)| label)
}

/// Formats a share with its interval, such as `48 % (44 to 52)`.
fn shown_share(leaf: &Leaf, after_start: f64) -> String {
    let percent = |seconds: f64| seconds / after_start * 100.0;
    let mut text = format!("{:.0} %", percent(leaf.seconds.value));
    if let (Some(low), Some(high)) = (leaf.seconds.low, leaf.seconds.high)
        && percent(high - low) >= 2.0
    {
        let _ = write!(text, " ({:.0} to {:.0})", percent(low), percent(high).min(100.0));
    }
    text
}

/// Returns the lines of the account, each with its label: the start, then each branch with its leaves.
pub(super) fn account_lines(account: &Account) -> Vec<(&'static str, String)> {
    let after_start = account.wall_s - account.start_s;
    let of_imports = |leaf: &Leaf| format!(", including {} of imports", show_seconds(leaf.seconds.value));
    let imports = account.leaf("importing").map_or_else(String::new, of_imports);
    let (after, start) = (show_seconds(after_start), show_seconds(account.start_s));
    let mut lines = vec![("the run", format!("{after} observed after a start of {start}{imports}"))];
    for (branch, share) in account.branches().into_iter().filter(|(_, share)| *share >= LEAST_SHOWN) {
        let leaves = account.leaves.iter().filter(|leaf| leaf.branch == branch);
        let mut leaves: Vec<&Leaf> = leaves.filter(|leaf| leaf.share_after_start >= LEAST_SHOWN).collect();
        leaves.sort_by(|a, b| b.seconds.value.total_cmp(&a.seconds.value));
        let parts = leaves.iter().map(|leaf| format!("{} {}", leaf_label(leaf), shown_share(leaf, after_start)));
        let parts: Vec<String> = parts.collect();
        let label = branch.row().label;
        let words = match leaves.as_slice() {
            [only] if label.contains(leaf_label(only)) => format!("{label} {}", shown_share(only, after_start)),
            [only] if branch == Branch::Data => format!("{label} {}", shown_share(only, after_start)),
            _ => format!("{label} {:.0} %: {}", share * 100.0, parts.join(", ")),
        };
        lines.push(("", words));
    }
    lines
}

/// The smallest share that is shown: half a percent. Smaller shares would be rounded to 0 %.
const LEAST_SHOWN: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Measurement, Timing};

    fn evidence(phases: &[(&str, f64)]) -> Evidence {
        let observed = Measurement {
            phase_seconds: phases.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect(),
            timing: Timing { step_seconds: Some(1.0), ..Default::default() },
            ..Measurement::default()
        };
        Evidence { observed, ..Evidence::default() }
    }

    #[test]
    fn parts_add_up_to_a_step() {
        for phases in
            [vec![("data_wait", 0.5), ("forward", 0.3)], vec![("forward", 0.9), ("backward", 0.6), ("mine", 0.1)]]
        {
            let parts = parts(&evidence(&phases));
            let sum: f64 = parts.iter().map(|part| part.share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{parts:?}");
            assert_eq!(drawn(&parts, 60).chars().count(), 60);
        }
    }

    #[test]
    fn nothing_told_is_no_bar_and_nonsense_is_left_out() {
        assert!(parts(&Evidence::default()).is_empty());
        assert!(parts(&evidence(&[("forward", f64::NAN), ("data_wait", -1.0)])).is_empty());
    }

    #[test]
    fn a_small_part_is_seen() {
        let parts = parts(&evidence(&[("data_wait", 0.012), ("forward", 0.98)]));
        assert!(drawn(&parts, 40).starts_with('░'));
    }
}
