//! A duel in one process that receives the settings of one side after the other, if all differences can change between two steps.

use super::super::super::duel::{Bout, DuelEnd, Side, Stage};
use super::super::segments::Answer;
use super::super::session::Session;
use super::super::verdict::Verdict;
use super::super::{CommandProber, Job, ProbeError};
use super::Tried;
use super::in_turn::Warmed;
use super::turn::{Turn, in_words, warming};
use crate::model::Outcome;

impl CommandProber {
    pub(super) fn duel_switched(&mut self, bout: &mut Bout<'_, '_>) -> Result<Tried, ProbeError> {
        if let Some(reason) = self.cannot_switch(bout) {
            return Ok(Tried::Cannot(reason));
        }
        if self.settle_for(bout)?.is_none() {
            return Ok(Tried::Over(DuelEnd::Interrupted));
        }
        if let Some(mut held) = self.live.held.take() {
            let tried = switch_in_turn(bout, &mut held.session, None)?;
            bout.look_at_gpus();
            bout.processes.fill(held.number);
            if matches!(tried, Tried::Over(DuelEnd::AllRounds | DuelEnd::TimeIsUp | DuelEnd::Precise)) {
                let last = bout.blocks.last().map_or(Side::A, |block| block.side);
                self.live.keep(held, bout.duel.job(last));
            }
            return Ok(tried);
        }
        let mut session = match self.warm_up(bout, (Side::A, 0), None)? {
            Warmed::Held(session) => session,
            Warmed::Ended(tried) => return Ok(tried),
        };
        let tried = switch_in_turn(bout, &mut session, Some(Side::A))?;
        bout.look_at_gpus();
        bout.stage = Stage::Ending;
        let verdict = match tried {
            Tried::Over(DuelEnd::Interrupted) => Verdict::Interrupted,
            _ => Verdict::Enough,
        };
        session.close(&verdict, &mut bout.watch(Side::A))?;
        Ok(tried)
    }

    fn cannot_switch(&self, bout: &Bout<'_, '_>) -> Option<String> {
        let opened = self.live.held.as_ref().map(|held| &held.opened);
        let first = opened.unwrap_or(bout.duel.job(Side::A).settings);
        let is_switch = |job: &Job<'_>| self.live.is_switch(&self.step, first, job.settings);
        let needs =
            (!bout.duel.jobs.iter().all(is_switch)).then(|| "what differs needs a process of its own".to_owned());
        needs.or_else(|| self.cannot_hold())
    }
}

/// Gives a waiting process the settings of the next side, and trains it for a block.
fn switch_in_turn(bout: &mut Bout<'_, '_>, session: &mut Session, has: Option<Side>) -> Result<Tried, ProbeError> {
    let mut has = has;
    loop {
        let side = match bout.next() {
            Ok(side) => side,
            Err(end) => return Ok(Tried::Over(end)),
        };
        let limits = warming(bout.duel.job(side).limits);
        let job = Job { limits: &limits, ..*bout.duel.job(side) };
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
            Turn::Block(block) => bout.blocks.push(block),
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
                // These are not the losses of the first steps.
                measurement.first_losses.clear();
                measurement.is_live = true;
            }
            other => return Ok(Tried::Cannot(format!("{side} {}", in_words(other)))),
        }
        bout.sides[side.place()] = Some(outcome);
    }
}
