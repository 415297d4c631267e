//! The trials as rows of numbers and text, and the slots of a search: their hardware, their trials and their speed.

use serde::Serialize;

use crate::model::quantity::{show_bytes, show_duration};
use crate::model::{Derived, Measurement, Metric, Parameter, Slot, Trial, Value, metric::together};
use crate::report::figure::{Mark, Unit};
use crate::report::figures::{Studied, metric_unit};
use crate::report::row::{shown_outcome, sorted};
use crate::search::{SlotSeen, Study};

#[derive(Debug, Serialize)]
pub(super) struct Rows {
    columns: Vec<Column>,
    /// The rows, the best first; rounds come last.
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Column {
    label: String,
    unit: Unit,
    /// True if the column is a parameter.
    is_setting: bool,
    /// True if the column is text to be read and not compared.
    is_words: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    trial: u32,
    mark: Mark,
    cells: Vec<Cell>,
}

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
            .chain(study.space.derived().iter().map(Derived::name))
            .collect();
        columns.extend(names.iter().map(|name| column(name, Unit::Number, true)));
        columns.push(Column { is_words: true, ..column("result", Unit::Number, false) });
        let goals: Vec<&str> = study.objective.goals().iter().map(|goal| goal.metric.as_str()).collect();
        columns.extend(goals.iter().map(|metric| column(metric, metric_unit(metric), false)));
        let is_told = |told: &&Told| trials.iter().filter_map(measurement).any(|m| (told.2)(&m).is_some());
        // Leave out values that are objectives, which have their own columns.
        let is_goal = |told: &&Told| goals.iter().any(|goal| goal.replace('_', " ") == told.0);
        let told: Vec<&Told> = TOLD.iter().filter(|told| !is_goal(told)).filter(is_told).collect();
        columns.extend(told.iter().map(|(label, unit, _)| column(label, *unit, false)));
        columns.push(column("wall time", Unit::Seconds, false));
        let has_slots = trials.iter().any(|trial| trial.slot.is_some());
        columns.extend(has_slots.then(|| column("slot", Unit::Number, false)));
        let row = |trial: &Trial| {
            let settings = study.settings(&trial.config);
            let measured = trial.outcome.measurement();
            let mut cells = vec![Cell::Text(trial.purpose.to_string())];
            cells.extend(names.iter().map(|name| settings.get(name).map_or(Cell::Nothing, setting)));
            cells.push(Cell::Text(shown_outcome(&study.objective, &trial.outcome)));
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

/// A slot.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    number: u32,
    /// The hardware.
    has: String,
    trials: String,
    busy: String,
    /// The speed relative to the first slot.
    level: String,
}

pub(super) fn places(study: &Study) -> Vec<Place> {
    let place = |seen: SlotSeen| Place {
        number: seen.slot.number,
        has: described(&seen.slot),
        trials: match seen.failed {
            0 => seen.trials.to_string(),
            failed => format!("{}, {failed} failed", seen.trials),
        },
        busy: show_duration(seen.busy),
        level: seen.level.map_or_else(|| "not compared".to_owned(), shown),
    };
    study.slots().into_iter().map(place).collect()
}

fn shown(level: f64) -> String {
    format!("{level:.2}x")
}

/// Describes the hardware of a slot in one line.
pub(super) fn described(slot: &Slot) -> String {
    let host = (!slot.host.is_empty()).then(|| slot.host.clone());
    let processors = (!slot.cores.is_empty()).then(|| format!("CPUs {}", slot.processors()));
    let memory = slot.memory_bytes.map(|bytes| format!("{} of memory", show_bytes(bytes)));
    let parts: Vec<_> = host.into_iter().chain(slot.gpus.iter().cloned()).chain(processors).chain(memory).collect();
    if parts.is_empty() { format!("slot {}", slot.number) } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_slot_has_is_one_line() {
        let gpus = vec!["GPU-1".to_owned(), "GPU-2".to_owned()];
        let slot = Slot { host: "node7".to_owned(), gpus, cores: vec![8, 9, 11], ..Slot::numbered(2) };
        assert_eq!(described(&slot), "node7, GPU-1, GPU-2, CPUs 8-9,11");
        assert_eq!(described(&Slot::numbered(3)), "slot 3");
        assert_eq!(shown(0.981), "0.98x");
    }
}
