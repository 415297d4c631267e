//! Adds up the time of a probe's steps by phase, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{Account, Estimate};
use crate::probe::stats::student_quantile;

/// The largest number of blocks. A longer list is halved by merging neighbours.
const BLOCKS: usize = 64;
/// The fewest blocks for an estimate of the spread.
const FEWEST: usize = 4;

/// Properties of a step that decide where it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepKind {
    pub(super) is_marked: bool,
    /// True if the phases of the step were timed. For a step on a GPU, the hook times only some steps.
    pub(super) is_timed: bool,
}

#[derive(Debug, Default)]
struct Block {
    steps: u64,
    seconds: f64,
    /// The phases of the steps with a mark.
    phases: BTreeMap<String, f64>,
    usual: Usual,
}

/// The steps of a block without a mark. Only some are timed by phase; their phases stand for the other steps.
#[derive(Debug, Default)]
struct Usual {
    /// The time of the timed steps.
    seconds: f64,
    phases: BTreeMap<String, f64>,
    untimed_seconds: f64,
}

impl Block {
    fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.seconds += other.seconds;
        add(&mut self.phases, other.phases);
        self.usual.seconds += other.usual.seconds;
        self.usual.untimed_seconds += other.usual.untimed_seconds;
        add(&mut self.usual.phases, other.usual.phases);
    }

    /// Returns the seconds of a phase. `factor` is the time of all usual steps over the time of the timed usual steps.
    fn of(&self, name: &str, factor: f64) -> f64 {
        let sum = |phases: &BTreeMap<String, f64>| phases.get(name).copied().unwrap_or(0.0);
        sum(&self.phases) + factor * sum(&self.usual.phases)
    }
}

fn add(sums: &mut BTreeMap<String, f64>, others: BTreeMap<String, f64>) {
    for (name, seconds) in others {
        *sums.entry(name).or_default() += seconds;
    }
}

/// The time of all steps until now, by phase.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    blocks: Vec<Block>,
    /// The number of steps in a full block.
    stride: u64,
}

impl Ledger {
    /// Adds a step and its duration in seconds, split by phase. Phases of a step that was not timed do not count.
    pub(super) fn step(&mut self, seconds: f64, phases: &BTreeMap<String, f64>, kind: StepKind) {
        if !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        let mut step = Block { steps: 1, seconds, ..Block::default() };
        match (kind.is_timed, kind.is_marked) {
            (true, false) => step.usual = Usual { seconds, phases: phases.clone(), untimed_seconds: 0.0 },
            (true, true) => step.phases.clone_from(phases),
            (false, false) => step.usual.untimed_seconds = seconds,
            (false, true) => {}
        }
        match self.blocks.last_mut() {
            Some(last) if last.steps < self.stride.max(1) => last.add(step),
            _ => self.blocks.push(step),
        }
        if self.blocks.len() > BLOCKS {
            self.stride = self.stride.max(1) * 2;
            let mut halves = std::mem::take(&mut self.blocks).into_iter();
            while let Some(mut first) = halves.next() {
                if let Some(second) = halves.next() {
                    first.add(second);
                }
                self.blocks.push(first);
            }
        }
    }

    /// Returns the account of a run. `start` is the time to the end of the first step. `None` if there are no steps.
    pub(super) fn account(&self, start: Duration) -> Option<Account> {
        let steps_s: f64 = self.blocks.iter().map(|block| block.seconds).sum();
        let usual = |of: fn(&Usual) -> f64| self.blocks.iter().map(|block| of(&block.usual)).sum::<f64>();
        let (timed, untimed) = (usual(|usual| usual.seconds), usual(|usual| usual.untimed_seconds));
        let factor = if timed > 0.0 { 1.0 + untimed / timed } else { 0.0 };
        let phases = self.blocks.iter().flat_map(|block| [&block.phases, &block.usual.phases]);
        let names: BTreeSet<&String> = phases.flat_map(BTreeMap::keys).collect();
        let sum = |name: &String| {
            let of = |block: &Block| block.of(name, factor);
            let sum: f64 = self.blocks.iter().map(of).sum();
            // A phase that came once may be missing in another run, even if it took most of this run.
            let is_single = self.blocks.iter().filter(|block| of(block) > 0.0).count() == 1;
            let half = self.half_width(steps_s, sum, of);
            (name.clone(), sum, if is_single && half.is_finite() { half.max(sum) } else { half })
        };
        let sums: Vec<(String, f64, f64)> = names.into_iter().map(sum).collect();
        let told: f64 = sums.iter().map(|(_, sum, _)| sum).sum();
        let scale = if told > steps_s { steps_s / told } else { 1.0 };
        let estimate = |value: f64, half: f64| match half.is_finite() {
            true => Estimate::interval(value, (value - half).max(0.0), (value + half).min(steps_s)),
            false => Estimate::point(value),
        };
        let left = (steps_s - told).max(0.0);
        let sum = |phases: &BTreeMap<String, f64>| phases.values().sum::<f64>();
        let of_left = |block: &Block| block.seconds - (sum(&block.phases) + factor * sum(&block.usual.phases));
        let rest = estimate(left, self.half_width(steps_s, left, of_left));
        let phases = sums.into_iter().map(|(name, sum, half)| (name, estimate(sum * scale, half * scale))).collect();
        (steps_s > 0.0).then_some(Account { start_s: start.as_secs_f64(), steps_s, phases, rest })
    }

    /// Returns half of the 95% interval of a phase's seconds in another run of `all` seconds. It follows from the
    /// differences of the phase's share between blocks (Cochran, "Sampling Techniques", 1977, section 6.4: the ratio
    /// estimator).
    fn half_width(&self, all: f64, sum: f64, of: impl Fn(&Block) -> f64) -> f64 {
        let count = self.blocks.len();
        if count < FEWEST || all <= 0.0 {
            return f64::INFINITY;
        }
        let share = sum / all;
        let squares: f64 = self.blocks.iter().map(|block| (of(block) - share * block.seconds).powi(2)).sum();
        let blocks = count as f64;
        // The variance counts twice: once for this run, and once for the other run.
        student_quantile(count - 1, 0.025) * (2.0 * squares * blocks / (blocks - 1.0)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: StepKind = StepKind { is_marked: false, is_timed: true };

    fn phases(told: &[(&str, f64)]) -> BTreeMap<String, f64> {
        told.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect()
    }

    #[test]
    fn leaves_add_up_to_the_wall_time_however_many_steps() {
        for steps in [1_u32, 3, 100, 10_000] {
            let mut ledger = Ledger::default();
            for step in 0..steps {
                let evaluation = if step % 20 == 19 { 1.0 } else { 0.0 };
                ledger.step(0.05 + evaluation, &phases(&[("forward", 0.03), ("evaluation", evaluation)]), USUAL);
            }
            let account = ledger.account(Duration::from_secs(4)).unwrap();
            let sum: f64 = account.phases.values().map(|seconds| seconds.value).sum();
            let all = f64::from(steps) * 0.05 + f64::from(steps / 20);
            assert!((account.wall_s() - 4.0 - all).abs() < 1e-6, "{steps}");
            assert!((sum + account.rest.value - account.steps_s).abs() < 1e-9, "{steps}");
            assert!(ledger.blocks.len() <= BLOCKS);
            let share = account.share("evaluation");
            if steps == 10_000 {
                assert!((share.value - 0.5).abs() < 1e-6 && share.low.unwrap() > 0.45, "{share:?}");
            }
        }
    }

    #[test]
    fn what_differs_from_block_to_block_has_a_wide_interval_and_what_does_not_a_narrow_one() {
        let mut ledger = Ledger::default();
        for step in 0..64 {
            ledger.step(1.0, &phases(&[("steady", 0.25), ("odd", if step == 7 { 1.0 } else { 0.0 })]), USUAL);
        }
        let account = ledger.account(Duration::ZERO).unwrap();
        let width = |name: &str| account.phases[name].high.unwrap() - account.phases[name].low.unwrap();
        assert!(width("steady") < 1e-9 && width("odd") > 2.0, "{account:?}");
    }

    #[test]
    fn what_came_once_may_be_rare_however_long_it_took() {
        let mut ledger = Ledger::default();
        for step in 0..32 {
            let evaluation = if step == 1 { 60.0 } else { 0.0 };
            ledger.step(0.1 + evaluation, &phases(&[("forward", 0.1), ("evaluation", evaluation)]), USUAL);
        }
        let share = ledger.account(Duration::ZERO).unwrap().share("evaluation");
        assert!(share.value > 0.9 && share.low == Some(0.0), "{share:?}");
    }

    #[test]
    fn a_device_that_works_ahead_takes_no_more_than_the_time_there_is() {
        let mut ledger = Ledger::default();
        ledger.step(1.0, &phases(&[("forward", 1.0), ("backward", 1.0)]), USUAL);
        ledger.step(f64::NAN, &phases(&[("forward", 1.0)]), USUAL);
        let account = ledger.account(Duration::ZERO).unwrap();
        assert_eq!((account.share("forward").value, account.rest.value), (0.5, 0.0));
        assert_eq!(Ledger::default().account(Duration::ZERO), None);
    }

    #[test]
    fn usual_steps_that_were_timed_stand_for_those_that_were_not_and_marked_steps_for_themselves() {
        let mut ledger = Ledger::default();
        for step in 0..120 {
            let is_timed = step % 12 == 0;
            let told = if is_timed { phases(&[("forward", 0.5)]) } else { phases(&[("data_wait", 0.9)]) };
            ledger.step(1.0, &told, StepKind { is_marked: false, is_timed });
        }
        ledger.step(30.0, &phases(&[("evaluation", 30.0)]), StepKind { is_marked: true, is_timed: true });
        let account = ledger.account(Duration::ZERO).unwrap();
        let seconds = |name: &str| account.phases[name].value;
        assert!((seconds("forward") - 60.0).abs() < 1e-9 && (seconds("evaluation") - 30.0).abs() < 1e-9, "{account:?}");
        assert!((account.rest.value - 60.0).abs() < 1e-9 && !account.phases.contains_key("data_wait"), "{account:?}");
    }
}
