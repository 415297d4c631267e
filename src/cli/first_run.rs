//! Runs a script for a few steps, to learn what it uses.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gputune::init::{Command, Seen, Words};
use gputune::model::{Headroom, Outcome};
use gputune::probe::{CommandProber, Effort, Experiment, Job, Limits, Mode, Writes, supervisor};

use super::bare::Bare;
use super::exit::{Exit, Failed};
use super::{diagnostic, interrupt};

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

/// Runs a command until it has made three training steps. Returns what it showed, or `None` if nothing would protect the user's
/// files from it, or if it cannot be started.
///
/// # Errors
/// The user stopped it.
pub(super) fn of(command: &Command) -> Result<Option<Seen>, Failed> {
    let impossible = |error: std::io::Error| Failed::because(Exit::Impossible, &error);
    let Ok(words) = Words::of(command).written() else { return Ok(None) };
    let Bare { space, step, .. } = Bare::of(&words)?;
    let folder = tempfile::Builder::new().prefix("gputune-").tempdir().map_err(impossible)?;
    let mut prober = CommandProber::new(step, folder.path());
    let writes = prober.protect().map_or(Writes::Allow, |protection| protection.writes());
    // Guards are in the hook, and so in Python only.
    if writes == Writes::Allow || (writes == Writes::Guard && command.inner().script_word().is_none()) {
        say!("nothing would protect files from a first run, so that it is left out");
        return Ok(None);
    }
    supervisor::adopt_orphans().map_err(impossible)?;
    let stop = interrupt::stop_flag().map_err(impossible)?;
    say!("running `{}` for three steps to see what it uses; its writes are discarded", command.words.join(" "));
    let config = space.first().ok_or_else(|| Failed::new(Exit::Impossible, "there is no config to run"))?;
    let settings = space.settings(&config);
    let asked = Experiment::new(Mode::FirstRun);
    let job = Job {
        number: 1,
        config: &config,
        settings: &settings,
        limits: &LIMITS,
        effort: Effort::Probe,
        experiment: Some(&asked),
        keeps: false,
    };
    let mut watch =
        |_: &_| if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let run = match prober.first_run(&job, &mut watch) {
        Ok(run) => run,
        Err(error) => {
            diagnostic::print_warning(&format!("the first run failed: {error}; settings are read from the source"));
            return Ok(None);
        }
    };
    if matches!(run.outcome, Outcome::Interrupted) {
        return Err(Failed::new(Exit::Interrupted, "stopped: nothing was written"));
    }
    match &run.outcome {
        _ if run.has_trained => {}
        Outcome::Crashed(failure) | Outcome::OutOfMemory { failure, .. } => {
            say!("  it ended before its first training step: {}", failure.reason);
        }
        _ => say!("  gputune saw no training step"),
    }
    Ok(Some(Seen::from(run)))
}
