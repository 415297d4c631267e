//! What runs come to: means, intervals, probes to a goal, the area.

use std::collections::BTreeMap;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::line::Line;
use crate::table::Recorded;

/// Probes after which the regret is told.
pub(crate) const MARKS: [usize; 6] = [5, 10, 20, 40, 60, 100];

/// The numbers of one run that are averaged: the regret at each mark, then the area.
pub(crate) type Facts = [f64; MARKS.len() + 1];

/// Where the area is.
pub(crate) const AREA: usize = MARKS.len();

/// Times that the runs are drawn anew for an interval.
const RESAMPLES: usize = 2000;

/// One searcher on one table.
pub(crate) struct Fared<'a> {
    pub(crate) table: &'a Recorded,
    /// Of each run.
    pub(crate) facts: Vec<Facts>,
    /// The share of runs within 5 % and 1 % of the best after each probe.
    pub(crate) within: [Vec<f64>; 2],
    pub(crate) runs: Vec<&'a Line>,
}

pub(crate) const GOALS: [f64; 2] = [0.05, 0.01];

/// The searcher that draws at random, in closed form.
pub(crate) const RANDOM: &str = "random";

/// Every searcher on every table that it has runs on, by its name; random among them.
pub(crate) fn fared<'a>(lines: &'a [Line], tables: &'a [Recorded], budget: usize) -> BTreeMap<&'a str, Vec<Fared<'a>>> {
    let mut by_name: BTreeMap<&str, Vec<Fared<'_>>> = BTreeMap::new();
    for table in tables {
        let random = table.random(budget);
        let mut runs: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.table == table.name) {
            runs.entry(&line.method).or_default().push(line);
        }
        for (method, runs) in runs {
            let curves: Vec<Vec<f64>> = runs.iter().map(|line| line.regrets(budget)).collect();
            let facts = curves.iter().map(|curve| facts(curve, &random, table.cutoff)).collect();
            let within = GOALS.map(|goal| shares(&curves, goal));
            by_name.entry(method).or_default().push(Fared { table, facts, within, runs });
        }
        let within = GOALS.map(|goal| table.random_within(goal, budget));
        let facts = vec![facts(&random, &random, table.cutoff)];
        by_name.entry(RANDOM).or_default().push(Fared { table, facts, within, runs: Vec::new() });
    }
    by_name
}

/// The area is the mean, over the probes up to the table's cutoff, of how far a run is on the way from what random search
/// is expected to have found to the best: 0 is as good as random, 1 is the best from the first probe on.
fn facts(curve: &[f64], random: &[f64], cutoff: usize) -> Facts {
    let mut facts = [0.0; MARKS.len() + 1];
    for (fact, mark) in facts.iter_mut().zip(MARKS) {
        *fact = curve.get(mark - 1).or(curve.last()).copied().unwrap_or(1.0);
    }
    let end = cutoff.min(curve.len());
    let score = |(run, random): (&f64, &f64)| 1.0 - run / random;
    facts[AREA] = curve.iter().zip(random).take(end).map(score).sum::<f64>() / end as f64;
    facts
}

fn shares(curves: &[Vec<f64>], goal: f64) -> Vec<f64> {
    let probes = curves.first().map_or(0, Vec::len);
    let share = |at: usize| {
        // Without noise a regret never grows; with it, what was reached once counts.
        let reached = curves.iter().filter(|curve| curve[..=at].iter().any(|regret| *regret <= goal)).count();
        reached as f64 / curves.len() as f64
    };
    (0..probes).map(share).collect()
}

/// A mean and its 95 % interval.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Interval {
    pub(crate) mean: f64,
    /// Over seeds, the tables being what they are.
    pub(crate) seeds: [f64; 2],
    /// Over tables and seeds: what other tables of the same kind might give.
    pub(crate) tables: [f64; 2],
}

/// What a searcher comes to on a group of tables.
#[derive(Serialize)]
pub(crate) struct Score {
    pub(crate) method: String,
    /// The least number of seeds on a table.
    pub(crate) seeds: usize,
    /// At each mark.
    pub(crate) regret: Vec<Interval>,
    pub(crate) area: Interval,
    /// For each goal, the median of the probes to it, `None` where half of the runs do not get there.
    pub(crate) probes_to: Vec<Option<f64>>,
    /// For each goal, the share of runs that get there.
    pub(crate) reached: Vec<f64>,
}

/// Scores a searcher on the tables of `members`.
pub(crate) fn score(method: &str, members: &[&Fared<'_>]) -> Score {
    let intervals = intervals(members);
    let cdf = |goal: usize| -> Vec<f64> {
        let probes = members.iter().map(|fared| fared.within[goal].len()).min().unwrap_or(0);
        let mean = |at: usize| members.iter().map(|fared| fared.within[goal][at]).sum::<f64>() / members.len() as f64;
        (0..probes).map(mean).collect()
    };
    let cdfs: Vec<Vec<f64>> = (0..GOALS.len()).map(cdf).collect();
    Score {
        method: method.to_owned(),
        seeds: members.iter().map(|fared| fared.runs.len()).min().unwrap_or(0),
        regret: intervals[..AREA].to_vec(),
        area: intervals[AREA],
        probes_to: cdfs.iter().map(|cdf| median(cdf)).collect(),
        reached: cdfs.iter().map(|cdf| cdf.last().copied().unwrap_or(0.0)).collect(),
    }
}

/// The median of what is distributed so over 1, 2, 3 and so on: the mean of the two in the middle where there are two.
fn median(cdf: &[f64]) -> Option<f64> {
    const SLACK: f64 = 1e-9;
    let lower = cdf.iter().position(|share| *share >= 0.5 - SLACK)?;
    let upper = cdf.iter().position(|share| *share > 0.5 + SLACK)?;
    Some((lower + upper) as f64 / 2.0 + 1.0)
}

/// The mean of each fact over the tables, each table's being the mean over its runs, with bootstrap intervals.
fn intervals(members: &[&Fared<'_>]) -> Vec<Interval> {
    let mut chance = ChaCha8Rng::seed_from_u64(0);
    let means = over_tables(&members.iter().map(|fared| mean(&fared.facts)).collect::<Vec<_>>());
    let (mut seeds, mut tables) = (Vec::new(), Vec::new());
    for _ in 0..RESAMPLES {
        seeds.push(resampled(members, &mut chance));
        let drawn: Vec<&Fared<'_>> = members.iter().map(|_| members[chance.random_range(0..members.len())]).collect();
        tables.push(resampled(&drawn, &mut chance));
    }
    let interval = |fact: usize| Interval {
        mean: means[fact],
        seeds: quantiles(seeds.iter().map(|facts| facts[fact])),
        tables: quantiles(tables.iter().map(|facts| facts[fact])),
    };
    (0..=AREA).map(interval).collect()
}

/// How much greater one searcher's facts are than another's, on the same tables, with the interval over seeds.
pub(crate) fn differences(members: &[&Fared<'_>], others: &[&Fared<'_>]) -> Vec<(f64, [f64; 2])> {
    let mut chance = ChaCha8Rng::seed_from_u64(0);
    let mean_of = |members: &[&Fared<'_>]| over_tables(&members.iter().map(|f| mean(&f.facts)).collect::<Vec<_>>());
    let (means, other_means) = (mean_of(members), mean_of(others));
    let drawn: Vec<(Facts, Facts)> =
        (0..RESAMPLES).map(|_| (resampled(members, &mut chance), resampled(others, &mut chance))).collect();
    let difference = |fact: usize| {
        let interval = quantiles(drawn.iter().map(|(facts, others)| facts[fact] - others[fact]));
        (means[fact] - other_means[fact], interval)
    };
    (0..=AREA).map(difference).collect()
}

/// The facts with each table's runs drawn anew.
fn resampled(members: &[&Fared<'_>], chance: &mut ChaCha8Rng) -> Facts {
    let of_table = |fared: &&Fared<'_>| {
        let mut sum = [0.0; MARKS.len() + 1];
        for _ in &fared.facts {
            let run = &fared.facts[chance.random_range(0..fared.facts.len())];
            sum.iter_mut().zip(run).for_each(|(sum, fact)| *sum += fact);
        }
        sum.map(|sum| sum / fared.facts.len() as f64)
    };
    over_tables(&members.iter().map(of_table).collect::<Vec<_>>())
}

fn mean(facts: &[Facts]) -> Facts {
    over_tables(facts)
}

fn over_tables(facts: &[Facts]) -> Facts {
    let mut mean = [0.0; MARKS.len() + 1];
    for (at, mean) in mean.iter_mut().enumerate() {
        *mean = facts.iter().map(|facts| facts[at]).sum::<f64>() / facts.len() as f64;
    }
    mean
}

fn quantiles(numbers: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    [0.025, 0.975].map(|share| sorted[((sorted.len() - 1) as f64 * share).round() as usize])
}
