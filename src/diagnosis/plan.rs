//! Decides which differential probe runs next: the most informative, until the cause is clear or the time is over.

use std::time::Duration;

use super::cause::{Kind, Strength};
use super::causes::threads;
use super::evidence::{Differential, Evidence, MOSTLY_FIXED};
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
        Some(reason) => Next::LeaveOut(differential, reason),
        None if left < each.max(SHORTEST) => Next::LeaveOut(differential, "no time was left".to_owned()),
        None => Next::Run(differential),
    })
}

/// Returns why the run with one thread is left out.
fn why_not_one_thread(evidence: &Evidence) -> Option<&'static str> {
    if evidence.is_gpu() {
        return Some("it trains on a GPU");
    }
    if evidence.number("threads").is_none_or(|threads| threads <= 1.0) {
        return Some("its operations have one thread");
    }
    threads::contention(evidence).is_none().then_some("its cores are its own")
}

/// Returns why a differential probe does not run.
fn why_not(differential: Differential, evidence: &Evidence, allowed: &Allowed) -> Option<String> {
    let reason = |text: &str| Some(text.to_owned());
    let needs_adapter = !matches!(differential, Differential::OneRank | Differential::Cold);
    if needs_adapter && !allowed.has_adapter {
        return reason("needs adapter = \"torch\" in [step]");
    }
    let verdict = || diagnose(evidence);
    let gain = evidence.gain_without_loader().map(|gain| gain.times);
    let has_loader = evidence.workers().is_some() || evidence.observed.phase_seconds.contains_key("data_wait");
    match differential {
        Differential::Replay | Differential::LoaderOnly if !has_loader => reason("the script iterates no DataLoader"),
        Differential::Replay => None,
        Differential::LoaderOnly => match gain {
            Some(gain) if gain < WITHOUT_LOADER.value => reason("the loader is not the limit"),
            None if evidence.share("data_wait").is_none_or(|wait| wait < WAIT.value) => {
                reason("the loader is not the limit")
            }
            _ => None,
        },
        Differential::NoCommunication => evidence.why_not_without_communication().map(str::to_owned),
        Differential::OneRank => match evidence.ranks() {
            1 => reason("there is one rank"),
            _ if !allowed.can_run_one_rank => reason("the command's launcher is not known"),
            _ => None,
        },
        Differential::OneThread => why_not_one_thread(evidence).map(str::to_owned),
        Differential::DoubleBatch => {
            if threads::gain(evidence).is_some_and(|gain| gain.times >= CLEAR) {
                return reason("threads that wait for each other are the limit by far");
            }
            if gain.is_some_and(|gain| gain >= CLEAR) {
                return reason("the loader is the limit by far");
            }
            if evidence.run(Differential::Replay).is_none() {
                return reason("replayed batches were not measured");
            }
            evidence.batch_size().is_none().then(|| "the loader does not say its batch size".to_owned())
        }
        Differential::EightBatches => match evidence.gain_over_replay(Differential::DoubleBatch) {
            Some(gain) if gain.times >= MOSTLY_FIXED => None,
            Some(_) => reason("a step of twice the batch takes much longer"),
            None => reason("twice the batch was not measured"),
        },
        Differential::HalfBatch => match evidence.ran_out_of_memory() {
            Some((Differential::DoubleBatch, _)) if evidence.batch_size().is_some_and(|size| size > 1) => None,
            Some((Differential::DoubleBatch, _)) => reason("a batch of one has no half"),
            _ => reason("twice the batch tells more"),
        },
        Differential::OtherPrecision => other_precision(evidence).err().map(str::to_owned),
        Differential::Pinned => {
            if !evidence.is_gpu() {
                return reason("no GPU");
            }
            if evidence.flag("loader.pin_memory") == Some(true) || evidence.flag("loader.batch_pinned") == Some(true) {
                return reason("batches are pinned already");
            }
            let copies = evidence.share("host_to_device").is_some_and(|share| share >= WAIT.value);
            (!copies).then(|| "copies take next to no time".to_owned())
        }
        Differential::Cold => {
            if !allowed.can_drop_cache {
                return reason("the data set opens no files that can be dropped from the page cache");
            }
            let is_read = evidence.text("files.kind").is_some_and(|kind| kind != "none");
            if !is_read {
                return reason("the data set opens no files");
            }
            let is_clear = is_clear(&verdict());
            is_clear.then(|| "the cause is clear".to_owned())
        }
    }
}

fn is_clear(verdict: &Verdict) -> bool {
    verdict.sureness >= Strength::Proof.weight() && verdict.top().is_some_and(|top| top.cause.kind == Kind::Bottleneck)
}

/// Returns the number format to compare with.
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
    match differential {
        Differential::LoaderOnly => {
            let workers = sweep(evidence);
            Experiment { workers, seconds: Duration::from_secs(2), ..Experiment::new(Mode::LoaderOnly) }
        }
        Differential::Replay => Experiment::new(Mode::Replay),
        Differential::DoubleBatch => {
            let double = evidence.batch_size().and_then(|size| size.checked_mul(2)).unwrap_or(2);
            Experiment::new(Mode::Replay).with("dataloader.batch_size", i64::from(double))
        }
        Differential::EightBatches => {
            let eight = evidence.batch_size().and_then(|size| size.checked_mul(8)).unwrap_or(8);
            Experiment::new(Mode::Replay).with("dataloader.batch_size", i64::from(eight))
        }
        Differential::HalfBatch => {
            let half = evidence.batch_size().map_or(1, |size| (size / 2).max(1));
            Experiment::new(Mode::Replay).with("dataloader.batch_size", i64::from(half))
        }
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
    /// Round numbers that bound the time of the loader's probe: the most workers, and about the most numbers of workers to try.
    const MOST: u32 = 16;
    const TRIES: usize = 5;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let cores = evidence.cores().map_or(4, |cores| cores.clamp(1.0, 1024.0).ceil() as u32);
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
        let shared = |job: Job| job.with(|job| job.machine.foreign_cpu_share = Some(0.2));
        assert_eq!(why_not(shared(Job::cpu())), None);
        assert_eq!(why_not(Job::cpu().host(Metric::CpuPressure, 0.3)), None);
        for job in [Job::cpu(), shared(Job::gpu()), shared(Job::cpu().number("threads", 1.0))] {
            assert!(why_not(job).is_some());
        }
        // What spins does not tell the fixed cost of a step.
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
