//! Starts a probe of a command: prepares its environment variables and folders, and starts a fresh process or forks a
//! process that has already done the imports.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use super::super::heard::Message;
use super::super::orders::Order;
use super::super::protocol;
use super::super::supervisor::Supervised;
use super::super::template::Rendered;
use super::super::warm::{NoFork, Warm, Way};
use super::super::writes::{ProbeScratch, Protection};
use super::{CommandProber, Experiment, Job, ProbeError, Watch};
use crate::model::Outcome;

/// The variable that makes Python print at once (its documentation, "Command line and environment").
const UNBUFFERED: &str = "PYTHONUNBUFFERED";

/// The variable that names the kind of terminal (environ(7)), and a kind that understands colours and cursor movements.
const TERMINAL: (&str, &str) = ("TERM", "xterm");

/// The variable that keeps Python from writing compiled modules, unless it is empty (its documentation, "Command line and
/// environment").
const NO_BYTECODE: &str = "PYTHONDONTWRITEBYTECODE";

/// Returns the environment variables of the spec and of an experiment, and defaults for unbuffered output and the
/// terminal.
pub(super) fn environment(of_spec: Vec<(String, String)>, job: &Job) -> BTreeMap<String, String> {
    let of_experiment = job.experiment.as_ref().map(Experiment::environment).unwrap_or_default();
    let mut env: BTreeMap<String, String> = of_spec.into_iter().chain(of_experiment).collect();
    if std::env::var_os(UNBUFFERED).is_none() {
        // Python buffers its printed lines if the command pipes them to another program. Then gputune would see a
        // printed rate too late.
        env.entry(UNBUFFERED.to_owned()).or_insert_with(|| "1".to_owned());
    }
    let (name, kind) = TERMINAL;
    if std::env::var_os(name).is_none_or(|kind| kind.is_empty() || kind == "dumb") {
        // gputune itself may run without a terminal; the step has one.
        env.entry(name.to_owned()).or_insert_with(|| kind.to_owned());
    }
    env
}

/// Returns the folder for a probe's rendered files. A full-precision run has its own folder, so the trial's files remain.
pub(super) fn rendered_folder(folder: &Path, job: &Job) -> PathBuf {
    let suffix = if job.effort.is_for_losses() { "full-precision" } else { "" };
    CommandProber::probe_dir(folder, job.number).with_extension(suffix)
}

/// Writes the rendered files of a probe, to its own folder if it has one.
pub(super) fn write_rendered(rendered: &Rendered, probe_dir: &Path, has_folder: bool) -> Result<(), ProbeError> {
    if has_folder {
        // Files of an interrupted attempt at the same trial would change this attempt.
        match fs::remove_dir_all(probe_dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ProbeError::io("empty", probe_dir)(error));
            }
            _ => {}
        }
        fs::create_dir_all(probe_dir).map_err(ProbeError::io("create", probe_dir))?;
    }
    for (path, text) in &rendered.files {
        let parent = path.parent().unwrap_or(probe_dir);
        fs::create_dir_all(parent).map_err(ProbeError::io("create", parent))?;
        fs::write(path, text).map_err(ProbeError::io("write", path))?;
    }
    Ok(())
}

/// Prepares the folder for a probe's writes, and sets the environment variables of the protection. If the folder has no
/// layers, the hook guards files and needs the folder's path.
pub(super) fn writes_of(
    protection: Option<&Protection>,
    (layer, own): (&str, &[PathBuf]),
    env: &mut BTreeMap<String, String>,
) -> Result<Option<ProbeScratch>, ProbeError> {
    let Some(protection) = protection else { return Ok(None) };
    let folder = protection.store().unwrap_or(Path::new(""));
    let scratch = protection.for_probe(layer, own).map_err(ProbeError::io("make the scratch layer in", folder))?;
    env.insert(protocol::WRITES.to_owned(), protection.name().to_owned());
    match &scratch {
        Some(scratch) if scratch.layout.is_none() => {
            env.insert(protocol::SCRATCH.to_owned(), scratch.folder.display().to_string());
        }
        // Container images often set this variable. With a layer, Python may write compiled modules: the layers of
        // caches last for the whole search, so each later probe starts seconds sooner.
        Some(_) => {
            env.entry(NO_BYTECODE.to_owned()).or_default();
        }
        None => {}
    }
    Ok(scratch)
}

pub(super) enum Process<'w> {
    Fresh { tells_imports: bool },
    Forked { warm: &'w mut Warm, zygote: usize },
}

impl Process<'_> {
    /// Starts the order's command. Returns its supervisor, and the id of the process from which the command was forked.
    pub(super) fn start(
        self,
        supervisor: &Path,
        order: &mut Order,
        output: &OwnedFd,
        sender: &SyncSender<Message>,
    ) -> Result<(Supervised, Option<u32>), ProbeError> {
        let (sender, output) = (sender.clone(), output.as_fd());
        let tell = Box::new(move |report| sender.send(Message::Supervisor(report)).is_ok());
        let Self::Forked { warm, zygote, .. } = self else {
            let supervised = Supervised::start(supervisor, order, output, tell);
            return Ok((supervised.map_err(ProbeError::io("start the supervisor", supervisor))?, None));
        };
        let cannot = |reason| ProbeError::Start { program: "python".to_owned(), reason, hint: String::new() };
        let (zygote, arguments) =
            warm.zygote(zygote, &order.command).ok_or_else(|| cannot("it has ended".to_owned()))?;
        order.command = arguments;
        let forked = zygote.fork(order, output, tell).map(|forked| (forked, zygote.pid));
        forked.map_err(|reason| match reason {
            NoFork::Lost(reason) => cannot(reason),
            NoFork::Unfit(reason) => {
                warm.give_up(&reason);
                cannot(reason)
            }
        })
    }
}

impl CommandProber {
    /// Probes a config in a forked process if possible, else in a fresh process. If the forked process fails, a fresh
    /// process repeats the probe, and only the outcome of the fresh process counts.
    pub(super) fn probe_somehow(
        &mut self,
        warm: &mut Warm,
        job: &Job,
        watch: Watch<'_>,
    ) -> Result<Outcome, ProbeError> {
        let folder = Self::probe_dir(&self.folder, job.number);
        let rendered = self.step.template.render(&job.settings, &self.step.gputune, &folder);
        let env = environment(rendered.env, job);
        match warm.way(&self.step, (&self.folder, self.protection.as_ref()), (job, &env), watch) {
            Way::Interrupted => Ok(Outcome::Interrupted),
            Way::Fresh { tells_imports } => self.probe_fresh(warm, job, watch, tells_imports),
            Way::Warm { zygote } => {
                let process = Process::Forked { warm, zygote };
                let outcome = match self.probe_once(process, job, watch) {
                    Ok(outcome) => outcome.0,
                    Err(ProbeError::Start { reason, .. } | ProbeError::Environment { reason, .. }) => {
                        warm.not_forked(&reason);
                        return self.probe_fresh(warm, job, watch, false);
                    }
                    Err(error) => return Err(error),
                };
                if outcome.failure().is_none() || matches!(outcome, Outcome::Disturbed(_)) {
                    return Ok(outcome);
                }
                warm.failed(job.number);
                let outcome = self.probe_fresh(warm, job, watch, false)?;
                if outcome.failure().is_some() {
                    warm.failed_fresh_too();
                }
                Ok(outcome)
            }
        }
    }

    fn probe_fresh(
        &mut self,
        warm: &mut Warm,
        job: &Job,
        watch: Watch<'_>,
        tells_imports: bool,
    ) -> Result<Outcome, ProbeError> {
        let (outcome, told) = self.probe_once(Process::Fresh { tells_imports }, job, watch)?;
        warm.learn(told, &outcome);
        Ok(outcome)
    }
}
