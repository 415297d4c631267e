//! The trials as rows of numbers and text.

use serde::Serialize;

use crate::model::{Measurement, Metric, Parameter, Trial, Value, metric::together};
use crate::report::figure::{Mark, Unit};
use crate::report::figures::{Studied, metric_unit};
use crate::report::row::{shown_result, sorted};

/// The table of trials.
#[derive(Debug, Serialize)]
pub(super) struct Rows {
    columns: Vec<Column>,
    /// The rows, the best first; rounds come last.
    rows: Vec<Row>,
}

/// A column of the table.
#[derive(Debug, Serialize)]
struct Column {
    label: String,
    unit: Unit,
    /// True if the column is a parameter.
    is_setting: bool,
    /// True if the column is text to be read and not compared.
    is_words: bool,
}

/// The row of a trial.
#[derive(Debug, Serialize)]
struct Row {
    trial: u32,
    mark: Mark,
    cells: Vec<Cell>,
}

/// A number, a string, or nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum Cell {
    Nothing,
    Number(f64),
    Text(String),
}

/// A column with a measured value; it is left out if no trial has the value.
type Told = (&'static str, Unit, fn(&Measurement) -> Option<f64>);

const TOLD: &[Told] = &[
    ("peak memory", Unit::Bytes, |m| m.metric("peak_memory")),
    ("memory free", Unit::Share, Measurement::memory_headroom),
    ("step time", Unit::Seconds, |m| m.timing.step_seconds),
    ("data wait", Unit::Seconds, |m| m.phase_seconds.get("data_wait").copied()),
    ("SM activity", Unit::Share, |m| together(&m.machine.gpus, Metric::SmActive).map(|all| all.mean)),
    ("GPU busy", Unit::Share, |m| together(&m.machine.gpus, Metric::GpuBusy).map(|all| all.mean)),
    ("power", Unit::Number, |m| m.metric("power")),
    ("CPU cores", Unit::Number, |m| m.machine.host.get(&Metric::CpuCores).map(|reading| reading.value)),
];

impl Rows {
    pub(super) fn of(studied: &Studied<'_>) -> Self {
        let study = studied.study;
        let trials = ordered(studied);
        let measurement = |trial: &&Trial| trial.outcome.measurement().cloned();
        let mut columns = vec![column("purpose", Unit::Number, false)];
        let names: Vec<&str> = (study.space.parameters().iter().map(Parameter::name))
            .chain(study.space.derived().iter().map(crate::model::Derived::name))
            .collect();
        columns.extend(names.iter().map(|name| column(name, Unit::Number, true)));
        columns.push(Column { is_words: true, ..column("result", Unit::Number, false) });
        let goals: Vec<&str> = study.objective.goals().iter().map(|goal| goal.metric.as_str()).collect();
        columns.extend(goals.iter().map(|metric| column(metric, metric_unit(metric), false)));
        let is_told = |told: &&Told| trials.iter().filter_map(measurement).any(|m| (told.2)(&m).is_some());
        // Leave out values that are objectives, which have their own columns.
        let counts = |told: &&Told| goals.iter().any(|goal| goal.replace('_', " ") == told.0);
        let told: Vec<&Told> = TOLD.iter().filter(|told| !counts(told)).filter(is_told).collect();
        columns.extend(told.iter().map(|(label, unit, _)| column(label, *unit, false)));
        columns.push(column("wall time", Unit::Seconds, false));
        let has_slots = trials.iter().any(|trial| trial.slot.is_some());
        columns.extend(has_slots.then(|| column("slot", Unit::Number, false)));
        let row = |trial: &Trial| {
            let settings = study.settings(&trial.config);
            let measured = trial.outcome.measurement();
            let mut cells = vec![Cell::Text(trial.purpose.to_string())];
            cells.extend(names.iter().map(|name| settings.get(name).map_or(Cell::Nothing, setting)));
            cells.push(Cell::Text(shown_result(&study.objective, trial)));
            cells.extend(goals.iter().map(|metric| {
                number(measured.and_then(|m| study.objective.estimate_of(metric, m)).map(|estimate| estimate.value))
            }));
            cells.extend(told.iter().map(|(_, _, number_of)| number(measured.and_then(number_of))));
            cells.push(number(Some(trial.elapsed.as_secs_f64())));
            let slot = trial.slot.as_ref().map(|slot| f64::from(slot.number));
            cells.extend(has_slots.then(|| number(slot)));
            Row { trial: trial.number, mark: studied.mark(trial), cells }
        };
        Self { columns, rows: trials.iter().map(|trial| row(trial)).collect() }
    }
}

/// Returns all trials: first the trials that reports list, in their order, then the rest.
fn ordered<'s>(studied: &Studied<'s>) -> Vec<&'s Trial> {
    let mut trials = sorted(studied.study);
    let listed: std::collections::HashSet<u32> = trials.iter().map(|trial| trial.number).collect();
    let all = studied.study.history.trials().iter().map(AsRef::as_ref);
    trials.extend(all.filter(|trial: &&Trial| !listed.contains(&trial.number)));
    trials
}

fn column(label: &str, unit: Unit, is_setting: bool) -> Column {
    Column { label: label.to_owned(), unit, is_setting, is_words: false }
}

fn setting(value: &Value) -> Cell {
    value.as_f64().map_or_else(|| Cell::Text(value.to_string()), Cell::Number)
}

/// Rounds a number to six digits, since a page has many numbers and more digits are unreadable.
fn number(number: Option<f64>) -> Cell {
    let Some(number) = number.filter(|number| number.is_finite()) else { return Cell::Nothing };
    Cell::Number(format!("{number:.5e}").parse().unwrap_or(number))
}
