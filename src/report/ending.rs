//! Describes the end of a search in words: the comparison with the baseline, the number of configs tried, and unverified settings.

use super::escape::plain;
use super::row::shown_ratio;
use crate::model::{Config, Direction, Estimate, Measurement, Parameter, Trial, arrival, quantity::show_seconds};
use crate::probe::stats;
use crate::search::{Alternatives, Best, Ranked, StopReason, Study, Verdict};

/// Describes the comparison with the baseline; `None` without a baseline. `number` formats the objective's value of a config.
pub(super) fn comparison_line(study: &Study, best: &Best, number: &dyn Fn(&Ranked) -> String) -> Option<String> {
    let Some(baseline) = &best.baseline else {
        let failed = study.baseline_failure().and_then(|outcome| Some((outcome.name(), &outcome.failure()?.reason)));
        return study.baseline.as_ref().map(|_| match failed {
            Some((name, reason)) => format!("speedup   unknown: the baseline failed ({name}): {}", plain(reason)),
            None => "speedup   unknown: the baseline is not feasible".to_owned(),
        });
    };
    let number = number(baseline);
    let what = comparative(study);
    Some(match (best.verdict, best.speedup, best.unproven_speedup) {
        (Verdict::TiedWithBaseline, ..) => format!("baseline  stays: {}", no_config_is_faster(study, best)),
        (_, Some(speedup), _) => {
            let lowest =
                at_least(best).map(|lowest| format!(", at least {lowest:.2}x in every round")).unwrap_or_default();
            format!("speedup   {} {what} than the baseline ({number}){lowest}", shown_ratio(speedup))
        }
        (_, None, Some(seen)) => {
            let seen = shown_ratio(seen);
            let rounds = after_rounds(best.winner.rounds.min(baseline.rounds));
            format!("speedup   not proven: {seen} {what} than the baseline ({number}), {rounds}")
        }
        (_, None, None) => format!("baseline  {number}"),
    })
}

/// Returns the lowest ratio of all rounds if it is far below the mean: then the ratio depends on other load on the machine.
pub(super) fn at_least(best: &Best) -> Option<f64> {
    /// A round number: slices of a quiet machine stay above this share of the mean.
    const FAR: f64 = 0.85;
    let speedup = best.speedup?;
    best.lowest_speedup.filter(|lowest| *lowest < FAR * speedup.value && *lowest > 1.0)
}

/// Says after how many rounds the speedup is still not proven.
pub(super) fn after_rounds(rounds: usize) -> String {
    match rounds {
        0 => "measured once each".to_owned(),
        1 => "after one round".to_owned(),
        rounds => format!("after {rounds} rounds"),
    }
}

/// Returns the comparative for a better config, such as "faster".
pub(super) fn comparative(study: &Study) -> &'static str {
    match (study.objective.metric(), study.objective.direction()) {
        ("throughput", _) => "faster",
        _ if study.objective.weights().is_some() => "better",
        (_, Direction::Maximize) => "more",
        (_, Direction::Minimize) => "less",
    }
}

/// Says that no config is better than the baseline, how many configs were tried, and which config won all of its rounds.
pub(super) fn no_config_is_faster(study: &Study, best: &Best) -> String {
    let better = if study.objective.metric() == "throughput" { "faster" } else { "better" };
    let busy = if study.is_machine_busy() { "; machine busy" } else { "" };
    let tried = format!("({}{busy})", study.alternatives().in_words());
    let Some(ahead) = &best.ahead else { return format!("no config is {better} beyond the noise {tried}") };
    let (config, ratio) = (plain(&study.settings(&ahead.config).line()), shown_ratio(ahead.speedup));
    let rounds =
        if ahead.rounds == 1 { "in one round".to_owned() } else { format!("in each of {} rounds", ahead.rounds) };
    format!("no config is proven to be {better} {tried}; {config} was {better} {rounds}: {ratio}")
}

/// Says why a search tried few configs, if its time was short.
pub(super) fn few_configs(study: &Study) -> Option<String> {
    const FEW: usize = 5;
    const WANTED: f64 = 10.0;
    let Alternatives { tried, of } = study.alternatives();
    if tried >= FEW || of == tried.to_string() || study.stopped != StopReason::TimeSpent {
        return None;
    }
    let probes: Vec<f64> = study.history.searched().map(|trial| trial.elapsed.as_secs_f64()).collect();
    let starts = study.history.searched().filter_map(|trial| trial.outcome.measurement()?.spent);
    let starting: Vec<f64> = starts.map(|spent| spent.importing_s + spent.starting_s).collect();
    let (each, start) = (stats::mean(&probes)?, stats::mean(&starting).unwrap_or(0.0));
    // Rounds take half of the time at most.
    let minutes = (2.0 * WANTED * each / 60.0).ceil();
    let each = show_seconds(each);
    let of_it = if start < 0.001 { String::new() } else { format!(", {} of it to start", show_seconds(start)) };
    Some(format!("few       a probe took {each}{of_it}: {minutes} min are enough for about {WANTED} configs"))
}

/// Says which settings of the best config are unverified, and which parameters made no difference.
pub(super) fn settings_lines(study: &Study, best: &Best) -> Vec<String> {
    let settings = study.settings(&best.winner.config);
    let unverified = arrival::unverified(&study.space, &settings, &best.winner.measurement);
    let idle = without_difference(study);
    let mut lines = Vec::new();
    if let Some((_, exchange)) = study.history.exchange() {
        lines.push(format!("exchange  {}", exchange.words));
    }
    let closed = study.history.taken_by_nothing();
    if !closed.is_empty() {
        lines.push(format!("settings  unchanged, since nothing takes them: {}", closed.join(", ")));
    }
    if !unverified.is_empty() {
        let label = if is_first(&lines) { "settings" } else { "" };
        lines.push(format!("{label:<10}not verified, since the step does not tell them: {}", few(&unverified)));
    }
    if !idle.is_empty() {
        let label = if is_first(&lines) { "settings" } else { "" };
        lines.push(format!("{label:<10}no difference in any fact or figure: {}", few(&idle)));
    }
    lines
}

/// Returns true if no line has the label of settings yet.
fn is_first(lines: &[String]) -> bool {
    !lines.iter().any(|line| line.starts_with("settings"))
}

/// Returns the first names and the number of further names; `best.json` has all of them.
fn few(names: &[String]) -> String {
    const FEW: usize = 6;
    let shown = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > FEW { format!("{shown} and {} more, in best.json", names.len() - FEW) } else { shown }
}

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
