//! Decides whether a step waits for data, what the loader could deliver, and what limits it: the arithmetic behind the causes about
//! data.

use super::cause::{
    Basis, Found, MODERATE, Strength, Worth, saved_by, shown_share, shown_times, thresholds, times_without,
};
use super::evidence::{Differential, Evidence, ratio};
use crate::model::{Measurement, Metric};

thresholds! {
    /// The smallest share of a step at which waiting for data counts.
    WAIT = MODERATE => "share of a step that waits for data, at least",
        "TensorFlow's input-pipeline analyzer and the PyTorch profiler's plugin: 5% is moderate, 20% is high";
    /// The smallest gain of replayed batches at which the loader counts as a limit.
    WITHOUT_LOADER = 1.0 + MODERATE => "speed with replayed batches over the speed of the job, at least",
        "DS-Analyzer (VLDB 2021): synthetic data saves the prep stall; 5% is moderate for TensorFlow's input-pipeline analyzer";
    /// The share of computing in a sample's time below which the sample mostly waits.
    COMPUTES = 0.6 => "share of a sample's time in the dataset that is computing, at least (below it, the dataset waits)",
        "own choice: between a dataset that only computes and a dataset that only waits, with room for waits for a CPU";
    MORE_WORKERS = 1.2 => "gain in the speed of loading or of the job from more workers, at least",
        "own choice: less may be the cost of a fork and a queue; Lightning warns below 2 workers (data_connector.py)";
    CORES_FULL = 0.85 => "share of the cores that the job keeps busy, at least",
        "own choice: beyond it another worker has no core to run on";
}

/// From this gain on, with replayed batches or a warm cache, data is clearly the limit. A round number.
pub(super) const CLEAR: f64 = 1.5;

/// Returns the share of the time in which the device idles because data is missing. It comes from replayed batches if they were
/// measured, else from the step's own report.
pub(super) fn exposed_wait(evidence: &Evidence) -> f64 {
    let saved = evidence.gain_without_loader().map(|gain| saved_by(gain.times));
    saved.or_else(|| evidence.share("data_wait")).unwrap_or(0.0).clamp(0.0, 1.0)
}

/// Returns a message if replayed batches ran slower than the job, beyond both intervals, although the step waits for data. Such
/// a replay is unusable: handing its batches out again costs more than loading them.
pub(super) fn contradicted(evidence: &Evidence, replayed: &Measurement) -> Option<String> {
    let wait = evidence.share("data_wait").filter(|wait| *wait >= WAIT.value)?;
    let (job, replayed) = (evidence.rate()?, evidence.rate_of_run(replayed)?);
    let at_most = replayed.high.unwrap_or(replayed.value) / job.low.unwrap_or(job.value);
    (at_most < 1.0).then(|| {
        format!(
            "replayed batches were slower than the job ({} and {}), though {} of a step waits for data",
            evidence.shown_rate(replayed.value),
            evidence.shown_rate(job.value),
            shown_share(wait)
        )
    })
}

/// Returns the share of waiting for data in the time of all steps of the run. `None` if no phase of the run was timed.
///
/// [`Evidence::share`] covers only the steps that the throughput counts, which may be few.
fn wait_in_run(evidence: &Evidence) -> Option<f64> {
    const OUTSIDE: [&str; 3] = ["evaluation", "checkpoint", "epoch_edge"];
    let account = evidence.observed.account.as_ref().filter(|account| !account.phases.is_empty())?;
    let outside: f64 = OUTSIDE.iter().map(|phase| account.share(phase).value).sum();
    ratio(account.share("data_wait").value, 1.0 - outside).or(Some(0.0))
}

/// A step that waits for data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Starvation {
    wait: Option<f64>,
    worth: Worth,
    /// The strength of replayed batches as evidence; `None` if the worth has another source.
    strength: Option<Strength>,
}

impl Starvation {
    /// Detects whether a step waits for data: by replayed batches if they were measured, else by the step's own report.
    pub(super) fn of(evidence: &Evidence) -> Option<Self> {
        let wait = evidence.share("data_wait");
        let Some(gain) = evidence.gain_without_loader() else {
            let wait = wait.filter(|wait| *wait >= WAIT.value)?;
            // The report shows the account, so a limit that contradicts it would look wrong, and often is.
            if wait_in_run(evidence).is_some_and(|wait| wait < WAIT.value) {
                return None;
            }
            let words = format!("{} of a step is waiting for data", shown_share(wait));
            let worth = Worth::estimated(times_without(wait), words);
            return Some(Self { wait: Some(wait), worth, strength: None });
        };
        let waits = wait.is_some_and(|wait| wait >= WAIT.value);
        // The wait costs nothing if replayed batches are no faster: the device works while the host waits.
        if gain.times < WITHOUT_LOADER.value || (!waits && gain.at_least < WITHOUT_LOADER.value) {
            return None;
        }
        let rates = evidence.rate_of(Differential::Replay).zip(evidence.rate());
        let words = rates.map_or_else(String::new, |(replayed, job)| {
            format!(
                "replayed batches: {}, the job: {}",
                evidence.shown_rate(replayed.value),
                evidence.shown_rate(job.value)
            )
        });
        let strength = if gain.at_least >= WITHOUT_LOADER.value { Strength::Strong } else { Strength::Hint };
        Some(Self { wait, worth: Worth::measured(gain.times, words), strength: Some(strength) })
    }

    /// Makes the starvation of a job that waits only while the cache is cold.
    pub(super) fn when_cold(evidence: &Evidence, times: f64) -> Option<Self> {
        let words = format!("with a warm cache it is {} as fast as with a cold one", shown_times(times));
        let wait = evidence.share("data_wait");
        Some(Self { wait, worth: Worth::measured(times, words), strength: None })
    }

    /// Returns the speedup of the job without its loader.
    pub(super) fn times(&self) -> f64 {
        self.worth.times.unwrap_or(1.0)
    }

    /// Returns the common part of the findings of all causes about data.
    pub(super) fn found(&self, evidence: &Evidence) -> Found {
        let mut found = Found::new(self.worth.clone());
        if let Some(wait) = self.wait.filter(|wait| *wait >= WAIT.value) {
            found.add(Strength::Hint.raised(wait), format!("{} of a step is waiting for data", shown_share(wait)));
        }
        if let Some(strength) = self.strength {
            let times = self.worth.times.map_or_else(String::new, |times| format!(" ({})", shown_times(times)));
            found.add(strength, format!("{}{times}", self.worth.words));
        }
        let words = |name: &str| format!("gputune cannot set the workers of {name}, which is no torch DataLoader");
        found.add_known(Strength::Told, evidence.text("loader.other").map(words));
        if let (Some(workers), Some(rate)) = (evidence.workers(), evidence.loader_rate()) {
            let slow = evidence
                .rate_of(Differential::Replay)
                .is_some_and(|replayed| rate < replayed.value * WITHOUT_LOADER.value);
            found.add(
                if slow { Strength::Hint } else { Strength::Told },
                format!("the loader alone, {}: {}", shown_workers(workers), evidence.shown_rate(rate)),
            );
        }
        found
    }

    /// Describes a wait that no other cause explains.
    pub(super) fn shown_wait(&self) -> String {
        match self.wait {
            Some(wait) => format!("no other cause explains that {} of a step waits for data", shown_share(wait)),
            None => "no other cause explains that the job is faster without its loader".to_owned(),
        }
    }

    pub(super) fn is_measured(&self) -> bool {
        self.worth.basis == Basis::Measured
    }
}

pub(super) fn shown_workers(workers: u32) -> String {
    if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") }
}

/// How the loader's own rate rises with the number of workers.
pub(super) struct Scaling {
    /// The best rate divided by the rate with the job's own number of workers.
    pub(super) times: f64,
    pub(super) words: String,
}

/// Returns the speedup of the loader alone with the best number of workers.
pub(super) fn scaling(evidence: &Evidence) -> Option<Scaling> {
    let rates = evidence.loader_rates();
    let today = evidence.loader_rate()?;
    let (workers, best) = rates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let words = format!("with {} the loader alone gives {}", shown_workers(workers), evidence.shown_rate(best));
    Some(Scaling { times: ratio(best, today)?, words })
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    pub(super) workers: u32,
    /// The expected speedup of the job.
    pub(super) times: f64,
}

/// Returns the smallest number of workers whose expected speed is within 5 % of the best expected.
pub(super) fn with_workers(evidence: &Evidence) -> Option<Expected> {
    let all: Vec<Expected> = evidence
        .loader_rates()
        .into_keys()
        .filter_map(|workers| Some(Expected { workers, times: expected(evidence, workers)? }))
        .collect();
    let best = all.iter().map(|expected| expected.times).fold(f64::NAN, f64::max);
    all.into_iter().find(|expected| expected.times >= best * (1.0 - WAIT.value))
}

/// Returns the expected speedup of the job with a number of workers, from the rates of its parts.
///
/// If the model overestimates the current rate, its rates are scaled down by the same factor. The exception is a change to 0
/// workers: no loader worker then competes with the step.
pub(super) fn expected(evidence: &Evidence, workers: u32) -> Option<f64> {
    let job = evidence.rate()?.value;
    let then = modelled(evidence, workers)?;
    if workers == 0 && evidence.workers() != Some(0) {
        return ratio(then, job);
    }
    let now = evidence.workers().and_then(|workers| modelled(evidence, workers)).unwrap_or(job).max(job);
    ratio(then, now)
}

/// Returns the modelled rate of the whole job with a number of workers.
///
/// Without workers, loading and training take turns in the training process. With workers, the slowest of loader, device and cores
/// decides (Plumber's law of the minimum, MLSys 2022). If two are about equal, the result is somewhat lower, since a queue is empty now
/// and then.
pub(super) fn modelled(evidence: &Evidence, workers: u32) -> Option<f64> {
    joined(evidence, workers, *evidence.loader_rates().get(&workers)?)
}

/// Returns the rate of the whole job with its own workers if samples took only their computing time.
pub(super) fn without_waiting(evidence: &Evidence) -> Option<f64> {
    let workers = evidence.workers()?;
    let loader = ratio(f64::from(workers.max(1)), evidence.item_cpu()?)?;
    joined(evidence, workers, loader)
}

/// Returns the rate of the whole job with a loader that alone delivers this many samples per second.
fn joined(evidence: &Evidence, workers: u32, loader: f64) -> Option<f64> {
    let device = evidence.rate_of(Differential::Replay)?.value;
    if workers == 0 {
        return ratio(1.0, 1.0 / device + 1.0 / loader);
    }
    let limits = [Some(device), Some(loader), core_limit(evidence)];
    /// The order of the norm that joins the rates: the higher, the more the slowest rate decides. A round number, as in
    /// the model of a step (`larger` in `physics/step.rs`).
    const SHARPNESS: f64 = 4.0;
    let sum: f64 = limits.into_iter().flatten().map(|limit| limit.powf(-SHARPNESS)).sum();
    let rate = sum.powf(-1.0 / SHARPNESS);
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// Returns the samples per second that the cores allow if loading and training share them.
pub(super) fn core_limit(evidence: &Evidence) -> Option<f64> {
    let cores = evidence.cores()? * (1.0 - evidence.foreign()).max(0.05);
    let replay = evidence.run(Differential::Replay)?;
    let busy = replay.machine.host.get(&Metric::CpuCores)?.value;
    let training = ratio(busy, evidence.rate_of(Differential::Replay)?.value)?;
    let loading = evidence.item_cpu()?;
    ratio(cores, training + loading)
}

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
    use crate::model::{Account, Estimate};

    #[test]
    fn a_wait_counts_from_its_threshold_on() {
        for (wait, is_starved) in [(0.049, false), (0.051, true), (0.9, true)] {
            let evidence = Job::cpu().wait(wait).evidence();
            assert_eq!(Starvation::of(&evidence).is_some(), is_starved, "{wait}");
        }
    }

    #[test]
    fn a_wait_that_the_account_of_the_run_does_not_have_is_no_starvation() {
        let few_steps = Job::cpu().wait(0.3).spent("data_wait", 0.002);
        assert_eq!(Starvation::of(&few_steps.clone().evidence()), None);
        let verdict = crate::diagnosis::diagnose(&few_steps.evidence());
        let title = verdict.top().map(|top| top.cause.title).unwrap_or_default();
        assert!(!title.starts_with("data starvation"), "{title}");
        // Evaluation is not a part of the steps.
        let phases = [("data_wait", 4.0), ("forward", 12.0), ("evaluation", 80.0)];
        let phases = phases.map(|(name, seconds)| (name.to_owned(), Estimate::point(seconds))).into();
        let account = Account { steps_s: 100.0, phases, ..Account::default() };
        let evaluates = Job::cpu().wait(0.3).with(|job| job.account = Some(account));
        assert!(Starvation::of(&evaluates.evidence()).is_some());
        let untimed = Job::cpu().wait(0.3).with(|job| job.account = None);
        assert!(Starvation::of(&untimed.evidence()).is_some());
    }

    #[test]
    fn replayed_batches_have_the_last_word() {
        let evidence = Job::cpu().wait(0.4).replay(101.0).evidence();
        assert_eq!(Starvation::of(&evidence), None);
        let evidence = Job::cpu().wait(0.01).replay(150.0).evidence();
        assert_eq!(Starvation::of(&evidence).unwrap().worth.times, Some(1.5));
    }

    #[test]
    fn replayed_batches_that_are_slower_tell_nothing_of_a_step_that_waits() {
        let slower = Job::cpu().replay(50.0).evidence();
        let replayed = slower.run(Differential::Replay).unwrap();
        let why = |wait: f64| contradicted(&Job::cpu().wait(wait).evidence(), replayed);
        assert!(why(0.7).unwrap().contains("70 % of a step waits"), "{:?}", why(0.7));
        assert_eq!(why(0.01), None);
        let faster = Job::cpu().replay(250.0).evidence();
        let replayed = faster.run(Differential::Replay).unwrap();
        assert_eq!(contradicted(&Job::cpu().wait(0.7).evidence(), replayed), None);
        // Without replayed batches, the wait itself decides.
        let starved = Starvation::of(&Job::cpu().wait(0.7).evidence()).unwrap();
        assert!(starved.times() > 3.0);
    }

    fn taking_turns() -> Job {
        Job::cpu().workers(0).wait(0.5).replay(200.0).loader(&[(0, 200.0), (2, 400.0)])
    }

    #[test]
    fn in_the_training_process_loading_and_training_take_turns() {
        let best = with_workers(&taking_turns().evidence()).unwrap();
        assert_eq!(best.workers, 2);
        assert!((1.8..2.0).contains(&best.times), "{best:?}");
    }

    #[test]
    fn cores_that_are_shared_hold_workers_back() {
        // Training keeps both cores busy, and loading a sample takes 5 ms of one of them.
        let job = taking_turns().cores(2.0).replay_cpu(2.0).item(0.005, 0.005);
        let best = with_workers(&job.evidence()).unwrap();
        assert!(best.times < 1.4, "{best:?}");
    }

    #[test]
    fn cores_that_are_full_or_idle_tell_why_a_rate_does_not_grow() {
        // The rates with 0, 1, 2 and many workers, and the cores that many workers keep busy.
        for (rates, many, busy, expected) in [
            ([110.0, 100.0, 190.0, 195.0], 4, 1.95, Some(Scales::WithCores)),
            ([110.0, 100.0, 200.0, 780.0], 8, 0.3, Some(Scales::BeyondCores)),
            ([110.0, 100.0, 101.0, 99.0], 8, 1.1, Some(Scales::NotAtAll)),
            // Handing batches over to the training process is the limit.
            ([900.0, 100.0, 101.0, 99.0], 4, 1.1, None),
        ] {
            let rates: Vec<(u32, f64)> = [0, 1, 2, many].into_iter().zip(rates).collect();
            let evidence = Job::cpu().cores(2.0).loader(&rates).loader_cores(&[(many, busy)]).evidence();
            assert_eq!(scales(&evidence).map(|(scales, _)| scales), expected, "{rates:?}");
        }
        let few = Job::cpu().cores(2.0).loader(&[(0, 110.0), (1, 100.0)]).loader_cores(&[(1, 1.0)]).evidence();
        assert_eq!(scales(&few), None);
    }
}
