//! Writes the account of a run for the terminal.

use std::fmt::Write as _;

use crate::diagnosis::{Account, Branch, Leaf};
use crate::model::quantity::show_seconds;

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

/// Returns the name of a leaf on the screen.
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
    let imports = account
        .leaf("importing")
        .map_or_else(String::new, |leaf| format!(", including {} of imports", show_seconds(leaf.seconds.value)));
    let mut lines = vec![(
        "the run",
        format!("{} observed after a start of {}{imports}", show_seconds(after_start), show_seconds(account.start_s)),
    )];
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

/// The smallest share that is shown; half a percent is rounded to one.
const LEAST_SHOWN: f64 = 0.005;
