//! `gputune device`, and the space's facts about the GPU, with stand-ins for the CUDA driver's library.
#![cfg(feature = "cuda")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::stand_in::StandIn;
use crate::support::{self, stderr, stdout};
use serde_json::{Value, json};

/// A folder with a library in the driver's place, and a cache.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn with(library: &Path) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(place.path().join("lib")).unwrap();
        place.put(library, "libcuda.so.1");
        place
    }

    fn put(&self, library: &Path, name: &str) {
        fs::copy(library, self.path().join("lib").join(name)).unwrap();
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(support::gputune());
        command.args(arguments).current_dir(self.path()).env("LD_LIBRARY_PATH", self.path().join("lib"));
        command.env("XDG_CACHE_HOME", self.path().join("cache")).env("PATH", "/usr/bin:/bin").env("COLUMNS", "80");
        for name in ["VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied()).output().unwrap()
    }
}

fn stand_in() -> PathBuf {
    support::library("stand_in_cuda")
}

fn without_panic(output: &Output) -> String {
    let text = stderr(output);
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn a_gpu_is_shown_with_its_precisions() {
    let place = Place::with(&stand_in());
    for (capability, lacking) in [("7.0", "not tf32, bf16, fp8"), ("8.0", "not fp8"), ("9.0", "")] {
        let output = place.run(&["device"], &[("STAND_IN_CUDA", capability)]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{}", without_panic(&output));
        assert!(text.contains("Stand-in GPU") && text.contains(&format!("compute capability {capability}")), "{text}");
        assert!(text.contains(lacking) && text.contains("CUDA 13.0"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn json_says_the_same() {
    let place = Place::with(&stand_in());
    let output = place.run(&["device", "--json"], &[("STAND_IN_CUDA", "8.0,9.0")]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["format"], 1);
    assert_eq!(report["cuda"], "13.0");
    assert!(report["host"]["processors"]["usable"].as_u64() > Some(0), "{report}");
    assert!(report["host"]["memory_bytes"].as_u64() >= report["host"]["memory_available_bytes"].as_u64(), "{report}");
    let capabilities: Vec<&str> =
        report["gpus"].as_array().unwrap().iter().map(|gpu| gpu["compute_capability"].as_str().unwrap()).collect();
    assert_eq!(capabilities, ["8.0", "9.0"]);
    assert_eq!(report["gpus"][1]["uuid"], "GPU-07070707-0707-0707-0707-070707070701");
}

#[test]
fn whatever_is_wrong_with_the_driver_is_told_in_a_line() {
    let text = tempfile::NamedTempFile::new().unwrap();
    fs::write(text.path(), "no library at all").unwrap();
    let gpu = ("STAND_IN_CUDA", "9.0");
    for (place, environment, reason) in [
        (Place::with(&stand_in()), vec![], "the driver shows no GPU"),
        (
            Place::with(&stand_in()),
            vec![("STAND_IN_CUDA_INIT", "999")],
            "libcuda.so.1 failed: CUDA_ERROR_UNKNOWN (999)",
        ),
        (Place::with(&stand_in()), vec![("STAND_IN_CUDA_INIT", "803")], "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        (
            Place::with(&stand_in()),
            vec![gpu, ("STAND_IN_CUDA_VERSION", "11020")],
            "the driver supports CUDA 11.2 at most",
        ),
        (Place::with(text.path()), vec![], "libcuda.so.1 was not found"),
    ] {
        let output = place.run(&["device"], &environment);
        let shown = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains("GPU none can be used") && shown.contains(reason), "{reason}: {shown}");
        assert_eq!(output.status.code(), Some(0), "{}", without_panic(&output));
        let output = place.run(&["device", "--bench"], &environment);
        let error = without_panic(&output);
        assert!(error.starts_with("error: no GPU can be measured") && error.contains(reason), "{error}");
        assert_eq!(output.status.code(), Some(3));
        assert!(stdout(&output).is_empty());
    }
}

/// The numbers mean nothing, because they measure the host's memory. The test covers only that they are kept and shown.
#[test]
fn ceilings_are_kept_and_shown_again() {
    let place = Place::with(&stand_in());
    let environment = [("STAND_IN_CUDA", "7.0")];
    let output = place.run(&["device", "--bench", "--json"], &environment);
    assert_eq!(output.status.code(), Some(0), "{}", without_panic(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let measured = &report["ceilings"][0];
    for kind in ["device_memory", "host_to_device_pinned", "host_to_device_pageable", "kernel_launches"] {
        assert!(measured["measured"][kind]["median"].as_f64().unwrap() > 0.0, "{kind}");
    }
    assert_eq!(measured["absent"]["matmul_bf16"], "compute capability 7.0 has no bf16");
    assert!(measured["absent"]["matmul_fp32"].as_str().unwrap().starts_with("libcublasLt was not found"));
    assert!(measured["elapsed_s"].as_f64().unwrap() < 30.0);
    let again = place.run(&["device"], &environment);
    assert!(stdout(&again).contains("ceilings   of Stand-in GPU"), "{}", stdout(&again));
    let other = place.run(&["device"], &[("STAND_IN_CUDA", "7.0"), ("STAND_IN_CUDA_VERSION", "12040")]);
    assert!(!stdout(&other).contains("ceilings"), "another driver has ceilings of its own");
    let missing = place.run(&["device", "--bench", "--gpu", "5"], &environment);
    assert_eq!(missing.status.code(), Some(3), "{}", without_panic(&missing));
}

#[test]
fn products_are_measured_in_each_precision_of_the_hardware() {
    let place = Place::with(&stand_in());
    place.put(&support::library("stand_in_cuda_libraries"), "libcublasLt.so.13");
    let output = place.run(&["device", "--bench", "--json"], &[("STAND_IN_CUDA", "8.0")]);
    assert_eq!(output.status.code(), Some(0), "{}", without_panic(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let ceilings = &report["ceilings"][0];
    for kind in ["matmul_fp32", "matmul_tf32", "matmul_bf16", "matmul_fp16"] {
        assert!(ceilings["measured"][kind]["median"].as_f64().unwrap() > 0.0, "{kind}: {ceilings}");
    }
    assert_eq!(ceilings["absent"]["matmul_fp8"], "compute capability 8.0 has no fp8");
}

/// An H200 as NVML reports it, with changes.
fn nvml(change: impl Fn(&mut Value)) -> StandIn {
    several(["GPU-a1".to_owned()], change)
}

/// An H200 for each of these UUIDs, all with the same changes.
fn several(uuids: impl IntoIterator<Item = String>, change: impl Fn(&mut Value)) -> StandIn {
    let gpu = |uuid: String| {
        let mut gpu = json!({
            "uuid": uuid, "name": "NVIDIA H200",
            "state": {
                "memory_total": 150e9, "memory_reserved": 1e9, "memory_other": 3e6,
                "compute_major": 9, "compute_minor": 0,
                "processes": [{ "pid": 1, "bytes": 4e9, "share": 90 }], "shares": true,
                "power": 512, "energy": 500, "power_limit": 500, "power_default": 700, "busy": 97, "busy_samples": 97,
                "pcie_generation": 3, "pcie_max_generation": 5, "pcie_width": 8, "pcie_max_width": 16, "nvlinks": 18,
                "persistence": 0, "rows_pending": 1, "sm": 62, "occupancy": 31, "tensor": 40, "dram": 35,
                "pcie_received": 1000, "pcie_sent": 10, "nvlink_received": 0, "nvlink_sent": 0
            }
        });
        change(&mut gpu);
        gpu
    };
    let gpus: Vec<Value> = uuids.into_iter().map(gpu).collect();
    StandIn::of(&json!({ "driver": "580.95.05", "gpus": gpus }))
}

/// Stores ceilings of a GPU, as an earlier `gputune device --bench` does.
fn store_ceilings(stand_in: &StandIn, uuid: &str) {
    let folder = stand_in.path("gputune/ceilings");
    fs::create_dir_all(&folder).unwrap();
    let ceilings = json!({
        "format": 1, "uuid": uuid, "name": "NVIDIA H200", "driver": "580.95.05", "gputune_version": "0.1.0",
        "measured_at": 1, "elapsed_s": 20,
        "measured": {
            "matmul_bf16": { "median": 8e14, "low": 8e14, "high": 8e14, "samples": 9 },
            "host_to_device_pageable": { "median": 1.21e10, "low": 1.2e10, "high": 1.3e10, "samples": 9 }
        }
    });
    let name = format!("{}_580.95.05.json", uuid.trim_start_matches("GPU-"));
    fs::write(folder.join(name), ceilings.to_string()).unwrap();
}

/// Runs `gputune device` on a machine with NVML but without CUDA.
fn with_nvml(stand_in: &StandIn, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(support::gputune());
    command.arg("device").args(arguments).current_dir(stand_in.folder.path()).env("PATH", "/usr/bin:/bin");
    command.env("COLUMNS", "80").env_remove("CUDA_VISIBLE_DEVICES").envs(environment.iter().copied());
    stand_in.before(&mut command).env("XDG_CACHE_HOME", stand_in.folder.path()).output().unwrap()
}

#[test]
fn what_nvml_knows_is_shown_with_warnings() {
    let stand_in = nvml(|_| {});
    let output = with_nvml(&stand_in, &[], &[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", without_panic(&output));
    for part in [
        "GPU 0      NVIDIA H200; GPU-a1",
        "compute capability 9.0",
        "PCIe generation 3 of 5, 8 of 16 lanes; 18 NVLinks",
        "now 512 W, at most 500 W, by default 700 W",
        "GPM, GPU busy, memory, processes, power, energy",
        "driver     580.95.05",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let output = with_nvml(&stand_in, &["--json"], &[]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let rules: Vec<&str> = report["warnings"].as_array().unwrap().iter().map(|w| w["rule"].as_str().unwrap()).collect();
    for rule in ["power_capped", "pcie_slow", "persistence_off", "foreign_process", "rows_pending"] {
        assert!(rules.contains(&rule), "{rule}: {rules:?}");
    }
    let is_virtual = fs::read_to_string("/proc/cpuinfo").unwrap().contains(" hypervisor");
    assert_eq!(rules.contains(&"pcie_narrow"), !is_virtual, "lanes of an emulated bridge say nothing: {rules:?}");
    assert_eq!(report["gpus"][0]["remapped_rows"], json!({ "is_pending": true, "has_failed": false }));
}

#[test]
fn one_gpu_and_eight_equal_gpus_fit_on_narrow_screens() {
    for (count, head) in [(1, "GPU 0 "), (8, "8 GPUs ")] {
        let stand_in = several((0..count).map(|number| format!("GPU-{number}")), |gpu| {
            for (name, value) in [("pcie_generation", 5), ("pcie_width", 16), ("persistence", 1), ("rows_pending", 0)] {
                gpu["state"][name] = value.into();
            }
            gpu["state"]["processes"] = json!([]);
        });
        store_ceilings(&stand_in, "GPU-0");
        for columns in [40_usize, 80] {
            let output = with_nvml(&stand_in, &[], &[("COLUMNS", &columns.to_string())]);
            let text = stdout(&output);
            assert!(text.starts_with(head) && text.contains("\nceilings "), "{text}{}", without_panic(&output));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}: {text}");
            assert!(columns < 80 || text.lines().count() <= 45, "{} lines: {text}", text.lines().count());
        }
    }
}

/// The step reports its floating-point operations; the GPU's ceiling was measured before.
#[test]
fn a_search_tells_how_far_the_best_config_is_from_the_ceiling() {
    let stand_in = nvml(|_| {});
    store_ceilings(&stand_in, "GPU-a1");
    let step = "send:{\"event\":\"step\",\"samples\":8,\"flops\":8e11}";
    let search = support::Search::of(&[step, "forever:8:2000"], "[space]\nprecision = { values = [\"bf16\"] }\n");
    let mut command = Command::new(support::gputune());
    command.args(["search", "spec.toml", "--out", "out", "-v"]).current_dir(search.folder.path());
    stand_in.before(&mut command).env("XDG_CACHE_HOME", stand_in.folder.path());
    let output = command.output().unwrap();
    let text = without_panic(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("of what this GPU reached in bf16 products (800 TFLOP/s)"), "{text}");
    let best: Value = serde_json::from_slice(&fs::read(search.folder.path().join("out/best.json")).unwrap()).unwrap();
    let compute = &best["compute"];
    let (rate, share) = (compute["flops_per_second"].as_f64().unwrap(), compute["share"].as_f64().unwrap());
    assert!((rate / 8e14 - share).abs() < 1e-9 && share > 0.0, "{compute}");
    assert_eq!(compute["precision"], "bf16");
    let summary = fs::read_to_string(search.folder.path().join("out/summary.md")).unwrap();
    assert!(summary.contains("of what this GPU reached in bf16 products (800 TFLOP/s)"), "{summary}");
}

#[test]
fn meters_that_do_not_work_say_why() {
    let without_gpm = nvml(|gpu| {
        gpu["state"]["errors"] = json!({ "nvmlGpmSampleGet": 3, "nvmlDeviceGetTotalEnergyConsumption": 4 });
    });
    let output = with_nvml(&without_gpm, &[], &[]);
    let text = stdout(&output);
    for part in
        ["not GPM: not supported by this device", "not DCGM: dcgmi is not installed", "not energy: no permission"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    without_panic(&output);
}

/// A hanging host engine delays the report once, whatever the number of GPUs.
#[test]
fn a_host_engine_that_hangs_costs_no_gpu() {
    use std::os::unix::fs::PermissionsExt as _;

    let stand_in = several((0..12).map(|number| format!("GPU-{number}")), |gpu| {
        gpu["state"]["errors"] = json!({ "nvmlGpmSampleGet": 3 });
    });
    let (program, calls) = (stand_in.path("dcgmi"), stand_in.path("calls"));
    fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> '{}'\nexec sleep 600\n", calls.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", stand_in.folder.path().display());
    let output = with_nvml(&stand_in, &["--json"], &[("PATH", &path)]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["gpus"].as_array().unwrap().len(), 12, "{}", without_panic(&output));
    for gpu in report["gpus"].as_array().unwrap() {
        assert_eq!(gpu["meters"][1], json!({ "name": "DCGM", "absent": "no host engine answers" }), "{gpu}");
    }
    assert_eq!(fs::read_to_string(calls).unwrap(), "discovery -l\n");
}

#[test]
fn what_helps_depends_on_why_there_is_no_nvml() {
    let init = |code: u32| StandIn::of(&json!({ "init": code }));
    let old = StandIn::without(&["nvmlInit_v2"], &json!({}));
    let unreachable = nvml(|gpu| gpu["state"]["errors"] = json!({ "nvmlDeviceGetHandleByIndex_v2": 4 }));
    let missing = gputune::machine::GpuMeter::open(old.path("no.so").as_os_str()).unwrap_err();
    assert!(missing.cure.starts_with("install the NVIDIA driver"), "{missing}");
    for (stand_in, cure) in [
        (StandIn::broken(b"no library"), "the file is broken"),
        (old, "update the NVIDIA driver"),
        (init(4), "check the permissions of /dev/nvidia*"),
        (unreachable, "check the permissions of /dev/nvidia*"),
        (init(9), "load the kernel module"),
        (init(18), "restart the machine"),
        (init(999), "look into the kernel's log"),
    ] {
        let output = with_nvml(&stand_in, &["--json"], &[]);
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let library = &report["libraries"][0];
        assert_eq!(library["name"], "libnvidia-ml.so.1");
        assert!(library["cure"].as_str().unwrap().contains(cure), "{cure}: {library}");
        without_panic(&output);
    }
}

#[test]
fn a_gpu_that_is_hidden_is_shown_as_hidden_and_not_warned_of() {
    let output = with_nvml(&nvml(|_| {}), &[], &[("CUDA_VISIBLE_DEVICES", "")]);
    let text = stdout(&output);
    assert!(text.contains("hidden by CUDA_VISIBLE_DEVICES") && !text.contains("persistence"), "{text}");
    assert!(text.contains("none can be used: none of the GPUs is visible to programs"), "{text}");
    assert_eq!(with_nvml(&nvml(|_| {}), &["--bench"], &[]).status.code(), Some(3));
}

/// If CUDA and the variable's list disagree, CUDA's view counts, because programs get it.
#[test]
fn cuda_tells_which_gpus_programs_see() {
    let uuids = (0..2).map(|number| format!("GPU-07070707-0707-0707-0707-07070707070{number}"));
    let stand_in = several(uuids, |_| {});
    fs::copy(support::library("stand_in_cuda"), stand_in.path("libcuda.so.1")).unwrap();
    for (cuda, variable, expected) in [
        ("9.0", Some("0,1"), [true, false]),
        ("9.0,9.0", Some("0"), [true, true]),
        ("", Some("0,1"), [false, false]),
        ("", None, [true, true]),
    ] {
        let mut environment = vec![("STAND_IN_CUDA", cuda)];
        environment.extend(variable.map(|list| ("CUDA_VISIBLE_DEVICES", list)));
        let output = with_nvml(&stand_in, &["--json"], &environment);
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let seen = [0, 1].map(|at: usize| report["gpus"][at]["is_visible"].as_bool().unwrap());
        assert_eq!(seen, expected, "{cuda:?} {variable:?}: {report}");
        without_panic(&output);
    }
}

const SPEC: &str = r#"
[step]
command = ["python3", "train.py"]
adapter = "torch"
[space]
precision = { values = ["fp32", "tf32", "bf16", "fp16"], apply = "torch.precision" }
batch_size = { values = [8, 16], apply = "dataloader.batch_size" }
[baseline]
precision = "fp32"
batch_size = 8
"#;

#[test]
fn precisions_that_the_hardware_lacks_are_not_searched() {
    let place = Place::with(&stand_in());
    let check = |text: &str, capability: &str| {
        fs::write(place.path().join("spec.toml"), text).unwrap();
        place.run(&["check", "spec.toml"], &[("STAND_IN_CUDA", capability)])
    };
    let output = check(SPEC, "7.0");
    let note = without_panic(&output);
    assert!(
        note.contains(
            "note: `precision` is searched without tf32, bf16: Stand-in GPU has compute capability 7.0, and tf32 begins \
             with 8.0, bf16 begins with 8.0"
        ),
        "{note}"
    );
    assert!(stdout(&output).contains("configs    4 "), "{}", stdout(&output));
    for spec in [SPEC.to_owned(), SPEC.replace("adapter = ", "device = \"cpu\"\nadapter = ")] {
        let capability = if spec == SPEC { "8.0" } else { "7.0" };
        let output = check(&spec, capability);
        assert!(stdout(&output).contains("configs    8 ") && !stderr(&output).contains("note"), "{}", stdout(&output));
    }
    let own = "[step]\ncommand = [\"./train\", \"--precision\", \"{p}\"]\n\
               [space]\np = { values = [\"f32\", \"bf16\", \"f16\"] }\n";
    assert!(stdout(&check(own, "7.5")).contains("configs    3 "), "another program's words may mean anything");
}

#[test]
fn nvml_alone_tells_which_precisions_the_hardware_lacks() {
    let stand_in = nvml(|gpu| gpu["state"]["compute_major"] = json!(7));
    fs::write(stand_in.path("spec.toml"), SPEC).unwrap();
    let mut command = Command::new(support::gputune());
    command.args(["check", "spec.toml"]).current_dir(stand_in.folder.path()).env_remove("CUDA_VISIBLE_DEVICES");
    let output = stand_in.before(&mut command).output().unwrap();
    let note = without_panic(&output);
    assert!(
        note.contains("`precision` is searched without tf32, bf16: NVIDIA H200 has compute capability 7.0"),
        "{note}"
    );
}

#[test]
fn a_baseline_or_an_only_setting_that_the_hardware_lacks_is_a_mistake_with_its_place() {
    let place = Place::with(&stand_in());
    let spec = SPEC.replace("precision = \"fp32\"", "precision = \"bf16\"");
    fs::write(place.path().join("spec.toml"), spec).unwrap();
    let output = place.run(&["check", "spec.toml"], &[("STAND_IN_CUDA", "7.0")]);
    let error = without_panic(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("the baseline's `precision` = \"bf16\" is not in this GPU's hardware"), "{error}");
    assert!(error.contains("spec.toml:9") && error.contains("device = \"cpu\""), "{error}");
    fs::write(place.path().join("spec.toml"), SPEC.replace("\"fp32\", \"tf32\", \"bf16\", \"fp16\"", "\"bf16\""))
        .unwrap();
    let output = place.run(&["check", "spec.toml"], &[("STAND_IN_CUDA", "7.0")]);
    let error = without_panic(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("no setting of `precision` is in this GPU's hardware"), "{error}");
}
