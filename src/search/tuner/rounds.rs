//! Measures configs in rounds: the baseline, the incumbent and a few more configs in short slices, seconds apart.

use std::time::{Duration, Instant};

use super::TuneError;
use super::limits::{MOST, NEW};
use super::probes::RoundUnderWay;
use super::request::{Request, Round, Work};
use super::search::{OnEvent, Search};
use crate::model::{Config, Estimate, Event, HANDED_OUT, InRound, Measurement, Outcome, Purpose, Spent, Trial};
use crate::probe::duel::{BLOCK, Block, DuelEnd, Duelled, Side, Way};
use crate::probe::stats;
use crate::probe::{Effort, Holds};
use crate::search::budget::StopReason;
use crate::search::study::Race;

/// The most processes that stay open for rounds: each keeps its memory.
const MOST_OPEN: usize = 6;

/// The failed rounds in a row after which rounds end.
const MOST_FAILURES: u32 = 3;

impl Search<'_, '_> {
    pub(super) fn has_rounds(&self) -> bool {
        self.setup.budget.rounds > self.trials.last_round() && self.rounds.failures < MOST_FAILURES
    }

    /// Returns the configs of a round that is due in a slot while the search goes on.
    pub(super) fn round_due(&mut self, slot: usize) -> Option<Vec<Config>> {
        // If each config needs a new process, a round costs as much time as that many probes. A process that trains with settings
        // cannot become the unmodified job.
        let is_unmodified = self.setup.baseline().is_some_and(Config::is_as_it_is);
        let is_cheap = match self.slots.holds {
            Holds::Processes => true,
            Holds::OneProcess => !is_unmodified,
            Holds::Nothing => false,
        };
        if !self.has_rounds() || !self.setup.compares_rates() || !is_cheap {
            return None;
        }
        let new = self.not_in_rounds(Some(slot));
        let anchors = usize::from(self.trials.last_round() == 0);
        (new.len() >= NEW + anchors && self.time_left() >= self.time_for_slices(MOST))
            .then(|| self.study().race().lineup(&new, MOST))
    }

    /// Measures the leaders in rounds until the winner is clear, or the time is up.
    pub(super) fn run_last_rounds(&mut self, on_event: OnEvent<'_>) -> Result<Option<StopReason>, TuneError> {
        self.rounds.is_in_last_rounds = true;
        while self.has_rounds() {
            if self.setup.is_stopped() {
                return Ok(Some(StopReason::Interrupted));
            }
            // Slices of short epochs include the ends of epochs, so they are comparable only if the times of these ends are known.
            if self.rounds.ends_tried.is_empty() && self.trials.last_round() > 0 {
                self.measure_epoch_ends(on_event)?;
            }
            let race = self.study().race();
            let new = if self.setup.compares_rates() { self.not_in_rounds(None) } else { Vec::new() };
            if new.is_empty() && race.is_decided() {
                break;
            }
            let fits = |lineup: &[Config]| self.time_left() >= self.time_for_round(lineup);
            let mut lineup = race.lineup(&new, MOST);
            while lineup.len() > 2 && !fits(&lineup) {
                lineup.pop();
            }
            if lineup.len() < 2 {
                break;
            }
            if !fits(&lineup) {
                return Ok(Some(StopReason::TimeSpent));
            }
            self.begin_round(self.slots.home(), lineup, on_event);
            if !self.finish_all(on_event)? {
                return Ok(Some(if self.setup.is_stopped() { StopReason::Interrupted } else { StopReason::TimeSpent }));
            }
        }
        Ok(None)
    }

    pub(super) fn begin_round(&mut self, slot: usize, configs: Vec<Config>, on_event: OnEvent<'_>) {
        let race: Race = self.study().race();
        let under_way = self.probes.in_round.iter().flatten().map(|under_way| under_way.round.number).max();
        let number = self.trials.last_round().max(under_way.unwrap_or(0)) + 1;
        let left = self.time_left();
        // While the search goes on, one process may switch between all settings. The last rounds have a process for each config.
        let (effort, ways): (Effort, &'static [Way]) =
            match (self.setup.compares_rates(), self.rounds.is_in_last_rounds) {
                (false, _) => (Effort::Probe, &[Way::Processes]),
                (true, false) => (Effort::Brief, Way::ALL),
                (true, true) => (Effort::Brief, &[Way::InTurn, Way::Processes]),
            };
        let request = |(number, config): (u32, &Config)| {
            let request = self.request(config.clone().into(), Purpose::Round);
            Request { number, effort, keeps: true, ..request }
        };
        let requests = (self.next_number()..).zip(&configs).map(request).collect();
        let may_be_last = self.slots.open() < 2 && self.rounds.is_in_last_rounds;
        let needs_another = |config: &&Config| race.needs_another_process(config, may_be_last);
        let for_starts = left.saturating_sub(self.time_for_round(&configs));
        let most = for_starts.div_duration_f64(self.trials.time_to_start_anew().max(Duration::from_millis(1)));
        let mut restarts: Vec<Config> = configs.iter().filter(needs_another).take(most as usize).cloned().collect();
        // A fresh process may take longer than all slices of a round. So only the baseline and one more config get a fresh process,
        // the incumbent first.
        restarts.truncate(1 + usize::from(restarts.first() == configs.first()));
        let kept = race.lineup(&[], MOST_OPEN);
        on_event(Event::RoundBegins { number, configs: configs.len(), left: self.expected_left() });
        let seed = self.setup.seed ^ u64::from(number);
        let round = Round { number, requests, ways, kept, restarts, seed, time: left };
        self.slots.start(slot, Work::Round(round.clone()));
        self.probes.in_round[slot] = Some(RoundUnderWay { round, began: Instant::now() });
    }

    /// Records the results of a round. Returns false if it was interrupted, which leaves no trial.
    pub(super) fn keep_round(
        &mut self,
        slot: usize,
        under_way: RoundUnderWay,
        duelled: Duelled,
        on_event: OnEvent<'_>,
    ) -> Result<bool, TuneError> {
        let RoundUnderWay { round, began } = under_way;
        let (number, count) = (round.number, round.requests.len());
        for reason in &duelled.fallbacks {
            if self.rounds.fallbacks.insert(reason.clone()) {
                on_event(Event::Remark { text: &format!("round {number}: {reason}") });
            }
        }
        // If the time is up in the middle of a round, one slice of each config is enough for a comparison.
        let has_slices = Side::first(count).all(|side| !duelled.slices(side).is_empty());
        let is_cut = matches!(duelled.end, DuelEnd::Interrupted | DuelEnd::TimeIsUp);
        let is_enough = duelled.rounds > 0 || is_cut && has_slices && !self.setup.is_stopped();
        if is_cut && !is_enough {
            return Ok(false);
        }
        let disturbed = duelled.disturbances.first();
        if let Some(reason) = disturbed {
            on_event(Event::Remark { text: &format!("round {number} does not count: {reason}") });
        }
        let is_complete = is_enough && disturbed.is_none();
        self.rounds.failures = if is_complete { 0 } else { self.rounds.failures + 1 };
        let elapsed = began.elapsed().div_f64(count as f64);
        if is_complete {
            let seconds: f64 = duelled.blocks.iter().map(|block| block.end_s - block.begin_s).sum();
            self.rounds.slice_time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            self.rounds.configs = u32::try_from(count).unwrap_or(u32::MAX);
        }
        let mut ratios = Vec::new();
        let mut first_rate = None;
        let has_ends =
            |side: Side| duelled.blocks.iter().filter(|it| it.side == side).all(|it| it.rate_between_ends.is_some());
        let is_known = |(side, request): (Side, &Request)| {
            has_ends(side) || self.trials.epoch_factor_of(request.config()).is_some()
        };
        let counts_ends = Side::first(count).zip(&round.requests).all(is_known) || self.is_epoch_end_known();
        for (side, request) in Side::first(count).zip(&round.requests) {
            let failed = duelled.side(side).filter(|outcome| outcome.failure().is_some());
            let outcome = match (failed, duelled.side(side)) {
                (Some(failed), _) if disturbed.is_none() => failed.clone(),
                (None, Some(Outcome::Measured(measurement))) if is_complete => {
                    let whole = self.trials.epoch_factor_of(request.config()).filter(|_| counts_ends);
                    Outcome::Measured(of_round(measurement, &duelled, side, number, elapsed, (counts_ends, whole)))
                }
                _ => continue,
            };
            let outcome = self.checked(outcome, request);
            if matches!(outcome, Outcome::Interrupted | Outcome::Disturbed(_)) {
                continue;
            }
            let first = self.trials.history.of(request.config()).find(|trial| !trial.purpose.is_repeated()).cloned();
            // With several slots, the slot may have failed.
            let has_failed = outcome.failure().is_some() && self.slots.count() == 1;
            if let Some(first) = first.filter(|_| has_failed) {
                // The config has failed after all.
                self.amend(Trial { outcome, elapsed: first.elapsed + elapsed, ..first }, on_event)?;
                continue;
            }
            if let Some(rate) = outcome.measurement().and_then(|run| run.throughput) {
                match first_rate {
                    None => first_rate = Some(rate.value),
                    Some(first) => ratios.push((request.settings.clone(), rate.value / first)),
                }
            }
            self.record(self.trial(slot, request, outcome, elapsed), None, on_event)?;
        }
        if is_complete {
            on_event(Event::RoundEnds { number, ratios: &ratios });
        }
        self.rounds.is_clear = self.study().race().is_decided();
        self.rounds.time_for_checks = self.time_for_checks();
        Ok(true)
    }

    pub(super) fn time_for_checks(&self) -> Duration {
        let checks = self.time_to_compare() + self.time_for_epoch_ends() + self.time_for_largest_batches();
        checks + self.time_for_traces()
    }

    /// Returns the feasible configs that were in no round yet, except configs that are much too slow. With a slot, only configs
    /// measured in it.
    fn not_in_rounds(&self, slot: Option<usize>) -> Vec<Config> {
        let place = slot.and_then(|slot| self.slots.slot(slot));
        let is_feasible = |trial: &&Trial| self.setup.objective.scores_of(&trial.outcome).is_some();
        let is_new = |trial: &&Trial| {
            let was_in_one = |other: &Trial| match other.outcome.measurement() {
                Some(run) => run.round.is_some(),
                None => other.purpose == Purpose::Round,
            };
            !self.trials.history.of(&trial.config).any(was_in_one)
                && !self.probes.in_rounds().any(|request| *request.config() == trial.config)
                && (slot.is_none() || trial.slot.as_ref() == place)
        };
        let race = self.study().race();
        let mut new: Vec<Config> = Vec::new();
        for trial in self.trials.history.searched().filter(is_feasible).filter(is_new) {
            if !new.contains(&trial.config) && !race.is_out(&trial.config) {
                new.push(trial.config.clone());
            }
        }
        new
    }

    /// Returns the time for a last round of these configs, and for the checks of the current winner.
    fn time_for_round(&self, configs: &[Config]) -> Duration {
        self.trials.time_to_start() * self.slots.starts_of(configs) + self.time_for_slices(configs.len())
    }

    /// Returns the time for the slices of this many configs, and for the checks of the current winner.
    fn time_for_slices(&self, configs: usize) -> Duration {
        self.time_per_config() * u32::try_from(configs).unwrap_or(u32::MAX) + self.rounds.time_for_checks
    }

    /// Returns the mean time of a config's slices in the last round, since steps of later configs may be longer. Before the first
    /// round: two slices and the steps dropped before each, but no longer than a probe.
    pub(super) fn time_per_config(&self) -> Duration {
        /// The steps of two slices of slow steps. Each slice has one dropped step, two counted steps and the step under way at its
        /// end.
        const STEPS: f64 = 8.0;
        if self.rounds.configs > 0 {
            return self.rounds.slice_time / self.rounds.configs;
        }
        let step_of = |trial: &Trial| trial.outcome.measurement()?.timing.step_seconds;
        let steps: Vec<f64> = self.trials.history.searched().filter_map(step_of).collect();
        let slices = stats::mean(&steps).and_then(|step| Duration::try_from_secs_f64(step * STEPS).ok());
        let slices = slices.unwrap_or_default().max(BLOCK * 3);
        self.trials.history.searched().last().map_or(slices, |trial| trial.elapsed.min(slices))
    }
}

/// Converts the slices of a config to a measurement. `counts_ends` is true if the ends of epochs count in the rates of all configs
/// of the round; `whole` is the config's rate over whole epochs as a share of its rate between their ends.
fn of_round(
    measurement: &Measurement,
    duelled: &Duelled,
    side: Side,
    number: u32,
    elapsed: Duration,
    (counts_ends, whole): (bool, Option<f64>),
) -> Measurement {
    let own = || duelled.blocks.iter().filter(|block| block.side == side);
    let has_ends = counts_ends && own().all(|block| block.rate_between_ends.is_some());
    let scale = whole.filter(|_| !has_ends).unwrap_or(1.0);
    let rate_of = |block: &Block| block.rate_between_ends.filter(|_| !has_ends).unwrap_or(block.rate) * scale;
    let slices: Vec<f64> = duelled.counted(side).map(rate_of).collect();
    let process = duelled.processes.get(side.place()).copied().unwrap_or(0);
    // The slices of a config have the same number of steps. So the rate over all of their time is the harmonic mean. With workers,
    // whose batches come in bursts, the mean of the rates is too high.
    let times: Vec<f64> = slices.iter().map(|rate| rate.recip()).collect();
    let mean = stats::mean(&times).map(|time| Estimate::point(time.recip()));
    // A slice that is the whole measurement of a process has an interval.
    let has_interval = slices.len() == 1 && duelled.way == Way::Processes;
    let throughput =
        measurement.throughput.filter(|_| has_interval).map(|rate| rate.times(slices[0] / rate.value)).or(mean);
    let measured: f64 = own().map(|block| block.end_s - block.begin_s).sum();
    let measuring_s = measured.min(elapsed.as_secs_f64());
    let spent = Spent { measuring_s, starting_s: elapsed.as_secs_f64() - measuring_s, ..Spent::default() };
    let mut of_round = measurement.clone();
    (of_round.throughput, of_round.spent) = (throughput, Some(spent));
    of_round.timing.is_unstable = false;
    if duelled.way != Way::Processes {
        // Its time includes that in which the process waited.
        of_round.metrics.remove(HANDED_OUT);
    }
    of_round.timing.epoch_factor = whole.or(has_ends.then_some(1.0));
    of_round.round = Some(InRound { number, process, slices });
    of_round
}
