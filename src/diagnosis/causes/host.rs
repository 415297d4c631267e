//! Causes on the host besides loading: copies, waits for the device, writes, and programs that take its cores away.

use super::super::cause::{
    Cause, Cure, Found, Kind, LARGE, MODERATE, Scope, Strength, Threshold, Worth, shown_gain, shown_share,
    times_without,
};
use super::super::evidence::{Differential, Evidence};
use crate::model::{
    Metric,
    quantity::{show_number, show_seconds},
};

pub(super) static COPIES: Threshold = Threshold {
    what: "share of a step that copies to the device, at least",
    value: MODERATE,
    source: "TensorFlow's input-pipeline analyzer: 5% of a step in any part of the input is moderate",
};
pub(super) static PINNED_GAIN: Threshold = Threshold {
    what: "speed with pinned batches over the speed of the job, at least",
    value: 1.0 + MODERATE,
    source: "5% as for copies, but measured",
};
pub(super) static SYNCS: Threshold = Threshold {
    what: "synchronising calls in a step, at least",
    value: 1.0,
    source: "torch.cuda.set_sync_debug_mode: a loss that is read each step is one",
};
pub(super) static MANY: Threshold = Threshold {
    what: "without a GPU: calls in a step from which on the host's work between phases counts as theirs",
    value: 8.0,
    source: "own choice: a loss and a few metrics are fewer",
};
pub(super) static IDLE: Threshold = Threshold {
    what: "share of the time that the GPU idles without waiting for data, or that the calls take without a GPU, at least",
    value: 0.03,
    source: "TensorFlow's input-pipeline analyzer: `all other` from 3% on",
};
pub(super) static LOGS: Threshold =
    Threshold { what: "share of a step that writes logs, at least", value: IDLE.value, source: IDLE.source };
pub(super) static THROTTLED: Threshold = Threshold {
    what: "share of the quota's periods in which it was used up, at least",
    value: 0.1,
    source: "own choice: a period counts whole even if the quota ran out at its end (kernel documentation, scheduler/sched-bwc.rst)",
};
pub(super) static KEPT_WAITING: Threshold = Threshold {
    what: "share of the time in which tasks of the job wait for a CPU, at least",
    value: 0.15,
    source: "own choice: a job whose tasks find a free core at once loses nothing",
};
pub(super) static FOREIGN: Threshold = Threshold {
    what: "share of CPU time that other programs took while almost none was idle, at least",
    value: LARGE.value,
    source: "own choice: a desktop takes a fifth of two cores; another training program takes more",
};

fn always(_: &Evidence) -> bool {
    true
}

fn logs(evidence: &Evidence) -> bool {
    evidence.number("logs_per_step").is_some_and(|logs| logs > 0.0)
}

pub(super) static CAUSES: [Cause; 6] = [
    Cause {
        name: "host_to_device",
        title: "copies from host to device",
        about: "Batches are copied to the GPU while it waits for them.",
        signature: "copies take a share of the step; batches are not pinned; pinning helps; the PCIe link is narrow or slow",
        thresholds: &[&COPIES, &PINNED_GAIN],
        kind: Kind::Bottleneck,
        scope: Scope::Gpu,
        find: host_to_device,
        opens: &["pin_memory"],
        cures: &[
            Cure {
                what: "copy the next batch while this batch trains (pinned, non_blocking=True)",
                why: "an overlapped copy costs nothing; only the script can do this",
                applies: always,
            },
            Cure {
                what: "copy raw bytes (uint8), and convert and normalise on the GPU",
                why: "uint8 is a quarter of the size of float32",
                applies: always,
            },
            Cure {
                what: "check the card's slot, riser and BIOS",
                why: "the PCIe link is below the limit of card and slot",
                applies: |evidence| {
                    evidence.warning("pcie_narrow").is_some() || evidence.warning("pcie_slow").is_some()
                },
            },
        ],
    },
    Cause {
        name: "synchronising_calls",
        title: "calls that wait for the device",
        about: "The script reads results from the device in each step (`item()`, `.cpu()`, printing a tensor), so host and device alternate.",
        signature: "such calls in each step; the GPU idles in between, or the calls take a share of the step",
        thresholds: &[&SYNCS, &MANY, &IDLE],
        kind: Kind::Bottleneck,
        scope: Scope::Any,
        find: synchronising_calls,
        opens: &[],
        cures: &[
            Cure {
                what: "keep sums on the device, and read them every 50 steps or at an epoch's end",
                why: "only the script knows when it needs these numbers",
                applies: always,
            },
            Cure {
                what: "clip gradients with foreach=True, and test for NaN on the device",
                why: "otherwise both read a number from the device for each parameter",
                applies: |evidence| evidence.is_gpu(),
            },
        ],
    },
    Cause {
        name: "logging",
        title: "logging in every step",
        about: "Writing to the terminal or to log files takes a share of each step.",
        signature: "writes in each step take a share of it",
        thresholds: &[&LOGS],
        kind: Kind::Bottleneck,
        scope: Scope::Any,
        find: logging,
        opens: &[],
        cures: &[
            Cure {
                what: "write every 50 steps, and compute the logged values only then",
                why: "only the script knows which values it needs",
                applies: logs,
            },
            Cure {
                what: "write files in the background (buffered, no flush or fsync for each line)",
                why: "the step waits for each line",
                applies: logs,
            },
        ],
    },
    Cause {
        name: "cpu_quota",
        title: "the control group's CPU quota",
        about: "The container is stopped whenever its CPU time is used up.",
        signature: "share of the quota's periods in which it was used up",
        thresholds: &[&THROTTLED],
        kind: Kind::Validity,
        scope: Scope::Any,
        find: cpu_quota,
        opens: &["num_workers", "threads"],
        cures: &[Cure {
            what: "raise or remove the quota (docker run --cpus, resources.limits.cpu in Kubernetes)",
            why: "no setting of the job avoids it; fewer workers and threads only share it better",
            applies: always,
        }],
    },
    Cause {
        name: "crowded_cores",
        title: "another tenant: other programs on the same cores",
        about: "Other programs use the cores that the job runs on.",
        signature: "other programs took CPU time, almost none was idle, and the job's tasks waited for a CPU",
        thresholds: &[&FOREIGN, &KEPT_WAITING],
        kind: Kind::Validity,
        scope: Scope::Any,
        find: crowded_cores,
        opens: &["threads", "num_workers"],
        cures: &[Cure {
            what: "end the other programs, or give each program its own cores (taskset, cpuset, a reservation)",
            why: "the job cannot use their CPU time; these numbers hold only for an equally busy machine",
            applies: always,
        }],
    },
    Cause {
        name: "shared_gpu",
        title: "another tenant: other programs on the GPU",
        about: "Another program computes on the same GPU, so they share its time.",
        signature: "the driver lists foreign processes",
        thresholds: &[],
        kind: Kind::Validity,
        scope: Scope::Gpu,
        find: shared_gpu,
        opens: &[],
        cures: &[Cure {
            what: "end the other program, or use another GPU (CUDA_VISIBLE_DEVICES)",
            why: "measurements next to it say little, and no setting returns its share",
            applies: always,
        }],
    },
];

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
    if let Some(words) = words.filter(|_| copies.is_some()) {
        found.add(Strength::Sign.raised(share.unwrap_or(0.0)), words);
    }
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
        if let Some(message) = evidence.warning(rule) {
            found.add(Strength::Sign, message);
        }
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
        let waiting = super::super::starvation::exposed_wait(evidence).min(idle);
        let idle = idle - waiting;
        if idle < IDLE.value {
            return None;
        }
        let besides = if waiting >= IDLE.value { ", not counting waits for data" } else { "" };
        let words = format!("the GPU is idle {} of the time{besides}", shown_share(idle));
        found = Found::new(Worth::estimated(times_without(idle), words.clone()));
        found.add(Strength::Sign, words);
    } else {
        // If nothing waits, many calls cost the host's computing for each: Python code between the phases.
        let around = evidence.overhead().filter(|_| calls >= MANY.value);
        let share = within.into_iter().chain(around).fold(0.0, f64::max);
        if share < IDLE.value {
            return None;
        }
        let words = format!("{} of a step is in these calls and around them", shown_share(share));
        found = Found::new(Worth::estimated(times_without(share), words.clone()));
        found.add(Strength::Sign.raised(share), words);
    }
    found.add(Strength::Sign, format!("{} calls in each step{where_}", show_number(calls)));
    Some(found)
}

pub(super) fn logging(evidence: &Evidence) -> Option<Found> {
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
    let mut found = Found::new(Worth::estimated(times, words.clone()));
    found.add(Strength::Strong.raised(share), words);
    if let Some(writes) = evidence.number("logs_per_step").filter(|writes| *writes >= 0.5) {
        found.add(
            Strength::Sign,
            format!("{} writes in each step{}", show_number(writes), sites(evidence, "log_sites")),
        );
    }
    Some(found)
}

fn cpu_quota(evidence: &Evidence) -> Option<Found> {
    let share = evidence.host(Metric::CpuThrottled).filter(|share| *share >= THROTTLED.value)?;
    let mut found = Found::new(Worth::unknown("no probe can run without the quota"));
    found
        .add(Strength::Strong.raised(share), format!("the quota was used up in {} of its periods", shown_share(share)));
    if let Some(message) = evidence.warning("quota_below_cores") {
        found.add(Strength::Sign, message);
    }
    Some(found)
}

fn crowded_cores(evidence: &Evidence) -> Option<Found> {
    let share = Some(evidence.foreign()).filter(|share| *share >= FOREIGN.value)?;
    let waited = evidence.host(Metric::CpuPressure);
    if waited.is_some_and(|waited| waited < KEPT_WAITING.value) {
        return None;
    }
    // The gain cannot exceed the lost time, nor the share of other programs.
    let lost = waited.map_or(share, |waited| waited.min(share));
    let words = format!("other programs took {} of the processors, and next to none was idle", shown_share(share));
    let mut found = Found::new(Worth::estimated(times_without(lost), words.clone()));
    found.add(Strength::Strong, words);
    if let Some(waited) = waited {
        found.add(
            Strength::Hint,
            format!("tasks of the job waited for a processor {} of the time", shown_share(waited)),
        );
    }
    if evidence.is_gpu() && super::super::starvation::Starvation::of(evidence).is_none() {
        found.against(Strength::Strong, "the GPU does not wait for the host");
    }
    Some(found)
}

fn shared_gpu(evidence: &Evidence) -> Option<Found> {
    if !evidence.is_gpu() {
        return None;
    }
    let message = evidence.warning("foreign_process")?;
    let mut found = Found::new(Worth::unknown("no probe can run without it"));
    found.add(Strength::Proof, message);
    if let Some(bytes) = evidence.gpu(Metric::MemoryOthers).filter(|bytes| *bytes > 1e9) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a size")]
        let bytes = crate::model::quantity::show_bytes(bytes.min(1e18) as u64);
        found.add(Strength::Hint, format!("other processes hold {bytes} of its memory"));
    }
    Some(found)
}
