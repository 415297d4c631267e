//! Which configs are measured again before one is named.

use super::front;
use crate::model::{Config, History, Objective, Purpose, Trial};
use crate::search::budget::CONFIRMED;

/// The best, the runner-up, further ones that are close, and the baseline; of a front the recommended one and its ends. A
/// config that failed when it was measured again is none.
pub(crate) fn leaders(objective: &Objective, history: &History, baseline: Option<&Config>) -> Vec<Config> {
    let contenders = || history.contenders(|outcome| objective.scores_of(outcome).is_some());
    // What a short probe fails a longer one may not, so it does not bar its config.
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

/// Of the best, the first two and those that are close to the first.
fn keep_close(leaders: &mut Vec<Config>, score: impl Fn(&Config) -> Option<f64>) {
    /// A difference up to which a third is a leader too.
    const CLOSE: f64 = 0.05;
    let Some(top) = leaders.first().and_then(&score) else { return };
    let mut place = 0;
    leaders.retain(|config| {
        place += 1;
        place <= 2 || score(config).is_some_and(|score| top - score <= CLOSE * top.abs())
    });
}

/// How often a config was measured again.
pub(crate) fn confirmed(history: &History, config: &Config) -> usize {
    history.of(config).filter(|trial| trial.purpose == Purpose::Confirm).count()
}
