//! What a trial came to, in a few words; the same words in every report.

use crate::objective::{Judgement, Objective};
use crate::outcome::{Estimate, Measurement, Numerics, Outcome};
use crate::quantity::show_number;
use crate::study::Study;
use crate::trial::{Purpose, Trial};

/// A number with half the width of its interval: `3,214 samples/s ± 1.2 %`.
pub fn shown_estimate(estimate: Estimate, unit: &str) -> String {
    let number = show_number(estimate.value);
    let space = if unit.is_empty() { "" } else { " " };
    match estimate.relative_half_width() {
        // The upper end of what hardly anything is known of has no meaning.
        Some(half) if half > 1.0 => format!("{number}{space}{unit} ± over 100 %"),
        Some(half) => format!("{number}{space}{unit} ± {:.1} %", half * 100.0),
        None => format!("{number}{space}{unit}"),
    }
}

/// What the comparison with full precision came to, in words.
pub(super) fn shown_numerics(numerics: &Numerics) -> String {
    match (numerics.drift, &numerics.not_compared) {
        (Some(drift), _) => format!("losses {:.1} % off those of full precision", drift * 100.0),
        (None, reason) => format!("not compared with full precision: {}", reason.as_deref().unwrap_or("unknown")),
    }
}

/// The unit of the objective's metric.
pub(super) fn unit<'m>(objective: &Objective, measurement: &'m Measurement) -> &'m str {
    match objective.metric() {
        "throughput" => &measurement.unit,
        "step_time" => "s",
        "peak_memory" | "host_memory" => "bytes",
        metric if measurement.phase_seconds.contains_key(metric) => "s",
        _ => "",
    }
}

/// What the trial came to: its number, or why there is none or why it may not win.
pub fn shown_result(objective: &Objective, trial: &Trial) -> String {
    let Some(measurement) = trial.outcome.partial_measurement() else {
        let name = trial.outcome.name().replace('_', " ");
        return match trial.outcome.failure() {
            // A step's own message may begin with the same words.
            Some(failure) if failure.reason.to_lowercase().starts_with(&name) => failure.reason.clone(),
            Some(failure) => format!("{name}: {}", failure.reason),
            None => name,
        };
    };
    let number = objective
        .estimate(measurement)
        .map(|estimate| shown_estimate(estimate, unit(objective, measurement)))
        .unwrap_or_default();
    if matches!(trial.outcome, Outcome::Pruned(_)) {
        return format!("pruned: {number}, slower than the best");
    }
    let number = if measurement.is_unstable && !number.is_empty() { format!("{number} (unstable)") } else { number };
    let number = if trial.purpose.is_short() { format!("{number} (short probe)") } else { number };
    match objective.judge(measurement) {
        Judgement::Feasible(_) => number,
        Judgement::Infeasible { reason, .. } if number.is_empty() => reason,
        Judgement::Infeasible { reason, .. } => format!("{number}; {reason}"),
    }
}

/// Searched trials: those that may win, then those that were given up, both the best first; then what is infeasible, then
/// failures, both in the order they were run. What was measured for a short time only stands behind what may win, however
/// good it looked, and is left out where the same config was measured longer.
pub(super) fn sorted(study: &Study) -> Vec<&Trial> {
    let longest = |trial: &&Trial| {
        let parts = |purpose| if let Purpose::Screen { one_in } = purpose { one_in.get() } else { 1 };
        let mut others = study.history.of(&trial.config).filter(|other| other.purpose != Purpose::Confirm);
        others.all(|other| parts(other.purpose) >= parts(trial.purpose))
    };
    let mut trials: Vec<&Trial> = study.history.searched().filter(longest).collect();
    let better_first = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    trials.sort_by(|a, b| {
        let place = |trial: &Trial| match study.objective.score_of(&trial.outcome) {
            Some(_) => u8::from(trial.purpose.is_short()),
            None => 2,
        };
        let places = place(a).cmp(&place(b));
        let (a, b) = (&a.outcome, &b.outcome);
        places
            .then(better_first(study.objective.score_of(a), study.objective.score_of(b)))
            .then(better_first(study.objective.partial_score_of(a), study.objective.partial_score_of(b)))
            .then(b.partial_measurement().is_some().cmp(&a.partial_measurement().is_some()))
    });
    trials
}
