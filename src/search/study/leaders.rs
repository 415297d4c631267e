//! Selects the configs to measure again before a winner is named.

use super::front;
use crate::model::{Config, History, Objective, Purpose, Trial};
use crate::search::budget::CONFIRMED;

/// Selects the best, the runner-up, further ones that are close, and the baseline; for a front, the recommended config
/// and the front's ends. A config that failed when it was measured again is left out.
pub(crate) fn leaders(objective: &Objective, history: &History, baseline: Option<&Config>) -> Vec<Config> {
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
        keep_close(&mut leaders, score);
    }
    let is_feasible = |config: &&Config| held().any(|trial| trial.config == **config);
    leaders.extend(baseline.filter(is_feasible).filter(|config| !leaders.contains(config)).cloned());
    leaders
}

/// Keeps the first two, and those that are close to the first.
fn keep_close(leaders: &mut Vec<Config>, score: impl Fn(&Config) -> Option<f64>) {
    /// The difference, as a share, up to which a third config is a leader, too. A round number.
    const CLOSE: f64 = 0.05;
    let Some(top) = leaders.first().and_then(&score) else { return };
    let mut place = 0;
    leaders.retain(|config| {
        place += 1;
        place <= 2 || score(config).is_some_and(|score| top - score <= CLOSE * top.abs())
    });
}

/// Counts how often a config was measured again.
pub(crate) fn confirmed(history: &History, config: &Config) -> usize {
    history.of(config).filter(|trial| trial.purpose == Purpose::Confirm).count()
}
