//! The state of a duel: the next side, its blocks up to now, and if they are enough.

use std::ops::ControlFlow;
use std::time::Instant;

use super::super::gpu_watch::GpuWatch;
use super::statistics::{Levels, fewest_rounds};
use super::{Block, Duel, DuelEnd, DuelProgress, DuelWatch, Duelled, Side, Stage, Way};
use crate::machine::{GpuState, nvml::Visible};
use crate::model::{Estimate, Outcome, Progress};

pub(in crate::probe) struct Bout<'d, 'w> {
    pub(in crate::probe) duel: &'d Duel<'d>,
    hears: DuelWatch<'w>,
    pub(in crate::probe) began: Instant,
    way: Way,
    pub(in crate::probe) stage: Stage,
    pub(in crate::probe) blocks: Vec<Block>,
    pub(in crate::probe) sides: Vec<Option<Outcome>>,
    /// The trial that started the process of each side.
    pub(in crate::probe) processes: Vec<u32>,
    fallbacks: Vec<String>,
    gpus: Option<GpuWatch>,
    disturbances: Vec<String>,
}

impl<'d, 'w> Bout<'d, 'w> {
    pub(in crate::probe) fn new(duel: &'d Duel<'d>, hears: DuelWatch<'w>) -> Self {
        Self {
            duel,
            hears,
            began: Instant::now(),
            way: Way::InTurn,
            stage: Stage::Warming,
            blocks: Vec::new(),
            sides: vec![None; duel.jobs.len()],
            processes: duel.jobs.iter().map(|job| job.number).collect(),
            fallbacks: Vec::new(),
            gpus: None,
            disturbances: Vec::new(),
        }
    }

    /// Restarts the duel in this way.
    pub(in crate::probe) fn begin(&mut self, way: Way) {
        self.way = way;
        self.stage = Stage::Warming;
        self.blocks.clear();
        self.sides.fill(None);
        (self.gpus, self.disturbances) = (None, Vec::new());
    }

    pub(in crate::probe) fn fall_back(&mut self, reason: String) {
        self.fallbacks.push(reason);
    }

    /// Watches the GPUs for other programs. All processes that gputune started belong to the duel.
    pub(in crate::probe) fn watch_gpus(&mut self, visible: &Visible, idle: GpuState, now: Instant) {
        self.gpus = Some(GpuWatch::begin(visible, std::process::id(), idle, now));
    }

    /// Reads the GPU use of the processes while they exist.
    pub(in crate::probe) fn look_at_gpus(&self) {
        self.gpus.iter().for_each(GpuWatch::look);
    }

    /// Returns the callback for a process of this side.
    pub(in crate::probe) fn watch(&mut self, side: Side) -> impl FnMut(&Progress) -> ControlFlow<()> {
        let levels = self.levels();
        let (rounds, ratio) = (count(levels.rounds()), levels.ratio(Side::A, Side::B));
        let Self { hears, began, way, stage, fallbacks, .. } = self;
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
        let turn = self.blocks.len();
        let sides = self.duel.jobs.len();
        let of_round = self.way.turns(sides);
        if turn > 0 && turn.is_multiple_of(of_round) {
            if turn / of_round >= self.most_rounds() as usize {
                return Err(DuelEnd::AllRounds);
            }
            if self.levels().precise(self.duel.half_width, self.most_rounds()).is_some() {
                return Err(DuelEnd::Precise);
            }
        }
        if self.began.elapsed() >= self.duel.time { Err(DuelEnd::TimeIsUp) } else { Ok(self.duel.of_turn(turn)) }
    }

    /// Returns the number of steps in a side's blocks, after its first block.
    pub(in crate::probe) fn length(&self, side: Side) -> Option<u64> {
        self.blocks.iter().find(|block| block.side == side).map(|block| block.steps)
    }

    /// Returns true if the current blocks suffice when no more blocks can follow.
    pub(in crate::probe) fn has_enough(&self) -> bool {
        self.levels().rounds() >= fewest_rounds(self.duel.jobs.len())
    }

    /// Returns true if every side has a block.
    pub(in crate::probe) fn has_slices(&self) -> bool {
        self.duel.sides().all(|side| self.blocks.iter().any(|block| block.side == side))
    }

    fn most_rounds(&self) -> u32 {
        self.way.rounds(self.duel.rounds)
    }

    /// Returns the rate of a side over its current blocks.
    pub(in crate::probe) fn rate(&self, side: Side) -> Option<Estimate> {
        Levels::rate(&self.blocks, self.way, (side, self.duel.jobs.len()))
    }

    fn levels(&self) -> Levels {
        Levels::of(&self.blocks, self.way, self.duel.jobs.len())
    }

    pub(in crate::probe) fn finish(mut self, end: DuelEnd) -> Duelled {
        self.disturbances.extend(self.gpus.iter_mut().flat_map(GpuWatch::disturbances));
        let levels = self.levels();
        let early = levels.precise(self.duel.half_width, self.most_rounds()).filter(|_| end == DuelEnd::Precise);
        Duelled {
            sides: self.sides,
            processes: self.processes,
            way: self.way,
            rounds: count(levels.rounds()),
            levels: early.unwrap_or(levels),
            blocks: self.blocks,
            end,
            fallbacks: self.fallbacks,
            disturbances: self.disturbances,
            elapsed: self.began.elapsed(),
        }
    }
}

fn count(rounds: usize) -> u32 {
    u32::try_from(rounds).unwrap_or(u32::MAX)
}
