//! Makes many proposals from one thought: a fit of the model with a ranking of candidates. It is for searches whose probes end
//! faster than a thought takes: sixty-four slots with steps of a millisecond ask two hundred times a second.
//!
//! A thought depends only on the trials before it, and a proposal only on the configs of the thought that are still open. So a
//! strategy that lived through a search and a new strategy that only sees its history make the same proposal.

use std::sync::Arc;

use super::acquisition::Choice;
use super::candidates::{Chunk, shuffled};
use super::schedule;
use crate::model::{Config, History, Space};
use crate::search::strategy::{Proposal, View};

/// The time of a thought: the median over 500 trials is 16 to 39 ms (benches/results/suggest.md).
const THOUGHT: f64 = 0.025;
/// The share of a core that thoughts may take. A round number.
const SHARE: f64 = 0.1;
/// The number of the last trials that tell how long a probe takes. A round number.
const LAST: usize = 16;
/// The fewest trials for a thought. A round number.
const FEWEST: usize = 4;
/// One in this many configs of a batch is drawn at random, since one model chose all the rest.
const ONE_IN: usize = 4;

/// When the last thought was, and the size of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thought {
    /// The number of trials at that time.
    at: usize,
    /// Twice the number of configs that are tried until the next thought or are still being probed then.
    most: usize,
}

/// Returns the last thought; `None` if each proposal has a thought of its own.
pub(super) fn last_thought(view: &View<'_>) -> Option<Thought> {
    let slots = (view.pending.len() + 1).next_power_of_two();
    let pace = pace(view);
    let at = thought_at(view.history.count_searched(), pace);
    (pace > 1 && at >= FEWEST).then_some(Thought { at, most: 2 * (pace + slots) })
}

/// Returns true if probes end faster than a thought about a whole space takes.
pub(super) fn is_hurried(view: &View<'_>) -> bool {
    pace(view) > 1
}

/// Returns how many trials pass from one thought to the next, rounded up to a power of two. It is one, unless a thought for each
/// trial would take more than its [`SHARE`] of a core.
fn pace(view: &View<'_>) -> usize {
    let last = view.history.trials().iter().rev().take(LAST);
    let (count, seconds) =
        last.fold((0.0, 0.0), |(count, seconds), trial| (count + 1.0, seconds + trial.elapsed.as_secs_f64()));
    // If probes run one at a time, a thought delays no other probe.
    if seconds <= 0.0 || view.pending.is_empty() {
        return 1;
    }
    let rate = (view.pending.len() + 1) as f64 * count / seconds;
    let trials = (rate * THOUGHT / SHARE).ceil().clamp(1.0, 65_536.0) as usize;
    trials.next_power_of_two()
}

/// Returns after how many trials the last thought was: after powers of two at first, then after multiples of the pace.
fn thought_at(searched: usize, pace: usize) -> usize {
    if searched < pace { 1 << searched.max(1).ilog2() } else { searched - searched % pace }
}

/// The last batch, and the trials that were known at its thought.
#[derive(Debug, Default)]
pub(super) struct Kept {
    last: schedule::Kept<Vec<Proposal>>,
    past: Past,
}

/// The trials that were known at the last thought.
#[derive(Debug, Default)]
struct Past {
    /// The history that begins with these trials.
    of: Arc<()>,
    known: History,
}

impl Past {
    fn at(&mut self, view: &View<'_>, thought: Thought) -> &History {
        let goes_on = Arc::ptr_eq(&self.of, view.history.identity()) && self.known.count_searched() <= thought.at;
        if !goes_on {
            *self = Self { of: Arc::clone(view.history.identity()), known: History::default() };
        }
        for trial in &view.history.trials()[self.known.trials().len()..] {
            if self.known.count_searched() == thought.at {
                break;
            }
            self.known.push(trial.clone());
        }
        &self.known
    }
}

impl Kept {
    /// Returns the batch of a thought.
    pub(super) fn of(
        &mut self,
        view: &View<'_>,
        thought: Thought,
        think: impl FnOnce(&History) -> Vec<Proposal>,
    ) -> &[Proposal] {
        let Self { last, past } = self;
        let more = format!("{} {} {thought:?}", view.seed, view.between_runs);
        last.of(view, &more, || think(past.at(view, thought)))
    }
}

/// Returns the configs that a thought proposes. Neighbours of better configs come last, since they would show the same.
pub(super) fn spread(space: &Space, ranked: Vec<Choice>, thought: Thought) -> Vec<Choice> {
    let (mut apart, mut near): (Vec<Choice>, Vec<Choice>) = (Vec::new(), Vec::new());
    for choice in ranked {
        if apart.len() == thought.most {
            break;
        }
        let is_near = apart.iter().any(|other| are_neighbours(space, &other.config, &choice.config));
        if is_near { near.push(choice) } else { apart.push(choice) }
    }
    apart.into_iter().chain(near).take(thought.most).collect()
}

/// Puts random configs among the configs that a model has chosen.
pub(super) fn mixed(view: &View<'_>, candidates: &[Chunk], chosen: Vec<Proposal>) -> Vec<Proposal> {
    let mut drawn = shuffled(candidates, view.seed_of_draw()).filter(|config| view.is_open(config));
    let mut batch: Vec<Proposal> = Vec::new();
    for proposal in chosen {
        if batch.len() % ONE_IN == ONE_IN - 1
            && let Some(config) = drawn.next()
        {
            batch.push(Proposal { reason: Some("drawn at random".to_owned()), ..config.clone().into() });
        }
        batch.push(proposal);
    }
    batch
}

/// Returns true if two configs are one step apart along one parameter.
fn are_neighbours(space: &Space, a: &Config, b: &Config) -> bool {
    let mut apart = (0..space.parameters().len()).filter(|&at| a.level(at) != b.level(at));
    let (Some(at), None) = (apart.next(), apart.next()) else { return false };
    a.level(at).zip(b.level(at)).is_some_and(|(a, b)| a.abs_diff(b) == 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Failure, Objective, Outcome, Parameter, Purpose, Trial};
    use crate::search::strategy::bayes::process::Belief;

    fn pace_of(elapsed: Duration, slots: usize) -> usize {
        let space = Space::new([Parameter::range("x", 0, 99, 1)]).unwrap();
        let config = space.config(0).unwrap();
        let trial = |number| Trial {
            elapsed,
            ..Trial::new(number, Purpose::Search, config.clone(), Outcome::Crashed(Failure::new("as scripted")))
        };
        let history: History = (1..20).map(trial).collect();
        let pending = vec![config.clone(); slots - 1];
        pace(&View::new(&space, &Objective::default(), &history, &pending, None))
    }

    #[test]
    fn thoughts_are_fewer_only_where_probes_end_faster() {
        assert_eq!(pace_of(Duration::from_secs(10), 1), 1);
        assert_eq!(pace_of(Duration::from_secs(10), 32), 1);
        assert_eq!(pace_of(Duration::from_secs(10), 64), 2);
        assert_eq!(pace_of(Duration::from_millis(300), 64), 64);
        assert_eq!(pace_of(Duration::from_millis(1), 1), 1);
        assert_eq!(pace_of(Duration::ZERO, 64), 1, "recorded tables have no clock");
    }

    #[test]
    fn thoughts_come_after_powers_of_two_then_after_multiples() {
        assert_eq!(
            [1, 3, 4, 7, 31, 32, 63, 64, 100].map(|scored| thought_at(scored, 32)),
            [1, 2, 4, 4, 16, 32, 32, 64, 96]
        );
        for scored in 1..500 {
            let at = thought_at(scored, 16);
            assert!(at <= scored && thought_at(at, 16) == at);
        }
    }

    #[test]
    fn neighbours_of_better_ones_come_last() {
        let space = Space::new([Parameter::range("x", 0, 9, 1), Parameter::values("kind", ["a", "b"])]).unwrap();
        let ranked = [[3, 0], [4, 0], [4, 1], [5, 0], [9, 1], [3, 1]].map(|levels| Choice {
            config: space.with_levels(&levels).unwrap(),
            belief: Belief { mean: 0.0, deviation: 1.0 },
            chance: 1.0,
            fits: 1.0,
            improvement: 0.1,
        });
        let spread = |most| {
            let chosen = spread(&space, ranked.to_vec(), Thought { at: 4, most });
            let levels = chosen.iter().map(|choice| choice.config.levels().map(Option::unwrap).collect());
            levels.collect::<Vec<Vec<u32>>>()
        };
        assert_eq!(spread(9), [[3, 0], [4, 1], [5, 0], [9, 1], [4, 0], [3, 1]]);
        assert_eq!(spread(2), [[3, 0], [4, 1]]);
    }
}
