//! Chooses the winner. The baseline stays, unless another config is proven to be faster. Among tied configs, the cheapest config
//! that is not likely to cost speed wins.

use serde::{Deserialize, Serialize};

use super::{Apart, Best, Ranked, Study, is_tied, noise_of, ratio};
use crate::model::{Config, Estimate, OnTie, Slot};
use crate::probe::stats::normal_tail;
use crate::search::rounds::{self, CLEAR, LOAD, Noise};
use crate::search::trend::Trend;

/// The result of comparing the winner with the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// Rounds prove that the config is better than the baseline. (For a front: in at least one metric.)
    Faster,
    /// No config is better than the baseline beyond the noise, so the baseline stays.
    TiedWithBaseline,
    /// The config seems better than the baseline, but there is no proof. It won all of its rounds, clearly or by more than the
    /// interval of the difference. Without rounds, its probe was better.
    Unproven,
    /// There is no baseline, or it is not feasible.
    NoBaseline,
}

/// A config that won all rounds against the baseline, but too narrowly to become the winner, or only beside other programs. The
/// baseline stays.
#[derive(Debug, Clone, PartialEq)]
pub struct Ahead {
    /// The config.
    pub config: Config,
    /// How many times better it was, with its 95% interval.
    pub speedup: Estimate,
    /// The number of rounds that it won.
    pub rounds: usize,
}

/// Among tied configs, a cheaper config wins if its expected loss of speed is at most this share. A round number.
///
/// The expected loss counts gains as zero. For two equal configs whose difference has a standard error of 5%, it is 2%.
const LIKELY_LOSS: f64 = 0.03;

/// Chooses the winner from a ranking, the best first; `None` if the ranking is empty.
pub(super) fn choose(study: &Study, ranking: &[Ranked]) -> Option<Best> {
    let noise = &noise_of(ranking);
    let was_compared = |entry: &&Ranked| entry.rounds > 0;
    let any_compared = ranking.iter().any(|entry| entry.rounds > 0);
    // After rounds, only a config that was in a round can win.
    let top = ranking.iter().find(was_compared).or(ranking.first())?;
    let baseline = study.baseline.as_ref().and_then(|config| ranking.iter().find(|entry| entry.config == *config));
    let compared = compared(ranking);
    let is_proven =
        |entry: &Ranked| baseline.is_some_and(|baseline| is_better(study, entry, baseline, (noise, compared)));
    // Without rounds, only the numbers of the probes can be compared.
    let is_better_so_far = |entry: &Ranked| {
        baseline.is_none_or(|baseline| {
            let is_unknown = entry.rounds.min(baseline.rounds) == 0;
            is_proven(entry) || is_unknown && self::seems_better(study, entry, baseline, (noise, ranking))
        })
    };
    let mut tied: Vec<&Ranked> = ranking.iter().filter(|entry| is_tied(top, entry, noise)).collect();
    if study.objective.tie_rule() == OnTie::Cheapest {
        let by_memory = tied.iter().all(|entry| entry.has_device_memory());
        // The sort is stable: configs of equal cost stay in the order of the ranking.
        tied.sort_by_cached_key(|entry| study.cost(entry, by_memory));
    }
    let may_be_named = |entry: &&&Ranked| {
        (entry.rounds > 0 || !any_compared) && loses_little(top, entry, noise) && is_better_so_far(entry)
    };
    let named = tied.iter().find(may_be_named).copied().or(Some(top).filter(|top| is_better_so_far(top)));
    // The top config may have been in only one round. A config behind it may be proven by several rounds.
    let named = named.or_else(|| ranking.iter().find(|entry| is_proven(entry)));
    let seems_better =
        |entry: &&Ranked| baseline.is_some_and(|baseline| seems_better(study, entry, baseline, (noise, ranking)));
    let likely = || ranking.iter().filter(|entry| entry.rounds > 0 || !any_compared).find(seems_better);
    let (winner, verdict) = match (baseline, named) {
        (None, named) => (named.unwrap_or(top), Verdict::NoBaseline),
        (Some(_), Some(named)) if is_proven(named) => (named, Verdict::Faster),
        (Some(_), Some(named)) => (named, Verdict::Unproven),
        (Some(baseline), None) => {
            likely().map_or((baseline, Verdict::TiedWithBaseline), |likely| (likely, Verdict::Unproven))
        }
    };
    let (winner, verdict, seen, trend) = at_the_end(study, (winner, verdict), (top, baseline), noise);
    let undisturbed = baseline.and_then(|baseline| undisturbed(study, winner, baseline)).filter(|_| trend.is_none());
    let seen = seen.map(|seen| reaching_down(seen, undisturbed));
    let is_tie = |entry: &&&Ranked| entry.config != winner.config;
    let mut ties: Vec<Ranked> = tied.iter().filter(is_tie).map(|entry| (*entry).clone()).collect();
    ties.retain(|tie| is_tied(winner, tie, noise) || tie.config == top.config || is_tied(top, winner, noise));
    let lowest = baseline.filter(|baseline| winner.config != baseline.config && winner.scale.is_ratio());
    let lowest = lowest.and_then(|baseline| rounds::lowest_difference(&winner.runs, &baseline.runs));
    let is_open = verdict == Verdict::Unproven;
    let stays = baseline.filter(|_| verdict == Verdict::TiedWithBaseline);
    Some(Best {
        winner: winner.clone(),
        ties,
        baseline: baseline.cloned(),
        verdict,
        speedup: seen.filter(|_| !is_open),
        unproven_speedup: seen.filter(|_| is_open),
        lowest_speedup: lowest.map(f64::exp),
        ahead: stays.and_then(|baseline| ahead(study, top, baseline, noise)),
        trend,
    })
}

/// Returns the winner with its verdict, its ratio to the baseline, and the trend of that ratio. If there is a trend, only the
/// rounds at the end count: they must show the gain as well. If the baseline stays, the trend is that of the top config.
fn at_the_end<'r>(
    study: &Study,
    (winner, verdict): (&'r Ranked, Verdict),
    (top, baseline): (&Ranked, Option<&'r Ranked>),
    noise: &Noise,
) -> (&'r Ranked, Verdict, Option<Estimate>, Option<Trend>) {
    let Some(baseline) = baseline else { return (winner, verdict, None, None) };
    let ratio_of = |winner: &Ranked, baseline: &Ranked| ratio(&study.objective, winner, baseline, noise);
    let stays = winner.config == baseline.config;
    let leader = if stays { top } else { winner };
    let is_rate = leader.is_noisy && leader.scale.is_ratio();
    let trend = Trend::of(&leader.config, &leader.runs, &baseline.runs).filter(|_| is_rate);
    let Some(found) = trend.as_ref().filter(|_| !stays) else {
        return (winner, verdict, ratio_of(winner, baseline), trend);
    };
    let late = |entry: &Ranked| Ranked { runs: found.at_the_end(&entry.runs), ..entry.clone() };
    let seen = ratio_of(&late(winner), &late(baseline));
    let is_above = |end: Option<f64>| end.is_some_and(|end| end > 1.0);
    if !is_above(seen.map(|seen| seen.value)) {
        return (baseline, Verdict::TiedWithBaseline, ratio_of(baseline, baseline), trend);
    }
    let is_proven = verdict == Verdict::Faster && is_above(seen.and_then(|seen| seen.low));
    (winner, if is_proven { verdict } else { Verdict::Unproven }, seen, trend)
}

/// Returns the ratio of the fastest rates that were seen of two configs: those that other programs disturbed least. Beside other
/// programs, threads that wait by spinning may make one of them 20 times slower, so the ratio depends on what else runs. `None` if
/// no other programs were seen. With several slots, returns the highest ratio in a slot that measured both.
fn undisturbed(study: &Study, entry: &Ranked, baseline: &Ranked) -> Option<f64> {
    let mut runs = study.history.trials().iter().filter_map(|trial| trial.outcome.measurement());
    let is_beside_others = runs.any(|run| run.machine.foreign_cpu_share.is_some());
    if !study.objective.is_largest_throughput() || !is_beside_others {
        return None;
    }
    let fastest = |config: &Config, slot: &Option<Slot>| {
        let in_slot = study.history.of(config).filter(|trial| trial.slot == *slot);
        let rates = in_slot.filter_map(|trial| trial.outcome.measurement()).flat_map(|run| {
            let slices = run.round.iter().flat_map(|round| round.slices.iter().copied());
            run.throughput.map(|rate| rate.value).into_iter().chain(slices)
        });
        rates.max_by(f64::total_cmp)
    };
    let mut slots: Vec<&Option<Slot>> = study.history.of(&baseline.config).map(|trial| &trial.slot).collect();
    slots.dedup();
    let ratio = |slot| Some(fastest(&entry.config, slot)? / fastest(&baseline.config, slot)?);
    slots.into_iter().filter_map(ratio).max_by(f64::total_cmp)
}

/// Returns a speedup whose interval reaches down to the ratio without other programs, if that is clearly lower.
fn reaching_down(seen: Estimate, undisturbed: Option<f64>) -> Estimate {
    match (seen.low, seen.high, undisturbed) {
        (Some(low), Some(high), Some(ratio)) if ratio * (1.0 + CLEAR) < low => {
            Estimate::interval(seen.value, ratio, high)
        }
        _ => seen,
    }
}

/// Returns the number of comparisons with the baseline, for the Bonferroni correction: all other configs with two rounds or more. A
/// config that left after its first round was worse, so it is never claimed to be faster.
pub(super) fn compared(ranking: &[Ranked]) -> usize {
    ranking.iter().filter(|entry| entry.rounds > 1).count().saturating_sub(1).max(1)
}

/// Returns true if rounds prove that a config is better than the baseline, and not only beside other programs. Without noise, the
/// numbers decide.
pub(super) fn is_better(study: &Study, entry: &Ranked, baseline: &Ranked, (noise, compared): (&Noise, usize)) -> bool {
    if entry.config == baseline.config || entry.rounds.min(baseline.rounds) == 0 {
        return false;
    }
    if entry.is_noisy || baseline.is_noisy {
        return noise.is_higher(&entry.runs, &baseline.runs, compared) && !was_slower_alone(study, entry, baseline);
    }
    study.score(entry) > study.score(baseline) && !is_tied(entry, baseline, noise)
}

/// Returns true if a config seems better than the baseline, with or without a proof. Without rounds, the lead of its probe must
/// exceed the intervals of both. A lead in throughput must also exceed the effect of load from other programs.
fn seems_better(study: &Study, entry: &Ranked, baseline: &Ranked, (noise, ranking): (&Noise, &[Ranked])) -> bool {
    if entry.config == baseline.config {
        return false;
    }
    if entry.rounds.min(baseline.rounds) == 0 {
        let apart = Apart::of(entry, baseline, noise);
        let is_rate = study.objective.is_largest_throughput() && entry.is_noisy && entry.scale.is_ratio();
        let may_be_load = is_rate && apart.value - apart.half_width < LOAD.ln();
        return study.score(entry) > study.score(baseline) && !is_tied(entry, baseline, noise) && !may_be_load;
    }
    let was_slower = || was_slower_alone(study, entry, baseline) && !noise.is_higher(&entry.runs, &baseline.runs, 1);
    let compared = ranking.iter().filter(|entry| entry.rounds > 0).count().saturating_sub(1);
    noise.seems_higher(&entry.runs, &baseline.runs, compared) && !was_slower()
}

/// Returns true if the baseline was faster when other programs disturbed neither.
fn was_slower_alone(study: &Study, entry: &Ranked, baseline: &Ranked) -> bool {
    undisturbed(study, entry, baseline).is_some_and(|ratio| ratio < 1.0)
}

/// Returns the top config if it won all of its rounds against the baseline. That is no proof, so the baseline stays.
fn ahead(study: &Study, top: &Ranked, baseline: &Ranked, noise: &Noise) -> Option<Ahead> {
    let won = top.config != baseline.config && rounds::is_higher_always(&top.runs, &baseline.runs);
    let speedup = ratio(&study.objective, top, baseline, noise).filter(|_| won)?;
    let speedup = reaching_down(speedup, undisturbed(study, top, baseline));
    Some(Ahead { config: top.config.clone(), speedup, rounds: rounds::paired(&top.runs, &baseline.runs).count() })
}

/// Returns true if choosing a config over the top config is not likely to cost much.
fn loses_little(top: &Ranked, entry: &Ranked, noise: &Noise) -> bool {
    if entry.config == top.config {
        return true;
    }
    let apart = Apart::of(top, entry, noise);
    let scale = top.scale.loss_scale(top.scale.point(top.estimate.value));
    expected_gain(apart.value / scale, apart.error / scale) <= LIKELY_LOSS
}

/// Returns the mean of a normally distributed gain, with losses counted as zero.
pub(super) fn expected_gain(mean: f64, error: f64) -> f64 {
    if error <= 0.0 {
        return mean.max(0.0);
    }
    let place = mean / error;
    let density = libm::exp(-0.5 * place * place) / (2.0 * std::f64::consts::PI).sqrt();
    error * density + mean * normal_tail(-place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expected_gain_is_the_mean_of_what_is_gained() {
        assert!((expected_gain(0.0, 0.05) - 0.05 / (2.0 * std::f64::consts::PI).sqrt()).abs() < 1e-12);
        assert!((expected_gain(0.1, 1e-6) - 0.1).abs() < 1e-9);
        assert!(expected_gain(-0.5, 0.1) < 1e-6);
        assert_eq!(expected_gain(0.02, 0.0), 0.02);
    }
}
