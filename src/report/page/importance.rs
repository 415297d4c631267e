//! Estimates how much each parameter matters: its share of the differences between the measured configs.
//!
//! An additive model of the logarithm of the objective (or of its value, if that can be negative) is fitted: each setting of each
//! parameter has one effect. A parameter's share is the variance of its effects over the measured configs, relative to the sum of
//! these variances. These are the main effects of an analysis of variance; combinations of parameters do not count.

use crate::model::Config;
use crate::report::figures::float;
use crate::search::Study;

/// The fewest configs for an estimate: a round number.
const FEWEST: usize = 5;
/// Each effect is reduced as if the setting had one more config without any effect (ridge regression).
const RIDGE: f64 = 1.0;
/// The passes over all parameters (backfitting). The effects of a hundred configs change by less than 0.1% in the last pass.
const PASSES: usize = 100;

/// Returns the parameters with their shares, the largest first; empty if too few configs were measured or all are equal.
pub(super) fn importance(study: &Study) -> Vec<(String, f64)> {
    let ranking = study.ranking();
    let values: Vec<f64> = ranking.iter().map(|entry| entry.estimate.value).collect();
    let is_ratio = values.iter().all(|value| *value > 0.0);
    let values: Vec<f64> = values.iter().map(|value| if is_ratio { value.ln() } else { *value }).collect();
    let parameters = study.space.parameters();
    let level = |config: &Config, at: usize| {
        let as_it_ran = || parameters[at].level(study.settings(config).get(parameters[at].name())?);
        config.level(at).or_else(as_it_ran)
    };
    let settings = |at: usize| ranking.iter().map(|entry| level(&entry.config, at)).collect::<Vec<_>>();
    let varying: Vec<(usize, Vec<Option<u32>>)> = (0..parameters.len())
        .map(|at| (at, settings(at)))
        .filter(|(_, settings)| settings.iter().any(|level| level != &settings[0]))
        .collect();
    if values.len() < FEWEST || varying.is_empty() {
        return Vec::new();
    }
    let columns: Vec<&[Option<u32>]> = varying.iter().map(|(_, settings)| settings.as_slice()).collect();
    let variances: Vec<f64> = effects(&values, &columns).iter().map(|effects| variance(effects)).collect();
    let sum: f64 = variances.iter().sum();
    let named = varying.iter().zip(variances).map(|((at, _), own)| (parameters[*at].name().to_owned(), own / sum));
    let mut shares: Vec<(String, f64)> = named.filter(|(_, share)| share.is_finite()).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// Returns the effect of each column on each value.
fn effects(values: &[f64], columns: &[&[Option<u32>]]) -> Vec<Vec<f64>> {
    let mean = values.iter().sum::<f64>() / float(values.len());
    let mut left: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let mut effects = vec![vec![0.0; values.len()]; columns.len()];
    for _ in 0..PASSES {
        for (settings, own) in columns.iter().zip(&mut effects) {
            left.iter_mut().zip(&*own).for_each(|(left, effect)| *left += effect);
            for (at, setting) in settings.iter().enumerate() {
                let same = || settings.iter().zip(&left).filter(|(other, _)| *other == setting);
                own[at] = same().map(|(_, left)| left).sum::<f64>() / (float(same().count()) + RIDGE);
            }
            left.iter_mut().zip(&*own).for_each(|(left, effect)| *left -= effect);
        }
    }
    effects
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / float(values.len());
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / float(values.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_add_up_and_what_has_none_gets_none() {
        // The value is 2 for one setting of the first column, and does not depend on the second.
        let (first, second) = ([0, 1, 0, 1, 0, 1, 0, 1].map(Some), [0, 0, 1, 1, 2, 2, 3, 3].map(Some));
        let values: Vec<f64> = first.iter().map(|level| f64::from(level.unwrap() * 2)).collect();
        let effects = effects(&values, &[&first, &second]);
        let variances: Vec<f64> = effects.iter().map(|effects| variance(effects)).collect();
        assert!(variances[0] > 0.6 && variances[1] < 1e-3, "{variances:?}");
    }
}
