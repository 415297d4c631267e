//! How the speed of the machine moved while it was searched on, as repeated runs of the baseline show it.
//!
//! The logarithm of the machine's level is a random walk, which each run of the baseline shows with the error of the run and
//! what is special to it. The walk's variance per second is the most likely of a few, and zero unless a walk explains the runs
//! clearly better. Kalman's filter and the smoother of Rauch, Tung and Striebel ("Maximum likelihood estimates of linear dynamic
//! systems", AIAA Journal 3(8), 1965) then give the level at the time of every trial, with its variance. What a walk cannot follow, a
//! jump, makes its variance large, and with it the uncertainty of what was measured between two runs of the baseline.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::model::{Config, Estimate, History, Objective, Purpose, Slot, Trial};
use crate::probe::stats::NORMAL_95;
use crate::search::noise::NoisePrior;

/// The movement of a machine's speed during a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The lowest level while something was probed, as a share of the mean level: -0.05 is 5 % slower.
    pub lowest: f64,
    /// The highest level.
    pub highest: f64,
    /// How many runs of the baseline show it.
    pub references: usize,
}

/// The level of the machine at the time of each trial.
#[derive(Debug, Clone)]
pub(crate) struct Levels {
    /// Logarithms relative to the mean, with their variances, in the order of the trials.
    levels: Vec<(f64, f64)>,
    references: usize,
}

/// The fewest runs of the baseline that can show a movement: two lie on every line.
const FEWEST: usize = 3;

impl Levels {
    /// Finds the levels; `None` where too little was repeated, or nothing moved that could be told from noise.
    pub(crate) fn of(
        objective: &Objective,
        history: &History,
        baseline: Option<&Config>,
        prior: NoisePrior,
    ) -> Option<Self> {
        Self::beside(&SlotLevels::of(history, baseline, prior), objective, history, baseline, prior)
    }

    /// The same, where the levels of the slots are known.
    fn beside(
        slots: &SlotLevels,
        objective: &Objective,
        history: &History,
        baseline: Option<&Config>,
        prior: NoisePrior,
    ) -> Option<Self> {
        let baseline = baseline.filter(|_| objective.is_largest_throughput())?;
        let mut time = 0.0;
        let points: Vec<(f64, Option<(f64, f64)>)> = history
            .trials()
            .iter()
            .map(|trial| {
                time += trial.elapsed.as_secs_f64();
                (trial.ended_at.unwrap_or(time), seen(trial, baseline, slots, prior))
            })
            .collect();
        let references = points.iter().filter(|(_, seen)| seen.is_some()).count();
        if references < FEWEST || points.windows(2).any(|pair| pair[1].0 < pair[0].0) {
            return None;
        }
        let walk = most_likely_walk(&points)?;
        let mut levels = smoothed(&points, walk);
        #[expect(clippy::cast_precision_loss, reason = "a number of trials")]
        let mean = levels.iter().map(|(level, _)| level).sum::<f64>() / levels.len() as f64;
        levels.iter_mut().for_each(|(level, _)| *level -= mean);
        Some(Self { levels, references })
    }

    /// Returns how far the level moved.
    pub(crate) fn drift(&self) -> Drift {
        let level = |(level, _): &(f64, f64)| level.exp_m1();
        let lowest = self.levels.iter().map(level).fold(f64::INFINITY, f64::min);
        let highest = self.levels.iter().map(level).fold(f64::NEG_INFINITY, f64::max);
        Drift { lowest, highest, references: self.references }
    }

    /// The level at each trial as a factor of the mean level, in the order of the trials.
    pub(crate) fn factors(&self) -> impl Iterator<Item = f64> + '_ {
        self.levels.iter().map(|(level, _)| level.exp())
    }
}

/// Returns the history with the machine's level taken out of what was measured while searching, and the level's uncertainty
/// added to its intervals; the same history where nothing moved. Runs of the baseline, which show the level, and confirmations,
/// which are compared within their rounds, stay.
pub(crate) fn levelled<'h>(
    objective: &Objective,
    history: &'h History,
    baseline: Option<&Config>,
    prior: NoisePrior,
) -> Cow<'h, History> {
    let mut levelled = Levelled::default();
    levelled.of(objective, history, baseline, prior);
    levelled.history.map_or(Cow::Borrowed(history), Cow::Owned)
}

/// Returns what a trial measured without a level, which has a variance; trials that show the level stay as they are.
fn without(trial: &Trial, baseline: Option<&Config>, (level, variance): (f64, f64)) -> Option<Estimate> {
    let rate = trial.outcome.partial_measurement()?.throughput?;
    let stays = trial.purpose.is_repeated() || baseline == Some(&trial.config);
    Some(if stays { rate } else { shifted(rate, level, variance) })
}

/// A history with the machine's level taken out, as it grows: what has been levelled stays so, until the baseline runs again.
#[derive(Debug, Default)]
pub(crate) struct Levelled {
    /// Nothing where nothing has to be taken out.
    history: Option<History>,
    slots: SlotLevels,
    /// Whether the level moves with time.
    moves: bool,
    /// The trials that were seen.
    trials: usize,
}

impl Levelled {
    /// The same as [`levelled`], for a little of its time.
    pub(crate) fn of<'h>(
        &'h mut self,
        objective: &Objective,
        history: &'h History,
        baseline: Option<&Config>,
        prior: NoisePrior,
    ) -> &'h History {
        let all = history.trials();
        let is_shown = |trial: &Trial| trial.purpose == Purpose::Reference || baseline == Some(&trial.config);
        let new = all.get(self.trials..).unwrap_or_default();
        let mut levels = None;
        let mut first = self.trials;
        if self.trials == 0 || self.moves || new.iter().any(|trial| is_shown(trial)) {
            self.slots = SlotLevels::of(history, baseline, prior);
            levels = Levels::beside(&self.slots, objective, history, baseline, prior);
            self.moves = levels.is_some();
            first = 0;
        }
        self.trials = all.len();
        if !self.moves && self.slots.levels.is_empty() {
            self.history = None;
            return history;
        }
        let levelled = self.history.get_or_insert_default();
        for (at, trial) in all.iter().enumerate().skip(first.min(levelled.trials().len())) {
            let (of_time, uncertain) = levels.as_ref().map_or((0.0, 0.0), |levels: &Levels| levels.levels[at]);
            let (of_slot, variance) = self.slots.level(trial.slot.as_ref());
            let throughput = without(trial, baseline, (of_time + of_slot, uncertain + variance));
            if at < levelled.trials().len() {
                levelled.set_throughput(at, throughput);
            } else {
                levelled.push_with(trial, throughput);
            }
        }
        levelled
    }

    /// The levels of the slots, as they were found last.
    pub(crate) fn slots(&self) -> &SlotLevels {
        &self.slots
    }
}

/// Takes a level out of a rate; an interval that there is grows by the level's own.
fn shifted(rate: Estimate, level: f64, variance: f64) -> Estimate {
    let value = rate.value * (-level).exp();
    let Some(half) = rate.relative_half_width() else { return Estimate::point(value) };
    let half = half.hypot(NORMAL_95 * variance.sqrt());
    Estimate::interval(value, value * (-half).exp(), value * half.exp())
}

/// How fast slots are, against the one that measured the first config.
///
/// GPUs of one model differ by 8 % in the middle (Sinha et al., "Not all GPUs are created equal", SC 2022), so each slot is a block:
/// what runs of the baseline show of it is drawn towards no difference by that.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotLevels {
    /// Each with its logarithm and the variance of that.
    levels: HashMap<Slot, (f64, f64)>,
    /// The one that the others are compared with.
    first: Option<Slot>,
}

impl SlotLevels {
    /// How far GPUs of one model are apart, and parts of one processor: a third of the widest tie.
    const GPUS: f64 = 0.08;
    const CORES: f64 = 0.017;

    /// Finds the levels from the runs of the baseline, or else of the config that compared the slots.
    pub(crate) fn of(history: &History, baseline: Option<&Config>, prior: NoisePrior) -> Self {
        let compared = history.trials().iter().find(|trial| trial.purpose == Purpose::Reference);
        let config = baseline.or(compared.map(|trial| &trial.config));
        let none = Self::default();
        let Some(first) = config.and_then(|config| history.of(config).find_map(|trial| trial.slot.as_ref())) else {
            return none;
        };
        let mut by_slot: Vec<(&Slot, Vec<(f64, f64)>)> = vec![(first, Vec::new())];
        for trial in config.map(|config| history.of(config)).into_iter().flatten() {
            let Some((slot, (rate, error))) = trial.slot.as_ref().zip(logarithm(trial)) else { continue };
            let seen = (rate, error * error + prior.deviation * prior.deviation);
            match by_slot.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, runs)) => runs.push(seen),
                None => by_slot.push((slot, vec![seen])),
            }
        }
        let Some((mean, variance)) = pooled(&by_slot[0].1) else { return none };
        let apart = if first.gpus.is_empty() { Self::CORES } else { Self::GPUS };
        let expected = 2.0 * apart * apart;
        let level = |(slot, runs): &(&Slot, Vec<(f64, f64)>)| {
            let (own, its) = pooled(runs)?;
            let share = expected / (expected + variance + its);
            Some(((*slot).clone(), ((own - mean) * share, expected * (1.0 - share))))
        };
        Self { levels: by_slot.iter().skip(1).filter_map(level).collect(), first: Some(first.clone()) }
    }

    /// The level of a slot, with its variance.
    fn level(&self, slot: Option<&Slot>) -> (f64, f64) {
        slot.and_then(|slot| self.levels.get(slot)).copied().unwrap_or_default()
    }

    /// How fast a slot is against the first, with its interval; `None` where that is not known.
    pub(crate) fn shown(&self, slot: &Slot) -> Option<Estimate> {
        if self.first.as_ref() == Some(slot) {
            return Some(Estimate::point(1.0));
        }
        let (level, variance) = self.levels.get(slot)?;
        let half = NORMAL_95 * variance.sqrt();
        Some(Estimate::interval(level.exp(), (level - half).exp(), (level + half).exp()))
    }

    /// A rate of the first slot, as it would be in another.
    pub(crate) fn as_seen_in(&self, slot: &Slot, rate: Estimate) -> Estimate {
        let factor = self.level(Some(slot)).0.exp();
        let scaled = |bound: Option<f64>| bound.map(|bound| bound * factor);
        Estimate { value: rate.value * factor, low: scaled(rate.low), high: scaled(rate.high) }
    }
}

/// The mean of logarithms, each weighted by its variance, with the variance of the mean.
fn pooled(runs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let weight: f64 = runs.iter().map(|(_, variance)| variance.recip()).sum();
    let sum: f64 = runs.iter().map(|(rate, variance)| rate / variance).sum();
    (weight > 0.0 && weight.is_finite()).then(|| (sum / weight, weight.recip()))
}

/// Returns the logarithm of what a trial measured, with its standard error.
fn logarithm(trial: &Trial) -> Option<(f64, f64)> {
    let run = trial.outcome.measurement()?.throughput?;
    let error = run.relative_half_width().filter(|half| half.is_finite())? / NORMAL_95;
    (run.value > 0.0).then(|| (run.value.ln(), error))
}

/// Returns what a run of the baseline shows: its logarithm and the variance of that.
fn seen(trial: &Trial, baseline: &Config, slots: &SlotLevels, prior: NoisePrior) -> Option<(f64, f64)> {
    let (rate, error) = logarithm(trial).filter(|_| trial.config == *baseline)?;
    let (level, variance) = slots.level(trial.slot.as_ref());
    Some((rate - level, error * error + prior.deviation * prior.deviation + variance))
}

/// Returns the variance per second of the most likely walk; `None` where none is clearly more likely than a level that stays.
fn most_likely_walk(points: &[(f64, Option<(f64, f64)>)]) -> Option<f64> {
    /// Standard deviations per minute, as shares: from next to nothing to a machine that is another each minute.
    const PER_MINUTE: [f64; 6] = [0.003, 0.01, 0.02, 0.04, 0.08, 0.16];
    /// How many times more likely a walk must make the runs: the logarithm of twenty, strong evidence by the scale of Kass and
    /// Raftery ("Bayes factors", Journal of the American Statistical Association 90, 1995).
    const CLEARLY: f64 = 3.0;
    let stays = filtered(points, 0.0).1;
    let walks = PER_MINUTE.map(|deviation| deviation * deviation / 60.0);
    let likelihoods = walks.map(|walk| (walk, filtered(points, walk).1));
    let best = likelihoods.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (best.1 - stays > CLEARLY).then_some(best.0)
}

/// A level with its variance: as predicted from what was seen before, and with what was seen then.
#[derive(Debug, Clone, Copy)]
struct State {
    predicted: (f64, f64),
    level: (f64, f64),
}

/// Returns the states at all points, seen from what came before, and the logarithm of the likelihood.
fn filtered(points: &[(f64, Option<(f64, f64)>)], walk: f64) -> (Vec<State>, f64) {
    /// The variance of a level of which nothing is known yet.
    const UNKNOWN: f64 = 1e6;
    let (mut states, mut likelihood): (Vec<State>, f64) = (Vec::new(), 0.0);
    let mut last: Option<f64> = None;
    for (time, seen) in points {
        let before = states.last().map_or((0.0, UNKNOWN), |state| state.level);
        let passed = last.map_or(0.0, |last| time - last);
        last = Some(*time);
        let predicted = (before.0, before.1 + walk * passed);
        let level = match seen {
            Some((value, error)) => {
                let (innovation, variance) = (value - predicted.0, predicted.1 + error);
                // The first run tells the level itself, and nothing of its movement.
                if variance < UNKNOWN {
                    likelihood -= 0.5 * (variance.ln() + innovation * innovation / variance);
                }
                let gain = predicted.1 / variance;
                (predicted.0 + gain * innovation, predicted.1 * error / variance)
            }
            None => predicted,
        };
        states.push(State { predicted, level });
    }
    (states, likelihood)
}

/// Returns the levels at all points, seen from everything.
fn smoothed(points: &[(f64, Option<(f64, f64)>)], walk: f64) -> Vec<(f64, f64)> {
    let states = filtered(points, walk).0;
    let mut levels: Vec<(f64, f64)> = states.iter().map(|state| state.level).collect();
    for at in (0..levels.len().saturating_sub(1)).rev() {
        let (state, next) = (states[at].level, states[at + 1].predicted);
        let gain = state.1 / next.1;
        let later = levels[at + 1];
        levels[at] = (state.0 + gain * (later.0 - next.0), state.1 + gain * gain * (later.1 - next.1));
    }
    levels
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Measurement, Outcome, Parameter, Purpose, Space};
    use crate::probe::stats::Random;

    /// A search of forty probes, with the baseline every five of them, on a machine whose level is what `level` says at a
    /// share of the search; all configs are equally fast.
    fn search(level: impl Fn(f64) -> f64, noise: f64, random: &mut Random) -> (History, Config) {
        let space = Space::new([Parameter::range("x", 0, 99, 1)]).unwrap();
        let baseline = space.config(0).unwrap();
        let trial = |number: u32| {
            let purpose = match number {
                1 => Purpose::Baseline,
                _ if number % 6 == 1 => Purpose::Reference,
                _ => Purpose::Search,
            };
            let config =
                if purpose == Purpose::Search { space.config(number.into()).unwrap() } else { baseline.clone() };
            let rate = 100.0 * (level(f64::from(number) / 40.0) + noise * random.normal()).exp();
            Trial {
                slot: None,
                number,
                purpose,
                config,
                outcome: Outcome::Measured(Measurement {
                    throughput: Some(Estimate::interval(rate, rate * 0.99, rate * 1.01)),
                    ..Measurement::default()
                }),
                elapsed: Duration::from_secs(5),
                ended_at: Some(f64::from(number) * 6.0),
            }
        };
        ((1..=43).map(trial).collect(), baseline)
    }

    fn spread(history: &History) -> f64 {
        let rates: Vec<f64> =
            history.searched().filter_map(|trial| Some(trial.outcome.measurement()?.throughput?.value.ln())).collect();
        let mean = crate::probe::stats::mean(&rates).unwrap();
        let squares: Vec<f64> = rates.iter().map(|rate| (rate - mean) * (rate - mean)).collect();
        crate::probe::stats::mean(&squares).unwrap().sqrt()
    }

    fn level(history: &History, baseline: &Config) -> History {
        let prior = NoisePrior { deviation: 0.01, degrees: 8 };
        levelled(&Objective::default(), history, Some(baseline), prior).into_owned()
    }

    #[test]
    fn a_history_that_grows_is_levelled_as_one_that_is_there() {
        let space = Space::new([Parameter::range("x", 0, 40, 1)]).unwrap();
        let objective = Objective::default();
        let prior = NoisePrior::RATE;
        let baseline = space.config(0).unwrap();
        let (mut history, mut grows) = (History::default(), Levelled::default());
        for at in 0..30_u32 {
            let is_reference = at % 6 == 0;
            let slot = 1 + (at / 2) % 2;
            let rate = 100.0 * if slot == 2 { 0.8 } else { 1.0 };
            let throughput = Some(Estimate::interval(rate, rate * 0.99, rate * 1.01));
            history.push(Trial {
                number: at + 1,
                purpose: if is_reference { Purpose::Reference } else { Purpose::Search },
                config: if is_reference { baseline.clone() } else { space.config(at.into()).unwrap() },
                outcome: Outcome::Measured(Measurement { throughput, ..Measurement::default() }),
                elapsed: std::time::Duration::from_secs(1),
                ended_at: Some(f64::from(at)),
                slot: Some(Slot { gpus: vec![format!("GPU-{slot}")], ..Slot::numbered(slot) }),
            });
            let whole = levelled(&objective, &history, Some(&baseline), prior);
            assert_eq!(grows.of(&objective, &history, Some(&baseline), prior).trials(), whole.trials(), "{at}");
        }
        assert!(!grows.slots().levels.is_empty());
    }

    #[test]
    fn a_machine_that_stays_is_left_alone() {
        let mut random = Random(5);
        let moved = (0..200)
            .filter(|_| {
                let (history, baseline) = search(|_| 0.0, 0.01, &mut random);
                let prior = NoisePrior { deviation: 0.01, degrees: 8 };
                Levels::of(&Objective::default(), &history, Some(&baseline), prior).is_some()
            })
            .count();
        assert!(moved <= 10, "{moved} of 200");
    }

    #[test]
    fn a_trend_and_a_jump_are_taken_out() {
        let mut random = Random(6);
        let shapes: [fn(f64) -> f64; 2] = [|at| -0.3 * at, |at| if at > 0.5 { -0.2 } else { 0.0 }];
        for shape in shapes {
            for _ in 0..20 {
                let (history, baseline) = search(shape, 0.01, &mut random);
                let without = level(&history, &baseline);
                assert!(spread(&without) < 0.5 * spread(&history), "{} of {}", spread(&without), spread(&history));
            }
        }
    }

    #[test]
    fn near_a_jump_the_level_is_less_certain() {
        let mut random = Random(7);
        let (history, baseline) = search(|at| if at > 0.5 { -0.4 } else { 0.0 }, 0.005, &mut random);
        let without = level(&history, &baseline);
        let half = |number: usize| {
            without.trials()[number].outcome.measurement().unwrap().throughput.unwrap().relative_half_width().unwrap()
        };
        assert!(half(20) > 0.02 && half(20) > half(23), "{} {}", half(20), half(23));
        let drift = Levels::of(&Objective::default(), &history, Some(&baseline), NoisePrior::RATE).unwrap().drift();
        assert!(drift.highest - drift.lowest > 0.3, "{drift:?}");
        assert_eq!(drift.references, 8);
    }

    #[test]
    fn two_runs_of_the_baseline_show_no_movement() {
        let mut random = Random(8);
        let (history, baseline) = search(|at| -at, 0.0, &mut random);
        let few: History = history.trials().iter().take(8).cloned().collect();
        assert!(Levels::of(&Objective::default(), &few, Some(&baseline), NoisePrior::RATE).is_none());
    }
}
