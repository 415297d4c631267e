//! Chooses the config to name: the baseline, unless another is faster beyond the noise; among those that cannot be
//! distinguished, the cheapest that is not likely to cost speed.

use serde::{Deserialize, Serialize};

use super::{Best, Ranked, Study, TAIL, is_tied, ratio};
use crate::model::{Config, Estimate, OnTie};
use crate::search::noise::RunNoise;

/// The result of comparing the named config with the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It is better than the baseline beyond the noise, and both were measured again. (For a front: in at least one
    /// metric.)
    Faster,
    /// No config is better than the baseline beyond the noise, so the baseline stays.
    TiedWithBaseline,
    /// It looks better than the baseline, but it or the baseline was not measured again.
    Unconfirmed,
    /// There is no baseline, or it is not feasible.
    NoBaseline,
}

impl Verdict {
    /// The word of the verdict in `best.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::TiedWithBaseline => "tied_with_baseline",
            Self::Unconfirmed => "unconfirmed",
            Self::NoBaseline => "no_baseline",
        }
    }
}

/// The expected loss of speed, as a share, up to which a cheaper config is named in place of the best, if the two
/// cannot be distinguished. A round number: see the example below.
///
/// The expected loss is the mean of the loss, with gains counted as zero. For two equal configs whose difference is
/// known to within a standard error of 5 % it is 2 %.
const LIKELY_LOSS: f64 = 0.03;

/// The probability of calling a config faster that is only as fast as the baseline, over all compared configs together
/// (Bonferroni's inequality, because the best of several looks better than it is). Whenever the reported interval, with
/// 2.5 % at each end, contains 1, the interval for this probability contains it, too.
const CLAIM_TAIL: f64 = 0.01;

/// Chooses the config to name from a ranking, the best first; `None` when it is empty.
pub(super) fn choose(study: &Study, ranking: &[Ranked], noise: &RunNoise) -> Option<Best> {
    let is_confirmed = |entry: &&Ranked| entry.confirmations > 0;
    let any_confirmed = ranking.iter().any(|entry| entry.confirmations > 0);
    // If anything was confirmed, only a confirmed config is named.
    let top = ranking.iter().find(is_confirmed).or(ranking.first())?;
    let baseline = study.baseline.as_ref().and_then(|config| ranking.iter().find(|entry| entry.config == *config));
    let others = |entry: &&Ranked| baseline.is_none_or(|baseline| entry.config != baseline.config);
    let compared = ranking.iter().filter(is_confirmed).filter(others).count().max(1);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let over_baseline =
        |entry: &Ranked, tail: f64| ratio(&study.objective, entry, baseline?, noise, tail / compared as f64);
    let is_better = |entry: &Ranked| match baseline {
        Some(baseline) => is_beyond_noise(over_baseline(entry, CLAIM_TAIL), study, entry, baseline, noise),
        None => true,
    };
    let mut tied: Vec<&Ranked> = ranking.iter().filter(|entry| is_tied(top, entry, noise)).collect();
    if study.objective.tie_rule() == OnTie::Cheapest {
        // Memory can be compared only if all of them report it.
        let by_memory = tied.iter().all(|entry| entry.measurement.memory.peak_bytes.is_some());
        // The sort is stable: configs of equal cost stay in the order of the ranking.
        tied.sort_by_cached_key(|entry| study.cost(entry, by_memory));
    }
    let may_be_named = |entry: &&&Ranked| {
        (entry.confirmations > 0 || !any_confirmed) && loses_little(top, entry, noise) && is_better(entry)
    };
    let winner = match baseline {
        Some(baseline) if !is_better(top) => baseline,
        _ => tied.iter().find(may_be_named).copied().unwrap_or(top),
    };
    let is_tie = |entry: &&&Ranked| entry.config != winner.config;
    let mut ties: Vec<Ranked> = tied.iter().filter(is_tie).map(|entry| (*entry).clone()).collect();
    ties.retain(|tie| is_tied(winner, tie, noise) || tie.config == top.config || is_tied(top, winner, noise));
    let verdict = match baseline {
        None => Verdict::NoBaseline,
        Some(baseline) if baseline.config == winner.config => Verdict::TiedWithBaseline,
        Some(baseline) if winner.confirmations > 0 && baseline.confirmations > 0 => Verdict::Faster,
        Some(_) => Verdict::Unconfirmed,
    };
    let seen = over_baseline(winner, TAIL);
    let is_claimed = verdict != Verdict::Unconfirmed;
    Some(Best {
        winner: winner.clone(),
        ties,
        baseline: baseline.cloned(),
        verdict,
        speedup: seen.filter(|_| is_claimed),
        unconfirmed_speedup: seen.filter(|_| !is_claimed),
    })
}

/// Returns the confirmed configs between which too little is known to name one: the config that would be named, and those
/// that are expected to be better by more than [`LIKELY_LOSS`], gains of the named one counted as zero; none where the
/// name is as sure as that.
pub(super) fn in_doubt(study: &Study, ranking: &[Ranked], noise: &RunNoise) -> Vec<Config> {
    let Some(Best { winner, .. }) = choose(study, ranking, noise) else { return Vec::new() };
    let may_cost = |entry: &&Ranked| {
        entry.config != winner.config && entry.confirmations > 0 && {
            let Some(difference) = noise.difference(&entry.runs, &winner.runs) else { return false };
            let scale = entry.scale.loss_scale(entry.level(noise));
            expected_loss(study.objective.score(difference.value) / scale, difference.error / scale) > LIKELY_LOSS
        }
    };
    let rivals: Vec<Config> = ranking.iter().filter(may_cost).map(|entry| entry.config.clone()).collect();
    if rivals.is_empty() { rivals } else { std::iter::once(winner.config).chain(rivals).collect() }
}

/// Whether a config is better than the baseline with an interval that excludes equality; without an interval, the
/// numbers alone decide.
fn is_beyond_noise(
    times: Option<Estimate>,
    study: &Study,
    entry: &Ranked,
    baseline: &Ranked,
    noise: &RunNoise,
) -> bool {
    match times {
        Some(times) => times.low.unwrap_or(times.value) > 1.0,
        // A metric with zero or negative numbers has no ratio.
        None => study.score(entry) > study.score(baseline) && !is_tied(entry, baseline, noise),
    }
}

/// Whether naming a config in place of the top one is not likely to cost much.
fn loses_little(top: &Ranked, entry: &Ranked, noise: &RunNoise) -> bool {
    if entry.config == top.config {
        return true;
    }
    // Without any known error only equal configs are tied, and those lose nothing.
    let Some(difference) = noise.difference(&top.runs, &entry.runs) else { return true };
    // The sign of a difference depends on the objective's direction; the top is the better one.
    let scale = top.scale.loss_scale(top.level(noise));
    expected_loss(difference.value.abs() / scale, difference.error / scale) <= LIKELY_LOSS
}

/// Returns the mean of a normally distributed loss, with gains counted as zero.
fn expected_loss(mean: f64, error: f64) -> f64 {
    if error <= 0.0 {
        return mean.max(0.0);
    }
    let place = mean / error;
    let density = libm::exp(-0.5 * place * place) / (2.0 * std::f64::consts::PI).sqrt();
    let below = 0.5 * libm::erfc(-place / std::f64::consts::SQRT_2);
    error * density + mean * below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expected_loss_is_the_mean_of_what_is_lost() {
        assert!((expected_loss(0.0, 0.05) - 0.05 / (2.0 * std::f64::consts::PI).sqrt()).abs() < 1e-12);
        assert!((expected_loss(0.1, 1e-6) - 0.1).abs() < 1e-9);
        assert!(expected_loss(-0.5, 0.1) < 1e-6);
        assert_eq!(expected_loss(0.02, 0.0), 0.02);
    }

    #[test]
    fn names_are_those_of_the_file() {
        for verdict in [Verdict::Faster, Verdict::TiedWithBaseline, Verdict::Unconfirmed, Verdict::NoBaseline] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
        }
    }
}
