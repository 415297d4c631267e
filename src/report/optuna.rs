//! Writes the journal of an Optuna study, which Optuna's `JournalStorage` and optuna-dashboard open.
//!
//! Each line of the file is one operation (`JournalOperation` and `_apply_*` in `optuna/storages/journal/_storage.py`):
//! the study with its directions, its attributes, and each trial as a whole.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::redact::redacted;
use super::tensorboard::times;
use super::{Output, Subject};
use crate::model::{Direction, Judgement, Measurement, Objective, Outcome, Parameter, Shape, Trial, Value};
use crate::search::{Kept, Study};

/// The file name that Optuna's documentation uses.
pub(super) const FILE: &str = "optuna.log";
/// The numbers of operations.
const CREATE_STUDY: u8 = 0;
const STUDY_USER_ATTRIBUTE: u8 = 2;
const STUDY_SYSTEM_ATTRIBUTE: u8 = 3;
const CREATE_TRIAL: u8 = 4;

pub(super) fn make(subject: &Subject<'_>) -> Output {
    let Kept { study, spec, device, header, lines, .. } = subject.kept;
    let mut text = String::new();
    let mut line = |operation: u8, rest: Json| {
        let mut log = json!({ "op_code": operation, "worker_id": "gputune" });
        if let (Json::Object(log), Json::Object(rest)) = (&mut log, rest) {
            log.extend(rest);
        }
        let _ = writeln!(text, "{log}");
    };
    let goals = goals(&study.objective);
    // Optuna's `StudyDirection`.
    let number = |direction| if direction == Direction::Minimize { 1 } else { 2 };
    let directions: Vec<u8> = goals.iter().map(|(_, direction)| number(*direction)).collect();
    line(CREATE_STUDY, json!({ "study_name": spec, "directions": directions }));
    let names: Vec<&str> = goals.iter().map(|(name, _)| name.as_str()).collect();
    let system = json!({ "study:metric_names": names });
    line(STUDY_SYSTEM_ATTRIBUTE, json!({ "study_id": 0, "system_attr": system }));
    let best = subject.best.map(|best| best.config.line());
    let baseline = study.baseline.as_ref().map(|config| study.settings(config).line());
    for (name, value) in [
        ("device", json!(device.name)),
        ("driver", json!(device.driver)),
        ("gputune_version", json!(header.gputune_version)),
        ("stopped_because", json!(study.stopped.to_string())),
        ("baseline", json!(baseline)),
        ("best", json!(best)),
    ] {
        line(STUDY_USER_ATTRIBUTE, json!({ "study_id": 0, "user_attr": { name: value } }));
    }
    let mut times = times(lines);
    times.resize(study.history.trials().len(), (0.0, 0.0));
    let whys = lines.iter().map(|line| line.why.as_deref()).chain(std::iter::repeat(None));
    for ((trial, (began, ended)), why) in study.history.trials().iter().zip(times).zip(whys) {
        let mut log = trial_log(study, trial, why);
        log.insert("study_id".to_owned(), json!(0));
        log.insert("datetime_start".to_owned(), json!(timestamp(began)));
        log.insert("datetime_complete".to_owned(), json!(timestamp(ended)));
        line(CREATE_TRIAL, Json::Object(log));
    }
    Output::text(text)
}

/// Returns the optimised metrics: the metrics of a front, the score of a weighted product, or the single metric.
fn goals(objective: &Objective) -> Vec<(String, Direction)> {
    if objective.is_pareto() {
        return objective.goals().iter().map(|goal| (goal.metric.clone(), goal.direction)).collect();
    }
    vec![(objective.metric().to_owned(), objective.direction())]
}

fn trial_log(study: &Study, trial: &Trial, why: Option<&str>) -> Map<String, Json> {
    let measurement = trial.outcome.measurement();
    let values: Option<Vec<f64>> = measurement.and_then(|measurement| {
        if study.objective.is_pareto() {
            let goals = study.objective.goals().iter();
            return goals.map(|goal| Some(study.objective.estimate_of(&goal.metric, measurement)?.value)).collect();
        }
        Some(vec![study.objective.estimate(measurement)?.value])
    });
    let is_measured = matches!(trial.outcome, Outcome::Measured(_));
    let values = values.filter(|values| is_measured && values.iter().all(|value| value.is_finite()));
    // Optuna's `TrialState`: 1 is complete, 3 failed.
    let state = if values.is_some() { 1 } else { 3 };
    let (value, several) = match values {
        Some(values) if values.len() == 1 => (json!(values[0]), Json::Null),
        Some(values) => (Json::Null, json!(values)),
        None => (Json::Null, Json::Null),
    };
    let settings = study.settings(&trial.config);
    let (mut params, mut distributions) = (Map::new(), Map::new());
    for parameter in study.space.parameters() {
        let known = settings.get(parameter.name()).filter(|value| !value.is_as_it_is());
        let Some((distribution, internal)) = known.and_then(|value| distribution(parameter, value)) else { continue };
        distributions.insert(parameter.name().to_owned(), json!(distribution.to_string()));
        params.insert(parameter.name().to_owned(), internal);
    }
    let log = json!({
        "state": state,
        "value": value,
        "values": several,
        "params": params,
        "distributions": distributions,
        "user_attrs": user_attributes(study, trial, why),
        "system_attrs": constraints(study, trial),
        "intermediate_values": {},
    });
    if let Json::Object(log) = log { log } else { Map::new() }
}

/// Returns the distribution, and the value as Optuna encodes it: a number, or a choice's index. `None` for no choice.
fn distribution(parameter: &Parameter, value: &Value) -> Option<(Json, Json)> {
    let with = |name: &str, attributes: Json| json!({ "name": name, "attributes": attributes });
    let number = json!(value.as_f64());
    Some(match parameter.shape() {
        Shape::Integers { first, last, step } => {
            (with("IntDistribution", json!({ "log": false, "step": step, "low": first, "high": last })), number)
        }
        Shape::Powers { first, last } => {
            (with("IntDistribution", json!({ "log": true, "step": 1, "low": first, "high": last })), number)
        }
        Shape::Floats { first, last, step } => {
            (with("FloatDistribution", json!({ "step": step, "low": first, "high": last, "log": false })), number)
        }
        Shape::Listed(values) => {
            let place = parameter.level(value)?;
            (with("CategoricalDistribution", json!({ "choices": values })), json!(f64::from(place)))
        }
    })
}

/// Returns the `constraints` of Optuna's samplers: numbers above zero count as violated.
fn constraints(study: &Study, trial: &Trial) -> Json {
    match study.judge(trial) {
        Some(Judgement::Infeasible { .. }) => json!({ "constraints": [1.0] }),
        Some(Judgement::Feasible(_)) => json!({ "constraints": [0.0] }),
        None => json!({}),
    }
}

/// Returns all other facts about a trial.
fn user_attributes(study: &Study, trial: &Trial, why: Option<&str>) -> Map<String, Json> {
    let mut found = Map::new();
    let mut add = |name: &str, value: Json| {
        if !value.is_null() {
            found.insert(name.to_owned(), value);
        }
    };
    add("trial", json!(trial.number));
    add("purpose", json!(trial.purpose));
    add("outcome", json!(trial.outcome.name()));
    add("why", json!(why));
    add("elapsed_s", json!(trial.elapsed.as_secs_f64()));
    add("reason", json!(trial.outcome.failure().map(|failure| redacted(&failure.reason))));
    if let Some(Judgement::Infeasible { reason, .. }) = study.judge(trial) {
        add("infeasible", json!(reason));
    }
    let settings = study.settings(&trial.config);
    study.space.derived().iter().for_each(|derived| add(derived.name(), json!(settings.get(derived.name()))));
    if let Some(measurement) = trial.outcome.measurement() {
        measured(measurement).into_iter().for_each(|(name, value)| add(&name, value));
        for goal in study.objective.goals() {
            if let Some(estimate) = study.objective.estimate_of(&goal.metric, measurement) {
                add(&goal.metric, json!(estimate.value));
                add(&format!("{}_low", goal.metric), json!(estimate.low));
                add(&format!("{}_high", goal.metric), json!(estimate.high));
            }
        }
    }
    found
}

fn measured(measurement: &Measurement) -> Vec<(String, Json)> {
    let throughput = measurement.throughput;
    let mut found: Vec<(String, Json)> = [
        ("throughput", json!(throughput.map(|t| t.value))),
        ("throughput_low", json!(throughput.and_then(|t| t.low))),
        ("throughput_high", json!(throughput.and_then(|t| t.high))),
        ("throughput_unit", json!(measurement.unit)),
        ("unstable", json!(measurement.timing.is_unstable.then_some(true))),
        ("step_time_s", json!(measurement.timing.step_seconds)),
        ("samples_per_step", json!(measurement.timing.samples_per_step)),
        ("peak_memory_bytes", json!(measurement.memory.peak_bytes)),
        ("memory_capacity_bytes", json!(measurement.memory.capacity_bytes)),
        ("memory_headroom", json!(measurement.memory_headroom())),
        ("host_peak_memory_bytes", json!(measurement.machine.host_peak_bytes)),
        ("steps", json!(measurement.timing.steps)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    found.extend(measurement.phase_seconds.iter().map(|(name, seconds)| (format!("{name}_s"), json!(seconds))));
    found.extend(measurement.metrics.iter().map(|(name, number)| (name.clone(), json!(number))));
    found
}

/// Formats seconds of Unix time as ISO 8601 in UTC, with `civil_from_days` of Howard Hinnant's date algorithms.
fn timestamp(seconds: f64) -> String {
    let micros = (seconds.clamp(0.0, 1e11) * 1e6).round() as i64;
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(timestamp(0.0), "1970-01-01T00:00:00.000000+00:00");
        assert_eq!(timestamp(951_782_400.5), "2000-02-29T00:00:00.500000+00:00");
        assert_eq!(timestamp(1_767_225_599.0), "2025-12-31T23:59:59.000000+00:00");
        assert_eq!(timestamp(4_107_542_400.0), "2100-03-01T00:00:00.000000+00:00");
        assert_eq!(timestamp(f64::NAN), timestamp(0.0));
    }
}
