//! One strategy on one table, for many seeds.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use gputune::objective::{Direction, Objective};
use gputune::probe::{Replay, Table};
use gputune::space::{Count, Space};
use gputune::strategy::{self, View};
use gputune::trial::{History, Purpose, Trial};
use serde::Serialize;

/// A table that can be searched.
pub(crate) struct Recorded {
    pub(crate) name: String,
    objective: Objective,
    space: Space,
    replay: Replay,
    optimum: f64,
}

/// How a strategy fared on a table.
#[derive(Serialize)]
pub(crate) struct Fared {
    pub(crate) table: String,
    pub(crate) strategy: String,
    pub(crate) configs: u128,
    /// Whether every combination of the settings is in the table.
    pub(crate) is_full: bool,
    /// For each seed, how far the best is below the optimum after each probe, as a share; 1 until something ran.
    pub(crate) regret: Vec<Vec<f64>>,
    /// Probes that failed, as a share of all.
    pub(crate) failed: f64,
    /// The mean time of a proposal.
    pub(crate) seconds_per_proposal: f64,
}

/// The tables of a folder whose names begin with one of `only`, or all.
pub(crate) fn tables(folder: &Path, only: &[String]) -> Vec<Recorded> {
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap_or_else(|_| "{}".to_owned());
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let tables = paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "csv"));
    let recorded = tables.filter_map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_wanted = only.is_empty() || only.iter().any(|start| name.starts_with(start.as_str()));
        is_wanted.then(|| recorded(path, &name, &manifest))
    });
    recorded.collect()
}

fn recorded(path: &Path, name: &str, manifest: &serde_json::Value) -> Recorded {
    let direction = if manifest[name]["direction"] == "min" { Direction::Minimize } else { Direction::Maximize };
    let objective = Objective::new("throughput", direction);
    let (space, replay) = Table::from_csv(File::open(path).unwrap()).unwrap().into_replay(&[]).unwrap();
    let optimum = objective.score(replay.optimum(&objective).unwrap());
    Recorded { name: name.to_owned(), objective, space, replay, optimum }
}

/// Runs a strategy with each of some seeds.
pub(crate) fn replayed(table: &Recorded, strategy: &str, seeds: Range<u64>, probes: usize) -> Fared {
    let configs = match table.space.count() {
        Count::Exact(count) => count,
        _ => 0,
    };
    let mut spent = Duration::ZERO;
    let (mut failed, mut probed) = (0_usize, 0_usize);
    let runs = seeds.map(|seed| {
        let begin = Instant::now();
        let (regret, failures) = run(table, strategy, seed, probes);
        spent += begin.elapsed();
        failed += failures;
        probed += regret.len();
        regret
    });
    let regret: Vec<Vec<f64>> = runs.collect();
    Fared {
        table: table.name.clone(),
        strategy: strategy.to_owned(),
        configs,
        is_full: table.space.raw_size() == Some(configs),
        regret,
        failed: failed as f64 / probed.max(1) as f64,
        seconds_per_proposal: spent.as_secs_f64() / probed.max(1) as f64,
    }
}

fn run(table: &Recorded, strategy: &str, seed: u64, probes: usize) -> (Vec<f64>, usize) {
    let mut strategy = (strategy::strategy(strategy).unwrap().build)();
    let (mut history, mut regret, mut failed) = (History::default(), Vec::new(), 0);
    let mut top: Option<f64> = None;
    for number in 1..=u32::try_from(probes).unwrap() {
        let left = u32::try_from(probes).unwrap() + 1 - number;
        let view = View::new(&table.space, &table.objective, &history, &[], None).with(left, seed);
        let Some(proposal) = strategy.propose(&view) else { break };
        let outcome = table.replay.answer(&proposal.config).unwrap().clone();
        match table.objective.score_of(&outcome) {
            Some(score) => top = Some(top.map_or(score, |top: f64| top.max(score))),
            None => failed += 1,
        }
        regret.push(top.map_or(1.0, |score| regret_of(table, table.objective.score(score))));
        let purpose = Purpose::Search;
        history.push(Trial { number, purpose, config: proposal.config, outcome, elapsed: Duration::ZERO });
    }
    (regret, failed)
}

fn regret_of(table: &Recorded, value: f64) -> f64 {
    let share = match table.objective.direction() {
        Direction::Maximize => value / table.optimum,
        Direction::Minimize => table.optimum / value,
    };
    1.0 - share.max(0.0)
}
