//! Runs a duel: interleaves processes, or else switches the settings of one process, or else runs one process after the
//! other.

mod in_turn;
mod turn;

use std::time::Instant;

use super::super::duel::{Bout, Duel, DuelEnd, DuelWatch, Duelled, Side, Stage, Way, run_processes};
use super::segments::Answer;
use super::session::Session;
use super::verdict::Verdict;
use super::{CommandProber, Job, ProbeError, Rate};
use crate::model::{Failure, Outcome};
use turn::{Turn, in_words, warming};

enum Tried {
    Over(DuelEnd),
    Cannot(String),
}

/// Returns the message that a way to run a duel is not possible. It says what follows if `next` starts new processes.
fn fallback(way: Way, next: Option<Way>, reason: &str) -> String {
    let cannot = match way {
        Way::InTurn => "processes cannot train in turn",
        Way::Switched => "one process cannot switch between the configs",
        Way::Processes => "new processes cannot be started",
    };
    if next == Some(Way::Processes) {
        return format!("each comparison starts new processes, which takes longer, because {cannot}: {reason}");
    }
    format!("{cannot}: {reason}")
}

impl CommandProber {
    /// Compares configs in the best possible way. A failure counts only in the last way, where each process runs alone.
    pub(super) fn run_duel(&mut self, duel: &Duel<'_>, watch: DuelWatch<'_>) -> Result<Duelled, ProbeError> {
        for side in duel.sides() {
            if let Some(reason) = self.refusal(duel.job(side)) {
                return Ok(Duelled::failed(side, duel.jobs.len(), Outcome::Rejected(Failure::new(reason))));
            }
        }
        self.protect()?;
        // Try the held process of the search first: it can switch settings, so no second process must start.
        let ways = if duel.keeps && self.live.held.is_some() && duel.ways.contains(&Way::Switched) {
            &[Way::Switched, Way::InTurn, Way::Processes]
        } else {
            duel.ways
        };
        let mut bout = Bout::new(duel, watch);
        for (at, &way) in ways.iter().enumerate() {
            match &mut self.live.held {
                Some(_) if way == Way::Switched && duel.keeps => {}
                // The search needs this process after the duel.
                Some(held) if way == Way::InTurn && ways.contains(&Way::Switched) => {
                    held.process.session.pause();
                }
                // Dropping a held process ends it.
                held => *held = None,
            }
            if way == Way::Processes {
                self.stable.keep(&[]);
            }
            bout.begin(way);
            let cannot = match way {
                Way::InTurn => self.cannot_hold(),
                Way::Switched => self.cannot_switch(&bout),
                Way::Processes => None,
            };
            let tried = match (cannot, way) {
                (Some(reason), _) => Tried::Cannot(reason),
                (None, Way::Processes) => Tried::Over(run_processes(self, &mut bout)?),
                (None, _) if !self.settle_for(&mut bout)? => Tried::Over(DuelEnd::Interrupted),
                (None, Way::InTurn) => self.duel_in_turn(&mut bout)?,
                (None, Way::Switched) => self.duel_switched(&mut bout)?,
            };
            match tried {
                Tried::Over(end) => return Ok(bout.finish(end)),
                Tried::Cannot(reason) => {
                    bout.result.fallbacks.push(fallback(way, ways.get(at + 1).copied(), &reason));
                }
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
            return Some("the step fails next to another process of itself".to_owned());
        }
        let words = "the step has several processes, or does not wait between two steps when it is asked to";
        (self.obeys == Some(false)).then(|| words.to_owned())
    }

    /// Returns the reason, if known before a start, why one process cannot receive the settings of all sides.
    fn cannot_switch(&self, bout: &Bout<'_, '_>) -> Option<String> {
        let opened = self.live.held.as_ref().map(|held| &held.opened);
        let first = opened.unwrap_or(&bout.duel.job(Side::A).settings);
        let is_switch = |job: &Job| self.live.is_switch(&self.step, first, &job.settings);
        if bout.duel.jobs.iter().all(is_switch) {
            self.cannot_hold()
        } else {
            Some("a setting that differs only takes effect when a process starts".to_owned())
        }
    }

    /// Waits until the machine is idle, then starts to watch its GPUs. Does nothing if stopped processes of the
    /// search's last duel exist. Returns false if the caller stops waiting.
    fn settle_for(&mut self, bout: &mut Bout<'_, '_>) -> Result<bool, ProbeError> {
        let visible = self.visible(bout.duel.job(Side::A));
        if !self.stable.is_empty() {
            return Ok(true);
        }
        if self.settle(&visible, &mut bout.watch(Side::A))?.is_break() {
            return Ok(false);
        }
        if let Some(idle) = self.idle.as_ref().filter(|_| self.step.is_gpu) {
            bout.watch_gpus(&visible, idle.gpu_state(&visible), Instant::now());
        }
        Ok(true)
    }

    /// Runs a duel in one process that receives the settings of one side after the other.
    fn duel_switched(&mut self, bout: &mut Bout<'_, '_>) -> Result<Tried, ProbeError> {
        if let Some(mut held) = self.live.held.take() {
            let tried = switch_in_turn(bout, &mut held.process.session, None)?;
            bout.look_at_gpus();
            bout.result.processes.fill(held.process.number);
            if matches!(tried, Tried::Over(DuelEnd::AllRounds | DuelEnd::TimeIsUp | DuelEnd::Precise)) {
                let last = bout.result.blocks.last().map_or(Side::A, |block| block.side);
                self.live.keep(held, bout.duel.job(last));
            }
            return Ok(tried);
        }
        let mut session = match self.warm_up(bout, (Side::A, 0), None)? {
            Ok(session) => session,
            Err(tried) => return Ok(tried),
        };
        let tried = switch_in_turn(bout, &mut session, Some(Side::A))?;
        bout.look_at_gpus();
        bout.stage = Stage::Ending;
        let is_interrupted = matches!(tried, Tried::Over(DuelEnd::Interrupted));
        let verdict = if is_interrupted { Verdict::Interrupted } else { Verdict::Enough };
        session.close(&verdict, &mut bout.watch(Side::A))?;
        Ok(tried)
    }
}

/// Runs the blocks of a duel in one waiting process. `has` is the side whose settings the process has.
fn switch_in_turn(bout: &mut Bout<'_, '_>, session: &mut Session, mut has: Option<Side>) -> Result<Tried, ProbeError> {
    loop {
        let side = match bout.next() {
            Ok(side) => side,
            Err(end) => return Ok(Tried::Over(end)),
        };
        let job = bout.duel.job(side);
        let job = Job { limits: warming(&job.limits), ..job.clone() };
        let is_same = Some(side) == has;
        if !is_same {
            let answer = session.configure(&job, &mut bout.watch(side))?;
            match answer {
                Answer::Done => {}
                Answer::Interrupted => return Ok(Tried::Over(DuelEnd::Interrupted)),
                Answer::Refused(reason) => return Ok(Tried::Cannot(reason)),
                Answer::None => return Ok(Tried::Cannot("it does not take other settings".to_owned())),
            }
            has = Some(side);
        }
        bout.stage = Stage::Measuring;
        let plan = session.plan(&job, is_same, bout.length(side));
        let began = bout.began;
        let turn = session.turn((side, began), plan, &mut bout.watch(side))?;
        match turn {
            Turn::Block(block) => bout.result.blocks.push(block),
            Turn::Ended(Verdict::Interrupted) => return Ok(Tried::Over(DuelEnd::Interrupted)),
            Turn::Ended(verdict) => {
                let outcome = in_words(&session.outcome(&verdict));
                return Ok(Tried::Cannot(format!("with the settings of {side} it ended: {outcome}")));
            }
            Turn::NotHeld => return Ok(Tried::Cannot("it does not wait between two steps any more".to_owned())),
        }
        let mut outcome = session.own_outcome(bout.rate(side), false);
        match &mut outcome {
            Outcome::Measured(measurement) => {
                // Earlier blocks trained the same model, so these are not the losses of its first steps.
                measurement.first_losses.clear();
                measurement.is_live = true;
            }
            other => return Ok(Tried::Cannot(format!("{side} {}", in_words(other)))),
        }
        bout.result.sides[side.place()] = Some(outcome);
    }
}
