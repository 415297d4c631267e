//! Two configs head to head: measured in turn within seconds, and compared as a difference.
//!
//! A machine that slows down by 8 % within a minute slows both; what differs between neighbouring blocks of their steps is the
//! configs. [`Duel`] says what is asked, [`Duelled`] what came of it, and `statistics` turns blocks into a ratio.
//! [`Prober::duel`](super::Prober::duel) runs one.

mod statistics;

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;

use super::Job;
use crate::model::{Estimate, Outcome, Progress};
pub(super) use statistics::precise;
pub use statistics::{FEWEST_ROUNDS, log_ratios, ratio};

/// How many rounds a duel has where nobody says otherwise.
///
/// Six rounds of four blocks of a second are over within half a minute, and leave ±3 % where the ratios of rounds scatter by 3 %
/// (Student's t of 5 degrees of freedom: ±1.05 standard deviations).
pub const ROUNDS: u32 = 6;

/// Two configs to be compared, and how long that may take.
#[derive(Debug, Clone, Copy)]
pub struct Duel<'a> {
    /// The config whose speed is given as a multiple of the other's.
    pub a: Job<'a>,
    /// The other.
    pub b: Job<'a>,
    /// Half the width of the ratio's interval, as a share, at which the duel ends early: that of a tie.
    pub half_width: f64,
    /// The most rounds; [`ROUNDS`] usually. A round is four blocks in the order A, B, B, A, or one process of each.
    pub rounds: u32,
    /// Wall time after which no block and no process is begun.
    pub time: Duration,
}

impl<'a> Duel<'a> {
    /// The job of a side.
    pub fn job(&self, side: Side) -> &Job<'a> {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
}

/// One of the two configs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// Whose turn it is, counted from 0: A, B, B, A, and so on. A drift that is linear over four turns slows both by the same.
    pub fn of_turn(turn: usize) -> Self {
        if matches!(turn % 4, 0 | 3) { Self::A } else { Self::B }
    }

    /// Its place in an array of both.
    pub fn place(self) -> usize {
        usize::from(self == Self::B)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}

/// How two configs were measured in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Two processes stay; one trains, the other is stopped.
    InTurn,
    /// One process stays, and gets the settings of either.
    Switched,
    /// Each turn is a process of its own.
    Processes,
}

impl Way {
    /// Blocks in a round: where a turn is a process of its own, four would take minutes.
    pub fn turns(self) -> usize {
        match self {
            Self::InTurn | Self::Switched => 4,
            Self::Processes => 2,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InTurn => "two processes in turn",
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
    /// How many times as fast A is as B, with its 95 % interval; `None` where not even one round is complete. Without an interval
    /// where only one is.
    pub ratio: Option<Estimate>,
    /// What each side came to on its own: measured in its blocks, or by its last process. `None` for a side that had no turn. Where
    /// both were open on a GPU they have no figures of memory, since each counts the other's.
    pub sides: [Option<Outcome>; 2],
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
}

impl Duelled {
    /// A duel in which a side cannot be measured at all.
    pub(super) fn failed(side: Side, outcome: Outcome) -> Self {
        let mut sides = [None, None];
        sides[side.place()] = Some(outcome);
        Self {
            ratio: None,
            sides,
            way: Way::Processes,
            blocks: Vec::new(),
            rounds: 0,
            end: DuelEnd::Failed,
            fallbacks: Vec::new(),
            disturbances: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// The outcome of a side, if it had a turn.
    pub fn side(&self, side: Side) -> Option<&Outcome> {
        self.sides[side.place()].as_ref()
    }

    /// The faster side, where the interval leaves no doubt.
    pub fn faster(&self) -> Option<Side> {
        let ratio = self.ratio?;
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
    /// The ratio so far.
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
        let order: String = (0..8).map(|turn| Side::of_turn(turn).to_string()).collect();
        assert_eq!(order, "ABBAABBA");
    }

    #[test]
    fn one_is_faster_only_where_the_interval_leaves_no_doubt() {
        let of = |ratio| {
            let rejected = Outcome::Rejected(Failure::new("not in the table"));
            Duelled { ratio, ..Duelled::failed(Side::A, rejected) }.faster()
        };
        assert_eq!(of(Some(Estimate::interval(1.05, 1.01, 1.09))), Some(Side::A));
        assert_eq!(of(Some(Estimate::interval(0.95, 0.91, 0.99))), Some(Side::B));
        assert_eq!(of(Some(Estimate::interval(1.01, 0.99, 1.03))), None);
        assert_eq!((of(Some(Estimate::point(2.0))), of(None)), (None, None));
    }
}
