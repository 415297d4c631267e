//! Several objectives: weighed, bounded, or as a front, on recorded tables and on studies made by hand.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use gputune::budget::Budget;
use gputune::objective::{Constraint, Goal, Objective, front};
use gputune::probe::{Replay, Table};
use gputune::space::{Space, Walk};
use gputune::study::Study;
use gputune::tuner::Tuner;

const TABLES: [&str; 2] = ["zeus-v100-cifar100.csv", "zeus-a40-imagenet.csv"];

fn table(name: &str) -> (Space, Replay) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables").join(name);
    Table::from_csv(std::fs::File::open(path).unwrap()).unwrap().into_replay(&[]).unwrap()
}

fn goals() -> [Goal; 2] {
    ["throughput", "energy_per_sample"].map(|metric| Goal::known(metric).unwrap())
}

fn pareto() -> Objective {
    Objective::pareto(goals()).unwrap()
}

fn search(name: &str, objective: Objective, strategy: &str, probes: u32, seed: u64) -> Study {
    let (space, replay) = table(name);
    let budget = Budget { probes, confirmations: 0, least_gain: 0.0, ..Budget::default() };
    let tuner = Tuner::with_prober(space, replay).objective(objective).budget(budget).seed(seed);
    tuner.strategy(strategy).unwrap().run(|_| ()).unwrap()
}

/// All configs of a table that may win, with the logarithm of each goal's score.
fn all(name: &str, objective: &Objective) -> Vec<Vec<f64>> {
    let (space, replay) = table(name);
    let outcomes: Vec<_> = Walk::new(&space).filter_map(|config| replay.answer(&config).cloned()).collect();
    outcomes.iter().filter_map(|outcome| objective.scores_of(outcome)).map(logarithms).collect()
}

fn logarithms(scores: Vec<f64>) -> Vec<f64> {
    scores.into_iter().map(|score| score.signum() * score.abs().ln()).collect()
}

/// The area that some pairs dominate, above the worst of a table in both.
fn hypervolume(rows: &[Vec<f64>], worst: &[f64]) -> f64 {
    let mut rows: Vec<&Vec<f64>> = front::non_dominated(rows).into_iter().map(|at| &rows[at]).collect();
    rows.sort_by(|a, b| b[0].total_cmp(&a[0]));
    let mut height = worst[1];
    let mut area = 0.0;
    for row in rows {
        area += (row[0] - worst[0]) * (row[1] - height).max(0.0);
        height = height.max(row[1]);
    }
    area
}

/// The share of a table's hypervolume that a search found.
fn found(name: &str, strategy: &str, probes: u32, seed: u64) -> f64 {
    let rows = all(name, &pareto());
    let worst: Vec<f64> = (0..2).map(|at| rows.iter().map(|row| row[at]).fold(f64::MAX, f64::min)).collect();
    let study = search(name, pareto(), strategy, probes, seed);
    let front: Vec<Vec<f64>> = study
        .front()
        .iter()
        .map(|member| goals().iter().zip(&member.numbers).map(|(goal, number)| goal.score(number.value)).collect())
        .map(logarithms)
        .collect();
    hypervolume(&front, &worst) / hypervolume(&rows, &worst)
}

#[test]
#[ignore = "prints numbers"]
fn shares_of_the_hypervolume() {
    for name in TABLES {
        for strategy in ["auto", "bayes", "descent", "random"] {
            for probes in [10, 20, 30] {
                let shares: Vec<f64> = (0..8).map(|seed| found(name, strategy, probes, seed)).collect();
                let mean = shares.iter().sum::<f64>() / shares.len() as f64;
                let least = shares.iter().copied().fold(1.0, f64::min);
                println!("{name} {strategy} {probes}: mean {mean:.4} least {least:.4}");
            }
        }
    }
}
