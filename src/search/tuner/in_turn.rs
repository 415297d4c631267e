//! Confirms the leaders and the baseline in turn, seconds apart, where their processes can be held.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::TuneError;
use super::search::{OnEvent, Search};
use crate::model::{Config, Event, InTurn, Measurement, Outcome, Purpose, Settings, Trial};
use crate::probe::duel::{Duel, DuelEnd, Duelled, ROUNDS, Side, Way};
use crate::probe::stats::NORMAL_95;
use crate::probe::{Effort, Job};
use crate::search::journal;
use crate::search::noise::NoisePrior;

/// Half the width of the interval that the ratio of two processes falls into if they are started again, on a machine of which nothing
/// is known.
///
/// How another pair of processes differs only the next round of confirmations tells, so that turns of these which tell less are not
/// worth their time. More are where somebody else's bursts come and go. How far apart runs were in this search or in earlier
/// ones is no measure of it: there each met what others did at its own time.
fn processes_apart() -> f64 {
    NORMAL_95 * std::f64::consts::SQRT_2 * NoisePrior::RATE.deviation
}

/// How a round ended.
pub(super) enum Turns {
    /// It is in the history.
    Done,
    /// It could not be had, and each has to be measured on its own.
    Apart,
    /// Someone stopped it.
    Interrupted,
}

impl Search<'_, '_> {
    /// Measures configs in turn, as one round of confirmations.
    ///
    /// Each in a process of its own: leaders that only one process took, one after the other, are not confirmed by it.
    pub(super) fn confirm_in_turn(&mut self, configs: &[Config], on_event: OnEvent<'_>) -> Result<Turns, TuneError> {
        if !self.can_take_turns || !self.is_quick(configs) {
            return Ok(Turns::Apart);
        }
        let settings: Vec<Settings> = configs.iter().map(|config| self.set_by(config)).collect();
        let first = self.next_number();
        let jobs: Vec<Job<'_>> = (first..)
            .zip(configs.iter().zip(&settings))
            .map(|(number, (config, settings))| Job {
                number,
                config,
                settings,
                limits: self.limits,
                effort: Effort::Confirm,
                rival: None,
                experiment: None,
                is_confirmed_later: false,
            })
            .collect();
        let reason = format!("in turn with {}", others(configs.len() - 1));
        self.started(&jobs[0], &reason, on_event);
        let begin = Instant::now();
        let time = self.time_in_turn(configs);
        let half_width = self.limits.precision().max(processes_apart());
        let duel = Duel { jobs: &jobs, half_width, rounds: ROUNDS, time, ways: &[Way::InTurn] };
        let stop = self.stop;
        let (duelled, remarks) = self.slots.duel(&duel, &mut |progress| {
            on_event(Event::Progress { number: first, progress: progress.probe });
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        for remark in remarks {
            on_event(Event::Remark { text: &remark });
        }
        let Some(duelled) = duelled else {
            self.can_take_turns = false;
            return Ok(Turns::Apart);
        };
        if duelled.end == DuelEnd::Interrupted {
            return Ok(Turns::Interrupted);
        }
        let Some(outcomes) = outcomes(&duelled, first, configs.len()) else {
            // What is disturbed now may be had in the next round.
            self.can_take_turns = !duelled.disturbances.is_empty();
            let why = duelled.disturbances.iter().chain(&duelled.fallbacks).next();
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            on_event(Event::Remark { text: &format!("confirms the leaders one after the other{why}") });
            return Ok(Turns::Apart);
        };
        let elapsed = begin.elapsed().div_f64(as_number(configs.len()));
        for (job, mut outcome) in jobs.iter().zip(outcomes) {
            if let Outcome::Measured(Measurement { spent: Some(spent), .. }) = &mut outcome {
                // Warming up, switching, and ending, as far as it is not told by whom.
                spent.warming_up_s += (elapsed.as_secs_f64() - spent.total()).max(0.0);
            }
            if job.number != first {
                self.started(job, &reason, on_event);
            }
            let outcome = self.checked_now(outcome, job, Purpose::Confirm, on_event)?;
            if matches!(outcome, Outcome::Interrupted | Outcome::Disturbed(_)) {
                // The comparison of its losses was; the next round is measured one after the other, and has it again.
                return Ok(if outcome == Outcome::Interrupted { Turns::Interrupted } else { Turns::Apart });
            }
            let (number, config, ended_at) = (job.number, job.config.clone(), journal::unix_time());
            let slot = self.slots.slot(self.slots.home()).cloned();
            let trial = Trial { number, purpose: Purpose::Confirm, config, outcome, elapsed, ended_at, slot };
            self.record(trial, (Some(&reason), None), on_event)?;
        }
        Ok(Turns::Done)
    }

    fn started(&self, job: &Job<'_>, reason: &str, on_event: OnEvent<'_>) {
        on_event(Event::Started {
            number: job.number,
            purpose: Purpose::Confirm,
            settings: job.settings,
            searched: self.history.count_searched(),
            reason: Some(reason),
            slot: self.slots.slot(self.slots.home()),
        });
    }

    /// Whether their steps are short enough for turns: the blocks of two rounds, of some five steps each, take no longer
    /// than a confirmation measures.
    fn is_quick(&self, configs: &[Config]) -> bool {
        const STEPS: f64 = 5.0 * 4.0;
        let longest = 2.0 * self.limits.measure_time.as_secs_f64();
        let step = |config: &Config| self.last_run(config).and_then(|(_, run)| run.timing.step_seconds);
        configs.iter().all(|config| step(config).is_some_and(|step| step * STEPS <= longest))
    }

    /// The time after which no turn is begun: that of starting all, and of measuring as long as confirmations do.
    fn time_in_turn(&self, configs: &[Config]) -> Duration {
        let start = |config: &Config| {
            let (trial, run) = self.last_run(config)?;
            let measured = run.timing.measured_seconds.unwrap_or(0.0);
            Some(trial.elapsed.saturating_sub(Duration::from_secs_f64(measured)))
        };
        let each = |config| start(config).unwrap_or_default() + 2 * self.limits.measure_time;
        configs.iter().map(each).sum()
    }

    fn last_run(&self, config: &Config) -> Option<(&Trial, &Measurement)> {
        self.history.of(config).filter_map(|trial| Some((trial, trial.outcome.measurement()?))).last()
    }
}

/// The outcomes of all, each with how well it is known against the others; `None` where not all were measured twice, or
/// something disturbed them.
fn outcomes(duelled: &Duelled, first: u32, count: usize) -> Option<Vec<Outcome>> {
    if !duelled.disturbances.is_empty() {
        return None;
    }
    let of_side = |side: Side| {
        let measurement = duelled.side(side)?.measurement()?.clone();
        let in_turn = InTurn { first, error: duelled.error()?, rounds: duelled.rounds };
        Some(Outcome::Measured(Measurement { in_turn: Some(in_turn), ..measurement }))
    };
    Side::first(count).map(of_side).collect()
}

fn others(count: usize) -> String {
    if count == 1 { "another".to_owned() } else { format!("{count} others") }
}

#[expect(clippy::cast_precision_loss, reason = "a handful")]
fn as_number(count: usize) -> f64 {
    count as f64
}
