//! Writes all trials as CSV; the names of the columns include the units.

use std::collections::BTreeSet;

use super::care::left_out;
use super::escape::as_cell;
use super::redact::redacted;
use crate::model::{COST, Config, Judgement, Measurement, Metric, Trial, metric::together};
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

/// Writes all trials, rounds included, in the order they were run.
pub fn trials_csv(study: &Study) -> String {
    let measurements = || study.history.trials().iter().filter_map(|trial| trial.outcome.measurement());
    let names: Vec<&str> = (study.space.parameters().iter().map(crate::model::Parameter::name))
        .chain(study.space.derived().iter().map(crate::model::Derived::name))
        .collect();
    let phases: BTreeSet<&str> = measurements().flat_map(|m| m.phase_seconds.keys()).map(String::as_str).collect();
    let metrics: BTreeSet<&str> = measurements().flat_map(|m| m.metrics.keys()).map(String::as_str).collect();

    let mut writer = csv::Writer::from_writer(Vec::new());
    let has_gpus = measurements().any(|m| !m.machine.gpus.is_empty());
    let gpu_columns = if has_gpus { GPU_COLUMNS } else { &[] };
    let goals = GoalColumns::of(study);
    let has_slots = study.history.trials().iter().any(|trial| trial.slot.is_some());
    let mut header = header(&names, gpu_columns, &goals, &phases, &metrics);
    header.extend(slot_columns(has_slots).iter().chain(["reason"].iter()).map(|name| (*name).to_owned()));
    // Writing to memory does not fail, and all rows are as long as the header.
    let _ = writer.write_record(&header);
    for trial in study.history.trials() {
        let settings = study.settings(&trial.config);
        let nothing = Measurement::default();
        let measurement = trial.outcome.measurement();
        let judgement = study.judge(trial);
        let reason = match (&judgement, trial.outcome.failure()) {
            (Some(Judgement::Infeasible { reason, .. }), _) => reason.clone(),
            (_, Some(failure)) => failure.reason.clone(),
            _ => String::new(),
        };
        let purpose = serde_json::to_value(trial.purpose).ok();
        let m = measurement.unwrap_or(&nothing);
        let mut row =
            vec![trial.number.to_string(), purpose.as_ref().and_then(|p| p.as_str()).unwrap_or("").to_owned()];
        row.extend(
            names.iter().map(|name| settings.get(name).map(|value| as_cell(&value.to_string())).unwrap_or_default()),
        );
        row.push(trial.outcome.name().to_owned());
        row.push(matches!(judgement, Some(Judgement::Feasible(_))).to_string());
        row.push(number(m.throughput.map(|t| t.value)));
        row.push(number(m.throughput.and_then(|t| t.low)));
        row.push(number(m.throughput.and_then(|t| t.high)));
        row.push(m.unit.clone());
        row.push(measurement.map(|m| m.timing.is_unstable.to_string()).unwrap_or_default());
        row.extend([m.timing.step_seconds, m.timing.samples_per_step].map(number));
        row.extend([m.memory.peak_bytes, m.memory.warmup_peak_bytes, m.memory.capacity_bytes].map(whole));
        row.extend([m.machine.host_peak_bytes, m.machine.shared_memory_peak_bytes].map(whole));
        row.extend(
            gpu_columns.iter().map(|(_, metric)| number(together(&m.machine.gpus, *metric).map(|all| all.mean))),
        );
        row.extend(goals.cells(study, trial));
        row.extend(phases.iter().map(|phase| number(m.phase_seconds.get(*phase).copied())));
        row.extend(metrics.iter().map(|metric| number(m.metrics.get(*metric).copied())));
        row.extend([measurement.map(|m| m.timing.steps), measurement.map(|m| m.timing.warmup_steps)].map(whole));
        row.push(left_out(measurement));
        row.extend([m.timing.measured_seconds, m.timing.saved_seconds].map(number));
        row.push(number(m.numerics.as_ref().and_then(|numerics| numerics.drift)));
        row.push(number(m.machine.foreign_cpu_share));
        row.push(whole(measurement.map(|m| m.bad_lines)));
        row.push(format!("{:.3}", trial.elapsed.as_secs_f64()));
        row.extend(slot_cells(trial, has_slots));
        row.push(redacted(&reason));
        let _ = writer.write_record(&row);
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Columns derived from measurements: the costs of a sample if any trial has them, the score of several metrics, the front.
struct GoalColumns {
    has_energy: bool,
    has_cost: bool,
    has_score: bool,
    front: Option<Vec<Config>>,
}

impl GoalColumns {
    fn of(study: &Study) -> Self {
        let has = |metric: &str| {
            let mut trials = study.history.trials().iter().filter_map(|trial| trial.outcome.measurement());
            trials.any(|measurement| study.objective.estimate_of(metric, measurement).is_some())
        };
        let front = || study.front().into_iter().map(|member| member.config).collect();
        Self {
            has_energy: has("energy_per_sample"),
            has_cost: has(COST),
            has_score: study.objective.weights().is_some(),
            front: study.objective.is_pareto().then(front),
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let all = [
            (self.has_energy, "energy_per_sample_j"),
            (self.has_cost, COST),
            (self.has_score, "score"),
            (self.front.is_some(), "on_front"),
        ];
        all.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name)
    }

    fn cells(&self, study: &Study, trial: &Trial) -> Vec<String> {
        let measurement = trial.outcome.measurement();
        let metric =
            |name: &str| number(measurement.and_then(|m| study.objective.estimate_of(name, m)).map(|e| e.value));
        let score = || number(measurement.and_then(|m| study.objective.estimate(m)).map(|score| score.value));
        let mut cells = Vec::new();
        cells.extend(self.has_energy.then(|| metric("energy_per_sample")));
        cells.extend(self.has_cost.then(|| metric(COST)));
        cells.extend(self.has_score.then(score));
        cells.extend(self.front.as_ref().map(|front| front.contains(&trial.config).to_string()));
        cells
    }
}

/// Returns the names of the columns, in the order of the cells.
fn header(
    names: &[&str],
    gpu_columns: &[(&str, Metric)],
    goals: &GoalColumns,
    phases: &BTreeSet<&str>,
    metrics: &BTreeSet<&str>,
) -> Vec<String> {
    let mut header: Vec<String> = vec!["trial".to_owned(), "purpose".to_owned()];
    header.extend(names.iter().map(|name| (*name).to_owned()));
    header.extend(
        ["outcome", "feasible", "throughput", "throughput_low", "throughput_high", "throughput_unit", "unstable"]
            .map(str::to_owned),
    );
    header.extend(
        [
            "step_time_s",
            "samples_per_step",
            "peak_memory_bytes",
            "warmup_peak_memory_bytes",
            "memory_capacity_bytes",
            "host_peak_memory_bytes",
            "shared_memory_peak_bytes",
        ]
        .map(str::to_owned),
    );
    header.extend(gpu_columns.iter().map(|(name, _)| (*name).to_owned()));
    header.extend(goals.names().map(str::to_owned));
    header.extend(phases.iter().map(|phase| format!("{phase}_s")));
    header.extend(metrics.iter().map(|metric| (*metric).to_owned()));
    header.extend(
        ["steps", "warmup_steps", "left_out", "measured_s", "saved_s", "loss_drift", "foreign_cpu_share"]
            .map(str::to_owned),
    );
    header.extend(["bad_event_lines", "elapsed_s"].map(str::to_owned));
    header
}

/// Columns for the slot that a trial ran in. If no trial has a slot, only the first column is written, and it is empty.
const SLOT_COLUMNS: &[&str] = &["slot", "slot_host", "slot_gpus", "slot_processors"];

fn slot_columns(has_slots: bool) -> &'static [&'static str] {
    if has_slots { SLOT_COLUMNS } else { &SLOT_COLUMNS[..1] }
}

fn slot_cells(trial: &Trial, has_slots: bool) -> Vec<String> {
    let cells = trial
        .slot
        .as_ref()
        .map(|slot| [slot.number.to_string(), as_cell(&slot.host), slot.gpus.join(" "), slot.processors()].to_vec());
    let mut cells = cells.unwrap_or_default();
    cells.resize(slot_columns(has_slots).len(), String::new());
    cells
}

fn number(number: Option<f64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

fn whole(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
