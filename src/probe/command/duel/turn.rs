//! One turn of a session that waits between two steps: it trains for a block, then waits again.

use std::time::{Duration, Instant};

use super::super::super::clock_watch::ClockWatch;
use super::super::super::duel::{BLOCK, Block, Side};
use super::super::super::measuring::patience::{queued_steps, workers};
use super::super::super::measuring::throughput::{Observation, RARELY};
use super::super::super::stats::{Work, warmup_length};
use super::super::segments::Answer;
use super::super::session::Session;
use super::super::verdict::Verdict;
use super::super::{Job, Limits, ProbeError, Watch};
use crate::model::{Estimate, MemoryUse, Outcome};

/// The fewest steps of a block that count.
const FEWEST_STEPS: u64 = 2;

/// The fewest steps that are dropped after a switch: a round number. CPU caches and clocks still fit the other side
/// during these steps. They come after the first step, which has no start time and therefore never counts.
const AFTER_SWITCH: u64 = 2;

/// The shortest time of the steps that are dropped after a switch. With two steps of 16 ms dropped, a real job was 3%
/// slower in blocks than alone; with 200 ms dropped, it was 1% slower.
const SHORTEST_LEAD: Duration = Duration::from_millis(200);

/// The longest time of the steps that are dropped after a switch to a stopped process, which takes milliseconds.
const LONGEST_LEAD: Duration = BLOCK;

/// If an epoch takes at most this time, a block consists of whole epochs. Blocks of longer epochs leave out the step at
/// the end of an epoch; the config's probe measured its cost. In short epochs that would be wrong. The last step waits
/// for the loader's first batch, and the next batches get ready meanwhile, so the other steps are too fast. The rate of
/// a real job with epochs of seven steps was 28% too high.
const LONGEST_EPOCH: Duration = Duration::from_secs(2);

/// The largest assumed number of batches in a loader's queue: a round number.
const MOST_QUEUED: u64 = 100;

/// The longest time of the steps that are dropped in a process's first turn: a round number. While its first steps were
/// slow, the loader filled its queue, and a short probe did not empty it. Without dropped steps, the slices of a real
/// job were 15% too fast.
const LONGEST_FIRST_LEAD: Duration = Duration::from_secs(2);

pub(super) enum Turn {
    Block(Block),
    Ended(Verdict),
    NotHeld,
}

/// The steps of a turn that count.
///
/// The number of steps in a block is fixed before the block begins. A block that ended after enough seconds would tend
/// to end with a long step. For example, two loader workers deliver batches in pairs, and every other step waits for a
/// pair. A block of five steps had three waiting steps, so its rate was 16% too low.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// The number of timed steps at the beginning that are dropped.
    lead: u64,
    /// True if the steps after the lead may still be warm-up, which is then dropped.
    may_warm_up: bool,
    /// The number of steps that count. `None` in the first block of new settings, which finds how many steps take long enough.
    length: Option<u64>,
    /// The period of the pattern of long and short steps, in steps. The length of a block is a multiple of the period.
    rhythm: u64,
    counts_ends: bool,
}

/// The counted steps of a block up to now, and the number of dropped steps.
struct Counted {
    dropped: u64,
    steps: u64,
    work: Work,
    between_ends: Work,
}

impl Session {
    /// Plans a block after a break. `was_kept` is true if the process was stopped, or kept the same settings. Then its
    /// loader's queue is unchanged, but each worker delivers its awaited batch at once. Otherwise the first steps find
    /// batches that were loaded during the break, or an empty queue. `length` is the length of the side's other blocks.
    pub(super) fn plan(&self, job: &Job, was_kept: bool, length: Option<u64>) -> Plan {
        let settings = self.step.template.apply.under_targets(&job.settings);
        let fact = |name: &str| self.heard.facts.number(name).map(whole);
        let in_a_row = fact("loader.workers").unwrap_or_else(|| workers(&settings)).clamp(1, MOST_IN_A_ROW);
        let steps_in = |time: Duration| Some(whole((time.as_secs_f64() / self.step_seconds(in_a_row)?).ceil()));
        let epoch = fact("loader.batches").map(|batches| batches / fact("accumulation").unwrap_or(1).max(1));
        let is_short = |steps: &u64| {
            *steps < RARELY || self.epoch_seconds(*steps).is_some_and(|seconds| seconds <= LONGEST_EPOCH.as_secs_f64())
        };
        let short_epoch = epoch.filter(|steps| *steps >= FEWEST_STEPS).filter(is_short);
        let rhythm = short_epoch.unwrap_or(in_a_row);
        let by_steps = || Some(steps_in(BLOCK)?.max(FEWEST_STEPS).next_multiple_of(rhythm));
        let length = length.or_else(by_steps);
        let queued = fact("loader.prefetch_factor").map(|prefetch| prefetch * fact("loader.workers").unwrap_or(0));
        let queued = queued.unwrap_or_else(|| queued_steps(&settings)).clamp(AFTER_SWITCH, MOST_QUEUED);
        let lead = if was_kept && !self.had_turn {
            queued.min(steps_in(LONGEST_FIRST_LEAD).unwrap_or(u64::MAX).max(1))
        } else if was_kept {
            // Drop two batches of each worker: the worker finished one batch while gputune stopped it, and had begun
            // the next.
            let most = steps_in(LONGEST_LEAD).unwrap_or(u64::MAX).max(1);
            let fewest = steps_in(SHORTEST_LEAD).unwrap_or(AFTER_SWITCH).max(AFTER_SWITCH);
            (2 * in_a_row).max(fewest).min(most)
        } else {
            queued
        };
        // The first block may have been planned before the end of an epoch was seen.
        let counts_ends = short_epoch.is_some_and(|epoch| length.is_none_or(|length| length.is_multiple_of(epoch)));
        Plan { lead, may_warm_up: !(was_kept && self.had_turn), length, rhythm, counts_ends }
    }

    /// Returns the time of an epoch of this many steps; `None` before the first end of an epoch, which may take long.
    fn epoch_seconds(&self, steps: u64) -> Option<f64> {
        let all = self.heard.window.since(0.0);
        let seen: u64 = all.iter().map(|step| step.steps).sum();
        let seconds: f64 = all.iter().map(|step| step.work.seconds).sum();
        all.iter().any(|step| step.before.ends_epoch).then(|| seconds / as_number(seen) * as_number(steps))
    }

    /// Returns the mean time of a step in the second half since the settings changed; the first half may be warm-up.
    fn step_seconds(&self, rhythm: u64) -> Option<f64> {
        let steps = self.heard.window.since(0.0);
        let late = &steps[steps.len() / 2..];
        let counted: u64 = late.iter().map(|step| step.steps).sum();
        let seconds: f64 = late.iter().map(|step| step.work.seconds).sum();
        let is_known = counted >= rhythm.max(FEWEST_STEPS) && seconds > 0.0;
        is_known.then(|| seconds / as_number(counted))
    }

    pub(super) fn turn(
        &mut self,
        (side, began): (Side, Instant),
        mut plan: Plan,
        watch: Watch<'_>,
    ) -> Result<Turn, ProbeError> {
        const TICK: Duration = Duration::from_millis(20);
        let begin = Instant::now();
        let from = begin.duration_since(self.begin).as_secs_f64();
        self.clock = ClockWatch::begin();
        self.heard.last_progress = begin;
        self.had_turn = true;
        self.resume();
        self.heard.window.go_on(from);
        self.go();
        let verdict = self.listen((begin + TICK, TICK), |session, now| {
            if let Some(verdict) = session.guard(now, watch) {
                return Some(verdict);
            }
            if now.duration_since(session.heard.last_progress) >= session.job.limits.stall_time {
                return Some(Verdict::Stalled);
            }
            let so_far = session.counted(from, plan);
            if so_far.steps >= FEWEST_STEPS && so_far.work.seconds >= BLOCK.as_secs_f64() {
                plan.length = plan.length.or(Some(so_far.steps.next_multiple_of(plan.rhythm)));
            }
            // The process will wait at the end of the current step, so the block ends with this step.
            let is_last = plan.length.is_some_and(|length| so_far.steps + 1 >= length);
            is_last.then_some(Verdict::Enough)
        })?;
        if !matches!(verdict, Verdict::Enough) {
            return Ok(Turn::Ended(verdict));
        }
        let so_far = self.counted(from, plan);
        let step = Duration::from_secs_f64(so_far.work.seconds / as_number(so_far.steps));
        match self.hold(self.job.limits.grace_time + step * 3, watch)? {
            Answer::Done => {}
            Answer::Interrupted => return Ok(Turn::Ended(Verdict::Interrupted)),
            Answer::None | Answer::Refused(_) => return Ok(Turn::NotHeld),
        }
        let Counted { dropped, steps, work, between_ends } = self.counted(from, plan);
        let since = |moment: Instant| moment.duration_since(began).as_secs_f64();
        Ok(Turn::Block(Block {
            side,
            begin_s: since(begin),
            end_s: since(Instant::now()),
            steps,
            dropped_steps: dropped,
            rate: work.amount / work.seconds,
            rate_between_ends: (plan.counts_ends && between_ends.seconds > 0.0)
                .then(|| between_ends.amount / between_ends.seconds),
        }))
    }

    /// Returns the counted steps since a moment: at most the planned number, without the lead and unusual steps.
    fn counted(&self, from: f64, plan: Plan) -> Counted {
        let all = self.heard.window.since(from);
        let mut cut = 0;
        let mut dropped = 0;
        while cut < all.len() && dropped < plan.lead {
            dropped += all[cut].steps;
            cut += 1;
        }
        let exceptions = self.heard.window.exceptions();
        let is_end = |step: &Observation| plan.counts_ends && step.before.ends_epoch;
        let is_usual = |step: &&Observation| step.mark.is_none_or(|kind| !exceptions[kind]) || is_end(step);
        let rest: Vec<_> = all[cut..].iter().filter(is_usual).collect();
        let times: Vec<f64> =
            rest.iter().map(|step| step.work.seconds / step.work.amount.max(f64::MIN_POSITIVE)).collect();
        let warm = if plan.may_warm_up { warmup_length(&times, f64::INFINITY) } else { 0 };
        dropped += rest[..warm].iter().map(|step| step.steps).sum::<u64>();
        let mut left = plan.length.unwrap_or(u64::MAX);
        let kept = rest[warm..].iter().take_while(|step| {
            let is_in = left > 0;
            left = left.saturating_sub(step.steps);
            is_in
        });
        let kept: Vec<_> = kept.collect();
        let nothing = Work { amount: 0.0, seconds: 0.0 };
        Counted {
            dropped,
            steps: kept.iter().map(|step| step.steps).sum(),
            work: kept.iter().fold(nothing, |sum, step| sum + step.work),
            between_ends: kept.iter().filter(|step| !step.before.ends_epoch).fold(nothing, |sum, step| sum + step.work),
        }
    }

    /// Returns this side's outcome, given its rate over its blocks. `is_beside` is true if another process is also open.
    pub(super) fn own_outcome(&mut self, rate: Option<Estimate>, is_beside: bool) -> Outcome {
        let mut outcome = self.outcome(&Verdict::Enough);
        let mut measured = Duration::ZERO;
        if let Outcome::Measured(measurement) = &mut outcome {
            // The measured throughput includes steps right after a switch and steps after a block; the rate does not.
            measurement.throughput = rate.or(measurement.throughput);
            let timing = &mut measurement.timing;
            // The time between blocks, and the host's activity in that time, belongs to the other sides.
            timing.measured_seconds = timing.step_seconds.map(|seconds| seconds * as_number(timing.steps));
            timing.saved_seconds = None;
            measured = Duration::from_secs_f64(timing.measured_seconds.unwrap_or(0.0));
            measurement.machine.host = Default::default();
            measurement.machine.foreign_cpu_share = None;
            if is_beside && self.step.is_gpu {
                // The used memory includes memory outside the framework, and so the other side's memory.
                measurement.memory = MemoryUse::default();
            }
        }
        // The blocks of the other sides are not part of this side's time.
        let ended = self.heard.first_step.unwrap_or(self.begin) + measured;
        self.tell_times(&mut outcome, (ended, ended));
        outcome
    }
}

/// The limits for the warm-up of a duel's process. Its absolute speed need not be known, because only the ratio counts.
pub(super) fn warming(limits: &Limits) -> Limits {
    /// The longest time to watch steps that seem to have warmed up: a round number.
    const LONGEST: Duration = Duration::from_secs(1);
    const ANY: f64 = 1.0;
    Limits { measure_time: limits.measure_time.min(LONGEST), precision: Some(ANY), ..*limits }
}

pub(super) fn in_words(outcome: &Outcome) -> String {
    if matches!(outcome, Outcome::Measured(_)) {
        return "the training came to its end".to_owned();
    }
    let name = outcome.name().replace('_', " ");
    match outcome.failure() {
        Some(failure) => format!("{name}: {}", failure.reason),
        None => name,
    }
}

/// The most workers that are assumed to deliver one after the other: a round number, so that blocks are not too long.
const MOST_IN_A_ROW: u64 = 64;

fn whole(number: f64) -> u64 {
    number as u64
}

/// Converts a count to a number. A count of 0 becomes 1, so that divisions are safe.
fn as_number(count: u64) -> f64 {
    count.max(1) as f64
}
