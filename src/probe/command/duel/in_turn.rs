//! A duel of as many processes: one trains for a block, the others stand still.

use super::super::super::duel::{DuelEnd, Side, Stage};
use super::super::super::orders::Ending;
use super::super::segments::Answer;
use super::super::session::{Opening, Session};
use super::super::starting::Process;
use super::super::surroundings::environment;
use super::super::verdict::Verdict;
use super::super::{CommandProber, Effort, Job, ProbeError};
use super::Tried;
use super::bout::Bout;
use super::turn::{Turn, in_words, warming};
use crate::model::Outcome;

/// A process that has warmed up, or what kept it from that.
pub(super) enum Warmed {
    Held(Box<Session>),
    Ended(Tried),
}

impl CommandProber {
    pub(super) fn duel_in_turn(&mut self, bout: &mut Bout<'_, '_>) -> Result<Tried, ProbeError> {
        if let Some(reason) = self.cannot_hold() {
            return Ok(Tried::Cannot(reason));
        }
        if self.settle_for(bout)?.is_none() {
            return Ok(Tried::Over(DuelEnd::Interrupted));
        }
        let zygotes = self.zygotes_of(bout);
        let mut sessions: Vec<Box<Session>> = Vec::new();
        for side in bout.duel.sides() {
            match self.warm_up(bout, side, zygotes.as_ref().map(|zygotes| zygotes[side.place()]))? {
                Warmed::Held(mut session) => {
                    session.pause();
                    sessions.push(session);
                }
                Warmed::Ended(tried) => {
                    bout.stage = Stage::Ending;
                    for (side, session) in bout.duel.sides().zip(&mut sessions) {
                        session.close(&Verdict::Enough, &mut bout.watch(side))?;
                    }
                    return Ok(tried);
                }
            }
        }
        let tried = take_turns(bout, &mut sessions)?;
        bout.look_at_gpus();
        bout.stage = Stage::Ending;
        let verdict =
            if matches!(tried, Tried::Over(DuelEnd::Interrupted)) { Verdict::Interrupted } else { Verdict::Enough };
        for (side, session) in bout.duel.sides().zip(&mut sessions) {
            if matches!(tried, Tried::Over(_)) && !matches!(verdict, Verdict::Interrupted) {
                bout.sides[side.place()] = Some(session.own_outcome(bout.rate(side), true));
            }
            session.close(&verdict, &mut bout.watch(side))?;
        }
        Ok(tried)
    }

    /// The zygotes that all can be forked from; none where one of them cannot, as all are to be started in the same way.
    fn zygotes_of(&mut self, bout: &Bout<'_, '_>) -> Option<Vec<usize>> {
        let zygote = |job: &Job<'_>| {
            let folder = Self::probe_dir(&self.folder, job.number);
            let rendered = self.step.template.render(job.settings, &self.step.gputune, &folder);
            self.warm.ready(&self.step, &environment(rendered.env, job))
        };
        bout.duel.jobs.iter().map(zygote).collect()
    }

    /// Starts a side's process, and has it wait between two steps once its warm-up is over.
    pub(super) fn warm_up(
        &mut self,
        bout: &mut Bout<'_, '_>,
        side: Side,
        zygote: Option<usize>,
    ) -> Result<Warmed, ProbeError> {
        bout.stage = Stage::Warming;
        let limits = warming(bout.duel.job(side).limits);
        let job = Job { limits: &limits, effort: Effort::Probe, rival: None, ..*bout.duel.job(side) };
        let process = match zygote {
            Some(zygote) => Process::Forked { warm: &mut self.warm, zygote, is_proof: false },
            None => Process::Fresh { tells_imports: false, is_proof: false },
        };
        let opening = Opening { process, keeps: true, place: side.place() };
        let opened = Session::open(&self.step, (&self.folder, self.protection.as_ref()), opening, &job);
        let cannot = |reason: String| Ok(Warmed::Ended(Tried::Cannot(format!("{side} {reason}"))));
        let mut session = match opened {
            Err(ProbeError::Start { reason, .. }) if zygote.is_some() => {
                self.warm.not_forked(&reason);
                return cannot(format!("could not be forked: {reason}"));
            }
            opened => Box::new(opened?),
        };
        let verdict = session.measure(&mut bout.watch(side))?;
        let verdict = session.in_time(verdict);
        if session.heard.any_step() {
            self.known_words.learn(&session.words);
        }
        let outcome = verdict.is_good().then(|| session.outcome(&verdict));
        let is_measured = matches!(outcome, Some(Outcome::Measured(_)));
        let holds = is_measured && session.can_go_on();
        if holds {
            let patience = session.task.limits.grace_time;
            let answer = session.hold(patience, &mut bout.watch(side))?;
            match answer {
                Answer::Done => return Ok(Warmed::Held(session)),
                Answer::Interrupted => {
                    session.close(&Verdict::Interrupted, &mut bout.watch(side))?;
                    return Ok(Warmed::Ended(Tried::Over(DuelEnd::Interrupted)));
                }
                Answer::None | Answer::Refused(_) => {}
            }
        }
        bout.stage = Stage::Ending;
        session.close(&verdict, &mut bout.watch(side))?;
        let outcome = match session.of_environment(&verdict, &self.known_words) {
            Some(blamed) => Some(blamed?),
            None => outcome,
        };
        match outcome {
            Some(Outcome::Measured(_)) => {
                self.obeys = Some(false);
                let is_several = session.heard.ranks.count() > 1;
                let what = if is_several {
                    "is several processes"
                } else {
                    "does not wait between two steps when it is asked to"
                };
                cannot(what.to_owned())
            }
            _ if matches!(verdict, Verdict::Interrupted) => Ok(Warmed::Ended(Tried::Over(DuelEnd::Interrupted))),
            outcome => {
                let outcome = outcome.unwrap_or_else(|| session.outcome(&verdict));
                let beside = if side == Side::A { "ended as " } else { "ended beside A as " };
                cannot(format!("{beside}{}", in_words(&outcome)))
            }
        }
    }
}

/// Has all train in turn until it is enough. All of them stand still before.
fn take_turns(bout: &mut Bout<'_, '_>, sessions: &mut [Box<Session>]) -> Result<Tried, ProbeError> {
    bout.stage = Stage::Measuring;
    let mut last: Option<Side> = None;
    loop {
        let side = match bout.next() {
            Ok(side) => side,
            Err(end) => return Ok(Tried::Over(end)),
        };
        let mut was_kept = true;
        if last != Some(side) {
            if let Some(last) = last.replace(side) {
                sessions[last.place()].pause();
            }
            was_kept = sessions[side.place()].is_stopped;
        }
        let session = &mut *sessions[side.place()];
        let plan = session.plan(bout.duel.job(side), was_kept, bout.length(side));
        let began = bout.began;
        let turn = session.turn((side, began), plan, &mut bout.watch(side))?;
        match turn {
            Turn::Block(block) => bout.blocks.push(block),
            Turn::Ended(Verdict::Interrupted) => return Ok(Tried::Over(DuelEnd::Interrupted)),
            Turn::Ended(Verdict::Exited)
                if session.heard.ending.is_none_or(Ending::is_success) && bout.has_enough() =>
            {
                return Ok(Tried::Over(DuelEnd::TrainingOver));
            }
            Turn::Ended(verdict) => {
                let outcome = in_words(&session.outcome(&verdict));
                return Ok(Tried::Cannot(format!("{side} ended while they took turns: {outcome}")));
            }
            Turn::NotHeld => return Ok(Tried::Cannot(format!("{side} does not wait between two steps any more"))),
        }
    }
}
