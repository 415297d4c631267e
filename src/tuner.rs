//! The loop: propose, probe, record, and confirm the leaders at the end.

mod checks;
mod confirm;
mod gain;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gain::SmallGains;

use crate::budget::{Budget, StopReason};
use crate::event::Event;
use crate::journal::{Journal, JournalError, Recovered};
use crate::numerics::FullPrecision;
use crate::objective::{Objective, front};
use crate::outcome::{Estimate, Outcome};
use crate::precision::Precision;
use crate::probe::{Effort, InProcess, Job, Limits, ProbeError, Prober, TrainingStep};
use crate::space::{Config, LocateError, Settings, Space};
use crate::strategy::{self, Earlier, EarlierError, EarlierStudy, Proposal, Strategy, View};
use crate::study::Study;
use crate::trial::{History, Purpose, Trial};

/// Why a search could not go on. What was found until then is in the journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// No config can be probed.
    #[error("probing is impossible")]
    Probe(#[from] ProbeError),
    /// A trial cannot be kept.
    #[error("a trial cannot be kept")]
    Journal(#[from] JournalError),
    /// The step fails in the same way whatever the config.
    #[error("every config so far failed in the same way: {reason}")]
    SameFailure {
        /// How.
        reason: String,
        /// Whether a limit on time ended them.
        ran_out_of_time: bool,
        /// The last lines that the step printed.
        last_lines: Vec<String>,
    },
    /// Something outside disturbed every try of a probe.
    #[error("something disturbs the probes: {reason}")]
    Disturbed {
        /// What.
        reason: String,
    },
    /// The rules leave no config.
    #[error("the space has no config that satisfies every rule")]
    EmptySpace,
    /// An earlier study says nothing about this search.
    #[error("this search cannot start from an earlier study")]
    WarmStart(#[from] EarlierError),
    /// No strategy has this name.
    #[error("there is no strategy `{name}`")]
    UnknownStrategy {
        /// The name.
        name: String,
    },
}

/// Searches a space with a prober.
///
/// ```
/// use gputune::probe::{Step, StepError};
/// use gputune::space::{Parameter, Settings, Space};
/// use gputune::tuner::Tuner;
///
/// let space = Space::new([Parameter::values("batch_size", [8, 16, 32])])?;
/// let study = Tuner::new(space, |settings: &Settings| -> Result<Step, StepError> {
///     let batch_size = settings.integer("batch_size").unwrap_or(8).unsigned_abs();
///     std::thread::sleep(std::time::Duration::from_millis(2)); // train on one batch
///     Ok(Step::new(batch_size))
/// })
/// .measure_time(std::time::Duration::from_millis(100))
/// .run(|_event| ())?;
/// let best = study.best().ok_or("nothing fits")?;
/// assert_eq!(study.settings(&best.winner.config).line(), "batch_size=32");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tuner<'p> {
    space: Space,
    prober: Box<dyn Prober + 'p>,
    objective: Objective,
    budget: Budget,
    limits: Limits,
    strategy: Box<dyn Strategy>,
    seed: u64,
    precision_speeds: BTreeMap<Precision, f64>,
    warm_start: Vec<EarlierStudy>,
    baseline: Option<Config>,
    full_precision: FullPrecision,
    journal: Option<Journal>,
    recovered: Recovered,
    stop: Arc<AtomicBool>,
}

impl<'p> Tuner<'p> {
    /// Searches the space for the config that trains fastest; everything else has a default.
    pub fn new(space: Space, step: impl TrainingStep + 'p) -> Self {
        Self::with_prober(space, InProcess(step))
    }

    /// Searches with another prober than one that runs a step in this process.
    pub fn with_prober(space: Space, prober: impl Prober + 'p) -> Self {
        let auto = &strategy::STRATEGIES[0];
        Self {
            space,
            prober: Box::new(prober),
            objective: Objective::default(),
            budget: Budget::default(),
            limits: Limits::default(),
            strategy: (auto.build)(),
            seed: 0,
            precision_speeds: BTreeMap::new(),
            warm_start: Vec::new(),
            baseline: None,
            full_precision: FullPrecision::default(),
            journal: None,
            recovered: Recovered::default(),
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Sets what better means.
    #[must_use]
    pub fn objective(mut self, objective: Objective) -> Self {
        self.objective = objective;
        self
    }

    /// Sets what the search may cost.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets how far a probe may go.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the longest time spent measuring a config, warm-up not counted.
    #[must_use]
    pub fn measure_time(mut self, time: Duration) -> Self {
        self.limits.measure_time = time;
        self
    }

    /// Sets the strategy by its name in [`strategy::STRATEGIES`].
    ///
    /// # Errors
    /// There is none of this name.
    pub fn strategy(mut self, name: &str) -> Result<Self, TuneError> {
        let entry = strategy::strategy(name).ok_or_else(|| TuneError::UnknownStrategy { name: name.to_owned() })?;
        self.strategy = (entry.build)();
        Ok(self)
    }

    /// Sets a strategy of the caller's own.
    #[must_use]
    pub fn with_strategy(mut self, strategy: impl Strategy + 'static) -> Self {
        self.strategy = Box::new(strategy);
        self
    }

    /// Sets what chance depends on.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the current settings: probed first, and what the speed-up is measured against.
    ///
    /// # Errors
    /// They are not in the space.
    pub fn baseline(mut self, settings: &Settings) -> Result<Self, LocateError> {
        self.baseline = Some(self.space.locate(settings)?);
        Ok(self)
    }

    /// Sets which parameters change what is computed, beside those that [say so
    /// themselves](crate::space::Parameter::full_precision). A config that sets one of them wins only when the losses of its
    /// first steps are those of full precision, within [`Limits::loss_tolerance`]; where the search has none to compare
    /// with, a few steps in full precision are run.
    #[must_use]
    pub fn full_precision(mut self, full_precision: FullPrecision) -> Self {
        self.full_precision = full_precision;
        self
    }

    /// Sets how many times as fast as in fp32 the device multiplies matrices in each precision
    /// ([`Ceilings::relative_speeds`](crate::ceilings::Ceilings::relative_speeds)): what is tried first depends on it.
    #[must_use]
    pub fn precision_speeds(mut self, speeds: BTreeMap<Precision, f64>) -> Self {
        self.precision_speeds = speeds;
        self
    }

    /// Adds an earlier study, on another device or with another model, that the strategy learns from where it is one that
    /// [does](strategy::LEARNING). Parameters are compared by name; the best config of the first study is probed right
    /// after the baseline. One that misleads fades as trials come in.
    ///
    /// ```
    /// use gputune::probe::{Step, StepError};
    /// use gputune::space::{Parameter, Settings, Space};
    /// use gputune::strategy::EarlierStudy;
    /// use gputune::tuner::Tuner;
    ///
    /// let space = || Space::new([Parameter::values("batch_size", [8, 16, 32])]);
    /// let step = |settings: &Settings| -> Result<Step, StepError> {
    ///     std::thread::sleep(std::time::Duration::from_millis(2)); // train on one batch
    ///     Ok(Step::new(settings.integer("batch_size").unwrap_or(8).unsigned_abs()))
    /// };
    /// let measure_time = std::time::Duration::from_millis(50);
    /// let small = Tuner::new(space()?, step).measure_time(measure_time).run(|_event| ())?;
    /// let earlier = EarlierStudy::of("the small model", &small.space, &small.history);
    /// let large = Tuner::new(space()?, step).measure_time(measure_time).warm_start(earlier).run(|_event| ())?;
    /// assert_eq!(large.settings(&large.history.trials()[0].config).line(), "batch_size=32");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn warm_start(mut self, study: EarlierStudy) -> Self {
        self.warm_start.push(study);
        self
    }

    /// Keeps trials in a journal and goes on from what was in it.
    #[must_use]
    pub fn journal(mut self, journal: Journal, recovered: Recovered) -> Self {
        (self.journal, self.recovered) = (Some(journal), recovered);
        self
    }

    /// Stops the search, with everything found until then, as soon as the flag is set.
    #[must_use]
    pub fn stop_flag(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// Runs the search to its end.
    ///
    /// # Errors
    /// Probing is impossible, trials cannot be kept, every config fails in the same way, there is no config, or an earlier
    /// study says nothing about the search.
    pub fn run(self, mut on_event: impl FnMut(Event<'_>)) -> Result<Study, TuneError> {
        let begin = Instant::now();
        if self.baseline.is_none() && self.space.first().is_none() {
            return Err(TuneError::EmptySpace);
        }
        let seen = |study: &EarlierStudy| study.seen_from(&self.space, &self.objective);
        let warm_start: Vec<Earlier> = self.warm_start.iter().map(seen).collect::<Result<_, _>>()?;
        for study in &warm_start {
            let (place, trials, in_common) = (study.place(), study.trials(), study.in_common());
            on_event(Event::WarmStart { place, trials, in_common, parameters: self.space.parameters().len() });
        }
        let Recovered { trials, expected_gains, healed } = self.recovered;
        let history: History = trials.into_iter().collect();
        if self.journal.is_some() && !history.trials().is_empty() || healed {
            on_event(Event::Resumed { trials: history.trials().len(), healed });
        }
        let earlier = history.elapsed();
        let mut search = Search {
            space: &self.space,
            objective: &self.objective,
            budget: self.budget,
            limits: &self.limits,
            precision_speeds: &self.precision_speeds,
            warm_start: &warm_start,
            full_precision: self.full_precision.with_space(&self.space),
            prober: self.prober,
            journal: self.journal,
            stop: &self.stop,
            begin,
            earlier,
            gains: SmallGains::after(&history, &expected_gains, &self.objective, self.budget.least_gain),
            history,
        };
        let mut strategy = self.strategy;
        let stopped = search.search(strategy.as_mut(), self.baseline.as_ref(), self.seed, &mut on_event)?;
        let stopped = match stopped {
            StopReason::Interrupted => stopped,
            _ => search.confirm(self.baseline.as_ref(), &mut on_event)?.unwrap_or(stopped),
        };
        let (elapsed, history) = (search.elapsed(), search.history);
        let objective = self.objective.clone().relative_to_first(&history);
        Ok(Study { space: self.space, objective, history, baseline: self.baseline, stopped, elapsed })
    }
}

type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>);

/// A search under way.
struct Search<'s, 'p> {
    space: &'s Space,
    objective: &'s Objective,
    budget: Budget,
    limits: &'s Limits,
    precision_speeds: &'s BTreeMap<Precision, f64>,
    warm_start: &'s [Earlier],
    full_precision: FullPrecision,
    prober: Box<dyn Prober + 'p>,
    journal: Option<Journal>,
    stop: &'s AtomicBool,
    begin: Instant,
    /// Time that earlier runs of the same search took.
    earlier: Duration,
    /// What the strategy expects to gain.
    gains: SmallGains,
    history: History,
}

impl Search<'_, '_> {
    fn elapsed(&self) -> Duration {
        self.earlier + self.begin.elapsed()
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn search(
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
            let unknown = baseline.filter(|baseline| !self.history.is_settled(baseline));
            let next = if let Some(baseline) = unknown {
                Some((Proposal::from(baseline.clone()), Purpose::Baseline))
            } else {
                self.proposed(strategy, baseline, seed).map(|proposal| {
                    let part = proposal.one_in.filter(|parts| parts.get() > 1);
                    (proposal, part.map_or(Purpose::Search, |one_in| Purpose::Screen { one_in }))
                })
            };
            // That nothing is left to try says more than that the budget is spent, where both are true.
            let (proposal, purpose) = match (next, stop) {
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

    /// How much the best so far may be off, as a share.
    fn noise(&self) -> f64 {
        let view = View::new(self.space, self.objective, &self.history, &[], None);
        let best = view.best().filter(|(trial, _)| !trial.purpose.is_short());
        best.map_or(0.0, |(trial, _)| gain::noise(self.objective, &trial.outcome))
    }

    fn proposed(&self, strategy: &mut dyn Strategy, baseline: Option<&Config>, seed: u64) -> Option<Proposal> {
        let searched = u32::try_from(self.history.searched().count()).unwrap_or(u32::MAX);
        let objective = self.objective.scalarised(&self.history, seed);
        let view = View::new(self.space, &objective, &self.history, &[], baseline)
            .with(self.budget.probes.saturating_sub(searched), seed)
            .with_precision_speeds(self.precision_speeds)
            .with_earlier(self.warm_start);
        let proposal = strategy.propose(&view)?;
        Some(Proposal { reason: proposal.reason.map(|reason| objective.with_question(reason)), ..proposal })
    }

    /// The same failure at the first config and twice more is not the configs' fault.
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

    /// Runs one probe and records it; `false` when it was interrupted, which leaves no trial.
    fn probe(&mut self, proposal: Proposal, purpose: Purpose, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        let Proposal { config, reason, gain, .. } = proposal;
        let number = self.history.trials().last().map_or(1, |trial| trial.number + 1);
        let settings = self.space.settings(&config);
        let searched = self.history.searched().count();
        on_event(Event::Started { number, purpose, settings: &settings, searched, reason: reason.as_deref() });
        let begin = Instant::now();
        let effort = match purpose {
            Purpose::Baseline | Purpose::Search => Effort::Probe,
            Purpose::Screen { one_in } => Effort::Screen { one_in },
            Purpose::Confirm => Effort::Confirm,
        };
        let job = Job {
            number,
            config: &config,
            settings: &settings,
            limits: self.limits,
            effort,
            rival: self.rival(purpose),
        };
        let outcome = self.run_undisturbed(&job, on_event)?;
        let outcome = self.checked(outcome, &job, purpose, on_event)?;
        if outcome == Outcome::Interrupted {
            return Ok(false);
        }
        let trial = Trial { number, purpose, config, outcome, elapsed: begin.elapsed() };
        if let Some(journal) = &mut self.journal {
            journal.record(&trial, self.space, reason.as_deref(), gain)?;
        }
        let judgement = trial.outcome.measurement().map(|measurement| self.objective.judge(measurement));
        let may_lead = purpose != Purpose::Confirm && !purpose.is_short();
        let is_best = may_lead && self.is_best(&trial);
        on_event(Event::Finished { trial: &trial, settings: &settings, judgement: judgement.as_ref(), is_best });
        self.history.push(trial);
        Ok(true)
    }

    /// Whether a trial is better than all so far; of a front, whether none so far is as good in every metric.
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

    /// The throughput that a search probe must come near, or may stop: the best so far, where nothing but throughput
    /// counts. The baseline and the confirmations are measured in full, because they are reported.
    fn rival(&self, purpose: Purpose) -> Option<Estimate> {
        if !(purpose == Purpose::Search || purpose.is_short()) || !self.objective.is_largest_throughput() {
            return None;
        }
        let view = View::new(self.space, self.objective, &self.history, &[], None);
        view.best()?.0.outcome.measurement()?.throughput
    }

    /// A disturbed probe says nothing about its config, so it is run again, after a while, and never recorded.
    fn run_undisturbed(&mut self, job: &Job<'_>, on_event: OnEvent<'_>) -> Result<Outcome, TuneError> {
        const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5)];
        let mut reason = String::new();
        for (at, pause) in PAUSES.into_iter().enumerate() {
            if at > 0 {
                on_event(Event::Disturbed { number: job.number, reason: &reason });
            }
            if !self.pause(pause) {
                return Ok(Outcome::Interrupted);
            }
            let stop = self.stop;
            let outcome = self.prober.probe(job, &mut |progress| {
                on_event(Event::Progress { number: job.number, progress });
                if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            match outcome {
                Outcome::Disturbed(failure) => reason = failure.reason,
                outcome => return Ok(outcome),
            }
        }
        Err(TuneError::Disturbed { reason })
    }

    /// Waits, unless somebody stops the search; whether nobody did.
    fn pause(&self, time: Duration) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let begin = Instant::now();
        while begin.elapsed() < time && !self.is_stopped() {
            std::thread::sleep(LOOK_EVERY);
        }
        !self.is_stopped()
    }
}
