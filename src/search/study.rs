//! The result of a search: its trials, and the conclusions about the best config.

mod choice;
mod extent;
mod front;
mod handed_out;
mod race;
mod whole_run;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{
    Config, Estimate, History, Judgement, Measurement, Objective, Outcome, Purpose, Settings, Space, Trial,
};
use crate::probe::stats;
use crate::search::budget::StopReason;
use crate::search::journal;
use crate::search::rounds::{Noise, Run, Scale};
use crate::search::trend::Trend;

pub use choice::{Ahead, Verdict};
pub use extent::{Alternatives, SlotSeen};
pub use front::{OnFront, Part};
pub use handed_out::TwoGains;
pub(crate) use race::Race;
pub use whole_run::WholeRun;
pub(crate) use whole_run::over_whole_epochs;

/// A search that ended, was interrupted, or is running.
#[derive(Debug)]
pub struct Study {
    /// The space that was searched.
    pub space: Arc<Space>,
    /// The objective.
    pub objective: Objective,
    /// All trials.
    pub history: History,
    /// The config that the speedup is measured against.
    pub baseline: Option<Config>,
    /// Why the search ended.
    pub stopped: StopReason,
    /// Wall time, earlier runs of the same search included.
    pub elapsed: Duration,
    /// The result of comparing the slots, in one line; absent if the search had one slot.
    pub side_by_side: Option<String>,
}

/// A feasible config with the results of all its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// The config.
    pub config: Config,
    /// The objective's metric. For a config that was in rounds, it is the anchor's metric times the ratio to the anchor, with the
    /// interval of that ratio. For any other config, it is the metric of its own probe.
    pub estimate: Estimate,
    /// How many rounds it was in.
    pub rounds: usize,
    /// Its last good measurement.
    pub measurement: Measurement,
    /// Its rounds on the study's scale; higher is better.
    runs: Vec<Run>,
    scale: Scale,
    /// True if the metric has noise; a table's numbers have none.
    is_noisy: bool,
}

impl Ranked {
    /// Returns true if its peak is device memory. Memory of the host does not decide ties: forked processes share a part of it that
    /// differs from probe to probe.
    fn has_device_memory(&self) -> bool {
        let peak = self.measurement.memory.peak_bytes;
        peak.is_some() && peak != self.measurement.machine.host_peak_bytes
    }
}

/// The result: one config, and the configs that it is compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// The winner; the baseline if no other config is better.
    pub winner: Ranked,
    /// Other configs that cannot be distinguished from it, the cheapest first.
    pub ties: Vec<Ranked>,
    /// The baseline, if it is feasible.
    pub baseline: Option<Ranked>,
    /// The result of the comparison with the baseline.
    pub verdict: Verdict,
    /// How many times better than the baseline the winner is, with its 95% interval: above 1 is better, whatever the objective's
    /// direction. The interval reaches down to the ratio without other programs. `None` if it is not proven to be better.
    pub speedup: Option<Estimate>,
    /// The same number if it is not proven.
    pub unproven_speedup: Option<Estimate>,
    /// The lowest ratio to the baseline of all rounds.
    pub lowest_speedup: Option<f64>,
    /// If the baseline stays: a config that won all of its rounds.
    pub ahead: Option<Ahead>,
    /// The ratio to the baseline rose or fell over the rounds. The speedup is then that of the rounds at the end.
    pub trend: Option<Trend>,
}

/// The largest difference, as a share, between configs that can be tied. A round number, see `is_tied`.
pub const WIDEST_TIE: f64 = 0.1;

impl Study {
    /// Makes a study of these trials that took no time, without a baseline and with the default objective.
    pub fn new(space: impl Into<Arc<Space>>, trials: impl IntoIterator<Item = Trial>) -> Self {
        Self {
            space: space.into(),
            objective: Objective::default(),
            history: trials.into_iter().collect(),
            baseline: None,
            stopped: StopReason::ProbesSpent,
            elapsed: Duration::ZERO,
            side_by_side: None,
        }
    }

    /// Returns the names and values of a config. For the unmodified job: the names and values that it reports to have used.
    pub fn settings(&self, config: &Config) -> Settings {
        if config.is_as_it_is() {
            let told = self.history.of(config).filter(|trial| trial.outcome.measurement().is_some());
            let used = told.last().map_or_else(Settings::default, |trial| journal::settings_of(trial, &self.space));
            return used.without(&self.history.closed());
        }
        // A parameter that nothing in the step takes is not set.
        self.history.set(&self.space, &self.space.settings(config))
    }

    /// Returns the outcome of the baseline's last probe, if it failed.
    pub fn baseline_failure(&self) -> Option<&Outcome> {
        let last = self.history.of(self.baseline.as_ref()?).last()?;
        last.outcome.failure().map(|_| &last.outcome)
    }

    /// Returns the feasible configs, the best first.
    ///
    /// A config that failed when it was re-measured is not feasible, however well it did before.
    pub fn ranking(&self) -> Vec<Ranked> {
        let mut ranked = self.ranked_by(&self.objective);
        ranked.sort_by(|a, b| self.score(b).total_cmp(&self.score(a)));
        ranked
    }

    /// Returns the feasible configs with the numbers of an objective, in the order in which they were first probed. The
    /// study's own objective decides which are feasible.
    fn ranked_by(&self, objective: &Objective) -> Vec<Ranked> {
        let mut seen: HashSet<&Config> = HashSet::new();
        let first_probes = self.history.searched().filter(|trial| seen.insert(&trial.config));
        let measured: Vec<(Ranked, Vec<&Trial>)> =
            first_probes.filter_map(|trial| self.rank(&trial.config, objective)).collect();
        let values = measured.iter().flat_map(|(entry, trials)| {
            let of_rounds = trials.iter().filter_map(|trial| objective.estimate(trial.outcome.measurement()?));
            of_rounds.map(|estimate| estimate.value).chain([entry.estimate.value])
        });
        let scale = Scale::of(values);
        let mut ranked: Vec<Ranked> = Vec::new();
        for (mut entry, trials) in measured {
            entry.scale = scale;
            entry.runs = trials.iter().filter_map(|trial| scale.run(trial, objective)).collect();
            entry.rounds = entry.runs.len();
            entry.is_noisy |= entry.runs.iter().any(|run| run.variance.is_some_and(|variance| variance > 0.0));
            ranked.push(entry);
        }
        self.relate_to_anchor(&mut ranked, objective.score(1.0));
        ranked
    }

    /// Replaces the estimates of configs that were in rounds by the anchor's level and their difference to it.
    fn relate_to_anchor(&self, ranked: &mut [Ranked], sign: f64) {
        let is_baseline = |entry: &&Ranked| self.baseline.as_ref() == Some(&entry.config) && entry.rounds > 0;
        let most = || ranked.iter().max_by_key(|entry| entry.rounds);
        let Some(anchor) = ranked.iter().find(is_baseline).or_else(most).map(|entry| entry.runs.clone()) else {
            return;
        };
        let values: Vec<f64> = anchor.iter().map(|run| run.value).collect();
        let Some(level) = stats::mean(&values) else { return };
        let noise = noise_of(ranked);
        for entry in ranked.iter_mut().filter(|entry| entry.rounds > 0) {
            let Some(difference) = noise.difference(&entry.runs, &anchor) else { continue };
            let half = if entry.runs == anchor { 0.0 } else { difference.half_width(TAIL) };
            let of = |point: f64| entry.scale.value(sign * point);
            let point = level + difference.value;
            let (one, other) = (of(point - half), of(point + half));
            entry.estimate = if half > 0.0 {
                Estimate::interval(of(point), one.min(other), one.max(other))
            } else {
                Estimate::point(of(point))
            };
        }
    }

    /// Returns the best config; `None` if no config is feasible. For a front, it is the recommended config.
    pub fn best(&self) -> Option<Best> {
        if self.objective.is_pareto() {
            return self.recommended();
        }
        choice::choose(self, &self.ranking())
    }

    pub(crate) fn race(&self) -> Race {
        Race::of(self)
    }

    /// Returns a config with the trials of its rounds; `None` if it is not feasible.
    fn rank<'t>(&'t self, config: &Config, objective: &Objective) -> Option<(Ranked, Vec<&'t Trial>)> {
        // A disturbed or interrupted probe says nothing about its config. Neither does a probe that closed a parameter.
        let says_nothing = |trial: &&Trial| {
            matches!(trial.outcome, Outcome::Disturbed(_) | Outcome::Interrupted) || !trial.outcome.closes().is_empty()
        };
        let mut trials: Vec<&Trial> = self.history.of(config).filter(|trial| !says_nothing(trial)).collect();
        if trials.iter().any(|trial| self.objective.score_of(&trial.outcome).is_none()) {
            return None;
        }
        let mut estimates = trials.iter().filter_map(|trial| objective.estimate(trial.outcome.measurement()?));
        let is_noisy = estimates.any(|estimate| estimate.low.is_some());
        let entry = Ranked {
            config: config.clone(),
            estimate: objective.estimate(trials.first()?.outcome.measurement()?)?,
            rounds: 0,
            measurement: measurement_of(&trials)?,
            runs: Vec::new(),
            scale: Scale::Difference,
            is_noisy,
        };
        trials.retain(|trial| trial.purpose == Purpose::Round);
        Some((entry, trials))
    }

    /// Returns how many times better one config is than another, with its 95% interval.
    pub(crate) fn gain(&self, entry: &Ranked, other: &Ranked) -> Option<Estimate> {
        ratio(&self.objective, entry, other, &noise_of(&[entry.clone(), other.clone()]))
    }

    fn score(&self, entry: &Ranked) -> f64 {
        self.objective.score(entry.estimate.value)
    }

    /// Returns the cost of a config, to choose among equals: memory, then the number of workers and the like, then the number of
    /// changes.
    fn cost(&self, entry: &Ranked, by_memory: bool) -> (u64, u64, usize) {
        /// The ratio below which memory sizes count as equal: a round number.
        const MEMORY_STEP: f64 = 1.02;
        /// The parts of a level to which sums are rounded, so that the order of summation does not matter.
        const PARTS: f64 = 1e9;
        let bytes = entry.measurement.memory.peak_bytes.filter(|_| by_memory).unwrap_or(0);
        let memory = ((bytes.max(1) as f64).ln() / MEMORY_STEP.ln()).round() as u64;
        let size: f64 = self
            .space
            .parameters()
            .iter()
            .zip(entry.config.levels())
            .filter(|(parameter, _)| parameter.is_ordinal() && costs(parameter.name()))
            .map(|(parameter, level)| f64::from(level.unwrap_or(0)) / parameter.len() as f64)
            .sum();
        let changes = self.baseline.as_ref().map_or(0, |baseline| {
            entry.config.levels().zip(baseline.levels()).filter(|(level, other)| level != other).count()
        });
        let size = (size * PARTS).round() as u64;
        (memory, size, changes)
    }

    /// Returns what the objective concludes from a trial.
    pub fn judge(&self, trial: &Trial) -> Option<Judgement> {
        trial.outcome.measurement().map(|measurement| self.objective.judge(measurement))
    }
}

fn noise_of(ranked: &[Ranked]) -> Noise {
    let is_rate = |entry: &Ranked| entry.scale == Scale::Ratio && entry.is_noisy;
    Noise::of(ranked.iter().map(|entry| entry.runs.as_slice()), ranked.iter().any(is_rate))
}

/// Returns true if the difference to the top is within the noise.
///
/// A difference of more than a tenth is no tie, however large the noise is. Then the top is the best guess, and its interval shows
/// how good that guess is.
fn is_tied(top: &Ranked, entry: &Ranked, noise: &Noise) -> bool {
    if entry.config == top.config {
        return true;
    }
    let difference = (top.estimate.value - entry.estimate.value).abs();
    if difference > WIDEST_TIE * top.estimate.value.abs().max(entry.estimate.value.abs()) {
        return false;
    }
    // Equal numbers must stay equal when their means were rounded differently.
    let rounding = 1e-12 * top.scale.point(top.estimate.value).abs().max(1.0);
    let apart = Apart::of(top, entry, noise);
    apart.value <= apart.half_width + rounding
}

/// How far two configs are apart on the study's scale.
struct Apart {
    value: f64,
    error: f64,
    half_width: f64,
}

impl Apart {
    /// Compares the rounds that have both configs; without such rounds, the intervals of both.
    fn of(one: &Ranked, other: &Ranked, noise: &Noise) -> Self {
        if let Some(difference) = noise.difference(&one.runs, &other.runs) {
            let (error, half_width) = (difference.error(), difference.half_width(TAIL));
            return Self { value: difference.value.abs(), error, half_width };
        }
        let point = |entry: &Ranked| one.scale.point(entry.estimate.value);
        let half = |entry: &Ranked| {
            let half = entry.estimate.relative_half_width().filter(|half| half.is_finite()).unwrap_or(0.0);
            if one.scale.is_ratio() { half } else { half * entry.estimate.value.abs() }
        };
        let half_width = half(one).hypot(half(other));
        Self { value: (point(one) - point(other)).abs(), error: half_width / stats::NORMAL_95, half_width }
    }
}

/// Returns how many times better the winner is, with its 95% interval; `None` if the metric has no ratios.
fn ratio(objective: &Objective, winner: &Ranked, baseline: &Ranked, noise: &Noise) -> Option<Estimate> {
    if winner.config == baseline.config {
        return Some(Estimate::interval(1.0, 1.0, 1.0));
    }
    if winner.scale == Scale::Difference {
        return None;
    }
    let times = |difference: f64| winner.scale.value(difference);
    Some(match noise.difference(&winner.runs, &baseline.runs) {
        Some(difference) => {
            let (mean, half) = (difference.value, difference.half_width(TAIL));
            Estimate::interval(times(mean), times(mean - half), times(mean + half))
        }
        None => {
            let point = |entry: &Ranked| objective.score(1.0) * entry.scale.point(entry.estimate.value);
            Estimate::point(times(point(winner) - point(baseline)))
        }
    })
}

/// The probability that a 95% interval excludes at each end.
const TAIL: f64 = 0.025;

/// Returns true if a larger value costs the machine resources, judging by the name: more workers do, a larger step size does not.
fn costs(name: &str) -> bool {
    const COSTLY: &[&str] = &["batch", "buffer", "prefetch", "process", "queue", "thread", "worker"];
    COSTLY.iter().any(|word| name.contains(word))
}

/// Returns the last measurement. Memory and machine readings come from the last run that had the machine to itself.
fn measurement_of(trials: &[&Trial]) -> Option<Measurement> {
    let measurement = |trial: &&Trial| trial.outcome.measurement().cloned();
    let last = trials.last().and_then(measurement)?;
    let own = trials.iter().rev().filter_map(measurement).find(|measurement| measurement.round.is_none());
    let numerics = trials.iter().rev().find_map(|trial| trial.outcome.measurement()?.numerics.clone());
    Some(match own {
        Some(own) if last.round.is_some() => Measurement { memory: own.memory, machine: own.machine, numerics, ..last },
        _ => Measurement { numerics, ..last },
    })
}
