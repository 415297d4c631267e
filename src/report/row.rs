//! Describes the result of a trial in a few words, the same in every report.

use super::redact::redacted;
use crate::model::quantity::{show_bytes, show_number};
use crate::model::{COST, Estimate, Goal, Judgement, Measurement, Numerics, Objective, Outcome, Settings, Trial};
use crate::search::Study;

/// Formats a number with half the width of its interval: `3,214 samples/s ± 1.2 %`.
pub fn shown_estimate(estimate: Estimate, unit: &str) -> String {
    let number = show_number(estimate.value);
    let space = if unit.is_empty() { "" } else { " " };
    match estimate.relative_half_width() {
        // If the interval is very wide, its upper end has no meaning.
        Some(half) if half > 1.0 => format!("{number}{space}{unit} ± over 100 %"),
        Some(half) => format!("{number}{space}{unit} ± {:.1} %", half * 100.0),
        None => format!("{number}{space}{unit}"),
    }
}

/// Formats a ratio with its interval: `1.42x (1.38 to 1.47)`.
pub(super) fn shown_ratio(ratio: Estimate) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.2}x ({low:.2} to {high:.2})", ratio.value),
        _ => format!("{:.2}x", ratio.value),
    }
}

/// Returns true if an interval is so wide that its middle says little.
pub(super) fn is_vague(ratio: Estimate) -> bool {
    /// How many times the lower end the upper end may be: a round number.
    const WIDEST: f64 = 3.0;
    matches!((ratio.low, ratio.high), (Some(low), Some(high)) if high > WIDEST * low)
}

/// Returns the lower end of an interval if it is a gain.
pub(super) fn sure_gain(ratio: Estimate) -> Option<f64> {
    /// The smallest ratio that is shown as more than 1.00x.
    const SHOWN: f64 = 1.005;
    ratio.low.filter(|low| *low >= SHOWN)
}

/// Formats a ratio: `2.05x (1.90 to 2.20)`. If the interval is too wide to be useful, only its lower end is sure.
pub(super) fn sure_ratio(ratio: Estimate) -> String {
    match sure_gain(ratio) {
        _ if !is_vague(ratio) => shown_ratio(ratio),
        Some(low) => format!("at least {low:.2}x"),
        None => "not known".to_owned(),
    }
}

/// Says how much better a config is, such as `1.50x (1.30 to 1.70) faster than the baseline`; `better` ends the words.
///
/// If the interval is too wide to be useful, a proven gain is shown by the lower end of the interval, or else by
/// `lowest`, the lowest ratio of all rounds.
pub(super) fn shown_gain(ratio: Estimate, better: &str, (is_proven, lowest): (bool, Option<f64>)) -> String {
    let lowest = lowest.and_then(|lowest| sure_gain(Estimate::interval(lowest, lowest, lowest)));
    match sure_gain(ratio).filter(|_| is_proven) {
        _ if !is_vague(ratio) => format!("{} {better}", shown_ratio(ratio)),
        Some(low) => format!("at least {low:.2}x {better}"),
        None => match lowest.filter(|_| is_proven) {
            Some(lowest) => format!("{better}, at least {lowest:.2}x in every round"),
            None if is_proven => format!("{better}, by how much is not known"),
            None => format!("it seems {better}, by how much is not known"),
        },
    }
}

/// Describes the result of the comparison with full precision.
pub(super) fn shown_numerics(numerics: &Numerics) -> String {
    match (numerics.drift, &numerics.not_compared) {
        (Some(drift), _) => format!("losses differ by {:.1} % from full precision", drift * 100.0),
        (None, reason) => format!("not compared with full precision: {}", reason.as_deref().unwrap_or("unknown")),
    }
}

/// Formats a metric in its usual unit: sizes in bytes, costs for a million samples.
pub(super) fn shown_metric(metric: &str, estimate: Estimate, measurement: &Measurement) -> String {
    /// The number of samples for which a cost is shown; the cost of one sample is too small to read.
    const MANY: f64 = 1e6;
    /// The narrowest interval that is shown; a narrower interval would read 0.0 %.
    const NARROWEST: f64 = 0.0005;
    let is_exact = metric != "throughput" && estimate.relative_half_width().is_some_and(|half| half < NARROWEST);
    let estimate = if is_exact { Estimate::point(estimate.value) } else { estimate };
    let work = || measurement.unit.strip_suffix("/s").unwrap_or("samples");
    match metric {
        "throughput" => shown_estimate(estimate, &measurement.unit),
        "energy_per_sample" => shown_estimate(estimate, &format!("J/{}", work().trim_end_matches('s'))),
        COST => shown_estimate(estimate.times(MANY), &format!("per million {}", work())),
        "power" => shown_estimate(estimate, "W"),
        "step_time" => shown_estimate(estimate, "s"),
        "peak_memory" | "host_memory" => shown_bytes(estimate),
        metric if measurement.phase_seconds.contains_key(metric) => shown_estimate(estimate, "s"),
        _ => shown_estimate(estimate, ""),
    }
}

fn shown_bytes(estimate: Estimate) -> String {
    let bytes = show_bytes(estimate.value as u64);
    match estimate.relative_half_width() {
        Some(half) if half.is_finite() => format!("{bytes} ± {:.1} %", half * 100.0),
        _ => bytes,
    }
}

/// Returns the name of the objective, as the header of a column.
pub(super) fn result_name(objective: &Objective) -> String {
    if objective.is_pareto() {
        let metrics: Vec<&str> = objective.goals().iter().map(|goal| goal.metric.as_str()).collect();
        return metrics.join(", ");
    }
    objective.metric().to_owned()
}

/// Formats the known values of the goals in one measurement.
fn shown_numbers(objective: &Objective, measurement: &Measurement) -> String {
    let number = |goal: &Goal| objective.estimate_of(&goal.metric, measurement);
    let numbers: Vec<Option<Estimate>> = objective.goals().iter().map(number).collect();
    shown_together(objective, objective.estimate(measurement), &numbers, measurement)
}

/// Formats the goals, given their values. With weights, the score comes first if its reference is known.
pub(super) fn shown_together(
    objective: &Objective,
    score: Option<Estimate>,
    numbers: &[Option<Estimate>],
    measurement: &Measurement,
) -> String {
    let goals = objective.goals().iter().zip(numbers);
    let shown: Vec<String> =
        goals.filter_map(|(goal, number)| Some(shown_metric(&goal.metric, (*number)?, measurement))).collect();
    let shown = shown.join(", ");
    match score.filter(|_| objective.is_relative()) {
        Some(score) => format!("{} ({shown})", shown_estimate(score, "")),
        None => shown,
    }
}

/// Describes an outcome: its value, or why it has no value or is infeasible.
pub fn shown_outcome(objective: &Objective, outcome: &Outcome) -> String {
    let Some(measurement) = outcome.measurement() else {
        let name = outcome.name().replace('_', " ");
        return match outcome.failure() {
            // A step's own message may begin with the same words.
            Some(failure) if failure.reason.to_lowercase().starts_with(&name) => redacted(&failure.reason),
            Some(failure) => format!("{name}: {}", redacted(&failure.reason)),
            None => name,
        };
    };
    let number = shown_numbers(objective, measurement);
    let number =
        if measurement.timing.is_unstable && !number.is_empty() { format!("{number} (unstable)") } else { number };
    match objective.judge(measurement) {
        Judgement::Feasible(_) => number,
        Judgement::Infeasible { reason, .. } if number.is_empty() => reason,
        Judgement::Infeasible { reason, .. } => format!("{number}; {reason}"),
    }
}

/// Formats settings in a line; if it has more than `most` characters, only the settings that differ from the best config.
pub fn shown_settings(settings: &Settings, best: &Settings, most: usize) -> String {
    let whole = settings.line();
    if whole.chars().count() <= most || settings == best {
        return whole;
    }
    let differing = settings.iter().filter(|(name, value)| best.get(name) != Some(*value));
    let differing: Settings = differing.map(|(name, value)| (name, value.clone())).collect();
    format!("{}, else as the best", differing.line())
}

/// Returns the share of a step that waits for data.
pub(super) fn data_wait(measurement: &Measurement) -> Option<f64> {
    let share = measurement.phase_seconds.get("data_wait")? / measurement.timing.step_seconds?;
    share.is_finite().then_some(share)
}

/// The mark after a number whose interval is wider than requested.
pub(super) const UNSTABLE: &str = "~";

/// Formats the value of a trial for a table column, without facts that its mark already shows; a dash if it has no value.
pub(super) fn shown_cell(objective: &Objective, trial: &Trial, unit_is_known: bool) -> String {
    let Some(measurement) = trial.outcome.measurement() else { return "-".to_owned() };
    let number = match measurement.throughput.filter(|_| unit_is_known) {
        Some(throughput) => shown_estimate(throughput, ""),
        None => shown_numbers(objective, measurement),
    };
    let is_unstable = measurement.timing.is_unstable && matches!(trial.outcome, Outcome::Measured(_));
    match number.is_empty() {
        true => "-".to_owned(),
        false if is_unstable => format!("{number} {UNSTABLE}"),
        false => number,
    }
}

/// Sorts the searched trials: feasible trials, the best first, then infeasible trials, then failures, both as probed.
pub(super) fn sorted(study: &Study) -> Vec<&Trial> {
    let mut trials: Vec<&Trial> = study.history.searched().collect();
    let better_first = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    trials.sort_by(|a, b| {
        let (a, b) = (&a.outcome, &b.outcome);
        better_first(study.objective.score_of(a), study.objective.score_of(b))
            .then(b.measurement().is_some().cmp(&a.measurement().is_some()))
    });
    trials
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_wide_interval_is_not_shown() {
        let shown = |low: f64, high: f64, proof| shown_gain(Estimate::interval(1.5, low, high), "faster", proof);
        assert_eq!(shown(1.3, 1.7, (true, Some(1.2))), "1.50x (1.30 to 1.70) faster");
        assert_eq!(shown(1.2, 3.7, (true, Some(1.1))), "at least 1.20x faster");
        assert_eq!(shown(0.9, 14.0, (true, Some(1.1))), "faster, at least 1.10x in every round");
        assert_eq!(shown(0.9, 14.0, (true, Some(0.9))), "faster, by how much is not known");
        assert_eq!(shown(1.2, 3.7, (false, Some(1.1))), "it seems faster, by how much is not known");
        assert_eq!(shown_gain(Estimate::point(1.5), "faster", (false, None)), "1.50x faster");
        let sure = |low: f64, high: f64| sure_ratio(Estimate::interval(1.5, low, high));
        assert_eq!([sure(1.3, 1.7), sure(1.2, 3.7)], ["1.50x (1.30 to 1.70)", "at least 1.20x"]);
        assert_eq!(sure(0.9, 14.0), "not known");
    }
}
