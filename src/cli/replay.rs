//! `gputune replay`: runs strategies on recorded measurements, without a device.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gputune::model::{
    Direction, Goal, History, Objective, Parameter, Purpose, Space, Trial, front, quantity::show_number,
};
use gputune::probe::{Replay, Table, TableError, stats};
use gputune::search::{
    STRATEGIES, journal,
    strategy::{self, Entry, Proposal, View},
};
use serde::Serialize;

use super::exit::{Exit, Failed};
use super::stdout;

/// Search a recorded table instead of probing, to test and compare strategies
///
/// TABLE is a CSV file: columns up to `status` are parameters, `status` is `ok` or a failure, `value` is the objective.
/// A journal.jsonl of a search is a table too. `descent` starts at the first config of the table's space, `auto` and
/// `bayes` in its middle. Numbers in columns whose names begin with `x_` are further metrics.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune replay table.csv --strategy random --probes 60 --seeds 200 --json
  gputune replay kernel.csv --strategy grid --probes 100000 --minimize
  gputune replay jobs.csv --pareto throughput,energy_per_sample --seeds 20
  gputune replay gputune-out/config/journal.jsonl --strategy descent")]
pub(super) struct Args {
    /// The table: a .csv file or a journal.jsonl
    table: PathBuf,
    /// The strategy
    #[arg(long, default_value = "auto", value_parser = strategy_parser())]
    strategy: &'static Entry,
    /// Probes of each run
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    probes: u32,
    /// Runs, with the seeds 0, 1, 2 and so on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The value is a cost: less is better
    #[arg(long)]
    minimize: bool,
    /// Search for the front of these metrics: METRIC, or METRIC:maximize and METRIC:minimize where it is not known which is
    /// better. The best is then the share of the table's hypervolume that was found
    #[arg(long, value_name = "METRICS", value_delimiter = ',', value_parser = goal, conflicts_with = "minimize")]
    pareto: Vec<Goal>,
    /// A parameter along which a lack of memory rules out larger values; may be given again
    #[arg(long, value_name = "NAME")]
    monotone: Vec<String>,
    /// Print one JSON object: {"optimum": x, "runs": [{"seed": 0, "best": [one number per probe]}]}
    #[arg(long)]
    json: bool,
}

fn strategy_parser() -> impl TypedValueParser<Value = &'static Entry> {
    let known = STRATEGIES.iter().map(|entry| PossibleValue::new(entry.name).help(entry.about));
    PossibleValuesParser::new(known)
        .try_map(|name| strategy::strategy(&name).ok_or_else(|| format!("there is no strategy `{name}`")))
}

/// The best value after each probe, `null` until the first success.
#[derive(Debug, Serialize)]
struct Run {
    seed: u64,
    best: Vec<Option<f64>>,
}

#[derive(Debug, Serialize)]
struct Runs {
    optimum: Option<f64>,
    runs: Vec<Run>,
}

pub(super) fn run(args: &Args) -> super::Result {
    let direction = if args.minimize { Direction::Minimize } else { Direction::Maximize };
    let objective = if args.pareto.is_empty() {
        Objective::new("throughput", direction)
    } else {
        Objective::pareto(args.pareto.clone())
            .map_err(|error| Failed::because(Exit::Usage, &error).hint("write --pareto throughput,energy_per_sample"))?
    };
    let table = read_table(&args.table, &objective)?;
    let (space, replay) = table.into_replay(&args.monotone).map_err(|error| no_table(&args.table, &error))?;
    let unknown = |name: &&String| space.parameter_index(name).is_none();
    if let Some(name) = args.monotone.iter().find(unknown) {
        let names: Vec<&str> = space.parameters().iter().map(Parameter::name).collect();
        let message = format!("{} has no parameter `{name}`", args.table.display());
        return Err(Failed::new(Exit::Usage, message).hint(format!("its parameters are {}", names.join(", "))));
    }
    let all = Found::of(&objective, &replay);
    let runs: Vec<Run> = (0..args.seeds).map(|seed| one_run(args, &space, &replay, &all, seed)).collect();
    let optimum = all.optimum();
    let runs = Runs { optimum, runs };
    if args.json {
        let text = serde_json::to_string(&runs).map_err(|error| Failed::because(Exit::Impossible, &error))?;
        stdout::print(&(text + "\n"))?;
    } else {
        stdout::print(&for_people(args, &space, &runs))?;
    }
    Ok(if optimum.is_some() { Exit::Found } else { Exit::NothingFeasible })
}

fn wrong(path: &Path, error: &dyn std::error::Error, cure: &str) -> Failed {
    match Failed::because(Exit::Usage, error) {
        Failed::Error { message, .. } => Failed::new(Exit::Usage, format!("{}: {message}", path.display())).hint(cure),
        other => other,
    }
}

fn no_table(path: &Path, error: &TableError) -> Failed {
    wrong(path, error, error.cure())
}

fn read_table(path: &Path, objective: &Objective) -> Result<Table, Failed> {
    const GIVE_A_FILE: &str = "give the path of a CSV table, or of the journal.jsonl in the folder of a search";
    if path.is_dir() {
        let message = format!("{} is a folder and no table", path.display());
        return Err(Failed::new(Exit::Usage, message).hint(GIVE_A_FILE));
    }
    let file = File::open(path).map_err(|error| wrong(path, &error, GIVE_A_FILE))?;
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        let (header, lines) = journal::read(path).map_err(|error| wrong(path, &error, GIVE_A_FILE))?;
        let parameters = header.fingerprint.space.get("parameters").and_then(serde_json::Value::as_object);
        let is_derived =
            |definition: &serde_json::Value| definition.as_str().is_some_and(|text| text.starts_with("derive "));
        let derived: Vec<String> = parameters
            .into_iter()
            .flatten()
            .filter(|(_, definition)| is_derived(definition))
            .map(|(name, _)| name.clone())
            .collect();
        return Table::from_journal(&lines, &derived, objective).map_err(|error| no_table(path, &error));
    }
    Table::from_csv(file).map_err(|error| no_table(path, &error))
}

fn one_run(args: &Args, space: &Space, replay: &Replay, all: &Found<'_>, seed: u64) -> Run {
    let mut strategy = (args.strategy.build)();
    let mut history = History::default();
    let mut best: Vec<Option<f64>> = Vec::new();
    let mut found: Vec<Vec<f64>> = Vec::new();
    for number in 1..=args.probes {
        let objective = all.objective.scalarised(&history, seed);
        let view = View::new(space, &objective, &history, &[], None).with(args.probes + 1 - number, seed);
        let Some(Proposal { config, one_in, .. }) = strategy.propose(&view) else { break };
        let Some(outcome) = replay.answer(&config).cloned() else { continue };
        let purpose = one_in.map_or(Purpose::Search, |one_in| Purpose::Screen { one_in });
        // A table has no shorter probes: they give the same values, but do not count as the best.
        if !purpose.is_short() {
            found.extend(all.objective.scores_of(&outcome));
        }
        best.push(all.best(&found));
        let trial = Trial { ended_at: None, number, purpose, config, outcome, elapsed: std::time::Duration::ZERO };
        history.push(trial);
    }
    Run { seed, best }
}

/// The part of a table that was found.
struct Found<'o> {
    objective: &'o Objective,
    /// The scores of all feasible configs in the table.
    all: Vec<Vec<f64>>,
}

impl<'o> Found<'o> {
    fn of(objective: &'o Objective, replay: &Replay) -> Self {
        Self { objective, all: replay.scores(objective) }
    }

    /// Returns the best value of the table; for a front, the share 1.
    fn optimum(&self) -> Option<f64> {
        self.best(&self.all)
    }

    /// Returns the best value among the scores of some configs; for a front, their share of the table's hypervolume.
    fn best(&self, found: &[Vec<f64>]) -> Option<f64> {
        if self.objective.is_pareto() {
            return (!found.is_empty()).then(|| front::share(found, &self.all));
        }
        let top = found.iter().filter_map(|scores| scores.first()).copied().max_by(f64::total_cmp);
        top.map(|score| self.objective.score(score))
    }
}

/// A metric with its direction.
fn goal(text: &str) -> Result<Goal, String> {
    let (metric, direction) = match text.split_once(':') {
        Some((metric, "maximize")) => (metric, Some(Direction::Maximize)),
        Some((metric, "minimize")) => (metric, Some(Direction::Minimize)),
        Some((_, other)) => return Err(format!("`{other}` is neither `maximize` nor `minimize`")),
        None => (text, None),
    };
    let goal = direction.map(|direction| Goal::new(metric, direction)).or_else(|| Goal::known(metric));
    goal.ok_or_else(|| format!("say which of `{metric}` is better: {metric}:maximize or {metric}:minimize"))
}

fn for_people(args: &Args, space: &Space, runs: &Runs) -> String {
    let optimum = runs.optimum.map_or_else(|| "none".to_owned(), show_number);
    let mut text = format!(
        "{}: {} configs, optimum {optimum}{}\n{} over {} seeds\n\nprobes  median best  within the optimum\n",
        args.table.display(),
        space.count(),
        if args.pareto.is_empty() { "" } else { " (the share of the hypervolume)" },
        args.strategy.name,
        args.seeds
    );
    let longest = runs.runs.iter().map(|run| run.best.len()).max().unwrap_or(0);
    let mut shown: Vec<usize> =
        [1, 2, 5, 10, 20, 40, 60, 100, 200, 500].into_iter().filter(|&at| at < longest).collect();
    shown.push(longest);
    for probes in shown.into_iter().filter(|&probes| probes > 0) {
        let values: Vec<f64> =
            runs.runs.iter().filter_map(|run| *run.best.get(probes - 1).or(run.best.last())?).collect();
        let median = stats::median(&values);
        let gap = median.zip(runs.optimum).map(|(median, optimum)| (median - optimum).abs() / optimum.abs() * 100.0);
        let gap = gap.filter(|gap| gap.is_finite()).map_or_else(|| "-".to_owned(), |gap| format!("{gap:.1} %"));
        text += &format!("{probes:>6}  {:>11}  {gap:>18}\n", median.map_or_else(|| "-".to_owned(), show_number));
    }
    text
}
