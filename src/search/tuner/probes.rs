//! The probes of a search: under way in the slots, and waiting to be retried.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::request::{Request, Round};
use super::retries::{Health, PutBack};
use crate::model::{Config, History, Judgement, Measurement, Objective};
use crate::probe::stats::median;
use crate::search::strategy::SoFar;

/// A probe under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) request: Request,
    pub(super) began: Instant,
    /// The measurement, while the cost of the exchange between ranks is being measured.
    pub(super) waits_for_exchange: Option<Measurement>,
}

/// A round under way.
#[derive(Debug)]
pub(super) struct RoundUnderWay {
    pub(super) round: Round,
    pub(super) began: Instant,
}

/// The state of the rounds in this run of the search.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The time of the slices in the last complete round.
    pub(super) slice_time: Duration,
    /// How many configs that round had.
    pub(super) configs: u32,
    /// The time for the checks of the config that would be named now: its losses in full precision, the end of its
    /// epochs, its largest batch, and a recording of its steps.
    pub(super) time_for_checks: Duration,
    /// The failed rounds in a row.
    pub(super) failures: u32,
    /// Why rounds could not be measured in a better way. Each reason is told once.
    pub(super) fallbacks: BTreeSet<String>,
    /// The configs for which a run with short epochs was tried.
    pub(super) ends_tried: Vec<Config>,
    /// The configs for which a step with the largest batch was tried.
    pub(super) largest_tried: Vec<Config>,
    /// True if no further config is probed and only rounds go on.
    pub(super) is_in_last_rounds: bool,
    /// True if the rounds so far show which config to name.
    pub(super) is_clear: bool,
}

impl RoundUnderWay {
    /// Returns how long the round takes, if each config takes this long.
    pub(super) fn takes(&self, each: Duration) -> Duration {
        let count = u32::try_from(self.round.requests.len()).unwrap_or(u32::MAX);
        self.began.elapsed().max(each * count)
    }
}

/// The probes under way, and the configs that are retried later.
pub(super) struct Probes {
    /// The probe under way in each slot.
    pub(super) begun: Vec<Option<UnderWay>>,
    /// The rounds that run, by their slot.
    pub(super) in_round: Vec<Option<RoundUnderWay>>,
    /// The latest measurement of each probe under way, by trial number.
    pub(super) so_far: BTreeMap<u32, Measurement>,
    pub(super) health: Health,
    /// Configs that failed in a slot and are retried in another slot before the failure counts.
    pub(super) elsewhere: Vec<Request>,
    /// Configs that are tried again later.
    pub(super) put_back: PutBack,
}

impl Probes {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            begun: (0..slots).map(|_| None).collect(),
            in_round: (0..slots).map(|_| None).collect(),
            so_far: BTreeMap::new(),
            health: Health::of(slots),
            elsewhere: Vec::new(),
            put_back: PutBack::default(),
        }
    }

    /// Makes room for the state of slots that have joined. Returns the number of slots before.
    pub(super) fn make_room(&mut self, slots: usize) -> usize {
        let before = self.begun.len();
        self.begun.resize_with(slots.max(before), || None);
        self.in_round.resize_with(slots.max(before), || None);
        self.health.add(slots.saturating_sub(before));
        before
    }

    /// Returns the probes under way.
    pub(super) fn begun(&self) -> impl Iterator<Item = &UnderWay> {
        self.begun.iter().flatten()
    }

    /// Returns how many of the running probes search for a better config.
    pub(super) fn count_searches(&self) -> usize {
        self.begun().filter(|begun| !begun.request.purpose.is_repeated()).count()
    }

    /// Returns the requests of the rounds under way.
    pub(super) fn in_rounds(&self) -> impl Iterator<Item = &Request> {
        self.in_round.iter().flatten().flat_map(|under_way| &under_way.round.requests)
    }

    /// Returns the highest number of a trial under way; zero without one.
    pub(super) fn highest_number(&self) -> u32 {
        let begun = self.begun().map(|begun| &begun.request);
        begun.chain(self.in_rounds()).map(|request| request.number).max().unwrap_or(0)
    }

    /// Returns the highest number of a round under way; zero without one.
    pub(super) fn highest_round(&self) -> u32 {
        self.in_round.iter().flatten().map(|under_way| under_way.round.number).max().unwrap_or(0)
    }

    /// Returns true if a slot may be sick, and the results of its configs in other slots are not known.
    pub(super) fn is_doubted(&self, slot: usize) -> bool {
        let begun = self.begun().map(|begun| &begun.request);
        self.elsewhere.iter().chain(begun).any(|request| request.failed_in == Some(slot))
    }

    /// Takes a config that failed in another slot, to retry it in this one; with a single open slot, any such config.
    pub(super) fn take_for(&mut self, slot: usize, is_alone: bool) -> Option<Request> {
        let at = self.elsewhere.iter().position(|request| request.failed_in != Some(slot) || is_alone)?;
        Some(self.elsewhere.remove(at))
    }

    /// Returns the configs under way, in the order of [`Self::so_far`], and then the configs that wait.
    pub(super) fn pending(&self) -> Vec<Config> {
        let begun = self.begun().map(|begun| begun.request.config().clone());
        let elsewhere = self.elsewhere.iter().map(|request| request.config().clone());
        begun.chain(self.put_back.configs()).chain(elsewhere).collect()
    }

    /// Returns the result so far of each probe under way, if the search is for throughput. Proposals do not wait for the end of
    /// these probes.
    ///
    /// First readings may come from a loader that still starts. With two workers on two cores, they showed a tenth of the final
    /// rate, to ±7%. So readings count from half of the usual probe time on.
    pub(super) fn so_far(&self, objective: &Objective, history: &History) -> Vec<Option<SoFar>> {
        /// Half the width of the interval that another run falls into, as a share: runs are 1 to 7% apart.
        const BETWEEN_RUNS: f64 = 0.06;
        /// The number of last trials that show how long a probe takes. A round number.
        const LAST: usize = 16;
        let last = history.trials().iter().rev().take(LAST);
        let usual =
            median(&last.map(|trial| trial.elapsed.as_secs_f64()).collect::<Vec<f64>>()).unwrap_or(f64::INFINITY);
        let of_probe = |begun: &UnderWay| {
            let counts = begun.waits_for_exchange.is_none()
                && !begun.request.purpose.is_repeated()
                && begun.began.elapsed().as_secs_f64() >= usual / 2.0
                && objective.is_largest_throughput();
            let measurement = self.so_far.get(&begun.request.number).filter(|_| counts)?;
            let Judgement::Feasible(score) = objective.judge(measurement) else { return None };
            let half_width = measurement.throughput?.relative_half_width()?;
            Some(SoFar { score, half_width: half_width.hypot(BETWEEN_RUNS) })
        };
        self.begun().map(of_probe).collect()
    }
}
