//! Direct comparison of configs: interleaved measurements within seconds, compared as differences.
//!
//! A machine that slows down by 8% within a minute slows both configs. Neighbouring blocks of steps then differ only because of the
//! configs. [`Duel`] is the request, [`Duelled`] the result, and `statistics` turns blocks into ratios.
//! [`Prober::duel`](super::Prober::duel) runs a duel.

mod bout;
mod statistics;

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;

use super::Job;
use crate::model::{Estimate, Outcome, Permutation, Progress};
pub(super) use bout::{Bout, run_processes};
pub(super) use statistics::Levels;

/// The default number of rounds in a duel of two configs.
///
/// A round has four blocks of a quarter of a second, plus the dropped steps after each switch. 24 rounds usually take
/// less than half a minute. They give ±3% if the ratios of the rounds have a standard deviation of 7% (Student's t
/// with 23 degrees of freedom: ±0.42 standard deviations).
pub const ROUNDS: u32 = 24;

/// How long the counted steps of a block take. This is short compared with the causes of a temporary slowdown, and long compared
/// with a switch, which takes some milliseconds. In the simulation of `statistics`, with half-second bursts of another program, 27
/// s of such blocks give ±4%. Blocks of a second give ±10%.
pub const BLOCK: Duration = Duration::from_millis(250);

/// The configs to compare, and the limits of the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Duel<'a> {
    /// The configs, two or more. The duel compares the first config with each other config.
    pub jobs: &'a [Job],
    /// The duel ends early when the ratios' intervals have this relative half width; usually the precision.
    pub half_width: f64,
    /// The maximum number of rounds, usually [`ROUNDS`]. A round is two blocks per config in the order A, B, B, A, or one process
    /// per config.
    pub rounds: u32,
    /// Wall time after which no block and no process starts.
    pub time: Duration,
    /// The allowed ways, best first, usually [`Way::ALL`]. If no way is possible, the duel [fails](DuelEnd::Failed).
    pub ways: &'a [Way],
    /// The seed of a random order of the sides, which each round follows forward, then back. `None` for A, B, B, A.
    pub seed: Option<u64>,
    /// True if the processes stay for the next duel, as in a search.
    pub keeps: bool,
}

impl Duel<'_> {
    /// Returns the job of a side.
    pub fn job(&self, side: Side) -> &Job {
        &self.jobs[side.place()]
    }

    /// Returns the side of a turn, counted from 0.
    pub fn of_turn(&self, turn: usize) -> Side {
        let count = self.jobs.len();
        let side = Side::of_turn(turn, count);
        let Some(seed) = self.seed else { return side };
        let round = u64::try_from(turn / (2 * count)).unwrap_or(0);
        let drawn = Permutation::new(count as u128, seed.wrapping_add(round)).at(side.place() as u128);
        drawn.and_then(|place| usize::try_from(place).ok()).map_or(side, Side)
    }

    /// Returns the sides in order.
    pub fn sides(&self) -> impl DoubleEndedIterator<Item = Side> + use<> {
        Side::first(self.jobs.len())
    }
}

/// A compared config: its place in [`Duel::jobs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Side(usize);

impl Side {
    /// The first side.
    pub const A: Self = Self(0);
    /// The second side.
    pub const B: Self = Self(1);

    /// Returns the first `count` sides.
    pub fn first(count: usize) -> impl DoubleEndedIterator<Item = Self> {
        (0..count).map(Self)
    }

    /// Returns the side of a turn among `count` sides, counted from 0: A, B, B, A, and so on. A linear drift over a round slows all
    /// sides equally.
    pub fn of_turn(turn: usize, count: usize) -> Self {
        let at = turn % (2 * count);
        Self(if at < count { at } else { 2 * count - 1 - at })
    }

    /// Returns the place of the side, counted from 0.
    pub fn place(self) -> usize {
        self.0
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u8::try_from(self.0) {
            Ok(place @ 0..26) => write!(f, "{}", char::from(b'A' + place)),
            _ => write!(f, "#{}", self.0 + 1),
        }
    }
}

impl Serialize for Side {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How the configs were interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Each config has a process that stays. One process trains while all other processes are stopped.
    InTurn,
    /// One process stays, and receives the settings of each config.
    Switched,
    /// Each turn is a separate process.
    Processes,
}

impl Way {
    /// All ways, best first.
    pub const ALL: &[Self] = &[Self::InTurn, Self::Switched, Self::Processes];

    /// Returns the number of rounds in this way if `asked` rounds are requested. Rounds of processes take minutes, so at most six.
    pub fn rounds(self, asked: u32) -> u32 {
        const OF_PROCESSES: u32 = 6;
        if self == Self::Processes { asked.min(OF_PROCESSES) } else { asked }
    }

    /// Returns the number of blocks in a round of `sides` configs: two per config, or one if each turn is a process, which takes
    /// minutes.
    pub fn turns(self, sides: usize) -> usize {
        match self {
            Self::InTurn | Self::Switched => 2 * sides,
            Self::Processes => sides,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InTurn => "processes in turn",
            Self::Switched => "one process that switched",
            Self::Processes => "process rounds",
        })
    }
}

/// Consecutive steps of one config.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Block {
    /// The config that trained.
    pub side: Side,
    /// When the process began to train for this block, in seconds since the duel began.
    pub begin_s: f64,
    /// When the process waited again after this block, in seconds since the duel began.
    pub end_s: f64,
    /// Counted steps.
    pub steps: u64,
    /// Earlier steps, after a switch, that do not count.
    pub dropped_steps: u64,
    /// Work per second of the counted steps.
    pub rate: f64,
    /// The rate without the ends of epochs, if the block consists of whole epochs. Then `rate` includes their ends.
    pub rate_between_ends: Option<f64>,
}

/// Why a duel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DuelEnd {
    /// The intervals of the ratios are narrow enough.
    Precise,
    /// All rounds are done.
    AllRounds,
    /// The time is up.
    TimeIsUp,
    /// The training of a config ended.
    TrainingOver,
    /// A config could not be measured, even in a separate process. Its outcome has the reason.
    Failed,
    /// The caller stopped the duel.
    Interrupted,
}

/// The result of a duel.
#[derive(Debug, Clone, PartialEq)]
pub struct Duelled {
    /// The outcome of each side: measured in its blocks, or by its last process. `None` for a side without a turn. If several
    /// processes shared a GPU, the outcomes have no memory values: a value would include the memory of all processes.
    pub sides: Vec<Option<Outcome>>,
    /// The number of the trial that started the process of each side.
    pub processes: Vec<u32>,
    /// How the configs were interleaved.
    pub way: Way,
    /// The blocks, in their order.
    pub blocks: Vec<Block>,
    /// The number of complete rounds.
    pub rounds: u32,
    /// The reason why the duel ended.
    pub end: DuelEnd,
    /// The reasons why better ways were not possible, one per line.
    pub fallbacks: Vec<String>,
    /// The disturbances of the GPUs during the duel, such as another program. The ratio is then unreliable.
    pub disturbances: Vec<String>,
    /// Wall time of the whole duel.
    pub elapsed: Duration,
    pub(super) levels: Levels,
}

impl Duelled {
    /// Returns a duel of `count` configs in which `side` cannot be measured.
    pub(super) fn failed(side: Side, count: usize, outcome: Outcome) -> Self {
        let mut failed = Self::begun(vec![0; count]);
        failed.sides[side.place()] = Some(outcome);
        failed
    }

    /// Returns a duel before its first block.
    fn begun(processes: Vec<u32>) -> Self {
        Self {
            sides: vec![None; processes.len()],
            processes,
            way: Way::Processes,
            blocks: Vec::new(),
            rounds: 0,
            end: DuelEnd::Failed,
            fallbacks: Vec::new(),
            disturbances: Vec::new(),
            elapsed: Duration::ZERO,
            levels: Levels::of_rounds(Vec::new()),
        }
    }

    /// Returns the rates of a side's [counted blocks](Self::counted).
    pub fn slices(&self, side: Side) -> Vec<f64> {
        self.counted(side).map(|block| block.rate).collect()
    }

    /// Returns a side's blocks in complete rounds. Before the first complete round, returns the side's first block if every side has a
    /// block, else nothing.
    pub fn counted(&self, side: Side) -> impl Iterator<Item = &Block> {
        let sides = self.sides.len();
        let turns = match self.rounds {
            0 if self.blocks.len() >= sides => sides,
            rounds => rounds as usize * self.way.turns(sides),
        };
        self.blocks.iter().take(turns).filter(move |block| block.side == side)
    }

    /// Returns the outcome of a side, if it had a turn.
    pub fn side(&self, side: Side) -> Option<&Outcome> {
        self.sides.get(side.place())?.as_ref()
    }

    /// Returns the speedup of one side over another. `None` before a complete round. Has a 95% interval from two rounds on.
    pub fn ratio(&self, of: Side, to: Side) -> Option<Estimate> {
        self.levels.ratio(of, to)
    }

    /// Returns the faster of the first two sides, if the interval of their ratio excludes 1.
    pub fn faster(&self) -> Option<Side> {
        let ratio = self.ratio(Side::A, Side::B)?;
        match (ratio.low?, ratio.high?) {
            (low, _) if low > 1.0 => Some(Side::A),
            (_, high) if high < 1.0 => Some(Side::B),
            _ => None,
        }
    }
}

/// The current stage of a duel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A process starts and warms up.
    Warming,
    /// A block, or a process that counts as a block, is running.
    Measuring,
    /// Processes are ending.
    Ending,
}

/// The progress of a running duel.
#[derive(Debug)]
pub struct DuelProgress<'p> {
    /// Time since the duel began.
    pub elapsed: Duration,
    /// How the configs are interleaved.
    pub way: Way,
    /// The current stage.
    pub stage: Stage,
    /// The side that runs now.
    pub side: Side,
    /// The number of complete rounds.
    pub rounds: u32,
    /// The current speedup of the first side over the second.
    pub ratio: Option<Estimate>,
    /// The reasons why better ways were not possible, one per line.
    pub fallbacks: &'p [String],
    /// The progress of the side that runs now.
    pub probe: &'p Progress,
}

/// The function that receives a duel's progress. It returns `Break` to stop the duel.
pub type DuelWatch<'w> = &'w mut dyn FnMut(&DuelProgress<'_>) -> ControlFlow<()>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Failure;

    #[test]
    fn turns_are_in_an_order_that_a_drift_does_not_favour() {
        let order = |count| -> String { (0..4 * count).map(|turn| Side::of_turn(turn, count).to_string()).collect() };
        assert_eq!((order(2).as_str(), order(3).as_str()), ("ABBAABBA", "ABCCBAABCCBA"));
    }

    #[test]
    fn one_is_faster_only_where_the_interval_leaves_no_doubt() {
        let of = |logs: &[f64]| {
            let rejected = Outcome::Rejected(Failure::new("not in the table"));
            let levels = Levels::of_rounds(logs.iter().map(|log| vec![*log, 0.0]).collect());
            Duelled { levels, ..Duelled::failed(Side::A, 2, rejected) }.faster()
        };
        assert_eq!(of(&[0.05, 0.04, 0.06]), Some(Side::A));
        assert_eq!(of(&[-0.05, -0.04, -0.06]), Some(Side::B));
        assert_eq!(of(&[0.05, -0.04, 0.03]), None);
        assert_eq!((of(&[2.0]), of(&[])), (None, None));
    }
}
