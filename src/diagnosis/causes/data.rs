//! Causes for a step that waits for data: the reasons why data is late.

use super::super::cause::{
    Basis, Found, LARGE, MODERATE, Strength, Worth, causes, saved_by, shown_share, shown_times, thresholds,
};
use super::super::evidence::{Differential, Evidence, Gain, ratio};
use super::super::starvation::{
    self, CLEAR, COMPUTES, CORES_FULL, MORE_WORKERS, Scales, Starvation, WAIT, WITHOUT_LOADER, is_shared, scales,
    shown_workers,
};
use super::loader::{choosing, imbalance, is_ahead, worker_overhead};
use super::memory::PRESSURE;
use crate::model::{
    Metric,
    quantity::{show_bytes, show_seconds},
};

thresholds! {
    IO_PRESSURE = 0.1 => "share of the time in which some task waited for storage, at least",
        "PSI io `some` over 10% (kernel documentation, accounting/psi.rst)";
    COLD = 1.0 + MODERATE => "slowdown with a cold cache, at least",
        "DS-Analyzer (Mohan et al., VLDB 2021): a warm cache saves the fetch stall";
    SMALL_FILES = 262_144.0 => "mean size of a file in bytes, at most, to call files small",
        "own choice: opening a smaller file costs as much as reading it on network file systems and disks";
}

fn reads_images(evidence: &Evidence) -> bool {
    evidence.text("files.kind") == Some("images")
}

fn reads_small_files(evidence: &Evidence) -> bool {
    let opens = evidence.number("files.opened_per_sample").is_some_and(|files| files >= 0.5);
    opens && evidence.number("files.mean_bytes").is_none_or(|bytes| bytes <= SMALL_FILES.value)
}

fn reads_files(evidence: &Evidence) -> bool {
    evidence.text("files.kind").is_some_and(|kind| kind != "none")
}

causes! {
    cpu_preprocessing (Bottleneck, Any): "data starvation: preprocessing on the CPU";
        about "Decoding and augmenting samples is slower than training on them.";
        signature "the dataset computes; the cores are busy; more workers help until the cores are full";
        thresholds [WAIT, WITHOUT_LOADER, COMPUTES, CORES_FULL];
        opens ["num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "threads"];
        cures {
            "move collate_fn's work on each sample into the dataset, or do it once for the whole batch":
                "making the batch takes most of the time",
                if |evidence| evidence.item_wall().is_some_and(|wall| evidence.collate_each().0 >= wall / 2.0);
            "decode and augment once, and store arrays or images in their final size":
                "each epoch repeats this work, and the cores are full";
            "decode and augment on the GPU (NVIDIA DALI, torchvision.io.decode_jpeg on CUDA, torchvision.transforms.v2)":
                "a GPU decodes images faster than the CPU cores that belong to it",
                if |evidence| evidence.is_gpu() && reads_images(evidence);
            "use a faster decoder (Pillow-SIMD, libjpeg-turbo, torchvision.io)":
                "the cores are full, so only cheaper work helps", if reads_images;
        }

    storage (Bottleneck, Any): "data starvation: storage or network";
        about "Reading samples from storage or the network is slower than training on them.";
        signature "the dataset waits; storage is read; a cold page cache makes it slower";
        thresholds [WAIT, WITHOUT_LOADER, COMPUTES, IO_PRESSURE, COLD, SMALL_FILES];
        opens ["num_workers", "prefetch_factor", "persistent_workers"];
        cures {
            "pack the samples into sharded files (tar for WebDataset, TFRecord, Parquet) and read them in order":
                "opening a small file costs a round trip, and disk or server are full of them", if reads_small_files;
            "store the HDF5 file in chunks of one sample, or of one batch that is read in order":
                "HDF5 reads and decompresses a whole chunk for each sample, with one thread per process",
                if |evidence| evidence.text("files.kind") == Some("hdf5");
            "read each shard from start to end, and shuffle in a buffer":
                "sharded files are fast only in order",
                if |evidence| matches!(evidence.text("files.kind"), Some("tfrecord" | "webdataset" | "parquet"));
            "copy the data to a local NVMe disk or into memory before the run":
                "the storage device is the limit";
            "store smaller samples (smaller images, better compression, half precision)":
                "this reads fewer bytes", if |evidence| !reads_small_files(evidence);
        }

    single_threaded_loader (Bottleneck, Any): "data starvation: a single-threaded loader";
        about "The training process loads its own samples, so loading and training alternate.";
        signature "no workers; with workers the job should be faster";
        thresholds [WAIT, WITHOUT_LOADER, MORE_WORKERS];
        opens ["num_workers", "prefetch_factor", "persistent_workers", "pin_memory"];
        cures {}
}

fn files(evidence: &Evidence) -> Option<String> {
    let opened = evidence.number("files.opened_per_sample").filter(|files| *files > 0.0)?;
    let size = evidence.number("files.mean_bytes").map(|bytes| format!(" of {}", show_bytes(bytes.min(1e18) as u64)));
    let kind = evidence.text("files.kind").filter(|kind| *kind != "other").map(|kind| format!(" ({kind})"));
    Some(format!("{opened:.2} files{} opened for each sample{}", size.unwrap_or_default(), kind.unwrap_or_default()))
}

/// Returns true if loading a sample is too short to make samples late.
fn takes_no_time(evidence: &Evidence) -> bool {
    let workers = f64::from(evidence.workers().unwrap_or(0).max(1));
    let item = evidence.item_wall().zip(evidence.rate());
    item.is_some_and(|(item, rate)| item * rate.value / workers < WAIT.value)
}

/// Describes the time of a sample in the loader: in the dataset, in collating, and the share of computing.
pub(super) fn spent(evidence: &Evidence) -> Option<String> {
    let (wall, share) = (evidence.item_wall()?, evidence.item_cpu_share()?);
    let (collate, _) = evidence.collate_each();
    let of_batch = if collate >= wall / 2.0 {
        format!(", {} of it in making its batch", shown_share(collate / wall))
    } else {
        String::new()
    };
    Some(format!("a sample takes {}, {} of it computing{of_batch}", show_seconds(wall), shown_share(share)))
}

fn cpu_preprocessing(evidence: &Evidence) -> Option<Found> {
    let starved = Starvation::of(evidence)?;
    let computes = evidence.item_cpu_share();
    if takes_no_time(evidence) || is_shared(evidence) || choosing(evidence).is_some() {
        return None;
    }
    if computes.is_some_and(|share| share < COMPUTES.value) && evidence.foreign() == 0.0 && !is_crowded(evidence) {
        return None;
    }
    if evidence.run(Differential::Cold).is_some() && slower_when_cold(evidence).is_some_and(|times| times >= CLEAR) {
        return None;
    }
    let with_cores = scales(evidence).filter(|(scales, _)| *scales == Scales::WithCores);
    let busy = cores_busy(evidence).filter(|busy| *busy >= CORES_FULL.value);
    let scaling = starvation::scaling(evidence).filter(|scaling| scaling.times > WITHOUT_LOADER.value);
    if computes.is_none() && with_cores.is_none() && busy.is_none() && scaling.is_none() {
        // Without any of these signs, a loader that only waits looks the same.
        return None;
    }
    let mut found = starved.found(evidence);
    if let (Some(share), Some(words)) = (computes, spent(evidence)) {
        found.add(if share >= COMPUTES.value { Strength::Strong } else { Strength::Hint }, words);
    }
    found.add_known(Strength::Hint, with_cores.map(|(_, words)| words));
    let shown = |busy| format!("{} of the cores that the job may use are busy", shown_share(busy));
    found.add_known(Strength::Hint, busy.map(shown));
    found.add_known(Strength::Hint, scaling.map(|scaling| scaling.words));
    if evidence.workers() == Some(0) {
        // If loading and training take turns, that explains the wait first.
        found.against(Strength::Hint, "it is loaded in the training process");
    }
    if worker_overhead(evidence).is_some() {
        found.against(Strength::Strong, "it should be faster without workers");
    }
    if is_ahead(evidence).is_some() {
        found.against(Strength::Strong, "the loader alone is faster than the job");
    }
    against_imbalance(evidence, &mut found);
    found.worth = beyond_imbalance(evidence, found.worth);
    found.worth = found.worth.by_parameters(starvation::with_workers(evidence).map(|best| best.times));
    Some(found)
}

/// Weakens a cause if one worker has much more to do than the rest. This imbalance is then the first explanation of the
/// wait.
fn against_imbalance(evidence: &Evidence, found: &mut Found) {
    if imbalance(evidence).is_some() {
        found.against(Strength::Strong, "one worker has much more to do than the rest");
    }
}

/// Returns the worth that remains after spreading the work evenly over the workers, which comes first.
fn beyond_imbalance(evidence: &Evidence, worth: Worth) -> Worth {
    let Some((imbalance, times)) = imbalance(evidence).zip(worth.times) else { return worth };
    let words = format!("{}; {} of it by even workers", worth.words, shown_times(imbalance));
    Worth { times: Some((times / imbalance).max(1.0)), words, ..worth }
}

/// Returns true if the CPU is so busy that waiting for a core can look like waiting for storage.
fn is_crowded(evidence: &Evidence) -> bool {
    evidence.host(Metric::CpuPressure).is_some_and(|share| share >= LARGE.value)
        || cores_busy(evidence).is_some_and(|busy| busy >= CORES_FULL.value)
}

fn cores_busy(evidence: &Evidence) -> Option<f64> {
    Some((evidence.host(Metric::CpuCores)? / evidence.cores()?).min(1.0))
}

/// Returns the slowdown of the job with a cold cache, if it is beyond the intervals of both rates.
fn slower_when_cold(evidence: &Evidence) -> Option<f64> {
    let gain = Gain::between(evidence.rate()?, evidence.rate_of(Differential::Cold)?)?;
    (gain.at_least >= 1.0).then_some(gain.times)
}

fn storage(evidence: &Evidence) -> Option<Found> {
    let cold = slower_when_cold(evidence).filter(|times| *times >= COLD.value);
    let starved = Starvation::of(evidence).or_else(|| Starvation::when_cold(evidence, cold?))?;
    let mut found = starved.found(evidence);
    let mut speaks = false;
    let waits = evidence.item_cpu_share().map(|share| 1.0 - share);
    let pressure = evidence.host(Metric::IoPressure).filter(|share| *share >= IO_PRESSURE.value);
    if let (Some(waits), Some(item)) = (waits, evidence.item_wall())
        && waits >= 1.0 - COMPUTES.value
        && !takes_no_time(evidence)
        && !is_shared(evidence)
    {
        // On crowded cores, waiting for a core looks like waiting for storage. So the dataset must also open files.
        let is_crowded = is_crowded(evidence) && pressure.is_none();
        speaks = !is_crowded || reads_files(evidence);
        let strength = if is_crowded { Strength::Hint } else { Strength::Strong };
        found.add(strength, format!("a sample takes {}, {} of it waiting", show_seconds(item), shown_share(waits)));
    }
    if let Some(share) = pressure {
        speaks = true;
        found.add(Strength::Sign, format!("tasks waited for storage {} of the time", shown_share(share)));
    }
    if let Some(times) = cold {
        speaks = true;
        found.add(Strength::Strong, format!("with a cold cache it is {} as slow", shown_times(times)));
    }
    if let Some(cached) = evidence.number("files.cached_share").filter(|share| *share < 0.5) {
        speaks = true;
        found.add(Strength::Hint, format!("{} of the read bytes came from storage", shown_share(1.0 - cached)));
    }
    if !speaks {
        return None;
    }
    if evidence.host(Metric::MemoryPressure).is_some_and(|share| share >= PRESSURE.value) {
        found.against(Strength::Strong, "memory is short, so files are read from storage again");
    }
    found.add_known(if reads_small_files(evidence) { Strength::Hint } else { Strength::Told }, files(evidence));
    if evidence.workers() == Some(0) {
        found.against(Strength::Hint, "it is loaded in the training process");
    }
    against_imbalance(evidence, &mut found);
    if cold.is_none() {
        found.worth = but_for_computing(evidence, found.worth);
    }
    found.worth = beyond_imbalance(evidence, found.worth);
    found.worth = found.worth.by_parameters(starvation::with_workers(evidence).map(|best| best.times));
    Some(found)
}

/// Limits the worth of storage to the gain if storage answered at once, because samples still have to be computed.
fn but_for_computing(evidence: &Evidence, worth: Worth) -> Worth {
    let job = evidence.rate().map(|rate| rate.value);
    let without = starvation::without_waiting(evidence).zip(job).and_then(|(rate, job)| ratio(rate, job));
    let Some((without, times)) = without.zip(worth.times).filter(|(without, times)| without < times) else {
        return worth;
    };
    // Enough workers hide the waiting, and also compute on more cores.
    let without = starvation::with_workers(evidence).map_or(1.0, |best| best.times).max(without).max(1.0).min(times);
    let words = format!("{} ({}); {} of it without the waiting", worth.words, shown_times(times), shown_times(without));
    Worth { times: Some(without), words, basis: Basis::Estimated, ..worth }
}

fn single_threaded_loader(evidence: &Evidence) -> Option<Found> {
    if evidence.workers() != Some(0) {
        return None;
    }
    let starved = Starvation::of(evidence)?;
    let best = starvation::with_workers(evidence);
    let scaling = starvation::scaling(evidence);
    // Workers also help a loader that is no faster with them, because it then loads while the step trains.
    let helps = [best.map(|best| best.times), scaling.as_ref().map(|scaling| scaling.times)];
    let most = helps.into_iter().flatten().reduce(f64::max);
    if most.is_some_and(|times| times < MORE_WORKERS.value) {
        return None;
    }
    let mut found = starved.found(evidence);
    found.add(Strength::Sign, "the loader has no workers: loading and training take turns");
    if let Some(best) = best.filter(|best| best.workers > 0) {
        let words = format!("{} should make it {} as fast", shown_workers(best.workers), shown_times(best.times));
        found.add(Strength::Sign.raised(saved_by(best.times)), words);
    }
    if let Some(scaling) = scaling.filter(|scaling| scaling.times >= MORE_WORKERS.value) {
        found.add(Strength::Sign.raised(saved_by(scaling.times)), scaling.words);
    }
    found.worth = found.worth.by_parameters(best.map(|best| best.times));
    Some(found)
}
