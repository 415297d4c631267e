//! Readings about a probe's processes and their device, through the real binary.

#![expect(clippy::unwrap_used, reason = "a test may end where it cannot go on")]

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output};

use crate::support::stand_in::{StandIn, hopper};
use crate::support::{Search, child, gputune, stderr, stdout};
use serde_json::json;

const LIMITS: &str = "[limits]\nprobe_time = \"20s\"\nstall_time = \"10s\"\ngrace_time = \"300ms\"\nmeasure_time = \"2s\"\nprecision = 0.0001\n";

fn probe(search: &Search, arguments: &[&str]) -> Output {
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out"]).args(arguments).current_dir(search.folder.path());
    command.output().unwrap()
}

fn report(search: &Search) -> serde_json::Value {
    let output = probe(search, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn value(report: &serde_json::Value, metric: &str) -> f64 {
    report["host"][metric]["value"].as_f64().unwrap_or_else(|| panic!("no {metric} in {report}"))
}

/// Returns the expected number of used cores, for a step of 8 samples with this CPU time, at the measured speed.
fn expected_cores(report: &serde_json::Value, seconds_per_step: f64) -> f64 {
    report["throughput"]["value"].as_f64().unwrap() / 8.0 * seconds_per_step
}

#[test]
fn a_step_that_computes_uses_a_processor_and_one_that_sleeps_none() {
    let report_of = |step: &str| report(&Search::of(&[step], LIMITS));
    let busy = report_of("burning:8:10000");
    let share = value(&busy, "cpu_cores") / expected_cores(&busy, 0.01);
    // If the machine stands still for a second, the cores of the whole time are fewer than the rate of its steps suggests.
    assert!((0.3..1.7).contains(&share), "{share}: {busy}");
    assert_eq!(busy["host"]["cpu_cores"]["source"], "proc");
    assert!(value(&busy, "host_memory") > 1e5);
    let idle = report_of("forever:8:5000");
    assert!(value(&idle, "cpu_cores") < 0.3, "{idle}");
    if fs::read_to_string("/proc/pressure/cpu").is_ok() {
        assert!((0.0..=1.0).contains(&value(&busy, "cpu_pressure")), "{busy}");
    }
}

#[test]
fn children_that_end_between_two_looks_count() {
    let report = report(&Search::of(&["forking:8:20000"], LIMITS));
    let share = value(&report, "cpu_cores") / expected_cores(&report, 0.02);
    // The start of a child takes CPU time as well, and more of it on a slow machine.
    assert!((0.3..2.5).contains(&share), "{share}: {report}");
}

#[test]
fn what_comes_from_storage_counts() {
    const SIZE: usize = 8 << 20;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("data");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&vec![7; SIZE]).unwrap();
    file.sync_all().unwrap();
    // Some file systems neither count reads nor drop their cache.
    let read = || {
        let text = fs::read_to_string("/proc/self/io").ok()?;
        text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse::<usize>().ok()
    };
    let before = read();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    fs::read(&path).unwrap();
    if read().zip(before).is_none_or(|(now, before)| now < before + SIZE / 2) {
        return;
    }
    let report = report(&Search::of(&[&format!("reading:{}", path.display())], LIMITS));
    let rate = report["throughput"]["value"].as_f64().unwrap() * SIZE as f64;
    let told = value(&report, "read_rate");
    assert!((0.25..2.0).contains(&(told / rate)), "{told} of {rate}: {report}");
}

#[test]
fn a_person_reads_it_too() {
    let search = Search::of(&["burning:8:5000"], LIMITS);
    let output = probe(&search, &[]);
    assert!(stdout(&output).lines().any(|line| line.starts_with("host        CPU ")), "{}", stdout(&output));
    let output = search.command().arg("-v").output().unwrap();
    assert!(stderr(&output).lines().any(|line| line.starts_with("          CPU ")), "{}", stderr(&output));
    let best = fs::read_to_string(search.out().join("best.json")).unwrap();
    let best: serde_json::Value = serde_json::from_str(&best).unwrap();
    assert!(value(&best, "cpu_cores") > 0.0);
}

#[test]
fn a_gpu_that_is_there_is_left_alone_on_the_processor_and_its_search_does_not_go_on_there() {
    let stand_in = StandIn::of(&json!({}));
    let script = json!({ "gpus": [hopper(&stand_in.path("pid"))] });
    fs::write(stand_in.path("script.json"), script.to_string()).unwrap();
    let search = Search::of(&["forever:8:2000"], "");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(gputune());
        stand_in.before(command.args(arguments).current_dir(search.folder.path())).output().unwrap()
    };
    let output = run(&["search", "spec.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let spec = search.folder.path().join("spec.toml");
    let text = fs::read_to_string(&spec).unwrap();
    fs::write(&spec, text.replacen("[step]\n", "[step]\ndevice = \"gpu\"\n", 1)).unwrap();
    let output = run(&["search", "spec.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "it was on the GPU before: {}", stderr(&output));
    fs::write(&spec, text.replacen("[step]\n", "[step]\ndevice = \"cpu\"\n", 1)).unwrap();
    let output = run(&["search", "spec.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("the device was `NVIDIA H200` and is `"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("CUDA_VISIBLE_DEVICES"), "{}", stderr(&output));
    let output = run(&["probe", "spec.toml", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(report.get("gpus").is_none() && !report["device"].as_str().unwrap().contains("H200"), "{report}");
    assert!(value(&report, "cpu_cores") >= 0.0);
}

/// A spec whose step prints the GPUs that it sees.
fn on(device: &str) -> Search {
    let step = format!("device = \"{device}\"\n{LIMITS}");
    Search::of_command(
        &[child().display().to_string(), "env:CUDA_VISIBLE_DEVICES".to_owned(), "forever:8:2000".to_owned()],
        &step,
    )
}

#[test]
fn on_the_processor_no_gpu_is_to_be_seen() {
    let search = on("cpu");
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out", "--json"]).current_dir(search.folder.path());
    let output = command.env("CUDA_VISIBLE_DEVICES", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(report["device"].as_str().unwrap().contains(" cores, "), "{report}");
    assert!(report.get("gpus").is_none() && report["peak_memory_bytes"].is_u64(), "{report}");
    let log = fs::read_to_string(report["log"].as_str().unwrap()).unwrap();
    assert!(log.starts_with('\n'), "an empty line, for an empty variable: {log:?}");
}

#[test]
fn a_search_that_was_on_the_processor_anyway_goes_on() {
    let search = Search::of(&["forever:8:2000"], "");
    if std::path::Path::new("/proc/driver/nvidia/gpus").exists() {
        return;
    }
    assert_eq!(search.run().status.code(), Some(0));
    let spec = search.folder.path().join("spec.toml");
    let text = fs::read_to_string(&spec).unwrap().replacen("[step]\n", "[step]\ndevice = \"cpu\"\n", 1);
    fs::write(&spec, text).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn where_there_is_no_gpu_the_one_that_is_asked_for_is_missed_in_one_line() {
    let search = on("gpu");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(gputune());
        command.args(arguments).current_dir(search.folder.path()).env("CUDA_VISIBLE_DEVICES", "").output().unwrap()
    };
    for arguments in [&["probe", "spec.toml"][..], &["search", "spec.toml"]] {
        let output = run(arguments);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(
            text.starts_with("error: the spec asks for a GPU (`device = \"gpu\"`), but gputune found no GPU: "),
            "{text}"
        );
        assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), 2, "{text}");
        assert!(text.contains("hint: fix that, or write device = \"cpu\""), "{text}");
    }
    assert!(!search.folder.path().join("gputune-out").exists(), "nothing is left behind");
    let output = run(&["check", "spec.toml"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("gputune found no GPU"), "{}", stderr(&output));
}
