//! One turn of a session that waits between two steps: it trains for a block, and waits again.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::super::super::clock_watch::ClockWatch;
use super::super::super::duel::{BLOCK, Block, Side};
use super::super::super::measuring::patience::{queued_steps, workers};
use super::super::super::stats::{Work, warmup_length};
use super::super::segments::Answer;
use super::super::session::Session;
use super::super::spending::Times;
use super::super::verdict::Verdict;
use super::super::{Job, Limits, ProbeError, Watch};
use crate::model::{Estimate, MemoryUse, Outcome};

/// The fewest steps of a block that count.
const FEWEST_STEPS: u64 = 3;

/// Steps after a switch that count no more than the first, which has no begin: processor caches and clocks were the other's. A
/// round number.
const AFTER_SWITCH: u64 = 2;

/// What became of a turn.
pub(super) enum Turn {
    Block(Block),
    /// It ended otherwise.
    Ended(Verdict),
    /// It did not wait when it was asked to.
    NotHeld,
}

/// Which steps of a turn count.
///
/// How many are a block is known before it begins: a block that ended when its steps had taken long enough would end with a
/// long one. Where two workers load, batches come in pairs, every other step waits for them, and a block of five steps
/// had three that wait: its rate was 16 % too low.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// Timed steps at the beginning that do not.
    lead: u64,
    /// Whether steps after them that are unlike the rest do not either.
    may_warm_up: bool,
    /// How many do; `None` in the first block of settings that had no step before, which finds how many take long enough.
    length: Option<u64>,
    /// A block is a multiple of so many steps: those after which what makes one longer than the next is the same again.
    rhythm: u64,
}

impl Plan {
    /// The steps of a block, if these are its first.
    fn length(self, counted: &Counted) -> Option<u64> {
        self.length.or_else(|| counted.is_enough().then(|| counted.steps.next_multiple_of(self.rhythm)))
    }
}

/// Steps of a block, as far as they have come.
struct Counted {
    dropped: u64,
    steps: u64,
    work: Work,
}

impl Counted {
    fn is_enough(&self) -> bool {
        self.steps >= FEWEST_STEPS && self.work.seconds >= BLOCK.as_secs_f64()
    }
}

impl Session {
    /// What a block after a break is. Where the process `was_kept`, its loader's queue is as it was, but what each worker had waited
    /// for is there at once; else its steps begin on batches that were loaded meanwhile, or on none. `length` is that of the
    /// side's other blocks.
    pub(super) fn plan(&self, job: &Job<'_>, was_kept: bool, length: Option<u64>) -> Plan {
        let settings = self.step.template.apply.under_targets(job.settings);
        let rhythm =
            self.heard.facts.number("loader.workers").map_or_else(|| workers(&settings), whole).clamp(1, MOST_IN_A_ROW);
        let length = length.or_else(|| self.length_by_steps(rhythm));
        // A batch of each worker that came while it was being stopped, and one that each had begun.
        let left_out = if was_kept { 2 * rhythm } else { queued_steps(&settings) };
        Plan { lead: left_out.max(AFTER_SWITCH), may_warm_up: !was_kept, length, rhythm }
    }

    /// How many steps take as long as a block, judging by those since the settings came, of which the first half may be warm-up.
    fn length_by_steps(&self, rhythm: u64) -> Option<u64> {
        let steps = self.heard.window.since(0.0);
        let late = &steps[steps.len() / 2..];
        let counted: u64 = late.iter().map(|step| step.steps).sum();
        let seconds: f64 = late.iter().map(|step| step.work.seconds).sum();
        let is_known = counted >= rhythm.max(FEWEST_STEPS) && seconds > 0.0;
        let steps = || whole((BLOCK.as_secs_f64() * as_number(counted) / seconds).ceil());
        is_known.then(|| steps().max(FEWEST_STEPS).next_multiple_of(rhythm))
    }

    /// Lets a process that waits train for a block.
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
        self.resume();
        self.go();
        let mut next_tick = begin + TICK;
        loop {
            match self.next_message(next_tick.saturating_duration_since(Instant::now())) {
                Ok(message) => {
                    if let Some(news) = self.heard.hear(message)? {
                        return Ok(Turn::Ended(news.into()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Turn::Ended(Verdict::Exited)),
            }
            let now = Instant::now();
            if now < next_tick {
                continue;
            }
            next_tick = now + TICK;
            if let Some(verdict) = self.guard(now, watch) {
                return Ok(Turn::Ended(verdict));
            }
            if now.duration_since(self.heard.last_progress) >= self.task.limits.stall_time {
                return Ok(Turn::Ended(Verdict::Stalled));
            }
            let so_far = self.counted(from, plan);
            plan.length = plan.length(&so_far);
            // It waits at the end of the step that is under way, which is the last one.
            if plan.length.is_some_and(|length| so_far.steps + 1 >= length) {
                break;
            }
        }
        let so_far = self.counted(from, plan);
        let step = Duration::from_secs_f64(so_far.work.seconds / as_number(so_far.steps));
        match self.hold(self.task.limits.grace_time + step * 3, watch)? {
            Answer::Done => {}
            Answer::Interrupted => return Ok(Turn::Ended(Verdict::Interrupted)),
            Answer::None | Answer::Refused(_) => return Ok(Turn::NotHeld),
        }
        let Counted { dropped, steps, work } = self.counted(from, plan);
        let since = |moment: Instant| moment.duration_since(began).as_secs_f64();
        Ok(Turn::Block(Block {
            side,
            begin_s: since(begin),
            end_s: since(Instant::now()),
            steps,
            dropped_steps: dropped,
            rate: work.amount / work.seconds,
        }))
    }

    /// The steps since a moment that count: as many as are planned, without those of the lead, and without those in which
    /// something out of the ordinary happened.
    fn counted(&self, from: f64, plan: Plan) -> Counted {
        let all = self.heard.window.since(from);
        let mut cut = 0;
        let mut dropped = 0;
        while cut < all.len() && dropped < plan.lead {
            dropped += all[cut].steps;
            cut += 1;
        }
        let rest: Vec<_> = all[cut..].iter().filter(|step| step.mark.is_none()).collect();
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
        }
    }

    /// What this side came to, whose rate over its blocks is known; `is_beside` another that is open, too.
    pub(super) fn own_outcome(&mut self, rate: Option<Estimate>, is_beside: bool) -> Outcome {
        let mut outcome = self.outcome(&Verdict::Enough);
        let mut measured = Duration::ZERO;
        if let Outcome::Measured(measurement) = &mut outcome {
            // Steps right after a switch do not count, nor do those beyond a block.
            measurement.throughput = rate.or(measurement.throughput);
            let timing = &mut measurement.timing;
            // The time in between was the other's, and so is what the machine did in it.
            timing.measured_seconds = timing.step_seconds.map(|seconds| seconds * as_number(timing.steps));
            timing.saved_seconds = None;
            measured = Duration::from_secs_f64(timing.measured_seconds.unwrap_or(0.0));
            measurement.machine.host = Default::default();
            measurement.machine.foreign_cpu_share = None;
            if is_beside && self.step.is_gpu {
                // Memory that is not the framework's counts as used, and the other's is.
                measurement.memory = MemoryUse::default();
            }
        }
        Times::in_turn(self, measured).tell(&mut outcome);
        outcome
    }
}

/// The limits under which a process of a duel warms up: its own speed need not be known, since only the ratio counts.
pub(super) fn warming(limits: &Limits) -> Limits {
    /// The longest that steps are watched which seem to have warmed up: a round number.
    const LONGEST: Duration = Duration::from_secs(1);
    const ANY: f64 = 1.0;
    Limits { measure_time: limits.measure_time.min(LONGEST), precision: Some(ANY), ..*limits }
}

/// A failure of a process in a few words.
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

/// The most workers that are believed to deliver one after the other: a round number, beyond which blocks are too long.
const MOST_IN_A_ROW: u64 = 64;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; what is none saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn as_number(count: u64) -> f64 {
    count.max(1) as f64
}
