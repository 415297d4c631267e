//! The parts and the start of a search; the modules below have the loop and its steps.

mod calibration;
mod checks;
mod experiments;
mod gains;
mod limits;
mod losses;
mod probes;
mod probing;
mod request;
mod rounds;
mod search;
mod slots;
mod trials;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gains::SmallGains;
use probes::{Probes, Rounds};
pub use request::Arrival;
use request::{Arrivals, InSlot};
use search::{Clock, OnEvent, Search, Sees, SideBySide};
use slots::Slots;
use trials::{Open, Trials};

use crate::diagnosis::Around;
use crate::machine::Allocation;
use crate::model::{
    Config, Event, History, LocateError, Measurement, Objective, Precision, Settings, Slot, Space, wall_time,
};
use crate::probe::{InProcess, Limits, PRECISION, ProbeError, Prober, TrainingStep};
use crate::search::budget::Budget;
use crate::search::journal::{Journal, JournalError, Recovered};
use crate::search::numerics::FullPrecision;
use crate::search::strategy::{self, Earlier, EarlierError, EarlierStudy, Strategy};
use crate::search::study::Study;

/// Why a search could not go on. Everything found until then is in the journal.
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
        /// The common reason.
        reason: String,
        /// True if a time limit ended them.
        ran_out_of_time: bool,
        /// The last lines that the step printed.
        last_lines: Vec<String>,
    },
    /// Every attempt was disturbed from outside, for several configs in a row.
    #[error("the probes are disturbed from outside: {0}")]
    Disturbed(String),
    /// The rules leave no config.
    #[error("the space has no config that satisfies every rule")]
    EmptySpace,
    /// An earlier study says nothing about this search.
    #[error("this search cannot start from an earlier study")]
    WarmStart(#[from] EarlierError),
    /// No strategy has this name.
    #[error("there is no strategy `{0}`")]
    UnknownStrategy(String),
}

/// Searches a space with a prober.
///
/// ```
/// use gputune::probe::{Step, StepError};
/// use gputune::model::space::{Parameter, Settings, Space};
/// use gputune::search::tuner::Tuner;
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
#[must_use]
pub struct Tuner<'p> {
    setup: Setup,
    probers: Probers<'p>,
    strategy: Box<dyn Strategy>,
    warm_start: Vec<EarlierStudy>,
    checks_stated_baseline: bool,
    /// The measurement of the unmodified job before the search, and how long it took.
    measured: Option<(Measurement, Duration)>,
    compares_slots: bool,
    arrivals: Option<Arrivals<'p>>,
    journal: Option<Journal>,
    recovered: Recovered,
}

/// The setup of a search, which does not change.
struct Setup {
    space: Arc<Space>,
    objective: Objective,
    budget: Budget,
    limits: Limits,
    seed: u64,
    precision_speeds: BTreeMap<Precision, f64>,
    around: Around,
    baseline: Option<Config>,
    full_precision: FullPrecision,
    /// Parameters that affect only the exchange between ranks, each with its target.
    exchanging: Vec<(String, String)>,
    stop: Arc<AtomicBool>,
    allocation: Option<Allocation>,
    /// The GPUs of a probe that has no slot with GPUs of its own.
    whole_gpus: u32,
}

impl Setup {
    fn baseline(&self) -> Option<&Config> {
        self.baseline.as_ref()
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns true if slices measure the objective. Any other metric is measured by whole processes, and only for the leaders.
    fn compares_rates(&self) -> bool {
        self.objective.is_largest_throughput()
    }
}

/// A search of at least this length first checks the stated baseline against the unmodified job. A round number.
const LONG_SEARCH: Duration = Duration::from_secs(180);

enum Probers<'p> {
    One(Box<dyn Prober + 'p>),
    Many(Vec<InSlot<'p>>),
}

impl<'p> Tuner<'p> {
    /// Searches the space for the config that trains fastest; everything else has a default.
    pub fn new(space: Space, step: impl TrainingStep + 'p) -> Self {
        Self::with_prober(space, InProcess(step))
    }

    /// Searches with a given prober instead of a step in this process.
    pub fn with_prober(space: Space, prober: impl Prober + 'p) -> Self {
        Self::with(space, Probers::One(Box::new(prober)))
    }

    /// Searches with several steps side by side, one in each slot and each in a thread of its own. `step` makes the step of a slot
    /// from the slot's number, counted from 1.
    ///
    /// The first config is measured alone, then in all slots at once. If it is slower there, the search goes on in fewer slots. The
    /// last rounds run in the first slot.
    pub fn slots<T: TrainingStep + Send + 'p>(space: Space, count: u32, step: impl Fn(u32) -> T) -> Self {
        let prober = |number| (Slot::numbered(number), InProcess(step(number)));
        Self::with_slots(space, None, (1..=count.max(1)).map(prober))
    }

    /// Searches with several probers side by side, each in a slot of its own; see [`slots`](Self::slots).
    ///
    /// If training will have the whole machine, `whole` is the prober for the whole machine. It runs the first config, to compare
    /// the slots with it, and the last rounds. It runs all probes if the slots disturb each other. Without `whole`, training will
    /// have one slot.
    pub fn with_slots<T: Prober + Send + 'p>(
        space: Space,
        whole: Option<T>,
        slots: impl IntoIterator<Item = (Slot, T)>,
    ) -> Self {
        let whole = whole.map(|prober| (None, prober));
        let all = whole.into_iter().chain(slots.into_iter().map(|(slot, prober)| (Some(slot), prober)));
        let probers: Vec<InSlot<'p>> = all.map(|(slot, prober)| -> InSlot<'p> { (slot, Box::new(prober)) }).collect();
        Self::with(space, Probers::Many(probers))
    }

    fn with(space: Space, probers: Probers<'p>) -> Self {
        let auto = &strategy::STRATEGIES[0];
        let setup = Setup {
            space: Arc::new(space),
            objective: Objective::default(),
            budget: Budget::default(),
            limits: Limits::default(),
            seed: 0,
            precision_speeds: BTreeMap::new(),
            around: Around::processors(),
            baseline: None,
            full_precision: FullPrecision::default(),
            exchanging: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            allocation: None,
            whole_gpus: 1,
        };
        Self {
            setup,
            probers,
            strategy: (auto.build)(),
            warm_start: Vec::new(),
            checks_stated_baseline: false,
            measured: None,
            compares_slots: true,
            arrivals: None,
            journal: None,
            recovered: Recovered::default(),
        }
    }

    /// Sets the strategy by its name in [`strategy::STRATEGIES`].
    ///
    /// # Errors
    /// There is no strategy of this name.
    pub fn strategy(mut self, name: &str) -> Result<Self, TuneError> {
        let entry = strategy::strategy(name).ok_or_else(|| TuneError::UnknownStrategy(name.to_owned()))?;
        self.strategy = (entry.build)();
        Ok(self)
    }

    /// Sets a strategy of the caller's own.
    pub fn with_strategy(mut self, strategy: impl Strategy + 'static) -> Self {
        self.strategy = Box::new(strategy);
        self
    }

    /// Sets the current settings as the baseline: it is probed first, and the speedup is measured against it.
    ///
    /// # Errors
    /// They are not in the space.
    pub fn baseline(mut self, settings: &Settings) -> Result<Self, LocateError> {
        self.setup.baseline = Some(self.setup.space.locate(settings)?);
        Ok(self)
    }

    /// Takes the unmodified job as the baseline. The first probe sets only `set`, which is often empty, and the speedup is
    /// measured against the settings that it used. Steps in this process do not support this, unless they know what to do without
    /// settings.
    ///
    /// # Errors
    /// The settings in `set` are not in the space.
    pub fn baseline_as_it_is(mut self, set: &Settings) -> Result<Self, LocateError> {
        self.setup.baseline = Some(self.setup.space.as_it_is_with(set)?);
        Ok(self)
    }

    /// Takes a measurement of the unmodified job, and the time that it took, for the baseline's first. A search that goes on has one
    /// already, and leaves it out.
    pub fn baseline_measured(mut self, measured: (Measurement, Duration)) -> Self {
        self.measured = Some(measured);
        self
    }

    /// Runs the unmodified job for a moment before a new search. A difference between a stated [baseline](Self::baseline) and the
    /// job is [reported](Event::Warning).
    pub fn check_stated_baseline(mut self) -> Self {
        self.checks_stated_baseline = true;
        self
    }

    /// Lets further slots join the search. The search calls `next` all the time while probes run, so `next` must not wait. A search
    /// whose last slot is gone waits ten minutes for another slot. Only a search made [with slots](Self::with_slots) calls `next`.
    pub fn arrivals(mut self, next: impl FnMut() -> Option<Arrival<'p>> + 'p) -> Self {
        self.arrivals = Some(Arrivals::from(Box::new(next)));
        self
    }

    /// Adds an earlier study, on another device or with another model, for strategies that [learn](strategy::LEARNING) from one.
    /// Parameters are matched by name, and the best config of the first study is probed right after the baseline. A misleading
    /// study loses weight as trials come in.
    ///
    /// ```
    /// use gputune::probe::{Step, StepError};
    /// use gputune::model::space::{Parameter, Settings, Space};
    /// use gputune::search::strategy::EarlierStudy;
    /// use gputune::search::tuner::Tuner;
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
    pub fn warm_start(mut self, study: EarlierStudy) -> Self {
        self.warm_start.push(study);
        self
    }

    /// Keeps trials in a journal, and continues after its recovered trials.
    pub fn journal(mut self, journal: Journal, recovered: Recovered) -> Self {
        (self.journal, self.recovered) = (Some(journal), recovered);
        self
    }

    /// Runs the search to its end.
    ///
    /// # Errors
    /// Probing is impossible, trials cannot be kept, or every config fails in the same way. The space has no config, or an earlier
    /// study says nothing about the search.
    pub fn run(mut self, mut on_event: impl FnMut(Event<'_>)) -> Result<Study, TuneError> {
        let stop = Arc::clone(&self.setup.stop);
        let earlier = wall_time(&self.recovered.trials);
        let deadline = Instant::now().checked_add(self.setup.budget.for_probes().saturating_sub(earlier));
        match std::mem::replace(&mut self.probers, Probers::Many(Vec::new())) {
            Probers::One(prober) => self.run_in(Slots::one(prober, &stop, deadline), &mut on_event),
            Probers::Many(probers) => {
                let (arrivals, is_over) = (self.arrivals.take(), AtomicBool::new(false));
                std::thread::scope(|scope| {
                    let mut slots = Slots::many(probers, arrivals, scope, &stop, &is_over, deadline);
                    if !self.compares_slots {
                        slots.open_parts();
                    }
                    self.run_in(slots, &mut on_event)
                })
            }
        }
    }

    fn run_in(self, slots: Slots<'_, '_>, on_event: OnEvent<'_>) -> Result<Study, TuneError> {
        let Self { mut setup, mut strategy, compares_slots, journal, .. } = self;
        if setup.baseline.is_none() && setup.space.first().is_none() && setup.space.is_empty() {
            return Err(TuneError::EmptySpace);
        }
        let seen = |study: &EarlierStudy| study.seen_from(&setup.space, &setup.objective);
        let warm_start: Vec<Earlier> = self.warm_start.iter().map(seen).collect::<Result<_, _>>()?;
        for study in &warm_start {
            let (place, trials, in_common) = (study.place(), study.trials(), study.in_common());
            let parameters = setup.space.parameters().len();
            let text =
                format!("warm start: {trials} trials of {place}, {in_common} of {parameters} parameters in common");
            on_event(Event::Remark { text: &text });
        }
        let Recovered { trials, expected_gains, healed, last_number, changes, older } = self.recovered;
        if !changes.is_empty() {
            let begins = format!("a new era of this journal begins, for {}", changes.join("; "));
            on_event(Event::Remark { text: &begins });
            let stay = format!("{} trials of before stay in the journal and do not count", older.trials);
            on_event(Event::Remark { text: &stay });
        }
        let history: History = trials.into_iter().collect();
        if journal.is_some() && !history.trials().is_empty() || healed {
            let cut = if healed { "; a line that was cut off in writing is dropped" } else { "" };
            on_event(Event::Remark { text: &format!("goes on from {} finished trials{cut}", history.trials().len()) });
        }
        setup.limits.precision.get_or_insert(PRECISION);
        setup.full_precision = setup.full_precision.with_space(&setup.space);
        // The check costs a start of the job, and a short search has few starts.
        let measured = self.measured.filter(|_| history.trials().is_empty());
        let is_long = setup.budget.time >= LONG_SEARCH;
        let checks_stated = self.checks_stated_baseline && is_long && history.trials().is_empty() && measured.is_none();
        let least_gain = setup.budget.least_gain;
        let gains = SmallGains::after(&setup.space, &history, &expected_gains, &setup.objective, least_gain);
        let is_known = slots.count() == 1 || !compares_slots;
        let mut search = Search {
            setup: &setup,
            clock: Clock { begin: Instant::now(), earlier: history.elapsed(), load_gpu_seconds: 0.0 },
            side_by_side: SideBySide { is_known, is_fair: !compares_slots, result: None },
            probes: Probes::new(slots.count()),
            slots,
            rounds: Rounds::default(),
            trials: Trials::new(history, journal, last_number),
            sees: Sees { warm_start: &warm_start, open: Open::default(), gains },
        };
        search.rounds.is_clear = search.trials.last_round() > 0 && search.study().race().is_decided();
        if let Some(baseline) = setup.baseline().filter(|_| checks_stated) {
            search.check_stated(baseline, on_event)?;
        }
        if let Some(measured) = measured {
            search.keep_baseline(measured, on_event)?;
        }
        let stopped = search.run(strategy.as_mut(), on_event)?;
        let side_by_side = search.side_by_side.result.take();
        Ok(Study { stopped, side_by_side, ..search.study() })
    }
}

/// Makes methods of [`Tuner`] that each set one field.
macro_rules! setters {
    ($($(#[doc = $doc:literal])* $name:ident($value:ident: $type:ty) => $($field:ident).+;)*) => {
        impl Tuner<'_> {
            $(
                $(#[doc = $doc])*
                pub fn $name(mut self, $value: $type) -> Self {
                    self.$($field).+ = $value;
                    self
                }
            )*
        }
    };
}

setters! {
    /// Sets the objective.
    objective(objective: Objective) => setup.objective;
    /// Sets the limits on the cost of the search.
    budget(budget: Budget) => setup.budget;
    /// Sets the limits of a probe.
    limits(limits: Limits) => setup.limits;
    /// Sets the longest time spent measuring a config, warm-up not counted.
    measure_time(time: Duration) => setup.limits.measure_time;
    /// Sets the seed of all random choices.
    seed(seed: u64) => setup.seed;
    /// Sets whether to measure first if slots disturb each other; the default is true. If false, slots are assumed not to disturb
    /// each other.
    compare_slots(compares_slots: bool) => compares_slots;
    /// Sets which parameters change the numerical results, besides parameters that [state it
    /// themselves](crate::model::Parameter::full_precision). A config that sets one of them wins only if the losses of its first
    /// steps agree with full precision, within [`Limits::loss_tolerance`]. If the search has no losses to compare with, it runs a
    /// few steps in full precision.
    full_precision(full_precision: FullPrecision) => setup.full_precision;
    /// Sets which parameters change only how ranks exchange gradients and weights, each with its
    /// [target](crate::probe::adapter::TARGETS). The first measured config then runs again without communication. If that saves
    /// less than 5% of the time, these parameters stay closed.
    exchanging(parameters: Vec<(String, String)>) => setup.exchanging;
    /// Sets how many times as fast as in fp32 the device multiplies matrices in each precision
    /// ([`Ceilings::relative_speeds`](crate::machine::Ceilings::relative_speeds)); the first proposals depend on it.
    precision_speeds(speeds: BTreeMap<Precision, f64>) => setup.precision_speeds;
    /// Sets the known facts about the machine; the default is its CPUs. They are used to [diagnose](crate::diagnosis) the baseline
    /// and the best config.
    around(around: Around) => setup.around;
    /// Stops the search, with everything found until then, as soon as the flag is set.
    stop_flag(stop: Arc<AtomicBool>) => setup.stop;
    /// Sets the allocation that the search runs in. No probe starts that would not fit into its rest.
    allocation(allocation: Option<Allocation>) => setup.allocation;
    /// Sets how many GPUs a probe has whose slot names none; it counts for [`Budget::gpu_time`].
    whole_gpus(gpus: u32) => setup.whole_gpus;
}
