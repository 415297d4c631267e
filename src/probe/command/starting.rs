//! Chooses how a probe of a command starts: as a fresh process, or forked from a process that has done the imports.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::SyncSender;

use super::super::heard::Message;
use super::super::orders::Order;
use super::super::supervisor::Supervised;
use super::super::warm::{NoFork, Warm, Way};
use super::surroundings::environment;
use super::{CommandProber, Job, ProbeError, Visible, Watch};
use crate::model::Outcome;

/// How one process of a probe is started.
pub(super) enum Process<'w> {
    Fresh {
        /// True if the process reports its imports.
        tells_imports: bool,
    },
    Forked {
        warm: &'w mut Warm,
        zygote: usize,
    },
}

impl Process<'_> {
    pub(super) fn tells_imports(&self) -> bool {
        matches!(self, Self::Fresh { tells_imports: true })
    }

    pub(super) fn is_forked(&self) -> bool {
        matches!(self, Self::Forked { .. })
    }

    /// Starts the order's command. Returns its supervisor, and the process that it was forked from.
    pub(super) fn start(
        self,
        supervisor: &Path,
        order: &mut Order,
        output: &OwnedFd,
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
    /// Probes a config in the best way. A failure counts only if the process was fresh.
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
            Way::Warm { zygote } => {
                let process = Process::Forked { warm, zygote };
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
        let (outcome, told) = self.probe_once(Process::Fresh { tells_imports }, job, visible, watch)?;
        warm.learn(told, &outcome);
        Ok(outcome)
    }
}
