//! `gputune search`: opens the journal, runs the search, and writes its results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gputune::machine::Device;
use gputune::model::fact::ENDED_EARLY;
use gputune::model::{Measurement, Outcome, Settings};
use gputune::probe::{MEASURING, ProbeError, StepTemplate};
use gputune::report::{self, BestReport, Screen, emit::Chosen};
use gputune::search::{
    Conditions, EarlierStudy, Ended, Header, Journal, JournalError, Ranked, Recovered, StopReason, Study, TuneError,
    Tuner, WarmStart, environment, kept::Record, strategy::LEARNING,
};
use gputune::spec::Spec;

use super::asked::Asked;
use super::exit::{Exit, Failed};
use super::interrupt::{self, Edits};
use super::progress::Progress;
use super::slots::Places;
use super::steps::{self, Samples};
use super::{best, colour, diagnostic, emit, folder, paths, slurm};

/// Find the config that trains fastest, by probing the real training step
///
/// Standard output carries the best config and nothing else. Running the same command again goes on where it was
/// stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune search config.toml
  gputune search config.toml --time 5m --json > best.json
  gputune search config.toml --out runs/today --fresh
  gputune search config.toml --out runs/h100 --warm-start runs/a100
  gputune search config.toml --slurm \"--partition=gpu --nodes=2 --gpus-per-node=4 --time=1:00:00\"")]
pub(super) struct Args {
    /// The spec, or a script as for `gputune tune` [default: gputune.toml, else the spec of the newest search]
    config: Option<PathBuf>,
    #[command(flatten)]
    asked: Asked,
    /// Listen here for workers that dial in (`gputune worker --dial`); port 0 is any free port
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    listen: Option<String>,
    /// The token that workers must show, which `gputune cluster token` writes
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Submit the search as a Slurm job with these options of `sbatch`, and follow it; Ctrl-C cancels the job
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, conflicts_with = "listen")]
    slurm: Option<String>,
    /// Where the job of --slurm leaves its exit code
    #[arg(long, value_name = "FILE", hide = true)]
    ended: Option<PathBuf>,
}

impl Args {
    /// Makes the arguments for a search of the spec `config` in the folder `out`.
    pub(super) fn of(config: PathBuf, out: PathBuf, mut asked: Asked) -> Self {
        asked.out = Some(out);
        Self { config: Some(config), asked, listen: None, token_file: None, slurm: None, ended: None }
    }
}

pub(super) fn run(args: Args) -> super::Result {
    if let Some(script) = args.config.clone().filter(|config| config.extension().is_some_and(|kind| kind == "py")) {
        if args.listen.is_some() || args.slurm.is_some() {
            let message = format!("{} is a script, and --listen and --slurm need a spec", script.display());
            let hint = format!("write one: gputune init {}", paths::word(&script));
            return Err(Failed::usage(message).hint(hint));
        }
        return super::tune::run(super::tune::Args::of(script, args.asked));
    }
    let kept = args.ended.clone();
    let result = search(args);
    if let Some(file) = kept {
        slurm::keep_code(&file, result.as_ref().map_or_else(Failed::exit, |exit| *exit));
    }
    result
}

fn search(args: Args) -> super::Result {
    let config = folder::spec(args.config.as_deref())?;
    let spec = loaded(&args, &config)?;
    let out = args.asked.out.clone().unwrap_or_else(|| folder::default_for(&config));
    let (asked_for, format) = (&args.asked, args.asked.format());
    let quiet = asked_for.quiet;
    emit::check(format, &spec)?;
    let warm_start = warm_start(&asked_for.warm_start, &spec, &out)?;
    if let Some(options) = &args.slurm {
        let (out, arguments) = (&paths::absolute(&out), asked_for.handed_on());
        let (is_fresh, is_quiet) = (asked_for.fresh, quiet);
        return slurm::search(&slurm::Submission { options, spec: &spec, out, arguments, is_fresh, is_quiet });
    }
    let mut places = Places::of(&spec)?;
    let mut workers = places.workers();
    let device = places.device.clone();
    let records: Vec<WarmStart> = warm_start.iter().map(EarlierStudy::record).collect();
    let (conditions, fingerprint) = (conditions(&spec, &places), spec.fingerprint(&device));
    let header = Header { conditions: conditions.clone(), warm_start: records.clone(), ..Header::new(fingerprint) };
    let (out, journal, recovered) = opened(asked_for, &out, &header, &spec)?;
    let stop = interrupt::before_probes()?;
    let edits = Edits::watch(&conditions, &spec.step.template().cwd, &stop)?;

    let measured = asked_for.of_baseline(&spec);
    let (name, full_precision) = (spec.path.display().to_string(), spec.full_precision());
    let samples = Samples::of(&spec);
    let (template, budget, baseline) = (spec.step.template().clone(), spec.budget, spec.baseline.clone());
    let baseline_as_it_is = spec.is_baseline_as_it_is;
    let sought = (&spec.space, &spec.objective);
    let record = Record::new(&name, sought, baseline.as_ref(), budget, &device, &template);
    folder::describe(&out, &Record { baseline_as_it_is, ..record })?;
    let mut progress = Progress::new(quiet, (&spec, places.whole_gpus), &recovered, &stop).with_files(&out);
    let step = steps::of_spec(spec.step, &device);
    let tuner = places.tuner(spec.space, &step, &out, quiet)?;
    if !quiet {
        diagnostic::print_notes(&spec.left_out, &spec.warnings, false);
    }
    let mut tuner = tuner
        .objective(spec.objective)
        .full_precision(full_precision)
        .budget(spec.budget)
        .limits(spec.limits)
        .seed(spec.seed)
        .precision_speeds(best::known_ceilings(&device, &[]).map(|known| known.relative_speeds()).unwrap_or_default())
        .journal(journal, recovered)
        .stop_flag(stop);
    tuner = tuner.strategy(spec.strategy).map_err(|error| tune_failed(&error, &out, &samples))?;
    tuner = warm_start.into_iter().fold(tuner, Tuner::warm_start);
    tuner = with_baseline(tuner, baseline.as_ref(), baseline_as_it_is, &template)?;
    tuner = measured.into_iter().fold(tuner, Tuner::baseline_measured);
    let study = tuner.run(|event| progress.hear(&event));
    progress.finish(ended(&study));
    workers.iter_mut().filter_map(|workers| workers.stop()).for_each(|left| diagnostic::print_warning(&left));
    let study = study.map_err(|error| tune_failed(&error, &out, &samples))?;

    let best = best::report(&study, &device, &template, &records, &out);
    let sought = (&*study.space, &study.objective);
    let record = Record::new(&name, sought, baseline.as_ref(), budget, &device, &template);
    folder::describe(&out, &Record { baseline_as_it_is, ..record }.of(&study))?;
    write_results(&study, &device, &name, best.as_ref(), &out)?;
    let screen = Screen { is_verbose: asked_for.verbose, ..colour::stderr() };
    tell(&study, &device, best.as_ref(), (paths::relative(&out), asked_for.first_run, quiet), screen);
    edits.none()?;
    if let Some(best) = &best {
        emit::print(format, best, &study, &template, &out)?;
    }
    Ok(exit_of(&study, best.is_some()))
}

fn loaded(args: &Args, config: &Path) -> Result<Spec, Failed> {
    let mut spec = args.asked.applied(Spec::load(config)?)?;
    if let (Some(listen), Some(token_file)) = (args.listen.clone(), args.token_file.clone()) {
        spec.engine.listening(listen, token_file);
    }
    Ok(spec)
}

fn tell(
    study: &Study,
    device: &Device,
    best: Option<&BestReport>,
    (folder, first_run, quiet): (&Path, Option<Duration>, bool),
    screen: Screen,
) {
    if !quiet {
        say!("{}", report::terminal(study, best, (folder, first_run), screen));
    }
    print_warnings(study, device, quiet);
    if quiet && (best.is_none() || study.cannot_tell()) {
        say!("{}", screen.lay_out(&report::verdict(study)));
    }
}

fn exit_of(study: &Study, is_found: bool) -> Exit {
    // A baseline that runs out of memory is a result: another config may fit. A baseline that crashed, stalled or timed
    // out shows that the step itself does not work.
    let lost = |outcome: &Outcome| matches!(outcome, Outcome::Crashed(_) | Outcome::Stalled(_) | Outcome::TimedOut(_));
    match (study.stopped, is_found) {
        (StopReason::Interrupted, _) => Exit::Interrupted,
        _ if study.baseline_failure().is_some_and(lost) || study.cannot_tell() => Exit::Impossible,
        (_, true) => Exit::Found,
        (_, false) => Exit::NothingFeasible,
    }
}

/// Gives the tuner its baseline: the stated settings, or the unmodified job with only the stated settings changed.
///
/// A stated baseline is compared with the unmodified job, if that job can run and reports its settings.
fn with_baseline<'t>(
    tuner: Tuner<'t>,
    stated: Option<&Settings>,
    is_as_it_is: bool,
    template: &StepTemplate,
) -> Result<Tuner<'t>, Failed> {
    if is_as_it_is {
        return Ok(tuner.baseline_as_it_is(&stated.cloned().unwrap_or_default())?);
    }
    let Some(baseline) = stated else { return Ok(tuner) };
    let tuner = tuner.baseline(baseline)?;
    let is_told = template.apply.adapter.is_some() && template.needs_settings(&Settings::default()).is_none();
    Ok(if is_told { tuner.check_stated_baseline() } else { tuner })
}

/// Returns the conditions of a spec's trials: the limits, the version of the measuring method, the resources of a slot,
/// and the job's environment. The command, the space and the device are in the journal's fingerprint instead.
fn conditions(spec: &Spec, places: &Places) -> Conditions {
    let limits = spec.limits.to_json();
    Conditions { limits, measuring: MEASURING, slot: places.shape(), ..environment::conditions(spec.step.template()) }
}

/// Returns how a search ended, for its status.
pub(super) fn ended(study: &Result<Study, TuneError>) -> Ended {
    match study {
        Ok(study) => Ended::Stopped(study.stopped),
        Err(error) => Ended::Failed(error.to_string()),
    }
}

/// Returns the earlier studies to learn from: the given studies, else the spec's studies.
fn warm_start(given: &[PathBuf], spec: &Spec, out: &Path) -> Result<Vec<EarlierStudy>, Failed> {
    if given.is_empty() {
        return Ok(spec.earlier_studies(out)?);
    }
    if !LEARNING.contains(&spec.strategy) {
        let hint = format!("leave --warm-start out, or choose the strategy {} in [search]", LEARNING.join(" or "));
        return Err(Failed::usage(format!("`{}` does not learn from earlier studies", spec.strategy)).hint(hint));
    }
    if given.len() > EarlierStudy::MOST {
        let message = format!("a search learns from at most {} earlier studies", EarlierStudy::MOST);
        return Err(Failed::usage(message).hint("keep the studies of the most similar jobs"));
    }
    let study = |place: &PathBuf| {
        let study = EarlierStudy::read_for(place, out)
            .and_then(|study| study.seen_from(&spec.space, &spec.objective).map(|_| study));
        study.map_err(|error| Failed::because(Exit::Usage, &error).hint(error.hint()))
    };
    given.iter().map(study).collect()
}

fn opened(args: &Asked, out: &Path, header: &Header, spec: &Spec) -> Result<(PathBuf, Journal, Recovered), Failed> {
    // A job that Slurm has requeued continues its own search, even with `--fresh`.
    if args.fresh && !slurm::is_started_again() {
        start_over(out, header, spec, args.quiet)?;
    }
    let out = folder::prepare(out)?;
    let opened = Journal::open_with(&out.join(folder::JOURNAL), header, &spec.space, args.accept_changes);
    let (journal, recovered) = opened.map_err(|error| journal_failed(&error))?;
    folder::write(&out, folder::SPEC, &spec.text)?;
    Ok((out, journal, recovered))
}

/// Moves the folder of an earlier search aside. If that search is running, the result is an error.
fn start_over(out: &Path, header: &Header, spec: &Spec, quiet: bool) -> Result<(), Failed> {
    let journal = out.join(folder::JOURNAL);
    if journal.exists()
        && let Err(error @ JournalError::Locked { .. }) = Journal::open(&journal, header, &spec.space)
    {
        return Err(journal_failed(&error));
    }
    folder::start_over(out, quiet)
}

fn journal_failed(error: &JournalError) -> Failed {
    let exit = match error {
        JournalError::Io { .. } | JournalError::Changed { .. } => Exit::Impossible,
        _ => Exit::Usage,
    };
    let hint = match error {
        JournalError::Locked { .. } => "wait for it to end, or choose another folder with --out DIR",
        JournalError::Mismatch { .. } => {
            "undo the change; or continue without the old trials with --accept-changes; or start over with --fresh (the old folder is kept)"
        }
        JournalError::Changed(path, _, kept) => {
            let (kept, path) = (paths::word(kept), paths::word(path));
            let hint = format!("put it back and run the same command again: mv {kept} {path}");
            return Failed::because(exit, error).hint(hint);
        }
        JournalError::Foreign { .. } | JournalError::Format { .. } => {
            "its trials cannot be compared with new ones: start over with --fresh (the old folder is kept), or choose another with --out DIR"
        }
        JournalError::Damaged { .. } => {
            "start over with --fresh (the old folder is kept), or take the damaged line out"
        }
        _ => "is there space left, and may this user write there?",
    };
    Failed::because(exit, error).hint(hint)
}

pub(super) fn tune_failed(error: &TuneError, out: &Path, samples: &Samples) -> Failed {
    let kept = format!("finished trials are kept in {}", paths::relative(out).display());
    match error {
        TuneError::Probe(probe @ ProbeError::Io { .. }) => {
            let hint = probe.hint().map(|hint| format!("{hint}; {kept}: run the same command again to go on"));
            Failed::from(probe).maybe_hint(hint)
        }
        TuneError::Probe(probe) => samples.failed(probe),
        TuneError::SameFailure { last_lines, ran_out_of_time, .. } => {
            let hint = if *ran_out_of_time {
                "does the step start more slowly? Raise `probe_time` and `stall_time` in [limits], and run with --fresh"
                    .to_owned()
            } else {
                let logs = out.join("logs");
                format!(
                    "the whole output is in {}; fix the step and run again with --fresh",
                    paths::relative(&logs).display()
                )
            };
            Failed::because(Exit::Impossible, error).last_lines(last_lines.clone()).hint(hint)
        }
        TuneError::Journal(journal @ JournalError::Changed { .. }) => journal_failed(journal),
        TuneError::Journal(journal) => Failed::because(Exit::Impossible, journal)
            .hint(format!("{kept}: make room and run the same command again to go on")),
        TuneError::Disturbed { .. } => Failed::because(Exit::Impossible, error)
            .hint(format!("{kept}: run the same command again when the machine is free")),
        _ => Failed::because(Exit::Usage, error),
    }
}

fn write_results(
    study: &Study,
    device: &Device,
    name: &str,
    best: Option<&BestReport>,
    out: &Path,
) -> Result<(), Failed> {
    folder::write(out, folder::TRIALS, &report::trials_csv(study))?;
    folder::write(out, folder::SUMMARY, &report::summary(study, device, name, best))?;
    super::report::write_page(best, out)?;
    let Some(best) = best else {
        // The results of an earlier run of the search are no longer valid.
        folder::remove(out, folder::BEST_JSON);
        folder::remove(out, folder::BEST_TOML);
        return Ok(());
    };
    folder::write(out, folder::BEST_JSON, &(serde_json::to_string_pretty(&best.for_sharing())? + "\n"))?;
    let toml = gputune::report::emit::format("toml").and_then(|format| (format.write)(&Chosen::of(&best.config)).ok());
    folder::write(out, folder::BEST_TOML, &toml.map(|written| written.text).unwrap_or_default())
}

/// Prints the warnings about all measurements of a search, then the warnings about its best config.
fn print_warnings(study: &Study, device: &Device, quiet: bool) {
    let trials = study.history.trials().iter();
    let measured: Vec<&Measurement> = trials.filter_map(|trial| trial.outcome.measurement()).collect();
    let has_no_memory = !measured.is_empty() && measured.iter().all(|run| run.memory.peak_bytes.is_none());
    let no_memory = (device.is_gpu && has_no_memory).then(|| {
        "no probe reported device memory, so `memory_headroom` was not checked: see docs/protocol.md".to_owned()
    });
    // The hook saw batches that do not match the counted samples.
    let mismatch = measured.iter().find_map(|run| run.facts.text("samples.mismatch")).map(|words| {
        format!("{words}: that is what samples are here. If they are not, set `samples_per_step` in [step]")
    });
    let early = measured.iter().find_map(|run| run.facts.text(ENDED_EARLY)).map(str::to_owned);
    let of_winner = study.best().map(|best| warnings_of(study, &best.winner, quiet)).unwrap_or_default();
    let all = no_memory.into_iter().chain(crowded(&measured)).chain(mismatch).chain(early).chain(of_winner);
    all.for_each(|warning| diagnostic::print_warning(&warning));
}

/// Returns the warnings about a config. For the baseline, warnings about its first measurement are left out, unless the
/// search is quiet: the search printed them after that probe.
fn warnings_of(study: &Study, named: &Ranked, quiet: bool) -> Vec<String> {
    let measurement = &named.measurement;
    let run = measurement.run_seconds(&study.objective);
    let mut runs = study.history.of(&named.config).filter_map(|trial| trial.outcome.measurement()).peekable();
    let first = runs.peek().copied().filter(|_| !quiet && study.baseline.as_ref() == Some(&named.config));
    let mut warnings = measurement.warnings(run, runs.any(Measurement::grows_beyond_an_epoch));
    if let Some(first) = first {
        let known = first.warnings(first.run_seconds(&study.objective), false);
        warnings.retain(|warning| !known.contains(warning));
    }
    warnings.extend(study.two_gains(named).map(|gains| gains.words()));
    warnings
}

/// Returns a warning if other programs kept the CPU busy during a probe. Only such probes have a `foreign_cpu_share`.
fn crowded(measured: &[&Measurement]) -> Option<String> {
    let shares: Vec<f64> = measured.iter().filter_map(|run| run.machine.foreign_cpu_share).collect();
    let most = shares.iter().copied().max_by(f64::total_cmp)? * 100.0;
    let (crowded, all) = (shares.len(), measured.len());
    Some(format!(
        "in {crowded} of {all} probes, other programs used up to {most:.0} % of the CPUs and left almost no CPU idle: the \
         numbers hold only for a machine that is as busy. Threads that wait by spinning, as OpenMP's do, then cost many \
         times their share; OMP_NUM_THREADS limits them"
    ))
}
