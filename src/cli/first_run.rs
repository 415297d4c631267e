//! Runs a script for a few steps, to learn its settings.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gputune::init::{By, Command, Guess, Seen, Words};
use gputune::model::{Headroom, Outcome};
use gputune::probe::{
    CommandProber, Experiment, FirstRun, Job, Limits, Mode, Template, Writes, escaped, protocol::REPLACED_FILES,
};

use super::exit::{Exit, Failed};
use super::steps::Bare;
use super::{diagnostic, interrupt, paths};

/// The largest share of a search's time that the first run may take. A round number.
const MOST: f64 = 0.5;
/// The largest share of a search's time for each further run, and the share after which no further run begins. A round
/// number.
const BRIEF: f64 = 0.25;

/// The limits of a first run. Round numbers: data is often prepared for a minute before the first step.
const LIMITS: Limits = Limits {
    probe_time: Duration::from_secs(120),
    stall_time: Duration::from_secs(60),
    grace_time: Duration::from_secs(1),
    measure_time: Duration::from_secs(1),
    precision: None,
    host_memory_headroom: Headroom::Fraction(0.02),
    loss_tolerance: 0.1,
    log_size: Some(1 << 20),
};

/// Prints a line on standard error, unless the command is quiet.
macro_rules! tell {
    ($is_quiet:expr, $($text:tt)*) => {
        if !$is_quiet {
            say!($($text)*);
        }
    };
}

/// Runs a command until it has made three training steps. Further runs follow if only a trial shows which option,
/// variable or entry of a file sets the loader. Returns `None` if the command cannot be started, or if nothing would
/// protect the user's files. `time` is the time limit of the search, if known; the runs take at most half of it. Fails if
/// the user stopped the run, or if the command failed and a search follows.
pub(super) fn of(
    command: &Command,
    time: Option<Duration>,
    is_quiet: bool,
    search_follows: bool,
) -> Result<Option<Seen>, Failed> {
    let begin = Instant::now();
    let share = |share: f64| time.map_or(LIMITS.probe_time, |time| time.mul_f64(share)).min(LIMITS.probe_time);
    let limits = Limits { probe_time: share(MOST), ..LIMITS };
    let Ok(words) = Words::of(command).written() else { return Ok(None) };
    let line = paths::line(&command.words);
    tell!(is_quiet, "running `{line}` for three steps to see what it uses; its writes are discarded");
    let Some(run) = run(command, Bare::of(&words)?, &limits, is_quiet)? else { return Ok(None) };
    match &run.outcome {
        Outcome::Crashed(failure) if run.has_failed && search_follows => {
            let (when, hint) = match run.has_trained {
                true => ("after its first training steps", format!("see whether `{line}` fails without gputune too")),
                false => {
                    ("before its first training step", format!("run `{line} < /dev/null`: a probe has no input either"))
                }
            };
            let message = format!("the command failed {when}: {}", failure.reason);
            return Err(Failed::impossible(message).last_lines(failure.last_lines.clone()).hint(hint));
        }
        _ if run.has_trained => {}
        Outcome::Crashed(failure) | Outcome::OutOfMemory { failure, .. } => {
            tell!(is_quiet, "  it ended before its first training step: {}", failure.reason);
        }
        _ if run.notes.modules.contains("torch") => tell!(is_quiet, "  gputune saw no training step"),
        _ => {}
    }
    let is_waiting = matches!(run.outcome, Outcome::TimedOut(_) | Outcome::Stalled(_)) && !run.has_trained;
    if let Some(place) = run.asked_for_input_at.as_ref().filter(|_| is_waiting) {
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        tell!(is_quiet, "  it asks for input{at}, and a probe has none");
    }
    let mut seen = Seen::from(run).run_by(command);
    let cwd = std::env::current_dir()?;
    let guesses = if command.takes_arguments() { seen.guesses(command, &cwd) } else { Vec::new() };
    let mut groups = vec![guesses];
    while let Some(mut guesses) = groups.pop() {
        if guesses.is_empty() || begin.elapsed() > share(BRIEF) {
            break;
        }
        let second = tried(command, &seen, &guesses, &Limits { probe_time: share(BRIEF), ..LIMITS }, is_quiet)?;
        if second.has_trained || guesses.len() == 1 {
            seen = seen.with_tried(guesses, &second);
        } else {
            // A wrong guess, such as the width of a layer, can make the script fail. So each half is tried alone.
            groups.push(guesses.split_off(guesses.len() / 2));
            groups.push(guesses);
        }
    }
    Ok(Some(seen))
}

/// Runs the command again with another value for each guess.
fn tried(command: &Command, seen: &Seen, guesses: &[Guess], limits: &Limits, is_quiet: bool) -> Result<Seen, Failed> {
    let (mut words, mut variables, mut names) = (Words::of(command), Vec::new(), Vec::new());
    let mut files: BTreeMap<&PathBuf, Vec<(&Range<usize>, i64)>> = BTreeMap::new();
    let arguments = seen.arguments();
    for Guess { of, value } in guesses {
        match &of.by {
            By::Argument(name) => {
                names.push(name.clone());
                if let Some(argument) = arguments.iter().find(|argument| argument.spelled() == name) {
                    words.put(argument, value.to_string());
                }
            }
            By::Variable(name) => {
                names.push(name.clone());
                variables.push((name.clone(), Template::parse(&value.to_string())));
            }
            By::Entry { file, key, place } => {
                names.push(key.clone());
                files.entry(file).or_default().push((place, *value));
            }
        }
    }
    tell!(is_quiet, "running it again with other values of {}, to see which of them the loader gets", names.join(", "));
    let mut bare = Bare::of(&words.written().unwrap_or_default())?;
    bare.step.template.files = with_values(files, &mut variables)?;
    bare.step.template.env = variables;
    let seen = run(command, bare, limits, is_quiet)?.map(Seen::from);
    seen.ok_or_else(|| Failed::impossible("the second run did not start"))
}

/// Returns the files with other values in these places, and the variable that makes the script open the changed files.
fn with_values(
    files: BTreeMap<&PathBuf, Vec<(&Range<usize>, i64)>>,
    variables: &mut Vec<(String, Template)>,
) -> Result<Vec<(PathBuf, Template)>, Failed> {
    let (mut rendered, mut replaced) = (Vec::new(), serde_json::Map::new());
    for (number, (file, mut places)) in files.into_iter().enumerate() {
        let mut text = std::fs::read_to_string(file)?;
        // The last place is replaced first, so that the places before it do not move.
        places.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
        for (place, value) in places {
            // The script may have changed its file.
            if text.get(place.clone()).is_some() {
                text.replace_range(place.clone(), &value.to_string());
            }
        }
        let name = format!("{number}-{}", file.file_name().unwrap_or_default().display());
        let path = file.canonicalize().unwrap_or_else(|_| file.clone());
        replaced.insert(escaped(&path.display().to_string()), format!("{{probe_dir}}/{}", escaped(&name)).into());
        rendered.push((PathBuf::from(name), Template::parse(&escaped(&text))));
    }
    if !rendered.is_empty() {
        let replaced = serde_json::Value::Object(replaced).to_string();
        variables.push((REPLACED_FILES.to_owned(), Template::parse(&replaced)));
    }
    Ok(rendered)
}

fn run(command: &Command, bare: Bare, limits: &Limits, is_quiet: bool) -> Result<Option<FirstRun>, Failed> {
    let Bare { space, step, .. } = bare;
    let folder = tempfile::Builder::new().prefix("gputune-").tempdir()?;
    let mut prober = CommandProber::new(step, folder.path());
    let writes = prober.protect().map_or(Writes::Allow, |protection| protection.writes());
    // The guard against writes is in the Python hook, so it protects files only from a Python script. sudo drops
    // PYTHONPATH, and with it the hook.
    let by_sudo = command.words.iter().any(|word| word.rsplit('/').next() == Some("sudo"));
    let has_no_guard = by_sudo || command.inner().script_word().is_none();
    if writes == Writes::Allow || (writes == Writes::Guard && has_no_guard) {
        tell!(is_quiet, "  left out: nothing would protect files from its writes");
        return Ok(None);
    }
    let stop = interrupt::before_probes()?;
    let config = space.first().ok_or_else(|| Failed::impossible("there is no config to run"))?;
    let settings = space.settings(&config);
    let experiment = Some(Experiment::new(Mode::FirstRun));
    let job = Job { experiment, ..Job::new(1, &config, &settings, limits) };
    let mut watch =
        |_: &_| if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    match prober.first_run(&job, &mut watch) {
        Ok(FirstRun { outcome: Outcome::Interrupted, .. }) => {
            Err(Failed::new(Exit::Interrupted, "stopped: nothing was written"))
        }
        Ok(run) => Ok(Some(run)),
        Err(error) => {
            diagnostic::print_warning(&format!("the first run failed: {error}; settings are read from the source"));
            Ok(None)
        }
    }
}
