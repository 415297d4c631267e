//! Writes a diagnosis as JSON. `docs/design/json.md` describes its members.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bar::{Part, parts};
use crate::diagnosis::{
    Account, Clue, Cure, Diagnosed, Differential, Evidence, Examined, Exposed, Kind, Line, Opening, Ran, Worth, lines,
    lines_of,
};
use crate::model::{Estimate, Facts, GpuUse, Readings};

/// The version of the JSON; it increases if a member changes its meaning or is removed.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct DiagnosisReport<'e> {
    format: u32,
    job: &'e str,
    device: &'e str,
    throughput: Option<Estimate>,
    unit: &'e str,
    step_seconds: Option<f64>,
    step: Vec<Part>,
    account: Option<Account>,
    /// Samples per second with replayed batches.
    ceiling: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    communication: Option<Exposed>,
    peak_memory_bytes: Option<u64>,
    memory_capacity_bytes: Option<u64>,
    gpus: &'e [GpuUse],
    host: &'e Readings,
    facts: &'e Facts,
    lines: Vec<Line>,
    bottleneck: Option<CauseReport<'e>>,
    sureness: f64,
    how_sure: &'static str,
    is_healthy: bool,
    others: Vec<CauseReport<'e>>,
    probes: Vec<ProbeLine>,
    elapsed_s: f64,
    is_interrupted: bool,
    gputune_version: &'static str,
}

#[derive(Serialize)]
struct CauseReport<'e> {
    cause: &'static str,
    title: &'static str,
    kind: Kind,
    sureness: f64,
    evidence: &'e [Clue],
    worth: &'e Worth,
    lines: Vec<Line>,
    open: Vec<Opening>,
    by_hand: Vec<&'static Cure>,
}

/// A differential probe and its result.
#[derive(Serialize)]
struct ProbeLine {
    probe: &'static str,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_per_second: Option<Estimate>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    loader_samples_per_second: BTreeMap<u32, f64>,
}

/// Makes the JSON report of a diagnosis.
pub fn diagnosis_json<'e>(examined: &'e Examined, job: &'e str, device: &'e str) -> impl Serialize + 'e {
    let Examined { evidence, verdict, elapsed, is_interrupted } = examined;
    let observed = &evidence.observed;
    let cause = |diagnosed: &'e Diagnosed| CauseReport {
        cause: diagnosed.cause.name,
        title: diagnosed.cause.title,
        kind: diagnosed.cause.kind,
        sureness: diagnosed.sureness,
        evidence: &diagnosed.found.clues,
        worth: &diagnosed.found.worth,
        lines: lines_of(diagnosed.cause, evidence),
        open: diagnosed.openings(evidence),
        by_hand: diagnosed.cures(evidence),
    };
    DiagnosisReport {
        format: FORMAT,
        job,
        device,
        throughput: observed.throughput,
        unit: &observed.unit,
        step_seconds: evidence.step(),
        step: parts(evidence),
        account: Account::of(evidence),
        communication: evidence.exposed_communication(),
        ceiling: evidence.rate_of(Differential::Replay).map(|rate| rate.value),
        peak_memory_bytes: observed.memory.peak_bytes,
        memory_capacity_bytes: observed.memory.capacity_bytes,
        gpus: &observed.machine.gpus,
        host: &observed.machine.host,
        facts: &observed.facts,
        lines: lines(evidence),
        bottleneck: verdict.top().map(cause),
        sureness: verdict.sureness,
        how_sure: verdict.how_sure(),
        is_healthy: verdict.is_healthy(),
        others: verdict.others().map(cause).collect(),
        probes: evidence.runs.iter().map(|(differential, ran)| probe_line(*differential, ran, evidence)).collect(),
        elapsed_s: elapsed.as_secs_f64(),
        is_interrupted: *is_interrupted,
        gputune_version: env!("CARGO_PKG_VERSION"),
    }
}

fn probe_line(differential: Differential, ran: &Ran, evidence: &Evidence) -> ProbeLine {
    let (result, reason) = match ran {
        Ran::Measured(_) => ("measured", None),
        Ran::OutOfMemory(memory) => ("out_of_memory", Some(format!("out of {memory} memory"))),
        Ran::Failed(reason) => ("failed", Some(reason.clone())),
        Ran::LeftOut(reason) => ("left_out", Some(reason.clone())),
    };
    let is_loader = differential == Differential::LoaderOnly;
    ProbeLine {
        probe: differential.row().name,
        result,
        reason,
        samples_per_second: evidence.rate_of(differential).filter(|_| result == "measured"),
        loader_samples_per_second: if is_loader { evidence.loader_rates() } else { BTreeMap::new() },
    }
}
