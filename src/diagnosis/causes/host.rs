//! Causes on the host: time outside of steps, the loop's own code, copies, calls that wait for the device, and logs.

use super::super::account::{Account, Branch, Leaf};
use super::super::cause::{
    Found, LARGE, MODERATE, Strength, Worth, causes, saved_by, shown_gain, shown_share, shown_times, thresholds,
    times_without,
};
use super::super::evidence::{Differential, Evidence};
use super::super::starvation::exposed_wait;
use crate::model::{
    Metric,
    quantity::{show_number, show_seconds},
};

thresholds! {
    OUTSIDE = MODERATE => "share of the time after the start, at least",
        "TensorFlow's input-pipeline analyzer: 5% of a step is moderate";
    UNTIMED = LARGE.value => "share of the loop's own code if torch's operations in it were not timed, at least",
        "TensorFlow's input-pipeline analyzer: 20% of a step is high";
    COPIES = MODERATE => "share of a step that copies to the device, at least",
        "TensorFlow's input-pipeline analyzer: 5% of a step in any part of the input is moderate";
    PINNED_GAIN = 1.0 + MODERATE => "speed with pinned batches over the speed of the job, at least",
        "5% as for copies, but measured";
    SYNCS = 1.0 => "synchronising calls in a step, at least",
        "torch.cuda.set_sync_debug_mode: a loss that is read each step is one";
    MANY = 8.0 => "calls (without a GPU) or log writes in a step, at least, to attribute the time between phases to them",
        "own choice: a loss and a few metrics are fewer";
    IDLE = 0.03 =>
        "share of the time that the GPU idles without waiting for data, or that the calls take without a GPU, at least",
        "TensorFlow's input-pipeline analyzer: `all other` from 3% on";
    LOGS = IDLE.value => "share of a step that writes logs, at least", IDLE.source;
}

fn logs(evidence: &Evidence) -> bool {
    evidence.number("logs_per_step").is_some_and(|logs| logs > 0.0)
}

causes! {
    evaluation (Bottleneck, Any): "outside of training steps: evaluation or sampling";
        about "Training stands still while the model computes without gradients: it is evaluated, or samples text, images or actions.";
        signature "share of the time after the start";
        thresholds [OUTSIDE];
        cures {
            "evaluate or sample less often, or with fewer samples":
                "only the script decides this; no training setting makes it shorter";
            "give the evaluation's loader larger batches and workers":
                "evaluation keeps no activations, so a larger batch fits";
        }

    checkpoints (Bottleneck, Any): "outside of training steps: checkpoints";
        about "Training stands still while weights and states are written.";
        signature "share of the time after the start in torch.save, safetensors or torch.distributed.checkpoint";
        thresholds [OUTSIDE];
        cures {
            "write less often; Young's rule for the interval: the square root of 2 x checkpoint time x time between failures":
                "only the script decides this";
            "write in the background (torch.distributed.checkpoint.async_save, or a copy to host memory and a thread)":
                "training waits for the copy, not for the disk";
        }

    own_code (Bottleneck, Any): "the loop's own code";
        about "The device idles while the script runs Python code (NumPy, tokenising, metrics) between the parts of a step, or within the model.";
        signature "share of the time after the start outside of data, device, copies, ranks and torch's operations. On a CPU also the script's Python within the phases";
        thresholds [OUTSIDE, UNTIMED];
        opens ["batch_size"];
        cures {
            "move it out of the loop: into the dataset, where workers run it, or to every 50th step":
                "the device waits for it in each step";
            "compute metrics with a few operations on whole batches":
                "a Python loop over samples costs microseconds for each sample";
        }

    host_to_device (Bottleneck, Gpu): "copies from host to device";
        about "Batches are copied to the GPU while it waits for them.";
        signature "copies take a share of the step; batches are not pinned; pinning helps; the PCIe link is narrow or slow";
        thresholds [COPIES, PINNED_GAIN];
        opens ["pin_memory"];
        cures {
            "copy the next batch while this batch trains (pinned, non_blocking=True)":
                "an overlapped copy costs nothing; only the script can do this";
            "copy raw bytes (uint8), and convert and normalise on the GPU":
                "uint8 is a quarter of the size of float32";
            "check the card's slot, riser and BIOS":
                "the PCIe link is below the limit of card and slot",
                if |evidence| evidence.warning("pcie_narrow").is_some() || evidence.warning("pcie_slow").is_some();
        }

    synchronising_calls (Bottleneck, Any): "calls that wait for the device";
        about "The script reads results from the device in each step (`item()`, `.cpu()`, printing a tensor), so host and device alternate.";
        signature "such calls in each step; the GPU idles in between, or the calls take a share of the step";
        thresholds [SYNCS, MANY, IDLE];
        cures {
            "keep sums on the device, and read them every 50 steps or at an epoch's end":
                "only the script knows when it needs these numbers";
            "clip gradients with foreach=True, and test for NaN on the device":
                "otherwise both read a number from the device for each parameter", if Evidence::is_gpu;
        }

    logging (Bottleneck, Any): "logging in every step";
        about "Writing to the terminal or to log files takes a share of each step.";
        signature "writes in each step take a share of it";
        thresholds [LOGS, MANY];
        cures {
            "write every 50 steps, and compute the logged values only then":
                "only the script knows which values it needs", if logs;
            "write files in the background (buffered, no flush or fsync for each line)":
                "the step waits for each line", if logs;
        }
}

fn shown_interval(account: &Account, leaf: &Leaf) -> String {
    let after_start = account.wall_s - account.start_s;
    match (leaf.seconds.low, leaf.seconds.high) {
        (Some(low), Some(high)) if high > low => {
            let [low, high] = [low, high].map(|seconds| shown_share(seconds / after_start));
            format!(" ({low} to {high} expected in another run)")
        }
        _ => String::new(),
    }
}

/// Returns the strength of a share as evidence: less if the share says little about another run.
fn strength(leaf: &Leaf) -> Strength {
    let is_wide = leaf.seconds.low.is_some_and(|low| low < leaf.seconds.value / 2.0);
    if is_wide { Strength::Strong } else { Strength::Proof }
}

fn evaluation(evidence: &Evidence) -> Option<Found> {
    outside(evidence, "evaluation", "evaluation or sampling")
}

fn checkpoints(evidence: &Evidence) -> Option<Found> {
    outside(evidence, "checkpoint", "writing checkpoints")
}

fn outside(evidence: &Evidence, name: &str, what: &str) -> Option<Found> {
    let account = Account::of(evidence)?;
    let leaf = account.leaf(name).filter(|leaf| leaf.share_after_start >= OUTSIDE.value)?;
    let share = leaf.share_after_start;
    let seconds = show_seconds(leaf.seconds.value);
    // A part that came once, such as an evaluation before the first epoch, may be rare in the whole training.
    if leaf.seconds.low == Some(0.0) {
        let words = format!("{what} took {} of this probe, and how often it comes is not known", shown_share(share));
        let mut found = Found::new(Worth::unknown(words.clone()));
        found.add(Strength::Sign, format!("{words}: {seconds}"));
        return Some(found);
    }
    let words = format!("{what} takes {} of the time after the start", shown_share(share));
    let clue = format!("{words}: {seconds}{}", shown_interval(&account, leaf));
    let mut found = Found::new(Worth::estimated(times_without(share), words).by_parameters(Some(1.0)));
    found.add(strength(leaf), clue);
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
    // On a CPU, untimed torch operations between phases look like the loop's own code.
    let is_known = evidence.is_gpu() || evidence.number("operation_seconds_per_step").is_some();
    if !is_known && within < OUTSIDE.value && between < UNTIMED.value {
        return None;
    }
    // If known calls take at least half of it, they are the cause.
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
        let words = "a doubled batch, replayed, spreads this cost over twice the samples";
        found.add(Strength::Told, format!("{words}: {} as many samples per second", shown_times(gain.times)));
    }
    Some(found)
}

fn host_to_device(evidence: &Evidence) -> Option<Found> {
    if !evidence.is_gpu() {
        return None;
    }
    let share = evidence.share("host_to_device");
    let pinned = evidence.gain_of(Differential::Pinned).filter(|gain| gain.times >= PINNED_GAIN.value);
    let copies = share.filter(|share| *share >= COPIES.value);
    if copies.is_none() && pinned.is_none() {
        return None;
    }
    let estimate = times_without(share.unwrap_or(0.0));
    let words = share.map(|share| format!("{} of a step is copying to the device", shown_share(share)));
    let worth = match pinned {
        Some(gain) if gain.times >= estimate => {
            Worth::measured(gain.times, shown_gain(evidence, Differential::Pinned, gain.times))
        }
        _ => Worth::estimated(estimate, words.clone().unwrap_or_default()),
    };
    let mut found = Found::new(worth.by_parameters(pinned.map(|gain| gain.times)));
    found.add_known(Strength::Sign.raised(share.unwrap_or(0.0)), words.filter(|_| copies.is_some()));
    if let Some(gain) = pinned {
        found.add(
            if gain.at_least >= 1.0 { Strength::Strong } else { Strength::Hint },
            shown_gain(evidence, Differential::Pinned, gain.times),
        );
    }
    if evidence.flag("loader.batch_pinned") == Some(false) {
        found.add(Strength::Hint, "batches lie in pageable memory");
    }
    for rule in ["pcie_narrow", "pcie_slow"] {
        found.add_known(Strength::Sign, evidence.warning(rule));
    }
    Some(found)
}

/// Formats the places in the script that the hook reports, if any.
fn sites(evidence: &Evidence, name: &str) -> String {
    const LONGEST: usize = 60;
    let Some(sites) = evidence.text(name).filter(|sites| !sites.is_empty()) else { return String::new() };
    let shown: String = sites.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    let more = if sites.chars().count() > LONGEST { "..." } else { "" };
    format!(": {shown}{more}")
}

pub(super) fn synchronising_calls(evidence: &Evidence) -> Option<Found> {
    let calls = evidence.number("syncs_per_step").filter(|calls| *calls >= SYNCS.value)?;
    let within = evidence.share_of_fact("sync_seconds_per_step");
    let where_ = sites(evidence, "sync_sites");
    let mut found;
    if evidence.is_gpu() {
        // Time in a call is mostly work that the device was given before. The loss is the device's idle time, less its wait for data.
        let idle = 1.0 - evidence.gpu(Metric::GpuBusy)?;
        let waiting = exposed_wait(evidence).min(idle);
        let idle = idle - waiting;
        if idle < IDLE.value {
            return None;
        }
        let besides = if waiting >= IDLE.value { ", not counting waits for data" } else { "" };
        let words = format!("the GPU is idle {} of the time{besides}", shown_share(idle));
        found = Found::by(Worth::estimated(times_without(idle), words), Strength::Sign);
    } else {
        // On a CPU no call waits, but many calls spend Python time between the phases.
        let around = evidence.overhead().filter(|_| calls >= MANY.value);
        let share = within.into_iter().chain(around).fold(0.0, f64::max);
        if share < IDLE.value {
            return None;
        }
        let words = format!("{} of a step is in these calls and around them", shown_share(share));
        found = Found::by(Worth::estimated(times_without(share), words), Strength::Sign.raised(share));
    }
    found.add(Strength::Sign, format!("{} calls in each step{where_}", show_number(calls)));
    Some(found)
}

fn logging(evidence: &Evidence) -> Option<Found> {
    let within = evidence.share_of_fact("log_seconds_per_step").filter(|share| *share >= LOGS.value)?;
    let seconds = evidence.number("log_seconds_per_step").unwrap_or(0.0);
    let writes = evidence.number("logs_per_step").unwrap_or(0.0);
    // Preparing many writes also takes time between the phases.
    let around = evidence.overhead().filter(|_| writes >= MANY.value);
    let share = around.unwrap_or(0.0).max(within);
    let words = if share > within {
        format!("writing and its preparation between the phases take {} of a step", shown_share(share))
    } else {
        format!("writing takes {} of a step ({})", shown_share(share), show_seconds(seconds))
    };
    let times = times_without(share) / evidence.cost_of_watching();
    let mut found = Found::by(Worth::estimated(times, words), Strength::Strong.raised(share));
    if writes >= 0.5 {
        let words = format!("{} writes in each step{}", show_number(writes), sites(evidence, "log_sites"));
        found.add(Strength::Sign, words);
    }
    Some(found)
}
