//! Selects the configs to measure again before a winner is named.

use super::{Known, WIDEST_TIE, front};
use crate::model::{Config, History, Objective, Purpose, Trial};
use crate::search::budget::CONFIRMED;
use crate::search::noise::NoisePrior;

/// Selects the best, the runner-up, further ones that are close, and the baseline; for a front, the recommended config
/// and the front's ends. A config that failed when it was measured again is left out.
pub(crate) fn leaders(
    objective: &Objective,
    history: &History,
    baseline: Option<&Config>,
    prior: NoisePrior,
) -> Vec<Config> {
    let contenders = || history.contenders(|outcome| objective.scores_of(outcome).is_some());
    // A config that failed in a short probe may succeed in a longer one, so it is not left out.
    let failed = |trial: &Trial| trial.outcome.closes().is_empty() && objective.score_of(&trial.outcome).is_none();
    let failed_again =
        |trial: &Trial| history.of(&trial.config).any(|trial| !trial.purpose.is_short() && failed(trial));
    let held = || contenders().filter(|trial| objective.score_of(&trial.outcome).is_some() && !failed_again(trial));
    let mut leaders = front::leaders(objective, held(), CONFIRMED as usize - 1);
    if !objective.is_pareto() {
        let score = |config: &Config| {
            let trial = contenders().find(|trial| trial.config == *config)?;
            objective.score_of(&trial.outcome)
        };
        // The first measurements alone decide, so that the leaders stay the same while they are measured again.
        let first: History = history.searched().cloned().collect();
        keep_close(&mut leaders, Known::of(objective, &first, prior).as_ref(), score);
    }
    let is_feasible = |config: &&Config| held().any(|trial| trial.config == **config);
    leaders.extend(baseline.filter(is_feasible).filter(|config| !leaders.contains(config)).cloned());
    leaders
}

/// Keeps the first two, and those that may be better than the first.
fn keep_close(leaders: &mut Vec<Config>, known: Option<&Known>, score: impl Fn(&Config) -> Option<f64>) {
    /// The probability of being better than the first from which on a third config is measured again, too: a round number.
    const LIKELY: f64 = 0.2;
    /// The difference, as a share, up to which it is where nothing is known of the noise: half of the widest tie.
    const CLOSE: f64 = WIDEST_TIE / 2.0;
    let Some(first) = leaders.first().cloned() else { return };
    let Some(top) = score(&first) else { return };
    let may_be_better = |config: &Config| known.and_then(|known| known.may_be_better(config, &first, LIKELY));
    let is_close = |config: &Config| score(config).is_some_and(|score| top - score <= CLOSE * top.abs());
    let mut place = 0;
    leaders.retain(|config| {
        place += 1;
        place <= 2 || may_be_better(config).unwrap_or_else(|| is_close(config))
    });
}

/// Counts how often a config was measured again.
pub(crate) fn confirmed(history: &History, config: &Config) -> usize {
    history.of(config).filter(|trial| trial.purpose == Purpose::Confirm).count()
}
