//! `gputune diagnose` as a user meets it: what it refuses, what it says, what it writes.

use std::fs;
use std::path::Path;

use assert_cmd::Command;

fn gputune(folder: &Path) -> Command {
    let mut command = Command::cargo_bin("gputune").unwrap();
    command.current_dir(folder).env("COLUMNS", "80").timeout(std::time::Duration::from_secs(240));
    command
}

fn said(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
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
    assert!(error.contains("mine.toml is there already") && error.contains("--force"), "{error}");
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
    let Some(python) = std::env::var_os("GPUTUNE_TEST_PYTHON") else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.py"), SCRIPT).unwrap();
    let mut diagnose = gputune(folder.path());
    diagnose.args(["diagnose", "--json", "--write", "found.toml", "--"]).arg(&python).arg("train.py");
    let (code, json, error) = said(&mut diagnose);
    assert_eq!(code, 0, "{error}");
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    // Other programs on the cores may be found beside it, but what loading costs is far more.
    let cause = report["bottleneck"]["cause"].as_str().unwrap();
    assert!(["single_threaded_loader", "cpu_preprocessing"].contains(&cause), "{json}");
    assert!(report["bottleneck"]["worth"]["times"].as_f64().unwrap() > 1.5, "{json}");
    let written = fs::read_to_string(folder.path().join("found.toml")).unwrap();
    assert!(written.contains("num_workers") && written.contains("[baseline]\nnum_workers = 0"), "{written}");
    let (code, shown, error) = said(gputune(folder.path()).args(["check", "found.toml"]));
    assert_eq!(code, 0, "{error}{written}");
    assert!(shown.contains("num_workers"), "{shown}");
}
