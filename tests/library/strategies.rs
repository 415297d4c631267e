//! Requirements for every strategy, on spaces and outcomes of all shapes.
#![expect(clippy::unwrap_used, reason = "tests")]

mod properties;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use gputune::model::{
    Config, Constraint, Direction, Estimate, Expression, Failure, History, Measurement, Memory, MemoryRole, MemoryUse,
    Objective, Outcome, Parameter, Precision, Purpose, Space, Trial, Walk,
};
use gputune::search::{
    STRATEGIES,
    strategy::{Entry, Proposal, View},
};

fn expression(text: &str) -> Expression {
    Expression::parse(text).unwrap()
}

fn measured(value: f64) -> Outcome {
    Outcome::Measured(Measurement { throughput: Some(Estimate::point(value)), ..Measurement::default() })
}

fn out_of(memory: Memory) -> Outcome {
    Outcome::OutOfMemory { memory, failure: Failure::new("full") }
}

/// Returns a number that looks random but depends only on the config.
fn hash(config: &Config) -> u64 {
    config.levels().fold(17, |hash, level| {
        (hash ^ u64::from(level.map_or(99, |level| level + 1))).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
    })
}

/// Returns the outcome of a config.
type Answer = fn(&Space, &Config) -> Outcome;

fn always_well(_: &Space, config: &Config) -> Outcome {
    measured(1.0 + (hash(config) % 1000) as f64)
}

/// Returns every kind of outcome, and values that are no numbers.
fn mixed(_: &Space, config: &Config) -> Outcome {
    let failure = Failure::new("as scripted");
    match hash(config) % 11 {
        0 => out_of(Memory::Device),
        1 => out_of(Memory::Host),
        2 => Outcome::Crashed(failure),
        3 => Outcome::TimedOut(failure),
        4 => measured(f64::NAN),
        5 => measured(f64::INFINITY),
        6 => Outcome::Measured(Measurement::default()),
        7 => Outcome::Measured(Measurement {
            throughput: Some(Estimate::point(1e9)),
            memory: MemoryUse { peak_bytes: Some(99), capacity_bytes: Some(100), ..Default::default() },
            ..Measurement::default()
        }),
        8 => Outcome::Diverged(failure),
        other => measured(other as f64),
    }
}

fn never_fits(_: &Space, _: &Config) -> Outcome {
    out_of(Memory::Device)
}

fn always_crashes(_: &Space, _: &Config) -> Outcome {
    Outcome::Crashed(Failure::new("bad"))
}

fn small() -> Space {
    Space::new([
        Parameter::powers_of_two("batch_size", 8, 64),
        Parameter::range("workers", 0, 4, 2),
        Parameter::values("precision", ["fp32", "bf16"]),
    ])
    .unwrap()
}

fn conditional() -> Space {
    Space::builder()
        .parameter(Parameter::values("prefetch", [2, 4, 8]).when(expression("workers > 0")))
        .parameter(Parameter::powers_of_two("batch_size", 8, 64))
        .parameter(Parameter::range("workers", 0, 3, 1))
        .parameter(Parameter::values("compile", [true, false]))
        .derive("queue", expression("workers * prefetch"))
        .rule(expression("queue <= 12"))
        .rule(expression("batch_size * workers <= 96"))
        .build()
        .unwrap()
}

fn two_memories() -> Space {
    Space::new([
        Parameter::values("micro_batch", [1, 2, 3]),
        Parameter::range("seq_len", 1, 3, 1).memory(MemoryRole::Grows),
        Parameter::values("shards", [1, 2]),
    ])
    .unwrap()
}

/// A space with five configs of a million.
fn rare() -> Space {
    Space::builder()
        .parameter(Parameter::range("a", 0, 999, 1))
        .parameter(Parameter::range("b", 0, 999, 1))
        .rule(expression("a % 200 == 77"))
        .rule(expression("b == 999 - a"))
        .build()
        .unwrap()
}

fn objective() -> Objective {
    Objective::default()
}

fn propose(entry: &Entry, view: &View<'_>) -> Option<Config> {
    (entry.build)().propose(view).map(|proposal| proposal.config)
}

/// Asserts the requirements for any strategy's proposal.
fn assert_sound(entry: &Entry, view: &View<'_>, proposal: &Proposal) {
    let (name, config) = (entry.name, &proposal.config);
    assert!(view.space.allows(config), "{name}: outside of the space");
    assert!(!view.pending.contains(config), "{name}: is being probed");
    assert!(view.is_open(config), "{name}: known, or cannot fit");
    assert!(!is_ruled_out(view.space, view.objective, view.history, config), "{name}: cannot fit");
    assert!(view.history.of(config).next().is_none(), "{name}: twice");
    assert!(proposal.gain.is_none_or(|gain| gain >= 0.0), "{name}: {:?}", proposal.gain);
    assert!(proposal.reason.as_ref().is_none_or(|reason| !reason.is_empty()), "{name}: says nothing");
}

/// Searches to the end, and checks every proposal.
fn run_to_the_end(
    entry: &Entry,
    space: &Space,
    objective: &Objective,
    answer: Answer,
    budget: u32,
    seed: u64,
) -> History {
    let mut strategy = (entry.build)();
    let mut history = History::default();
    let start = space.first();
    for number in 1.. {
        let left = budget.saturating_sub(number - 1);
        let view = View::new(space, objective, &history, &[], start.as_ref()).with(left, seed);
        let proposal = strategy.propose(&view);
        assert_eq!(proposal, (entry.build)().propose(&view), "{}: a new instance disagrees at {number}", entry.name);
        let Some(proposal) = proposal else { break };
        assert_sound(entry, &view, &proposal);
        assert_pending_is_left_alone(entry, &view, &proposal.config);
        let outcome = answer(space, &proposal.config);
        history.push(Trial::new(number, Purpose::Search, proposal.config, outcome));
    }
    history
}

fn assert_pending_is_left_alone(entry: &Entry, view: &View<'_>, config: &Config) {
    let pending = [config.clone()];
    let beside =
        View::new(view.space, view.objective, view.history, &pending, view.start).with(view.probes_left, view.seed);
    let other = propose(entry, &beside);
    assert_ne!(other.as_ref(), Some(config), "{}: pending", entry.name);
    assert!(other.is_none_or(|other| beside.is_open(&other)), "{}", entry.name);
}

/// A second implementation, from the parameters' roles.
fn is_ruled_out(space: &Space, objective: &Objective, history: &History, candidate: &Config) -> bool {
    history.trials().iter().any(|trial| {
        objective.lacks_memory(&trial.outcome).is_some_and(|memory| {
            space.parameters().iter().enumerate().all(|(at, parameter)| {
                let (candidate, failed) = (candidate.level(at), trial.config.level(at));
                let grows = match memory {
                    Memory::Device => match parameter.memory_role() {
                        MemoryRole::Same => return true,
                        role => role == MemoryRole::Grows,
                    },
                    Memory::Host | Memory::Shared => parameter.is_ordinal(),
                };
                match (candidate, failed) {
                    (Some(candidate), Some(failed)) if grows => candidate >= failed,
                    _ => candidate == failed,
                }
            })
        })
    })
}

fn assert_nothing_is_left(entry: &Entry, space: &Space, objective: &Objective, history: &History) {
    for config in Walk::new(space) {
        let known = history.is_settled(&config) || is_ruled_out(space, objective, history, &config);
        assert!(known, "{}: {} was left out", entry.name, space.settings(&config).line());
    }
}

#[test]
fn every_strategy_probes_exactly_what_is_open_whatever_the_outcomes() {
    let single = Space::new([Parameter::values("only", ["one"])]).unwrap();
    let one = Space::new([Parameter::range("batch_size", 1, 40, 1)]).unwrap();
    let answers: [Answer; 4] = [always_well, mixed, never_fits, always_crashes];
    let minimize = Objective::new("throughput", Direction::Minimize);
    let bounded = objective().constraint(Constraint::parse("throughput < 500").unwrap());
    for entry in STRATEGIES {
        for space in [small(), conditional(), two_memories(), one_of(&single), one_of(&one)] {
            for (answer, seed) in answers.iter().zip(0..) {
                let history = run_to_the_end(entry, &space, &objective(), *answer, 1000, seed);
                assert_nothing_is_left(entry, &space, &objective(), &history);
            }
            for objective in [&minimize, &bounded] {
                let history = run_to_the_end(entry, &space, objective, mixed, 1000, 9);
                assert_nothing_is_left(entry, &space, objective, &history);
            }
        }
    }
}

/// Returns a copy of the space; spaces cannot be cloned.
fn one_of(space: &Space) -> Space {
    let knob = &space.parameters()[0];
    let levels = u32::try_from(knob.len()).unwrap();
    Space::new([Parameter::values(knob.name(), (0..levels).map(|level| knob.value(level)))]).unwrap()
}

#[test]
fn a_small_budget_changes_nothing_about_what_a_strategy_must_do() {
    for entry in STRATEGIES {
        let history = run_to_the_end(entry, &conditional(), &objective(), mixed, 10, 5);
        assert_nothing_is_left(entry, &conditional(), &objective(), &history);
    }
}

#[test]
fn five_configs_of_a_million_are_all_found() {
    let space = rare();
    let objective = objective();
    for entry in STRATEGIES {
        let (mut strategy, mut history) = ((entry.build)(), History::default());
        for number in 1..=50 {
            let view = View::new(&space, &objective, &history, &[], None).with(51 - number, 1);
            let Some(proposal) = strategy.propose(&view) else { break };
            assert_sound(entry, &view, &proposal);
            let outcome = always_well(&space, &proposal.config);
            history.push(Trial::new(number, Purpose::Search, proposal.config, outcome));
        }
        assert_eq!(Walk::new(&space).filter(|config| history.is_settled(config)).count(), 5, "{}", entry.name);
    }
}

#[test]
fn where_nothing_fits_one_probe_is_enough_however_large_the_space() {
    let space = Space::new([
        Parameter::range("batch_size", 1, 1_000_000, 1),
        Parameter::range("workers", 0, 1000, 1),
        Parameter::range("prefetch", 1, 1000, 1),
    ])
    .unwrap();
    // `random` begins anywhere, and a failure rules out only larger configs.
    for entry in STRATEGIES.iter().filter(|entry| entry.name != "random") {
        let history = run_to_the_end(entry, &space, &objective(), never_fits, 1000, 0);
        assert_eq!(history.trials().len(), 1, "{}", entry.name);
    }
}

#[test]
fn sixty_parameters_of_four_settings_overflow_nothing() {
    let space = Space::new((0..60).map(|at| Parameter::range(format!("p{at}"), 0, 3, 1))).unwrap();
    for entry in STRATEGIES {
        search_a_little(entry, &space, 12);
    }
}

#[test]
fn a_space_beyond_every_index_is_searched_too() {
    let space = Space::new((0..100).map(|at| Parameter::range(format!("p{at}"), 0, 9, 1))).unwrap();
    for entry in STRATEGIES {
        search_a_little(entry, &space, 6);
    }
}

fn search_a_little(entry: &Entry, space: &Space, probes: u32) {
    let (mut strategy, mut history, objective) = ((entry.build)(), History::default(), objective());
    let start = space.first();
    for number in 1..=probes {
        let view = View::new(space, &objective, &history, &[], start.as_ref()).with(probes + 1 - number, 3);
        let proposal = strategy.propose(&view).unwrap();
        assert_eq!(Some(&proposal), (entry.build)().propose(&view).as_ref(), "{}", entry.name);
        assert_sound(entry, &view, &proposal);
        let outcome = always_well(space, &proposal.config);
        history.push(Trial::new(number, Purpose::Search, proposal.config, outcome));
    }
}

#[test]
fn seeds_give_different_random_orders_and_the_same_seed_the_same() {
    let random = STRATEGIES.iter().find(|entry| entry.name == "random").unwrap();
    let order = |seed| -> Vec<Config> {
        let history = run_to_the_end(random, &small(), &objective(), always_well, 100, seed);
        history.trials().iter().map(|trial| trial.config.clone()).collect()
    };
    assert_eq!(order(1), order(1));
    let different: HashSet<Vec<Config>> = (0..20).map(order).collect();
    assert_eq!(different.len(), 20);
}

fn by_name(name: &str) -> &'static Entry {
    STRATEGIES.iter().find(|entry| entry.name == name).unwrap()
}

/// Returns the number of probes until the best config is found, for a step with a launch floor and a loader.
fn probes_to_the_best(name: &str, seed: u64) -> usize {
    let space = Space::new([
        Parameter::powers_of_two("batch_size", 4, 512),
        Parameter::range("workers", 0, 8, 1),
        Parameter::values("precision", ["fp32", "bf16"]),
        Parameter::values("channels_last", [false, true]),
    ])
    .unwrap();
    let answer: Answer = |space, config| {
        let settings = space.settings(config);
        let batch = settings.integer("batch_size").unwrap() as f64;
        let workers = settings.integer("workers").unwrap() as f64;
        let speed = if config.level(2) == Some(1) { 1.7 } else { 1.0 };
        let device = 8.0 + batch * 0.2 / speed * if config.level(3) == Some(1) { 0.95 } else { 1.0 };
        let loader = batch * 0.5;
        let step = if workers == 0.0 { device + loader } else { device.max(loader / workers.min(5.0)) };
        measured(1000.0 * batch / step - workers)
    };
    let best =
        Walk::new(&space).filter_map(|config| objective().score_of(&answer(&space, &config))).fold(0.0, f64::max);
    let (mut strategy, mut history, objective) = ((by_name(name).build)(), History::default(), objective());
    for number in 1..=60 {
        let view = View::new(&space, &objective, &history, &[], None).with(61 - number, seed);
        let config = strategy.propose(&view).unwrap().config;
        let outcome = answer(&space, &config);
        if objective.score_of(&outcome).unwrap() > 0.99 * best {
            return number as usize;
        }
        history.push(Trial::new(number, Purpose::Search, config, outcome));
    }
    usize::MAX
}

#[test]
fn physics_finds_the_best_of_a_training_step_in_few_probes() {
    for seed in 0..2 {
        let probes = probes_to_the_best("auto", seed);
        assert!(probes <= 12, "{probes} of 288");
    }
}

#[test]
fn what_a_model_proposes_it_explains() {
    let (space, objective) = (small(), objective());
    let history = run_to_the_end(by_name("random"), &space, &objective, always_well, 100, 0);
    let known: History = history.trials().iter().take(6).cloned().collect();
    for name in ["auto", "bayes"] {
        let view = View::new(&space, &objective, &known, &[], None).with(10, 0);
        let proposal = (by_name(name).build)().propose(&view).unwrap();
        let reason = proposal.reason.unwrap();
        assert!(reason.starts_with("tries ") && reason.contains("predicted "), "{reason}");
        assert!(proposal.gain.unwrap() >= 0.0);
    }
}

#[test]
fn numbers_that_tell_nothing_are_no_trouble() {
    fn all_equal(_: &Space, _: &Config) -> Outcome {
        measured(5.0)
    }
    fn tiny(_: &Space, config: &Config) -> Outcome {
        measured(f64::MIN_POSITIVE * (1 + hash(config) % 3) as f64)
    }
    fn huge(_: &Space, config: &Config) -> Outcome {
        measured(if hash(config).is_multiple_of(2) { f64::MAX } else { 1.0 })
    }
    fn negative(_: &Space, config: &Config) -> Outcome {
        measured(-((hash(config) % 7) as f64))
    }
    fn only_one_runs(space: &Space, config: &Config) -> Outcome {
        if space.first().as_ref() == Some(config) { measured(1.0) } else { always_crashes(space, config) }
    }
    fn noisy(_: &Space, config: &Config) -> Outcome {
        let value = 1.0 + (hash(config) % 9) as f64;
        let throughput = Some(Estimate::interval(value, f64::NEG_INFINITY, f64::INFINITY));
        Outcome::Measured(Measurement { throughput, ..Measurement::default() })
    }
    let answers: [Answer; 6] = [all_equal, tiny, huge, negative, only_one_runs, noisy];
    for name in ["auto", "bayes"] {
        for answer in answers {
            for objective in [objective(), Objective::new("throughput", Direction::Minimize)] {
                let history = run_to_the_end(by_name(name), &small(), &objective, answer, 100, 1);
                assert_nothing_is_left(by_name(name), &small(), &objective, &history);
            }
        }
    }
}

#[test]
fn the_largest_number_there_is_makes_no_gain_that_is_none() {
    let space = Space::new([Parameter::range("a", 0, 999_999, 1)]).unwrap();
    let objective = Objective::new("throughput", Direction::Minimize);
    let trial =
        |number: u32, config: &Config, value: f64| Trial::new(number, Purpose::Search, config.clone(), measured(value));
    let configs: Vec<Config> = Walk::new(&space).step_by(300_000).take(3).collect();
    for scores in [[f64::MAX, 0.0], [0.0, f64::MAX], [f64::MAX, 1.0]] {
        let history: History =
            (1..).zip(&configs).zip(scores).map(|((number, config), at)| trial(number, config, at)).collect();
        for entry in STRATEGIES {
            for pending in [&configs[2..], &configs[..0]] {
                let view = View::new(&space, &objective, &history, pending, None);
                assert_sound(entry, &view, &(entry.build)().propose(&view).unwrap());
            }
        }
    }
}

#[test]
fn grid_meets_the_edge_of_memory_once_in_each_group() {
    let grid = STRATEGIES.iter().find(|entry| entry.name == "grid").unwrap();
    let edge: Answer = |space, config| match space.settings(config).integer("batch_size") {
        Some(batch) if batch > 16 => out_of(Memory::Device),
        _ => measured(1.0),
    };
    let history = run_to_the_end(grid, &small(), &objective(), edge, 100, 0);
    let full = history.trials().iter().filter(|trial| trial.outcome.measurement().is_none()).count();
    assert_eq!(full, 2, "one for each precision");
}

#[test]
fn an_instance_that_is_used_for_another_search_starts_anew() {
    let space = small();
    let objective = objective();
    for entry in STRATEGIES {
        let mut strategy = (entry.build)();
        let history = run_to_the_end(entry, &space, &objective, always_well, 100, 0);
        assert_eq!(strategy.propose(&View::new(&space, &objective, &history, &[], None)), None);
        let nothing = History::default();
        let view = View::new(&space, &objective, &nothing, &[], None);
        let again = strategy.propose(&view).map(|proposal| proposal.config);
        assert_eq!(again, propose(entry, &view), "{}", entry.name);
    }
}

#[test]
fn what_the_device_reached_in_each_precision_decides_which_is_tried_first() {
    let precisions = Parameter::values("precision", ["fp32", "tf32", "fp16", "bf16"]);
    let space = Space::new([Parameter::powers_of_two("batch_size", 8, 64), precisions]).unwrap();
    let objective = objective();
    let start = space.first().unwrap();
    let mut history = History::default();
    let first = Trial::new(1, Purpose::Baseline, start.clone(), measured(100.0));
    history.push(Trial { elapsed: Duration::from_secs(1), ..first });
    let auto = STRATEGIES.iter().find(|entry| entry.name == "auto").unwrap();
    for fast in [Precision::Tf32, Precision::Fp16, Precision::Bf16] {
        let speeds = [Precision::Tf32, Precision::Fp16, Precision::Bf16]
            .map(|precision| (precision, if precision == fast { 16.0 } else { 1.1 }));
        let speeds = BTreeMap::from(speeds);
        let mut view = View::new(&space, &objective, &history, &[], Some(&start));
        view.precision_speeds = Some(&speeds);
        let next = (auto.build)().propose(&view).unwrap().config;
        assert_eq!(space.settings(&next).get("precision").unwrap().to_string(), fast.name());
    }
}
