//! Causes that are whole branches of the account: time outside of steps, and the loop's own code.

use super::super::account::{Account, Branch, Leaf};
use super::super::cause::{
    Cause, Cure, Found, Kind, LARGE, MODERATE, Scope, Strength, Threshold, Worth, saved_by, shown_share, shown_times,
    times_without,
};
use super::super::evidence::{Differential, Evidence};
use super::host::{logging, synchronising_calls};
use crate::model::quantity::show_seconds;

pub(super) static OUTSIDE: Threshold = Threshold {
    what: "share of the time after the start, at least",
    value: MODERATE,
    source: "TensorFlow's input-pipeline analyzer: 5% of a step is moderate",
};
pub(super) static UNTIMED: Threshold = Threshold {
    what: "share of the loop's own code if torch's operations in it were not timed, at least",
    value: LARGE.value,
    source: "TensorFlow's input-pipeline analyzer: 20% of a step is high",
};

fn always(_: &Evidence) -> bool {
    true
}

pub(super) static CAUSES: [Cause; 3] = [
    Cause {
        name: "evaluation",
        title: "outside of training steps: evaluation",
        about: "Training stands still while the model is evaluated.",
        signature: "share of the time after the start",
        thresholds: &[&OUTSIDE],
        kind: Kind::Bottleneck,
        scope: Scope::Any,
        find: |evidence| outside(evidence, "evaluation", "evaluation"),
        opens: &[],
        cures: &[
            Cure {
                what: "evaluate less often, or on a fixed part of the samples",
                why: "only the script decides this; no training setting makes an evaluation shorter",
                applies: always,
            },
            Cure {
                what: "give the evaluation's loader larger batches and workers",
                why: "evaluation keeps no activations, so a larger batch fits",
                applies: always,
            },
        ],
    },
    Cause {
        name: "checkpoints",
        title: "outside of training steps: checkpoints",
        about: "Training stands still while weights and states are written.",
        signature: "share of the time after the start in torch.save, safetensors or torch.distributed.checkpoint",
        thresholds: &[&OUTSIDE],
        kind: Kind::Bottleneck,
        scope: Scope::Any,
        find: |evidence| outside(evidence, "checkpoint", "writing checkpoints"),
        opens: &[],
        cures: &[
            Cure {
                what: "write less often; Young's rule for the interval: the square root of 2 x checkpoint time x time between failures",
                why: "only the script decides this",
                applies: always,
            },
            Cure {
                what: "write in the background (torch.distributed.checkpoint.async_save, or a copy to host memory and a thread)",
                why: "training waits for the copy, not for the disk",
                applies: always,
            },
        ],
    },
    Cause {
        name: "own_code",
        title: "the loop's own code",
        about: "The device idles while the script runs Python code (NumPy, tokenising, metrics) between the parts of a step, or within the model.",
        signature: "share of the time after the start outside of data, device, copies, ranks and torch's operations. On a CPU also the script's Python within the phases",
        thresholds: &[&OUTSIDE, &UNTIMED],
        kind: Kind::Bottleneck,
        scope: Scope::Any,
        find: own_code,
        opens: &["batch_size"],
        cures: &[
            Cure {
                what: "move it out of the loop: into the dataset, where workers run it, or to every 50th step",
                why: "the device waits for it in each step",
                applies: always,
            },
            Cure {
                what: "compute metrics with a few operations on whole batches",
                why: "a Python loop over samples costs microseconds for each sample",
                applies: always,
            },
        ],
    },
];

/// Formats the interval of a leaf's share, if it is known.
fn shown_interval(account: &Account, leaf: &Leaf) -> String {
    let after_start = account.wall_s - account.start_s;
    match (leaf.seconds.low, leaf.seconds.high) {
        (Some(low), Some(high)) if high > low => {
            format!(" (in another such run {} to {})", shown_share(low / after_start), shown_share(high / after_start))
        }
        _ => String::new(),
    }
}

/// Returns the strength of a share as evidence: less if the share says little about another run.
fn strength(leaf: &Leaf) -> Strength {
    let is_wide = leaf.seconds.low.is_some_and(|low| low < leaf.seconds.value / 2.0);
    if is_wide { Strength::Strong } else { Strength::Proof }
}

fn outside(evidence: &Evidence, name: &str, what: &str) -> Option<Found> {
    let account = Account::of(evidence)?;
    let leaf = account.leaf(name).filter(|leaf| leaf.share_after_start >= OUTSIDE.value)?;
    let share = leaf.share_after_start;
    let words = format!("{what} takes {} of the time after the start", shown_share(share));
    let worth = Worth::estimated(times_without(share), words.clone()).by_parameters(Some(1.0));
    let mut found = Found::new(worth);
    let seconds = show_seconds(leaf.seconds.value);
    found.add(strength(leaf), format!("{words}: {seconds}{}", shown_interval(&account, leaf)));
    Some(found)
}

/// Finds the loop's own code, unless known calls explain most of it.
fn own_code(evidence: &Evidence) -> Option<Found> {
    let account = Account::of(evidence)?;
    let within = account.leaf("python").map_or(0.0, |leaf| leaf.share_after_start);
    let leaf = account.leaf("own_code");
    let between = leaf.map_or(0.0, |leaf| leaf.share_after_start);
    let share = between + within;
    if share < OUTSIDE.value {
        return None;
    }
    // Part of it is computing if torch's operations between the phases were not timed on a CPU.
    let is_known = evidence.is_gpu() || evidence.number("operation_seconds_per_step").is_some();
    if !is_known && within < OUTSIDE.value && between < UNTIMED.value {
        return None;
    }
    // Known calls that take at least half of it explain it first.
    let lost = |found: Found| found.worth.times.map_or(0.0, saved_by);
    let explained = [logging(evidence), synchronising_calls(evidence)].into_iter().flatten().map(lost);
    if explained.fold(0.0, f64::max) >= share / 2.0 {
        return None;
    }
    let words = format!("the loop's own code takes {} of the time after the start", shown_share(share));
    let mut worth = Worth::estimated(times_without(share), words.clone());
    let doubled = evidence.gain_over_replay(Differential::DoubleBatch);
    worth = worth.by_parameters(Some(doubled.map_or(1.0, |gain| gain.times.max(1.0))));
    let mut found = Found::new(worth);
    // A share from samples of the stack is as certain as a share with a narrow interval.
    let of_gaps = leaf.filter(|_| between >= within);
    let strength = if is_known { of_gaps.map_or(Strength::Proof, strength) } else { Strength::Strong };
    let interval = of_gaps.map_or_else(String::new, |leaf| shown_interval(&account, leaf));
    found.add(strength, format!("{words}{interval}"));
    if within >= OUTSIDE.value {
        let words =
            "of the time is Python of the script within forward, backward or optimizer, such as layers and hooks";
        found.add(Strength::Told, format!("{} {words}", shown_share(within)));
    }
    if let Some(step) = evidence.step() {
        let each = share / (1.0 - account.share(Branch::Outside)).max(share) * step;
        found.add(Strength::Hint, format!("{} in each step, in which the device idles", show_seconds(each)));
    }
    if let Some(gain) = doubled.filter(|gain| gain.times >= OUTSIDE.value + 1.0) {
        let words = "twice the batch, replayed, shares it among as many samples again";
        found.add(Strength::Told, format!("{words}: {} as many samples per second", shown_times(gain.times)));
    }
    Some(found)
}
