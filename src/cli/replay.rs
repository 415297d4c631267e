//! `gputune replay`: runs strategies on recorded measurements, without a device.

mod runs;

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use gputune::model::{Direction, Goal, Objective, Parameter, Space, quantity::show_number};
use gputune::probe::{Table, TableError, stats};
use gputune::search::{STRATEGIES, journal, strategy::Entry};
use runs::{Ending, Plan, Run};
use serde::Serialize;

use super::exit::{Exit, Failed};
use super::stdout;

/// Search a recorded table instead of probing, to test and compare strategies
///
/// TABLE is a CSV file: columns up to `status` are parameters, `status` is `ok` or a failure, `value` is the objective.
/// A journal.jsonl of a search is a table too. `auto` and `bayes` start in the middle of the table's space.
/// Numbers in columns whose names begin with `x_` are further metrics. The JSON has `optimum` and `runs`, each with `seed`,
/// `best` and `expected_gain` (one number per probe), `failed`, and with --until-end `stopped`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune replay table.csv --strategy random --probes 60 --seeds 200 --json
  gputune replay kernel.csv --strategy grid --probes 100000 --minimize
  gputune replay table.csv --until-end --probes 200 --seeds 20
  gputune replay jobs.csv --pareto throughput,energy_per_sample --seeds 20
  gputune replay gputune-out/config/journal.jsonl --strategy bayes")]
pub(super) struct Args {
    /// The table: a .csv file or a journal.jsonl
    table: PathBuf,
    /// The strategy
    #[arg(long, default_value = "auto", value_parser = super::one_of(STRATEGIES, |entry| (entry.name, entry.about)))]
    strategy: &'static Entry,
    /// Probes of each run; with --until-end the most
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    probes: u32,
    /// Runs, with the seeds 0, 1, 2 and so on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Probes that run at the same time, as on so many GPUs
    #[arg(long, default_value_t = NonZeroUsize::MIN, conflicts_with = "until_end")]
    slots: NonZeroUsize,
    /// Let each run end as a search does, and say where and why
    #[arg(long)]
    until_end: bool,
    /// The value is a cost: less is better
    #[arg(long)]
    minimize: bool,
    /// Search for the front of these metrics: METRIC, METRIC:maximize or METRIC:minimize; the best is then the found share of
    /// the table's hypervolume
    #[arg(long, value_name = "METRICS", value_delimiter = ',', value_parser = goal, conflicts_with = "minimize")]
    pareto: Vec<Goal>,
    /// A parameter along which a lack of memory rules out larger values; may be given again
    #[arg(long, value_name = "NAME")]
    monotone: Vec<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Runs {
    format: u32,
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
    let opened = || table.clone().into_replay(&args.monotone).map_err(|error| no_table(&args.table, &error));
    let (space, replay) = opened()?;
    let unknown = |name: &&String| space.parameter_index(name).is_none();
    if let Some(name) = args.monotone.iter().find(unknown) {
        let names: Vec<&str> = space.parameters().iter().map(Parameter::name).collect();
        let message = format!("{} has no parameter `{name}`", args.table.display());
        return Err(Failed::usage(message).hint(format!("its parameters are {}", names.join(", "))));
    }
    let plan = Plan {
        strategy: args.strategy,
        space: &space,
        replay: &replay,
        objective: &objective,
        all: replay.scores(&objective),
        probes: args.probes,
        slots: args.slots.get(),
    };
    let optimum = plan.optimum();
    let run = |seed| -> Result<Run, Failed> {
        if !args.until_end {
            return Ok(plan.of_probes(seed));
        }
        let (space, replay) = opened()?;
        plan.until_end(space, replay, seed).map_err(|error| Failed::because(Exit::Impossible, &error))
    };
    let runs = Runs { format: 1, optimum, runs: (0..args.seeds).map(run).collect::<Result<_, _>>()? };
    if args.json {
        stdout::stream_json(&runs)?;
    } else {
        stdout::print(&for_people(args, &space, &runs))?;
    }
    Ok(if optimum.is_some() { Exit::Found } else { Exit::NothingFeasible })
}

fn wrong(path: &Path, error: &dyn std::error::Error, cure: &str) -> Failed {
    let message = Failed::because(Exit::Usage, error).message();
    Failed::usage(format!("{}: {message}", path.display())).hint(cure)
}

fn no_table(path: &Path, error: &TableError) -> Failed {
    wrong(path, error, error.cure())
}

fn read_table(path: &Path, objective: &Objective) -> Result<Table, Failed> {
    const GIVE_A_FILE: &str = "give the path of a CSV table, or of the journal.jsonl in the folder of a search";
    if path.is_dir() {
        let message = format!("{} is a folder and no table", path.display());
        return Err(Failed::usage(message).hint(GIVE_A_FILE));
    }
    let file = File::open(path).map_err(|error| wrong(path, &error, GIVE_A_FILE))?;
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        let (header, lines) = journal::read(path).map_err(|error| wrong(path, &error, GIVE_A_FILE))?;
        let parameters = header.fingerprint.space.get("parameters").and_then(serde_json::Value::as_object);
        let is_derived = |it: &serde_json::Value| it.as_str().is_some_and(|text| text.starts_with("derive "));
        let derived = parameters.into_iter().flatten().filter(|(_, definition)| is_derived(definition));
        let derived: Vec<String> = derived.map(|(name, _)| name.clone()).collect();
        return Table::from_journal(&lines, &derived, objective).map_err(|error| no_table(path, &error));
    }
    Table::from_csv(file).map_err(|error| no_table(path, &error))
}

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
        "{}: {}, optimum {optimum}{}\n{} over {} seeds\n\nprobes  median best  within the optimum\n",
        args.table.display(),
        space.count().in_words(),
        if args.pareto.is_empty() { "" } else { " (the share of the hypervolume)" },
        args.strategy.name,
        args.seeds
    );
    let longest = runs.runs.iter().map(|run| run.best.len()).max().unwrap_or(0);
    let mut shown: Vec<_> = [1, 2, 5, 10, 20, 40, 60, 100, 200, 500].into_iter().filter(|&at| at < longest).collect();
    shown.push(longest);
    for probes in shown.into_iter().filter(|&probes| probes > 0) {
        let values: Vec<f64> =
            runs.runs.iter().filter_map(|run| *run.best.get(probes - 1).or(run.best.last())?).collect();
        let median = stats::median(&values);
        let gap = median.zip(runs.optimum).map(|(median, optimum)| (median - optimum).abs() / optimum.abs() * 100.0);
        let gap = gap.filter(|gap| gap.is_finite()).map_or_else(|| "-".to_owned(), |gap| format!("{gap:.1} %"));
        text += &format!("{probes:>6}  {:>11}  {gap:>18}\n", median.map_or_else(|| "-".to_owned(), show_number));
    }
    if args.until_end { text + &endings(runs) } else { text }
}

/// Describes where the runs ended, how far from the optimum, and why.
fn endings(runs: &Runs) -> String {
    /// A run that ends more than this many percent from the optimum is counted.
    const FAR: f64 = 5.0;
    let runs_of = |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    let mut lengths: Vec<usize> = runs.runs.iter().map(|run| run.best.len()).collect();
    lengths.sort_unstable();
    let (Some(shortest), Some(longest)) = (lengths.first(), lengths.last()) else { return String::new() };
    let mut text = format!("\nended after {} probes (median; {shortest} to {longest})", lengths[lengths.len() / 2]);
    let gap = |run: &Run| {
        let (last, optimum) = (run.best.last().copied().flatten()?, runs.optimum?);
        Some((last - optimum).abs() / optimum.abs() * 100.0).filter(|gap| gap.is_finite())
    };
    let gaps: Vec<f64> = runs.runs.iter().filter_map(gap).collect();
    if let Some(mean) = stats::mean(&gaps) {
        let far = gaps.iter().filter(|gap| **gap > FAR).count();
        text += &format!(", {mean:.1} % from the optimum (mean); {} more than {FAR} % from it", runs_of(far));
    }
    let mut reasons: Vec<(Ending, usize)> = Vec::new();
    for ending in runs.runs.iter().filter_map(|run| run.stopped) {
        match reasons.iter_mut().find(|(known, _)| *known == ending) {
            Some((_, count)) => *count += 1,
            None => reasons.push((ending, 1)),
        }
    }
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    text.push('\n');
    for (reason, count) in reasons {
        text += &format!("  {}: {reason}\n", runs_of(count));
    }
    text
}
