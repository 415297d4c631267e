//! Causes from other programs on the same machine: a quota, shared cores, a shared GPU, and threads that then wait for each other.

use super::super::cause::{
    Found, LARGE, MODERATE, Strength, Worth, causes, shown_gain, shown_share, thresholds, times_without,
};
use super::super::evidence::{Differential, Evidence, Gain};
use super::super::starvation::Starvation;
use crate::model::{Metric, quantity::show_bytes};

thresholds! {
    THROTTLED = 0.1 => "share of the quota's periods in which it was used up, at least",
        "own choice: a period counts whole even if the quota ran out at its end (kernel documentation, scheduler/sched-bwc.rst)";
    KEPT_WAITING = 0.15 => "share of the time in which tasks of the job wait for a CPU, at least",
        "own choice: a job whose tasks find a free core at once loses nothing";
    FOREIGN = LARGE.value => "share of CPU time that other programs took while almost none was idle, at least",
        "own choice: a desktop takes a fifth of two cores; another training program takes more";
    CONTENDED = MODERATE =>
        "share of CPU time that other programs took while almost none was idle, at least, to try one thread",
        "own choice: the probe takes seconds, and a thread that spins loses much more than the share of its neighbour";
    ONE_THREAD = 1.1 => "speed with one thread over the speed of the job, at least",
        "own choice: on cores of their own, more threads are never that much slower than one";
}

causes! {
    cpu_quota (Validity, Any): "the control group's CPU quota";
        about "The container is stopped whenever its CPU time is used up.";
        signature "share of the quota's periods in which it was used up";
        thresholds [THROTTLED];
        opens ["num_workers", "threads"];
        cures {
            "raise or remove the quota (docker run --cpus, resources.limits.cpu in Kubernetes)":
                "no setting of the job avoids it; fewer workers and threads only share it better";
        }

    crowded_cores (Validity, Any): "another tenant: other programs on the same cores";
        about "Other programs use the cores that the job runs on.";
        signature "other programs took CPU time, almost none was idle, and the job's tasks waited for a CPU";
        thresholds [FOREIGN, KEPT_WAITING];
        opens ["threads", "num_workers"];
        cures {
            "end the other programs, or give each program its own cores (taskset, cpuset, a reservation)":
                "the job cannot use their CPU time; these numbers hold only for an equally busy machine";
        }

    shared_gpu (Validity, Gpu): "another tenant: other programs on the GPU";
        about "Another program computes on the same GPU, so they share its time.";
        signature "the driver lists foreign processes";
        thresholds [];
        cures {
            "end the other program, or use another GPU (CUDA_VISIBLE_DEVICES)":
                "measurements next to it say little, and no setting returns its share";
        }

    spinning_threads (Bottleneck, Any): "threads compete with other programs";
        about "The threads of an operation wait for each other in a busy loop, while another program holds the core of one of them.";
        signature "the cores are shared; with one thread the job is faster";
        thresholds [CONTENDED, KEPT_WAITING, ONE_THREAD];
        opens ["threads"];
        cures {}
}

fn cpu_quota(evidence: &Evidence) -> Option<Found> {
    let share = evidence.host(Metric::CpuThrottled).filter(|share| *share >= THROTTLED.value)?;
    let mut found = Found::new(Worth::unknown("no probe can run without the quota"));
    let words = format!("the quota was used up in {} of its periods", shown_share(share));
    found.add(Strength::Strong.raised(share), words);
    found.add_known(Strength::Sign, evidence.warning("quota_below_cores"));
    Some(found)
}

fn crowded_cores(evidence: &Evidence) -> Option<Found> {
    let share = Some(evidence.foreign()).filter(|share| *share >= FOREIGN.value)?;
    let waited = evidence.host(Metric::CpuPressure);
    if waited.is_some_and(|waited| waited < KEPT_WAITING.value) {
        return None;
    }
    // The gain cannot exceed the lost time, nor the share of other programs.
    let lost = waited.map_or(share, |waited| waited.min(share));
    let words = format!("other programs took {} of the processors, and next to none was idle", shown_share(share));
    let mut found = Found::by(Worth::estimated(times_without(lost), words), Strength::Strong);
    found.add_known(Strength::Hint, waited.map(shown_waiting));
    if evidence.is_gpu() && Starvation::of(evidence).is_none() {
        found.against(Strength::Strong, "the GPU does not wait for the host");
    }
    Some(found)
}

fn shared_gpu(evidence: &Evidence) -> Option<Found> {
    if !evidence.is_gpu() {
        return None;
    }
    let message = evidence.warning("foreign_process")?;
    let mut found = Found::new(Worth::unknown("no probe can run without it"));
    found.add(Strength::Proof, message);
    if let Some(bytes) = evidence.gpu(Metric::MemoryOthers).filter(|bytes| *bytes > 1e9) {
        let bytes = show_bytes(bytes.min(1e18) as u64);
        found.add(Strength::Hint, format!("other processes hold {bytes} of its memory"));
    }
    Some(found)
}

fn shown_waiting(share: f64) -> String {
    format!("tasks of the job waited for a processor {} of the time", shown_share(share))
}

/// Returns why the cores count as shared; `None` if the job has them to itself.
pub(in crate::diagnosis) fn contention(evidence: &Evidence) -> Option<String> {
    let foreign = Some(evidence.foreign()).filter(|share| *share >= CONTENDED.value);
    let foreign = foreign.map(|share| format!("other programs took {} of the processors", shown_share(share)));
    let waited = evidence.host(Metric::CpuPressure).filter(|share| *share >= KEPT_WAITING.value);
    foreign.or(waited.map(shown_waiting))
}

pub(in crate::diagnosis) fn gain_of_one_thread(evidence: &Evidence) -> Option<Gain> {
    let threads = evidence.run(Differential::OneThread)?.facts.number("threads");
    // The script or another variable may set the threads itself.
    if threads.is_some_and(|threads| threads > 1.0) {
        return None;
    }
    evidence.gain_of(Differential::OneThread).filter(|gain| gain.times >= ONE_THREAD.value && gain.at_least >= 1.0)
}

fn spinning_threads(evidence: &Evidence) -> Option<Found> {
    let (why, gain) = (contention(evidence)?, gain_of_one_thread(evidence)?);
    let words = shown_gain(evidence, Differential::OneThread, gain.times);
    // The threads explain the gain only if the other programs were as busy as before.
    let then = evidence.run(Differential::OneThread).and_then(|run| run.machine.foreign_cpu_share).unwrap_or(0.0);
    let strength = if then >= evidence.foreign() / 2.0 { Strength::Proof } else { Strength::Strong };
    let mut found = Found::by(Worth::measured(gain.times, words).by_parameters(Some(gain.times)), strength);
    found.add(Strength::Hint, why);
    Some(found)
}
