//! The loop of a search: it probes and records proposals until the search ends.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::gains::{self, SmallGains};
use super::probes::{Probes, Rounds};
pub(super) use super::request::OnEvent;
use super::request::Request;
use super::slots::Slots;
use super::trials::{Open, Trials, seen};
use super::{Setup, TuneError};
use crate::model::{Config, Count, Event, Outcome, Permutation, Purpose};
use crate::probe::{Effort, Limits};
use crate::search::budget::StopReason;
use crate::search::strategy::{Earlier, Proposal, Strategy, View};
use crate::search::study::{Study, over_whole_epochs};

pub(super) struct Search<'s, 'p> {
    pub(super) setup: &'s Setup,
    pub(super) clock: Clock,
    pub(super) slots: Slots<'s, 'p>,
    pub(super) side_by_side: SideBySide,
    pub(super) probes: Probes,
    pub(super) rounds: Rounds,
    pub(super) trials: Trials,
    pub(super) sees: Sees<'s>,
}

pub(super) struct Clock {
    pub(super) begin: Instant,
    /// The time that earlier runs of the same search took.
    pub(super) earlier: Duration,
    /// The GPU time of probes that only loaded the machine in this run.
    pub(super) load_gpu_seconds: f64,
}

impl Clock {
    pub(super) fn elapsed(&self) -> Duration {
        self.earlier + self.begin.elapsed()
    }
}

/// The knowledge about slots that measure at the same time: do they disturb each other?
pub(super) struct SideBySide {
    /// True if it is known whether slots may measure side by side. Always true with a single slot.
    pub(super) is_known: bool,
    /// True if slots were found or stated not to disturb each other.
    pub(super) is_fair: bool,
    /// The result of comparing the slots, in one line.
    pub(super) result: Option<String>,
}

/// The input of strategies, and the gains that they expect.
pub(super) struct Sees<'s> {
    pub(super) warm_start: &'s [Earlier],
    pub(super) open: Open,
    pub(super) gains: SmallGains,
}

enum Next {
    Probe(Box<Request>),
    /// A round of these configs.
    Round(Vec<Config>),
    /// Nothing, until another probe is over.
    Wait,
    /// The end of the search, once the running probes are over.
    End(StopReason),
}

/// The share of the usual measuring time that a comparison of slots takes: a third.
const PART: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");

/// Half the interval width, as a share, at which a config is known well enough before its rounds.
const COARSE: f64 = 0.1;

/// How far runs of one config are apart, as a standard deviation: 1 to 7% on a quiet machine.
pub(super) const BETWEEN_RUNS: f64 = 0.03;

impl Search<'_, '_> {
    pub(super) fn run(&mut self, strategy: &mut dyn Strategy, on_event: OnEvent<'_>) -> Result<StopReason, TuneError> {
        let stopped = self.search_and_settle(strategy, on_event)?;
        self.check_disturbed(stopped)?;
        while self.measure_epoch_ends(on_event)?
            || self.measure_largest_batches(on_event)?
            || self.check_named(on_event)?
        {
            self.run_last_rounds(on_event)?;
        }
        self.take_traces(on_event)?;
        Ok(if self.setup.is_stopped() { StopReason::Interrupted } else { stopped })
    }

    fn search_and_settle(
        &mut self,
        strategy: &mut dyn Strategy,
        on_event: OnEvent<'_>,
    ) -> Result<StopReason, TuneError> {
        loop {
            let searched = self.trials.history.count_searched();
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
            let goes_on = is_limit && self.slots.count() == 1 && self.trials.history.count_searched() > searched;
            if !goes_on || self.reason_to_stop().is_some() {
                return Ok(stopped);
            }
            self.rounds.is_in_last_rounds = false;
        }
    }

    fn search(&mut self, strategy: &mut dyn Strategy, on_event: OnEvent<'_>) -> Result<StopReason, TuneError> {
        let mut end = None;
        loop {
            while let Some(slot) = self.slot_for_next() {
                if let Some(reason) = end {
                    // Doubtful failures are resolved before the end, unless the search was interrupted.
                    let Some(request) = self.for_elsewhere(slot).filter(|_| reason != StopReason::Interrupted) else {
                        break;
                    };
                    self.begin(slot, request, on_event);
                    continue;
                }
                if self.is_calibration_due() {
                    end = self.calibrate(on_event)?;
                    continue;
                }
                match self.next(slot, strategy)? {
                    Next::Probe(request) => self.begin(slot, *request, on_event),
                    Next::Round(configs) => self.begin_round(slot, configs, on_event),
                    Next::Wait => break,
                    Next::End(reason) => end = Some(reason),
                }
            }
            if self.slots.is_idle() && self.slots.is_out_of_time {
                return Ok(StopReason::AllocationEnds);
            }
            if let Some(reason) = end.filter(|_| self.slots.is_idle()) {
                return Ok(reason);
            }
            // A new slot may join now. It waits until it is known if slots slow each other down.
            self.slots.welcomes = Some(self.side_by_side.is_fair).filter(|_| end.is_none());
            let goes_on = self.finish_next(on_event)?;
            self.slots.welcomes = None;
            if !goes_on {
                let reason = if self.setup.is_stopped() { StopReason::Interrupted } else { StopReason::TimeSpent };
                end = Some(reason);
            }
        }
    }

    /// Returns a free slot, drawn at random so that no parameter's settings coincide with a slot. A slot that may be sick waits for
    /// the results from other slots.
    fn slot_for_next(&self) -> Option<usize> {
        let mut free = self.slots.free();
        free.retain(|slot| self.slots.open() < 2 || !self.probes.is_doubted(*slot));
        let draw = Permutation::new(free.len() as u128, self.setup.seed ^ u64::from(self.next_number())).at(0)?;
        free.get(usize::try_from(draw).ok()?).copied()
    }

    /// Takes a config that failed in another slot, to retry it in this one; with a single open slot, any such config.
    fn for_elsewhere(&mut self, slot: usize) -> Option<Request> {
        let is_alone = self.slots.open() < 2;
        let elsewhere = &mut self.probes.elsewhere;
        let at = elsewhere.iter().position(|request| request.failed_in != Some(slot) || is_alone)?;
        let request = elsewhere.remove(at);
        Some(self.renewed(request))
    }

    /// Takes a config whose probes were disturbed: a due config, or any such config if there is `nothing_else`.
    fn put_back(&mut self, nothing_else: bool) -> Option<Request> {
        let request = self.probes.put_back.next(nothing_else)?;
        Some(self.renewed(request))
    }

    fn next(&mut self, slot: usize, strategy: &mut dyn Strategy) -> Result<Next, TuneError> {
        let is_idle = self.slots.is_idle();
        // The running probes may change the answer, so the end waits for them.
        let end = |reason| if is_idle { Next::End(reason) } else { Next::Wait };
        self.check_same_failure()?;
        if self.setup.is_stopped() {
            return Ok(Next::End(StopReason::Interrupted));
        }
        if let Some(request) = self.for_elsewhere(slot) {
            return Ok(Next::Probe(Box::new(request)));
        }
        let stop = self.reason_to_stop();
        // The first probe has the machine to itself: later probes are compared with it.
        if !is_idle && !self.side_by_side.is_known {
            return Ok(Next::Wait);
        }
        if let Some(configs) = self.round_due(slot) {
            return Ok(Next::Round(configs));
        }
        let is_open = |config: &&Config| !self.trials.history.is_settled(config) && !self.probes.put_back.has(config);
        let unknown = self.setup.baseline().filter(is_open);
        let due = if stop.is_none() { self.put_back(false) } else { None };
        let next = if due.is_some() {
            due
        } else if let Some(baseline) = unknown {
            if self.probes.begun().any(|begun| begun.request.config() == baseline) {
                return Ok(Next::Wait);
            }
            Some(self.probe_of(baseline.clone().into(), Purpose::Baseline))
        } else {
            self.proposed(strategy).map(|proposal| self.probe_of(proposal, Purpose::Search))
        };
        let next = if is_idle { next.or_else(|| self.put_back(true)) } else { next };
        // An exhausted space is reported even if the budget is spent as well.
        let request = match (next, stop) {
            (None, _) if self.setup.space.count() == Count::Unknown => return Ok(end(StopReason::NothingFound)),
            (None, _) => return Ok(end(StopReason::SpaceExhausted)),
            (Some(_), Some(reason)) => return Ok(end(reason)),
            (Some(request), None) => request,
        };
        let noise = self.noise();
        self.sees.gains.hear(request.proposal.gain, noise);
        Ok(match self.sees.gains.are_enough(&self.trials.history) {
            Some(reason) => Next::End(reason),
            None => Next::Probe(Box::new(request)),
        })
    }

    /// Returns the [noise](gains::noise) of the best config so far.
    fn noise(&mut self) -> f64 {
        if self.has_rounds() {
            return self.study().race().incumbent().map_or(0.0, |best| gains::noise_of(&best.estimate));
        }
        let objective = &self.setup.objective;
        self.trials.best(objective).map_or(0.0, |(trial, _)| gains::noise(objective, &trial.outcome))
    }

    fn proposed(&mut self, strategy: &mut dyn Strategy) -> Option<Proposal> {
        let objective = self.setup.objective.scalarised(&self.trials.history, self.setup.seed);
        self.sees.open.update(&self.setup.space, &self.trials.history);
        let space = self.sees.open.space(&self.setup.space);
        let pending = self.probes.pending();
        let so_far = self.probes.so_far(&self.setup.objective, &self.trials.history);
        let running = u32::try_from(self.probes.count_searches()).unwrap_or(u32::MAX);
        let left = self.probes_left().saturating_sub(running);
        let related = (self.setup.objective.is_largest_throughput() && self.trials.last_round() > 0)
            .then(|| self.study())
            .map(|study| study.race().related(&study.history));
        let history = related.as_ref().unwrap_or(&self.trials.history);
        let (shown, start) = seen(space, history, self.setup.baseline());
        let history = shown.as_ref().unwrap_or(history);
        let mut view = View::new(space, &objective, history, &pending, start.as_ref())
            .with(left, self.setup.seed)
            .with_earlier(self.sees.warm_start);
        view.so_far = &so_far;
        view.precision_speeds = Some(&self.setup.precision_speeds);
        view.between_runs = BETWEEN_RUNS;
        let proposal = strategy.propose(&view)?;
        Some(Proposal { reason: proposal.reason.map(|reason| objective.with_question(reason)), ..proposal })
    }

    /// Ends the search if its first three configs fail in the same way: then the configs are not the cause.
    fn check_same_failure(&self) -> Result<(), TuneError> {
        const SAME: usize = 3;
        if self.trials.history.count_searched() != SAME {
            return Ok(());
        }
        let mut outcomes = self.trials.history.searched().take(SAME).map(|trial| &trial.outcome);
        let Some(first) = outcomes.next() else { return Ok(()) };
        let signature = first.signature();
        let all_same = signature.is_some() && outcomes.all(|outcome| outcome.signature() == signature);
        match first.failure() {
            Some(failure) if all_same => Err(TuneError::SameFailure {
                reason: failure.reason.clone(),
                ran_out_of_time: matches!(first, Outcome::TimedOut(_) | Outcome::Stalled(_)),
                last_lines: failure.last_lines.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Ends the search with an error if disturbances left no config to compare with the baseline.
    fn check_disturbed(&self, stopped: StopReason) -> Result<(), TuneError> {
        let is_alternative = |config: &Config| self.setup.baseline() != Some(config);
        let has_alternative = || self.trials.history.searched().any(|trial| is_alternative(&trial.config));
        match self.probes.put_back.reason() {
            Some(reason) if stopped != StopReason::Interrupted && !has_alternative() => {
                Err(TuneError::Disturbed(reason.to_owned()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn next_number(&self) -> u32 {
        let of_trials = self.trials.history.highest_number().max(self.trials.last_number);
        of_trials.max(self.probes.highest_number()) + 1
    }

    /// Makes a request for a trial, in the time that is left.
    pub(super) fn request(&self, proposal: Proposal, purpose: Purpose) -> Request {
        let settings = self.trials.set_by(&proposal.config, &self.setup.space);
        let left = self.time_left();
        let most = if purpose == Purpose::Search { self.time_for_a_new_config(left) } else { left };
        let limits = Limits { probe_time: self.setup.limits.probe_time.min(most), ..self.setup.limits };
        Request { number: self.next_number(), left, ..Request::new(proposal, purpose, settings, limits) }
    }

    /// Returns how long a probe of a new config may take, so that a config with very long steps leaves time for others: half of the
    /// time left, or twice the longest probe so far if that is more. If this leaves less than a third, it may take all.
    fn time_for_a_new_config(&self, left: Duration) -> Duration {
        let measured = self.trials.history.searched().filter(|trial| trial.outcome.measurement().is_some());
        let Some(longest) = measured.map(|trial| trial.elapsed).max() else { return left };
        let most = longest.saturating_mul(2).max(left / 2);
        if most > left / 3 * 2 { left } else { most }
    }

    /// Makes a request for a probe with the effort that its purpose needs now.
    pub(super) fn probe_of(&self, proposal: Proposal, purpose: Purpose) -> Request {
        let request =
            Request { is_after_disturbance: self.probes.put_back.in_a_row > 0, ..self.request(proposal, purpose) };
        match purpose {
            Purpose::Round => Request { effort: Effort::Part { one_in: PART }, ..request },
            // Rounds will measure its speed.
            Purpose::Baseline | Purpose::Search if self.has_rounds() && self.setup.compares_rates() => {
                let precision = request.limits.precision.map(|precision| precision.max(COARSE));
                let limits = Limits { precision, ..request.limits };
                Request { effort: Effort::Brief, keeps: true, limits, ..request }
            }
            Purpose::Baseline | Purpose::Search => request,
        }
    }

    fn renewed(&self, request: Request) -> Request {
        Request { failed_in: request.failed_in, ..self.probe_of(request.proposal, request.purpose) }
    }

    pub(super) fn study(&self) -> Study {
        let (history, baseline) = (&self.trials.history, self.setup.baseline());
        Study {
            space: Arc::clone(&self.setup.space),
            objective: self.setup.objective.clone().relative_to_first(history, baseline),
            history: over_whole_epochs(history.clone(), baseline),
            baseline: baseline.cloned(),
            stopped: StopReason::Running,
            elapsed: self.clock.elapsed(),
            side_by_side: None,
        }
    }
}
