//! The result of a search: its trials, and what they say about the best config.

mod choice;
mod extent;
mod front;
mod leaders;
mod posterior;
mod repeatability;
mod rounds;
mod scale;
mod slots;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::model::{
    Config, Estimate, History, Judgement, Measurement, Objective, Outcome, Purpose, Settings, Space, Trial,
};
use crate::search::budget::StopReason;
use crate::search::drift::{self, Drift, Levels};
use crate::search::journal;
use crate::search::noise::{NoisePrior, Run, RunNoise};

pub use choice::Verdict;
pub use extent::{Alternatives, Confirmed};
pub use front::{OnFront, Part};
pub(crate) use leaders::{confirmed, leaders};
pub(crate) use posterior::{Known, PRUNING_ERROR};
pub(crate) use repeatability::Again;
pub use repeatability::Repeatability;
use repeatability::noise_of;
use scale::Scale;
pub use slots::SlotSeen;

/// A search that ended, was interrupted, or is running.
#[derive(Debug)]
pub struct Study {
    /// The space that was searched.
    pub space: Arc<Space>,
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
    /// How far runs of a config were expected to be apart before any was repeated.
    pub noise_prior: NoisePrior,
    /// What was found about measuring side by side, in one line; absent where the search had one slot.
    pub side_by_side: Option<String>,
}

/// A feasible config with the results of all its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// The config.
    pub config: Config,
    /// The objective's metric over its trials; over confirmations alone if there are any. Its interval is the one that
    /// another run of the config falls into.
    pub estimate: Estimate,
    /// Half the width, as a share, of the interval of the measured runs themselves, which says nothing of how runs
    /// differ. Absent where a run has none.
    pub within_runs: Option<f64>,
    /// How many confirmations there are.
    pub confirmations: usize,
    /// Its last good measurement.
    pub measurement: Measurement,
    /// The metric of each trial that counts.
    values: Vec<Estimate>,
    /// Where each of these trials belongs.
    places: Vec<Place>,
    /// The same numbers on the study's scale.
    runs: Vec<Run>,
    scale: Scale,
}

/// What a trial was measured beside.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    /// The round of comparisons that it belongs to.
    round: Option<u32>,
    /// Its error against the others of the round, as a share, where they were measured in turn.
    in_turn: Option<f64>,
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
        self.history.set(&self.space, &self.space.settings(config))
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
        let rounds = rounds::of(&self.history);
        let history = drift::levelled(&self.objective, &self.history, self.baseline.as_ref(), self.noise_prior);
        let mut seen: HashSet<&Config> = HashSet::new();
        let mut ranked: Vec<Ranked> = self
            .contenders()
            .filter(|trial| seen.insert(&trial.config))
            .filter_map(|trial| self.rank(&history, &trial.config, objective, is_confirmed.then_some(&rounds)))
            .collect();
        let scale = Scale::of(ranked.iter().flat_map(|entry| &entry.values).map(|value| value.value));
        for entry in &mut ranked {
            entry.place(scale);
        }
        let noise = noise_of(&ranked, self.noise_prior);
        for entry in &mut ranked {
            entry.estimate = entry.again(&noise);
        }
        ranked
    }

    /// Returns the best config; `None` when none is feasible. For a front it is the recommended one.
    pub fn best(&self) -> Option<Best> {
        if self.objective.is_pareto() {
            return self.recommended();
        }
        let ranking = self.ranking();
        choice::choose(self, &ranking, &noise_of(&ranking, self.noise_prior))
    }

    /// Returns the confirmed configs that are to be measured once more before one is named, since what is known of them may
    /// cost speed; none where it is clear enough, or where there is no one best.
    pub(crate) fn in_doubt(&self) -> Vec<Config> {
        if self.objective.is_pareto() {
            return Vec::new();
        }
        let ranking = self.ranking();
        choice::in_doubt(self, &ranking, &noise_of(&ranking, self.noise_prior))
    }

    /// The searched trials that can be the best.
    fn contenders(&self) -> impl Iterator<Item = &Trial> {
        self.history.contenders(|outcome| self.objective.scores_of(outcome).is_some())
    }

    fn rank(
        &self,
        history: &History,
        config: &Config,
        objective: &Objective,
        rounds: Option<&HashMap<u32, u32>>,
    ) -> Option<Ranked> {
        // A disturbed or interrupted probe says nothing about its config; nor does one that closed a parameter.
        let says_nothing = |trial: &&Trial| {
            matches!(trial.outcome, Outcome::Disturbed(_) | Outcome::Interrupted) || !trial.outcome.closes().is_empty()
        };
        let mut trials: Vec<&Trial> = history.of(config).filter(|trial| !says_nothing(trial)).collect();
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
            if rounds.is_some() { trials.iter().filter(is_confirmation).collect() } else { Vec::new() };
        // The leaders were chosen because of their first measurement, so it is biased in their favour.
        let counted = if confirmations.is_empty() { trials.iter().collect() } else { confirmations.clone() };
        let (values, places): (Vec<Estimate>, Vec<Place>) = counted
            .iter()
            .filter_map(|trial| {
                let measurement = trial.outcome.measurement()?;
                let round = rounds.and_then(|rounds| rounds.get(&trial.number)).copied();
                let in_turn = measurement.in_turn.map(|in_turn| in_turn.error);
                Some((objective.estimate(measurement)?, Place { round, in_turn }))
            })
            .unzip();
        Some(Ranked {
            config: config.clone(),
            estimate: *values.first()?,
            within_runs: None,
            confirmations: confirmations.len(),
            measurement: measurement_of(&trials)?,
            values,
            places,
            runs: Vec::new(),
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

    /// Returns how the machine's speed moved during the search; `None` where nothing shows that it did.
    pub fn drift(&self) -> Option<Drift> {
        Some(self.levels()?.drift())
    }

    /// The level of the machine at each trial as a factor of its mean, where it moved.
    pub(crate) fn machine_levels(&self) -> Option<Vec<f64>> {
        Some(self.levels()?.factors().collect())
    }

    fn levels(&self) -> Option<Levels> {
        Levels::of(&self.objective, &self.history, self.baseline.as_ref(), self.noise_prior)
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
fn is_tied(top: &Ranked, entry: &Ranked, noise: &RunNoise) -> bool {
    if entry.config == top.config {
        return true;
    }
    let difference = (top.estimate.value - entry.estimate.value).abs();
    if difference > WIDEST_TIE * top.estimate.value.abs().max(entry.estimate.value.abs()) {
        return false;
    }
    // Equal numbers must stay equal when their means were rounded differently.
    let rounding = 1e-12 * top.level(noise).abs().max(1.0);
    match noise.difference(&top.runs, &entry.runs) {
        Some(difference) => difference.value.abs() <= difference.half_width(TAIL) + rounding,
        None => top.estimate.value == entry.estimate.value,
    }
}

/// Returns how many times better the winner is, with an interval that excludes the probability `tail` at each end;
/// `None` where the metric has no ratios.
fn ratio(objective: &Objective, winner: &Ranked, baseline: &Ranked, noise: &RunNoise, tail: f64) -> Option<Estimate> {
    if winner.config == baseline.config {
        return Some(Estimate::interval(1.0, 1.0, 1.0));
    }
    if winner.scale == Scale::Difference {
        return None;
    }
    let times = |difference: f64| winner.scale.value(objective.score(1.0) * difference);
    Some(match noise.difference(&winner.runs, &baseline.runs) {
        Some(difference) => {
            let (mean, half) = (difference.value, difference.half_width(tail));
            let ends = [times(mean - half), times(mean + half)];
            Estimate::interval(times(mean), ends[0].min(ends[1]), ends[0].max(ends[1]))
        }
        None => Estimate::point(times(winner.level(noise) - baseline.level(noise))),
    })
}

/// The probability that a 95 % interval excludes at each end.
const TAIL: f64 = 0.025;

/// Whether a larger value of a parameter costs the machine something, judging by its name: more workers do, a larger
/// step size does not.
fn costs(name: &str) -> bool {
    const COSTLY: &[&str] = &["batch", "buffer", "prefetch", "process", "queue", "thread", "worker"];
    COSTLY.iter().any(|word| name.contains(word))
}

/// Returns the last measurement. Memory, and what the machine did, come from the last run that had it to itself.
fn measurement_of(trials: &[&Trial]) -> Option<Measurement> {
    let measurement = |trial: &&Trial| trial.outcome.measurement().cloned();
    let last = trials.last().and_then(measurement)?;
    let own = trials.iter().rev().filter_map(measurement).find(|measurement| measurement.in_turn.is_none());
    Some(match own {
        Some(own) if last.in_turn.is_some() => Measurement { memory: own.memory, machine: own.machine, ..last },
        _ => last,
    })
}
