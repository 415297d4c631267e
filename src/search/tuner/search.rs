//! The loop of a search: it probes and records proposals until the search ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::TuneError;
use super::begun::{Begun, Wanted};
use super::gain::{self, SmallGains};
use super::health::Health;
use super::leader::Leader;
use super::retries::PutBack;
use super::rounds::{RoundUnderWay, Rounds};
use super::seen::{Open, Seen};
pub(super) use super::slots::OnEvent;
use super::slots::Slots;
use crate::diagnosis::{self, Around};
use crate::machine::Allocation;
use crate::model::{
    Config, Count, Event, History, Measurement, Objective, Outcome, Permutation, Precision, Purpose, Settings, Space,
    Trial, arrival,
};
use crate::probe::Limits;
use crate::search::budget::{Budget, StopReason};
use crate::search::journal::Journal;
use crate::search::numerics::FullPrecision;
use crate::search::strategy::{Earlier, Lacking, Proposal, Strategy, View};

/// A search under way.
pub(super) struct Search<'s, 'p> {
    pub(super) space: &'s Arc<Space>,
    pub(super) objective: &'s Objective,
    pub(super) budget: Budget,
    pub(super) limits: &'s Limits,
    pub(super) precision_speeds: &'s BTreeMap<Precision, f64>,
    pub(super) warm_start: &'s [Earlier],
    pub(super) around: &'s Around,
    pub(super) full_precision: FullPrecision,
    /// Parameters that affect only the exchange between ranks, each with its target.
    pub(super) exchanging: &'s [(String, String)],
    pub(super) slots: Slots<'s, 'p>,
    /// The probe under way in each slot.
    pub(super) begun: Vec<Option<Begun>>,
    /// The latest measurement of each probe under way, by trial number.
    pub(super) so_far: BTreeMap<u32, Measurement>,
    pub(super) health: Health,
    /// Configs that failed in a slot and are retried in another slot before the failure counts.
    pub(super) elsewhere: Vec<Wanted>,
    /// True if it is known whether slots may measure side by side. Always true with a single slot.
    pub(super) is_calibrated: bool,
    /// True if slots were found or stated not to disturb each other.
    pub(super) is_fair: bool,
    /// The result of comparing the slots, in one line.
    pub(super) side_by_side: Option<String>,
    pub(super) journal: Option<Journal>,
    pub(super) stop: &'s AtomicBool,
    /// The allocation that the search runs in.
    pub(super) allocation: Option<Allocation>,
    /// The GPUs of a probe that has no slot with GPUs of its own.
    pub(super) whole_gpus: u32,
    /// The GPU time of probes that only loaded the machine in this run.
    pub(super) load_gpu_seconds: f64,
    pub(super) begin: Instant,
    /// The time that earlier runs of the same search took.
    pub(super) earlier: Duration,
    /// Configs that are tried again later.
    pub(super) put_back: PutBack,
    /// The number of the first trial of this run of the search.
    pub(super) first_number: u32,
    /// The number of the last trial in the journal, earlier eras included.
    pub(super) last_number: u32,
    /// The gains that the strategy expects.
    pub(super) gains: SmallGains,
    /// The part of the space that strategies see.
    pub(super) open: Open,
    /// The part of the history that strategies see.
    pub(super) seen: Seen,
    /// The rounds that run, by their slot.
    pub(super) in_round: Vec<Option<RoundUnderWay>>,
    pub(super) rounds: Rounds,
    /// True if no further config is probed and only rounds go on.
    pub(super) is_in_last_rounds: bool,
    /// True if the rounds so far show which config to name.
    pub(super) is_clear: bool,
    pub(super) seed: u64,
    pub(super) baseline: Option<&'s Config>,
    pub(super) history: History,
    pub(super) leader: Leader,
    /// The trials that lacked memory.
    pub(super) lacking: Lacking,
}

/// The next work of a free slot.
enum Next {
    Probe(Wanted),
    /// A round of these configs.
    Round(Vec<Config>),
    /// Nothing, until another probe is over.
    Wait,
    /// The end of the search, once the running probes are over.
    End(StopReason),
}

/// How far runs of one config are apart, as a standard deviation: 1 to 7% on a quiet machine.
const BETWEEN_RUNS: f64 = 0.03;

impl Search<'_, '_> {
    pub(super) fn elapsed(&self) -> Duration {
        self.earlier + self.begin.elapsed()
    }

    /// Returns true if nothing has been probed yet, in this run or earlier.
    pub(super) fn is_new(&self) -> bool {
        self.history.trials().is_empty()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Searches until it is clear which config to name, and checks this config.
    pub(super) fn run(&mut self, strategy: &mut dyn Strategy, on_event: OnEvent<'_>) -> Result<StopReason, TuneError> {
        let stopped = self.search_and_settle(strategy, on_event)?;
        while self.measure_epoch_ends(on_event)? || self.check_named(on_event)? {
            self.run_last_rounds(on_event)?;
        }
        Ok(if self.is_stopped() { StopReason::Interrupted } else { stopped })
    }

    /// Searches, and goes on with rounds until it is clear which config to name.
    fn search_and_settle(
        &mut self,
        strategy: &mut dyn Strategy,
        on_event: OnEvent<'_>,
    ) -> Result<StopReason, TuneError> {
        loop {
            let searched = self.history.count_searched();
            let stopped = self.search(strategy, on_event)?;
            if stopped == StopReason::AllocationEnds
                && let Some(text) = self.of_the_allocation()
            {
                on_event(Event::Remark { text: &text });
            }
            self.slots.leave_the_first();
            if stopped == StopReason::Interrupted {
                return Ok(stopped);
            }
            let is_limit =
                matches!(stopped, StopReason::TimeSpent | StopReason::GpuTimeSpent | StopReason::AllocationEnds);
            match self.run_last_rounds(on_event)? {
                Some(StopReason::Interrupted) => return Ok(StopReason::Interrupted),
                // A limit that ended the search also ends its rounds.
                Some(reason) => return Ok(if is_limit { stopped } else { reason }),
                None => {}
            }
            // The choice is clear before the reserved time is over, so the rest is for further configs.
            let goes_on = is_limit && self.slots.count() == 1 && self.history.count_searched() > searched;
            if !goes_on || self.reason_to_stop().is_some() {
                return Ok(stopped);
            }
            self.is_in_last_rounds = false;
        }
    }

    fn search(&mut self, strategy: &mut dyn Strategy, on_event: OnEvent<'_>) -> Result<StopReason, TuneError> {
        let mut end = None;
        loop {
            while let Some(slot) = self.slot_for_next() {
                if let Some(reason) = end {
                    // Doubtful failures are resolved before the end, unless the search was interrupted.
                    let Some(wanted) = self.for_elsewhere(slot).filter(|_| reason != StopReason::Interrupted) else {
                        break;
                    };
                    self.begin(slot, wanted, on_event);
                    continue;
                }
                if self.is_calibration_due() {
                    end = self.calibrate(on_event)?;
                    continue;
                }
                match self.next(slot, strategy)? {
                    Next::Probe(wanted) => self.begin(slot, wanted, on_event),
                    Next::Round(configs) => self.begin_round(slot, configs, on_event),
                    Next::Wait => break,
                    Next::End(reason) => end = Some(reason),
                }
            }
            if self.slots.is_idle() && self.slots.are_out_of_time() {
                return Ok(StopReason::AllocationEnds);
            }
            if let Some(reason) = end.filter(|_| self.slots.is_idle()) {
                return Ok(reason);
            }
            // A new slot may join now. It waits until it is known if slots slow each other down.
            self.slots.welcomes = Some(self.is_fair).filter(|_| end.is_none());
            let goes_on = self.finish_next(on_event)?;
            self.slots.welcomes = None;
            if !goes_on {
                let reason = if self.is_stopped() { StopReason::Interrupted } else { StopReason::TimeSpent };
                end = Some(reason);
            }
        }
    }

    /// Returns a free slot, drawn at random so that no parameter's settings coincide with a slot. A slot that may be sick waits for
    /// the results from other slots.
    fn slot_for_next(&self) -> Option<usize> {
        let is_doubted = |slot: &usize| {
            let begun = self.begun().filter_map(|begun| begun.failed_in);
            self.elsewhere.iter().filter_map(|wanted| wanted.failed_in).chain(begun).any(|failed_in| failed_in == *slot)
        };
        let mut free = self.slots.free();
        free.retain(|slot| self.slots.open() < 2 || !is_doubted(slot));
        let draw = Permutation::new(free.len() as u128, self.seed ^ u64::from(self.next_number())).at(0)?;
        free.get(usize::try_from(draw).ok()?).copied()
    }

    /// Takes a config that failed in another slot, to retry it in this one.
    fn for_elsewhere(&mut self, slot: usize) -> Option<Wanted> {
        let is_alone = self.slots.open() < 2;
        let at = self.elsewhere.iter().position(|wanted| wanted.failed_in != Some(slot) || is_alone)?;
        Some(self.elsewhere.remove(at))
    }

    /// Decides what a free slot does.
    fn next(&mut self, slot: usize, strategy: &mut dyn Strategy) -> Result<Next, TuneError> {
        let is_idle = self.slots.is_idle();
        // The running probes may change the answer, so the end waits for them.
        let end = |reason| if is_idle { Next::End(reason) } else { Next::Wait };
        self.check_same_failure()?;
        if self.is_stopped() {
            return Ok(Next::End(StopReason::Interrupted));
        }
        if let Some(wanted) = self.for_elsewhere(slot) {
            return Ok(Next::Probe(wanted));
        }
        let stop = self.reason_to_stop();
        // The first probe has the machine to itself: later probes are compared with it.
        if !is_idle && !self.is_calibrated {
            return Ok(Next::Wait);
        }
        if let Some(configs) = self.round_due(slot) {
            return Ok(Next::Round(configs));
        }
        let is_open = |config: &&Config| !self.history.is_settled(config) && !self.put_back.has(config);
        let unknown = self.baseline.filter(is_open);
        let due = if stop.is_none() { self.put_back.next(false) } else { None };
        let next = if due.is_some() {
            due
        } else if let Some(baseline) = unknown {
            if self.begun().any(|begun| begun.order.config == *baseline) {
                return Ok(Next::Wait);
            }
            Some((Proposal::from(baseline.clone()), Purpose::Baseline))
        } else {
            self.proposed(strategy).map(|proposal| (proposal, Purpose::Search))
        };
        let next = if is_idle { next.or_else(|| self.put_back.next(true)) } else { next };
        // An exhausted space is reported even if the budget is spent as well.
        let (proposal, purpose) = match (next, stop) {
            (None, _) if self.space.count() == Count::Unknown => return Ok(end(StopReason::NothingFound)),
            (None, _) => return Ok(end(StopReason::SpaceExhausted)),
            (Some(_), Some(reason)) => return Ok(end(reason)),
            (Some(next), None) => next,
        };
        let noise = self.noise();
        self.gains.hear(proposal.gain, noise);
        Ok(match self.gains.are_enough(&self.history) {
            Some(reason) => Next::End(reason),
            None => Next::Probe(Wanted::new(proposal, purpose)),
        })
    }

    /// Returns how uncertain the best so far is, as a share.
    fn noise(&mut self) -> f64 {
        if self.has_rounds() {
            return self.study().race().incumbent().map_or(0.0, |best| gain::noise_of(&best.estimate));
        }
        self.leader
            .of(self.objective, &self.history)
            .map_or(0.0, |(trial, _)| gain::noise(self.objective, &trial.outcome))
    }

    fn proposed(&mut self, strategy: &mut dyn Strategy) -> Option<Proposal> {
        let objective = self.objective.scalarised(&self.history, self.seed);
        let first = self.opened_first();
        self.open.update(self.space, &self.history);
        let space = self.open.space(self.space);
        let under_way = self.begun().map(|begun| begun.order.config.clone());
        let elsewhere = self.elsewhere.iter().map(|wanted| wanted.proposal.config.clone());
        let others: Vec<Config> = self.put_back.configs().into_iter().chain(elsewhere).collect();
        let pending: Vec<Config> = under_way.chain(others).collect();
        let so_far = self.so_far();
        let running = u32::try_from(self.begun_searches()).unwrap_or(u32::MAX);
        let left = self.probes_left().saturating_sub(running);
        let related = (self.objective.is_largest_throughput() && self.last_round() > 0)
            .then(|| self.study())
            .map(|study| study.race().related(&study.history).into_owned());
        let history = related.as_ref().unwrap_or(&self.history);
        self.seen.update(space, history, self.baseline);
        let history = self.seen.history(history);
        let lacking = self.lacking.of(&objective, history);
        let view = View::knowing(space, &objective, history, (&pending, self.seen.start()), lacking)
            .with(left, self.seed)
            .with_so_far(&so_far)
            .with_precision_speeds(self.precision_speeds)
            .with_earlier(self.warm_start)
            .with_first(&first)
            .with_between_runs(BETWEEN_RUNS);
        let proposal = strategy.propose(&view)?;
        Some(Proposal { reason: proposal.reason.map(|reason| objective.with_question(reason)), ..proposal })
    }

    /// Returns the parameters that the baseline's bottleneck suggests, if the objective is speed. They follow from the first probe
    /// of the baseline, so a continued search has the same parameters.
    fn opened_first(&self) -> Vec<usize> {
        let Some(baseline) = self.baseline.filter(|_| self.objective.is_largest_throughput()) else {
            return Vec::new();
        };
        let measured = self.history.of(baseline).find_map(|trial| trial.outcome.measurement());
        measured.map_or_else(Vec::new, |measurement| {
            let set = self.space.settings(baseline);
            let is_as_it_is = baseline.is_as_it_is();
            let settings = if is_as_it_is { arrival::used(self.space, &measurement.facts, &set) } else { set };
            let verdict = diagnosis::of_config(self.space, &settings, measurement, self.around.clone());
            diagnosis::first_parameters(self.space, &verdict)
        })
    }

    /// Ends the search if its first three configs fail in the same way: then the configs are not the cause.
    fn check_same_failure(&self) -> Result<(), TuneError> {
        const SAME: usize = 3;
        if self.history.count_searched() != SAME {
            return Ok(());
        }
        let first: Vec<&Trial> = self.history.searched().take(SAME).collect();
        let signatures: Vec<Option<String>> = first.iter().map(|trial| trial.outcome.signature()).collect();
        let all_same = signatures[0].is_some() && signatures.iter().all(|s| *s == signatures[0]);
        match first.first().and_then(|trial| trial.outcome.failure()) {
            Some(failure) if all_same => Err(TuneError::SameFailure {
                reason: failure.reason.clone(),
                ran_out_of_time: matches!(first[0].outcome, Outcome::TimedOut(_) | Outcome::Stalled(_)),
                last_lines: failure.last_lines.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the number of the next trial.
    pub(super) fn next_number(&self) -> u32 {
        let begun = self.begun().map(|begun| begun.order.number).max().unwrap_or(0);
        let in_rounds = self.in_round.iter().flatten().flat_map(|round| &round.order.orders);
        let in_rounds = in_rounds.map(|order| order.number).max().unwrap_or(0);
        begun.max(in_rounds).max(self.history.highest_number()).max(self.last_number) + 1
    }

    /// Returns the probes under way.
    pub(super) fn begun(&self) -> impl Iterator<Item = &Begun> {
        self.begun.iter().flatten()
    }

    /// Returns how many of the running probes search for a better config.
    pub(super) fn begun_searches(&self) -> usize {
        self.begun().filter(|begun| !begun.purpose.is_repeated()).count()
    }

    /// Returns the settings that a probe of a config applies.
    pub(super) fn set_by(&self, config: &Config) -> Settings {
        self.history.set(self.space, &self.space.settings(config))
    }
}
