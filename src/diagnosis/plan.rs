//! Decides which differential probe runs next: the most informative, until the cause is clear or the time is over.

use std::time::Duration;

use super::cause::{Kind, Strength};
use super::causes::tenants;
use super::evidence::{Differential, Evidence, MOSTLY_FIXED};
use super::openings::cores;
use super::starvation::{CLEAR, COMPUTES, WAIT, WITHOUT_LOADER};
use super::verdict::{Verdict, diagnose};
use crate::model::Precision;
use crate::probe::{Experiment, Mode};

/// The probes that a job allows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allowed {
    /// True if an adapter's hook is loaded. Nearly all differential probes need it.
    pub has_adapter: bool,
    /// True if the command can run with one rank.
    pub can_run_one_rank: bool,
    /// True if the files of the dataset can be dropped from the page cache.
    pub can_drop_cache: bool,
}

/// The decision about a differential probe.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Run it.
    Run(Differential),
    /// Leave it out, for this reason.
    LeaveOut(Differential, String),
}

/// The order in which differential probes are considered: each after the probes that it depends on.
const ORDER: [Differential; 11] = [
    Differential::Replay,
    Differential::LoaderOnly,
    Differential::NoCommunication,
    Differential::OneRank,
    Differential::OneThread,
    Differential::DoubleBatch,
    Differential::EightBatches,
    Differential::HalfBatch,
    Differential::OtherPrecision,
    Differential::Pinned,
    Differential::Cold,
];

/// The shortest remaining time in which another probe starts: a round number.
const SHORTEST: Duration = Duration::from_secs(4);

/// Decides about the next probe; `None` when every probe has been considered. `left` is the remaining time, `each` the expected time of
/// a probe.
///
/// A pure function of its arguments.
pub fn next(evidence: &Evidence, allowed: &Allowed, left: Duration, each: Duration) -> Option<Next> {
    let differential = ORDER.into_iter().find(|which| evidence.runs.iter().all(|(known, _)| known != which))?;
    Some(match why_not(differential, evidence, allowed) {
        Some(reason) => Next::LeaveOut(differential, reason.to_owned()),
        None if left < each.max(SHORTEST) => Next::LeaveOut(differential, "no time was left".to_owned()),
        None => Next::Run(differential),
    })
}

fn why_not(differential: Differential, evidence: &Evidence, allowed: &Allowed) -> Option<&'static str> {
    let needs_adapter = !matches!(differential, Differential::OneRank | Differential::Cold);
    if needs_adapter && !allowed.has_adapter {
        return Some("needs adapter = \"torch\" in [step]");
    }
    let gain = evidence.gain_without_loader().map(|gain| gain.times);
    // The hook cannot replay the batches of another loader.
    let may_have_loader = evidence.text("loader.other").is_none();
    let waits = evidence.observed.phase_seconds.contains_key("data_wait");
    let has_loader = evidence.workers().is_some() || (waits && may_have_loader);
    // The first reason that holds.
    let first = |reasons: &[(bool, &'static str)]| reasons.iter().find(|(holds, _)| *holds).map(|(_, reason)| *reason);
    match differential {
        Differential::Replay | Differential::LoaderOnly if !has_loader => Some("the script iterates no DataLoader"),
        Differential::Replay => None,
        Differential::LoaderOnly => {
            let waits = || evidence.share("data_wait").is_some_and(|wait| wait >= WAIT.value);
            let is_limit = gain.map_or_else(waits, |gain| gain >= WITHOUT_LOADER.value);
            (!is_limit).then_some("the loader is not the limit")
        }
        Differential::NoCommunication => evidence.why_not_without_communication(),
        Differential::OneRank => first(&[
            (evidence.ranks() == 1, "there is one rank"),
            (!allowed.can_run_one_rank, "the command's launcher is not known"),
        ]),
        Differential::OneThread => first(&[
            (evidence.is_gpu(), "it trains on a GPU"),
            (evidence.number("threads").is_none_or(|threads| threads <= 1.0), "its operations have one thread"),
            (tenants::contention(evidence).is_none(), "its cores are its own"),
        ]),
        Differential::DoubleBatch => {
            let by_threads = tenants::gain_of_one_thread(evidence).is_some_and(|gain| gain.times >= CLEAR);
            first(&[
                (by_threads, "threads that wait for each other are the limit by far"),
                (gain.is_some_and(|gain| gain >= CLEAR), "the loader is the limit by far"),
                (evidence.run(Differential::Replay).is_none(), "replayed batches were not measured"),
                (evidence.batch_size().is_none(), "the loader does not say its batch size"),
            ])
        }
        Differential::EightBatches => match evidence.gain_over_replay(Differential::DoubleBatch) {
            Some(gain) if gain.times >= MOSTLY_FIXED => None,
            Some(_) => Some("a step of twice the batch takes much longer"),
            None => Some("twice the batch was not measured"),
        },
        Differential::HalfBatch => match evidence.ran_out_of_memory() {
            Some((Differential::DoubleBatch, _)) if evidence.batch_size().is_some_and(|size| size > 1) => None,
            Some((Differential::DoubleBatch, _)) => Some("a batch of one has no half"),
            _ => Some("twice the batch tells more"),
        },
        Differential::OtherPrecision => other_precision(evidence).err(),
        Differential::Pinned => {
            let is = |flag: &str| evidence.flag(flag) == Some(true);
            let copies = evidence.share("host_to_device").is_some_and(|share| share >= WAIT.value);
            first(&[
                (!evidence.is_gpu(), "no GPU"),
                (is("loader.pin_memory") || is("loader.batch_pinned"), "batches are pinned already"),
                (!copies, "copies take next to no time"),
            ])
        }
        Differential::Cold => {
            let opens_files = evidence.text("files.kind").is_some_and(|kind| kind != "none");
            first(&[
                (!allowed.can_drop_cache, "the dataset opens no files that can be dropped from the page cache"),
                (!opens_files, "the dataset opens no files"),
                (is_clear(&diagnose(evidence)), "the cause is clear"),
            ])
        }
    }
}

fn is_clear(verdict: &Verdict) -> bool {
    verdict.sureness >= Strength::Proof.weight() && verdict.top().is_some_and(|top| top.cause.kind == Kind::Bottleneck)
}

fn other_precision(evidence: &Evidence) -> Result<Precision, &'static str> {
    let Some(capability) = evidence.around.compute_capability.filter(|_| evidence.is_gpu()) else {
        return Err("no GPU");
    };
    match evidence.precision() {
        Some(Precision::Fp32 | Precision::Tf32) | None => {}
        Some(_) => return Err("it trains in half precision already"),
    }
    if evidence.run(Differential::Replay).is_none() {
        return Err("replayed batches were not measured");
    }
    let formats = [Precision::Bf16, Precision::Fp16].into_iter();
    formats.into_iter().find(|format| format.is_in_hardware(capability)).ok_or("the GPU has no half precision")
}

/// Returns the experiment for a differential probe, with the settings that it needs.
pub fn experiment(differential: Differential, evidence: &Evidence) -> Experiment {
    let times = |factor: u32| evidence.batch_size().and_then(|size| size.checked_mul(factor)).unwrap_or(factor);
    let replayed = |batch: u32| Experiment::new(Mode::Replay).with("dataloader.batch_size", i64::from(batch));
    match differential {
        Differential::LoaderOnly => {
            let workers = sweep(evidence);
            Experiment { workers, seconds: Duration::from_secs(2), ..Experiment::new(Mode::LoaderOnly) }
        }
        Differential::Replay => Experiment::new(Mode::Replay),
        Differential::DoubleBatch => replayed(times(2)),
        Differential::EightBatches => replayed(times(8)),
        Differential::HalfBatch => replayed(evidence.batch_size().map_or(1, |size| (size / 2).max(1))),
        Differential::OtherPrecision => {
            let precision = other_precision(evidence).unwrap_or(Precision::Fp32);
            Experiment::new(Mode::Replay).with("torch.precision", precision.name())
        }
        Differential::Pinned => Experiment::new(Mode::Observe).with("dataloader.pin_memory", true),
        Differential::NoCommunication => Experiment { observe: true, ..Experiment::new(Mode::NoCommunication) },
        Differential::OneThread => Experiment::new(Mode::Observe).with("env.OMP_NUM_THREADS", 1),
        Differential::Cold | Differential::OneRank => Experiment::new(Mode::Observe),
    }
}

/// Returns the numbers of workers to try: 0, 1, the job's own, and powers of two up to twice the cores. The limit is four times the
/// cores if samples mostly wait.
fn sweep(evidence: &Evidence) -> Vec<u32> {
    /// Round numbers that bound the time of the loader's probe: the most workers, and about how many numbers of workers to try.
    const MOST: u32 = 16;
    const TRIES: usize = 5;
    let cores = cores(evidence);
    let waits = evidence.item_cpu_share().is_some_and(|share| share < COMPUTES.value);
    let most = if waits { cores * 4 } else { cores * 2 }.clamp(2, MOST);
    let today = evidence.workers().filter(|workers| *workers <= 64);
    let mut workers: Vec<u32> = (1..=4).rev().map(|power| 1_u32 << power).filter(|count| *count <= most).collect();
    // Keep the large numbers, which are more informative than the medium numbers. One worker is the reference for scaling.
    workers.truncate(TRIES - 2);
    workers.extend([0, 1]);
    workers.extend(today);
    workers.sort_unstable();
    workers.dedup();
    workers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Ran;
    use crate::diagnosis::sample::Job;
    use crate::model::Metric;

    const LONG: Duration = Duration::from_secs(60);
    const ALL: Allowed = Allowed { has_adapter: true, can_run_one_rank: false, can_drop_cache: true };

    /// Returns all decisions when each requested probe fails.
    fn decided(job: &Job, allowed: &Allowed) -> Vec<(Differential, bool)> {
        let (mut evidence, mut decided) = (job.evidence(), Vec::new());
        while let Some(what) = next(&evidence, allowed, LONG, Duration::ZERO) {
            let (differential, runs) = match what {
                Next::Run(differential) => (differential, true),
                Next::LeaveOut(differential, reason) => {
                    assert!(!reason.is_empty());
                    (differential, false)
                }
            };
            decided.push((differential, runs));
            evidence.runs.push((differential, Ran::LeftOut("as scripted".to_owned())));
        }
        decided
    }

    #[test]
    fn every_differential_is_decided_once() {
        for job in [Job::cpu(), Job::gpu(), Job::cpu().wait(0.5), Job::gpu().text("precision", "fp32")] {
            let decided = decided(&job, &ALL);
            let mut seen: Vec<Differential> = decided.into_iter().map(|(which, _)| which).collect();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), super::super::DIFFERENTIALS.len());
        }
    }

    #[test]
    fn the_batches_of_another_loader_are_not_replayed() {
        let mut job = Job::cpu().wait(0.5).text("loader.other", "FastLoader");
        assert!(decided(&job, &ALL).contains(&(Differential::Replay, true)));
        job = job.number("loader.workers", -1.0); // unknown
        assert!(decided(&job, &ALL).contains(&(Differential::Replay, false)));
    }

    #[test]
    fn without_an_adapter_nothing_is_run() {
        let job = Job::cpu().wait(0.5);
        let allowed = Allowed::default();
        assert!(decided(&job, &allowed).into_iter().all(|(_, runs)| !runs));
    }

    #[test]
    fn what_is_clear_is_not_asked_again() {
        let starved = Job::cpu().wait(0.6).replay(250.0).evidence();
        assert_eq!(next(&starved, &ALL, LONG, LONG), Some(Next::Run(Differential::LoaderOnly)));
        let fed = Job::cpu().replay(101.0).evidence();
        let Some(Next::LeaveOut(Differential::LoaderOnly, reason)) = next(&fed, &ALL, LONG, LONG) else { panic!() };
        assert!(reason.contains("not the limit"));
        let Some(Next::LeaveOut(_, reason)) = next(&starved, &ALL, Duration::from_secs(1), LONG) else { panic!() };
        assert_eq!(reason, "no time was left");
    }

    #[test]
    fn the_sweep_has_todays_workers_and_none() {
        assert_eq!(sweep(&Job::cpu().workers(3).cores(2.0).evidence()), [0, 1, 2, 3, 4]);
        assert_eq!(sweep(&Job::cpu().workers(0).cores(16.0).evidence()), [0, 1, 4, 8, 16]);
        assert_eq!(sweep(&Job::cpu().workers(2).cores(1.0).evidence()), [0, 1, 2]);
    }

    #[test]
    fn one_thread_is_tried_where_the_cores_are_shared() {
        let why_not = |job: Job| why_not(Differential::OneThread, &job.evidence(), &ALL);
        let shared = |job: Job| job.foreign(0.2);
        assert_eq!(why_not(shared(Job::cpu())), None);
        assert_eq!(why_not(Job::cpu().host(Metric::CpuPressure, 0.3)), None);
        for job in [Job::cpu(), shared(Job::gpu()), shared(Job::cpu().number("threads", 1.0))] {
            assert!(why_not(job).is_some());
        }
        // Threads that spin hide the fixed cost of a step.
        let spins = shared(Job::cpu()).replay(100.0).ran(Differential::OneThread, 400.0);
        assert!(super::why_not(Differential::DoubleBatch, &spins.evidence(), &ALL).unwrap().contains("threads"));
    }

    #[test]
    fn another_number_format_is_tried_where_the_gpu_has_it() {
        let job = Job::gpu().text("precision", "fp32").replay(100.0);
        assert_eq!(other_precision(&job.evidence()), Ok(Precision::Bf16));
        let old = job.clone().around(|around| around.compute_capability = Some((7, 0)));
        assert_eq!(other_precision(&old.evidence()), Ok(Precision::Fp16));
        assert!(other_precision(&Job::gpu().replay(100.0).evidence()).is_err());
        assert!(other_precision(&Job::cpu().replay(100.0).evidence()).is_err());
    }
}
