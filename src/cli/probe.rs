//! `gputune probe`: probes one config and shows every measurement.

use std::path::PathBuf;

use gputune::model::{Config, Event, Judgement, Outcome, Settings, Space};
use gputune::probe::{CommandProber, Effort};
use gputune::report;
use gputune::search::{Budget, Recovered, StopReason, Tuner};
use gputune::spec::Spec;

use super::exit::{Exit, Failed};
use super::progress::Progress;
use super::steps::{self, Samples};
use super::{asked, diagnostic, folder, interrupt, search, stdout};

/// Probe one config and show everything that was measured
///
/// Other parameters take their setting in [baseline], or else their first setting.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune probe config.toml
  gputune probe config.toml --set batch_size=64 --set workers=4
  gputune probe config.toml --set precision=bf16 --json")]
pub(super) struct Args {
    /// The spec [default: gputune.toml, else that of the newest search]
    config: Option<PathBuf>,
    /// Set a parameter; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = asked::assignment)]
    set: Vec<(String, String)>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// The folder for the log [default: gputune-out/<name of the spec>-probe]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> super::Result {
    let path = folder::spec(args.config.as_deref())?;
    let mut spec = Spec::load(&path)?;
    diagnostic::print_notes(&spec.left_out, &spec.warnings, args.quiet);
    let device = spec.device()?;
    let config = chosen(&spec.space, spec.baseline.as_ref(), &args.set)?;
    let out = args.out.clone().unwrap_or_else(|| folder::beside(&path, "-probe"));
    let out = folder::prepare(&out)?;
    let stop = interrupt::before_probes()?;
    let (full_precision, samples) = (spec.full_precision(), Samples::of(&spec));
    spec.budget = Budget { probes: 1, rounds: 0, ..spec.budget };
    let mut progress = Progress::new(args.quiet, (&spec, 0), &Recovered::default(), &stop);
    let settings = spec.space.settings(&config).chosen(&spec.space);
    // The settings of the unmodified job; `None` if the probe sets parameters.
    let unmodified =
        (spec.is_baseline_as_it_is && args.set.is_empty()).then(|| spec.baseline.clone().unwrap_or_default());
    let prober = steps::prober(steps::of_spec(spec.step, &device), &out, args.quiet)?;
    let tuner = Tuner::with_prober(spec.space, prober)
        .objective(spec.objective)
        .limits(spec.limits)
        .full_precision(full_precision)
        .budget(spec.budget)
        .stop_flag(stop);
    let tuner = match &unmodified {
        Some(set) => tuner.baseline_as_it_is(set),
        None => tuner.baseline(&settings),
    };
    // The full result is printed below, so the progress line of the result is left out.
    let study = tuner?.run(|event| {
        if !matches!(event, Event::Finished { .. }) {
            progress.hear(&event)
        }
    });
    progress.finish(search::ended(&study));
    let study = study.map_err(|error| search::tune_failed(&error, &out, &samples))?;

    let Some(trial) = study.history.trials().first() else {
        let exit = if study.stopped == StopReason::Interrupted { Exit::Interrupted } else { Exit::NothingFeasible };
        return Ok(exit);
    };
    let log = out.join(CommandProber::log_name(trial.number, Effort::Probe));
    if args.json {
        stdout::print_json(&report::probe_json(&study, trial, &device, &log))?;
    } else {
        stdout::print(&report::probe_text(&study, trial, &device, &log))?;
    }
    let is_feasible = matches!(study.judge(trial), Some(Judgement::Feasible(_)));
    Ok(if is_feasible && matches!(trial.outcome, Outcome::Measured(_)) { Exit::Found } else { Exit::NothingFeasible })
}

/// Returns the config with the settings `set`; others are as in the baseline, or else in the space's first config.
pub(super) fn chosen(space: &Space, baseline: Option<&Settings>, set: &[(String, String)]) -> Result<Config, Failed> {
    let set = asked::settings(space, set)?;
    let start = baseline.cloned().or_else(|| space.first().map(|config| space.settings(&config).chosen(space)));
    let rest = start.iter().flat_map(Settings::iter).filter(|(name, _)| set.get(name).is_none());
    let settings = set.iter().chain(rest).map(|(name, value)| (name.to_owned(), value.clone())).collect();
    Ok(asked::located(space, settings, &set)?.1)
}
