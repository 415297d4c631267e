//! Properties of every strategy on random spaces and histories.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::time::Duration;

use gputune::model::{
    Config, Constraint, Direction, Estimate, Expression, Failure, History, Measurement, Memory, MemoryRole, MemoryUse,
    Objective, Outcome, Parameter, Permutation, Purpose, Space, Trial, Walk,
};
use gputune::search::{
    STRATEGIES,
    strategy::{Entry, View},
};
use proptest::prelude::*;

/// The plan of one parameter.
#[derive(Debug, Clone)]
enum Knob {
    Range { len: u32, step: i64 },
    Powers { from: u32, len: u32 },
    Texts { len: u32 },
    Switch,
}

/// The plan of a space; spaces cannot be cloned.
#[derive(Debug, Clone)]
struct Plan {
    knobs: Vec<Knob>,
    /// True if the parameters have names that mean something to a model of a training step.
    telling_names: bool,
    /// True if the last parameter is active only sometimes.
    conditional: bool,
    rule: u8,
}

/// All inputs of a proposal.
#[derive(Debug, Clone)]
struct Case {
    plan: Plan,
    /// The outcome of each trial, and its purpose.
    trials: Vec<(u8, u8)>,
    pending: usize,
    left: u32,
    seed: u64,
    start: bool,
    goal: u8,
}

const NAMES: [&str; 6] = ["batch_size", "workers", "precision", "prefetch", "threads", "accumulation"];

impl Plan {
    fn space(&self) -> Option<Space> {
        let count = self.knobs.len();
        let mut builder = Space::builder();
        let name = |at: usize| match NAMES.get(at).filter(|_| self.telling_names) {
            Some(name) => (*name).to_owned(),
            None => format!("p{at}"),
        };
        for (at, knob) in self.knobs.iter().enumerate() {
            let parameter = match *knob {
                Knob::Range { len, step } => Parameter::range(name(at), 0, (i64::from(len) - 1) * step, step),
                Knob::Powers { from, len } => Parameter::powers_of_two(name(at), 1 << from, 1 << (from + len - 1)),
                Knob::Texts { len } => Parameter::values(name(at), (0..len).map(|level| format!("v{level}"))),
                Knob::Switch => Parameter::values(name(at), [false, true]),
            };
            let depends = self.conditional && at > 0 && at + 1 == count && self.is_number(0);
            let condition = || Expression::parse(format!("{} > 1", name(0)).as_str()).unwrap();
            let parameter = if at == 1 { parameter.memory(MemoryRole::Grows) } else { parameter };
            builder = builder.parameter(if depends { parameter.when(condition()) } else { parameter });
        }
        // With very many parameters, a rule on two of them can make a dead end that takes too long to leave.
        let rule = match self.rule.saturating_add(if count > 12 { u8::MAX } else { 0 }) {
            0 if self.is_number(0) => Some(format!("{} % 2 == 0", name(0))),
            1 if count > 2 && self.is_number(0) && self.is_number(1) => Some(format!("{} <= {}", name(0), name(1))),
            2 if count > 2 && self.is_number(0) && self.is_number(1) => Some(format!("{} == {} + 1", name(0), name(1))),
            _ => None,
        };
        if let Some(rule) = rule {
            builder = builder.rule(Expression::parse(&rule).unwrap());
        }
        builder.build().ok().filter(|space| space.first().is_some())
    }

    fn is_number(&self, at: usize) -> bool {
        matches!(self.knobs.get(at), Some(Knob::Range { .. } | Knob::Powers { .. }))
    }
}

fn outcome(code: u8, at: usize) -> Outcome {
    let failure = || Failure::new("as drawn");
    let measured =
        |estimate: Estimate| Outcome::Measured(Measurement { throughput: Some(estimate), ..Measurement::default() });
    let value = 100.0 + f64::from(code) + at as f64;
    match code {
        0 => Outcome::OutOfMemory { memory: Memory::Device, failure: failure() },
        1 => Outcome::OutOfMemory { memory: Memory::Host, failure: failure() },
        2 => Outcome::OutOfMemory { memory: Memory::Shared, failure: failure() },
        3 => Outcome::Crashed(failure()),
        4 => Outcome::TimedOut(failure()),
        5 => Outcome::Stalled(failure()),
        6 => Outcome::Rejected(failure()),
        7 => Outcome::Diverged(failure()),
        9 => measured(Estimate::point(f64::NAN)),
        10 => measured(Estimate::point(f64::INFINITY)),
        11 => measured(Estimate::point(f64::NEG_INFINITY)),
        12 => measured(Estimate::point(0.0)),
        13 => measured(Estimate::point(-value)),
        14 => measured(Estimate::point(f64::MAX)),
        15 => measured(Estimate::point(f64::MIN_POSITIVE)),
        16 => measured(Estimate::interval(value, f64::NEG_INFINITY, f64::INFINITY)),
        17 => measured(Estimate::interval(value, f64::NAN, f64::NAN)),
        18 => measured(Estimate::interval(value, value * 1e-6, value * 1e6)),
        19 => Outcome::Measured(Measurement::default()),
        20 => Outcome::Measured(Measurement {
            throughput: Some(Estimate::point(value)),
            memory: MemoryUse { peak_bytes: Some(99), capacity_bytes: Some(100), ..Default::default() },
            ..Measurement::default()
        }),
        21..=24 => measured(Estimate::point(100.0)),
        _ => measured(Estimate::interval(value, value * 0.98, value * 1.02)),
    }
}

fn knob() -> impl Strategy<Value = Knob> {
    prop_oneof![
        6 => (1_u32..12, 1_i64..4).prop_map(|(len, step)| Knob::Range { len, step }),
        1 => Just(Knob::Range { len: 1_000_000, step: 1 }),
        3 => (0_u32..8, 1_u32..9).prop_map(|(from, len)| Knob::Powers { from, len }),
        3 => (1_u32..7).prop_map(|len| Knob::Texts { len }),
        1 => Just(Knob::Switch),
        1 => Just(Knob::Range { len: 1, step: 1 }),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let knobs = prop_oneof![
        8 => prop::collection::vec(knob(), 1..6),
        1 => prop::collection::vec(knob(), 6..20),
        1 => prop::collection::vec(knob(), 20..=60),
    ];
    (knobs, any::<bool>(), any::<bool>(), 0_u8..6).prop_map(|(knobs, telling_names, conditional, rule)| Plan {
        knobs,
        telling_names,
        conditional,
        rule,
    })
}

fn case() -> impl Strategy<Value = Case> {
    let trials = prop_oneof![
        2 => prop::collection::vec((0_u8..40, 0_u8..8), 0..12),
        // All fail, all equal.
        1 => prop::collection::vec((0_u8..8, 0_u8..8), 0..8),
        1 => prop::collection::vec((21_u8..25, 0_u8..8), 0..12),
        // More trials than many spaces have configs.
        1 => prop::collection::vec((0_u8..40, 0_u8..8), 20..30),
    ];
    let left = prop_oneof![1 => Just(1_u32), 4 => 1_u32..40, 1 => Just(u32::MAX)];
    (plan(), trials, 0_usize..4, left, any::<u64>(), any::<bool>(), 0_u8..4).prop_map(
        |(plan, trials, pending, left, seed, start, goal)| Case { plan, trials, pending, left, seed, start, goal },
    )
}

/// Returns trials of random configs, each config once; a few configs come again in rounds.
fn history(case: &Case, space: &Space) -> History {
    let mut history = History::default();
    let draws = (0..).map(|draw| drawn(space, case.seed.wrapping_add(draw)));
    let configs = draws.take(case.trials.len()).flatten();
    for ((at, &(code, purpose)), config) in case.trials.iter().enumerate().zip(configs) {
        let purpose = match purpose {
            0 if history.of(&config).next().is_some() => Purpose::Round,
            1 if at == 0 => Purpose::Baseline,
            _ => Purpose::Search,
        };
        let number = u32::try_from(at + 1).unwrap();
        let elapsed = Duration::from_secs(1);
        history.push(Trial { elapsed, ..Trial::new(number, purpose, config, outcome(code, at)) });
    }
    history
}

/// The settings that a look for a config may try.
const FUEL: u64 = 20_000;

fn drawn(space: &Space, draw: u64) -> Option<Config> {
    let random = Permutation::new(1 << 60, draw).at(0).unwrap();
    Walk::shuffled(space, u64::try_from(random).unwrap()).advance(&mut FUEL.clone()).found()
}

fn objective(goal: u8) -> Objective {
    match goal {
        0 => Objective::new("throughput", Direction::Minimize),
        1 => Objective::default().constraint(Constraint::parse("throughput < 120").unwrap()),
        _ => Objective::default(),
    }
}

/// Returns true if one of the first configs, in either of two orders, is open.
fn is_anything_open(view: &View<'_>) -> bool {
    [Walk::new(view.space), Walk::shuffled(view.space, 1)].into_iter().any(|mut walk| {
        let mut fuel = FUEL;
        std::iter::from_fn(|| walk.advance(&mut fuel).found()).any(|config| view.is_open(&config))
    })
}

fn check(entry: &Entry, case: &Case) {
    let Some(space) = case.plan.space() else { return };
    let (history, objective) = (history(case, &space), objective(case.goal));
    let pending: Vec<Config> =
        (0..case.pending as u64).filter_map(|draw| drawn(&space, case.seed.wrapping_add(500 + draw))).collect();
    let start = space.first().filter(|_| case.start);
    let earlier: History = history.trials().iter().take(history.trials().len() / 2).cloned().collect();
    let view = |history| View::new(&space, &objective, history, &pending, start.as_ref()).with(case.left, case.seed);

    // A strategy that has seen more, less, or another search must propose the same as a new strategy.
    let mut used = (entry.build)();
    let _ = used.propose(&view(&earlier));
    let now = view(&history);
    let proposal = used.propose(&now);
    assert_eq!(proposal, (entry.build)().propose(&now), "{}: a new instance disagrees", entry.name);
    match &proposal {
        Some(proposal) => super::assert_sound(entry, &now, proposal),
        None => assert!(!is_anything_open(&now), "{}: ends although there is more", entry.name),
    }
}

/// Runs the check in a thread, so that an endless proposal is reported instead of waited for.
fn check_in_time(entry: &'static Entry, case: &Case) {
    const LONG: Duration = Duration::from_secs(300);
    let (sender, done) = mpsc::channel();
    let theirs = case.clone();
    std::thread::spawn(move || sender.send(catch_unwind(AssertUnwindSafe(|| check(entry, &theirs)))));
    match done.recv_timeout(LONG) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => panic!("{}: no answer to {case:?}", entry.name),
    }
}

/// Returns true for strategies with a model, which are slow in a test build.
fn is_slow(entry: &Entry) -> bool {
    ["auto", "bayes"].contains(&entry.name)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn proposals_are_sound_whatever_the_space_and_the_history(case in case()) {
        STRATEGIES.iter().filter(|entry| !is_slow(entry)).for_each(|entry| check_in_time(entry, &case));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn proposals_of_models_are_sound_too(case in case()) {
        STRATEGIES.iter().filter(|entry| is_slow(entry)).for_each(|entry| check_in_time(entry, &case));
    }
}
