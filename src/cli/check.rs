//! `gputune check`: shows what a search would do, without starting anything. `docs/design/json.md` describes its JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gputune::model::{
    Config, Constraint, Count, Derived, Direction, History, Objective, Parameter, Settings, Space, Value,
    quantity::show_duration,
};
use gputune::probe::{Protection, adapter::Apply};
use gputune::report::Page;
use gputune::search::strategy::{self, View};
use gputune::search::{Earlier, STRATEGIES};
use gputune::spec::{Spec, SpecError};
use serde::Serialize;

use super::best::run_of;
use super::exit::Exit;
use super::{colour, diagnostic, folder, paths, stdout, steps};

/// The width of the labels, in columns.
const LABEL: usize = 11;

/// Show the space, the baseline and the first commands of a search; start nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune check
  gputune check config.toml")]
pub(super) struct Args {
    /// The spec [default: gputune.toml, else that of the newest search]
    config: Option<PathBuf>,
    /// The folder that the search would use [default: gputune-out/<name of the spec>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> super::Result {
    let path = folder::spec(args.config.as_deref())?;
    let spec = Spec::load(&path)?;
    let out = args.out.clone().unwrap_or_else(|| folder::default_for(&path));
    let earlier = earlier(&spec, &out)?;
    let first = first(&spec, &earlier, &out);
    let (template, supervisor) = (spec.step.template(), Path::new(steps::SUPERVISOR));
    let protection = Protection::find(template, spec.step.writes(), supervisor, &paths::absolute(&out));
    let protection = protection.map_err(steps::unprotected)?;
    if args.json {
        stdout::print_json(&json(&spec, &first, &protection, &out))?;
    } else {
        let columns = colour::columns_of_stdout().unwrap_or(usize::MAX);
        stdout::print(&text(&spec, &earlier, &first, (&protection, &out), columns))?;
    }
    diagnostic::print_notes(&spec.left_out, &spec.warnings, false);
    steps::warn(&protection);
    if let Err(error) = spec.device() {
        diagnostic::print_warning(&error.to_string());
    }
    Ok(Exit::Found)
}

fn text(
    spec: &Spec,
    earlier: &[Earlier],
    first: &[First],
    (protection, out): (&Protection, &Path),
    columns: usize,
) -> String {
    let mut page = Page::new(LABEL, columns);
    let apply = &spec.step.template().apply;
    describe_space(&spec.space, apply, &mut page);
    if let Some(adapter) = apply.adapter {
        page.line("adapter", &format!("{}: {}", adapter.name, adapter.about));
    }
    let baseline = match &spec.baseline {
        Some(baseline) if spec.is_baseline_as_it_is => format!("{}, else the unmodified job", baseline.line()),
        Some(baseline) => baseline.line(),
        None if spec.is_baseline_as_it_is => "the unmodified job: the first probe sets nothing".to_owned(),
        None => "none: there will be no speedup".to_owned(),
    };
    page.line("baseline", &baseline);
    if spec.objective != Objective::default() {
        page.line("objective", &objective_words(&spec.objective));
    }
    let about = STRATEGIES.iter().find(|entry| entry.name == spec.strategy).map_or("", |entry| entry.about);
    page.line("strategy", &format!("{}: {about}", spec.strategy));
    for study in earlier {
        let (trials, in_common, all) = (study.trials(), study.in_common(), spec.space.parameters().len());
        let line = format!("{trials} trials of {}, {in_common} of {all} parameters in common", study.place());
        page.line("warm start", &line);
    }
    for (at, First { command, applied, files }) in first.iter().enumerate() {
        // Commands stay whole, so that they can be copied.
        page.add(&format!("{:<LABEL$}{command}", if at == 0 { "commands" } else { "" }));
        let applied: Vec<String> = applied.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut with = Page::new(LABEL + 2, columns);
        for words in Some(applied.join(" ")).filter(|words| !words.is_empty()).iter().chain(files) {
            with.line("", &format!("with {words}"));
        }
        page.append(with);
    }
    page.line("in", &spec.step.template().cwd.display().to_string());
    page.line("writes", &protection.line());
    page.line("time", &time_words(spec));
    page.line("folder", &out.display().to_string());
    page.into_text()
}

/// Describes the objective: its goals, their weights and its constraints.
fn objective_words(objective: &Objective) -> String {
    let way = |direction| if direction == Direction::Maximize { "largest" } else { "smallest" };
    let goals: Vec<_> = objective.goals().iter().map(|it| format!("{} {}", way(it.direction), it.metric)).collect();
    let mut words = match objective.weights() {
        Some(weights) => {
            let parts = goals.iter().zip(weights).map(|(goal, weight)| format!("{goal} ({:.0} %)", weight * 100.0));
            format!("the best product of {}", parts.collect::<Vec<_>>().join(" and "))
        }
        None if objective.is_pareto() => format!("the front of {}", goals.join(" and ")),
        None => goals.join(""),
    };
    let bounds: Vec<&str> = objective.constraints().iter().map(Constraint::text).collect();
    if !bounds.is_empty() {
        words += &format!(", with {}", bounds.join(" and "));
    }
    words
}

/// Returns the option, variable or target that a parameter sets; `None` if the command has its placeholder.
fn sets(apply: &Apply, name: &str) -> Option<String> {
    let applied = apply.applied.iter().find(|applied| applied.parameter == name);
    applied.map(|applied| applied.shown())
}

fn describe_space(space: &Space, apply: &Apply, page: &mut Page) {
    let parameters = space.parameters().iter().map(|parameter| {
        let condition = parameter.condition().map(|when| format!("   when {}", when.text())).unwrap_or_default();
        (parameter.name(), parameter.summary() + &condition)
    });
    let derived = space.derived().iter().map(|derived| (derived.name(), format!("= {}", derived.expression().text())));
    let rows: Vec<(&str, String)> = parameters.chain(derived).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let row = |(name, definition): &(&str, String)| {
        let target = sets(apply, name).map(|target| format!("   sets {target}")).unwrap_or_default();
        format!("{name:<width$}  {definition}{target}")
    };
    page.lines("space", rows.iter().map(row));
    page.lines("rules", space.rules().iter().map(|rule| rule.text()));
    let without = space.raw_size().map_or_else(|| "more than 2^126".to_owned(), |size| Count::Exact(size).to_string());
    let counted = space.count();
    let number = if counted == Count::Unknown { counted.in_words() } else { counted.to_string() };
    page.line("configs", &format!("{number} ({without} without conditions and rules)"));
    if space.first().is_none() {
        page.line("", "no config that satisfies the rules was found quickly: a search continues to look");
    }
}

/// Returns the earlier studies to learn from; a study that says nothing about the search is an error.
fn earlier(spec: &Spec, out: &Path) -> Result<Vec<Earlier>, SpecError> {
    let studies = spec.earlier_studies(out)?;
    Ok(studies.iter().filter_map(|study| study.seen_from(&spec.space, &spec.objective).ok()).collect())
}

/// A command that a search chooses before it has any result.
#[derive(Serialize)]
struct First {
    command: String,
    /// The settings that the hook applies.
    applied: BTreeMap<String, Value>,
    /// The files that gputune renders for the command.
    files: Vec<String>,
}

/// Returns the commands of the baseline and of the strategy's proposals before the first result.
fn first(spec: &Spec, earlier: &[Earlier], out: &Path) -> Vec<First> {
    const SHOWN: usize = 3;
    let history = History::default();
    let objective = spec.objective.scalarised(&history, spec.seed);
    let start = spec.baseline.as_ref().and_then(|baseline| spec.space.locate(baseline).ok());
    let mut strategy = strategy::strategy(spec.strategy).map(|entry| (entry.build)());
    let set = spec.baseline.clone().unwrap_or_default();
    let as_it_is = spec.is_baseline_as_it_is.then(|| spec.space.as_it_is_with(&set).ok()).flatten();
    let mut first: Vec<Config> = as_it_is.or(start.clone()).into_iter().collect();
    while first.len() < SHOWN.min(spec.budget.probes as usize) {
        let left = spec.budget.probes - u32::try_from(first.len()).unwrap_or(0);
        let view = View::new(&spec.space, &objective, &history, &first, start.as_ref())
            .with(left, spec.seed)
            .with_earlier(earlier);
        let Some(proposal) = strategy.as_mut().and_then(|strategy| strategy.propose(&view)) else { break };
        first.push(proposal.config);
    }
    let template = spec.step.template();
    let command = |(at, config): (usize, &Config)| {
        let settings = spec.space.settings(config);
        let number = u32::try_from(at + 1).unwrap_or(u32::MAX);
        let run = run_of(template, &spec.space, &paths::absolute(out), number);
        let applied = template.apply.by_hook(&settings);
        let rendered = template.render(&settings, &run.gputune, &run.probe_dir);
        First {
            command: run.command_line(&settings),
            applied: applied.map(|(applied, value)| (applied.name.clone(), value.clone())).collect(),
            files: rendered.files.iter().map(|(path, _)| path.display().to_string()).collect(),
        }
    };
    first.iter().enumerate().map(command).collect()
}

/// Returns the time of the search, and the number of probes for which it is enough.
fn time_words(spec: &Spec) -> String {
    let (limits, budget) = (spec.limits, spec.budget);
    let probes = match spec.space.count() {
        Count::Exact(count) => budget.probes.min(u32::try_from(count).unwrap_or(u32::MAX)),
        _ => budget.probes,
    };
    // Rounds may take half of the time. They measure the rates, so a probe measures for only a second.
    let (for_probes, measuring) = match budget.rounds {
        0 => (budget.time, limits.measure_time),
        _ => (budget.time / 2, limits.measure_time.min(Duration::from_secs(1))),
    };
    let fits = match (for_probes / probes.max(1)).checked_sub(measuring) {
        Some(start) if start >= limits.probe_time => format!("enough for {probes} probes"),
        Some(start) => format!("enough for {probes} probes if the step starts within {}", show_duration(start)),
        None => {
            let fit = for_probes.div_duration_f64(measuring).floor();
            format!("enough for {fit} of {probes} probes at most, even if the step starts at once")
        }
    };
    format!("{}: {fits}", show_duration(budget.time))
}

#[derive(Serialize)]
struct Report<'r> {
    format: u32,
    spec: String,
    parameters: Vec<ParameterReport<'r>>,
    derived: Vec<DerivedReport<'r>>,
    rules: Vec<&'r str>,
    /// The number of configs; `null` if counting them takes too long.
    configs: Option<u128>,
    baseline: Option<&'r Settings>,
    is_baseline_unmodified_job: bool,
    objective: String,
    strategy: &'r str,
    commands: &'r [First],
    cwd: String,
    writes: String,
    time_s: f64,
    probes: u32,
    out: String,
    gputune_version: &'static str,
}

#[derive(Serialize)]
struct ParameterReport<'r> {
    name: &'r str,
    /// The settings in words: all, or the first two and the last.
    settings: String,
    count: u64,
    when: Option<&'r str>,
    sets: Option<String>,
}

#[derive(Serialize)]
struct DerivedReport<'r> {
    name: &'r str,
    expression: &'r str,
}

fn json<'r>(spec: &'r Spec, commands: &'r [First], protection: &Protection, out: &Path) -> Report<'r> {
    let (space, template) = (&spec.space, spec.step.template());
    let parameter = |parameter: &'r Parameter| ParameterReport {
        name: parameter.name(),
        settings: parameter.summary(),
        count: parameter.len(),
        when: parameter.condition().map(|when| when.text()),
        sets: sets(&template.apply, parameter.name()),
    };
    let derived = |it: &'r Derived| DerivedReport { name: it.name(), expression: it.expression().text() };
    Report {
        format: 1,
        spec: spec.path.display().to_string(),
        parameters: space.parameters().iter().map(parameter).collect(),
        derived: space.derived().iter().map(derived).collect(),
        rules: space.rules().iter().map(|rule| rule.text()).collect(),
        configs: if let Count::Exact(count) = space.count() { Some(count) } else { None },
        baseline: spec.baseline.as_ref(),
        is_baseline_unmodified_job: spec.is_baseline_as_it_is,
        objective: objective_words(&spec.objective),
        strategy: spec.strategy,
        commands,
        cwd: template.cwd.display().to_string(),
        writes: protection.line(),
        time_s: spec.budget.time.as_secs_f64(),
        probes: spec.budget.probes,
        out: out.display().to_string(),
        gputune_version: env!("CARGO_PKG_VERSION"),
    }
}
