//! Decides when the model is fitted anew, and keeps the last fit. A thought is a fit with a ranking of candidates. If probes end
//! faster than a thought takes, one thought makes many proposals: 64 slots with steps of 1 ms need 200 proposals a second.
//!
//! The schedule depends only on the number of trials, a fit only on the trials up to then, and a proposal only on the configs of a
//! thought that are still open. So a new strategy with only the history of a search makes the same proposal as the strategy that
//! ran the search. It fits once.

use std::sync::Arc;

use super::Known;
use super::acquisition::Choice;
use super::candidates::{Chunk, shuffled};
use crate::model::{Config, History, Space, Trial};
use crate::search::strategy::{Proposal, View};

/// Up to this many scored trials, the model is fitted after each trial, because fits of few trials are quick. A round number.
const EACH: usize = 20;

/// Returns how many of the scored trials the model is fitted to: all up to [`EACH`]; beyond, a new fit follows after each tenth
/// more.
fn fitted(scored: usize) -> usize {
    let mut at = scored.min(EACH);
    while at >= EACH && at + at / 10 <= scored {
        at += at / 10;
    }
    at
}

/// The last value that was made from a view, with everything that it depends on.
#[derive(Debug)]
pub(super) struct Kept<T> {
    last: Option<(Basis, T)>,
}

#[derive(Debug)]
struct Basis {
    space: Arc<()>,
    /// The number of each trial with a score, and the bits of its score and of the width of its interval.
    scored: Vec<(u32, u64, Option<u64>)>,
    asked: String,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { last: None }
    }
}

impl<T> Kept<T> {
    /// Returns the value for a view and its trials with a score; `more` is anything else that it depends on.
    fn of(&mut self, view: &View<'_>, scored: &[(&Trial, f64)], more: &str, make: impl FnOnce() -> T) -> &T {
        let earlier: Vec<u64> = view.earlier.iter().map(|study| study.id).collect();
        let asked = format!("{:?} {:?} {earlier:?} {more}", view.objective, view.precision_speeds);
        let bits_of = |(trial, score): &(&Trial, f64)| {
            let width = trial.outcome.measurement().and_then(|run| view.half_width(run));
            (trial.number, score.to_bits(), width.map(f64::to_bits))
        };
        let (space, scored) = (view.space.identity(), scored.iter().map(bits_of).collect::<Vec<_>>());
        let last = self
            .last
            .take()
            .filter(|(basis, _)| Arc::ptr_eq(&basis.space, space) && basis.scored == scored && basis.asked == asked);
        let make = || (Basis { space: Arc::clone(space), scored, asked }, make());
        &self.last.insert(last.unwrap_or_else(make)).1
    }

    /// Returns the fit to the part of the history that the schedule names. `turn` is anything else that the fit depends on.
    pub(super) fn fit<'v>(
        &mut self,
        view: &View<'v>,
        known: &Known<'v>,
        turn: bool,
        fit: impl FnOnce(&Known<'v>) -> T,
    ) -> &T {
        let known = known.up_to(fitted(known.scored.len()));
        self.of(view, &known.scored, &format!("{turn} {}", known.trials.len()), || fit(&known))
    }
}

/// The time of a thought: the median over 500 trials is 16 to 39 ms (benches/results/suggest.md).
const THOUGHT: f64 = 0.025;
/// The share of a core that thoughts may take. A round number.
const SHARE: f64 = 0.1;
/// The number of last trials that show how long a probe takes. A round number.
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

/// Returns how many trials pass from one thought to the next, rounded up to a power of two. It is one, unless a thought for each
/// trial would take more than its [`SHARE`] of a core.
pub(super) fn pace(view: &View<'_>) -> usize {
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

/// The last batch.
#[derive(Debug, Default)]
pub(super) struct Batch(Kept<Vec<Proposal>>);

impl Batch {
    pub(super) fn of(
        &mut self,
        view: &View<'_>,
        thought: Thought,
        think: impl FnOnce(&History) -> Vec<Proposal>,
    ) -> &[Proposal] {
        let more = format!("{} {} {thought:?}", view.seed, view.between_runs);
        let searched = view.history.searched().take(thought.at);
        let scored = searched.filter_map(|trial| Some((trial, view.objective.score_of(&trial.outcome)?)));
        self.0.of(view, &scored.collect::<Vec<_>>(), &more, || {
            let mut known = History::default();
            for trial in view.history.trials() {
                if known.count_searched() == thought.at {
                    break;
                }
                known.push(Arc::clone(trial));
            }
            think(&known)
        })
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
    use crate::model::{Objective, Parameter};
    use crate::search::strategy::bayes::process::Belief;
    use crate::search::tests::{crashed, numbers, trial};

    #[test]
    fn fits_become_rarer_and_never_look_ahead() {
        for scored in 1..3000 {
            let at = fitted(scored);
            assert!(at <= scored && scored - at <= scored / 10, "{scored}: {at}");
            assert_eq!(fitted(at), at);
            assert!(fitted(scored + 1) >= at);
        }
        let fits = (1..=1000).filter(|&scored| fitted(scored) == scored).count();
        assert!(fits < 70, "{fits}");
    }

    #[test]
    fn thoughts_are_fewer_only_where_probes_end_faster() {
        let space = numbers(0, 99);
        let config = space.config(0).unwrap();
        // Recorded tables have no clock.
        for (milliseconds, slots, expected) in
            [(10_000, 1, 1), (10_000, 32, 1), (10_000, 64, 2), (300, 64, 64), (1, 1, 1), (0, 64, 1)]
        {
            let elapsed = Duration::from_millis(milliseconds);
            let tried = |number| Trial { elapsed, ..trial(number, config.clone(), crashed()) };
            let (history, pending): (History, _) = ((1..20).map(tried).collect(), vec![config.clone(); slots - 1]);
            let pace = pace(&View::new(&space, &Objective::default(), &history, &pending, None));
            assert_eq!(pace, expected, "{elapsed:?} in {slots} slots");
        }
    }

    #[test]
    fn thoughts_come_after_powers_of_two_then_after_multiples() {
        let scored = [1, 3, 4, 7, 31, 32, 63, 64, 100];
        assert_eq!(scored.map(|scored| thought_at(scored, 32)), [1, 2, 4, 4, 16, 32, 32, 64, 96]);
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
