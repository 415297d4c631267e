//! Causes for batches that come late although the loader is fast enough on average.

use super::super::account::Account;
use super::super::cause::{
    Found, Strength, Worth, causes, saved_by, shown_share, shown_times, thresholds, times_without,
};
use super::super::evidence::{Evidence, ratio};
use super::super::lines::{self, Place};
use super::super::starvation::{self, Starvation, WAIT, WITHOUT_LOADER, shown_workers};
use crate::model::quantity::{show_count, show_seconds};

thresholds! {
    AHEAD = 1.15 => "speed of the loader alone over the speed of the job, at least",
        "own choice: a slower loader is too slow on average, with any queue";
    QUEUE = 8.0 => "batches in the queue (workers times prefetch factor), at most",
        "M/M/1/K queue as in tf.data's model (tensorflow/core/framework/model.h): at equal rates a queue of 2 costs 33 %, of 8 11 %, of 32 3 %";
    UNEVEN = 2.0 => "time of the slowest samples (95%) over the mean, to call samples uneven, at least",
        "own choice: it is near 1 with equal samples, and 3 with exponential times";
    FEW = 1.2 => "mean time of a sample over the time that 95% stay below, to call samples uneven, at least",
        "own choice: a mean beyond nearly all values comes from a few large values";
    IMBALANCE = 1.3 => "working time of the busiest worker over the mean of all, at least",
        "own choice: workers get batches in order, so chance alone stays below 1.2 within seconds";
    EPOCH_EDGE = 0.02 => "share of the time that the edge of an epoch takes, at least",
        "own choice: below it the noise of a search hides it";
    WITHOUT_WORKERS = 1.1 => "expected speed of the job without workers over its speed, at least",
        "own choice: less is within what the model of the loader is off; a batch is pickled, put into shared memory and opened again (torch.multiprocessing's documentation)";
}

causes! {
    too_little_prefetch (Bottleneck, Any): "data starvation: too little prefetching";
        about "The loader is fast enough on average, but its queue runs empty when samples take longer than usual.";
        signature "the loader alone is faster than the job; its queue holds few batches; samples take unequal time";
        thresholds [WAIT, WITHOUT_LOADER, AHEAD, QUEUE, UNEVEN, FEW];
        opens ["prefetch_factor", "num_workers", "pin_memory"];
        cures {
            "use DataLoader(in_order=False) (torch 2.6 or later; it changes the order of batches)":
                "a slow batch no longer holds up the finished batches", if |evidence| uneven(evidence).is_some();
        }

    worker_imbalance (Bottleneck, Any): "data starvation: unequal loader workers";
        about "One worker has much more work than the rest. Batches come in order, so all workers wait for it.";
        signature "the busiest worker works much longer than the mean of all";
        thresholds [WAIT, WITHOUT_LOADER, IMBALANCE];
        opens ["num_workers", "prefetch_factor"];
        cures {
            "give all workers equal work: shuffle, or split an iterable dataset by cost instead of by number":
                "the slowest worker sets the rate of all";
            "use DataLoader(in_order=False) (torch 2.6 or later; it changes the order of batches)":
                "finished batches no longer wait for the slow worker";
        }

    slow_sampler (Bottleneck, Any): "data starvation: a slow sampler";
        about "Choosing the samples of the next batch is slow, and it always runs in the training process.";
        signature "the training thread spends at least half of the wait in the sampler or batch sampler";
        thresholds [WAIT, WITHOUT_LOADER];
        cures {
            "choose all batches at the start of an epoch, by operations on whole arrays (sort by length and cut)":
                "the sampler runs in the training process between two steps, so no worker helps";
            "let the workers choose: an IterableDataset, or indices computed from the sample's number":
                "workers do this while the step trains";
        }

    worker_overhead (Bottleneck, Any): "data starvation: handing batches over between processes";
        about "Workers make samples faster than they can hand them to the training process.";
        signature "the step is faster without the loader; it has workers; without workers it should be faster";
        thresholds [WAIT, WITHOUT_LOADER, WITHOUT_WORKERS];
        opens ["num_workers", "prefetch_factor"];
        cures {
            "fetch whole batches: `__getitems__` in the dataset, or a BatchSampler with batch_size=None":
                "a slice of a tensor costs as much as one sample, and needs no collating";
            "keep the data on the device if it fits, and index it there":
                "nothing is copied between processes or to the device", if Evidence::is_gpu;
        }

    worker_start (Bottleneck, Any): "workers start anew at each epoch";
        about "Each epoch starts new workers, and begins with an empty queue.";
        signature "the edge of an epoch or its first batch takes a share of the time; workers are not persistent";
        thresholds [EPOCH_EDGE];
        opens ["persistent_workers", "num_workers"];
        cures {
            "make the dataset start fast: open files at the first sample, import less, fork instead of spawn":
                "each worker repeats this in each epoch";
        }
}

/// Describes uneven samples. Either slow samples take several times the mean, or a few samples take most of the time. In the second
/// case nearly all samples take less than the mean.
fn uneven(evidence: &Evidence) -> Option<String> {
    let (slow, mean) = (evidence.number("loader.item_seconds_p95")?, evidence.number("loader.item_seconds")?);
    let (times, few) = (ratio(slow, mean)?, ratio(mean, slow)?);
    if times >= UNEVEN.value {
        return Some(format!("slow samples take {} as long as the mean", shown_times(times)));
    }
    (few >= FEW.value)
        .then(|| format!("few samples take most of the time: the mean is {} what 95 % stay below", shown_times(few)))
}

/// Returns the rate of the loader alone over the job's rate, if it is high enough and the cores also allow it during training.
pub(super) fn is_ahead(evidence: &Evidence) -> Option<f64> {
    evidence.workers().filter(|workers| *workers > 0)?;
    let job = evidence.rate()?.value;
    let times = ratio(evidence.loader_rate()?, job).filter(|times| *times >= AHEAD.value)?;
    // If loading and training share the cores, the loader alone has more cores than in the job.
    let held_back = starvation::core_limit(evidence).is_some_and(|rate| rate < job * AHEAD.value);
    (!held_back).then_some(times)
}

/// Returns the speedup from a longer queue, if the queue is short: up to the loader's own rate, or the rate without the loader.
fn with_a_longer_queue(evidence: &Evidence, starved: &Starvation) -> Option<f64> {
    let times = is_ahead(evidence)?;
    evidence.queue().filter(|queue| *queue <= QUEUE.value)?;
    Some(starved.found(evidence).worth.times.map_or(times, |most| most.min(times)))
}

fn too_little_prefetch(evidence: &Evidence) -> Option<Found> {
    let workers = evidence.workers()?;
    let starved = Starvation::of(evidence)?;
    let times = is_ahead(evidence)?;
    let (alone, job) = (evidence.loader_rate()?, evidence.rate()?.value);
    let queue = evidence.queue().filter(|queue| *queue <= QUEUE.value)?;
    // Workers that start anew at each epoch, or hand batches over slowly, explain an empty queue.
    let is_explained = worker_start(evidence).is_some() || worker_overhead(evidence).is_some();
    // A queue that is never empty is long enough. Replayed batches then save something else, such as an evaluation.
    let never_waits = evidence.share("data_wait").is_some_and(|wait| wait < WAIT.value);
    if is_explained || never_waits || choosing(evidence).is_some() {
        return None;
    }
    let mut found = starved.found(evidence);
    let (shown, rate) = (shown_times(times), evidence.shown_rate(alone));
    let words = format!("the loader alone, {}, is {shown} as fast as the job ({rate})", shown_workers(workers));
    found.add(Strength::Sign, words);
    found.add(Strength::Sign, format!("at most {} batches wait in its queue", show_count(queue)));
    found.add_known(Strength::Sign, uneven(evidence));
    // A longer queue does not deliver batches faster on average than the loader makes them.
    if found.worth.times.is_some_and(|most| most > times) {
        let words = format!("{}; the loader alone: {rate}", found.worth.words);
        found.worth = Worth { times: Some(times), words, ..found.worth };
    }
    let by_parameters = starvation::modelled(evidence, workers).and_then(|rate| ratio(rate, job));
    found.worth = found.worth.by_parameters(by_parameters.filter(|_| starved.is_measured()));
    Some(found)
}

/// Returns the work of the busiest worker over the mean of all workers, if it reaches the threshold.
pub(super) fn imbalance(evidence: &Evidence) -> Option<f64> {
    evidence.number("loader.worker_imbalance").filter(|times| *times >= IMBALANCE.value)
}

fn worker_imbalance(evidence: &Evidence) -> Option<Found> {
    let workers = evidence.workers().filter(|workers| *workers > 1)?;
    let imbalance = imbalance(evidence)?;
    let starved = Starvation::of(evidence)?;
    let mut found = starved.found(evidence);
    let (workers, shown) = (shown_workers(workers), shown_times(imbalance));
    found.add(Strength::Proof, format!("the busiest of {workers} works {shown} as long as the mean of all"));
    // Evenly spread, the same work would end this many times as fast.
    if found.worth.times.is_some_and(|times| times > imbalance) {
        let words = format!("{}; {shown} of it by even workers", found.worth.words);
        found.worth = Worth { times: Some(imbalance), words, ..found.worth };
    }
    Some(found)
}

/// Returns the share of a step that chooses the next batch, with its line, if it is at least half of the wait for data.
pub(super) fn choosing(evidence: &Evidence) -> Option<(f64, Option<Place>)> {
    let least = (evidence.share("data_wait").unwrap_or(0.0) / 2.0).max(WAIT.value);
    lines::choosing(evidence).filter(|(share, _)| *share >= least)
}

fn slow_sampler(evidence: &Evidence) -> Option<Found> {
    let (share, place) = choosing(evidence)?;
    let starved = Starvation::of(evidence)?;
    let mut found = starved.found(evidence);
    let at = place.map_or_else(String::new, |place| format!(", most of it in {}", place.shown()));
    found.add(Strength::Proof, format!("{} of a step is choosing the next batch{at}", shown_share(share)));
    found.worth = found.worth.by_parameters(Some(1.0));
    Some(found)
}

pub(super) fn worker_overhead(evidence: &Evidence) -> Option<Found> {
    let workers = evidence.workers().filter(|workers| *workers > 0)?;
    let starved = Starvation::of(evidence)?;
    let none = starvation::with_workers(evidence).filter(|best| best.workers == 0);
    let none = none.filter(|best| best.times >= WITHOUT_WORKERS.value)?;
    if imbalance(evidence).is_some() || worker_start(evidence).is_some() || choosing(evidence).is_some() {
        return None;
    }
    // Handing batches over also costs time in this case, but less than the empty queue.
    if with_a_longer_queue(evidence, &starved).is_some_and(|times| times > none.times) {
        return None;
    }
    let mut found = starved.found(evidence);
    let (alone, with) = (*evidence.loader_rates().get(&0)?, evidence.loader_rate()?);
    let words = format!(
        "the loader alone: {} without workers, {} with {workers}",
        evidence.shown_rate(alone),
        evidence.shown_rate(with)
    );
    found.add(Strength::Sign.raised(saved_by(alone / with)), words);
    found.add(Strength::Sign, format!("without workers the job should be {} as fast", shown_times(none.times)));
    found.worth = found.worth.by_parameters(Some(none.times));
    Some(found)
}

fn worker_start(evidence: &Evidence) -> Option<Found> {
    evidence.workers().filter(|workers| *workers > 0)?;
    if evidence.flag("loader.persistent_workers") == Some(true) {
        return None;
    }
    let step = evidence.step()?;
    let edges = evidence.observed.timing.outliers.get("epoch").filter(|edges| edges.steps > 0);
    let measured = evidence.observed.timing.measured_seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    let lost = edges.zip(measured).map(|(edges, measured)| {
        let lost = (edges.seconds - edges.steps as f64 * step).max(0.0);
        lost / (lost + measured)
    });
    let first = evidence.number("loader.first_batch_seconds");
    let epoch = evidence.number("loader.batches").map(|batches| batches * step);
    let by_first = first.zip(epoch).map(|(first, epoch)| first / (first + epoch));
    let account = Account::of(evidence);
    let in_account = account.as_ref().and_then(|account| account.leaf("epoch_edge")).map(|leaf| leaf.share_after_start);
    let lost = [lost, in_account].into_iter().flatten().reduce(f64::max);
    let share = lost.or(by_first).filter(|share| share.is_finite() && *share >= EPOCH_EDGE.value)?;
    let words = match (lost, first) {
        (Some(lost), _) => format!("{} of the time is lost at the edges of epochs", shown_share(lost)),
        (None, first) => {
            format!("the first batch takes {}, {} of an epoch", show_seconds(first.unwrap_or(0.0)), shown_share(share))
        }
    };
    let mut worth = Worth::estimated(times_without(share), words.clone());
    // If the loader is fast once it runs, all waiting comes from its start.
    let is_fast =
        evidence.loader_rate().zip(evidence.rate()).is_some_and(|(alone, job)| alone >= job.value * AHEAD.value);
    if let Some(starved) = Starvation::of(evidence).filter(|starved| is_fast && starved.is_measured()) {
        worth = worth.or_more(starved.times(), "replayed batches");
    }
    let mut found = Found::new(worth.clone().by_parameters(worth.times));
    found.add(Strength::Strong, words);
    let long = first.filter(|first| lost.is_some() && *first > 5.0 * step);
    let shown = |first| format!("the first batch took {}, a step takes {}", show_seconds(first), show_seconds(step));
    found.add_known(Strength::Hint, long.map(shown));
    found.add(Strength::Hint, "workers are not persistent");
    Some(found)
}
