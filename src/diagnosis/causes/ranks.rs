//! Causes in distributed jobs: time that ranks lose to each other.

use super::super::cause::{
    Found, MODERATE, Strength, Worth, causes, saved_by, shown_gain, shown_share, shown_times, thresholds, times_without,
};
use super::super::evidence::{Differential, Evidence, ratio};
use super::super::exposed::{Exposed, OPENED};

thresholds! {
    EXPOSED = 0.1 => "share of a step that waits for other ranks, at least",
        "PyTorch profiler's plugin: communication over 10 % of a step";
    SCALING = 1.0 - EXPOSED.value => "rate of all ranks over the rate of one rank times their number, below",
        "PyTorch profiler's plugin: 10% of a step";
    SLOWEST = 1.0 + MODERATE => "computing time of the slowest rank over the median of all, at least",
        "own choice: ranks with equal work differ by less over a probe, and all wait for the slowest";
}

fn may_be_nccl(evidence: &Evidence) -> bool {
    evidence.text("distributed.backend").is_none_or(|backend| backend.contains("nccl"))
}

causes! {
    communication (Bottleneck, Ranks): "communication between ranks";
        about "Ranks wait for the exchange of gradients or weights.";
        signature "training without communication is faster; or, if not measured, time in collectives, or many ranks do less than many times one rank";
        thresholds [OPENED, EXPOSED, SCALING];
        opens [
            "bucket_cap_mb", "compression", "gradient_as_bucket_view", "reshard_after_forward", "prefetch_depth",
            "sharding_strategy", "batch_size", "grad_accumulation", "precision", "nccl_channels", "nccl_chunk_size",
        ];
        cures {
            "check that NCCL uses NVLink, InfiniBand, GPUDirect and the right network (NCCL_DEBUG=INFO)":
                "the link is the limit, and it is chosen outside the job", if may_be_nccl;
        }

    straggler (Bottleneck, Ranks): "a straggling rank";
        about "One rank computes longer than the rest, and all wait for it.";
        signature "the slowest rank computes longer than the median";
        thresholds [SLOWEST];
        cures {
            "check this rank's device: clocks, other programs, PCIe link (gputune device)":
                "the same work takes longer on it";
            "give all ranks equal work: samples of similar length, or equal numbers of tokens":
                "the longest sequence of all ranks sets the step's time";
        }
}

fn communication(evidence: &Evidence) -> Option<Found> {
    let ranks = evidence.ranks();
    if ranks < 2 {
        return None;
    }
    match evidence.exposed_without_communication() {
        Some(exposed) => of_experiment(evidence, &exposed),
        None => of_shares(evidence, ranks),
    }
}

/// Finds communication by a probe that trains without it. The worth is the measured speedup, whatever the phases show.
fn of_experiment(evidence: &Evidence, exposed: &Exposed) -> Option<Found> {
    let share = evidence.share("communication").filter(|share| *share >= EXPOSED.value);
    if exposed.is_small() && share.is_none() {
        return None;
    }
    let words = format!("communication is {}", exposed.words());
    let mut found = Found::new(Worth::measured(exposed.times, words));
    let waits = share.map(|share| format!("{} of a step is waiting for other ranks", shown_share(share)));
    if exposed.is_small() {
        found.add_known(Strength::Sign, waits);
        let times = shown_times(exposed.times);
        let words = format!("training without exchange of gradients or weights is {times} as fast");
        found.against(Strength::Strong, words);
        return Some(found);
    }
    let is_beyond_doubt = exposed.share.low.is_some_and(|low| low >= OPENED.value);
    let gained = shown_gain(evidence, Differential::NoCommunication, exposed.times);
    found.add(if is_beyond_doubt { Strength::Proof } else { Strength::Strong }, gained);
    found.add_known(Strength::Hint, waits);
    Some(found)
}

/// Finds communication if no probe trained without it: by the phases, and by a probe of one rank alone.
fn of_shares(evidence: &Evidence, ranks: u32) -> Option<Found> {
    let share = evidence.share("communication").filter(|share| *share >= EXPOSED.value);
    let efficiency = evidence
        .rate_of(Differential::OneRank)
        .zip(evidence.rate())
        .and_then(|(one, all)| ratio(all.value, one.value * f64::from(ranks)))
        .filter(|efficiency| *efficiency < SCALING.value);
    let mut found = match (efficiency, share) {
        (Some(efficiency), _) => {
            let words = format!("{ranks} ranks do {} of what as many single ones would", shown_share(efficiency));
            Found::by(Worth::measured(1.0 / efficiency, words), Strength::Strong)
        }
        (None, share) => {
            let share = share?;
            let words = format!("{} of a step is communication", shown_share(share));
            Found::new(Worth::estimated(times_without(share), words))
        }
    };
    let shown = |share| format!("{} of a step is communication that nothing hides", shown_share(share));
    found.add_known(Strength::Strong, share.map(shown));
    // A rank that is only a little slower does not explain much communication.
    let lost = found.worth.times.unwrap_or(1.0) - 1.0;
    let explains = |slow: Found| slow.worth.times.is_some_and(|times| times - 1.0 >= lost / 2.0);
    if straggler(evidence).is_some_and(explains) {
        found.against(Strength::Sign, "one rank is slower than the rest, and waiting for it counts as communication");
    }
    Some(found)
}

fn straggler(evidence: &Evidence) -> Option<Found> {
    let times = evidence.observed.facts.by_rank("step_compute_seconds");
    if times.len() < 2 {
        return None;
    }
    let mut sorted: Vec<f64> = times.values().copied().filter(|seconds| seconds.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    // Take the lower of two middle values, so that the faster of two ranks is the reference.
    let median = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    let (rank, slowest) = times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let excess = ratio(slowest, median).filter(|times| *times >= SLOWEST.value)?;
    let words = format!("rank {rank} computes {excess:.2}x as long as the median of all");
    let mut found = Found::by(Worth::estimated(excess, words), Strength::Strong.raised(saved_by(excess)));
    let waits = evidence.share("communication").filter(|share| *share >= EXPOSED.value);
    let shown = |share| {
        let times = shown_times(times_without(share));
        format!("{} of a step is waiting for other ranks ({times} on average)", shown_share(share))
    };
    found.add_known(Strength::Hint, waits.map(shown));
    Some(found)
}
