//! The result of a search: its trials, and what they say about the best config.

mod choice;
mod extent;
mod front;
mod leaders;
mod rounds;

use std::collections::HashSet;
use std::time::Duration;

use crate::model::{
    Config, Estimate, History, Judgement, Measurement, Objective, Outcome, Purpose, Settings, Space, Trial,
};
use crate::probe::stats::{self, Observation};
use crate::search::budget::StopReason;
use crate::search::journal;
use rounds::Rounds;

pub use choice::Verdict;
pub use extent::{Alternatives, Confirmed};
pub use front::{OnFront, Part};
pub(crate) use leaders::{confirmed, leaders};

/// A search that ended, was interrupted, or is running.
#[derive(Debug)]
pub struct Study {
    /// The space that was searched.
    pub space: Space,
    /// The objective.
    pub objective: Objective,
    /// All trials.
    pub history: History,
    /// The config that the speed-up is measured against.
    pub baseline: Option<Config>,
    /// Why the search ended.
    pub stopped: StopReason,
    /// Wall time, earlier runs of the same search included.
    pub elapsed: Duration,
}

/// A feasible config with the results of all its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// The config.
    pub config: Config,
    /// The objective's metric over its trials; over confirmations alone if there are any.
    pub estimate: Estimate,
    /// How many confirmations there are.
    pub confirmations: usize,
    /// Its last good measurement.
    pub measurement: Measurement,
    /// The metric of each trial that counts.
    values: Vec<Estimate>,
    /// The same numbers on the study's scale.
    points: Vec<Observation>,
    errors_are_known: bool,
    scale: Scale,
}

/// The scale on which metrics are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Logarithms: noise is a share of a speed.
    Ratio,
    /// The metric itself, for one that may be zero or negative and then has no logarithm.
    Difference,
}

/// The result: one config, and what it is compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// The config that is named.
    pub winner: Ranked,
    /// Other configs that cannot be distinguished from it, the cheapest first.
    pub ties: Vec<Ranked>,
    /// The baseline, if it is feasible.
    pub baseline: Option<Ranked>,
    /// The result of the comparison with the baseline.
    pub verdict: Verdict,
    /// How many times better than the baseline the winner is: above 1 is better, whatever the objective's direction.
    /// The interval holds with 95 % for all configs that were measured again together. `None` where the comparison is
    /// not confirmed.
    pub speedup: Option<Estimate>,
    /// The same where the winner or the baseline was not measured again: an observation that is not reliable.
    pub unconfirmed_speedup: Option<Estimate>,
}

/// The factor by which repeated measurements differ more than their own intervals say.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    ratio: f64,
    degrees: usize,
}

/// The largest difference, as a share, between configs that can be tied. A round number, see `is_tied`.
pub const WIDEST_TIE: f64 = 0.1;

impl Study {
    /// Returns the names and values of a config; for the job as it is, those that it reports to have used.
    pub fn settings(&self, config: &Config) -> Settings {
        if config.is_as_it_is() {
            let told = self.history.of(config).filter(|trial| trial.outcome.partial_measurement().is_some());
            let used = told.last().map_or_else(Settings::default, |trial| journal::settings_of(trial, &self.space));
            return used.without(&self.history.closed());
        }
        // A parameter that nothing in the step takes is not set.
        self.space.settings(config).without(&self.history.closed())
    }

    /// Returns the feasible configs, the best first.
    ///
    /// A config that failed when it was measured again is not feasible, however well it did before.
    pub fn ranking(&self) -> Vec<Ranked> {
        let mut ranked = self.ranked_by(&self.objective);
        ranked.sort_by(|a, b| self.score(b).total_cmp(&self.score(a)));
        ranked
    }

    /// Returns the feasible configs with the numbers of an objective, in the order in which they were first probed. The
    /// study's own objective decides which are feasible.
    fn ranked_by(&self, objective: &Objective) -> Vec<Ranked> {
        let is_confirmed = self.is_confirmed();
        let mut seen: HashSet<&Config> = HashSet::new();
        let mut ranked: Vec<Ranked> = self
            .contenders()
            .filter(|trial| seen.insert(&trial.config))
            .filter_map(|trial| self.rank(&trial.config, objective, is_confirmed))
            .collect();
        let scale = Scale::of(&ranked);
        for entry in &mut ranked {
            entry.scale = scale;
        }
        place_points(&mut ranked, scale);
        let spread = spread(&ranked);
        for entry in &mut ranked {
            entry.estimate = entry.pooled(spread);
        }
        ranked
    }

    /// Returns the best config; `None` when none is feasible. For a front it is the recommended one.
    pub fn best(&self) -> Option<Best> {
        if self.objective.is_pareto() {
            return self.recommended();
        }
        let ranking = self.ranking();
        choice::choose(self, &ranking, &Noise::of(&ranking))
    }

    /// The searched trials that can be the best.
    fn contenders(&self) -> impl Iterator<Item = &Trial> {
        self.history.contenders(|outcome| self.objective.scores_of(outcome).is_some())
    }

    fn rank(&self, config: &Config, objective: &Objective, is_confirmed: bool) -> Option<Ranked> {
        // A disturbed or interrupted probe says nothing about its config; nor does one that closed a parameter.
        let says_nothing = |trial: &&Trial| {
            matches!(trial.outcome, Outcome::Disturbed(_) | Outcome::Interrupted) || !trial.outcome.closes().is_empty()
        };
        let mut trials: Vec<&Trial> = self.history.of(config).filter(|trial| !says_nothing(trial)).collect();
        // A longer probe replaces the results of a short one.
        if trials.iter().any(|trial| !trial.purpose.is_short()) {
            trials.retain(|trial| !trial.purpose.is_short());
        } else {
            trials.drain(..trials.len().saturating_sub(1));
        }
        if trials.iter().any(|trial| self.objective.score_of(&trial.outcome).is_none()) {
            return None;
        }
        let is_confirmation = |trial: &&&Trial| trial.purpose == Purpose::Confirm;
        let confirmations: Vec<&&Trial> =
            if is_confirmed { trials.iter().filter(is_confirmation).collect() } else { Vec::new() };
        // The leaders were chosen because of their first measurement, so it is biased in their favour.
        let counted = if confirmations.is_empty() { trials.iter().collect() } else { confirmations.clone() };
        let values: Vec<Estimate> =
            counted.iter().filter_map(|trial| objective.estimate(trial.outcome.measurement()?)).collect();
        Some(Ranked {
            config: config.clone(),
            estimate: *values.first()?,
            confirmations: confirmations.len(),
            measurement: trials.last()?.outcome.measurement()?.clone(),
            values,
            points: Vec::new(),
            errors_are_known: false,
            scale: Scale::Difference,
        })
    }

    /// Whether the leaders and the baseline were measured again at least once each. Before that, configs that were
    /// measured again cannot be compared fairly with those that were not.
    fn is_confirmed(&self) -> bool {
        let is_feasible = |trial: &Trial| self.objective.score_of(&trial.outcome).is_some();
        let leader = self.leader();
        let held = |config: &&Config| self.contenders().any(|trial| trial.config == **config && is_feasible(trial));
        let baseline = self.baseline.as_ref().filter(held);
        let mut wanted = leader.as_ref().into_iter().chain(baseline);
        let again = |config: &Config| self.history.of(config).any(|trial| trial.purpose == Purpose::Confirm);
        self.history.trials().iter().any(|trial| trial.purpose == Purpose::Confirm) && wanted.all(again)
    }

    /// Returns the best of the trials before any was repeated; for a front the recommended one at that time.
    fn leader(&self) -> Option<Config> {
        if self.objective.is_pareto() {
            return front::leaders(&self.objective, self.contenders(), 1).pop();
        }
        let scored = self.contenders().filter_map(|t| Some((t, self.objective.score_of(&t.outcome)?)));
        scored.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(trial, _)| trial.config.clone())
    }

    fn score(&self, entry: &Ranked) -> f64 {
        self.objective.score(entry.estimate.value)
    }

    /// Returns what a config costs, to choose among equals: memory, then the number of workers and the like, then how
    /// much it changes.
    fn cost(&self, entry: &Ranked, by_memory: bool) -> (u64, u64, usize) {
        /// The ratio below which memory sizes count as equal: a round number.
        const MEMORY_STEP: f64 = 1.02;
        /// The fraction of a level that counts, so that sums in another order are equal.
        const PARTS: f64 = 1e9;
        let bytes = entry.measurement.memory.peak_bytes.filter(|_| by_memory).unwrap_or(0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a logarithm of a size, in steps"
        )]
        let memory = ((bytes.max(1) as f64).ln() / MEMORY_STEP.ln()).round() as u64;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
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
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of shares, in parts")]
        let size = (size * PARTS).round() as u64;
        (memory, size, changes)
    }

    /// Returns what the objective concludes from a trial.
    pub fn judge(&self, trial: &Trial) -> Option<Judgement> {
        trial.outcome.measurement().map(|measurement| self.objective.judge(measurement))
    }
}

/// Whether the difference to the top is within the noise.
///
/// However large the noise is, a difference of more than a tenth is no tie. Then the top is the best guess, and its
/// interval says how good a guess it is.
fn is_tied(top: &Ranked, entry: &Ranked, noise: &Noise) -> bool {
    if entry.config == top.config {
        return true;
    }
    let difference = (top.estimate.value - entry.estimate.value).abs();
    if difference > WIDEST_TIE * top.estimate.value.abs().max(entry.estimate.value.abs()) {
        return false;
    }
    match noise.difference(top, entry) {
        Some((difference, half)) => {
            // Equal numbers must stay equal when their means were rounded differently.
            let rounding = 1e-12 * top.mean_point().abs().max(1.0);
            difference.abs() <= half + rounding
        }
        None => match (top.estimate.low.zip(top.estimate.high), entry.estimate.low.zip(entry.estimate.high)) {
            (Some((low, high)), Some((other_low, other_high))) => low <= other_high && other_low <= high,
            _ => top.estimate.value == entry.estimate.value,
        },
    }
}

/// Returns how many times better the winner is, with an interval that excludes the probability `tail` at each end;
/// `None` where the metric has no ratios.
fn ratio(objective: &Objective, winner: &Ranked, baseline: &Ranked, noise: &Noise, tail: f64) -> Option<Estimate> {
    if winner.config == baseline.config {
        return Some(Estimate::interval(1.0, 1.0, 1.0));
    }
    if winner.scale == Scale::Difference {
        return None;
    }
    let (difference, half) = match noise.difference_with(winner, baseline, tail) {
        Some((difference, half)) => (difference, Some(half)),
        None => {
            let widths = winner.estimate.relative_half_width().zip(baseline.estimate.relative_half_width());
            (winner.mean_point() - baseline.mean_point(), widths.map(|(a, b)| a.hypot(b)))
        }
    };
    let gain = objective.score(1.0) * difference;
    let times = |gain: f64| winner.scale.value(gain);
    Some(match half {
        Some(half) => Estimate::interval(times(gain), times(gain - half), times(gain + half)),
        None => Estimate::point(times(gain)),
    })
}

impl Ranked {
    fn mean(&self) -> Observation {
        stats::weighted_mean(&self.points).unwrap_or(Observation { value: 0.0, error: 1.0 })
    }

    fn mean_point(&self) -> f64 {
        self.mean().value
    }

    /// Returns the mean over its trials, with an interval from the spread of all repeated ones.
    fn pooled(&self, spread: Option<Spread>) -> Estimate {
        let is_repeated = self.confirmations > 0 || self.points.len() > 1;
        let Some(spread) = spread.filter(|_| is_repeated) else { return self.estimate };
        let (mean, half) = (self.mean_point(), spread.half_width(self.mean().error, TAIL));
        let value = |point| self.scale.value(point);
        Estimate::interval(value(mean), value(mean - half), value(mean + half))
    }
}

/// Puts the trials of all entries on the scale, each with the error from its interval.
///
/// If a trial has no interval, because it printed a single number, all trials have equal weight, and only their spread
/// counts.
fn place_points(ranked: &mut [Ranked], scale: Scale) {
    /// The narrowest believable interval, as a share of the value: a narrower one does not include differences from run
    /// to run. A round number.
    const NARROWEST: f64 = 0.002;
    let all_known = ranked.iter().flat_map(|entry| &entry.values).all(|value| value.low.is_some());
    for entry in ranked {
        let error = |estimate: &Estimate| match (all_known, estimate.relative_half_width()) {
            (true, Some(half)) if half.is_finite() => match scale {
                Scale::Ratio => half.max(NARROWEST),
                Scale::Difference => (half * estimate.value.abs()).max(f64::MIN_POSITIVE.sqrt()),
            },
            _ => 1.0,
        };
        entry.points = entry
            .values
            .iter()
            .map(|estimate| Observation { value: scale.point(estimate.value), error: error(estimate) / NORMAL })
            .collect();
        entry.errors_are_known = all_known;
    }
}

/// The probability that a 95 % interval excludes at each end.
const TAIL: f64 = 0.025;

/// The two-sided 95 % quantile of the normal distribution: the half width of an interval in standard errors.
const NORMAL: f64 = 1.96;

impl Scale {
    /// Returns the scale that suits all entries.
    fn of(ranked: &[Ranked]) -> Self {
        let all_positive = ranked.iter().flat_map(|entry| &entry.values).all(|value| value.value > 0.0);
        if all_positive { Self::Ratio } else { Self::Difference }
    }

    fn point(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    /// Returns the size of which a difference of points is a share.
    fn loss_scale(self, point: f64) -> f64 {
        match self {
            Self::Ratio => 1.0,
            Self::Difference => point.abs().max(f64::MIN_POSITIVE),
        }
    }

    /// The inverse of [`point`](Self::point), kept finite.
    fn value(self, point: f64) -> f64 {
        let value = match self {
            Self::Ratio => point.exp(),
            Self::Difference => point,
        };
        value.clamp(f64::MIN, f64::MAX)
    }
}

impl Spread {
    /// Returns half the width of an interval that excludes the probability `tail` at each end.
    fn half_width(self, error: f64, tail: f64) -> f64 {
        stats::student_quantile(self.degrees, tail) * self.ratio * error
    }
}

/// The known noise between trials.
struct Noise {
    spread: Option<Spread>,
    rounds: Option<Rounds>,
}

impl Noise {
    fn of(ranked: &[Ranked]) -> Self {
        Self { spread: spread(ranked), rounds: Rounds::of(ranked) }
    }

    /// Returns the difference between two configs on the study's scale, with half the width of its 95 % interval;
    /// `None` where nothing was repeated.
    fn difference(&self, a: &Ranked, b: &Ranked) -> Option<(f64, f64)> {
        self.difference_with(a, b, TAIL)
    }

    /// Returns the difference with an interval that excludes the probability `tail` at each end.
    fn difference_with(&self, a: &Ranked, b: &Ranked, tail: f64) -> Option<(f64, f64)> {
        if let Some(paired) = self.rounds.and_then(|rounds| rounds.difference(a, b, tail)) {
            return Some(paired);
        }
        let spread = self.spread?;
        Some((a.mean_point() - b.mean_point(), spread.half_width(a.mean().error.hypot(b.mean().error), tail)))
    }
}

/// Whether a larger value of a parameter costs the machine something, judging by its name: more workers do, a larger
/// step size does not.
fn costs(name: &str) -> bool {
    const COSTLY: &[&str] = &["batch", "buffer", "prefetch", "process", "queue", "thread", "worker"];
    COSTLY.iter().any(|word| name.contains(word))
}

/// Returns the spread over all configs that were measured more than once.
fn spread(ranked: &[Ranked]) -> Option<Spread> {
    let (ratio, degrees) = stats::birge_ratio(ranked.iter().map(|entry| entry.points.as_slice()))?;
    // By luck a few repetitions may agree better than their own intervals allow.
    let least = if ranked.iter().all(|entry| entry.errors_are_known) { 1.0 } else { 0.0 };
    Some(Spread { ratio: ratio.max(least), degrees })
}
