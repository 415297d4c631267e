//! A duel of interleaved processes: one process trains for a block while all other processes stand still.

use super::super::super::duel::{Bout, DuelEnd, Side, Stage};
use super::super::super::orders::Ending;
use super::super::segments::Answer;
use super::super::session::{Opening, Session};
use super::super::stable::Open;
use super::super::starting::{Process, environment};
use super::super::verdict::Verdict;
use super::super::{CommandProber, Effort, Job, ProbeError};
use super::Tried;
use super::turn::{Turn, in_words, warming};
use crate::model::Outcome;

enum Taken {
    Tried(Tried),
    /// The process of this side has ended; another process may replace it.
    Ended(Side),
}

impl CommandProber {
    pub(super) fn duel_in_turn(&mut self, bout: &mut Bout<'_, '_>) -> Result<Tried, ProbeError> {
        let mut open: Vec<Open> = Vec::new();
        let mut tried = None;
        for side in bout.duel.sides() {
            let opened = match self.stable.take(&bout.duel.job(side).config).filter(|_| bout.duel.keeps) {
                Some(held) => Ok(held),
                None => self.opened(bout, side, open.len())?,
            };
            match opened {
                Ok(next) => open.push(next),
                Err(failed) => {
                    tried = Some(failed);
                    break;
                }
            }
        }
        // In a search, a process that ends on its own is replaced once per side.
        let mut replaced = vec![!bout.duel.keeps; bout.duel.jobs.len()];
        let tried = loop {
            if let Some(tried) = tried {
                break tried;
            }
            match take_turns(bout, &mut open)? {
                Taken::Tried(it) => tried = Some(it),
                Taken::Ended(side) if std::mem::replace(&mut replaced[side.place()], true) => {
                    tried = Some(Tried::Cannot(format!("{side} ends before its turn is over")));
                }
                Taken::Ended(side) => {
                    open[side.place()].session.close(&Verdict::Exited, &mut bout.watch(side))?;
                    match self.opened(bout, side, bout.duel.jobs.len())? {
                        Ok(next) => open[side.place()] = next,
                        Err(failed) => tried = Some(failed),
                    }
                }
            }
        };
        bout.look_at_gpus();
        bout.stage = Stage::Ending;
        let is_over = matches!(tried, Tried::Over(_)) && open.len() == bout.duel.jobs.len();
        let is_interrupted = matches!(tried, Tried::Over(DuelEnd::Interrupted));
        let verdict = if is_interrupted { Verdict::Interrupted } else { Verdict::Enough };
        for (side, mut held) in bout.duel.sides().zip(open) {
            // If the caller stopped the duel during a block, the finished blocks count, provided that every side has one.
            if is_over && (!is_interrupted || bout.has_slices()) {
                bout.result.sides[side.place()] = Some(held.session.own_outcome(bout.rate(side), true));
                bout.result.processes[side.place()] = held.number;
            }
            if bout.duel.keeps && !is_interrupted && held.session.supervised.is_some() {
                self.stable.put(held);
            } else if held.session.supervised.is_some() {
                held.session.close(&verdict, &mut bout.watch(side))?;
            }
        }
        Ok(tried)
    }

    /// Starts the process of a side, and stops it after its warm-up. The inner error says why the side has no process.
    fn opened(&mut self, bout: &mut Bout<'_, '_>, side: Side, place: usize) -> Result<Result<Open, Tried>, ProbeError> {
        let zygote = self.zygote_for(bout, side);
        let place = if bout.duel.keeps { self.stable.free_place() + place } else { place };
        let warmed = self.warm_up(bout, (side, place), zygote)?;
        Ok(warmed.map(|mut session| {
            session.pause();
            Open::new(session, bout.duel.job(side))
        }))
    }

    /// Returns the zygote that forks a side's process; `None` for a fresh process. In a single comparison, all sides
    /// are forked or none. In a search, a config gets a fresh process if `Stable::restart` ended its forked process.
    fn zygote_for(&mut self, bout: &Bout<'_, '_>, side: Side) -> Option<usize> {
        let mut zygote = |job: &Job| {
            let folder = Self::probe_dir(&self.folder, job.number);
            let rendered = self.step.template.render(&job.settings, &self.step.gputune, &folder);
            self.warm.ready(&environment(rendered.env, job))
        };
        if bout.duel.keeps {
            let job = bout.duel.job(side);
            return if self.stable.needs_fresh(&job.config) { None } else { zygote(job) };
        }
        let all: Option<Vec<usize>> = bout.duel.jobs.iter().map(zygote).collect();
        all.map(|zygotes| zygotes[side.place()])
    }

    /// Starts a side's process, and makes it wait after its warm-up. The inner error says why the process does not
    /// wait.
    pub(super) fn warm_up(
        &mut self,
        bout: &mut Bout<'_, '_>,
        (side, place): (Side, usize),
        zygote: Option<usize>,
    ) -> Result<Result<Box<Session>, Tried>, ProbeError> {
        bout.stage = Stage::Warming;
        let job = bout.duel.job(side);
        let job = Job { limits: warming(&job.limits), effort: Effort::Probe, ..job.clone() };
        let process = match zygote {
            Some(zygote) => Process::Forked { warm: &mut self.warm, zygote },
            None => Process::Fresh { tells_imports: false },
        };
        let opening = Opening { process, keeps: true, place };
        let opened = Session::open(&self.step, (&self.folder, self.protection.as_ref()), opening, &job);
        let cannot = |reason: String| Ok(Err(Tried::Cannot(format!("{side} {reason}"))));
        let mut session = match opened {
            Err(ProbeError::Start { reason, .. }) if zygote.is_some() => {
                self.warm.not_forked(&reason);
                return cannot(format!("could not be forked: {reason}"));
            }
            opened => Box::new(opened?),
        };
        let verdict = session.measure(&mut bout.watch(side))?;
        if session.heard.any_step() {
            self.known_words.learn(&session.words);
        }
        let outcome = verdict.is_good().then(|| session.outcome(&verdict));
        if matches!(outcome, Some(Outcome::Measured(_))) && session.can_go_on() {
            let patience = session.job.limits.grace_time;
            let answer = session.hold(patience, &mut bout.watch(side))?;
            match answer {
                Answer::Done => return Ok(Ok(session)),
                Answer::Interrupted => {
                    session.close(&Verdict::Interrupted, &mut bout.watch(side))?;
                    return Ok(Err(Tried::Over(DuelEnd::Interrupted)));
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
                let waits_not = "does not wait between two steps when it is asked to";
                let what = if is_several { "is several processes" } else { waits_not };
                cannot(what.to_owned())
            }
            _ if matches!(verdict, Verdict::Interrupted) => Ok(Err(Tried::Over(DuelEnd::Interrupted))),
            outcome => {
                let outcome = outcome.unwrap_or_else(|| session.outcome(&verdict));
                let ending = if side == Side::A { "ended as " } else { "ended next to A as " };
                cannot(format!("{ending}{}", in_words(&outcome)))
            }
        }
    }
}

/// Trains all sides interleaved until the result is good enough. All processes are stopped at first.
fn take_turns(bout: &mut Bout<'_, '_>, open: &mut [Open]) -> Result<Taken, ProbeError> {
    bout.stage = Stage::Measuring;
    open.iter_mut().for_each(|held| held.session.stops_when_held = true);
    let mut last: Option<Side> = None;
    let taken = loop {
        let side = match bout.next() {
            Ok(side) => side,
            Err(end) => break Tried::Over(end),
        };
        let mut was_kept = true;
        if last != Some(side) {
            if let Some(last) = last.replace(side) {
                open[last.place()].session.pause();
            }
            was_kept = open[side.place()].session.is_stopped;
        }
        let session = &mut *open[side.place()].session;
        let plan = session.plan(bout.duel.job(side), was_kept, bout.length(side));
        let began = bout.began;
        let turn = session.turn((side, began), plan, &mut bout.watch(side))?;
        match turn {
            Turn::Block(block) => bout.result.blocks.push(block),
            Turn::Ended(Verdict::Interrupted) => break Tried::Over(DuelEnd::Interrupted),
            Turn::Ended(Verdict::Exited) if session.heard.ending.is_none_or(Ending::is_success) => {
                if !bout.duel.keeps && bout.has_enough() {
                    break Tried::Over(DuelEnd::TrainingOver);
                }
                return Ok(Taken::Ended(side));
            }
            Turn::Ended(verdict) => {
                let outcome = in_words(&session.outcome(&verdict));
                break Tried::Cannot(format!("{side} ended while they took turns: {outcome}"));
            }
            Turn::NotHeld => break Tried::Cannot(format!("{side} does not wait between two steps any more")),
        }
    };
    if let Some(last) = last {
        open[last.place()].session.pause();
    }
    Ok(Taken::Tried(taken))
}
