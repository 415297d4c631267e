//! Writes a diagnosis as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bar::{Part, parts};
use crate::diagnosis::{
    Account, Clue, Diagnosed, Differential, Evidence, Examined, Exposed, Kind, Line, Opening, Ran, Verdict, Worth,
    lines, lines_of,
};
use crate::model::{Estimate, Facts, GpuUse, Readings};

/// The version of the JSON; it increases if a member changes its meaning or is removed.
const FORMAT: u32 = 1;

/// The output of `gputune diagnose --json`; `docs/design/json.md` describes it.
#[derive(Debug, Serialize)]
pub struct DiagnosisReport<'e> {
    /// The version of this format.
    pub format: u32,
    /// The job: a spec, or a command.
    pub job: String,
    /// The device.
    pub device: String,
    /// Work per second.
    pub throughput: Option<Estimate>,
    /// The unit of the throughput.
    pub unit: String,
    /// Wall time of a step in seconds.
    pub step_seconds: Option<f64>,
    /// The parts of a step's time.
    pub step: Vec<Part>,
    /// The wall time of the run, by branch; absent if its steps were not timed.
    pub account: Option<Account>,
    /// Samples per second with replayed batches.
    pub ceiling: Option<f64>,
    /// The cost of the communication between ranks; absent if it was not measured or the job has one rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication: Option<Exposed>,
    /// Largest device memory in use, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// The device's memory capacity in bytes.
    pub memory_capacity_bytes: Option<u64>,
    /// The readings of each GPU.
    pub gpus: &'e [GpuUse],
    /// The readings of the host.
    pub host: &'e Readings,
    /// The facts that the job reported about itself.
    pub facts: &'e Facts,
    /// Lines of the script with their time: lines on the host first, then lines that compute or wait for data.
    pub lines: Vec<Line>,
    /// The bottleneck; absent if nothing is known.
    pub bottleneck: Option<CauseReport>,
    /// The confidence in the bottleneck, from 0 to 1.
    pub sureness: f64,
    /// The confidence in words.
    pub how_sure: &'static str,
    /// True if nothing holds the job back.
    pub is_healthy: bool,
    /// Further causes that were found, the worst first.
    pub others: Vec<CauseReport>,
    /// The differential probes.
    pub probes: Vec<ProbeLine>,
    /// Wall time in seconds.
    pub elapsed_s: f64,
    /// True if the diagnosis was stopped before every probe was considered.
    pub is_interrupted: bool,
    /// The version of gputune.
    pub gputune_version: &'static str,
}

/// A cause that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseReport {
    /// The name of the cause.
    pub cause: &'static str,
    /// The name of the cause on the screen.
    pub title: &'static str,
    /// The kind of the cause.
    pub kind: Kind,
    /// The confidence in this cause alone, from 0 to 1.
    pub sureness: f64,
    /// The evidence.
    pub evidence: Vec<Clue>,
    /// The speedup that removing the cause is worth.
    pub worth: Worth,
    /// Lines of the script that cause it, the worst first.
    pub lines: Vec<Line>,
    /// Parameters that are worth searching.
    pub open: Vec<Opening>,
    /// Remedies that no parameter can apply.
    pub by_hand: Vec<CureReport>,
}

/// A remedy that no parameter can apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CureReport {
    /// The change to make.
    pub what: &'static str,
    /// The reason for the change.
    pub why: &'static str,
}

/// A differential probe and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeLine {
    /// Its name.
    pub probe: &'static str,
    /// `measured`, `out_of_memory`, `failed` or `left_out`.
    pub result: &'static str,
    /// The reason, if the probe was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The samples per second of the probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_second: Option<Estimate>,
    /// The samples per second of the loader alone, by number of workers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub loader_samples_per_second: BTreeMap<u32, f64>,
}

impl CauseReport {
    /// Makes the report of a cause with its remedies.
    pub fn of(diagnosed: &Diagnosed, evidence: &Evidence) -> Self {
        let by_hand = diagnosed.cures(evidence).into_iter();
        Self {
            cause: diagnosed.cause.name,
            title: diagnosed.cause.title,
            kind: diagnosed.cause.kind,
            sureness: diagnosed.sureness,
            evidence: diagnosed.found.clues.clone(),
            worth: diagnosed.found.worth.clone(),
            lines: lines_of(diagnosed.cause, evidence),
            open: diagnosed.openings(evidence),
            by_hand: by_hand.map(|cure| CureReport { what: cure.what, why: cure.why }).collect(),
        }
    }
}

/// Makes the JSON report of a diagnosis.
pub fn diagnosis_json<'e>(examined: &'e Examined, job: &str, device: &str) -> DiagnosisReport<'e> {
    let Examined { evidence, verdict, elapsed, is_interrupted } = examined;
    let observed = &evidence.observed;
    DiagnosisReport {
        format: FORMAT,
        job: job.to_owned(),
        device: device.to_owned(),
        throughput: observed.throughput,
        unit: observed.unit.clone(),
        step_seconds: evidence.step(),
        step: parts(evidence),
        account: Account::of(evidence),
        communication: examined.evidence.exposed_communication(),
        ceiling: evidence.rate_of(Differential::Replay).map(|rate| rate.value),
        peak_memory_bytes: observed.memory.peak_bytes,
        memory_capacity_bytes: observed.memory.capacity_bytes,
        gpus: &observed.machine.gpus,
        host: &observed.machine.host,
        facts: &observed.facts,
        lines: lines(evidence),
        bottleneck: verdict.top().map(|top| CauseReport::of(top, evidence)),
        sureness: verdict.sureness,
        how_sure: verdict.how_sure(),
        is_healthy: verdict.is_healthy(),
        others: others(verdict, evidence),
        probes: probe_lines(evidence),
        elapsed_s: elapsed.as_secs_f64(),
        is_interrupted: *is_interrupted,
        gputune_version: env!("CARGO_PKG_VERSION"),
    }
}

fn others(verdict: &Verdict, evidence: &Evidence) -> Vec<CauseReport> {
    verdict.others().map(|other| CauseReport::of(other, evidence)).collect()
}

fn probe_lines(evidence: &Evidence) -> Vec<ProbeLine> {
    let line = |(differential, ran): &(Differential, Ran)| {
        let (result, reason) = match ran {
            Ran::Measured(_) => ("measured", None),
            Ran::OutOfMemory(memory) => ("out_of_memory", Some(format!("out of {memory} memory"))),
            Ran::Failed(reason) => ("failed", Some(reason.clone())),
            Ran::LeftOut(reason) => ("left_out", Some(reason.clone())),
        };
        let is_loader = *differential == Differential::LoaderOnly;
        ProbeLine {
            probe: differential.row().name,
            result,
            reason,
            samples_per_second: evidence.rate_of(*differential).filter(|_| result == "measured"),
            loader_samples_per_second: if is_loader { evidence.loader_rates() } else { BTreeMap::new() },
        }
    };
    evidence.runs.iter().map(line).collect()
}
