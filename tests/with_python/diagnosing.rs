//! `gputune diagnose` for a user: its refusals, its output, its files.

use std::fs;
use std::path::Path;

use crate::said;
use crate::support::{self, python::python_with_new_torch};
use assert_cmd::Command;

fn gputune(folder: &Path) -> Command {
    let mut command = Command::new(support::gputune());
    command.current_dir(folder).env("COLUMNS", "80").timeout(std::time::Duration::from_secs(900));
    command
}

#[test]
fn what_cannot_be_diagnosed_is_told_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, error) = said(gputune(folder.path()).arg("diagnose"));
    assert_eq!(code, 2, "{error}");
    let (code, _, error) = said(gputune(folder.path()).args(["diagnose", "--", "no-such-program-here"]));
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("no-such-program-here"), "{error}");
    let (code, _, error) =
        said(gputune(folder.path()).args(["diagnose", "-q", "--", "sh", "-c", "echo oh no >&2; exit 7"]));
    assert_eq!(code, 1, "{error}");
    assert!(
        error.contains("could not be measured") && error.contains("| oh no") && error.contains("logs/0001.log"),
        "{error}"
    );
    for time in ["1s", "soon"] {
        let (code, _, error) = said(gputune(folder.path()).args(["diagnose", "--time", time, "--", "true"]));
        assert_eq!(code, 2, "{error}");
    }
}

#[test]
fn a_file_that_is_there_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.toml"), "mine").unwrap();
    let (code, _, error) = said(gputune(folder.path()).args(["diagnose", "--write", "mine.toml", "--", "true"]));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("mine.toml is there already") && error.contains("--fresh"), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("mine.toml")).unwrap(), "mine");
}

#[cfg(feature = "demo")]
#[test]
fn a_spec_without_an_adapter_has_what_its_step_reports() {
    let folder = tempfile::tempdir().unwrap();
    let spec = r#"
        [step]
        command = ["{gputune}", "demo-step", "--batch-size", "{batch_size}", "--workers", "{workers}"]
        device = "cpu"
        [space]
        batch_size = { values = [32, 64] }
        workers = { values = [0, 2] }
        [limits]
        measure_time = "1s"
    "#;
    fs::write(folder.path().join("demo.toml"), spec).unwrap();
    let (code, screen, error) = said(gputune(folder.path()).args(["diagnose", "demo.toml", "--set", "workers=2"]));
    assert_eq!(code, 0, "{error}");
    for words in
        ["demo.toml, batch_size=32 workers=2", "data wait", "bottleneck", "replayed batches", "adapter = \"torch\""]
    {
        assert!(screen.contains(words), "{words}:\n{screen}");
    }
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let (code, json, error) = said(gputune(folder.path()).args(["diagnose", "-q", "--json", "demo.toml"]));
    assert_eq!((code, error.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(report["bottleneck"]["cause"].is_string() && report["step"].is_array(), "{json}");
    assert!(report["probes"].as_array().unwrap().iter().all(|probe| probe["result"] == "left_out"), "{json}");
    let (code, _, error) = said(gputune(folder.path()).args(["diagnose", "-q", "--write", "new.toml", "demo.toml"]));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("adapter") && !folder.path().join("new.toml").exists(), "{error}");
}

const SCRIPT: &str = r#"
import time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass
        return torch.zeros(8), index % 2

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.set_num_threads(1)
for inputs, labels in DataLoader(Slow(), batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
"#;

#[test]
fn an_unchanged_script_is_diagnosed_and_the_spec_that_is_written_is_accepted() {
    let Some(python) = python_with_new_torch() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.py"), SCRIPT).unwrap();
    let mut diagnose = gputune(folder.path());
    diagnose.args(["diagnose", "--json", "--write", "found.toml", "--"]).arg(&*python).arg("train.py");
    let (code, json, error) = said(&mut diagnose);
    assert_eq!(code, 0, "{error}");
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    // Other programs on the cores may also be found, but loading costs far more.
    let cause = report["bottleneck"]["cause"].as_str().unwrap();
    assert!(["single_threaded_loader", "cpu_preprocessing"].contains(&cause), "{json}");
    assert!(report["bottleneck"]["worth"]["times"].as_f64().unwrap() > 1.5, "{json}");
    let written = fs::read_to_string(folder.path().join("found.toml")).unwrap();
    assert!(written.contains("num_workers = { values = [0, "), "{written}");
    assert!(!written.lines().any(|line| line == "[baseline]"), "the unmodified job needs none: {written}");
    let (code, shown, error) = said(gputune(folder.path()).args(["check", "found.toml"]));
    assert_eq!(code, 0, "{error}{written}");
    assert!(shown.contains("num_workers"), "{shown}");
}

/// This script takes its batches from a tensor.
const WITHOUT_LOADER: &str = r#"
import torch

data, labels = torch.randn(1024, 64), torch.randint(0, 4, (1024,))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10_000_000):
    index = torch.randint(0, 1024, (32,))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data[index]), labels[index]).backward()
    optimizer.step()
"#;

#[test]
fn what_is_written_for_a_job_without_a_loader_is_searched() {
    let Some(python) = python_with_new_torch() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.py"), WITHOUT_LOADER).unwrap();
    let mut diagnose = gputune(folder.path());
    diagnose.args(["diagnose", "--write", "found.toml", "--"]).arg(&*python).arg("train.py");
    let (code, screen, error) = said(&mut diagnose);
    if error.contains("no output and no step") {
        eprintln!("NOT JUDGED: the processors were too busy to start it");
        return;
    }
    let told = screen.lines().any(|line| line.starts_with("a step"));
    assert!(!told || !screen.contains("cannot be told"), "{screen}");
    for knob in ["num_workers", "prefetch_factor", "persistent_workers", "dataloader."] {
        assert!(!screen.contains(&format!("open        {knob}")), "{screen}");
    }
    if code != 0 {
        // On a CPU with one core, no setting helps.
        assert!(error.contains("nothing that a search could set"), "{error}");
        assert!(!folder.path().join("found.toml").exists());
        return;
    }
    let written = fs::read_to_string(folder.path().join("found.toml")).unwrap();
    assert!(!written.contains("dataloader."), "{written}");
    // On a busy machine, importing a framework takes a minute.
    let limits = "[limits]\nprobe_time = \"2m\"\nstall_time = \"100s\"\nmeasure_time = \"1s\"\n";
    let short = format!("{}{limits}[search]\ntime = \"4m\"\nprobes = 2\n", written.split("[limits]").next().unwrap());
    fs::write(folder.path().join("found.toml"), short).unwrap();
    let (code, _, error) = said(gputune(folder.path()).args(["search", "found.toml"]));
    assert_eq!(code, 0, "{error}{written}");
    assert!(!error.contains("rejected"), "{error}");
}

#[test]
fn what_could_not_be_written_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let line = ["diagnose", "--write", "no/such/folder/a.toml", "--", "sh", "-c", "touch ran"];
    let (code, _, error) = said(gputune(folder.path()).args(line));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("there is no folder no/such/folder"), "{error}");
    assert!(!folder.path().join("ran").exists(), "it was run");
}
