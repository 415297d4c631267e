//! `gputune compare`: two configs of a spec head to head.

mod shown;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gputune::model::{Config, Estimate, Settings, quantity};
use gputune::probe::duel::{self, Duel, DuelEnd, Duelled, Side, Way};
use gputune::probe::{CommandProber, Effort, Job, Limits, ProbeError, Prober};
use gputune::search::Study;
use gputune::spec::Spec;

use super::asked::assignment;
use super::exit::{Exit, Failed};
use super::probe::chosen;
use super::progress::Show;
use super::steps::{self, Samples};
use super::{diagnostic, folder, interrupt, paths, report, stdout};
use shown::Line;

/// Compare two configs head to head: which trains faster, and by how much
///
/// A and B are each NAME=VALUE,NAME=VALUE (other parameters as in [baseline]), the number of a trial of an earlier search,
/// `baseline`, or `best`. Both train interleaved, a quarter of a second each: A, B, B, A. The result is the ratio of their
/// throughputs with its 95% interval. It ends when half the interval is within `precision` of [limits].
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune compare config.toml batch_size=64 batch_size=128
  gputune compare config.toml baseline best
  gputune compare config.toml 12 workers=4,precision=bf16 --json")]
pub(super) struct Args {
    /// The spec
    config: PathBuf,
    /// The config whose speed is given as a multiple of B's
    #[arg(value_name = "A")]
    a: String,
    /// The other config
    #[arg(value_name = "B")]
    b: String,
    /// The folder of the search with trial numbers and `best` [default: gputune-out/<name of the spec>]
    #[arg(long, value_name = "DIR")]
    search: Option<PathBuf>,
    /// How long it may take, such as 90s or 5m; a block that has begun is finished
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    time: Duration,
    /// The most rounds of four blocks; at most six if processes cannot be held
    #[arg(long, value_name = "COUNT", default_value_t = duel::ROUNDS, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// The folder for the logs [default: gputune-out/<name of the spec>-compare]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = quantity::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(time) }
}

pub(super) fn run(args: &Args) -> super::Result {
    let spec = Spec::load(&args.config)?;
    let search = args.search.clone().unwrap_or_else(|| folder::default_for(&args.config));
    let contenders = [contender(&spec, &search, ("A", &args.a))?, contender(&spec, &search, ("B", &args.b))?];
    diagnostic::print_notes(&spec.left_out, &spec.warnings, args.quiet);
    let device = spec.device()?;
    let out = args.out.clone().unwrap_or_else(|| folder::beside(&args.config, "-compare"));
    let out = folder::prepare(&out)?;
    let stop = interrupt::before_probes()?;
    let (samples, limits) = (Samples::of(&spec), spec.limits);
    let mut prober = steps::prober(steps::of_spec(spec.step, &device), &out, args.quiet)?;
    if contenders[0].config == contenders[1].config {
        diagnostic::print_note(
            "A and B are the same config: the result shows how small a difference this machine can measure",
        );
    }
    let mut line = Line::new(Show::new(args.quiet, &stop));
    let fought = fight(&mut prober, &contenders, (&limits, args), &stop, &mut line);
    // Removes the moving line.
    drop(line);
    let duelled = fought.map_err(|error| samples.failed(&error))?;
    if !duelled.disturbances.is_empty() {
        diagnostic::print_warning(&format!("it was disturbed, repeat it: {}", duelled.disturbances.join("; ")));
    }
    if args.json {
        stdout::print_json(&shown::json(&contenders, &duelled, &device.name))?;
    } else if ratio(&duelled).is_some() {
        stdout::print(&shown::text(&contenders, &duelled))?;
    }
    result(&duelled, args, &out)
}

fn fight(
    prober: &mut CommandProber,
    contenders: &[Contender; 2],
    (limits, args): (&Limits, &Args),
    stop: &AtomicBool,
    line: &mut Line,
) -> Result<Duelled, ProbeError> {
    let job = |number| {
        let Contender { config, settings, .. } = &contenders[number as usize - 1];
        Job::new(number, config, settings, limits)
    };
    let (jobs, half_width, rounds) = ([job(1), job(2)], limits.precision(), args.rounds);
    let (ways, time) = (Way::ALL, args.time);
    let duel = Duel { jobs: &jobs, ways, half_width, rounds, time, seed: None, keeps: false };
    let mut watch = |progress: &duel::DuelProgress<'_>| {
        line.hear(progress);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    prober.duel(&duel, &mut watch)
}

/// Returns the speedup of A over B; `None` before a complete round.
fn ratio(duelled: &Duelled) -> Option<Estimate> {
    duelled.ratio(Side::A, Side::B)
}

/// Returns the exit code, or a failure with a hint if no ratio is known.
fn result(duelled: &Duelled, args: &Args, out: &Path) -> super::Result {
    if duelled.end == DuelEnd::Interrupted {
        return Ok(Exit::Interrupted);
    }
    for (number, side) in [(1, Side::A), (2, Side::B)] {
        let failure = duelled.side(side).filter(|_| duelled.end == DuelEnd::Failed).and_then(|it| it.failure());
        let Some(failure) = failure else { continue };
        let log = out.join(CommandProber::log_name(number, Effort::Probe));
        let outcome = duelled.side(side).map_or("failed", |outcome| outcome.name()).replace('_', " ");
        let message = format!("{side} could not be measured: {outcome}: {}", failure.reason);
        return Err(Failed::new(Exit::NothingFeasible, message)
            .last_lines(failure.last_lines.clone())
            .hint(format!("its whole output is in {}", paths::relative(&log).display())));
    }
    if ratio(duelled).is_none() {
        let message = format!("not one round was complete within {}", quantity::show_seconds(args.time.as_secs_f64()));
        return Err(Failed::new(Exit::NothingFeasible, message).hint("give it longer with --time"));
    }
    Ok(Exit::Found)
}

struct Contender {
    /// The user's argument, such as `best`.
    text: String,
    config: Config,
    /// The settings with their derived values; for the unmodified job, only the stated settings.
    settings: Settings,
}

enum Named {
    Baseline,
    Best,
    Trial(u32),
    Settings(Vec<(String, String)>),
}

const WAYS: &str =
    "write settings such as batch_size=64,workers=4, the number of a trial such as 12, `baseline` or `best`";

/// Reads the config that `text` names, from the folder `search` if it is `best` or the number of a trial.
fn contender(spec: &Spec, search: &Path, (side, text): (&str, &str)) -> Result<Contender, Failed> {
    let usage = |message: String| Failed::usage(format!("{side} `{text}`: {message}"));
    let changed = |text: String| usage(text).hint("the spec has changed since that search; name the settings instead");
    let config = match named(text).map_err(|message| usage(message).hint(WAYS))? {
        Named::Baseline => baseline(spec)?,
        Named::Settings(set) => chosen(&spec.space, spec.baseline.as_ref(), &set)?,
        Named::Best => {
            let study = report::read(search)?.study;
            let best = study.best().ok_or_else(|| {
                usage(format!("{} has no best config: nothing feasible was found", search.display()))
                    .hint(format!("see what became of each trial: gputune report {}", paths::word(search)))
            })?;
            of_study(spec, &study, &best.winner.config).map_err(changed)?
        }
        Named::Trial(number) => {
            let study = report::read(search)?.study;
            let trial = study.history.trials().iter().find(|trial| trial.number == number);
            let trial = trial.ok_or_else(|| {
                let last = study.history.trials().iter().map(|trial| trial.number).max().unwrap_or(0);
                usage(format!("{} has no trial {number}", search.display()))
                    .hint(format!("its trials are 1 to {last}; choose another search with --search DIR"))
            })?;
            of_study(spec, &study, &trial.config).map_err(changed)?
        }
    };
    Ok(Contender { text: text.to_owned(), settings: spec.space.settings(&config), config })
}

fn named(text: &str) -> Result<Named, String> {
    match text.trim() {
        "baseline" => return Ok(Named::Baseline),
        "best" => return Ok(Named::Best),
        _ => {}
    }
    let digits = text.trim().strip_prefix('#').unwrap_or(text.trim());
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return digits.parse().map(Named::Trial).map_err(|_| "there are not so many trials".to_owned());
    }
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    text.split(',').map(assignment).collect::<Result<_, _>>().map(Named::Settings)
}

/// Returns the baseline that a search of the spec would use.
fn baseline(spec: &Spec) -> Result<Config, Failed> {
    if spec.is_baseline_as_it_is {
        let set = spec.baseline.clone().unwrap_or_default();
        return Ok(spec.space.as_it_is_with(&set)?);
    }
    chosen(&spec.space, spec.baseline.as_ref(), &[])
}

/// Converts a config of a search to the spec's space, which may have changed since.
fn of_study(spec: &Spec, study: &Study, config: &Config) -> Result<Config, String> {
    let settings = study.space.settings(config).chosen(&spec.space);
    let found = if config.is_as_it_is() { spec.space.as_it_is_with(&settings) } else { spec.space.locate(&settings) };
    found.map_err(|error| error.to_string())
}
