//! Writes one probe with all its measurements, for the terminal or as JSON.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::escape::plain;
use super::gpus::{MemoryParts, gpu_lines, host_words};
use super::row::{shown_estimate, shown_numerics, shown_outcome};
use crate::machine::Device;
use crate::model::quantity::{show_bytes, show_count, show_number, show_seconds};
use crate::model::{Judgement, Measurement, Outcome, Settings, Trial};
use crate::probe::MEMORY_SNAPSHOT;
use crate::search::Study;

/// How to look at a memory snapshot, which lists the blocks of torch's allocator.
pub(super) const HOW_TO_OPEN: &str = "open it at pytorch.org/memory_viz";

/// The output of `gputune probe --json`.
#[derive(Serialize)]
struct ProbeReport<'t> {
    config: Settings,
    #[serde(flatten)]
    outcome: &'t Outcome,
    feasible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    infeasible_because: Option<String>,
    /// Wall time of the probe in seconds, with startup and cleanup.
    elapsed_s: f64,
    log: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_snapshot: Option<String>,
    device: &'t str,
    gputune_version: &'static str,
}

/// Makes the JSON report of a probe.
pub fn probe_json<'t>(study: &Study, trial: &'t Trial, device: &'t Device, log: &Path) -> impl Serialize {
    let judgement = study.judge(trial);
    ProbeReport {
        config: study.settings(&trial.config),
        outcome: &trial.outcome,
        feasible: matches!(judgement, Some(Judgement::Feasible(_))),
        infeasible_because: match judgement {
            Some(Judgement::Infeasible { reason, .. }) => Some(reason),
            _ => None,
        },
        elapsed_s: trial.elapsed.as_secs_f64(),
        log: log.display().to_string(),
        memory_snapshot: snapshot(trial, log),
        device: &device.name,
        gputune_version: env!("CARGO_PKG_VERSION"),
    }
}

/// Writes the probe for the terminal.
pub fn probe_text(study: &Study, trial: &Trial, device: &Device, log: &Path) -> String {
    let mut lines = vec![("config", study.settings(&trial.config).line())];
    match (&trial.outcome, study.judge(trial)) {
        (Outcome::Measured(_), Some(Judgement::Feasible(_))) => lines.push(("outcome", "measured".to_owned())),
        (_, Some(Judgement::Infeasible { reason, .. })) => lines.push(("outcome", format!("not feasible: {reason}"))),
        _ => lines.push(("outcome", shown_outcome(&study.objective, &trial.outcome))),
    }
    if let Some(measurement) = trial.outcome.measurement() {
        lines.extend(measured(measurement));
    }
    lines.push(("device", device.name.clone()));
    lines
        .push(("elapsed", format!("{}, starting and cleaning up included", show_seconds(trial.elapsed.as_secs_f64()))));
    lines.push(("log", log.display().to_string()));
    lines.extend(snapshot(trial, log).map(|path| ("", format!("memory snapshot: {path}; {HOW_TO_OPEN}"))));
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<11} {value}");
    }
    if let Some(failure) = trial.outcome.failure().filter(|failure| !failure.last_lines.is_empty()) {
        text.push_str("\nthe step's last lines:\n");
        for line in &failure.last_lines {
            let _ = writeln!(text, "  | {}", plain(line));
        }
    }
    text
}

/// Returns the path of the memory snapshot next to the log of a trial that ran out of memory.
pub(super) fn snapshot(trial: &Trial, log: &Path) -> Option<String> {
    let is_full = matches!(trial.outcome, Outcome::OutOfMemory { .. });
    let path = MEMORY_SNAPSHOT.of_log(log).filter(|_| is_full)?;
    Some(path.display().to_string())
}

fn measured(measurement: &Measurement) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(throughput) = measurement.throughput {
        let unstable = if measurement.timing.is_unstable { "; it did not settle" } else { "" };
        lines.push(("throughput", format!("{} (95 %){unstable}", shown_estimate(throughput, &measurement.unit))));
    }
    let time = measurement.timing.measured_seconds.map(|seconds| format!(" in {}", show_seconds(seconds)));
    let (steps, warmup) = (measurement.timing.steps, measurement.timing.warmup_steps);
    lines.push(("steps", format!("{steps}{}, after {warmup} of warm-up", time.unwrap_or_default())));
    for (kind, outliers) in &measurement.timing.outliers {
        let text = format!("{} steps left out ({kind}), {}", outliers.steps, show_seconds(outliers.seconds));
        lines.push(("", text));
    }
    if let Some(samples) = measurement.timing.samples_per_step {
        let by = measurement.facts.text("samples.counted_by").map(|by| format!(", counted by the {}", plain(by)));
        lines.push(("samples", format!("{} per step{}", show_count(samples), by.unwrap_or_default())));
        lines.extend(measurement.facts.text("samples.mismatch").map(|words| ("", plain(words))));
    }
    lines.extend(measurement.warnings(None, false).into_iter().map(|flaw| ("warning", flaw)));
    if let Some(seconds) = measurement.timing.step_seconds {
        lines.push(("step", format!("{}, data wait included", show_seconds(seconds))));
        for (name, phase) in &measurement.phase_seconds {
            lines.push(("", format!("{name} {} ({:.0} %)", show_seconds(*phase), 100.0 * phase / seconds)));
        }
    }
    lines.extend(memory(measurement));
    lines.extend(host_words(&measurement.machine.host).map(|words| ("host", words)));
    if let (Some(first), Some(last)) = (measurement.first_losses.first(), measurement.first_losses.last()) {
        let count = measurement.first_losses.len();
        lines.push(("loss", format!("{first:.4} to {last:.4} over the first {count} steps")));
    }
    if let Some(numerics) = &measurement.numerics {
        lines.push(("numerics", shown_numerics(numerics)));
    }
    for (name, number) in measurement.metrics.iter().filter(|(name, _)| *name != "loss") {
        lines.push(("metric", format!("{name} {}", show_number(*number))));
    }
    if let Some(ranks) = measurement.ranks.filter(|&ranks| ranks > 1) {
        lines.push(("ranks", ranks.to_string()));
    }
    if let Some(share) = measurement.machine.foreign_cpu_share {
        lines.push(("disturbed", format!("other programs used {:.0} % of the CPU", share * 100.0)));
    }
    lines.extend(measurement.framework.as_ref().map(|framework| ("framework", framework.clone())));
    if measurement.bad_lines > 0 {
        lines.push(("bad lines", format!("{} on the socket were no events", measurement.bad_lines)));
    }
    lines
}

fn memory(measurement: &Measurement) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(peak) = measurement.memory.peak_bytes {
        let capacity = measurement.memory.capacity_bytes.map(|bytes| format!(" of {}", show_bytes(bytes)));
        let free = measurement.memory_headroom().map(|share| format!(", {:.0} % free", share * 100.0));
        let warmup = measurement.memory.warmup_peak_bytes.filter(|&bytes| bytes > peak);
        let warmup = warmup.map(|bytes| format!("; {} during warm-up", show_bytes(bytes)));
        let rest = [capacity, free, warmup].into_iter().flatten().collect::<String>();
        lines.push(("peak memory", format!("{}{rest}", show_bytes(peak))));
    }
    if let Some(retries) = measurement.memory.allocator_retries {
        let warmup = measurement.memory.warmup_allocator_retries;
        let warmup = warmup.map(|retries| format!("; {retries} during warm-up")).unwrap_or_default();
        lines.push(("", format!("{retries} allocator retries{warmup}")));
    }
    lines.extend(MemoryParts::of(measurement).map(|parts| ("", parts.words())));
    lines.extend(gpu_lines(&measurement.machine.gpus));
    if let Some(host) = measurement.machine.host_peak_bytes {
        lines.push(("host memory", show_bytes(host)));
    }
    if let Some(shared) = measurement.machine.shared_memory_peak_bytes {
        lines.push(("/dev/shm", show_bytes(shared)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_and_retries_of_warm_up_have_their_own_numbers() {
        let mut measurement = Measurement::default();
        measurement.memory.peak_bytes = Some(1_610_612_736);
        measurement.memory.allocator_retries = Some(2);
        let words = |it: &Measurement| memory(it).into_iter().map(|(_, words)| words).collect::<Vec<_>>();
        assert_eq!(words(&measurement), ["1.50 GiB", "2 allocator retries"]);
        measurement.memory.warmup_peak_bytes = Some(2_684_354_560);
        measurement.memory.warmup_allocator_retries = Some(5);
        let expected = ["1.50 GiB; 2.50 GiB during warm-up", "2 allocator retries; 5 during warm-up"];
        assert_eq!(words(&measurement), expected);
    }
}
