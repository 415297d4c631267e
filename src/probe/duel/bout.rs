//! The state of a running duel. It holds the blocks up to now, and decides which side is next and when the duel ends.
//!
//! This module also has the fallback if no process can be held: [`run_processes`] measures each turn by an ordinary
//! probe, one after the other.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::super::gpu_watch::GpuWatch;
use super::super::{Job, ProbeError, Prober};
use super::statistics::{FEWEST_ROUNDS, Levels};
use super::{Block, Duel, DuelEnd, DuelProgress, DuelWatch, Duelled, Side, Stage, Way};
use crate::machine::{GpuState, nvml::Visible};
use crate::model::{Estimate, Outcome, Progress};

pub(in crate::probe) struct Bout<'d, 'w> {
    pub(in crate::probe) duel: &'d Duel<'d>,
    hears: DuelWatch<'w>,
    pub(in crate::probe) began: Instant,
    pub(in crate::probe) stage: Stage,
    gpus: Option<GpuWatch>,
    /// The result up to now. [`finish`](Self::finish) adds what is known only at the end.
    pub(in crate::probe) result: Duelled,
}

/// If the first blocks of all sides took longer than this in total, a search's duel has no second blocks: a round
/// number.
const LONGEST_PASS: Duration = Duration::from_secs(4);

impl<'d, 'w> Bout<'d, 'w> {
    pub(in crate::probe) fn new(duel: &'d Duel<'d>, hears: DuelWatch<'w>) -> Self {
        let result = Duelled::begun(duel.jobs.iter().map(|job| job.number).collect());
        Self { duel, hears, began: Instant::now(), stage: Stage::Warming, gpus: None, result }
    }

    pub(in crate::probe) fn begin(&mut self, way: Way) {
        self.result.way = way;
        self.stage = Stage::Warming;
        self.result.blocks.clear();
        self.result.sides.fill(None);
        self.gpus = None;
    }

    /// Watches the GPUs for other programs. All processes that gputune started belong to the duel.
    pub(in crate::probe) fn watch_gpus(&mut self, visible: &Visible, idle: GpuState, now: Instant) {
        self.gpus = Some(GpuWatch::begin(visible, std::process::id(), idle, now));
    }

    pub(in crate::probe) fn look_at_gpus(&self) {
        self.gpus.iter().for_each(GpuWatch::look);
    }

    pub(in crate::probe) fn watch(&mut self, side: Side) -> impl FnMut(&Progress) -> ControlFlow<()> {
        let levels = self.levels();
        let (rounds, ratio) = (count(levels.rounds()), levels.ratio(Side::A, Side::B));
        let Self { hears, began, stage, result: Duelled { way, fallbacks, .. }, .. } = self;
        move |probe| {
            hears(&DuelProgress {
                elapsed: began.elapsed(),
                way: *way,
                stage: *stage,
                side,
                rounds,
                ratio,
                fallbacks,
                probe,
            })
        }
    }

    /// Returns the next side, or the reason why the duel ends.
    pub(in crate::probe) fn next(&self) -> Result<Side, DuelEnd> {
        let turn = self.result.blocks.len();
        let sides = self.duel.jobs.len();
        let of_round = self.result.way.turns(sides);
        if turn > 0 && turn.is_multiple_of(of_round) {
            if turn / of_round >= self.most_rounds() as usize {
                return Err(DuelEnd::AllRounds);
            }
            if self.levels().precise(self.duel.half_width, self.most_rounds()).is_some() {
                return Err(DuelEnd::Precise);
            }
        }
        // In a search, the duel may end after one block of each config. The search's next duel has another order, so a
        // drift does not always favour the same config.
        let seconds = || self.result.blocks.iter().map(|block| block.end_s - block.begin_s).sum::<f64>();
        if self.duel.keeps && turn == sides && seconds() > LONGEST_PASS.as_secs_f64() {
            return Err(DuelEnd::TimeIsUp);
        }
        if self.began.elapsed() >= self.duel.time { Err(DuelEnd::TimeIsUp) } else { Ok(self.duel.of_turn(turn)) }
    }

    /// Returns the number of steps in a side's first block, which its later blocks repeat; `None` before the first
    /// block.
    pub(in crate::probe) fn length(&self, side: Side) -> Option<u64> {
        self.result.blocks.iter().find(|block| block.side == side).map(|block| block.steps)
    }

    /// Returns true if there are enough rounds for a result, in case that the training is over and no block can follow.
    pub(in crate::probe) fn has_enough(&self) -> bool {
        self.levels().rounds() >= FEWEST_ROUNDS
    }

    /// Returns true if every side has a block.
    pub(in crate::probe) fn has_slices(&self) -> bool {
        self.duel.sides().all(|side| self.result.blocks.iter().any(|block| block.side == side))
    }

    fn most_rounds(&self) -> u32 {
        self.result.way.rounds(self.duel.rounds)
    }

    pub(in crate::probe) fn rate(&self, side: Side) -> Option<Estimate> {
        Levels::rate(&self.result.blocks, self.result.way, (side, self.duel.jobs.len()))
    }

    fn levels(&self) -> Levels {
        Levels::of(&self.result.blocks, self.result.way, self.duel.jobs.len())
    }

    pub(in crate::probe) fn finish(mut self, end: DuelEnd) -> Duelled {
        let levels = self.levels();
        let early = levels.precise(self.duel.half_width, self.most_rounds()).filter(|_| end == DuelEnd::Precise);
        Duelled {
            rounds: count(levels.rounds()),
            levels: early.unwrap_or(levels),
            end,
            disturbances: self.gpus.iter_mut().flat_map(GpuWatch::disturbances).collect(),
            elapsed: self.began.elapsed(),
            ..self.result
        }
    }
}

fn count(rounds: usize) -> u32 {
    u32::try_from(rounds).unwrap_or(u32::MAX)
}

/// How many disturbed probes are repeated in a duel.
const MOST_REPEATS: u32 = 2;

/// Measures each turn in a separate process.
pub(in crate::probe) fn run_processes<P: Prober + ?Sized>(
    prober: &mut P,
    bout: &mut Bout<'_, '_>,
) -> Result<DuelEnd, ProbeError> {
    bout.stage = Stage::Measuring;
    let mut repeats = 0;
    loop {
        let side = match bout.next() {
            Ok(side) => side,
            Err(end) => return Ok(end),
        };
        let job = Job { keeps: false, ..bout.duel.job(side).clone() };
        let began = Instant::now();
        let outcome = prober.probe(&job, &mut bout.watch(side))?;
        if matches!(outcome, Outcome::Interrupted) {
            return Ok(DuelEnd::Interrupted);
        }
        if matches!(outcome, Outcome::Disturbed(_)) && repeats < MOST_REPEATS {
            repeats += 1;
            continue;
        }
        let block = block_of(side, &outcome, (bout.began, began));
        bout.result.sides[side.place()] = Some(outcome);
        match block {
            Some(block) => bout.result.blocks.push(block),
            None => return Ok(DuelEnd::Failed),
        }
    }
}

/// Converts a probe to a block; `None` if it has no throughput.
fn block_of(side: Side, outcome: &Outcome, (began, probe_began): (Instant, Instant)) -> Option<Block> {
    let measurement = outcome.measurement()?;
    let rate = measurement.throughput?.value;
    Some(Block {
        side,
        begin_s: probe_began.duration_since(began).as_secs_f64(),
        end_s: began.elapsed().as_secs_f64(),
        steps: measurement.timing.steps,
        dropped_steps: measurement.timing.warmup_steps,
        rate,
        rate_between_ends: measurement.timing.epoch_factor.map(|factor| rate / factor),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Parameter, Space};
    use crate::probe::{Effort, Limits};

    #[test]
    fn a_round_of_a_search_ends_with_its_first_slices_if_they_take_long() {
        let space = Space::new([Parameter::values("x", [1, 2])]).unwrap();
        let (config, limits) = (space.first().unwrap(), Limits::default());
        let settings = space.settings(&config);
        let job = Job { effort: Effort::Brief, keeps: true, ..Job::new(1, &config, &settings, &limits) };
        let next = |keeps: bool, seconds: f64| {
            let (half_width, rounds, time, seed) = (0.0, 1, Duration::from_secs(60), None);
            let duel =
                Duel { jobs: &[job.clone(), job.clone()], half_width, rounds, time, ways: Way::ALL, seed, keeps };
            let mut hears = |_: &DuelProgress<'_>| ControlFlow::Continue(());
            let mut bout = Bout::new(&duel, &mut hears);
            let block = |side| Block {
                side,
                begin_s: 0.0,
                end_s: seconds,
                steps: 4,
                dropped_steps: 0,
                rate: 1.0,
                rate_between_ends: None,
            };
            bout.begin(Way::InTurn);
            bout.result.blocks = vec![block(Side::A), block(Side::B)];
            bout.next()
        };
        assert_eq!(next(true, 1.0), Ok(Side::B));
        assert_eq!(next(true, 3.0), Err(DuelEnd::TimeIsUp));
        assert_eq!(next(false, 3.0), Ok(Side::B), "a comparison has no next round with another order");
    }
}
