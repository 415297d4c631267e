//! Runs a duel: with interleaved processes, else with one process that switches settings, else with one process after the other.

mod in_turn;
mod pause;
mod switched;
mod turn;

use std::time::Instant;

use super::super::duel::{Bout, Duel, DuelEnd, DuelWatch, Duelled, Side, Way, run_processes};
use super::{CommandProber, ProbeError, Rate};
use crate::model::{Failure, Outcome};

/// The result of trying one way to run a duel.
enum Tried {
    Over(DuelEnd),
    Cannot(String),
}

impl CommandProber {
    /// Compares configs in the best available way. A failure counts only if the process ran alone.
    pub(super) fn run_duel(&mut self, duel: &Duel<'_>, watch: DuelWatch<'_>) -> Result<Duelled, ProbeError> {
        for side in duel.sides() {
            if let Some(reason) = self.refusal(duel.job(side)) {
                return Ok(Duelled::failed(side, duel.jobs.len(), Outcome::Rejected(Failure::new(reason))));
            }
        }
        self.protect()?;
        // A process that changes settings between two steps needs no second process.
        let ways = if duel.keeps && self.live.held.is_some() && duel.ways.contains(&Way::Switched) {
            &[Way::Switched, Way::InTurn, Way::Processes]
        } else {
            duel.ways
        };
        let mut bout = Bout::new(duel, watch);
        for &way in ways {
            match &mut self.live.held {
                Some(_) if way == Way::Switched && duel.keeps => {}
                // The search continues in this process.
                Some(held) if way == Way::InTurn && ways.contains(&Way::Switched) => {
                    held.session.pause();
                }
                // Dropping it ends the process that waits for another config.
                held => *held = None,
            }
            if way == Way::Processes {
                self.stable.keep(&[]);
            }
            bout.begin(way);
            let tried = match way {
                Way::InTurn => self.duel_in_turn(&mut bout)?,
                Way::Switched => self.duel_switched(&mut bout)?,
                Way::Processes => Tried::Over(run_processes(self, &mut bout)?),
            };
            match tried {
                Tried::Over(end) => return Ok(bout.finish(end)),
                Tried::Cannot(reason) => bout.fall_back(format!("not as {way}: {reason}")),
            }
        }
        Ok(bout.finish(DuelEnd::Failed))
    }

    /// Returns the reason, if known before a start, why processes of this step cannot be held between two steps.
    pub(super) fn cannot_hold(&self) -> Option<String> {
        if matches!(self.step.rate, Rate::Pattern { .. }) {
            return Some("a rate that the script prints may be a mean over the time in which it was held".to_owned());
        }
        if self.is_alone {
            return Some("it fails next to another process of itself".to_owned());
        }
        (self.obeys == Some(false)).then(|| "it is several processes, or does not know orders".to_owned())
    }

    /// Waits until the machine is idle again, then starts to watch it. Returns `None` if the caller stops waiting.
    fn settle_for(&mut self, bout: &mut Bout<'_, '_>) -> Result<Option<()>, ProbeError> {
        let visible = self.visible(bout.duel.job(Side::A));
        if !self.stable.is_empty() {
            return Ok(Some(()));
        }
        if self.settle(&visible, &mut bout.watch(Side::A))?.is_break() {
            return Ok(None);
        }
        if let Some(idle) = self.idle.as_ref().filter(|_| self.step.is_gpu) {
            bout.watch_gpus(&visible, idle.gpu_state(&visible), Instant::now());
        }
        Ok(Some(()))
    }
}
