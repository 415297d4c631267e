//! Decides when the model is fitted anew, and keeps the last fit. Also decides when proposals must be quick: 64 slots with steps of
//! 1 ms need 200 proposals a second.
//!
//! The schedule depends only on the number of trials, and a fit only on the trials up to then. So a new strategy with only the
//! history of a search makes the same proposal as the strategy that ran the search. It fits once.

use std::sync::Arc;

use super::Known;
use super::model::Model;
use crate::model::Trial;
use crate::search::strategy::View;

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

/// The last fit, with everything that it depends on.
#[derive(Debug, Default)]
pub(super) struct Kept {
    last: Option<(Basis, Model)>,
}

#[derive(Debug)]
struct Basis {
    space: Arc<()>,
    /// The number of each trial with a score, and the bits of its score and of the width of its interval.
    scored: Vec<(u32, u64, Option<u64>)>,
    asked: String,
}

impl Kept {
    /// Returns the fit to the part of the history that the schedule names. `turn` is anything else that the fit depends on.
    pub(super) fn fit<'v>(
        &mut self,
        view: &View<'v>,
        known: &Known<'v>,
        turn: bool,
        fit: impl FnOnce(&Known<'v>) -> Model,
    ) -> &Model {
        let known = known.up_to(fitted(known.scored.len()));
        let earlier: Vec<u64> = view.earlier.iter().map(|study| study.id).collect();
        let (objective, trials) = (view.objective, known.trials.len());
        let (speeds, is_beside_others) = (view.precision_speeds, view.history.is_beside_others());
        let asked = format!("{objective:?} {speeds:?} {earlier:?} {turn} {trials} {is_beside_others}");
        let bits_of = |(trial, score): &(&Trial, f64)| {
            let width = trial.outcome.measurement().and_then(|run| view.half_width(run));
            (trial.number, score.to_bits(), width.map(f64::to_bits))
        };
        let (space, scored) = (view.space.identity(), known.scored.iter().map(bits_of).collect::<Vec<_>>());
        let is_same =
            |basis: &Basis| Arc::ptr_eq(&basis.space, space) && basis.scored == scored && basis.asked == asked;
        let last = self.last.take().filter(|(basis, _)| is_same(basis));
        let make = || (Basis { space: Arc::clone(space), scored, asked }, fit(&known));
        &self.last.insert(last.unwrap_or_else(make)).1
    }
}

/// The time of a proposal from a whole space: the median over 500 trials is 16 to 39 ms (benches/results/suggest.md).
const THOUGHT: f64 = 0.025;
/// The share of a core that such proposals may take. A round number.
const SHARE: f64 = 0.1;
/// The number of last trials that show how long a probe takes. A round number.
const LAST: usize = 16;

/// Returns true if a proposal from the whole space for each probe would take more than its [`SHARE`] of a core.
pub(super) fn is_hurried(view: &View<'_>) -> bool {
    // If probes run one at a time, a proposal delays no other probe.
    if view.pending.is_empty() {
        return false;
    }
    let last = view.history.trials().iter().rev().take(LAST);
    let (count, seconds) =
        last.fold((0.0, 0.0), |(count, seconds), trial| (count + 1.0, seconds + trial.elapsed.as_secs_f64()));
    // Recorded tables have no clock.
    let rate = if seconds > 0.0 { (view.pending.len() + 1) as f64 * count / seconds } else { 0.0 };
    rate * THOUGHT > SHARE
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{History, Objective};
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
    fn only_many_short_probes_are_in_a_hurry() {
        let (space, objective) = (numbers(0, 99), Objective::default());
        let config = space.config(0).unwrap();
        for (milliseconds, slots, expected) in [
            (10_000, 1, false),
            (10_000, 32, false),
            (10_000, 64, true),
            (300, 64, true),
            (1, 1, false),
            (0, 64, false),
        ] {
            let elapsed = Duration::from_millis(milliseconds);
            let tried = |number| Trial { elapsed, ..trial(number, config.clone(), crashed()) };
            let (history, pending): (History, _) = ((1..20).map(tried).collect(), vec![config.clone(); slots - 1]);
            let view = View::new(&space, &objective, &history, &pending, None);
            assert_eq!(is_hurried(&view), expected, "{elapsed:?} in {slots} slots");
        }
    }
}
