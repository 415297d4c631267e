//! One turn of a session that waits between two steps: it trains for a block, and waits again.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::super::super::clock_watch::ClockWatch;
use super::super::super::duel::{BLOCK, Block, Side};
use super::super::super::measuring::patience::queued_steps;
use super::super::super::stats::{Work, warmup_length};
use super::super::segments::Answer;
use super::super::session::Session;
use super::super::spending::Times;
use super::super::verdict::Verdict;
use super::super::{Job, Limits, ProbeError, Watch};
use crate::model::{MemoryUse, Outcome};

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

/// What does not count at the beginning of a block.
#[derive(Clone, Copy)]
pub(super) struct Lead {
    /// Timed steps.
    steps: u64,
    /// Whether steps after them that are unlike the rest do not count either.
    may_warm_up: bool,
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
    /// What is left out after a break: where it `was_kept`, its loader's queue is as it was; else its steps begin on batches that
    /// were loaded meanwhile, or on none.
    pub(super) fn lead(&self, job: &Job<'_>, was_kept: bool) -> Lead {
        let queued = || queued_steps(&self.step.template.apply.under_targets(job.settings));
        Lead { steps: if was_kept { AFTER_SWITCH } else { queued().max(AFTER_SWITCH) }, may_warm_up: !was_kept }
    }

    /// Lets a process that waits train for a block, without what its `lead` says.
    pub(super) fn turn(
        &mut self,
        (side, began): (Side, Instant),
        lead: Lead,
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
            if self.counted(from, lead).is_enough() {
                break;
            }
        }
        let so_far = self.counted(from, lead);
        let step = Duration::from_secs_f64(so_far.work.seconds / as_number(so_far.steps));
        // It waits at the end of the step that is under way.
        match self.hold(self.task.limits.grace_time + step * 3, watch)? {
            Answer::Done => {}
            Answer::Interrupted => return Ok(Turn::Ended(Verdict::Interrupted)),
            Answer::None | Answer::Refused(_) => return Ok(Turn::NotHeld),
        }
        let Counted { dropped, steps, work } = self.counted(from, lead);
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

    /// The steps since a moment that count: without those of the lead, and without those in which something out of the ordinary
    /// happened.
    fn counted(&self, from: f64, lead: Lead) -> Counted {
        let all = self.heard.window.since(from);
        let mut cut = 0;
        let mut dropped = 0;
        while cut < all.len() && dropped < lead.steps {
            dropped += all[cut].steps;
            cut += 1;
        }
        let rest: Vec<_> = all[cut..].iter().filter(|step| step.mark.is_none()).collect();
        let times: Vec<f64> =
            rest.iter().map(|step| step.work.seconds / step.work.amount.max(f64::MIN_POSITIVE)).collect();
        let warm = if lead.may_warm_up { warmup_length(&times, f64::INFINITY) } else { 0 };
        dropped += rest[..warm].iter().map(|step| step.steps).sum::<u64>();
        let kept = &rest[warm..];
        let nothing = Work { amount: 0.0, seconds: 0.0 };
        Counted {
            dropped,
            steps: kept.iter().map(|step| step.steps).sum(),
            work: kept.iter().fold(nothing, |sum, step| sum + step.work),
        }
    }

    /// What this side came to over all of its blocks; `is_beside` another that is open, too.
    pub(super) fn own_outcome(&mut self, is_beside: bool) -> Outcome {
        let mut outcome = self.outcome(&Verdict::Enough);
        let mut measured = Duration::ZERO;
        if let Outcome::Measured(measurement) = &mut outcome {
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

/// The limits under which a process of a duel warms up: its own speed need not be known well, since only the ratio counts.
pub(super) fn warming(limits: &Limits) -> Limits {
    /// Round numbers: a rate that is known to 10 %, or seconds in which nothing changed, show that warm-up is over.
    const LONGEST: Duration = Duration::from_secs(3);
    const PRECISION: f64 = 0.1;
    Limits { measure_time: limits.measure_time.min(LONGEST), precision: limits.precision.max(PRECISION), ..*limits }
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

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn as_number(count: u64) -> f64 {
    count.max(1) as f64
}
