//! The cost of communication between ranks, with real ranks of torchrun that talk by gloo: one job exchanges much, the other
//! hardly anything.

use std::fs;
use std::path::Path;

use assert_cmd::Command;

use crate::said;
use crate::support::{self, python::python_with_new_torch};

/// Writes the script, and returns the words of its command.
fn job(folder: &Path, python: &Path) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/scripts/ranks.py");
    fs::copy(script, folder.join("ranks.py")).unwrap();
    let python = python.display().to_string();
    [&python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "ranks.py"].map(str::to_owned).into()
}

fn gputune(folder: &Path) -> Command {
    let mut command = Command::new(support::gputune());
    command.current_dir(folder).env("OMP_NUM_THREADS", "1").timeout(std::time::Duration::from_secs(900));
    command
}

#[test]
fn a_job_that_exchanges_much_is_told_what_that_costs() {
    let Some(python) = python_with_new_torch() else { return };
    let folder = tempfile::tempdir().unwrap();
    let command = job(folder.path(), &python);
    // Twelve megabytes of gradients in a step of eight samples.
    write_spec(folder.path(), &command, "WIDTH = \"1024\"\nROWS = \"8\"", "measure_time = \"1s\"");
    let mut diagnose = gputune(folder.path());
    let (code, json, error) = said(diagnose.args(["diagnose", "--quiet", "--json", "spec.toml"]));
    assert_eq!(code, 0, "{error}");
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let communication = &report["communication"];
    assert_eq!(communication["by"], "no_communication", "{json}");
    let share = |name: &str| communication["share"][name].as_f64().unwrap();
    assert!(share("low") <= share("value") && share("value") <= share("high") && share("value") >= 0.05, "{json}");
    assert!((communication["times"].as_f64().unwrap() - 1.0 / (1.0 - share("value"))).abs() < 0.01, "{json}");
    let causes = || std::iter::once(&report["bottleneck"]).chain(report["others"].as_array().unwrap());
    let cause = causes().find(|cause| cause["cause"] == "communication").expect("it is named");
    assert_eq!(cause["worth"]["basis"], "measured", "{cause}");
    let opened = |name: &str| cause["open"].as_array().unwrap().iter().any(|opening| opening["parameter"] == name);
    assert!(opened("bucket_cap_mb") && opened("compression") && !opened("nccl_channels"), "{cause}");
}

const SPACE: &str = r#"
[search]
probes = 2
rounds = 0
[space]
workers = { values = [0, 1], apply = "dataloader.num_workers" }
bucket = { values = [1, 25], apply = "ddp.bucket_cap_mb" }
reshard = { values = [true, false], apply = "fsdp.reshard_after_forward" }
channels = { values = [2, 4], apply = "nccl.channels" }
"#;

fn write_spec(folder: &Path, command: &[String], env: &str, limits: &str) {
    let words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
    let step = format!("[step]\ncommand = [{}]\nadapter = \"torch\"\n[step.env]\n{env}\n", words.join(", "));
    fs::write(folder.join("spec.toml"), format!("{step}{SPACE}[limits]\n{limits}\n")).unwrap();
}

#[test]
fn a_search_of_a_job_that_hardly_exchanges_anything_leaves_what_is_about_that_alone() {
    let Some(python) = python_with_new_torch() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Each layer computes a hundred times for sixteen kilobytes of gradients, which are exchanged once.
    let env = "WIDTH = \"64\"\nROWS = \"1024\"\nREPEAT = \"100\"";
    write_spec(folder.path(), &job(folder.path(), &python), env, "measure_time = \"2s\"");
    let (code, _, shown) = said(gputune(folder.path()).args(["search", "spec.toml", "--out", "out"]));
    assert_eq!(code, 0, "{shown}");
    for told in ["the same without communication", "the script trains with DistributedDataParallel: reshard closed"] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    assert!(shown.contains("the ranks talk by gloo: channels closed"), "{shown}");
    let best: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("out/best.json")).unwrap()).unwrap();
    let exposed = best["exchange"]["exposed"]["value"].as_f64().unwrap();
    let is_closed = best["closed"].as_array().unwrap().iter().any(|name| name == "bucket");
    // No share is asserted: on a busy machine, ranks wait for each other.
    assert_eq!(is_closed, exposed < 0.05, "{best:#}");
    let journal = fs::read_to_string(folder.path().join("out/journal.jsonl")).unwrap();
    assert!(journal.lines().filter(|line| line.contains("\"exchange\"")).count() == 1, "it is kept with the baseline");
    let mut resumed = gputune(folder.path());
    let (code, _, shown) = said(resumed.args(["search", "spec.toml", "--out", "out"]));
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("the same without communication"), "it is known: {shown}");
}
