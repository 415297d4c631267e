//! Successive halving over the length of probes: many configs for a short time, and the better configs for longer.
//!
//! It follows Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016. A
//! third of the configs moves up each time, as Li et al., "Hyperband", JMLR 2018, recommend. A config moves up once it is among the
//! best third of its rung, even if the rung is not full. This is from Li et al., "A system for massively parallel hyperparameter
//! tuning", MLSys 2020. So nothing depends on the number of probes to come, and a search that runs out of time has measured some
//! configs in full.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::{Entry, Proposal, Strategy, View, random};
use crate::model::{Config, Outcome, Purpose};

pub(super) const ENTRY: Entry = Entry {
    name: "halving",
    about: "successive halving: many configs in short probes, the better third of them in longer ones",
    build: || Box::new(Halving),
};

/// One config in this many moves up from a rung: the 3 that Hyperband recommends.
const REDUCTION: usize = 3;

/// The parts of the usual time on each rung: a probe gets one of this many.
const RUNGS: [u32; 3] = [9, 3, 1];

/// The last probes, one in this many, measure the best configs in full. A round number.
const LAST: u64 = 8;

/// The fewest probes for which short ones are worth their cost: a round number.
const FEWEST: u64 = 4;

#[derive(Debug)]
struct Halving;

impl Strategy for Halving {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        let ladder = Ladder::of(view);
        let probes = view.history.count_searched() as u64 + u64::from(view.probes_left);
        let top = RUNGS.len() - 1;
        if probes < FEWEST {
            return ladder.finalist(view).or_else(|| new(view, top));
        }
        if u64::from(view.probes_left) <= (probes / LAST).max(1)
            && let Some(proposal) = ladder.finalist(view)
        {
            return Some(proposal);
        }
        (0..top)
            .rev()
            .find_map(|rung| ladder.promoted(view, rung))
            .or_else(|| new(view, if view.probes_left <= 1 { top } else { 0 }))
            .or_else(|| ladder.finalist(view))
    }
}

/// Proposes a config that was not probed yet.
fn new(view: &View<'_>, rung: usize) -> Option<Proposal> {
    let is_new = |config: &Config| !view.history.contains(config) && view.is_open(config);
    let config = view.start.filter(|start| is_new(start)).cloned().or_else(|| random::propose_among(view, &is_new))?;
    let reason = (rung + 1 < RUNGS.len()).then(|| format!("a first look, for 1/{} of the time", RUNGS[rung]));
    Some(Proposal { reason, one_in: parts(rung), ..config.into() })
}

fn parts(rung: usize) -> Option<NonZeroU32> {
    NonZeroU32::new(RUNGS[rung]).filter(|parts| parts.get() > 1)
}

/// The rung that a probe belongs to.
fn rung_of(purpose: Purpose) -> usize {
    match purpose {
        Purpose::Screen { one_in } => RUNGS.iter().position(|&parts| parts <= one_in.get()).unwrap_or(0),
        _ => RUNGS.len() - 1,
    }
}

/// The configs on each rung.
struct Ladder<'v> {
    /// For each rung, the number of configs probed on it and the configs that ran, the best first.
    rungs: [(usize, Vec<&'v Config>); RUNGS.len()],
    /// The highest rung of each config.
    reached: HashMap<&'v Config, usize>,
}

impl<'v> Ladder<'v> {
    fn of(view: &View<'v>) -> Self {
        let mut reached: HashMap<&Config, usize> = HashMap::new();
        let mut scored: [Vec<(&Config, (bool, f64))>; RUNGS.len()] = Default::default();
        let mut probed = [0; RUNGS.len()];
        for trial in view.history.searched() {
            if matches!(trial.outcome, Outcome::Disturbed(_) | Outcome::Interrupted) {
                continue;
            }
            let rung = rung_of(trial.purpose);
            probed[rung] += 1;
            reached.entry(&trial.config).and_modify(|highest| *highest = rung.max(*highest)).or_insert(rung);
            if let Some(measurement) = trial.outcome.measurement() {
                // Infeasible configs come behind all feasible configs, and configs without a number behind all configs with a
                // number.
                let number = view.objective.estimate(measurement).map(|number| view.objective.score(number.value));
                let score = number.filter(|score| !score.is_nan()).unwrap_or(f64::NEG_INFINITY);
                scored[rung].push((&trial.config, (view.objective.score_of(&trial.outcome).is_some(), score)));
            }
        }
        let mut rungs: [(usize, Vec<&Config>); RUNGS.len()] = Default::default();
        for (at, mut scored) in scored.into_iter().enumerate() {
            // The sort is stable: among equals, the first comes first.
            scored.sort_by(|(_, a), (_, b)| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
            rungs[at] = (probed[at], scored.into_iter().map(|(config, _)| config).collect());
        }
        Self { rungs, reached }
    }

    /// Returns the best config of a rung that is in its best third and was not probed for longer.
    fn promoted(&self, view: &View<'_>, rung: usize) -> Option<Proposal> {
        let (probed, ran) = &self.rungs[rung];
        let config = ran.iter().take(probed / REDUCTION).find(|config| self.is_waiting(view, config, rung))?;
        let length = match RUNGS[rung + 1] {
            1 => "in full".to_owned(),
            parts => format!("for 1/{parts} of the time"),
        };
        let reason = format!("among the best third of {probed} short probes: measured {length}");
        Some(Proposal { reason: Some(reason), one_in: parts(rung + 1), ..(*config).clone().into() })
    }

    /// Returns the best config that was not measured in full, to measure it in full. Configs on higher rungs come first.
    fn finalist(&self, view: &View<'_>) -> Option<Proposal> {
        let config = (0..RUNGS.len() - 1)
            .rev()
            .find_map(|rung| self.rungs[rung].1.iter().find(|config| self.is_waiting(view, config, rung)))?;
        let reason = "the best of those that were not measured in full".to_owned();
        Some(Proposal { reason: Some(reason), ..(*config).clone().into() })
    }

    fn is_waiting(&self, view: &View<'_>, config: &Config, rung: usize) -> bool {
        self.reached.get(config) == Some(&rung) && view.is_open(config)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Constraint, Estimate, History, Measurement, Objective, Parameter, Space, Trial};

    /// Runs a search with this many probes in which the speed is the level. Returns the lengths of its probes, and the
    /// configs that were measured in full.
    fn searched(levels: u32, budget: u32) -> (Vec<u32>, Vec<u32>) {
        searched_for(Objective::default(), levels, budget)
    }

    fn searched_for(objective: Objective, levels: u32, budget: u32) -> (Vec<u32>, Vec<u32>) {
        let space = Space::new([Parameter::range("x", 0, i64::from(levels) - 1, 1)]).unwrap();
        let mut history = History::default();
        let (mut lengths, mut whole) = (Vec::new(), Vec::new());
        for number in 1..=budget {
            let view = View::new(&space, &objective, &history, &[], None).with(budget + 1 - number, 1);
            let Some(proposal) = Halving.propose(&view) else { break };
            let level = proposal.config.level(0).unwrap();
            lengths.push(proposal.one_in.map_or(1, NonZeroU32::get));
            whole.extend(proposal.one_in.is_none().then_some(level));
            history.push(Trial {
                slot: None,
                number,
                purpose: proposal.one_in.map_or(Purpose::Search, |one_in| Purpose::Screen { one_in }),
                config: proposal.config,
                outcome: Outcome::Measured(Measurement {
                    throughput: Some(Estimate::point(f64::from(level) + 1.0)),
                    ..Measurement::default()
                }),
                elapsed: Duration::ZERO,
                ended_at: None,
            });
        }
        (lengths, whole)
    }

    #[test]
    fn a_third_of_each_rung_moves_up_and_the_last_probes_are_whole() {
        let (lengths, whole) = searched(1000, 60);
        let count = |parts| lengths.iter().filter(|&&length| length == parts).count();
        let (first, second, third) = (count(9), count(3), count(1));
        assert!((35..=42).contains(&first) && (10..=14).contains(&second) && (7..=12).contains(&third), "{lengths:?}");
        assert!(lengths[53..].iter().all(|&length| length == 1), "{lengths:?}");
        assert!(whole.iter().all(|&level| level > 500), "{whole:?}");
    }

    #[test]
    fn what_may_not_win_yet_moves_up_by_its_speed() {
        let no_bound = searched(1000, 60);
        let objective = Objective::default().constraint(Constraint::parse("loss <= 2.5").unwrap());
        assert_eq!(searched_for(objective, 1000, 60), no_bound);
    }

    #[test]
    fn few_probes_are_all_whole_and_a_few_more_end_with_a_whole_one() {
        for budget in 1..4 {
            assert_eq!(searched(1000, budget).0, vec![1; budget as usize]);
        }
        for budget in 4..30 {
            assert_eq!(searched(1000, budget).0.last(), Some(&1), "of {budget}");
        }
    }

    #[test]
    fn in_the_end_everything_is_measured_in_full() {
        let (lengths, mut whole) = searched(12, 1000);
        whole.sort_unstable();
        assert_eq!(whole, (0..12).collect::<Vec<u32>>());
        assert!(lengths.iter().filter(|&&length| length == 9).count() == 12, "{lengths:?}");
    }
}
