//! Predicts which configs fit into the device's memory. The need is affine in the batch, within each group of settings.
//!
//! A step needs memory for weights, gradients and the optimizer's state, whatever the batch, and for activations in proportion to
//! the batch. So a line through two measured peaks predicts the limit that `accelerate` and similar tools find by halving. Settings
//! without an order (precision, checkpointing) change both parts by factors of their own. Peaks are observations. A config that ran
//! out of memory, or ran without reporting its peak, gives a bound.

use std::cell::RefCell;

use libm::{exp, log as ln};

use super::physics::numbers::{Evidence, Found, Unknown, most_likely};
use crate::model::{Config, MemoryRole, Objective, Outcome, Parameter, Precision, Role, Space, Trial, outcome};
use crate::probe::stats::normal_tail;
use crate::search::strategy::View;

/// The positions of the model's coefficients. Then come two coefficients for each setting that makes a group.
const BASE: usize = 0;
const ACTIVATIONS: usize = 1;
const SETTINGS: usize = 2;

/// The most settings that make groups; beyond these, groups are assumed to be alike. The limits here are round numbers that bound
/// the work.
const MOST_SETTINGS: usize = 16;
/// The most settings of one parameter that make groups.
const MOST_LEVELS: u64 = 8;
/// The most combinations of relevant settings whose probabilities are kept.
const MOST_CASES: u64 = 65_536;
/// The most trials that the model is fitted to, which are the latest, and the most failures before them.
const MOST_TRIALS: usize = 300;
const MOST_FAILURES: usize = 100;
/// The expected deviation of peaks from the model, as a logarithm, because allocators round up and fragment. A round number: 4%.
const DISCREPANCY: f64 = 0.04;
/// The expected deviation of the limit that failures show, as a logarithm. A round number: 5%.
const EDGE: f64 = 0.05;
/// The least probability at which the model predicts that a config fits.
const HALF: f64 = 0.5;
/// A failure says nothing about configs that are smaller by this logarithm of their size. A round number: 15%.
const MUCH: f64 = 0.15;
/// The smallest probability that any config gets, since a model of memory is never certain. A round number.
const LEAST: f64 = 0.001;

#[derive(Debug)]
pub(super) struct MemoryNeed {
    parts: Vec<Part>,
    unknowns: Vec<Unknown>,
    largest: f64,
    found: Option<Found>,
    /// Configs that did not fit although the model says that they should.
    walls: Vec<Asked>,
    /// Probabilities that were computed, by the settings that matter; most configs share one.
    chances: RefCell<Vec<Option<f64>>>,
}

#[derive(Debug, Clone)]
enum Part {
    Nothing,
    /// A size that activations grow with, or the number of pieces in which it is computed.
    Size {
        sign: f64,
    },
    /// Settings that make groups: the position of the first coefficient of each setting; `None` for the reference setting.
    Group(Vec<Option<usize>>),
}

#[derive(Debug, Clone, Default)]
struct Asked {
    /// The logarithm of its size, as a share of the largest.
    size: f64,
    settings: Vec<usize>,
}

/// The evidence from a trial, as logarithms of shares of the usable memory.
#[derive(Debug, Clone, Copy)]
enum Told {
    Peak(f64),
    MoreThan(f64),
    AtMost(f64),
}

impl MemoryNeed {
    /// Fits the model of a space to its trials; `None` if no parameter is known to grow memory.
    pub(super) fn of(view: &View<'_>, trials: &[&Trial]) -> Option<Self> {
        let mut need = Self::expected(view.space)?;
        let evidence = need.evidence(view, trials);
        let start: Vec<f64> = need.unknowns.iter().map(|unknown| unknown.mean).collect();
        // Starts from the priors' means, and from coefficients with which memory is short.
        let short = start.iter().enumerate().map(|(at, number)| number + if at == ACTIVATIONS { 2.0 } else { 0.0 });
        let starts = [start.clone(), short.collect()];
        need.found = Some(most_likely(&need.unknowns, &starts, &evidence));
        let failed = evidence.iter().filter(|(_, told)| matches!(told, Told::MoreThan(_)));
        need.walls = failed.map(|(asked, _)| asked).filter(|asked| need.by_model(asked) > HALF).cloned().collect();
        Some(need)
    }

    /// Returns what the latest trials show, and the failures before them.
    fn evidence(&self, view: &View<'_>, trials: &[&Trial]) -> Vec<(Asked, Told)> {
        let capacity = trials.iter().filter_map(|trial| trial.outcome.measurement()?.memory.capacity_bytes).max();
        let (old, latest) = trials.split_at(trials.len().saturating_sub(MOST_TRIALS));
        let told = |trial: &&Trial| told(&trial.outcome, view.objective, capacity);
        let failed = old.iter().rev().filter(|trial| matches!(told(trial), Some(Told::MoreThan(_))));
        let kept = failed.take(MOST_FAILURES).chain(latest);
        kept.filter_map(|trial| Some((self.asked(view.space, &trial.config), told(trial)?))).collect()
    }

    fn expected(space: &Space) -> Option<Self> {
        let grows = |parameter: &&Parameter| parameter.memory_role() == MemoryRole::Grows && parameter.is_ordinal();
        let sizes: Vec<&Parameter> = space.parameters().iter().filter(grows).collect();
        if sizes.is_empty() {
            return None;
        }
        let largest = sizes.iter().map(|parameter| ln_of(parameter, u32::MAX)).sum();
        // The prior at the largest size: a quarter of the memory is fixed, and two thirds grow, each within a factor of about
        // three.
        let mut unknowns = vec![Unknown::new(-1.4, 1.0), Unknown::new(-0.4, 1.2)];
        let mut part = |parameter: &Parameter| {
            if grows(&parameter) {
                return Part::Size { sign: 1.0 };
            }
            if parameter.role() == Some(Role::Pieces) {
                return Part::Size { sign: -1.0 };
            }
            let room = unknowns.len() + 2 * usize::try_from(parameter.len()).unwrap_or(usize::MAX / 4);
            let is_group = parameter.memory_role() == MemoryRole::Unknown && parameter.len() <= MOST_LEVELS;
            if !is_group || room > SETTINGS + 2 * MOST_SETTINGS {
                return Part::Nothing;
            }
            // The first setting is the reference.
            let mut places = vec![None];
            for level in 1..u32::try_from(parameter.len()).unwrap_or(0) {
                places.push(Some(unknowns.len()));
                unknowns.extend(setting(parameter, level));
            }
            Part::Group(places)
        };
        let parts: Vec<Part> = space.parameters().iter().map(&mut part).collect();
        let matter = parts.iter().zip(space.parameters()).filter(|(part, _)| !matches!(part, Part::Nothing));
        let cases = matter.map(|(_, parameter)| parameter.len().saturating_add(1));
        let cases = cases.fold(1_u64, u64::saturating_mul);
        let chances = vec![None; if cases <= MOST_CASES { usize::try_from(cases).unwrap_or(0) } else { 0 }];
        Some(Self { parts, unknowns, largest, found: None, walls: Vec::new(), chances: RefCell::new(chances) })
    }

    fn asked(&self, space: &Space, config: &Config) -> Asked {
        let mut asked = Asked { size: -self.largest, settings: Vec::new() };
        for ((part, parameter), level) in self.parts.iter().zip(space.parameters()).zip(config.levels()) {
            let Some(level) = level else { continue };
            match part {
                Part::Nothing => {}
                Part::Size { sign } => asked.size += sign * ln_of(parameter, level),
                Part::Group(places) => asked.settings.extend(places.get(level as usize).copied().flatten()),
            }
        }
        asked
    }

    pub(super) fn chance(&self, space: &Space, config: &Config) -> f64 {
        let place = self.place(space, config);
        if let Some(known) = self.chances.borrow().get(place).copied().flatten() {
            return known;
        }
        let chance = self.worked_out(space, config);
        if let Some(known) = self.chances.borrow_mut().get_mut(place) {
            *known = Some(chance);
        }
        chance
    }

    /// Returns the position of a config's probability in `chances`.
    fn place(&self, space: &Space, config: &Config) -> usize {
        let all = self.parts.iter().zip(space.parameters()).zip(config.levels());
        all.filter(|((part, _), _)| !matches!(part, Part::Nothing)).fold(0_usize, |place, ((_, parameter), level)| {
            let levels = usize::try_from(parameter.len()).unwrap_or(usize::MAX).saturating_add(1);
            place.wrapping_mul(levels).wrapping_add(level.map_or(levels - 1, |level| level as usize))
        })
    }

    fn worked_out(&self, space: &Space, config: &Config) -> f64 {
        let asked = self.asked(space, config);
        let mut chance = self.by_model(&asked);
        for wall in self.walls.iter().filter(|wall| wall.settings == asked.settings) {
            // The model was wrong about this config, so a config that is not much smaller will not fit either.
            let distance = ((wall.size - asked.size) / MUCH).max(0.0);
            chance *= 1.0 - exp(-distance * distance);
        }
        chance.clamp(LEAST, 1.0)
    }

    fn by_model(&self, asked: &Asked) -> f64 {
        let Some(found) = &self.found else { return 1.0 };
        let mut slopes = vec![0.0; self.unknowns.len()];
        let need = need(&found.numbers, asked, &mut slopes);
        let mut variance = DISCREPANCY * DISCREPANCY;
        if let Some(factor) = &found.precision {
            slopes.iter_mut().zip(&self.unknowns).for_each(|(slope, unknown)| *slope *= unknown.deviation);
            factor.solve(&mut slopes);
            variance += slopes.iter().map(|slope| slope * slope).sum::<f64>();
        }
        normal_tail(need / variance.sqrt())
    }

    /// Returns true if the model accounts for a failure, which then needs no other explanation.
    pub(super) fn explains(&self, space: &Space, objective: &Objective, trial: &Trial) -> bool {
        let lacks = objective.lacks_memory(&trial.outcome) == Some(outcome::Memory::Device);
        lacks && self.chance(space, &trial.config) < HALF
    }
}

/// Returns the factors of a setting on the fixed and on the growing part. A precision of half the width needs less.
fn setting(parameter: &Parameter, level: u32) -> [Unknown; 2] {
    let name = |level: u32| Precision::named(&parameter.value(level).to_string());
    let is_half = |level: u32| matches!(name(level), Some(Precision::Bf16 | Precision::Fp16 | Precision::Fp8));
    let activations = match (is_half(0), is_half(level)) {
        (false, true) => -0.4,
        (true, false) => 0.4,
        _ => 0.0,
    };
    [Unknown::new(0.0, 0.2), Unknown::new(activations, 0.4)]
}

/// Returns the logarithm of a setting; levels past the end count as the last.
fn ln_of(parameter: &Parameter, level: u32) -> f64 {
    let number = parameter.value(level.min(u32::MAX - 1)).as_f64().unwrap_or(1.0);
    // Zero means that the program chooses.
    if number > 0.0 { ln(number) } else { 0.0 }
}

/// Returns the logarithm of a config's need, as a share of the usable memory, and its derivatives.
fn need(numbers: &[f64], asked: &Asked, slopes: &mut [f64]) -> f64 {
    let (mut base, mut activations) = (numbers[BASE], numbers[ACTIVATIONS] + asked.size);
    for place in &asked.settings {
        base += numbers[*place];
        activations += numbers[place + 1];
    }
    let (base, activations) = (exp(base), exp(activations));
    let sum = base + activations;
    slopes.fill(0.0);
    slopes[BASE] = base / sum;
    slopes[ACTIVATIONS] = activations / sum;
    for place in &asked.settings {
        slopes[*place] = base / sum;
        slopes[place + 1] = activations / sum;
    }
    ln(sum)
}

fn told(outcome: &Outcome, objective: &Objective, capacity: Option<u64>) -> Option<Told> {
    let share = |bytes: u64, capacity: u64| {
        let usable = capacity.saturating_sub(objective.headroom().of(capacity)).max(1);
        ln((bytes.max(1)) as f64 / usable as f64)
    };
    if let Outcome::OutOfMemory { memory: outcome::Memory::Device, .. } = outcome {
        return Some(Told::MoreThan(capacity.map_or(0.0, |capacity| share(capacity, capacity))));
    }
    let measurement = outcome.measurement()?;
    if measurement.memory.allocator_retries.is_some_and(|retries| retries > 0) {
        return Some(Told::MoreThan(0.0));
    }
    match (measurement.memory.peak_bytes, measurement.memory.capacity_bytes) {
        (Some(peak), Some(capacity)) if capacity > 0 => Some(Told::Peak(share(peak, capacity))),
        _ => Some(Told::AtMost(0.0)),
    }
}

/// Passes on how far the model is from each trial, with the expected deviation and the derivatives.
fn compare(trials: &[(Asked, Told)], numbers: &[f64], mut each: impl FnMut(f64, f64, &[f64])) {
    let mut slopes = vec![0.0; numbers.len()];
    for (asked, told) in trials {
        let need = need(numbers, asked, &mut slopes);
        match *told {
            Told::Peak(peak) => each(need - peak, DISCREPANCY, &slopes),
            Told::MoreThan(least) => each((need - least - EDGE).min(0.0), EDGE, &slopes),
            Told::AtMost(most) => each((need - most + EDGE).max(0.0), EDGE, &slopes),
        }
    }
}

impl Evidence for Vec<(Asked, Told)> {
    fn differences(&self, numbers: &[f64], into: &mut Vec<f64>) {
        into.clear();
        compare(self, numbers, |difference, deviation, _| into.push(difference / deviation));
    }

    fn slopes(&self, numbers: &[f64], into: &mut Vec<f64>) {
        into.clear();
        compare(self, numbers, |difference, deviation, slopes| {
            let is_met = difference == 0.0;
            into.extend(slopes.iter().map(|slope| if is_met { 0.0 } else { slope / deviation }));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Estimate, Failure, History, Measurement, MemoryUse, Settings, Value, Walk};
    use crate::search::tests::{searched, trial};

    const GIB: f64 = 1_073_741_824.0;
    const CAPACITY: f64 = 80.0;

    fn space() -> Space {
        Space::new([
            Parameter::values("batch_size", (1..=64).map(|step| 8 * step)),
            Parameter::values("precision", ["fp32", "bf16"]),
            Parameter::values("checkpoint", [false, true]),
        ])
        .unwrap()
    }

    /// Simulates a probe whose step is faster the larger its batch is, and which needs `need` GiB.
    fn probe(settings: &Settings, need: impl Fn(f64, f64) -> f64) -> Outcome {
        let batch = settings.get("batch_size").and_then(Value::as_f64).unwrap();
        let is = |name: &str, value: &str| settings.get(name).is_some_and(|found| found.to_string() == value);
        let factor = if is("precision", "bf16") { 0.6 } else { 1.0 } * if is("checkpoint", "true") { 0.5 } else { 1.0 };
        let speed = if is("precision", "bf16") { 1.5 } else { 1.0 } * if is("checkpoint", "true") { 0.75 } else { 1.0 };
        let need = need(batch, factor);
        if need > CAPACITY {
            return Outcome::OutOfMemory {
                memory: outcome::Memory::Device,
                failure: Failure::new("CUDA out of memory"),
            };
        }
        let bytes = |gib: f64| Some((gib * GIB) as u64);
        Outcome::Measured(Measurement {
            throughput: Some(Estimate::point(1000.0 * speed * batch / (40.0 + batch))),
            memory: MemoryUse { peak_bytes: bytes(need), capacity_bytes: bytes(CAPACITY), ..Default::default() },
            ..Measurement::default()
        })
    }

    /// Lets `auto` probe twelve configs. Returns the best throughput as a share of the best of all configs that fit, and how many
    /// configs did not fit before the best was found: later ones are tried when nothing is left to gain.
    fn search(need: impl Fn(f64, f64) -> f64) -> (f64, usize, String) {
        let (space, objective) = (space(), Objective::default());
        let answer = |config: &Config| probe(&space.settings(config), &need);
        let history = searched("auto", &space, (12, u32::MAX, 0), answer);
        let score = |outcome: &Outcome| objective.score_of(outcome).unwrap_or(0.0);
        let best = history.searched().map(|trial| score(&trial.outcome)).fold(0.0, f64::max);
        let all = Walk::new(&space).map(|config| score(&answer(&config))).fold(0.0, f64::max);
        let until = history.searched().take_while(|trial| score(&trial.outcome) < best);
        let lacking = until.filter(|trial| objective.lacks_memory(&trial.outcome).is_some()).count();
        let line = |trial: &Trial| format!("\n{}: {}", space.settings(&trial.config).line(), score(&trial.outcome));
        (best / all, lacking, history.searched().map(line).collect())
    }

    #[test]
    fn the_edge_of_an_affine_need_is_found_with_few_failures() {
        // Fragmentation: a few per cent that look like chance.
        let rough = |batch: f64| 1.0 + 0.02 * libm::sin(batch * 12.9898);
        for (base, slope) in [(10.0, 0.3), (25.0, 0.12), (5.0, 2.5), (2.0, 0.05)] {
            let (share, lacking, shown) = search(|batch, factor| (base + slope * factor * batch) * rough(batch));
            assert!(share > 0.98 && lacking <= 3, "{base} {slope}: {share}, {lacking} did not fit{shown}");
        }
    }

    #[test]
    fn a_need_that_is_not_affine_costs_little() {
        for power in [0.5, 2.0] {
            let (share, lacking, shown) =
                search(|batch, factor| 10.0 + factor * 70.0 * libm::pow(batch / 200.0, power));
            assert!(share > 0.97 && lacking <= 3, "{power}: {share}, {lacking} did not fit{shown}");
        }
    }

    fn tried(space: &Space, batch: i64, precision: &str) -> Trial {
        let settings =
            [("batch_size", Value::from(batch)), ("precision", precision.into()), ("checkpoint", false.into())];
        let config = space.locate(&settings.into_iter().collect()).unwrap();
        let outcome = probe(&space.settings(&config), |batch, factor| 10.0 + 0.3 * factor * batch);
        trial(1, config, outcome)
    }

    fn fitted(space: &Space, trials: &[Trial]) -> Option<MemoryNeed> {
        let (objective, history) = (Objective::default(), History::default());
        let view = View::new(space, &objective, &history, &[], None);
        MemoryNeed::of(&view, &trials.iter().collect::<Vec<_>>())
    }

    #[test]
    fn two_peaks_tell_the_largest_batch_that_fits() {
        let space = space();
        let model = fitted(&space, &[tried(&space, 32, "fp32"), tried(&space, 96, "fp32")]).unwrap();
        let chance = |batch: i64, precision: &str| model.chance(&space, &tried(&space, batch, precision).config);
        // 72 GiB are usable, and 10 + 0.3 * 206 = 71.8.
        let (fits, lacks) = (chance(184, "fp32"), chance(232, "fp32"));
        assert!(fits > 0.8 && lacks < 0.2, "{fits} {lacks}");
        let unsure = chance(288, "bf16");
        assert!(unsure > chance(288, "fp32") && (0.1..0.9).contains(&unsure), "bf16 was not tried: {unsure}");
    }

    #[test]
    fn without_peaks_what_ran_and_what_did_not_are_bounds() {
        let (space, objective) = (space(), Objective::default());
        let mut trials = [tried(&space, 64, "fp32"), tried(&space, 400, "fp32")];
        if let Outcome::Measured(measurement) = &mut trials[0].outcome {
            (measurement.memory.peak_bytes, measurement.memory.capacity_bytes) = (None, None);
        }
        let model = fitted(&space, &trials).unwrap();
        let chance = |batch: i64| model.chance(&space, &tried(&space, batch, "fp32").config);
        assert!(chance(64) > 0.8 && chance(400) < 0.3, "{} {}", chance(64), chance(400));
        let chances = [96, 320, 400].map(chance);
        assert!(chances.is_sorted_by(|a, b| a > b), "{chances:?}");
        assert!(model.explains(&space, &objective, &trials[1]) && !model.explains(&space, &objective, &trials[0]));
    }

    #[test]
    fn a_space_in_which_nothing_grows_memory_has_no_model() {
        assert!(fitted(&Space::new([Parameter::range("workers", 0, 4, 1)]).unwrap(), &[]).is_none());
    }

    #[test]
    fn a_long_history_costs_no_more_and_its_failures_remain() {
        let (space, objective, history) = (space(), Objective::default(), History::default());
        let view = View::new(&space, &objective, &history, &[], None);
        let batch = |number: i64| if number <= 200 { 400 } else { 8 + 8 * (number % 8) };
        let trials: Vec<Trial> = (1..=1000).map(|number| tried(&space, batch(number), "fp32")).collect();
        let trials: Vec<&Trial> = trials.iter().collect();
        let model = MemoryNeed::expected(&space).unwrap();
        let told = model.evidence(&view, &trials);
        let failures = told.iter().filter(|(_, told)| matches!(told, Told::MoreThan(_))).count();
        assert_eq!((told.len(), failures), (MOST_TRIALS + MOST_FAILURES, MOST_FAILURES));
        assert_eq!(model.evidence(&view, &trials[..MOST_TRIALS]).len(), MOST_TRIALS);
    }

    #[test]
    fn a_setting_of_zero_is_no_size_of_nothing() {
        let space = Space::new([Parameter::values("length", [0, 1, 2]).memory(MemoryRole::Grows)]).unwrap();
        let model = MemoryNeed::expected(&space).unwrap();
        let sizes: Vec<f64> = Walk::new(&space).map(|config| model.asked(&space, &config).size).collect();
        assert_eq!(sizes, [-ln(2.0), -ln(2.0), 0.0]);
    }
}
