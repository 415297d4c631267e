//! Finds the loader's limit from its scaling with workers. A rate that grows until the cores are full means computing; a rate that grows
//! beyond the cores means waiting. If the rate does not grow, workers take turns at a shared resource.

use super::cause::{Threshold, shown_share};
use super::evidence::{Evidence, ratio};
use super::starvation::shown_workers;

/// How the rate of the loader alone grows with the number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scales {
    /// It grows until the cores are full: samples are computed.
    WithCores,
    /// It grows beyond the number of cores, which stay idle: samples wait.
    BeyondCores,
    /// It does not grow although cores are idle: workers wait for each other.
    NotAtAll,
}

pub(super) static MORE_WORKERS: Threshold = Threshold {
    what: "speed of loading with workers over loading in the training process, at least",
    value: 1.2,
    source: "own choice: less may be the cost of a fork and a queue; Lightning warns below 2 workers (data_connector.py)",
};
pub(super) static CORES_FULL: Threshold = Threshold {
    what: "share of the cores that the job keeps busy, at least",
    value: 0.85,
    source: "own choice: beyond it another worker has no core to run on",
};

/// Returns how the loader alone scales, with a description; `None` if too few numbers of workers were tried, or if the result is unclear.
pub(super) fn scales(evidence: &Evidence) -> Option<(Scales, String)> {
    let (rates, used, cores) = (evidence.loader_rates(), evidence.loader_cores(), evidence.cores()?);
    let with_workers = || rates.iter().filter(|(workers, _)| **workers > 0);
    let (few, least) = with_workers().next()?;
    let (many, most) = with_workers().next_back().filter(|(many, _)| **many >= few * 2)?;
    let best = with_workers().map(|(_, rate)| *rate).fold(0.0, f64::max);
    // Cores that other programs use are not idle.
    let free = cores * (1.0 - evidence.foreign_beside_loader()).max(0.05);
    let busy = used.get(many).map(|used| (used / free).min(1.0))?;
    let which = if free < cores { "free cores" } else { "cores" };
    let words = format!(
        "the loader alone: {} with {}, {} with {}, which keep {} of the {which} busy",
        evidence.shown_rate(*least),
        shown_workers(*few),
        evidence.shown_rate(*most),
        shown_workers(*many),
        shown_share(busy)
    );
    if busy >= CORES_FULL.value {
        return Some((Scales::WithCores, words));
    }
    if ratio(best, *least)? < MORE_WORKERS.value {
        // If loading in the training process is faster, the limit is handing batches over, not a shared resource.
        let alone = rates.get(&0).copied().unwrap_or(0.0);
        return (alone < best * MORE_WORKERS.value).then_some((Scales::NotAtAll, words));
    }
    let at_cores = with_workers().rfind(|(workers, _)| f64::from(**workers) <= cores);
    let beyond = at_cores.and_then(|(_, rate)| ratio(*most, *rate)).is_some_and(|times| times >= MORE_WORKERS.value);
    beyond.then_some((Scales::BeyondCores, words))
}

/// Returns true if workers take turns at a shared resource.
pub(super) fn is_shared(evidence: &Evidence) -> bool {
    evidence.workers().is_some_and(|workers| workers > 0)
        && scales(evidence).is_some_and(|(scales, _)| scales == Scales::NotAtAll)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;

    #[test]
    fn cores_that_are_full_or_idle_tell_why_a_rate_does_not_grow() {
        let job = || Job::cpu().cores(2.0);
        let scales = |rates: &[(u32, f64)], used: &[(u32, f64)]| {
            scales(&job().loader(rates).loader_cores(used).evidence()).map(|(scales, _)| scales)
        };
        let computing = scales(&[(0, 110.0), (1, 100.0), (2, 190.0), (4, 195.0)], &[(4, 1.95)]);
        assert_eq!(computing, Some(Scales::WithCores));
        let waiting = scales(&[(0, 110.0), (1, 100.0), (2, 200.0), (8, 780.0)], &[(8, 0.3)]);
        assert_eq!(waiting, Some(Scales::BeyondCores));
        let locked = scales(&[(0, 110.0), (1, 100.0), (2, 101.0), (8, 99.0)], &[(8, 1.1)]);
        assert_eq!(locked, Some(Scales::NotAtAll));
        let handed_over = scales(&[(0, 900.0), (1, 100.0), (2, 101.0), (4, 99.0)], &[(4, 1.1)]);
        assert_eq!(handed_over, None);
        assert_eq!(scales(&[(0, 110.0), (1, 100.0)], &[(1, 1.0)]), None);
    }
}
