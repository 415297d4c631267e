//! `gputune device` and what the space knows of the GPU, with stand-ins for the CUDA driver's library.
#![cfg(feature = "cuda")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use support::{stderr, stdout};

/// A folder with a library in the driver's place, and a cache.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn with(library: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("lib")).unwrap();
        fs::copy(library, folder.path().join("lib/libcuda.so.1")).unwrap();
        Self { folder }
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
    let capabilities: Vec<&str> =
        report["gpus"].as_array().unwrap().iter().map(|gpu| gpu["compute_capability"].as_str().unwrap()).collect();
    assert_eq!(capabilities, ["8.0", "9.0"]);
    assert_eq!(report["gpus"][1]["uuid"], "GPU-07070707-0707-0707-0707-070707070701");
}

#[test]
fn whatever_is_wrong_with_the_driver_is_told_in_a_line() {
    let text = tempfile::NamedTempFile::new().unwrap();
    fs::write(text.path(), "no library at all").unwrap();
    let (whole, bare) = (stand_in(), support::library("stand_in_bare_cuda"));
    for (library, environment, reason) in [
        (whole.as_path(), vec![], "the driver shows no GPU"),
        (&whole, vec![("STAND_IN_CUDA_INIT", "999")], "cuInit failed: CUDA_ERROR_UNKNOWN (999)"),
        (&whole, vec![("STAND_IN_CUDA_INIT", "803")], "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        (&whole, vec![("STAND_IN_CUDA_INIT", "4711")], "unknown code (4711)"),
        (&bare, vec![], "libcuda.so.1 has no cuDeviceGetCount"),
        (text.path(), vec![], "libcuda.so.1 cannot be loaded"),
    ] {
        let place = Place::with(library);
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

/// What it measures is the host's memory, so the numbers mean nothing; that they are kept and shown does.
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
    assert_eq!(measured["absent"]["matmul_bf16"], "not supported: compute capability 7.0 has no bf16");
    assert!(measured["absent"]["matmul_fp32"].as_str().unwrap().starts_with("libcublasLt was not found"));
    assert!(measured["elapsed_s"].as_f64().unwrap() < 30.0);
    let again = place.run(&["device"], &environment);
    assert!(stdout(&again).contains("ceilings   of Stand-in GPU"), "{}", stdout(&again));
    let other = place.run(&["device"], &[("STAND_IN_CUDA", "7.0"), ("STAND_IN_CUDA_VERSION", "12040")]);
    assert!(!stdout(&other).contains("ceilings"), "another driver has ceilings of its own");
    let missing = place.run(&["device", "--bench", "--gpu", "5"], &environment);
    assert_eq!(missing.status.code(), Some(3), "{}", without_panic(&missing));
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
    let demo = "[step]\ncommand = [\"{gputune}\", \"demo-step\", \"--precision\", \"{p}\"]\n\
                [space]\np = { values = [\"f32\", \"bf16\", \"f16\"] }\n";
    assert!(stdout(&check(demo, "7.5")).contains("configs    2 "));
    let own = demo.replace("{gputune}", "./train").replace("demo-step", "now");
    assert!(stdout(&check(&own, "7.5")).contains("configs    3 "), "another program's words may mean anything");
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
