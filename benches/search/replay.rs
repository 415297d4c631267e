//! gputune's strategies on the tables, by the rules that the peers' harness states.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gputune::model::{Estimate, History, Outcome, Purpose, Trial};
use gputune::search::{
    Strategy,
    strategy::{self, View},
};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

use crate::line::{self, Key, Line};
use crate::table::Recorded;

/// What all runs have in common.
pub(crate) struct Plan<'a> {
    pub(crate) tables: &'a [Recorded],
    pub(crate) methods: Vec<Method>,
    pub(crate) seeds: Range<u64>,
    pub(crate) budget: usize,
    pub(crate) noise: bool,
    pub(crate) jobs: usize,
}

/// A strategy, under the name that it has in the report.
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) build: fn() -> Box<dyn Strategy>,
}

/// The strategy of this name.
pub(crate) fn method(name: &str) -> Method {
    let entry = strategy::strategy(name).unwrap_or_else(|| panic!("no strategy is named {name:?}"));
    Method { name: format!("gputune-{name}"), build: entry.build }
}

/// Runs what is not done, seed by seed, and appends each run to the file.
pub(crate) fn run_all(plan: &Plan<'_>, done: &HashSet<Key>, path: &Path, version: &str) {
    let mut runs = Vec::new();
    for seed in plan.seeds.clone() {
        for method in &plan.methods {
            for table in plan.tables {
                let key = (method.name.clone(), table.name.clone(), seed, plan.budget, plan.noise);
                if !done.contains(&key) {
                    runs.push((method, table, seed));
                }
            }
        }
    }
    let (next, file) = (AtomicUsize::new(0), Mutex::new(()));
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs {
            scope.spawn(|| {
                while let Some((method, table, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let line = run(plan, method, table, *seed, version);
                    let _one = file.lock().unwrap();
                    line::append(path, &line);
                    let last = line.curve.last().map_or(1.0, |(_, regret)| *regret);
                    eprintln!("{} {} {seed}: {last:.4} {:.2} s", line.method, line.table, line.seconds);
                }
            });
        }
    });
}

/// One run. It ends early where the peers' do: once the best is found, no probe can change its regret.
fn run(plan: &Plan<'_>, method: &Method, table: &Recorded, seed: u64, version: &str) -> Line {
    let mut strategy = (method.build)();
    let mut history = History::default();
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let (mut curve, mut top): (Vec<(usize, f64)>, Option<f64>) = (Vec::new(), None);
    let (mut failed, mut spent) = (0, 0.0);
    let budget = u32::try_from(plan.budget.min(table.regrets.len())).unwrap();
    for number in 1..=budget {
        let view = View::new(&table.space, &table.objective, &history, &[], None).with(budget + 1 - number, seed);
        let begin = processor_seconds();
        let proposal = strategy.propose(&view);
        spent += processor_seconds() - begin;
        let Some(proposal) = proposal else { break };
        assert!(!history.is_settled(&proposal.config), "{} repeats a config on {}", method.name, table.name);
        let recorded = table.replay.answer(&proposal.config).unwrap();
        let outcome = if plan.noise { noisy(table, &proposal.config, recorded, &mut chance) } else { recorded.clone() };
        match (table.objective.score_of(&outcome), table.objective.score_of(recorded)) {
            (Some(seen), Some(score)) => {
                if top.is_none_or(|top| seen > top) {
                    top = Some(seen);
                    curve.push((number as usize, table.regret(table.objective.score(score))));
                }
            }
            _ => failed += 1,
        }
        history.push(Trial {
            ended_at: None,
            slot: None,
            number,
            purpose: Purpose::Search,
            config: proposal.config,
            outcome,
            elapsed: Duration::ZERO,
        });
        if !plan.noise && curve.last().is_some_and(|(_, regret)| *regret <= 0.0) {
            break;
        }
    }
    Line {
        method: method.name.clone(),
        table: table.name.clone(),
        seed,
        budget: plan.budget,
        noise: plan.noise,
        curve,
        probes: history.trials().len(),
        failed,
        repeats: 0,
        outside: 0,
        drawn: 0,
        seconds: spent,
        version: version.to_owned(),
        error: None,
    }
}

/// Of this thread: other runs and other programs do not count.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The outcome of one repeat: the recorded mean, moved by the recorded spread, which its interval tells.
fn noisy(table: &Recorded, config: &gputune::model::Config, recorded: &Outcome, chance: &mut ChaCha8Rng) -> Outcome {
    let spread = table.spreads.get(config).copied().unwrap_or(0.0);
    let mut outcome = recorded.clone();
    if let (Outcome::Measured(measurement), true) = (&mut outcome, spread > 0.0)
        && let Some(throughput) = &mut measurement.throughput
    {
        // Peers hear the logarithm of the time: its spread is that share, whichever direction is better.
        let value = throughput.value * (spread * standard_normal(chance)).exp();
        *throughput = Estimate::interval(value, value * (1.0 - 1.96 * spread).max(0.0), value * (1.0 + 1.96 * spread));
    }
    outcome
}

/// Box and Muller.
fn standard_normal(chance: &mut ChaCha8Rng) -> f64 {
    let (radius, angle): (f64, f64) = (chance.random(), chance.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
