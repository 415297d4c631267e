//! Causes of too little memory: on the device, on the host, or in shared memory.

use super::super::cause::{
    Found, MODERATE, Strength, Worth, causes, saved_by, shown_share, shown_times, thresholds, times_without,
};
use super::super::evidence::{Differential, Evidence};
use super::super::starvation::Starvation;
use crate::model::{
    Memory, Metric,
    quantity::{show_bytes, show_number},
};

thresholds! {
    NEARLY_FULL = 0.9 => "share of device memory in use at the peak, at least",
        "PyTorch profiler's plugin warns from 90 % on";
    RETRIES = 1.0 => "times that the allocator freed its caches and tried again, at least",
        "MosaicML Composer (trainer.py) and torchtitan (metrics.py) treat any as lack of memory";
    PRESSURE = 0.1 => "share of the time in which some task waited for memory, at least",
        "own choice: PSI memory `some` (kernel documentation, accounting/psi.rst); without a shortage it is 0";
    HOST_LEFT = 0.05 => "share of the host's memory that is free, below",
        "own choice: below it the page cache has no room, and the kernel soon kills";
    SHARED = 0.8 => "share of /dev/shm in use, at least",
        "own choice: one more batch in each worker's queue, and a worker dies of SIGBUS";
    ROOM_PAYS = 1.0 + MODERATE => "gain in samples per second with the full batch over half of it, at least",
        "own choice: a smaller gain from doubling the batch is not worth the memory";
}

causes! {
    memory_limited (Bottleneck, Any): "memory-limited: no larger batch fits";
        about "Device memory is full: the batch cannot grow, or the allocator keeps freeing and allocating.";
        signature "the allocator had to retry; little memory is free at the peak; twice the batch does not fit";
        thresholds [NEARLY_FULL, RETRIES, ROOM_PAYS];
        opens ["batch_size", "precision", "checkpoint", "grad_accumulation", "allocator"];
        cures {
            "use an optimizer with a smaller state (8-bit), or shard states and weights (ZeRO, FSDP)":
                "optimizer states take several times the memory of the weights", if Evidence::is_gpu;
            "use attention with a flash kernel":
                "otherwise the scores of all pairs are kept for the backward pass",
                if |evidence| evidence.text("flash_attention") == Some("no");
            "use a device with more memory, or a smaller model or input":
                "weights, gradients and states need memory at any batch size";
        }

    host_memory (Validity, Any): "host memory is short";
        about "The job waits for host memory: pages are freed, swapped or read again.";
        signature "tasks wait for memory; little is free; a probe ran out of it";
        thresholds [PRESSURE, HOST_LEFT];
        opens ["num_workers", "prefetch_factor", "batch_size"];
        cures {
            "keep the dataset out of the processes: use mapped files (numpy.memmap, Arrow) instead of lists of Python objects":
                "reference counting gives each worker its own copy of such a list",
                if |evidence| evidence.workers().is_some_and(|workers| workers > 0);
            "add memory, or raise the limit of the control group":
                "the job needs more memory at once than it may use";
        }

    shared_memory (Validity, Any): "shared memory (/dev/shm) is short";
        about "Workers hand over batches in /dev/shm, which is nearly full.";
        signature "/dev/shm is nearly full; a probe ran out of it";
        thresholds [SHARED];
        opens ["num_workers", "prefetch_factor"];
        cures {
            "start the container with --shm-size=8g or --ipc=host":
                "the size is set when the container starts; fewer workers and a shorter queue only need less";
        }
}

/// Returns the gain in samples per second of twice the batch, extrapolated linearly from the step times of half the batch and the
/// whole batch.
fn without_limit(evidence: &Evidence) -> Option<f64> {
    let half = evidence.gain_over_replay(Differential::HalfBatch)?.times;
    // This share of a step's time is the same at any batch size.
    let fixed = (1.0 / half - 1.0).clamp(0.0, 1.0);
    Some(1.0 / (1.0 - fixed / 2.0))
}

/// Returns true if twice the batch does not fit into device memory. Without a GPU, this is host memory.
fn does_not_fit_twice(evidence: &Evidence) -> bool {
    match evidence.ran_out_of_memory() {
        Some((Differential::DoubleBatch, Memory::Device)) => true,
        Some((Differential::DoubleBatch, Memory::Host)) => !evidence.is_gpu(),
        _ => false,
    }
}

fn share_of(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

fn memory_limited(evidence: &Evidence) -> Option<Found> {
    let retries = evidence.observed.memory.allocator_retries.filter(|retries| *retries > 0);
    let used = evidence.observed.memory_headroom().map(|free| 1.0 - free).filter(|used| *used >= NEARLY_FULL.value);
    let failed = does_not_fit_twice(evidence);
    if retries.is_none() && used.is_none() && !failed {
        return None;
    }
    let gain = without_limit(evidence);
    // Full memory is no problem if a larger batch would not be faster.
    if retries.is_none() && gain.is_some_and(|gain| gain < ROOM_PAYS.value) {
        return None;
    }
    let mut found = match gain {
        Some(gain) => {
            let times = shown_times(gain);
            let words = format!("by half the batch, twice of it would have {times} as many samples per second");
            Found::by(Worth::measured(gain, words), Strength::Sign.raised(saved_by(gain)))
        }
        None => Found::new(Worth::unknown("a larger batch does not fit, so its gain cannot be measured")),
    };
    if let Some(retries) = retries {
        let shown = show_number(retries as f64);
        found.add(Strength::Proof, format!("the allocator freed its caches and tried again {shown} times"));
    }
    if let (Some(used), Some(peak)) = (used, evidence.observed.memory.peak_bytes) {
        let (share, peak) = (shown_share(used), show_bytes(peak));
        found.add(Strength::Sign, format!("{share} of the memory is in use at the peak ({peak})"));
    }
    if failed {
        found.add(Strength::Strong, "twice the batch does not fit");
    }
    Some(found)
}

fn host_memory(evidence: &Evidence) -> Option<Found> {
    let pressure = evidence.host(Metric::MemoryPressure).filter(|share| *share >= PRESSURE.value);
    let around = &evidence.around;
    let left = around.memory_available.zip(around.memory).and_then(|(left, all)| share_of(left, all));
    let left = left.filter(|share| *share < HOST_LEFT.value);
    let failed = matches!(evidence.ran_out_of_memory(), Some((_, Memory::Host))) && !does_not_fit_twice(evidence);
    if pressure.is_none() && left.is_none() && !failed {
        return None;
    }
    // Without room in the page cache, the same data is read from storage again and again.
    let rereads = evidence.number("files.cached_share").is_some_and(|cached| cached < 0.5);
    let starved = Starvation::of(evidence).filter(|_| pressure.is_some() && rereads);
    let waited = pressure.map(|share| format!("tasks waited for memory {} of the time", shown_share(share)));
    let worth = match (&starved, pressure, &waited) {
        (Some(starved), ..) if starved.is_measured() => {
            let times = shown_times(starved.times());
            let words = format!("with batches that are there already it is {times} as fast");
            Worth::measured(starved.times(), words)
        }
        (_, Some(share), Some(waited)) => Worth::estimated(times_without(share), waited),
        _ => Worth::unknown("no probe can add memory"),
    };
    let mut found = Found::new(worth);
    found.add_known(Strength::Strong.raised(pressure.unwrap_or(0.0)), waited);
    if starved.is_some() {
        found.add(Strength::Strong, "a step waits for data, and files that were read before come from storage again");
    }
    let shown = |share| format!("{} of the machine's memory is left", shown_share(share));
    found.add_known(Strength::Sign, left.map(shown));
    if failed {
        found.add(Strength::Proof, "a probe ran out of it");
    }
    Some(found)
}

fn shared_memory(evidence: &Evidence) -> Option<Found> {
    let used = evidence.observed.machine.shared_memory_peak_bytes.zip(evidence.around.shared_memory);
    let used = used.and_then(|(used, all)| share_of(used, all)).filter(|share| *share >= SHARED.value);
    let failed = matches!(evidence.ran_out_of_memory(), Some((_, Memory::Shared)));
    if used.is_none() && !failed {
        return None;
    }
    let mut found = Found::new(Worth::unknown("no probe can enlarge it"));
    found.add_known(Strength::Strong, used.map(|share| format!("{} of /dev/shm is in use", shown_share(share))));
    if failed {
        found.add(Strength::Proof, "a probe ran out of it");
    }
    for rule in ["shm_small", "shm_full"] {
        found.add_known(Strength::Hint, evidence.warning(rule));
    }
    Some(found)
}
