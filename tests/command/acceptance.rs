//! `gpu/acceptance.sh`, as far as it runs without a GPU.

use std::path::Path;
use std::process::{Command, Output};

use std::time::{Duration, Instant};

use crate::support::python::{Python, python_with, python_with_new_torch};
use crate::support::stand_in::{StandIn, hopper};
use crate::support::{self, stderr, stdout};

fn acceptance(python: &Path, arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/acceptance.sh");
    // Hides any GPU: these tests cover the parts that need none.
    let mut command = Command::new(script);
    command.args(arguments).env("PYTHON", python).env("CUDA_VISIBLE_DEVICES", "").output().unwrap()
}

fn python() -> Option<Python> {
    python_with(&["json"])
}

fn results(out: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(out.join("results.json")).unwrap()).unwrap()
}

#[test]
fn checks_are_listed_and_wrong_names_refused() {
    let Some(python) = python() else { return };
    let output = acceptance(&python, &["--list"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for check in ["device", "ceilings", "meters", "gpm", "sigkill", "oom", "images-grid"] {
        assert!(stdout(&output).lines().any(|line| line.starts_with(check)), "{check}");
    }
    for arguments in [&["--only", "nonsense"][..], &["no-such-binary"], &[]] {
        let output = acceptance(&python, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    }
}

/// The plan without a GPU: stand-ins for NVIDIA's library and for nvidia-smi, and scripts on the CPU.
fn dry_run(python: &Path, folder: &Path, call: u32, minutes: &str) -> Command {
    let smi = folder.join("bin/nvidia-smi");
    if !smi.exists() {
        std::fs::create_dir(folder.join("bin")).unwrap();
        let script = "#!/bin/sh\ncase \"$*\" in\n*--query-gpu=uuid\\ *) echo GPU-a1;;\n\
                      *--query-gpu=name,*) echo 'NVIDIA H200, GPU-a1, 600.1, 143771';;\n*) exit 6;;\nesac\n";
        std::fs::write(&smi, script).unwrap();
        std::fs::set_permissions(&smi, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/acceptance.sh"));
    let [out, state] = ["out", "state"].map(|name| folder.join(name).display().to_string());
    command.args([support::gputune(), "--dry-run", "--call", &call.to_string(), "--minutes", minutes]);
    command.args(["--out", &out, "--state", &state]).env("PYTHON", python).env("PATH", path);
    command
}

#[test]
fn the_plan_has_three_calls_with_their_times_and_a_dry_run_of_each_ends_within_its_own() {
    let Some(python) = python() else { return };
    let plan = stdout(&acceptance(&python, &["--plan"]));
    for call in 1..=3 {
        let line = plan.lines().find(|line| line.starts_with(&format!("call {call}: "))).unwrap();
        assert!(line.contains("; expected ") && line.ends_with(", at most 9:30"), "{line}");
    }
    assert!(plan.contains("   0:00  preflight ") && plan.contains("hook-side-stream"), "{plan}");
    let folder = tempfile::tempdir().unwrap();
    let library = StandIn::of(&hopper(&folder.path().join("pid")));
    // The first check of each call that needs PyTorch, in a call with time for about two checks.
    for (call, minutes, check) in [(1, "0.8", "facts-cuda"), (2, "0.6", "sick-pageable"), (3, "0.6", "images")] {
        let begun = Instant::now();
        let output = library.before(&mut dry_run(&python, folder.path(), call, minutes)).output().unwrap();
        let shown = format!("{}\n{}", stdout(&output), stderr(&output));
        // At most 48 seconds, plus the start of Python on a busy machine and the end of the interrupted check.
        assert!(begun.elapsed() < Duration::from_secs(240), "{:?}: {shown}", begun.elapsed());
        let results = results(&folder.path().join("out"));
        assert_eq!((output.status.code(), &results["totals"]["failed"]), (Some(3), &0.into()), "{shown}");
        assert!(shown.contains("a dry run, and it needs a GPU"), "{shown}");
        let has_torch = results["machine"].get("torch").is_some();
        assert_eq!(results["checks"][check]["seconds"].as_f64().unwrap() > 0.0, has_torch, "{shown}");
    }
    let all = results(&folder.path().join("out"));
    assert!(["preflight", "hook-cost", "sick-item", "gpt-grid"].iter().all(|check| all["checks"].get(check).is_some()));
    assert!(all["totals"]["passed"].as_u64().unwrap() > 0);
    assert!(!folder.path().join("out/running.json").exists());
}

#[test]
fn each_judge_says_yes_to_what_is_right_and_no_to_what_is_wrong() {
    let Some(python) = python() else { return };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/tests");
    let mut command = Command::new(&*python);
    command.args(["-m", "unittest", "discover", "-s"]).arg(tests).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_call_that_is_cut_off_leaves_whole_results() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut child = dry_run(&python, folder.path(), 1, "1").stdout(std::process::Stdio::null()).spawn().unwrap();
    let results_file = folder.path().join("out/results.json");
    let end = Instant::now() + Duration::from_secs(240);
    while !results_file.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(2));
    child.kill().unwrap();
    child.wait().unwrap();
    // No leftover process runs.
    let (name, end) = (folder.path().display().to_string(), Instant::now() + Duration::from_secs(120));
    while !support::processes_with(&name).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(support::processes_with(&name), Vec::<String>::new());
    let found = results(&folder.path().join("out"));
    assert!(found["checks"]["preflight"]["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{found}");
}

#[test]
fn state_that_somebody_else_could_write_is_refused() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let output = dry_run(&python, folder.path(), 1, "0.1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("can be written by others (mode 777); name another with --state"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_needs_a_gpu_is_skipped_without_one_and_nothing_is_called_passed() {
    let Some(python) = python() else { return };
    if Command::new("nvidia-smi").output().is_ok_and(|output| output.status.success()) {
        eprintln!("NOT RUN: there is a GPU");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let [out_text, state_text] = [&out, &state].map(|path| path.display().to_string());
    let output = acceptance(&python, &[support::gputune(), "--out", &out_text, "--state", &state_text]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let totals = &results(&out)["totals"];
    assert_eq!((&totals["passed"], &totals["failed"]), (&0.into(), &0.into()));
    assert!(totals["skipped"].as_u64().unwrap() > 10);
    assert!(stdout(&output).contains("skipped: no GPU"), "{}", stdout(&output));
    assert!(std::fs::read_dir(&out).unwrap().count() <= 8);
}

#[test]
fn a_grid_becomes_a_table_that_can_be_replayed() {
    let Some(python) = python_with_new_torch() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let [out_text, state_text] = [&out, &state].map(|path| path.display().to_string());
    let arguments = [support::gputune(), "--tiny", "--only", "images-grid", "--out", &out_text, "--state", &state_text];
    let output = acceptance(&python, &arguments);
    let shown = format!("{}\n{}", stdout(&output), stderr(&output));
    assert_eq!(results(&out)["totals"]["failed"], 0, "{shown}");
    let table = out.join("images-grid.csv").display().to_string();
    let replayed = Command::new(support::gputune()).args(["replay", &table, "--json"]).output().unwrap();
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    assert!(stdout(&replayed).contains("\"optimum\""));
}
