//! Checks that the limit of a simulated memory is found in few probes.

use super::*;
use crate::model::{Estimate, Failure, History, Measurement, MemoryUse, Purpose, Settings};
use crate::search::strategy::strategy;

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
        return Outcome::OutOfMemory { memory: outcome::Memory::Device, failure: Failure::new("CUDA out of memory") };
    }
    let bytes = |gib: f64| Some((gib * GIB) as u64);
    Outcome::Measured(Measurement {
        throughput: Some(Estimate::point(1000.0 * speed * batch / (40.0 + batch))),
        memory: MemoryUse { peak_bytes: bytes(need), capacity_bytes: bytes(CAPACITY), ..Default::default() },
        ..Measurement::default()
    })
}

use crate::model::Value;

/// Runs `auto` on a simulated memory.
fn search(need: impl Fn(f64, f64) -> f64, probes: u32) -> (Space, Vec<Trial>) {
    let (space, objective, mut history) = (space(), Objective::default(), History::default());
    let mut auto = (strategy("auto").unwrap().build)();
    for number in 1..=probes {
        let view = View::new(&space, &objective, &history, &[], None);
        let Some(proposal) = auto.propose(&view) else { break };
        let outcome = probe(&space.settings(&proposal.config), &need);
        let config = proposal.config;
        history.push(Trial::new(number, Purpose::Search, config, outcome));
    }
    let trials = history.trials().iter().map(|trial| Trial::clone(trial)).collect();
    (space, trials)
}

/// Adds fragmentation: a few per cent that look like chance.
fn rough(batch: f64) -> f64 {
    1.0 + 0.02 * libm::sin(batch * 12.9898)
}

fn shown(space: &Space, trials: &[Trial]) -> String {
    let line = |trial: &Trial| {
        let settings = space.settings(&trial.config);
        let names = settings.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(" ");
        let peak = trial.outcome.measurement().and_then(|found| found.memory_headroom());
        format!("\n{names}: {peak:?} {:?}", Objective::default().score_of(&trial.outcome))
    };
    trials.iter().map(line).collect()
}

/// Counts the configs that did not fit before the best was found; later ones are tried when nothing is left to gain.
fn lacking(trials: &[Trial]) -> usize {
    let score = |trial: &Trial| Objective::default().score_of(&trial.outcome).unwrap_or(0.0);
    let most = trials.iter().map(score).fold(0.0, f64::max);
    let until = trials.iter().take_while(|trial| score(trial) < most);
    until.filter(|trial| Objective::default().lacks_memory(&trial.outcome).is_some()).count()
}

/// Returns the best throughput of all configs that fit, and of all configs that were tried.
fn best(space: &Space, trials: &[Trial], need: impl Fn(f64, f64) -> f64) -> (f64, f64) {
    let objective = Objective::default();
    let all =
        crate::model::Walk::new(space).filter_map(|config| objective.score_of(&probe(&space.settings(&config), &need)));
    let tried = trials.iter().filter_map(|trial| objective.score_of(&trial.outcome));
    (all.fold(0.0, f64::max), tried.fold(0.0, f64::max))
}

#[test]
fn the_edge_of_an_affine_need_is_found_with_few_failures() {
    for (base, slope) in [(10.0, 0.3), (25.0, 0.12), (5.0, 2.5), (2.0, 0.05)] {
        let need = |batch: f64, factor: f64| (base + slope * factor * batch) * rough(batch);
        let (space, trials) = search(need, 12);
        let (most, found) = best(&space, &trials, need);
        assert!(found > 0.98 * most, "{base} {slope}: {found} of {most}{}", shown(&space, &trials));
        assert!(
            lacking(&trials) <= 3,
            "{base} {slope}: {} of 12 did not fit{}",
            lacking(&trials),
            shown(&space, &trials)
        );
    }
}

#[test]
fn a_need_that_is_not_affine_costs_little() {
    for power in [0.5, 2.0] {
        let need = |batch: f64, factor: f64| 10.0 + factor * 70.0 * libm::pow(batch / 200.0, power);
        let (space, trials) = search(need, 12);
        let (most, found) = best(&space, &trials, need);
        assert!(found > 0.97 * most, "{power}: {found} of {most}{}", shown(&space, &trials));
        assert!(lacking(&trials) <= 3, "{power}: {} of 12 did not fit{}", lacking(&trials), shown(&space, &trials));
    }
}

fn trial(space: &Space, number: u32, batch: i64, precision: &str, need: impl Fn(f64, f64) -> f64) -> Trial {
    let settings = [("batch_size", Value::from(batch)), ("precision", precision.into()), ("checkpoint", false.into())];
    let config = space.locate(&settings.into_iter().collect()).unwrap();
    let outcome = probe(&space.settings(&config), need);
    Trial::new(number, Purpose::Search, config, outcome)
}

#[test]
fn two_peaks_tell_the_largest_batch_that_fits() {
    let (space, objective, history) = (space(), Objective::default(), History::default());
    let view = View::new(&space, &objective, &history, &[], None);
    let need = |batch: f64, factor: f64| 10.0 + 0.3 * factor * batch;
    let trials = [trial(&space, 1, 32, "fp32", need), trial(&space, 2, 96, "fp32", need)];
    let model = MemoryNeed::of(&view, &trials.iter().collect::<Vec<_>>()).unwrap();
    let chance = |batch: i64, precision: &str| {
        let config = trial(&space, 3, batch, precision, need).config;
        model.chance(&space, &config)
    };
    // 72 GiB are usable, and 10 + 0.3 * 206 = 71.8.
    assert!(chance(184, "fp32") > 0.8 && chance(232, "fp32") < 0.2, "{} {}", chance(184, "fp32"), chance(232, "fp32"));
    let unsure = chance(288, "bf16");
    assert!(unsure > chance(288, "fp32") && (0.1..0.9).contains(&unsure), "bf16 was not tried: {unsure}");
}

#[test]
fn without_peaks_what_ran_and_what_did_not_are_bounds() {
    let (space, objective, history) = (space(), Objective::default(), History::default());
    let view = View::new(&space, &objective, &history, &[], None);
    let need = |batch: f64, factor: f64| 10.0 + 0.3 * factor * batch;
    let mut trials = [trial(&space, 1, 64, "fp32", need), trial(&space, 2, 400, "fp32", need)];
    if let Outcome::Measured(measurement) = &mut trials[0].outcome {
        (measurement.memory.peak_bytes, measurement.memory.capacity_bytes) = (None, None);
    }
    let model = MemoryNeed::of(&view, &trials.iter().collect::<Vec<_>>()).unwrap();
    let chance = |batch: i64| model.chance(&space, &trial(&space, 3, batch, "fp32", need).config);
    assert!(chance(64) > 0.8 && chance(400) < 0.3, "{} {}", chance(64), chance(400));
    let chances = [96, 320, 400].map(chance);
    assert!(chances.is_sorted_by(|a, b| a > b), "{chances:?}");
    assert!(model.explains(&space, &objective, &trials[1]) && !model.explains(&space, &objective, &trials[0]));
}

#[test]
fn a_space_in_which_nothing_grows_memory_has_no_model() {
    let space = Space::new([Parameter::range("workers", 0, 4, 1)]).unwrap();
    let (objective, history) = (Objective::default(), History::default());
    assert!(MemoryNeed::of(&View::new(&space, &objective, &history, &[], None), &[]).is_none());
}

#[test]
fn a_long_history_costs_no_more_and_its_failures_remain() {
    let (space, objective, history) = (space(), Objective::default(), History::default());
    let view = View::new(&space, &objective, &history, &[], None);
    let need = |batch: f64, factor: f64| 10.0 + 0.3 * factor * batch;
    let batch = |number: u32| if number <= 200 { 400 } else { 8 + 8 * i64::from(number % 8) };
    let trials: Vec<Trial> = (1..=1000).map(|number| trial(&space, number, batch(number), "fp32", need)).collect();
    let trials: Vec<&Trial> = trials.iter().collect();
    let model = MemoryNeed::expected(&space).unwrap();
    let told = model.evidence(&view, &trials).told;
    let failures = told.iter().filter(|(_, told)| matches!(told, Told::MoreThan(_))).count();
    assert_eq!((told.len(), failures), (MOST_TRIALS + MOST_FAILURES, MOST_FAILURES));
    assert_eq!(model.evidence(&view, &trials[..MOST_TRIALS]).told.len(), MOST_TRIALS);
}

#[test]
fn a_setting_of_zero_is_no_size_of_nothing() {
    let space = Space::new([Parameter::values("length", [0, 1, 2]).memory(MemoryRole::Grows)]).unwrap();
    let model = MemoryNeed::expected(&space).unwrap();
    let sizes: Vec<f64> = crate::model::Walk::new(&space).map(|config| model.asked(&space, &config).size).collect();
    assert_eq!(sizes, [-ln(2.0), -ln(2.0), 0.0]);
}
