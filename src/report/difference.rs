//! Finds parameters whose settings made no difference in any fact or number of a search.

use crate::model::{Config, Estimate, Measurement, Parameter, Trial, arrival};
use crate::search::Study;

/// The relative difference below which sizes count as equal: a round number, 1%.
const SAME_SIZE: f64 = 0.01;

/// Returns the parameters whose settings made no difference. Pairs of measured configs that differ only in the parameter agree in
/// the fact that reports the setting, in samples and in memory. Their throughputs agree within both intervals.
pub(super) fn without_difference(study: &Study) -> Vec<String> {
    let measured: Vec<(&Trial, &Measurement)> = study
        .history
        .trials()
        .iter()
        .map(AsRef::as_ref)
        .filter(|trial: &&Trial| !trial.purpose.is_repeated() && !trial.config.is_as_it_is())
        .filter_map(|trial| Some((trial, trial.outcome.measurement()?)))
        .collect();
    let pairs = || {
        let each = measured.iter().enumerate();
        each.flat_map(|(at, first)| measured[at + 1..].iter().map(move |second| (first, second)))
    };
    let is_idle = |(at, parameter): &(usize, &Parameter)| {
        let mut of_it = pairs().filter(|((a, _), (b, _))| differ_in(*at, &a.config, &b.config)).peekable();
        let fact = arrival::fact_of(parameter);
        of_it.peek().is_some() && of_it.all(|((_, a), (_, b))| are_alike(fact, a, b))
    };
    let parameters = study.space.parameters().iter().enumerate().filter(is_idle);
    parameters.map(|(_, parameter)| parameter.name().to_owned()).collect()
}

/// Returns true if two configs differ in this parameter and agree in all other parameters.
fn differ_in(parameter: usize, a: &Config, b: &Config) -> bool {
    a.levels().zip(b.levels()).enumerate().all(|(at, (a, b))| (a == b) == (at != parameter))
}

fn are_alike(fact: Option<&str>, a: &Measurement, b: &Measurement) -> bool {
    let of_both = |read: fn(&Measurement) -> Option<f64>| read(a).zip(read(b));
    let is_same =
        |pair: Option<(f64, f64)>| pair.is_none_or(|(a, b)| (a - b).abs() <= SAME_SIZE * a.abs().max(b.abs()));
    #[expect(clippy::cast_precision_loss, reason = "sizes are compared")]
    let memory = |m: &Measurement| m.memory.peak_bytes.map(|bytes| bytes as f64);
    fact.is_none_or(|fact| a.facts.get(fact) == b.facts.get(fact))
        && is_same(of_both(|m| m.timing.samples_per_step))
        && is_same(of_both(memory))
        && match (a.throughput, b.throughput) {
            (Some(a), Some(b)) => overlap(a, b),
            (None, None) => true,
            _ => false,
        }
}

fn overlap(a: Estimate, b: Estimate) -> bool {
    match (a.low.zip(a.high), b.low.zip(b.high)) {
        (Some((a_low, a_high)), Some((b_low, b_high))) => a_low <= b_high && b_low <= a_high,
        _ => a.value == b.value,
    }
}
