//! Tells which confirmations were measured shortly after one another, so that a drift of the machine cancels out between
//! them.
//!
//! The leaders and the baseline are measured again in rounds, each config once per round. If a machine slows down as it
//! warms up, all of a round is slower, but the differences within the round are not affected.

use std::collections::{HashMap, HashSet};

use crate::model::{Config, History, Purpose, Trial};

/// Returns the round of each confirmation, by the number of the trial.
///
/// Those that were measured in turn are a round of their own. Else a round ends where a config comes for a second time, or
/// where more time passed than the probes on either side took themselves: after a pause, or where a search went on the next
/// day, the machine may be another.
pub(super) fn of(history: &History) -> HashMap<u32, u32> {
    let mut rounds = HashMap::new();
    let (mut round, mut members): (u32, HashSet<&Config>) = (0, HashSet::new());
    let mut last: Option<&Trial> = None;
    for trial in history.trials().iter().filter(|trial| trial.purpose == Purpose::Confirm) {
        let ends = |last: &Trial| match (first_in_turn(last), first_in_turn(trial)) {
            (None, None) => is_apart(last, trial),
            (before, own) => before != own,
        };
        if members.contains(&trial.config) || last.is_some_and(ends) {
            round += 1;
            members.clear();
        }
        members.insert(&trial.config);
        rounds.insert(trial.number, round);
        last = Some(trial);
    }
    rounds
}

/// The number of the trial that was the first of those that a trial was measured in turn with.
fn first_in_turn(trial: &Trial) -> Option<u32> {
    Some(trial.outcome.measurement()?.in_turn?.first)
}

fn is_apart(before: &Trial, after: &Trial) -> bool {
    let Some((ended, next_ended)) = before.ended_at.zip(after.ended_at) else { return false };
    let began = next_ended - after.elapsed.as_secs_f64();
    began - ended > before.elapsed.max(after.elapsed).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Outcome, Parameter, Space};

    fn confirmations(levels: &[(u32, f64)]) -> Vec<u32> {
        let space = Space::new([Parameter::values("x", [1, 2, 3])]).unwrap();
        let trial = |(number, &(level, ended_at)): (u32, &(u32, f64))| Trial {
            number,
            purpose: Purpose::Confirm,
            config: space.config(level.into()).unwrap(),
            outcome: Outcome::Interrupted,
            elapsed: Duration::from_secs(2),
            ended_at: Some(ended_at),
            slot: None,
        };
        let history: History = (1..).zip(levels).map(trial).collect();
        let rounds = of(&history);
        (1..).take(levels.len()).map(|number| rounds[&number]).collect()
    }

    #[test]
    fn each_config_is_in_a_round_once() {
        assert_eq!(confirmations(&[(0, 2.0), (1, 4.0), (1, 6.0), (0, 8.0), (2, 10.0)]), [0, 0, 1, 1, 1]);
    }

    #[test]
    fn a_pause_ends_a_round() {
        assert_eq!(confirmations(&[(0, 2.0), (1, 100.0), (0, 102.0), (1, 104.5)]), [0, 1, 1, 2]);
    }
}
