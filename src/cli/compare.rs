//! `gputune compare`: two configs of a spec head to head.

mod shown;
mod side;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use std::ops::ControlFlow;

use gputune::model::{Estimate, quantity};
use gputune::probe::duel::{self, Duel, DuelEnd, Duelled, Side, Way};
use gputune::probe::{CommandProber, Effort, Job, Limits, ProbeError, Prober, supervisor};
use gputune::spec::Spec;

use super::exit::{Exit, Failed};
use super::{diagnostic, folder, interrupt, paths, samples, stdout, writes};
use shown::Line;
use side::{Contender, Contenders};

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
    /// How long it may take, such as 90s or 5m; a round that has begun is finished
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
    let contenders = Contenders::read(&spec, &search, [&args.a, &args.b])?;
    diagnostic::print_left_out(&spec.left_out);
    let device = spec.device()?;
    let out = args.out.clone().unwrap_or_else(|| folder::beside(&args.config, "-compare"));
    folder::prepare(&out)?;
    let out = paths::absolute(&out);
    if !args.quiet {
        spec.warnings.iter().for_each(|warning| diagnostic::print_warning(warning));
    }
    let impossible = |error: std::io::Error| Failed::because(Exit::Impossible, &error);
    supervisor::adopt_orphans().map_err(impossible)?;
    let stop = interrupt::stop_flag().map_err(impossible)?;
    let (asked, limits) = (samples::Asked::of(&spec), spec.limits);
    let step = spec.step.into_command(paths::gputune_path(), PathBuf::from("/proc/self/exe"), &device);
    let mut prober = CommandProber::new(step, &out);
    writes::announce(&mut prober, args.quiet)?;
    if contenders.a.config == contenders.b.config {
        diagnostic::print_note(
            "A and B are the same config: the result shows how small a difference this machine can measure",
        );
    }
    let mut line = Line::new(args.quiet);
    let fought = fight(&mut prober, &contenders, (&limits, args), &stop, &mut line);
    line.clear();
    let duelled = fought.map_err(|error| match &error {
        ProbeError::NoSamples => Failed::because(Exit::Impossible, &error).hint(asked.hint()),
        _ => probe_failed(&error),
    })?;
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

/// Runs the duel.
fn fight(
    prober: &mut CommandProber,
    contenders: &Contenders,
    (limits, args): (&Limits, &Args),
    stop: &AtomicBool,
    line: &mut Line,
) -> Result<Duelled, ProbeError> {
    let jobs = [job(1, &contenders.a, limits), job(2, &contenders.b, limits)];
    let duel = Duel {
        jobs: &jobs,
        ways: Way::ALL,
        half_width: limits.precision(),
        rounds: args.rounds,
        time: args.time,
        seed: None,
        keeps: false,
    };
    let mut watch = |progress: &duel::DuelProgress<'_>| {
        line.hear(progress);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    prober.duel(&duel, &mut watch)
}

fn job<'j>(number: u32, contender: &'j Contender, limits: &'j Limits) -> Job<'j> {
    Job {
        number,
        config: &contender.config,
        settings: &contender.settings,
        limits,
        effort: Effort::Probe,
        experiment: None,
        keeps: false,
    }
}

/// Returns how many times as fast A is as B.
fn ratio(duelled: &Duelled) -> Option<Estimate> {
    duelled.ratio(Side::A, Side::B)
}

/// Returns the exit code, or a failure with a hint if no ratio is known.
fn result(duelled: &Duelled, args: &Args, out: &std::path::Path) -> super::Result {
    if duelled.end == DuelEnd::Interrupted {
        return Ok(Exit::Interrupted);
    }
    for side in [Side::A, Side::B] {
        let failure = duelled.side(side).filter(|_| duelled.end == DuelEnd::Failed).and_then(|it| it.failure());
        let Some(failure) = failure else { continue };
        let number = if side == Side::A { 1 } else { 2 };
        let log = out.join(CommandProber::log_name(number, Effort::Probe));
        let outcome = duelled.side(side).map_or("failed", |outcome| outcome.name()).replace('_', " ");
        return Err(Failed::new(
            Exit::NothingFeasible,
            format!("{side} could not be measured: {outcome}: {}", failure.reason),
        )
        .last_lines(failure.last_lines.clone())
        .hint(format!("its whole output is in {}", paths::relative(&log).display())));
    }
    if ratio(duelled).is_none() {
        let message = format!("not one round was complete within {}", quantity::show_seconds(args.time.as_secs_f64()));
        return Err(Failed::new(Exit::NothingFeasible, message).hint("give it longer with --time"));
    }
    Ok(Exit::Found)
}

fn probe_failed(error: &ProbeError) -> Failed {
    let failed = Failed::because(Exit::Impossible, error).last_lines(error.last_lines().to_vec());
    match error.hint() {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}
