//! Threads of an operation that wait for each other, because other programs or the job's own processes use the same cores.

use super::super::cause::{Cause, Found, Kind, MODERATE, Scope, Strength, Threshold, Worth, shown_gain, shown_share};
use super::super::evidence::{Differential, Evidence, Gain};
use super::host::KEPT_WAITING;
use crate::model::Metric;

pub(in crate::diagnosis) static CONTENDED: Threshold = Threshold {
    what: "share of CPU time that other programs took while almost none was idle, at least, to try one thread",
    value: MODERATE,
    source: "own choice: the probe takes seconds, and a thread that spins loses much more than the share of its neighbour",
};
static ONE_THREAD: Threshold = Threshold {
    what: "speed with one thread over the speed of the job, at least",
    value: 1.1,
    source: "own choice: on cores of their own, more threads are never that much slower than one",
};

pub(super) static CAUSES: [Cause; 1] = [Cause {
    name: "spinning_threads",
    title: "threads compete with other programs",
    about: "The threads of an operation wait for each other in a busy loop, while another program holds the core of one of them.",
    signature: "the cores are shared; with one thread the job is faster",
    thresholds: &[&CONTENDED, &KEPT_WAITING, &ONE_THREAD],
    kind: Kind::Bottleneck,
    scope: Scope::Any,
    find: spinning_threads,
    opens: &["threads"],
    cures: &[],
}];

/// Returns why the cores count as shared; `None` if the job has them to itself.
pub(in crate::diagnosis) fn contention(evidence: &Evidence) -> Option<String> {
    let foreign = Some(evidence.foreign()).filter(|share| *share >= CONTENDED.value);
    let foreign = foreign.map(|share| format!("other programs took {} of the processors", shown_share(share)));
    let waited = evidence.host(Metric::CpuPressure).filter(|share| *share >= KEPT_WAITING.value);
    let waited =
        waited.map(|share| format!("tasks of the job waited for a processor {} of the time", shown_share(share)));
    foreign.or(waited)
}

/// Returns the gain with one thread, if it reaches the threshold.
pub(in crate::diagnosis) fn gain(evidence: &Evidence) -> Option<Gain> {
    let threads = evidence.run(Differential::OneThread)?.facts.number("threads");
    // The script or another variable may set the threads itself.
    if threads.is_some_and(|threads| threads > 1.0) {
        return None;
    }
    evidence.gain_of(Differential::OneThread).filter(|gain| gain.times >= ONE_THREAD.value && gain.at_least >= 1.0)
}

fn spinning_threads(evidence: &Evidence) -> Option<Found> {
    let (why, gain) = (contention(evidence)?, gain(evidence)?);
    let words = shown_gain(evidence, Differential::OneThread, gain.times);
    let mut found = Found::new(Worth::measured(gain.times, words.clone()).by_parameters(Some(gain.times)));
    // The gain means the threads only if the other programs were as busy as before.
    let then = evidence.run(Differential::OneThread).and_then(|run| run.machine.foreign_cpu_share).unwrap_or(0.0);
    let is_alike = then >= evidence.foreign() / 2.0;
    found.add(if is_alike { Strength::Proof } else { Strength::Strong }, words);
    found.add(Strength::Hint, why);
    Some(found)
}
