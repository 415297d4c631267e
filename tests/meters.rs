//! What gputune tells of GPUs, by the real binary and a stand-in for NVIDIA's library.

mod support;

use std::process::{Command, Output};

use serde_json::{Value, json};
use support::stand_in::{StandIn, hopper};
use support::{Search, gputune, stderr, stdout};

const LIMITS: &str = "[limits]\nprobe_time = \"20s\"\nstall_time = \"10s\"\ngrace_time = \"300ms\"\nmeasure_time = \"1200ms\"\nprecision = 1e-9\n";

/// `gputune probe` of a step that writes its number to a file and goes on for ever.
fn probe(stand_in: &StandIn, arguments: &[&str], env: &str) -> Output {
    let pid = format!("pid:{}", stand_in.path("pid").display());
    let mut words = vec![pid.as_str()];
    words.extend(arguments);
    words.push("forever:8:2000");
    let search = Search::of(&words, &format!("{env}{LIMITS}"));
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out", "--json"]).current_dir(search.folder.path());
    stand_in.before(&mut command).output().unwrap()
}

/// The report of such a probe on these GPUs.
fn report(stand_in: &StandIn, env: &str) -> Value {
    let output = probe(stand_in, &[], env);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// A stand-in with one GPU that lists the step's process.
fn with_gpu(change: impl FnOnce(&mut Value)) -> StandIn {
    let stand_in = StandIn::of(&json!({}));
    rewrite(&stand_in, change);
    stand_in
}

fn rewrite(stand_in: &StandIn, change: impl FnOnce(&mut Value)) {
    let mut gpu = hopper(&stand_in.path("pid"));
    change(&mut gpu);
    std::fs::write(stand_in.path("script.json"), json!({ "gpus": [gpu] }).to_string()).unwrap();
}

fn close(reading: &Value, value: f64, source: &str) {
    let told = reading["value"].as_f64().unwrap_or(f64::NAN);
    assert!((told - value).abs() <= value.abs() * 0.03 + 1e-9, "{value}: {reading}");
    assert_eq!(reading["source"], source, "{reading}");
}

fn absent(gpu: &Value) -> String {
    gpu["absent"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

#[test]
fn hopper_tells_everything() {
    let report = report(&with_gpu(|_| {}), "");
    assert_eq!(report["device"], "NVIDIA H200");
    let gpu = &report["gpus"][0];
    assert_eq!((&gpu["uuid"], &gpu["name"]), (&"GPU-a1".into(), &"NVIDIA H200".into()));
    let mib = 1_048_576.0;
    for (metric, value, source) in [
        ("sm_active", 0.62, "gpm"),
        ("sm_occupancy", 0.31, "gpm"),
        ("tensor_active", 0.40, "gpm"),
        ("dram_active", 0.35, "gpm"),
        ("pcie_received", 1000.0 * mib, "gpm"),
        ("pcie_sent", 10.0 * mib, "gpm"),
        ("nvlink_received", 0.0, "gpm"),
        ("nvlink_sent", 0.0, "gpm"),
        ("gpu_busy", 0.97, "nvml_samples"),
        ("memory_own", 40e9, "nvml_processes"),
        ("memory_others", 3e6, "nvml_processes"),
        ("power", 512.0, "nvml_samples"),
        ("sm_clock", 1755.0, "nvml"),
        ("memory_clock", 2619.0, "nvml"),
        ("throttled_by_power", 0.0, "nvml"),
        ("throttled_by_heat", 0.0, "nvml"),
        ("ecc_errors", 0.0, "nvml"),
        ("xid_errors", 0.0, "nvml"),
    ] {
        close(&gpu["readings"][metric], value, source);
    }
    let seconds = report["measured_seconds"].as_f64().unwrap();
    close(&gpu["readings"]["energy"], 500.0 * seconds, "nvml");
    assert_eq!(absent(gpu), "");
}
