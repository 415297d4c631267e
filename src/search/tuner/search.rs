//! The loop of a search: probes and records proposals until something ends the search.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::TuneError;
use super::gain::{self, SmallGains};
use super::reference;
use super::retries::PutBack;
use super::seen::{Open, Seen};
use crate::diagnosis::{self, Around};
use crate::model::{
    Config, Count, Estimate, Event, Failure, History, Objective, Outcome, Precision, Purpose, Settings, Space, Trial,
    arrival, front,
};
use crate::probe::{Effort, Job, Limits, Prober};
use crate::search::budget::{Budget, Round, StopReason};
use crate::search::drift;
use crate::search::journal::{self, Journal};
use crate::search::noise::NoisePrior;
use crate::search::numerics::FullPrecision;
use crate::search::strategy::{Earlier, Proposal, Strategy, View};
use crate::search::study;

pub(super) type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>);

/// A search under way.
pub(super) struct Search<'s, 'p> {
    pub(super) space: &'s Space,
    pub(super) objective: &'s Objective,
    pub(super) budget: Budget,
    pub(super) limits: &'s Limits,
    pub(super) precision_speeds: &'s BTreeMap<Precision, f64>,
    pub(super) warm_start: &'s [Earlier],
    pub(super) around: &'s Around,
    pub(super) full_precision: FullPrecision,
    pub(super) prober: Box<dyn Prober + 'p>,
    pub(super) journal: Option<Journal>,
    pub(super) stop: &'s AtomicBool,
    pub(super) begin: Instant,
    /// The time that earlier runs of the same search took.
    pub(super) earlier: Duration,
    /// Configs that are tried again later.
    pub(super) put_back: PutBack,
    /// The number of the last trial in the journal, including those of earlier eras.
    pub(super) last_number: u32,
    /// What the strategy expects to gain.
    pub(super) gains: SmallGains,
    /// The part of the space that strategies see.
    pub(super) open: Open,
    /// Whether leaders can be measured in turn, as far as was tried.
    pub(super) can_take_turns: bool,
    /// How long the confirmations of this round measure.
    pub(super) confirmation: Round,
    /// How far runs are expected to be apart.
    pub(super) noise_prior: NoisePrior,
    pub(super) history: History,
}

impl Search<'_, '_> {
    pub(super) fn elapsed(&self) -> Duration {
        self.earlier + self.begin.elapsed()
    }

    /// Whether nothing has been probed yet, now or earlier.
    pub(super) fn is_new(&self) -> bool {
        self.history.trials().is_empty()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn search(
        &mut self,
        strategy: &mut dyn Strategy,
        baseline: Option<&Config>,
        seed: u64,
        on_event: OnEvent<'_>,
    ) -> Result<StopReason, TuneError> {
        loop {
            self.check_same_failure()?;
            if self.is_stopped() {
                return Ok(StopReason::Interrupted);
            }
            let stop = self.budget.stop(&self.history, self.elapsed());
            if let Some(baseline) = baseline.filter(|baseline| stop.is_none() && self.is_reference_due(baseline)) {
                if !self.probe(baseline.clone().into(), Purpose::Reference, on_event)? {
                    return Ok(StopReason::Interrupted);
                }
                continue;
            }
            let is_open = |config: &&Config| !self.history.is_settled(config) && !self.put_back.has(config);
            let unknown = baseline.filter(is_open);
            let due = if stop.is_none() { self.put_back.next(false) } else { None };
            let next = if due.is_some() {
                due
            } else if let Some(baseline) = unknown {
                Some((Proposal::from(baseline.clone()), Purpose::Baseline))
            } else {
                self.proposed(strategy, baseline, seed).map(|proposal| {
                    let part = proposal.one_in.filter(|parts| parts.get() > 1);
                    (proposal, part.map_or(Purpose::Search, |one_in| Purpose::Screen { one_in }))
                })
            };
            let next = next.or_else(|| self.put_back.next(true));
            // If both are true, that nothing is left to try says more than that the budget is spent.
            let (proposal, purpose) = match (next, stop) {
                (None, _) if self.space.count() == Count::Unknown => return Ok(StopReason::NothingFound),
                (None, _) => return Ok(StopReason::SpaceExhausted),
                (Some(_), Some(reason)) => return Ok(reason),
                (Some(next), None) => next,
            };
            self.gains.hear(proposal.gain, self.noise());
            if let Some(reason) = self.gains.are_enough(&self.history) {
                return Ok(reason);
            }
            if !self.probe(proposal, purpose, on_event)? {
                return Ok(StopReason::Interrupted);
            }
        }
    }

    /// Returns how uncertain the best so far is, as a share.
    fn noise(&self) -> f64 {
        let view = View::new(self.space, self.objective, &self.history, &[], None);
        let best = view.best().filter(|(trial, _)| !trial.purpose.is_short());
        best.map_or(0.0, |(trial, _)| gain::noise(self.objective, &trial.outcome))
    }

    fn proposed(&mut self, strategy: &mut dyn Strategy, baseline: Option<&Config>, seed: u64) -> Option<Proposal> {
        let objective = self.objective.scalarised(&self.history, seed);
        let first = self.opened_first(baseline);
        self.open.update(self.space, &self.history);
        let space = self.open.space(self.space);
        let history = drift::levelled(self.objective, &self.history, baseline, self.noise_prior);
        let seen = Seen::of(space, &history, baseline);
        let pending = self.put_back.configs();
        let view = View::new(space, &objective, seen.history(&history), &pending, seen.start())
            .with(self.budget.probes_left(&self.history), seed)
            .with_precision_speeds(self.precision_speeds)
            .with_earlier(self.warm_start)
            .with_first(&first)
            .with_between_runs(self.noise_prior.deviation);
        let proposal = strategy.propose(&view)?;
        Some(Proposal { reason: proposal.reason.map(|reason| objective.with_question(reason)), ..proposal })
    }

    /// Returns the parameters that the baseline's bottleneck suggests, if the objective is speed. They follow from the
    /// first probe of the baseline, so a search that is continued has them, too.
    fn opened_first(&self, baseline: Option<&Config>) -> Vec<usize> {
        let Some(baseline) = baseline.filter(|_| self.objective.is_largest_throughput()) else { return Vec::new() };
        let measured = self.history.of(baseline).find_map(|trial| trial.outcome.measurement());
        measured.map_or_else(Vec::new, |measurement| {
            let set = self.space.settings(baseline);
            let is_as_it_is = baseline.is_as_it_is();
            let settings = if is_as_it_is { arrival::used(self.space, &measurement.facts, &set) } else { set };
            let verdict = diagnosis::of_config(self.space, &settings, measurement, self.around.clone());
            diagnosis::first_parameters(self.space, &verdict)
        })
    }

    /// Ends the search if the first config and two more fail in the same way: then the configs are not to blame.
    fn check_same_failure(&self) -> Result<(), TuneError> {
        const SAME: usize = 3;
        let first: Vec<&Trial> = self.history.searched().take(SAME).collect();
        let signatures: Vec<Option<String>> = first.iter().map(|trial| trial.outcome.signature()).collect();
        let all_same = first.len() == SAME && signatures[0].is_some() && signatures.iter().all(|s| *s == signatures[0]);
        match first.first().and_then(|trial| trial.outcome.failure()) {
            Some(failure) if all_same && self.history.searched().count() == SAME => Err(TuneError::SameFailure {
                reason: failure.reason.clone(),
                ran_out_of_time: matches!(first[0].outcome, Outcome::TimedOut(_) | Outcome::Stalled(_)),
                last_lines: failure.last_lines.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Runs one probe and records it; returns `false` if it was interrupted, which leaves no trial.
    pub(super) fn probe(
        &mut self,
        proposal: Proposal,
        purpose: Purpose,
        on_event: OnEvent<'_>,
    ) -> Result<bool, TuneError> {
        let Proposal { config, reason, gain, one_in } = proposal;
        let number = self.next_number();
        let settings = self.set_by(&config);
        let searched = self.history.searched().count();
        on_event(Event::Started { number, purpose, settings: &settings, searched, reason: reason.as_deref() });
        let begin = Instant::now();
        let effort = match purpose {
            Purpose::Baseline | Purpose::Search => Effort::Probe,
            Purpose::Screen { one_in } => Effort::Screen { one_in },
            Purpose::Reference => Effort::Screen { one_in: reference::PART },
            Purpose::Confirm => Effort::Confirm,
        };
        let short = Limits { measure_time: self.limits.measure_time / 2, ..*self.limits };
        let is_short = purpose == Purpose::Confirm && self.confirmation == Round::Short;
        let job = Job {
            number,
            config: &config,
            settings: &settings,
            limits: if is_short { &short } else { self.limits },
            effort,
            rival: self.rival(purpose),
            experiment: None,
            is_confirmed_later: self.budget.confirmations > 0,
        };
        let outcome = self.run_undisturbed(&job, on_event)?;
        let outcome = self.checked(outcome, &job, purpose, on_event)?;
        if outcome == Outcome::Interrupted {
            return Ok(false);
        }
        if let Outcome::Disturbed(failure) = outcome {
            if self.budget.probes == 1 {
                // There is no other config to continue with.
                return Err(TuneError::Disturbed { reason: failure.reason });
            }
            on_event(Event::PutBack { number, reason: &failure.reason });
            self.put_back.put(Proposal { config, reason, gain, one_in }, purpose, failure.reason)?;
            return Ok(true);
        }
        let elapsed = begin.elapsed();
        let trial = Trial { number, purpose, config, outcome, elapsed, ended_at: journal::unix_time() };
        self.record(trial, (reason.as_deref(), gain), on_event)?;
        Ok(true)
    }

    /// Keeps a trial that was not disturbed.
    pub(super) fn record(
        &mut self,
        trial: Trial,
        (reason, gain): (Option<&str>, Option<f64>),
        on_event: OnEvent<'_>,
    ) -> Result<(), TuneError> {
        self.put_back.is_undisturbed(&trial.config);
        if let Some(journal) = &mut self.journal {
            journal.record(&trial, self.space, reason, gain)?;
        }
        let judgement = trial.outcome.measurement().map(|measurement| self.objective.judge(measurement));
        let may_lead = !trial.purpose.is_repeated() && !trial.purpose.is_short();
        let is_best = may_lead && self.is_best(&trial);
        let shown = if trial.config.is_as_it_is() {
            journal::settings_of(&trial, self.space)
        } else {
            self.set_by(&trial.config)
        };
        on_event(Event::Finished { trial: &trial, settings: &shown, judgement: judgement.as_ref(), is_best });
        if trial.purpose == Purpose::Baseline
            && let Some(text) = trial.outcome.measurement().and_then(|told| diagnosis::out_of_reach(self.space, told))
        {
            on_event(Event::Remark { text: &text });
        }
        self.history.push(trial);
        Ok(())
    }

    /// The number of the next trial.
    pub(super) fn next_number(&self) -> u32 {
        self.history.trials().last().map_or(self.last_number, |trial| trial.number) + 1
    }

    /// What a probe of a config sets.
    pub(super) fn set_by(&self, config: &Config) -> Settings {
        self.space.settings(config).without(&self.history.closed())
    }

    /// Whether a trial is better than all so far; for a front, whether none so far is as good in every metric.
    fn is_best(&self, trial: &Trial) -> bool {
        let Some(scores) = self.objective.scores_of(&trial.outcome) else { return false };
        if self.objective.is_pareto() {
            let mut known = self
                .history
                .searched()
                .filter(|other| !other.purpose.is_short())
                .filter_map(|trial| self.objective.scores_of(&trial.outcome));
            return !known.any(|other| other == scores || front::dominates(&other, &scores));
        }
        let view = View::new(self.space, self.objective, &self.history, &[], None);
        let score = self.objective.score_of(&trial.outcome);
        score.is_some_and(|score| view.best().is_none_or(|(best, top)| score > top || best.purpose.is_short()))
    }

    /// Returns the throughput that a probe of the search must come near, or may stop early: that of the best so far, if
    /// throughput alone counts, as low as another run of it may be. The baseline and the confirmations are measured in full, because they are reported.
    fn rival(&self, purpose: Purpose) -> Option<Estimate> {
        if !(purpose == Purpose::Search || purpose.is_short()) || !self.objective.is_largest_throughput() {
            return None;
        }
        let baseline = self.history.trials().iter().find(|trial| trial.purpose == Purpose::Baseline);
        let baseline = baseline.map(|trial| &trial.config);
        let history = drift::levelled(self.objective, &self.history, baseline, self.noise_prior);
        study::Known::of(self.objective, &history, self.noise_prior)?.to_beat(study::PRUNING_ERROR)
    }

    /// Runs a probe, and repeats it after a pause if it was disturbed, since a disturbed probe says nothing about its
    /// config. Disturbed attempts are not recorded. If all attempts are disturbed, so is the result.
    pub(super) fn run_undisturbed(&mut self, job: &Job<'_>, on_event: OnEvent<'_>) -> Result<Outcome, TuneError> {
        const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5)];
        const PAUSE_IN_A_ROW: Duration = Duration::from_secs(5);
        let mut last = Failure::new("");
        for (at, pause) in PAUSES.into_iter().enumerate() {
            if at > 0 {
                on_event(Event::Disturbed { number: job.number, reason: &last.reason });
            }
            if !self.pause(if at == 0 && self.put_back.is_disturbed() { PAUSE_IN_A_ROW } else { pause }) {
                return Ok(Outcome::Interrupted);
            }
            let stop = self.stop;
            let outcome = self.prober.probe(job, &mut |progress| {
                on_event(Event::Progress { number: job.number, progress });
                if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            for remark in self.prober.remarks() {
                on_event(Event::Remark { text: &remark });
            }
            match outcome {
                Outcome::Disturbed(failure) => last = failure,
                outcome => return Ok(outcome),
            }
        }
        Ok(Outcome::Disturbed(last))
    }

    /// Waits unless somebody stops the search; returns whether nobody did.
    pub(super) fn pause(&self, time: Duration) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let begin = Instant::now();
        while begin.elapsed() < time && !self.is_stopped() {
            std::thread::sleep(LOOK_EVERY);
        }
        !self.is_stopped()
    }
}
