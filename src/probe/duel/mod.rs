//! Configs head to head: measured in turn within seconds, and compared as differences.
//!
//! A machine that slows down by 8 % within a minute slows both; what differs between neighbouring blocks of their steps is the
//! configs. [`Duel`] says what is asked, [`Duelled`] what came of it, and `statistics` turns blocks into ratios.
//! [`Prober::duel`](super::Prober::duel) runs one.

mod bout;
mod processes;
mod statistics;

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;

use super::Job;
use crate::model::{Estimate, Outcome, Permutation, Progress};
pub(super) use bout::Bout;
pub(super) use processes::run as run_processes;
pub(super) use statistics::Levels;

/// How many rounds a duel of two has where nobody says otherwise.
///
/// Of 24 rounds of four blocks of a quarter of a second, and what is left out after each switch, most are over within half a minute;
/// they leave ±3 % where the ratios of rounds scatter by 7 % (Student's t of 23 degrees of freedom: ±0.42 standard deviations).
pub const ROUNDS: u32 = 24;

/// How long the steps of a block take that count: short against what makes a machine slower for a while, and long against a
/// switch, which takes some milliseconds. In the simulation of `statistics`, beside somebody's bursts of half a second, 27 s of such
/// blocks leave ±4 %, of blocks of a second ±10 %.
pub const BLOCK: Duration = Duration::from_millis(250);

/// Configs to be compared, and how long that may take.
#[derive(Debug, Clone, Copy)]
pub struct Duel<'a> {
    /// The configs, two or more; the speed of the first is compared with those of the others.
    pub jobs: &'a [Job<'a>],
    /// Half the width of the ratios' intervals, as a share, at which the duel ends early: that of a tie.
    pub half_width: f64,
    /// The most rounds; [`ROUNDS`] usually. A round is two blocks of each in the order A, B, B, A, or one process of each.
    pub rounds: u32,
    /// Wall time after which no block and no process is begun.
    pub time: Duration,
    /// The ways that may be taken, the best first; [`Way::ALL`] usually. Where none of them can be had, it
    /// [fails](DuelEnd::Failed).
    pub ways: &'a [Way],
    /// The seed of a random order of turns, there and back in each round; `None` for A, B, B, A.
    pub seed: Option<u64>,
    /// Whether the processes stay, held between two steps, for the next duel.
    pub keeps: bool,
}

impl<'a> Duel<'a> {
    /// The job of a side.
    pub fn job(&self, side: Side) -> &Job<'a> {
        &self.jobs[side.place()]
    }

    /// Whose turn it is, counted from 0.
    pub fn of_turn(&self, turn: usize) -> Side {
        let count = self.jobs.len();
        let side = Side::of_turn(turn, count);
        let Some(seed) = self.seed else { return side };
        let round = u64::try_from(turn / (2 * count)).unwrap_or(0);
        let drawn = Permutation::new(count as u128, seed.wrapping_add(round)).at(side.place() as u128);
        drawn.and_then(|place| usize::try_from(place).ok()).map_or(side, Side)
    }

    /// The sides, in their order.
    pub fn sides(&self) -> impl DoubleEndedIterator<Item = Side> + use<> {
        Side::first(self.jobs.len())
    }
}

/// One of the configs that are compared, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Side(usize);

impl Side {
    /// The first.
    pub const A: Self = Self(0);
    /// The second.
    pub const B: Self = Self(1);

    /// The first so many.
    pub fn first(count: usize) -> impl DoubleEndedIterator<Item = Self> {
        (0..count).map(Self)
    }

    /// Whose turn it is among so many, counted from 0: A, B, B, A, and so on. A drift that is linear over a round slows all by the
    /// same.
    pub fn of_turn(turn: usize, count: usize) -> Self {
        let at = turn % (2 * count);
        Self(if at < count { at } else { 2 * count - 1 - at })
    }

    /// Its place, counted from 0.
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

/// How configs were measured in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A process of each stays; one trains, the others are stopped.
    InTurn,
    /// One process stays, and gets the settings of each.
    Switched,
    /// Each turn is a process of its own.
    Processes,
}

impl Way {
    /// All, the best first.
    pub const ALL: &[Self] = &[Self::InTurn, Self::Switched, Self::Processes];

    /// The rounds of so many that are had this way: of processes, at most six, which take minutes.
    pub fn rounds(self, asked: u32) -> u32 {
        const OF_PROCESSES: u32 = 6;
        if self == Self::Processes { asked.min(OF_PROCESSES) } else { asked }
    }

    /// Blocks in a round of so many configs: two of each; where a turn is a process of its own, that would take minutes.
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
    /// Whose.
    pub side: Side,
    /// When its first step began, in seconds since the duel began.
    pub begin_s: f64,
    /// When its last step ended.
    pub end_s: f64,
    /// Steps that count.
    pub steps: u64,
    /// Steps before them, after a switch, that do not.
    pub dropped_steps: u64,
    /// Work per second of those that count.
    pub rate: f64,
}

/// Why a duel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DuelEnd {
    /// The interval is narrow enough.
    Precise,
    /// All rounds are done.
    AllRounds,
    /// The time is up.
    TimeIsUp,
    /// The training of one came to its end.
    TrainingOver,
    /// A config could not be measured, not even in a process of its own: its outcome says why.
    Failed,
    /// The caller did not want to go on.
    Interrupted,
}

/// What came of a duel.
#[derive(Debug, Clone, PartialEq)]
pub struct Duelled {
    /// What each side came to on its own: measured in its blocks, or by its last process. `None` for a side that had no turn. Where
    /// several were open on a GPU they have no figures of memory, since each counts the others'.
    pub sides: Vec<Option<Outcome>>,
    /// The number of the trial that started the process of each side.
    pub processes: Vec<u32>,
    /// How they were measured.
    pub way: Way,
    /// The blocks, in their order.
    pub blocks: Vec<Block>,
    /// Complete rounds.
    pub rounds: u32,
    /// Why it ended.
    pub end: DuelEnd,
    /// Why a better way could not be had, a line each.
    pub fallbacks: Vec<String>,
    /// What disturbed the GPUs meanwhile, such as another program: the ratio is not to be trusted then.
    pub disturbances: Vec<String>,
    /// Wall time of the whole duel.
    pub elapsed: Duration,
    pub(super) levels: Levels,
}

impl Duelled {
    /// A duel of so many in which one cannot be measured at all.
    pub(super) fn failed(side: Side, count: usize, outcome: Outcome) -> Self {
        let mut sides = vec![None; count];
        sides[side.place()] = Some(outcome);
        Self {
            sides,
            processes: vec![0; count],
            way: Way::Processes,
            blocks: Vec::new(),
            rounds: 0,
            end: DuelEnd::Failed,
            fallbacks: Vec::new(),
            disturbances: Vec::new(),
            elapsed: Duration::ZERO,
            levels: Levels::default(),
        }
    }

    /// The rates of a side's slices in complete rounds.
    pub fn slices(&self, side: Side) -> Vec<f64> {
        let turns = self.rounds as usize * self.way.turns(self.sides.len());
        self.blocks.iter().take(turns).filter(|block| block.side == side).map(|block| block.rate).collect()
    }

    /// The outcome of a side, if it had a turn.
    pub fn side(&self, side: Side) -> Option<&Outcome> {
        self.sides.get(side.place())?.as_ref()
    }

    /// How many times as fast one side is as another, with its 95 % interval; `None` where not even one round is complete. Without
    /// an interval where only one is.
    pub fn ratio(&self, of: Side, to: Side) -> Option<Estimate> {
        self.levels.ratio(of, to)
    }

    /// The standard error of each side's speed against the others, as a share; `None` before two rounds are complete.
    pub fn error(&self) -> Option<f64> {
        self.levels.error()
    }

    /// The faster of the first two, where the interval leaves no doubt.
    pub fn faster(&self) -> Option<Side> {
        let ratio = self.ratio(Side::A, Side::B)?;
        match (ratio.low?, ratio.high?) {
            (low, _) if low > 1.0 => Some(Side::A),
            (_, high) if high < 1.0 => Some(Side::B),
            _ => None,
        }
    }
}

/// What a duel does just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A process starts and warms up.
    Warming,
    /// A block, or a process that is one, is under way.
    Measuring,
    /// Processes are ended.
    Ending,
}

/// The news of a duel that runs.
#[derive(Debug)]
pub struct DuelProgress<'p> {
    /// Time since it began.
    pub elapsed: Duration,
    /// How they are measured.
    pub way: Way,
    /// What it does.
    pub stage: Stage,
    /// Whose turn it is.
    pub side: Side,
    /// Complete rounds.
    pub rounds: u32,
    /// How many times as fast the first is as the second, so far.
    pub ratio: Option<Estimate>,
    /// Why a better way could not be had, a line each.
    pub fallbacks: &'p [String],
    /// The news of the side whose turn it is.
    pub probe: &'p Progress,
}

/// The function that receives a duel's progress; its answer says whether to go on.
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
