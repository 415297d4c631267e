//! Describes the end of a search in words: the comparison with the baseline, the number of configs tried, and unverified settings.

use super::difference::without_difference;
use super::escape::plain;
use super::row::shown_ratio;
use crate::model::{Direction, arrival, quantity::show_seconds};
use crate::probe::stats;
use crate::search::{Alternatives, Best, Ranked, StopReason, Study, Verdict};

/// Describes the comparison with the baseline; `None` without a baseline. `number` formats the objective's value of a config.
pub(super) fn comparison_line(study: &Study, best: &Best, number: &dyn Fn(&Ranked) -> String) -> Option<String> {
    let Some(baseline) = &best.baseline else {
        return study.baseline.as_ref().map(|_| "speedup   unknown: the baseline is not feasible".to_owned());
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
