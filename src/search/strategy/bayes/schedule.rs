//! Decides when the model is fitted anew, and keeps the last fit.
//!
//! The schedule depends only on the number of trials, and a fit only on the trials up to then. So a strategy that lived through a
//! search and a new strategy that only sees its history make the same proposal. The new strategy fits once.

use std::sync::Arc;

use super::Known;
use crate::search::strategy::{Earlier, View};

/// The number of scored trials up to which the model is fitted at each one: a round number, since fits of few trials
/// are quick.
const EACH: usize = 20;

/// Returns how many of the scored trials the model is fitted to: from [`EACH`] on it is fitted anew whenever there are
/// a tenth more.
pub(super) fn fitted(scored: usize) -> usize {
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
    history: Arc<()>,
    asked: String,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { last: None }
    }
}

impl<T> Kept<T> {
    /// Returns the value for a view; `more` is anything else that it depends on.
    pub(super) fn of(&mut self, view: &View<'_>, more: &str, make: impl FnOnce() -> T) -> &T {
        let earlier: Vec<u64> = view.earlier.iter().map(Earlier::id).collect();
        let asked = format!("{:?} {:?} {earlier:?} {more}", view.objective, view.precision_speeds);
        let (space, history) = (view.space.identity(), view.history.identity());
        let last = self.last.take().filter(|(basis, _)| {
            Arc::ptr_eq(&basis.space, space) && Arc::ptr_eq(&basis.history, history) && basis.asked == asked
        });
        let make = || (Basis { space: Arc::clone(space), history: Arc::clone(history), asked }, make());
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
        self.of(view, &format!("{turn} {}", known.trials.len()), || fit(&known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
