//! Causes in the device itself: kernel launches, memory bandwidth, precisions, arithmetic, clocks.

use super::super::cause::{Found, Strength, Worth, causes, shown_share, shown_times, thresholds, times_without};
use super::super::evidence::{Differential, Evidence, Gain, MOSTLY_FIXED};
use super::super::starvation::{CLEAR, WAIT, WITHOUT_LOADER};
use super::host::synchronising_calls;
use super::larger_batch::{Larger, fixed_share};
use super::ranks::EXPOSED;
use super::tenants::gain_of_one_thread;
use crate::model::{Metric, Precision};

thresholds! {
    PER_STEP = 1.25 => "gain in samples per second with twice the batch, at least, for any rates within both intervals",
        "twice the batch takes at most 1.6 times as long, so 40% is fixed cost (TensorFlow's analyzer calls 15% in kernel launches high)";
    SM_LOW = 0.5 => "SM activity, below", "DCGM user guide, profiling metrics: below 0.5 is likely ineffective use";
    GAPS = 0.25 => "share of a step in which the GPU idles within forward, backward and optimizer, at least",
        "own choice: twice the error of GPU busy against nvidia-smi (10 points), and more than the 15% that TensorFlow's analyzer calls high";
    SM_HIGH = 0.8 => "SM activity, at least",
        "DCGM user guide, profiling metrics: 0.8 is needed, though not enough, for effective use";
    DRAM = 0.6 => "use of the device memory's bandwidth, at least",
        "KempnerPulse calls 0.5 memory-bound if SM activity is below 0.5; about 0.8 is the practical maximum (DCGM user guide)";
    TENSOR_IDLE = 0.05 => "activity of the tensor cores, below",
        "PyTorch profiler's plugin: none at all, on a GPU that has them; with room for a last layer";
    FORMAT_GAIN = 1.2 => "speed in the other precision over the speed of the job, at least",
        "own choice: less does not pay for a change of the numerics";
    CORES_USED = 0.7 => "share of the cores that a job on the CPU keeps busy, at least",
        "own choice: gaps between parallel loops idle less";
    HEAT = 0.1 => "share of the time in which heat or a power limit lowered the clocks, at least",
        "own choice: the start of a load explains less than a tenth of the time (NVML, clock event reasons)";
}

causes! {
    launch_bound (Bottleneck, Any): "launch-bound: the batch is small";
        about "Much of a step costs the same at any batch size: kernel launches, Python, the optimizer.";
        signature "twice the batch takes less than twice as long; or the GPU idles within forward, backward and optimizer; or SM activity is low while the GPU is busy";
        thresholds [PER_STEP, GAPS, SM_LOW];
        opens ["batch_size", "compile", "fused_optimizer", "channels_last"];
        cures {
            "use fewer and larger operations: foreach or fused optimizers, torch.compile, CUDA graphs":
                "each launch costs the host microseconds; gputune opens the settings that need no change of the script",
                if Evidence::is_gpu;
            "use less Python in the training loop": "it runs in each step";
        }

    memory_bandwidth (Bottleneck, Gpu): "bound by the bandwidth of device memory";
        about "Kernels move much data and compute little, so the memory is the limit.";
        signature "high use of the memory's bandwidth while the tensor cores are nearly idle";
        thresholds [DRAM];
        opens ["precision", "compile", "sdpa", "channels_last", "fused_optimizer"];
        cures {
            "use scaled_dot_product_attention with a flash kernel":
                "otherwise the script writes the scores of all pairs to memory",
                if |evidence| evidence.text("flash_attention") != Some("yes");
            "use a fused optimizer (fused=True), fused normalisation and fused activations":
                "each separate operation reads and writes all of the data again",
                if |evidence| evidence.flag("optimizer_fused") != Some(true);
        }

    wrong_precision (Bottleneck, Gpu): "wrong precision: the tensor cores are idle";
        about "Matrices are multiplied in a precision that is slow on this GPU.";
        signature "full precision on a GPU with idle tensor cores; another format is faster";
        thresholds [TENSOR_IDLE, FORMAT_GAIN];
        opens ["precision", "batch_size"];
        cures {
            "make the sizes of layers and batches multiples of 8 (16 for fp8)":
                "tensor cores work on tiles; other sizes are padded or do not use them";
        }

    thermal_throttling (Validity, Gpu): "throttling: the GPU is too hot";
        about "Heat or the power supply keeps the clocks down.";
        signature "heat lowered the clocks for a share of the time";
        thresholds [HEAT];
        cures {
            "improve the cooling: air flow, fans, inlet temperature, dust":
                "a setting only lowers the temperature by computing less; measurements before and after differ";
        }

    power_cap (Bottleneck, Gpu): "power cap";
        about "The GPU's power limit is set below its default, and keeps the clocks down.";
        signature "a power limit below the default lowered the clocks for a share of the time";
        thresholds [HEAT];
        opens ["precision"];
        cures {
            "as root: nvidia-smi -pl WATTS up to the default, unless the limit is meant":
                "no setting of the job changes the limit";
        }

    compute_bound (Healthy, Any): "compute";
        about "The device computes nearly all the time.";
        signature "the step does not wait for data; twice the batch takes about twice as long; the device is busy";
        thresholds [WAIT, WITHOUT_LOADER, PER_STEP, SM_HIGH, CORES_USED];
        opens ["precision", "compile", "batch_size", "num_workers"];
        cures {
            "use a faster device, or more devices": "settings alone will not help much";
        }
}

/// Returns the share of a step in which the GPU idles within its own phases: it waits for the host to launch the next kernel.
fn launch_gaps(evidence: &Evidence) -> Option<f64> {
    // A call that waits for the device also makes it idle.
    if synchronising_calls(evidence).is_some() {
        return None;
    }
    let busy = evidence.gpu(Metric::GpuBusy).filter(|_| evidence.is_gpu())?;
    let phases: f64 = ["forward", "backward", "optimizer"].iter().filter_map(|phase| evidence.share(phase)).sum();
    Some(phases - busy).filter(|gaps| *gaps >= GAPS.value)
}

fn launch_bound(evidence: &Evidence) -> Option<Found> {
    // Threads that wait for each other also cost the same at any batch size.
    let threads = gain_of_one_thread(evidence);
    if threads.is_some_and(|gain| gain.times >= CLEAR) {
        return None;
    }
    let larger = Larger::of(evidence);
    let sm = evidence.gpu(Metric::SmActive).filter(|active| *active < SM_LOW.value);
    // The device's readings alone count only if it is busy; an idle device has another bottleneck.
    let by_device = evidence.is_gpu()
        && sm.is_some()
        && evidence.gpu(Metric::GpuBusy).is_some_and(|busy| busy >= 0.4)
        && evidence.share("data_wait").is_some_and(|wait| wait < WAIT.value);
    let is_measured = larger.is_some();
    // Only the lower bound of the gain counts: on a machine whose speed changes, twice the batch may gain by chance.
    let gain = evidence.gain_over_replay(Differential::DoubleBatch);
    let unsure = gain.map_or(1.0, |gain| gain.at_least / gain.times);
    let by_batch = larger.filter(|larger| larger.twice * unsure >= PER_STEP.value);
    let gaps = launch_gaps(evidence);
    if by_batch.is_none() && (is_measured || !by_device && gaps.is_none()) {
        return None;
    }
    let worth = match (&by_batch, gaps) {
        (Some(larger), _) => larger.worth(evidence),
        (None, Some(gaps)) => Worth::estimated(times_without(gaps), "without the gaps between kernels".to_owned()),
        (None, None) => Worth::unknown("twice the batch was not measured"),
    };
    let mut found = Found::new(worth.clone());
    let idles = "the GPU idles, within forward, backward and optimizer: it waits for the next launch";
    found.add_known(Strength::Strong, gaps.map(|gaps| format!("{} of a step {idles}", shown_share(gaps))));
    if let Some(Larger { twice, .. }) = by_batch {
        let strength = if twice >= MOSTLY_FIXED { Strength::Proof } else { Strength::Strong };
        let fixed = shown_share(fixed_share(twice));
        found.add(strength, format!("{}: {fixed} of a step is there whatever the batch", worth.words));
    }
    if evidence.ranks() > 1 && evidence.share("communication").is_some_and(|share| share >= EXPOSED.value) {
        found.against(Strength::Hint, "a larger batch also exchanges less for each sample");
    }
    if threads.is_some() {
        found.against(Strength::Strong, "with one thread it is faster");
    }
    let active = sm.filter(|_| evidence.is_gpu());
    found.add_known(Strength::Sign, active.map(|active| format!("SM activity is {}", shown_share(active))));
    Some(found)
}

fn memory_bandwidth(evidence: &Evidence) -> Option<Found> {
    if !evidence.is_gpu() {
        return None;
    }
    let dram = evidence.gpu(Metric::DramActive)?;
    let sm = evidence.gpu(Metric::SmActive);
    let tensor = evidence.gpu(Metric::TensorActive);
    let is_low = sm.is_some_and(|active| active < SM_LOW.value) && dram >= 0.5;
    if dram < DRAM.value && !is_low || tensor.is_some_and(|active| active >= 0.3) {
        return None;
    }
    let other = evidence.gain_over_replay(Differential::OtherPrecision).filter(|gain| gain.times > 1.0);
    let unknown = || Worth::unknown("no probe can take the memory's limit away");
    let mut found = Found::new(other.map_or_else(unknown, in_half_precision));
    let words = format!("the memory's bandwidth is used {} (about 80 % is all there is)", shown_share(dram));
    found.add(Strength::Strong, words);
    found.add_known(Strength::Hint, tensor.map(shown_tensor_cores));
    Some(found)
}

fn in_half_precision(gain: Gain) -> Worth {
    let words = format!("replayed in half precision it is {} as fast", shown_times(gain.times));
    Worth::measured(gain.times, words).by_parameters(Some(gain.times))
}

fn shown_tensor_cores(active: f64) -> String {
    format!("the tensor cores work {} of the time", shown_share(active))
}

fn wrong_precision(evidence: &Evidence) -> Option<Found> {
    if !evidence.is_gpu() || evidence.precision().is_some_and(|precision| precision != Precision::Fp32) {
        return None;
    }
    let has_tensor_cores = evidence.around.compute_capability.is_some_and(|capability| capability >= (7, 0));
    let idle = evidence.gpu(Metric::TensorActive).filter(|active| *active < TENSOR_IDLE.value);
    let gain = evidence.gain_over_replay(Differential::OtherPrecision);
    if gain.is_some_and(|gain| gain.times < FORMAT_GAIN.value)
        || gain.is_none() && (idle.is_none() || !has_tensor_cores)
    {
        return None;
    }
    let mut found = match gain {
        Some(gain) => Found::by(in_half_precision(gain), Strength::Proof),
        None => Found::new(Worth::unknown("no other precision was measured")),
    };
    found.add_known(Strength::Strong, idle.map(shown_tensor_cores));
    if evidence.precision() == Some(Precision::Fp32) {
        found.add(Strength::Hint, "matrices are multiplied in fp32");
    }
    Some(found)
}

fn thermal_throttling(evidence: &Evidence) -> Option<Found> {
    let share = evidence.gpu(Metric::ThrottledByHeat).filter(|share| *share >= HEAT.value)?;
    let mut found = Found::new(Worth::unknown("no probe can cool the GPU"));
    found.add(Strength::Proof, format!("heat kept the clocks down {} of the time", shown_share(share)));
    Some(found)
}

fn power_cap(evidence: &Evidence) -> Option<Found> {
    let share = evidence.gpu(Metric::ThrottledByPower).filter(|share| *share >= HEAT.value)?;
    // At full load, a GPU usually reaches its default power limit. Only a lower limit is a cause.
    let message = evidence.warning("power_capped")?;
    let mut found = Found::new(Worth::unknown("no probe can raise the limit"));
    found.add(Strength::Strong, format!("a power limit kept the clocks down {} of the time", shown_share(share)));
    found.add(Strength::Strong, message);
    Some(found)
}

fn compute_bound(evidence: &Evidence) -> Option<Found> {
    // Without a rate, nothing is known about the job.
    evidence.rate().map(|_| ()).or_else(|| evidence.observed.throughput.map(|_| ()))?;
    let mut found =
        Found::new(Worth { times: Some(1.0), words: "nothing is waited for".to_owned(), ..Worth::default() });
    let wait = evidence.share("data_wait").filter(|wait| *wait < WAIT.value);
    found.add_known(Strength::Sign, wait.map(|wait| format!("{} of a step is waiting for data", shown_share(wait))));
    let replayed = evidence.gain_without_loader().filter(|gain| gain.times < WITHOUT_LOADER.value);
    let shown = |gain: Gain| format!("replayed batches are no faster ({:.2}x)", gain.times);
    found.add_known(Strength::Sign, replayed.map(shown));
    let doubled = evidence.gain_over_replay(Differential::DoubleBatch).filter(|gain| gain.times < PER_STEP.value);
    let shown = |gain: Gain| format!("twice the batch has {:.2}x as many samples per second", gain.times);
    found.add_known(Strength::Sign, doubled.map(shown));
    if evidence.is_gpu() {
        for (metric, least, strength, words) in [
            (Metric::SmActive, SM_HIGH.value, Strength::Strong, "SM activity is"),
            (Metric::TensorActive, 0.5, Strength::Sign, "tensor cores work"),
            (Metric::GpuBusy, 1.0 - WAIT.value, Strength::Hint, "the GPU is busy"),
        ] {
            let share = evidence.gpu(metric).filter(|share| *share >= least);
            found.add_known(strength, share.map(|share| format!("{words} {}", shown_share(share))));
        }
        if let Some(share) = evidence.gpu(Metric::SmActive).filter(|share| *share < SM_LOW.value) {
            found.against(Strength::Strong, format!("SM activity is {}", shown_share(share)));
        }
    } else if let (Some(busy), Some(cores)) = (evidence.host(Metric::CpuCores), evidence.cores()) {
        let share = (busy / cores).min(1.0);
        if share >= CORES_USED.value {
            found.add(Strength::Sign, format!("{} of the cores are busy", shown_share(share)));
        }
    }
    (!found.clues.is_empty()).then_some(found)
}
