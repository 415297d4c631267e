//! Data starvation without a known reason, or from a resource that workers share.

use super::super::account::{Account, Branch};
use super::super::cause::{Found, SURE_ENOUGH, Strength, Worth, causes, shown_share, thresholds, times_without};
use super::super::evidence::Evidence;
use super::super::lines;
use super::super::starvation::{
    self, COMPUTES, CORES_FULL, MORE_WORKERS, Starvation, WAIT, WITHOUT_LOADER, is_shared, scales,
};
use super::data;
use super::{loader, memory, tenants};

thresholds! {
    LOCKS = 0.33 => "share of the workers' loading time in lines that take a lock, at least",
        "own choice: a lock that takes less than a third is one reason among several";
}

causes! {
    shared_source (Bottleneck, Any): "data starvation: workers wait for each other";
        about "Workers share a resource that serves one of them at a time: a lock, a disk, a server, an interpreter.";
        signature "more workers do not help although cores are idle, or the workers' time goes into lines that take a lock";
        thresholds [WAIT, WITHOUT_LOADER, MORE_WORKERS, CORES_FULL, LOCKS];
        cures {
            "give each worker its own files, archives and connections: open them in `worker_init_fn` or at the first sample":
                "a shared resource serves one worker at a time; more workers only queue";
            "hold the lock only for the access, and decode outside of it":
                "only one worker at a time runs the code within the lock";
            "copy the data to a local disk or into memory before the run":
                "a busy disk or server serves more workers no faster";
        }

    data_starvation (Bottleneck, Any): "data starvation for an unknown reason";
        about "The step waits for data, and no measurement shows the reason.";
        signature "no other cause of the wait is likely";
        thresholds [WAIT, WITHOUT_LOADER];
        opens ["num_workers", "prefetch_factor", "persistent_workers"];
        cures {
            "raise the threads or workers of the loader in the script":
                "gputune can set only a torch DataLoader", if |evidence| evidence.text("loader.other").is_some();
            "look at the lines of the dataset that `gputune diagnose` lists":
                "the wait was measured, but not its reason";
        }
}

fn shared_source(evidence: &Evidence) -> Option<Found> {
    let locks = lines::locks(evidence).filter(|(share, _)| *share >= LOCKS.value);
    // Samples that compute do not wait for each other.
    let computes = evidence.item_cpu_share().is_some_and(|share| share >= COMPUTES.value);
    let takes_turns = scales(evidence).filter(|_| is_shared(evidence) && !computes);
    let is_explained = loader::imbalance(evidence).is_some() || loader::choosing(evidence).is_some();
    if is_explained || (locks.is_none() && takes_turns.is_none()) {
        return None;
    }
    let starved = Starvation::of(evidence)?;
    let mut found = starved.found(evidence);
    found.add_known(Strength::Strong, takes_turns.map(|(_, words)| words));
    let locks = locks.map(|(share, place)| {
        format!("{} of the workers' loading is in locks, such as {}", shown_share(share), place.shown())
    });
    found.add_known(Strength::Strong, locks);
    found.add_known(Strength::Told, data::spent(evidence));
    let best = starvation::with_workers(evidence).map_or(1.0, |best| best.times);
    found.worth = found.worth.by_parameters(Some(best));
    Some(found)
}

fn data_starvation(evidence: &Evidence) -> Option<Found> {
    /// Causes outside the loader that explain a wait for data.
    const BESIDE: [&str; 4] = ["host_memory", "shared_memory", "cpu_quota", "crowded_cores"];
    let starved = Starvation::of(evidence)?;
    let beside = memory::CAUSES.iter().chain(tenants::CAUSES).filter(|cause| BESIDE.contains(&cause.name));
    let others = data::CAUSES.iter().chain(loader::CAUSES).chain(&CAUSES[..1]).chain(beside);
    let mut found = starved.found(evidence);
    // Limit the worth to the wait. Replayed batches may save more, such as the cost of watching the job.
    let in_run = || Account::of(evidence).map(|account| account.share(Branch::Data));
    let wait = evidence.share("data_wait").or_else(in_run).filter(|wait| *wait >= WAIT.value)?;
    let most = times_without(wait);
    if found.worth.times.is_some_and(|times| times > most) {
        let words = format!("{}; the wait is {}", found.worth.words, shown_share(wait));
        found.worth = Worth { times: Some(most), words, ..found.worth };
    }
    // Ignore clues about the wait itself, which do not explain it.
    let explains = |mut other: Found| {
        other.clues.retain(|clue| !found.clues.contains(clue));
        other.sureness() >= SURE_ENOUGH
    };
    if others.filter_map(|cause| (cause.find)(evidence)).any(explains) {
        return None;
    }
    found.add(Strength::Strong, starved.shown_wait());
    found.add_known(Strength::Told, data::spent(evidence));
    found.add_known(Strength::Told, scales(evidence).map(|(_, words)| words));
    found.worth = found.worth.by_parameters(starvation::with_workers(evidence).map(|best| best.times));
    Some(found)
}
