//! Finds the front: the feasible configs that no other config beats, considering the noise of every metric. Also chooses the config
//! to recommend.
//!
//! A config beats another if it is clearly better in some metric (beyond the 95% interval of their difference, as for ties) and
//! clearly worse in none. Among configs that do not differ clearly in any metric, the tie rule keeps one config. So a config that
//! leads in one metric only by noise does not stay if it is clearly behind in another.

use super::{Best, Ranked, Study, Verdict, is_tied, noise_of, ratio};
use crate::model::{
    Config, Estimate, Goal, Measurement, Objective, OnTie, Trial,
    front::{by_compromise, non_dominated},
};
use crate::search::rounds::Noise;

/// A config of the front.
#[derive(Debug, Clone, PartialEq)]
pub struct OnFront {
    /// The config.
    pub config: Config,
    /// The value of each goal, in the order of [`Objective::goals`].
    pub numbers: Vec<Estimate>,
    /// How many rounds it was in.
    pub rounds: usize,
    /// Its last good measurement.
    pub measurement: Measurement,
    /// True if it is the recommended config, for users that need a single config.
    pub is_recommended: bool,
    /// Configs that cannot be distinguished from it in any metric.
    pub ties: Vec<Config>,
}

/// One metric of a config, compared with the baseline's.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The metric.
    pub goal: Goal,
    /// Its share of the score, if metrics have weights.
    pub weight: Option<f64>,
    /// Its value.
    pub estimate: Estimate,
    /// How many times better it is than the baseline's value, if the baseline is known.
    pub times_better: Option<Estimate>,
}

/// Selects the feasible configs to re-measure, the likeliest winner first. With a single score, these are the best configs. For a
/// front, they are the recommended config, then the ends of the front, then the configs nearest to the recommended config.
pub(super) fn leaders<'t>(objective: &Objective, trials: impl Iterator<Item = &'t Trial>, most: usize) -> Vec<Config> {
    let feasible: Vec<(&Trial, Vec<f64>)> =
        trials.filter_map(|trial| Some((trial, objective.scores_of(&trial.outcome)?))).collect();
    if !objective.is_pareto() {
        let score = |(trial, _): &(&Trial, _)| Some((objective.score_of(&trial.outcome)?, trial.config.clone()));
        let mut scored: Vec<(f64, Config)> = feasible.iter().filter_map(score).collect();
        scored.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        return scored.into_iter().take(most).map(|(_, config)| config).collect();
    }
    let rows: Vec<Vec<f64>> = feasible.iter().map(|(_, scores)| scores.clone()).collect();
    let on_front = non_dominated(&rows);
    let of_front: Vec<Vec<f64>> = on_front.iter().map(|&row| rows[row].clone()).collect();
    let near = by_compromise(&of_front);
    let end = |at: usize| (0..of_front.len()).max_by(|&a, &b| of_front[a][at].total_cmp(&of_front[b][at]));
    let ends = (0..objective.goals().len()).filter_map(end);
    let mut chosen: Vec<usize> = Vec::new();
    for place in near.first().copied().into_iter().chain(ends).chain(near.iter().copied()) {
        if !chosen.contains(&place) {
            chosen.push(place);
        }
    }
    chosen.into_iter().take(most).map(|place| feasible[on_front[place]].0.config.clone()).collect()
}

struct Column {
    goal: Goal,
    ranked: Vec<Ranked>,
    noise: Noise,
}

impl Column {
    fn score(&self, at: usize) -> f64 {
        self.goal.score(self.ranked[at].estimate.value)
    }

    fn is_tied(&self, a: usize, b: usize) -> bool {
        is_tied(&self.ranked[a], &self.ranked[b], &self.noise)
    }

    fn is_clearly_better(&self, a: usize, b: usize) -> bool {
        self.score(a) > self.score(b) && !self.is_tied(a, b)
    }
}

impl Study {
    /// Returns the feasible configs that no other config beats, the best in the first metric first. With one metric, or a weighted
    /// product, it is the best config alone. Among configs that cannot be distinguished in any metric, [the tie rule](OnTie) keeps
    /// one.
    pub fn front(&self) -> Vec<OnFront> {
        let columns = self.columns();
        if !self.objective.is_pareto() {
            let Some(best) = self.best() else { return Vec::new() };
            let place = columns.first().and_then(|column| place_of(column, &best.winner.config));
            let ties = best.ties.into_iter().map(|tie| tie.config).collect();
            return place.map(|at| member(&columns, at, ties, true)).into_iter().collect();
        }
        let (kept, tied) = self.unbeaten(&columns);
        let rows: Vec<Vec<f64>> = kept.iter().map(|&at| scores(&columns, at)).collect();
        let near = by_compromise(&rows);
        let is_compared = |at: &&usize| columns.iter().all(|column| column.ranked[kept[**at]].rounds > 0);
        // After rounds, only a config that was in a round can be recommended.
        let recommended = near.iter().find(is_compared).or(near.first()).copied();
        let configs = |ties: &[usize]| ties.iter().map(|&at| columns[0].ranked[at].config.clone()).collect();
        let members = kept.iter().zip(&tied).enumerate();
        members.map(|(place, (&at, ties))| member(&columns, at, configs(ties), recommended == Some(place))).collect()
    }

    /// Returns each goal's value for a config, compared with the baseline's; empty if the config is not feasible.
    pub fn parts(&self, config: &Config) -> Vec<Part> {
        let weight = |at: usize| self.objective.weights().and_then(|weights| weights.get(at)).copied();
        let part = |(at, column): (usize, Column)| {
            let entry = &column.ranked[place_of(&column, config)?];
            let baseline = self.baseline.as_ref().and_then(|baseline| place_of(&column, baseline));
            let times_better = baseline.and_then(|place| {
                ratio(&self.objective.alone(&column.goal), entry, &column.ranked[place], &column.noise)
            });
            Some(Part { weight: weight(at), estimate: entry.estimate, times_better, goal: column.goal })
        };
        self.columns().into_iter().enumerate().filter_map(part).collect()
    }

    pub(super) fn recommended(&self) -> Option<Best> {
        let member = self.front().into_iter().find(|member| member.is_recommended)?;
        let ranked = self.ranked_by(&self.objective);
        let find = |config: &Config| ranked.iter().find(|entry| entry.config == *config).cloned();
        let (winner, baseline) = (find(&member.config)?, self.baseline.as_ref().and_then(find));
        Some(Best {
            ties: member.ties.iter().filter_map(find).collect(),
            verdict: self.verdict_on_front(&winner, baseline.as_ref()),
            winner,
            baseline,
            speedup: None,
            unproven_speedup: None,
            ahead: None,
            lowest_speedup: None,
            trend: None,
        })
    }

    /// Returns the verdict on a config of a front: it is better than the baseline if it is clearly better in at least one metric.
    fn verdict_on_front(&self, winner: &Ranked, baseline: Option<&Ranked>) -> Verdict {
        let is_clear = |part: &Part| part.times_better.and_then(|times| times.low).is_some_and(|low| low > 1.0);
        match baseline {
            None => Verdict::NoBaseline,
            Some(baseline) if baseline.config == winner.config => Verdict::TiedWithBaseline,
            Some(baseline) if winner.rounds == 0 || baseline.rounds == 0 => Verdict::Unproven,
            Some(_) if self.parts(&winner.config).iter().any(is_clear) => Verdict::Faster,
            Some(_) => Verdict::TiedWithBaseline,
        }
    }

    fn columns(&self) -> Vec<Column> {
        let column = |goal: &Goal| {
            let ranked = self.ranked_by(&self.objective.alone(goal));
            Column { goal: goal.clone(), noise: noise_of(&ranked), ranked }
        };
        self.objective.goals().iter().map(column).collect()
    }

    /// Returns the places that no other kept place beats, the best in the first metric first, each with the places tied with it.
    fn unbeaten(&self, columns: &[Column]) -> (Vec<usize>, Vec<Vec<usize>>) {
        let count = columns.first().map_or(0, |column| column.ranked.len());
        let rows: Vec<Vec<f64>> = (0..count).map(|at| scores(columns, at)).collect();
        let are_tied = |a: usize, b: usize| columns.iter().all(|column| column.is_tied(a, b));
        // A dominated config is a candidate only if it is tied with a non-dominated config.
        let exact = non_dominated(&rows);
        let mut candidates: Vec<usize> =
            (0..count).filter(|at| exact.contains(at) || exact.iter().any(|&other| are_tied(other, *at))).collect();
        self.sort_by_tie_rule(&mut candidates, columns);
        let beats = |a: usize, b: usize| {
            let (first, second) = (candidates[a], candidates[b]);
            let is_clear = columns.iter().any(|column| column.is_clearly_better(first, second));
            // Configs that are tied in all metrics are in the order of the tie rule.
            (is_clear || (a < b && are_tied(first, second)))
                && !columns.iter().any(|column| column.is_clearly_better(second, first))
        };
        let mut kept: Vec<usize> =
            keep_unbeaten(candidates.len(), beats).into_iter().map(|at| candidates[at]).collect();
        kept.sort_by(|&a, &b| rows[b][0].total_cmp(&rows[a][0]).then(a.cmp(&b)));
        let mut tied: Vec<Vec<usize>> = vec![Vec::new(); kept.len()];
        for &at in candidates.iter().filter(|at| !kept.contains(at)) {
            if let Some(place) = kept.iter().position(|&other| are_tied(other, at)) {
                tied[place].push(at);
            }
        }
        (kept, tied)
    }

    /// Sorts candidates by the tie rule: configs in rounds first, then the cheapest (`Cheapest` only), then the best in the first
    /// metric.
    fn sort_by_tie_rule(&self, places: &mut [usize], columns: &[Column]) {
        let Some(first) = columns.first() else { return };
        let entry = |at: usize| &first.ranked[at];
        let by_memory = places.iter().all(|&at| entry(at).has_device_memory());
        places.sort_by(|&a, &b| first.score(b).total_cmp(&first.score(a)));
        if self.objective.tie_rule() == OnTie::Cheapest {
            places.sort_by_cached_key(|&at| self.cost(entry(at), by_memory));
        }
        places.sort_by_key(|&at| entry(at).rounds == 0);
    }
}

fn member(columns: &[Column], at: usize, ties: Vec<Config>, is_recommended: bool) -> OnFront {
    let entry = &columns[0].ranked[at];
    OnFront {
        config: entry.config.clone(),
        numbers: columns.iter().map(|column| column.ranked[at].estimate).collect(),
        rounds: entry.rounds,
        measurement: entry.measurement.clone(),
        is_recommended,
        ties,
    }
}

fn scores(columns: &[Column], at: usize) -> Vec<f64> {
    columns.iter().map(|column| column.score(at)).collect()
}

fn place_of(column: &Column, config: &Config) -> Option<usize> {
    column.ranked.iter().position(|entry| entry.config == *config)
}

/// Repeatedly keeps an unbeaten place and drops the places that it beats. If every remaining place is beaten, keeps the first.
fn keep_unbeaten(count: usize, beats: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let beaten: Vec<Vec<bool>> = (0..count).map(|a| (0..count).map(|b| a != b && beats(a, b)).collect()).collect();
    let mut left: Vec<usize> = (0..count).collect();
    let mut kept = Vec::new();
    while let Some(&first) = left.first() {
        let is_unbeaten = |at: &usize| !left.iter().any(|&other| beaten[other][*at]);
        let next = left.iter().copied().find(is_unbeaten).unwrap_or(first);
        kept.push(next);
        // In a circle the kept place is itself beaten, so the place that beats it is also dropped.
        left.retain(|&at| at != next && !beaten[next][at] && !beaten[at][next]);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_beats_a_kept_one_through_something_that_is_gone_does_not_count() {
        // Place 0 beats 1, and 1 beats 2.
        assert_eq!(keep_unbeaten(3, |a, b| (a, b) == (0, 1) || (a, b) == (1, 2)), [0, 2]);
        // The first place of a circle is kept.
        assert_eq!(keep_unbeaten(3, |a, b| (a + 1) % 3 == b), [0]);
        assert_eq!(keep_unbeaten(0, |_, _| true), Vec::<usize>::new());
    }
}
