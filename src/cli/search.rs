//! `gputune search`: the main job.

use std::path::{Path, PathBuf};

use gputune::machine::Device;
use gputune::model::{LocateError, Outcome, Settings};
use gputune::probe::{MEASURING, ProbeError, StepTemplate, supervisor};
use gputune::report::{
    self, BestReport, Screen,
    emit::{Chosen, shell_word},
};
use gputune::search::{
    Conditions, EarlierStudy, Ended, Header, Journal, JournalError, Ranked, Recovered, StopReason, Study, TuneError,
    Tuner, WarmStart, environment, kept::Record, strategy::LEARNING,
};
use gputune::spec::Spec;

use super::asked::Asked;
use super::edited::Edits;
use super::exit::{Exit, Failed};
use super::progress::Progress;
use super::slots::Places;
use super::{best, colour, diagnostic, emit, folder, interrupt, paths, samples, slurm};

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
    /// Makes the arguments for a spec whose search has this folder.
    pub(super) fn of(config: PathBuf, out: PathBuf, mut asked: Asked) -> Self {
        asked.out = Some(out);
        Self { config: Some(config), asked, listen: None, token_file: None, slurm: None, ended: None }
    }
}

pub(super) fn run(args: Args) -> super::Result {
    if let Some(script) = args.config.clone().filter(|config| config.extension().is_some_and(|kind| kind == "py")) {
        if args.listen.is_some() || args.slurm.is_some() {
            let message = format!("{} is a script, and --listen and --slurm need a spec", script.display());
            let hint = format!("write one: gputune init {}", shell_word(&script.display().to_string()));
            return Err(Failed::new(Exit::Usage, message).hint(hint));
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
    let conditions = conditions(&spec, &places);
    let header = Header::new(spec.fingerprint(&device)).conditions(conditions.clone()).warm_start(records.clone());
    let (out, journal, recovered) = opened(asked_for, &out, &header, &spec)?;
    let impossible = |error: std::io::Error| Failed::because(Exit::Impossible, &error);
    supervisor::adopt_orphans().map_err(impossible)?;
    let stop = interrupt::stop_flag().map_err(impossible)?;
    let edits = Edits::watch(&conditions, &spec.step.template().cwd, &stop).map_err(impossible)?;

    let (name, full_precision) = (spec.path.display().to_string(), spec.full_precision());
    let asked = samples::Asked::of(&spec);
    let (template, budget, baseline) = (spec.step.template().clone(), spec.budget, spec.baseline.clone());
    let is_as_it_is = spec.is_baseline_as_it_is;
    let sought = (&spec.space, &spec.objective);
    let record = Record::new(&name, sought, baseline.as_ref(), budget, &device, &template);
    folder::describe(&out, &record.with_baseline_as_it_is(is_as_it_is))?;
    let mut progress = Progress::new(quiet, (&spec, places.whole_gpus), &recovered, &stop).with_files(&out);
    // The link in /proc leads to the running executable, even if its file has been replaced.
    let step = spec.step.into_command(paths::gputune_path(), PathBuf::from("/proc/self/exe"), &device);
    let tuner = places.tuner(spec.space, &step, &out, quiet)?;
    if !quiet {
        diagnostic::print_left_out(&spec.left_out);
        spec.warnings.iter().for_each(|warning| diagnostic::print_warning(warning));
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
    tuner = tuner.strategy(spec.strategy).map_err(|error| tune_failed(&error, &out))?;
    tuner = warm_start.into_iter().fold(tuner, Tuner::warm_start);
    tuner = with_baseline(tuner, baseline.as_ref(), is_as_it_is, &template)?;
    let study = tuner.run(|event| progress.hear(&event));
    progress.finish(ended(&study));
    workers.iter_mut().filter_map(|workers| workers.stop()).for_each(|left| diagnostic::print_warning(&left));
    let study = study.map_err(|error| asked.unless_told(&error).unwrap_or_else(|| tune_failed(&error, &out)))?;

    let best = best::report(&study, &device, &template, &records, &out);
    let sought = (&*study.space, &study.objective);
    let record = Record::new(&name, sought, baseline.as_ref(), budget, &device, &template);
    folder::describe(&out, &record.with_baseline_as_it_is(is_as_it_is).of(&study))?;
    write_results(&study, &device, &name, best.as_ref(), &out)?;
    let screen = Screen { is_verbose: asked_for.verbose, ..colour::stderr() };
    tell(&study, &device, best.as_ref(), (&out, quiet), screen);
    edits.none()?;
    if let Some(best) = &best {
        emit::print(format, best, &study, &template, &out)?;
    }
    Ok(exit_of(&study, best.is_some()))
}

/// Loads the spec and applies the options that change it.
fn loaded(args: &Args, config: &Path) -> Result<Spec, Failed> {
    let mut spec = args.asked.applied(Spec::load(config)?)?;
    if let (Some(listen), Some(token_file)) = (args.listen.clone(), args.token_file.clone()) {
        spec.engine.listening(listen, token_file);
    }
    Ok(spec)
}

/// Prints the outcome of the search.
fn tell(study: &Study, device: &Device, best: Option<&BestReport>, (out, quiet): (&Path, bool), screen: Screen) {
    if !quiet {
        say!("{}", report::terminal(study, best, paths::relative(out), screen));
    }
    print_warnings(study, device);
    if quiet && best.is_none() {
        say!("{}", screen.lay_out(&report::verdict(study)));
    }
}

fn exit_of(study: &Study, is_found: bool) -> Exit {
    // A baseline that does not fit into memory shows what the job needs. One that failed in another way shows that something is wrong.
    let lost = |outcome: &Outcome| matches!(outcome, Outcome::Crashed(_) | Outcome::Stalled(_) | Outcome::TimedOut(_));
    match (study.stopped, is_found) {
        (StopReason::Interrupted, _) => Exit::Interrupted,
        (_, true) if study.baseline_failure().is_some_and(lost) => Exit::Impossible,
        (_, true) => Exit::Found,
        (_, false) => Exit::NothingFeasible,
    }
}

/// Makes the tuner with its baseline: the unmodified job, apart from stated settings, or the stated baseline.
///
/// A stated baseline is compared with the unmodified job, if that job can run and reports its settings.
fn with_baseline<'t>(
    tuner: Tuner<'t>,
    stated: Option<&Settings>,
    is_as_it_is: bool,
    template: &StepTemplate,
) -> Result<Tuner<'t>, Failed> {
    let usage = |error: LocateError| Failed::because(Exit::Usage, &error);
    if is_as_it_is {
        return tuner.baseline_as_it_is(&stated.cloned().unwrap_or_default()).map_err(usage);
    }
    let Some(baseline) = stated else { return Ok(tuner) };
    let tuner = tuner.baseline(baseline).map_err(usage)?;
    let is_told = template.apply.adapter.is_some() && template.needs_settings(&Settings::default()).is_none();
    Ok(if is_told { tuner.check_stated_baseline() } else { tuner })
}

/// Returns what the trials of a spec depend on besides command, space and device.
fn conditions(spec: &Spec, places: &Places) -> Conditions {
    let limits = spec.limits.to_json();
    Conditions { limits, measuring: MEASURING, slot: places.shape(), ..environment::conditions(spec.step.template()) }
}

/// Returns how a search ended, for its status.
fn ended(study: &Result<Study, TuneError>) -> Ended {
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
    let usage = |message: String| Failed::new(Exit::Usage, message);
    if !LEARNING.contains(&spec.strategy) {
        let hint = format!("leave --warm-start out, or choose the strategy {} in [search]", LEARNING.join(" or "));
        return Err(usage(format!("`{}` does not learn from earlier studies", spec.strategy)).hint(hint));
    }
    if given.len() > EarlierStudy::MOST {
        let message = format!("a search learns from at most {} earlier studies", EarlierStudy::MOST);
        return Err(usage(message).hint("keep the studies of the most similar jobs"));
    }
    let study = |place: &PathBuf| {
        let study = EarlierStudy::read_for(place, out)
            .and_then(|study| study.seen_from(&spec.space, &spec.objective).map(|_| study));
        study.map_err(|error| Failed::because(Exit::Usage, &error).hint(error.hint()))
    };
    given.iter().map(study).collect()
}

/// Makes the folder, and opens its journal.
fn opened(args: &Asked, out: &Path, header: &Header, spec: &Spec) -> Result<(PathBuf, Journal, Recovered), Failed> {
    // A requeued job continues its own search, even with `--fresh`.
    if args.fresh && !slurm::is_started_again() {
        start_over(out, header, spec, args.quiet)?;
    }
    folder::prepare(out)?;
    let out = paths::absolute(out);
    let open = if args.accept_changes { Journal::open_accepting_changes } else { Journal::open };
    let (journal, recovered) =
        open(&out.join(folder::JOURNAL), header, &spec.space).map_err(|error| journal_failed(&error))?;
    folder::write(&out, folder::SPEC, &spec.text)?;
    Ok((out, journal, recovered))
}

/// Moves an earlier search aside, unless it is running.
fn start_over(out: &Path, header: &Header, spec: &Spec, quiet: bool) -> Result<(), Failed> {
    let journal = out.join(folder::JOURNAL);
    if journal.exists()
        && let Err(error @ JournalError::Locked { .. }) = Journal::open(&journal, header, &spec.space)
    {
        return Err(journal_failed(&error));
    }
    let Some(aside) = folder::set_aside(out)? else { return Ok(()) };
    folder::bring_own_spec(&aside, out)?;
    if !quiet {
        say!("the earlier search is kept in {}", aside.display());
    }
    Ok(())
}

fn journal_failed(error: &JournalError) -> Failed {
    let exit = match error {
        JournalError::Io { .. } | JournalError::Changed { .. } => Exit::Impossible,
        _ => Exit::Usage,
    };
    let failed = Failed::because(exit, error);
    match error {
        JournalError::Locked { .. } => failed.hint("wait for it to end, or choose another folder with --out DIR"),
        JournalError::Mismatch { .. } => failed
            .hint("undo the change; or continue without the old trials with --accept-changes; or start over with --fresh (the old folder is kept)"),
        JournalError::Changed { path, kept, .. } => failed.hint(format!(
            "put it back and run the same command again: mv {} {}",
            shell_word(&kept.display().to_string()),
            shell_word(&path.display().to_string())
        )),
        JournalError::Foreign { .. } | JournalError::Format { .. } => failed
            .hint("its trials cannot be compared with new ones: start over with --fresh (the old folder is kept), or choose another with --out DIR"),
        JournalError::Damaged { .. } => failed.hint("start over with --fresh (the old folder is kept), or take the damaged line out"),
        _ => failed.hint("is there space left, and may this user write there?"),
    }
}

pub(super) fn tune_failed(error: &TuneError, out: &Path) -> Failed {
    let kept = format!("finished trials are kept in {}", paths::relative(out).display());
    match error {
        TuneError::Probe(probe) => {
            let failed = Failed::because(Exit::Impossible, probe).last_lines(probe.last_lines().to_vec());
            let more = match probe {
                ProbeError::Io { .. } => format!("; {kept}: run the same command again to go on"),
                _ => String::new(),
            };
            match probe.hint() {
                Some(hint) => failed.hint(format!("{hint}{more}")),
                None => failed,
            }
        }
        TuneError::SameFailure { last_lines, ran_out_of_time: true, .. } => Failed::because(Exit::Impossible, error)
            .last_lines(last_lines.clone())
            .hint("does the step start more slowly? Raise `probe_time` and `stall_time` in [limits], and run with --fresh"),
        TuneError::SameFailure { last_lines, .. } => {
            Failed::because(Exit::Impossible, error).last_lines(last_lines.clone()).hint(format!(
                "the whole output is in {}; fix the step and run again with --fresh",
                paths::relative(&out.join("logs")).display()
            ))
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
    let json =
        serde_json::to_string_pretty(&best.for_sharing()).map_err(|error| Failed::because(Exit::Impossible, &error))?;
    folder::write(out, folder::BEST_JSON, &(json + "\n"))?;
    let toml = gputune::report::emit::format("toml").and_then(|format| (format.write)(&Chosen::of(&best.config)).ok());
    folder::write(out, folder::BEST_TOML, &toml.map(|written| written.text).unwrap_or_default())
}

/// Prints warnings about gaps in the measurements.
fn print_warnings(study: &Study, device: &Device) {
    if device.is_gpu && measured_without_memory(study) {
        diagnostic::print_warning(
            "no probe reported device memory, so `memory_headroom` was not checked: see docs/protocol.md",
        );
    }
    if let Some(warning) = crowded(study) {
        diagnostic::print_warning(&warning);
    }
    let measured = study.history.trials().iter().filter_map(|trial| trial.outcome.measurement());
    if let Some(warning) = samples::mismatch(measured) {
        diagnostic::print_warning(&warning);
    }
    study.best().map(|best| best.winner).iter().flat_map(|winner| warnings_of(study, winner)).for_each(|warning| {
        diagnostic::print_warning(&warning);
    });
}

/// Returns what a user must know of the named config. For the baseline, the first warnings were printed when it was measured.
fn warnings_of(study: &Study, named: &Ranked) -> Vec<String> {
    let measurement = &named.measurement;
    let run = measurement.run_seconds(&study.objective);
    let mut runs = study.history.of(&named.config).filter_map(|trial| trial.outcome.measurement());
    let mut warnings = measurement.warnings(run, runs.any(gputune::model::Measurement::grows_beyond_an_epoch));
    let mut of_config = study.history.of(&named.config).filter_map(|trial| trial.outcome.measurement());
    if let Some(first) = of_config.next().filter(|_| study.baseline.as_ref() == Some(&named.config)) {
        let known = first.warnings(first.run_seconds(&study.objective), false);
        warnings.retain(|warning| !known.contains(warning));
    }
    warnings.extend(study.two_gains(named).map(|gains| gains.words()));
    warnings
}

/// Returns true if there are measurements, and no measurement reported memory.
fn measured_without_memory(study: &Study) -> bool {
    let mut measured = study.history.trials().iter().filter_map(|trial| trial.outcome.measurement()).peekable();
    measured.peek().is_some() && measured.all(|measurement| measurement.memory.peak_bytes.is_none())
}

/// Returns a warning that other programs kept the CPU busy, if they did.
fn crowded(study: &Study) -> Option<String> {
    let measured = study.history.trials().iter().filter_map(|trial| trial.outcome.measurement());
    let shares: Vec<f64> = measured.clone().filter_map(|measurement| measurement.machine.foreign_cpu_share).collect();
    let most = shares.iter().copied().max_by(f64::total_cmp)? * 100.0;
    let (crowded, all) = (shares.len(), measured.count());
    Some(format!(
        "in {crowded} of {all} probes, other programs used up to {most:.0} % of the CPUs and left almost no CPU idle: the \
         numbers hold only for a machine that is as busy. Threads that wait by spinning, as OpenMP's do, then cost many \
         times their share; OMP_NUM_THREADS limits them"
    ))
}
