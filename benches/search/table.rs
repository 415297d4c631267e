//! The tables that are searched, and what searching one at random comes to.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use gputune::model::{Config, Direction, Objective, Space, Walk};
use gputune::probe::{Replay, Table};

/// A table that can be searched.
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) objective: Objective,
    pub(crate) space: Space,
    pub(crate) replay: Replay,
    /// The regret of each config, best first; 1 for one that fails.
    pub(crate) regrets: Vec<f64>,
    /// How much a repeat of a config varies, as a share of its value, where that was recorded.
    pub(crate) spreads: HashMap<Config, f64>,
    /// Where the methodology of Willemsen and others ends: random search is expected to have come 96 % of the way from
    /// the median to the best.
    pub(crate) cutoff: usize,
    optimum: f64,
}

/// What share of the way from the median to the best ends the area (its `cutoff_percentile`).
const CUTOFF: f64 = 0.96;

impl Recorded {
    /// How far a value is below the best, as a share of the best; of times, of their inverse.
    pub(crate) fn regret(&self, value: f64) -> f64 {
        let share = match self.objective.direction() {
            Direction::Maximize => value / self.optimum,
            Direction::Minimize => self.optimum / value,
        };
        (1.0 - share.max(0.0)).max(0.0)
    }

    /// Whether some configs fail.
    pub(crate) fn has_failures(&self) -> bool {
        self.regrets.last().is_some_and(|regret| *regret >= 1.0)
    }

    /// The regret that a random search without replacement is expected to have after each number of probes.
    pub(crate) fn random(&self, budget: usize) -> Vec<f64> {
        (1..=budget).map(|probes| expected_least(&self.regrets, probes)).collect()
    }

    /// How likely a random search is to be within a share of the best, after each number of probes.
    pub(crate) fn random_within(&self, share: f64, budget: usize) -> Vec<f64> {
        let others = self.regrets.len() - self.regrets.partition_point(|regret| *regret <= share);
        let mut missed = 1.0;
        let after = |drawn: usize| {
            missed *= others.saturating_sub(drawn) as f64 / (self.regrets.len().saturating_sub(drawn)).max(1) as f64;
            1.0 - missed
        };
        (0..budget).map(after).collect()
    }

    /// Whether every combination of the settings is in the table, or all but one in a hundred.
    pub(crate) fn is_full(&self) -> bool {
        self.space.raw_size().is_some_and(|all| self.regrets.len() as f64 >= 0.99 * all as f64)
    }

    /// What kind of job it was recorded of.
    pub(crate) fn family(&self) -> &'static str {
        let is_of = |names: &[&str]| names.iter().any(|name| self.name.starts_with(name));
        match () {
            () if is_of(&["storm"]) => "pipeline",
            () if is_of(&["convolution", "dedispersion", "gemm", "hotspot", "pnpoly", "expdist"]) => "kernels",
            () => "training",
        }
    }
}

/// The expected least of so many numbers drawn without replacement; `sorted` is ascending.
fn expected_least(sorted: &[f64], draws: usize) -> f64 {
    let count = sorted.len();
    if draws >= count {
        return sorted.first().copied().unwrap_or(1.0);
    }
    // The chance that the number at hand is the least: all draws are among it and those behind it, and it is one.
    let mut chance = draws as f64 / count as f64;
    let mut expected = 0.0;
    for (place, number) in sorted.iter().enumerate() {
        expected += chance * number;
        let behind = (count - place - 1) as f64;
        if behind <= 0.0 {
            break;
        }
        chance *= (behind + 1.0 - draws as f64).max(0.0) / behind;
    }
    expected
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
    let spreads = spreads(path, &space);
    let mut table =
        Recorded { name: name.to_owned(), objective, space, replay, regrets: Vec::new(), spreads, cutoff: 0, optimum };
    let value = |config: &Config| table.objective.score_of(table.replay.answer(config)?);
    let regret = |config| value(&config).map_or(1.0, |score| table.regret(table.objective.score(score)));
    table.regrets = Walk::new(&table.space).map(regret).collect();
    table.regrets.sort_by(f64::total_cmp);
    let ran = &table.regrets[..table.regrets.partition_point(|regret| *regret < 1.0)];
    let target = (1.0 - CUTOFF) * gputune::probe::stats::median(ran).unwrap();
    table.cutoff = (1..table.regrets.len()).find(|probes| expected_least(ran, *probes) <= target).unwrap_or(1);
    table
}

/// The recorded spread of each config, from the column `value_std`.
fn spreads(path: &Path, space: &Space) -> HashMap<Config, f64> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_path(path).unwrap();
    let headers = reader.headers().unwrap().clone();
    let column = |name: &str| headers.iter().position(|header| header == name);
    let (Some(value), Some(std)) = (column("value"), column("value_std")) else { return HashMap::new() };
    let known: HashMap<Vec<String>, Config> = Walk::new(space)
        .map(|config| (space.settings(&config).iter().map(|(_, value)| value.to_string()).collect(), config))
        .collect();
    let of_row = |row: csv::StringRecord| {
        let number = |column: usize| row.get(column)?.parse::<f64>().ok();
        let texts: Vec<String> = row.iter().take(space.parameters().len()).map(str::to_owned).collect();
        Some((known.get(&texts)?.clone(), number(std)? / number(value)?))
    };
    reader.records().filter_map(|row| of_row(row.unwrap())).collect()
}
