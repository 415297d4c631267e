//! When the model is fitted anew, and what was fitted last.
//!
//! The schedule depends on the number of trials alone, and a fit on the trials up to then. So a strategy that lived
//! through a search and a new one that only sees its history propose the same; the new one fits once.

use std::sync::Arc;

use super::Known;
use crate::model::Trial;
use crate::search::strategy::{Earlier, View};

/// Scored trials up to which the model is fitted at each one.
const EACH: usize = 20;

/// How many of the scored trials the model is fitted to: from [`EACH`] on it is fitted anew when they are a tenth more.
pub(super) fn fitted(scored: usize) -> usize {
    let mut at = scored.min(EACH);
    while at >= EACH && at + at / 10 <= scored {
        at += at / 10;
    }
    at
}

/// What was fitted last, with everything that the fit depends on; the memory of the history once more.
#[derive(Debug)]
pub(super) struct Kept<T> {
    last: Option<(Basis, T)>,
}

#[derive(Debug)]
struct Basis {
    space: Arc<()>,
    asked: String,
    trials: Vec<Trial>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { last: None }
    }
}

impl<T> Kept<T> {
    /// What is fitted to the part of the history that the schedule names. `turn` is what else the fit depends on.
    pub(super) fn of<'v>(
        &mut self,
        view: &View<'v>,
        known: &Known<'v>,
        turn: bool,
        fit: impl FnOnce(&Known<'v>) -> T,
    ) -> &T {
        let known = known.up_to(fitted(known.scored.len()));
        let earlier: Vec<u64> = view.earlier.iter().map(Earlier::id).collect();
        let asked = format!("{:?} {:?} {earlier:?} {turn}", view.objective, view.precision_speeds);
        let last = self.last.take().filter(|(basis, _)| {
            Arc::ptr_eq(&basis.space, view.space.identity())
                && basis.asked == asked
                && basis.trials.iter().eq(known.trials.iter().copied())
        });
        let make = || {
            let trials = known.trials.iter().map(|trial| (*trial).clone()).collect();
            (Basis { space: Arc::clone(view.space.identity()), asked, trials }, fit(&known))
        };
        &self.last.insert(last.unwrap_or_else(make)).1
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
