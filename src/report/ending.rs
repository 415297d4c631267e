//! Describes the end of a search in words: the comparison with the baseline, how much was tried, which settings are
//! unverified.

use super::difference::without_difference;
use super::row::shown_ratio;
use crate::model::{Direction, arrival};
use crate::search::{Alternatives, Best, Confirmed, Ranked, Study, Verdict};

/// Describes the comparison with the baseline; `None` where there is no baseline. `number` formats the objective's
/// value of a config.
pub(super) fn comparison_line(study: &Study, best: &Best, number: &dyn Fn(&Ranked) -> String) -> Option<String> {
    let Some(baseline) = &best.baseline else {
        return study.baseline.as_ref().map(|_| "speed-up  unknown: the baseline is not feasible".to_owned());
    };
    let number = number(baseline);
    let what = comparative(study);
    Some(match (best.verdict, best.speedup, best.unconfirmed_speedup) {
        (Verdict::TiedWithBaseline, ..) => format!("baseline  stays: {}", no_config_is_faster(study)),
        (_, Some(speedup), _) => format!("speed-up  {} {what} than the baseline ({number})", shown_ratio(speedup)),
        (_, None, Some(seen)) => {
            let seen = shown_ratio(seen);
            format!("speed-up  not confirmed: {seen} {what} than the baseline ({number}), measured once each")
        }
        (_, None, None) => format!("baseline  {number}"),
    })
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

/// Says that no config is better than the baseline, and how many of the configs were tried.
pub(super) fn no_config_is_faster(study: &Study) -> String {
    let Alternatives { tried, of } = study.alternatives();
    let better = if study.objective.metric() == "throughput" { "faster" } else { "better" };
    let busy = if study.is_machine_busy() { "; machine busy" } else { "" };
    format!("no config is {better} beyond the noise ({tried} of {of} alternatives tried{busy})")
}

/// Returns the numbers of probes that confirmed leaders, and how many leaders were confirmed if not all were, and of those that
/// ran the baseline again.
pub(super) fn repeated_words(study: &Study, confirming: usize, again: usize) -> String {
    let Confirmed { configs, leaders } = study.confirmed();
    let again = if again == 0 { String::new() } else { format!(", {again} of the baseline again") };
    match confirming {
        0 if leaders > 1 => format!("{again}, none of the {leaders} leaders confirmed,"),
        0 if again.is_empty() => String::new(),
        0 => format!("{again},"),
        _ if configs < leaders => format!("{again}, and {confirming} to confirm {configs} of {leaders} leaders,"),
        _ => format!("{again}, and {confirming} to confirm,"),
    }
}

/// Says which settings of the named config are unverified, and which parameters made no difference.
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
        lines.push(format!("settings  left as they are, since nothing takes them: {}", closed.join(", ")));
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

/// Whether no line tells of settings yet.
fn is_first(lines: &[String]) -> bool {
    !lines.iter().any(|line| line.starts_with("settings"))
}

/// Returns the first of some names, and how many more there are; `best.json` has all of them.
fn few(names: &[String]) -> String {
    const FEW: usize = 6;
    let shown = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > FEW { format!("{shown} and {} more, in best.json", names.len() - FEW) } else { shown }
}
