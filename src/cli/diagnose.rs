//! `gputune diagnose`: finds the bottleneck of a training job, the gain from removing it, and the remedies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gputune::diagnosis::{Around, Differential, Examined, Note, Ran, Session, SessionError};
use gputune::machine::{Device, Machine};
use gputune::model::{Outcome, Settings, Space, quantity, quantity::show_duration};
use gputune::probe::{CommandProber, CommandStep, Effort, Limits, Prober, escaped};
use gputune::report::{self, Occasion, Tone, emit::shell_word, shown_estimate};
use gputune::spec::Spec;

use super::exit::{Exit, Failed};
use super::progress::Show;
use super::steps::{self, Bare};
use super::{asked, colour, diagnostic, folder, init, interrupt, paths, probe, stdout};

mod written;

/// Say what a training job waits for, what that is worth, and what to change
///
/// Runs the unmodified job for a few seconds, and again with one thing changed at a time: the same batches replayed, the
/// loader alone, twice the batch. The job is a spec, or a command that trains with PyTorch.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune diagnose -- python train.py --epochs 1
  gputune diagnose --write gputune.toml -- python train.py
  gputune diagnose config.toml
  gputune diagnose config.toml --set workers=4 --json")]
pub(super) struct Args {
    /// The spec, or a script of PyTorch without options [default: gputune.toml, else the spec of the newest search]
    #[arg(conflicts_with = "command")]
    config: Option<PathBuf>,
    /// The command of a PyTorch script
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Set a parameter; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = asked::assignment, conflicts_with = "command")]
    set: Vec<(String, String)>,
    /// How long it may take
    #[arg(long, value_name = "DURATION", default_value = "110s", value_parser = time)]
    time: Duration,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Write a spec that searches the parameters worth opening
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Start over: an earlier FILE is kept as FILE.1
    #[arg(long, requires = "write")]
    fresh: bool,
    /// The folder for logs [default: gputune-out/<name of the spec or script>-diagnose]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = quantity::parse_duration(text).map_err(|error| error.to_string())?;
    let usual = Duration::from_secs(5)..=Duration::from_secs(24 * 3600);
    if usual.contains(&time) { Ok(time) } else { Err("from 5s to 24h".to_owned()) }
}

/// The job to diagnose.
struct Subject {
    space: Space,
    step: CommandStep,
    limits: Limits,
    settings: Settings,
    /// True if parameters without a setting keep the job's own values.
    is_as_it_is: bool,
    device: Device,
    /// The job's name in messages.
    job: String,
    /// The path and the text of the spec, if any.
    spec: Option<(PathBuf, String)>,
}

pub(super) fn run(args: Args) -> super::Result {
    examine(&args.with_job()?)
}

impl Args {
    /// Fills in the missing part of the job: the command that runs a bare script, or the spec of the current folder.
    fn with_job(mut self) -> Result<Self, Failed> {
        if let Some(script) = self.config.take_if(|config| config.extension().is_some_and(|kind| kind == "py")) {
            if !self.set.is_empty() {
                let message = format!("{} is a script, and --set is for a spec", script.display());
                let command = format!("{} {}", init::python(), paths::word(&script));
                let hint = format!("put the script's own options behind it: gputune diagnose -- {command}");
                return Err(Failed::usage(message).hint(hint));
            }
            self.command = vec![init::python(), script.display().to_string()];
        }
        if self.command.is_empty() {
            self.config = Some(folder::spec(self.config.as_deref())?);
        }
        Ok(self)
    }
}

fn examine(args: &Args) -> super::Result {
    if let Some(path) = args.write.as_ref().filter(|path| path.exists() && !args.fresh) {
        return Err(Failed::usage(format!("{} is there already", path.display()))
            .hint("choose another name, or start over with --fresh (the old file is kept)"));
    }
    let subject = match &args.config {
        Some(path) => of_spec(path, args)?,
        None => of_command(&args.command)?,
    };
    let opener = written::Opener::of(&subject, &args.command);
    args.write.as_ref().map_or(Ok(()), |path| opener.check(path))?;
    let out = folder::prepare(&args.out.clone().unwrap_or_else(|| default_folder(args)))?;
    let stop = interrupt::before_probes()?;

    let as_it_is = || subject.space.as_it_is_with(&subject.settings).ok();
    let located = subject.space.locate(&subject.settings).ok();
    let config = if subject.is_as_it_is { as_it_is() } else { located.or_else(|| subject.space.first()) };
    let config = config.ok_or_else(|| Failed::usage("the space has no config that satisfies every rule"))?;
    let mut single = steps::with_one_rank(&subject.step).map(|step| CommandProber::new(step, &out));
    let mut prober = steps::prober(subject.step, &out, args.quiet)?;
    let session = Session {
        prober: &mut prober,
        with_one_rank: single.as_mut().map(|prober| prober as &mut dyn Prober),
        config: &config,
        settings: &subject.settings,
        limits: subject.limits,
        has_adapter: opener.has_adapter,
        around: Around::of(&Machine::look(&out)),
        time: args.time,
        stop: &stop,
    };
    let mut said = Said { show: Show::new(args.quiet, &stop), what: "" };
    let examined = session.run(&mut |note| said.hear(note));
    // Removes the moving line.
    drop(said);
    let examined = examined.map_err(|error| no_diagnosis(error, &out))?;

    let wrote = args.write.as_ref().map(|path| opener.write(path, &examined)).transpose()?;
    let next = next(args, wrote.as_deref(), &examined, &opener);
    if args.json {
        stdout::print_json(&report::diagnosis_json(&examined, &subject.job, &subject.device.name))?;
    } else {
        let (job, device) = (&subject.job, &subject.device.name);
        let columns = colour::stdout().columns.min(colour::WIDEST);
        let occasion = Occasion { job, device, next: &next, columns };
        stdout::print(&report::diagnosis_text(&examined, &occasion))?;
    }
    Ok(if examined.is_interrupted { Exit::Interrupted } else { Exit::Found })
}

fn of_spec(path: &Path, args: &Args) -> Result<Subject, Failed> {
    let spec = Spec::load(path)?;
    diagnostic::print_notes(&spec.left_out, &spec.warnings, args.quiet);
    let device = spec.device()?;
    let is_as_it_is = spec.is_baseline_as_it_is && args.set.is_empty();
    let settings = if is_as_it_is {
        spec.baseline.clone().unwrap_or_default()
    } else {
        let config = probe::chosen(&spec.space, spec.baseline.as_ref(), &args.set)?;
        spec.space.settings(&config).chosen(&spec.space)
    };
    let step = CommandStep { may_count_steps: true, ..steps::of_spec(spec.step, &device) };
    let line = settings.line();
    let job = if line.is_empty() { path.display().to_string() } else { format!("{}, {line}", path.display()) };
    let (space, limits, spec) = (spec.space, spec.limits, Some((spec.path, spec.text)));
    Ok(Subject { space, step, limits, settings, is_as_it_is, device, job, spec })
}

fn of_command(command: &[String]) -> Result<Subject, Failed> {
    let words: Vec<String> = command.iter().map(|word| escaped(word)).collect();
    let Bare { space, step, device } = Bare::of(&words)?;
    let (limits, settings, job) = (Limits::default(), Settings::default(), paths::line(command));
    Ok(Subject { space, step, limits, settings, is_as_it_is: false, device, job, spec: None })
}

/// Returns `gputune-out/<name>-diagnose`, named after the spec, or after the script in the command.
fn default_folder(args: &Args) -> PathBuf {
    let script = || args.command.iter().find(|word| word.ends_with(".py")).or(args.command.first()).map(PathBuf::from);
    let named = args.config.clone().or_else(script).unwrap_or_else(|| PathBuf::from("job"));
    folder::beside(&named, "-diagnose")
}

/// Returns a command to run next, or advice.
fn next(args: &Args, wrote: Option<&Path>, examined: &Examined, opener: &written::Opener) -> String {
    if let Some(path) = wrote {
        return format!("gputune search {}", paths::word(path));
    }
    if !opener.has_adapter {
        return "write adapter = \"torch\" in [step] if it trains with PyTorch, and diagnose again".to_owned();
    }
    if examined.verdict.openings(&examined.evidence).is_empty() {
        return "nothing to search; fix the cause by hand, and diagnose again".to_owned();
    }
    if let Some(path) = args.config.as_deref().filter(|_| !opener.can_write(examined)) {
        return format!("gputune search {}", paths::word(path));
    }
    // The new spec goes next to the old spec, since the paths in a spec are relative to its folder.
    let folder = args.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let names = (1..).map(|number| format!("gputune-{number}.toml"));
    let mut places = std::iter::once(folder::OWN_SPEC.to_owned()).chain(names).map(|name| folder.join(name));
    let place = places.find(|place| place.symlink_metadata().is_err()).unwrap_or_default();
    let set: String =
        args.set.iter().map(|(name, value)| format!("--set {} ", shell_word(&format!("{name}={value}")))).collect();
    let what = match &args.config {
        Some(path) => paths::word(path),
        None => format!("-- {}", paths::line(&args.command)),
    };
    format!("gputune diagnose --write {} {set}{what}", paths::word(&place))
}

fn no_diagnosis(error: SessionError, out: &Path) -> Failed {
    let log = out.join(CommandProber::log_name(1, Effort::Probe));
    match error {
        SessionError::Probe(error) => Failed::from(&error),
        SessionError::Interrupted => Failed::new(Exit::Interrupted, "stopped before anything was known"),
        SessionError::NotMeasured(outcome) => {
            let (reason, lines) = match outcome.failure() {
                Some(failure) => (failure.reason.as_str(), failure.last_lines.clone()),
                None => (outcome.name(), Vec::new()),
            };
            Failed::new(Exit::NothingFeasible, format!("the job could not be measured: {reason}"))
                .last_lines(lines)
                .hint(format!("{}its whole output is in {}", what_helps(&outcome), log.display()))
        }
        error => Failed::because(Exit::Impossible, &error),
    }
}

fn what_helps(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::OutOfMemory { .. } => "the job does not fit into memory: make the batch smaller, then diagnose; ",
        Outcome::TimedOut(_) | Outcome::Stalled(_) => "does it start more slowly? give it longer with --time; ",
        _ => "",
    }
}

/// Describes a differential probe's result in a few words.
fn result_words(ran: &Ran) -> String {
    match ran {
        Ran::Measured(measurement) => match measurement.throughput {
            Some(throughput) => shown_estimate(throughput, &measurement.unit),
            None => {
                let rates = measurement.facts.numbered("loader_only.rate.").into_iter();
                let rates: Vec<String> =
                    rates.map(|(workers, rate)| format!("{workers}: {}", quantity::show_number(rate))).collect();
                format!("samples/s by workers {}", rates.join(", "))
            }
        },
        Ran::OutOfMemory(memory) => format!("out of {memory} memory"),
        Ran::Failed(reason) | Ran::LeftOut(reason) => reason.clone(),
    }
}

fn label(which: Option<Differential>) -> &'static str {
    which.map_or("the unmodified job", |which| which.row().label)
}

/// Shows the notes of a running diagnosis.
struct Said {
    show: Show,
    /// The running probe.
    what: &'static str,
}

impl Said {
    fn hear(&mut self, note: &Note<'_>) {
        match note {
            Note::Begins(which) => {
                self.what = label(*which);
                self.show.note(&format!("{}: starts", self.what));
            }
            Note::Progress(progress) => {
                let rate = progress.throughput.map(|rate| shown_estimate(rate, &progress.unit));
                let rate = rate.unwrap_or_else(|| format!("{} steps", progress.steps));
                self.show.note(&format!("{}: {} {rate}", self.what, show_duration(progress.elapsed)));
            }
            Note::Ended(which, ran, took) => {
                let text = format!("{:<17} {} ({})", label(*which), result_words(ran), show_duration(*took));
                self.show.say(&text, Tone::Plain);
            }
            // The report covers all other notes.
            _ => {}
        }
    }
}
