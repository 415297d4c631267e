//! The configs still in the race, and the choice of the configs for the next round.

use std::sync::Arc;

use super::{Ranked, Study, choice, front, noise_of};
use crate::model::{Config, Estimate, History, Outcome, Trial};
use crate::search::rounds::{self, Noise, PROCESSES_APART};

/// The probability at each end of the interval of a difference. A config counts as worse if its whole interval lies
/// below the incumbent.
const WORSE: f64 = 0.05;

/// The expected gain, as a share, that is not worth more rounds. Two configs that seem equal have an expected gain of
/// 0.4 times the standard error of their difference. After three rounds, that error is about 4%, so such a gain is
/// about 1.6%.
const SMALL_GAIN: f64 = 0.02;

/// A gain below the first number is not worth more rounds once its standard error is below the second. Both are shares and round
/// numbers. Two processes of one config differ by about as much, so a proof would take dozens of rounds.
const TINY_GAIN: f64 = 0.03;
const TINY_GAIN_KNOWN: f64 = 0.015;

/// The number of rounds for each leader, if slices do not measure the objective. It is the fewest rounds that a claim
/// needs.
const ROUNDS_OF_LEADERS: usize = 3;

/// The rounds after which the baseline and the incumbent are restarted, so that more than one process of each is seen. Round
/// numbers. A claim needs two processes, so the first process is soon replaced.
const ROUNDS_OF_FIRST_PROCESS: usize = 2;
const ROUNDS_PER_PROCESS: usize = 8;

pub(crate) struct Race {
    /// The feasible configs, the best first.
    ranking: Vec<Ranked>,
    noise: Noise,
    /// The position of the baseline in the ranking, or else of the config that was in most rounds.
    anchor: Option<usize>,
    has_baseline: bool,
    /// The configs to re-measure if slices do not measure the objective: the leaders of a front, or else the best two.
    leaders: Option<Vec<Config>>,
    is_claimed: bool,
}

impl Race {
    pub(super) fn of(study: &Study) -> Self {
        let ranking = study.ranking();
        let noise = noise_of(&ranking);
        let baseline = ranking.iter().position(|entry| study.baseline.as_ref() == Some(&entry.config));
        let most = || (0..ranking.len()).rev().max_by_key(|&at| ranking[at].rounds);
        let leaders = (!study.objective.is_largest_throughput()).then(|| {
            let is_feasible = |trial: &&Trial| ranking.iter().any(|ranked| ranked.config == trial.config);
            let most = if study.objective.is_pareto() { MOST_OF_A_FRONT } else { MOST_OF_OTHERS };
            front::leaders(&study.objective, study.history.searched().filter(is_feasible), most)
        });
        let compared = choice::compared(&ranking);
        let is_claimed = baseline.is_some_and(|at| {
            let best = ranking.iter().find(|entry| entry.rounds > 0);
            best.is_some_and(|best| choice::is_better(study, best, &ranking[at], (&noise, compared)))
        });
        Self { anchor: baseline.or_else(most), has_baseline: baseline.is_some(), noise, leaders, is_claimed, ranking }
    }

    /// Returns at most `most` configs for the next round, in this order: the baseline, the incumbent, the `candidates`
    /// from the fastest to the slowest, and the configs close to the incumbent. The candidates were in no round yet. If
    /// slices do not measure the objective, returns the baseline and the leaders.
    pub(crate) fn lineup(&self, candidates: &[Config], most: usize) -> Vec<Config> {
        let anchor = self.anchor.map(|at| &self.ranking[at].config);
        let close = self.close().map(|entry| &entry.config);
        let incumbent = self.incumbent().map(|entry| &entry.config);
        let mut candidates: Vec<&Config> = candidates.iter().collect();
        let place = |config: &Config| self.ranking.iter().position(|entry| entry.config == *config);
        candidates.sort_by_key(|config| place(config).unwrap_or(usize::MAX));
        let wanted: Vec<&Config> = match &self.leaders {
            Some(leaders) => anchor.into_iter().chain(leaders).collect(),
            None => anchor.into_iter().chain(incumbent).chain(candidates).chain(close).collect(),
        };
        let mut lineup: Vec<Config> = Vec::new();
        for config in wanted {
            if lineup.len() < most && !lineup.contains(config) {
                lineup.push(config.clone());
            }
        }
        lineup
    }

    /// Returns the best config that was in a round.
    pub(crate) fn incumbent(&self) -> Option<&Ranked> {
        self.ranking.iter().find(|entry| entry.rounds > 0)
    }

    /// Returns the configs that may be better than the incumbent, the best first.
    fn close(&self) -> impl Iterator<Item = &Ranked> {
        let incumbent = self.incumbent();
        let is_anchor = |entry: &Ranked| self.anchor.is_some_and(|at| self.ranking[at].config == entry.config);
        self.ranking.iter().filter(move |entry| {
            let Some(incumbent) = incumbent.filter(|best| best.config != entry.config && !is_anchor(entry)) else {
                return false;
            };
            let difference = self.noise.difference(&entry.runs, &incumbent.runs);
            entry.rounds > 0
                && difference.is_some_and(|difference| difference.value + difference.half_width(WORSE) > 0.0)
        })
    }

    /// Returns true if more rounds cannot change the choice of the config.
    pub(crate) fn is_decided(&self) -> bool {
        if let Some(leaders) = &self.leaders {
            let anchor = self.anchor.map(|at| &self.ranking[at].config);
            let rounds = |config: &Config| self.ranking.iter().find(|it| it.config == *config).map(|it| it.rounds);
            return leaders.iter().chain(anchor).all(|config| rounds(config) >= Some(ROUNDS_OF_LEADERS));
        }
        let (Some(anchor), Some(incumbent)) = (self.anchor.map(|at| &self.ranking[at]), self.incumbent()) else {
            return true;
        };
        let may_beat = |entry: &Ranked, other: &Ranked| {
            let difference = self.noise.difference(&entry.runs, &other.runs);
            entry.rounds > 0
                && difference.is_some_and(|known| {
                    let is_tiny = known.value < TINY_GAIN && known.error() < TINY_GAIN_KNOWN;
                    !is_tiny && choice::expected_gain(known.value, known.error()) > SMALL_GAIN
                })
        };
        let is_rivalled =
            || self.ranking.iter().any(|entry| entry.config != incumbent.config && may_beat(entry, incumbent));
        if self.is_claimed || !self.has_baseline {
            return !is_rivalled();
        }
        // Without a claim, another config may still turn out better than the baseline.
        !self.ranking.iter().any(|entry| entry.config != anchor.config && may_beat(entry, anchor))
    }

    /// Returns true if a config must be restarted in the next round, to measure another process of it. While the search goes on,
    /// only the baseline is restarted, since another incumbent may come. In the last rounds, the incumbent and the configs close to
    /// it are restarted as well, since they may still win.
    pub(crate) fn needs_another_process(&self, config: &Config, is_last: bool) -> bool {
        let leads = |at: &Ranked| at.config == *config;
        let is_anchor = self.anchor.is_some_and(|at| leads(&self.ranking[at]));
        let Some(entry) = self.ranking.iter().find(|entry| leads(entry)) else { return false };
        let is_incumbent = self.incumbent().is_some_and(leads);
        let seen = rounds::processes(&entry.runs).max(1);
        let may_be_named = || is_incumbent || self.close().any(leads);
        // Without noise, a second process would show nothing new.
        (is_anchor || is_last && may_be_named())
            && self.noise != Noise::of([], false)
            && entry.rounds >= ROUNDS_OF_FIRST_PROCESS + ROUNDS_PER_PROCESS * (seen - 1)
    }

    /// Returns true if the config is so much slower than the incumbent that load from other programs alone cannot
    /// explain it.
    pub(crate) fn is_out(&self, config: &Config) -> bool {
        let rate = |entry: &Ranked| entry.estimate.value;
        let entry = self.ranking.iter().find(|entry| entry.config == *config);
        let rates = entry.map(rate).zip(self.incumbent().map(rate));
        rates.is_some_and(|(rate, best)| rate * rounds::LOAD < best)
    }

    /// Returns the history that strategies see: configs that were in rounds have their results from the rounds.
    pub(crate) fn related(&self, history: &History) -> History {
        let of_rounds = |trial: &Arc<Trial>| {
            let mut trial = Arc::clone(trial);
            let entry = self.ranking.iter().find(|entry| entry.rounds > 0 && entry.config == trial.config);
            if let Some(entry) = entry
                && let Outcome::Measured(run) = &mut Arc::make_mut(&mut trial).outcome
            {
                run.throughput = Some(with_interval(entry.estimate));
            }
            trial
        };
        history.trials().iter().map(of_rounds).collect()
    }
}

/// The most leaders that are re-measured: for a front, its ends and the recommended config; otherwise the best two.
const MOST_OF_A_FRONT: usize = 3;
const MOST_OF_OTHERS: usize = 2;

/// The anchor itself has no interval, so it gets the difference between processes as its interval.
fn with_interval(estimate: Estimate) -> Estimate {
    let value = estimate.value;
    match estimate.low {
        Some(_) => estimate,
        None => Estimate::interval(value, value * (1.0 - PROCESSES_APART), value * (1.0 + PROCESSES_APART)),
    }
}
