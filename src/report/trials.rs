//! Writes all trials as CSV; the names of the columns include the units.

use std::collections::BTreeSet;

use super::care::left_out;
use super::escape::as_cell;
use super::redact::redacted;
use crate::model::{
    COST, Config, Derived, Judgement, Measurement, Metric, Parameter, Settings, Slot, Trial, metric::together,
};
use crate::search::Study;

/// Columns for the GPUs: means over the GPUs that a probe used.
const GPU_COLUMNS: &[(&str, Metric)] = &[
    ("sm_active", Metric::SmActive),
    ("sm_occupancy", Metric::SmOccupancy),
    ("tensor_active", Metric::TensorActive),
    ("dram_active", Metric::DramActive),
    ("gpu_busy", Metric::GpuBusy),
    ("gpu_power_w", Metric::Power),
    ("gpu_memory_own_bytes", Metric::MemoryOwn),
    ("gpu_memory_others_bytes", Metric::MemoryOthers),
    ("throttled_by_power", Metric::ThrottledByPower),
];

/// The contents of a row.
struct Row<'t> {
    trial: &'t Trial,
    settings: Settings,
    measured: Option<&'t Measurement>,
}

impl Row<'_> {
    fn number<N: ToString>(&self, of: impl FnOnce(&Measurement) -> Option<N>) -> String {
        self.measured.and_then(of).map(|number| number.to_string()).unwrap_or_default()
    }

    fn slot(&self, of: impl FnOnce(&Slot) -> String) -> String {
        self.trial.slot.as_ref().map(of).unwrap_or_default()
    }
}

/// A column: its name, and its cell in a row.
type Column<'s> = (String, Box<dyn Fn(&Row<'_>) -> String + 's>);

fn column<'s>(name: &str, cell: impl Fn(&Row<'_>) -> String + 's) -> Column<'s> {
    (name.to_owned(), Box::new(cell))
}

/// Writes all trials, rounds included, in the order they were run.
pub fn trials_csv(study: &Study) -> String {
    let mut columns = setting_columns(study);
    columns.extend(measured_columns());
    columns.extend(found_columns(study));
    columns.extend(effort_columns());
    columns.extend(slot_columns(study));
    columns.push(column("reason", move |row| redacted(&reason(study, row.trial))));
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail, and all rows are as long as the header.
    let _ = writer.write_record(columns.iter().map(|(name, _)| name));
    for trial in study.history.trials() {
        let row = Row { trial, settings: study.settings(&trial.config), measured: trial.outcome.measurement() };
        let _ = writer.write_record(columns.iter().map(|(_, cell)| cell(&row)));
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn reason(study: &Study, trial: &Trial) -> String {
    match (study.judge(trial), trial.outcome.failure()) {
        (Some(Judgement::Infeasible { reason, .. }), _) => reason,
        (_, Some(failure)) => failure.reason.clone(),
        _ => String::new(),
    }
}

/// Returns the columns of the trial, its settings and its outcome.
fn setting_columns(study: &Study) -> Vec<Column<'_>> {
    let purpose = |trial: &Trial| Some(serde_json::to_value(trial.purpose).ok()?.as_str()?.to_owned());
    let number = column("trial", |row| row.trial.number.to_string());
    let mut columns = vec![number, column("purpose", move |row| purpose(row.trial).unwrap_or_default())];
    let parameters = study.space.parameters().iter().map(Parameter::name);
    let names = parameters.chain(study.space.derived().iter().map(Derived::name));
    columns.extend(names.map(|name| {
        column(name, move |row| row.settings.get(name).map(|value| as_cell(&value.to_string())).unwrap_or_default())
    }));
    columns.push(column("outcome", |row| row.trial.outcome.name().to_owned()));
    let is_feasible = move |trial: &Trial| matches!(study.judge(trial), Some(Judgement::Feasible(_)));
    columns.push(column("feasible", move |row| is_feasible(row.trial).to_string()));
    columns
}

/// Returns the columns that every study has.
fn measured_columns() -> Vec<Column<'static>> {
    vec![
        column("throughput", |row| row.number(|m| m.throughput.map(|throughput| throughput.value))),
        column("throughput_low", |row| row.number(|m| m.throughput?.low)),
        column("throughput_high", |row| row.number(|m| m.throughput?.high)),
        column("throughput_unit", |row| row.measured.map(|m| m.unit.clone()).unwrap_or_default()),
        column("unstable", |row| row.measured.map(|m| m.timing.is_unstable.to_string()).unwrap_or_default()),
        column("step_time_s", |row| row.number(|m| m.timing.step_seconds)),
        column("samples_per_step", |row| row.number(|m| m.timing.samples_per_step)),
        column("peak_memory_bytes", |row| row.number(|m| m.memory.peak_bytes)),
        column("warmup_peak_memory_bytes", |row| row.number(|m| m.memory.warmup_peak_bytes)),
        column("memory_capacity_bytes", |row| row.number(|m| m.memory.capacity_bytes)),
        column("host_peak_memory_bytes", |row| row.number(|m| m.machine.host_peak_bytes)),
        column("shared_memory_peak_bytes", |row| row.number(|m| m.machine.shared_memory_peak_bytes)),
    ]
}

/// Returns the columns that only some studies have: GPUs, energy, cost, score, front, phases and own metrics.
fn found_columns(study: &Study) -> Vec<Column<'_>> {
    let objective = &study.objective;
    let measurements = || study.history.trials().iter().filter_map(|trial| trial.outcome.measurement());
    let mut columns = Vec::new();
    if measurements().any(|m| !m.machine.gpus.is_empty()) {
        columns.extend(GPU_COLUMNS.iter().map(|&(name, metric)| {
            column(name, move |row| row.number(|m| Some(together(&m.machine.gpus, metric)?.mean)))
        }));
    }
    for (name, metric) in [("energy_per_sample_j", "energy_per_sample"), (COST, COST)] {
        if measurements().any(|m| objective.estimate_of(metric, m).is_some()) {
            columns.push(column(name, move |row| row.number(|m| Some(objective.estimate_of(metric, m)?.value))));
        }
    }
    if objective.weights().is_some() {
        columns.push(column("score", move |row| row.number(|m| Some(objective.estimate(m)?.value))));
    }
    if objective.is_pareto() {
        let front: Vec<Config> = study.front().into_iter().map(|member| member.config).collect();
        columns.push(column("on_front", move |row| front.contains(&row.trial.config).to_string()));
    }
    let phases: BTreeSet<&String> = measurements().flat_map(|m| m.phase_seconds.keys()).collect();
    columns.extend(
        phases
            .into_iter()
            .map(|name| column(&format!("{name}_s"), move |row| row.number(|m| m.phase_seconds.get(name).copied()))),
    );
    let metrics: BTreeSet<&String> = measurements().flat_map(|m| m.metrics.keys()).collect();
    columns
        .extend(metrics.into_iter().map(|name| column(name, move |row| row.number(|m| m.metrics.get(name).copied()))));
    columns
}

/// Returns the columns about steps and times of measuring, and about disturbances.
fn effort_columns() -> Vec<Column<'static>> {
    vec![
        column("steps", |row| row.number(|m| Some(m.timing.steps))),
        column("warmup_steps", |row| row.number(|m| Some(m.timing.warmup_steps))),
        column("left_out", |row| left_out(row.measured)),
        column("measured_s", |row| row.number(|m| m.timing.measured_seconds)),
        column("saved_s", |row| row.number(|m| m.timing.saved_seconds)),
        column("loss_drift", |row| row.number(|m| m.numerics.as_ref()?.drift)),
        column("foreign_cpu_share", |row| row.number(|m| m.machine.foreign_cpu_share)),
        column("bad_event_lines", |row| row.number(|m| Some(m.bad_lines))),
        column("elapsed_s", |row| format!("{:.3}", row.trial.elapsed.as_secs_f64())),
    ]
}

/// Returns the columns of the slot that a trial ran in. If no trial has a slot, only the first column is written, and it is empty.
fn slot_columns(study: &Study) -> Vec<Column<'static>> {
    let mut columns = vec![
        column("slot", |row| row.slot(|slot| slot.number.to_string())),
        column("slot_host", |row| row.slot(|slot| as_cell(&slot.host))),
        column("slot_gpus", |row| row.slot(|slot| slot.gpus.join(" "))),
        column("slot_processors", |row| row.slot(Slot::processors)),
    ];
    let has_slots = study.history.trials().iter().any(|trial| trial.slot.is_some());
    columns.truncate(if has_slots { columns.len() } else { 1 });
    columns
}
