//! Chooses how a probe of a command is started: as a process of its own, or forked from one that has done the imports.

use std::io::PipeWriter;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use super::super::heard::Message;
use super::super::orders::Order;
use super::super::supervisor::Supervised;
use super::super::warm::{First, NoFork, Warm, Way};
use super::surroundings::environment;
use super::{CommandProber, Effort, Job, ProbeError, Visible, Watch};
use crate::model::Outcome;

/// How one process of a probe is started. It `is_proof` if it only shows that a fork measures as a fresh process does.
pub(super) enum Process<'w> {
    Fresh {
        /// Whether it is to tell what it imports.
        tells_imports: bool,
        is_proof: bool,
    },
    Forked {
        warm: &'w mut Warm,
        zygote: usize,
        is_proof: bool,
    },
}

/// Whether each further run of the first config is forked.
const TURNS: [bool; 4] = [true, false, true, false];

impl Process<'_> {
    pub(super) fn tells_imports(&self) -> bool {
        matches!(self, Self::Fresh { tells_imports: true, .. })
    }

    pub(super) fn is_proof(&self) -> bool {
        matches!(self, Self::Fresh { is_proof: true, .. } | Self::Forked { is_proof: true, .. })
    }

    pub(super) fn is_forked(&self) -> bool {
        matches!(self, Self::Forked { .. })
    }

    /// The log; a run that only proves something has its own, so that the trial's stays.
    pub(super) fn log_name(&self, job: &Job<'_>) -> PathBuf {
        match self {
            _ if self.is_proof() => PathBuf::from(format!("logs/{:04}-again.log", job.number)),
            _ => CommandProber::log_name(job.number, job.effort),
        }
    }

    /// Starts the order's command; returns its supervisor, and the process that it was forked from.
    pub(super) fn start(
        self,
        supervisor: &Path,
        order: &mut Order,
        output: &PipeWriter,
        sender: &SyncSender<Message>,
    ) -> Result<(Supervised, Option<u32>), ProbeError> {
        let (sender, output) = (sender.clone(), output.as_fd());
        let Self::Forked { warm, zygote, .. } = self else {
            let supervised = Supervised::start(supervisor, order, output, sender, Message::Supervisor);
            return Ok((supervised.map_err(ProbeError::io("start the supervisor", supervisor))?, None));
        };
        let cannot = |reason| ProbeError::Start { program: "python".to_owned(), reason, hint: String::new() };
        let (zygote, arguments) =
            warm.zygote(zygote, &order.command).ok_or_else(|| cannot("it has ended".to_owned()))?;
        order.command = arguments;
        let forked = zygote.fork(order, output, sender, Message::Supervisor).map(|forked| (forked, zygote.pid()));
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
    /// Probes a config in the best way; a failure counts only if the process was fresh.
    pub(super) fn probe_somehow(
        &mut self,
        warm: &mut Warm,
        job: &Job<'_>,
        visible: &Visible,
        watch: Watch<'_>,
    ) -> Result<Outcome, ProbeError> {
        let template = &self.step.template;
        let folder = Self::probe_dir(&self.folder, job.number);
        let rendered = template.render(job.settings, &self.step.gputune, &folder);
        let env = environment(rendered.env, job);
        let protection = self.protection.as_ref();
        let places = (self.folder.as_path(), template.cwd.as_path());
        match warm.way(&self.step, protection, places, (job, &env), watch) {
            Way::Interrupted => Ok(Outcome::Interrupted),
            Way::Fresh { tells_imports } => self.probe_fresh(warm, job, visible, watch, tells_imports),
            Way::Warm { zygote, proof, fits } => {
                if let Some(first) = proof
                    && !self.is_proved(warm, zygote, &first, job, visible, watch)?
                {
                    return self.probe_fresh(warm, job, visible, watch, false);
                }
                if !fits {
                    return self.probe_fresh(warm, job, visible, watch, false);
                }
                let process = Process::Forked { warm, zygote, is_proof: false };
                let outcome = match self.probe_once(process, job, visible, watch) {
                    Ok(outcome) => outcome.0,
                    Err(ProbeError::Start { reason, .. } | ProbeError::Environment { reason, .. }) => {
                        warm.not_forked(&reason);
                        return self.probe_fresh(warm, job, visible, watch, false);
                    }
                    Err(error) => return Err(error),
                };
                if outcome.failure().is_none() || matches!(outcome, Outcome::Disturbed(_)) {
                    return Ok(outcome);
                }
                warm.failed(job.number);
                let outcome = self.probe_fresh(warm, job, visible, watch, false)?;
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
        job: &Job<'_>,
        visible: &Visible,
        watch: Watch<'_>,
        tells_imports: bool,
    ) -> Result<Outcome, ProbeError> {
        let (outcome, told) =
            self.probe_once(Process::Fresh { tells_imports, is_proof: false }, job, visible, watch)?;
        warm.learn(told, job, &outcome);
        Ok(outcome)
    }

    /// Forks the first config, which was measured fresh; returns whether it measures the same.
    fn is_proved(
        &mut self,
        warm: &mut Warm,
        zygote: usize,
        first: &First,
        job: &Job<'_>,
        visible: &Visible,
        watch: Watch<'_>,
    ) -> Result<bool, ProbeError> {
        let limits = warm.proof_limits(job.limits);
        let same = Job {
            number: first.number,
            config: &first.config,
            settings: &first.settings,
            effort: Effort::Probe,
            rival: None,
            experiment: None,
            is_confirmed_later: false,
            limits: &limits,
        };
        // Noise may spoil a run, so fork and fresh process take turns before they are called different.
        for is_forked in TURNS {
            let process = if is_forked {
                Process::Forked { warm, zygote, is_proof: true }
            } else {
                Process::Fresh { tells_imports: false, is_proof: true }
            };
            let outcome = match self.probe_once(process, &same, visible, watch) {
                // The next probe tries again.
                Ok((Outcome::Interrupted | Outcome::Disturbed(_), _)) => return Ok(false),
                Ok((outcome, _)) => outcome,
                Err(ProbeError::Start { reason, .. } | ProbeError::Environment { reason, .. }) if is_forked => {
                    warm.not_forked(&reason);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            warm.spent += outcome.partial_measurement().and_then(|run| run.spent).unwrap_or_default();
            if warm.prove(&outcome, is_forked) {
                return Ok(true);
            }
        }
        warm.refute();
        Ok(false)
    }
}
