//! For a GPU without GPM, a running DCGM host engine reports the use of its parts. The tests run the real binary with stand-ins
//! for NVIDIA's library and for `dcgmi`.

#![expect(clippy::unwrap_used, reason = "a test may end where it cannot go on")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::support::stand_in::{StandIn, hopper};
use crate::support::{Search, gputune, stderr, stdout};
use serde_json::{Value, json};

const UUID: &str = "GPU-9ca02968-f496-c0c4-01d9-509cb6c32f5f";
const SPEC: &str = "[limits]\nprobe_time = \"20s\"\nstall_time = \"10s\"\ngrace_time = \"300ms\"\nmeasure_time = \"3s\"\nprecision = 1e-9\n";

/// Returns the report on a GPU before Hopper, with a script in the place of `dcgmi`.
fn report(dcgmi: Option<&str>) -> Value {
    let stand_in = StandIn::of(&json!({}));
    let mut gpu = hopper(&stand_in.path("pid"));
    gpu["uuid"] = UUID.into();
    gpu["name"] = "NVIDIA A100".into();
    for key in ["sm", "occupancy", "tensor", "dram", "pcie_received", "pcie_sent", "nvlink_received", "nvlink_sent"] {
        gpu["state"].as_object_mut().unwrap().remove(key);
    }
    gpu["state"]["gpm"] = false.into();
    fs::write(stand_in.path("script.json"), json!({ "gpus": [gpu] }).to_string()).unwrap();
    let tools = tempfile::tempdir().unwrap();
    if let Some(script) = dcgmi {
        let program = tools.path().join("dcgmi");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let search = Search::of(&[&format!("pid:{}", stand_in.path("pid").display()), "forever:8:2000"], SPEC);
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out", "--json"]).current_dir(search.folder.path());
    command.env("PATH", format!("{}:/usr/bin:/bin", tools.path().display()));
    let output = stand_in.before(&mut command).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn absent(report: &Value) -> String {
    report["gpus"][0]["absent"].to_string()
}

#[test]
fn an_engine_that_runs_tells_what_gpm_does_not() {
    let script = format!(
        "if [ \"$1\" = discovery ]; then printf '| 3      | Name: NVIDIA A100 |\\n|        | Device UUID: {UUID} |\\n'; exit; fi\n\
         printf '#Entity   SMACT SMOCC TENSO DRAMA PCITX PCIRX NVLTX NVLRX\\nID\\n'\n\
         while sleep 0.2; do echo 'GPU 3     0.620 0.310 0.400 0.350 1000 2000 N/A N/A'; done"
    );
    let report = report(Some(&script));
    let readings = &report["gpus"][0]["readings"];
    for (metric, value) in
        [("sm_active", 0.62), ("tensor_active", 0.4), ("dram_active", 0.35), ("pcie_received", 2000.0)]
    {
        let told = readings[metric]["value"].as_f64().unwrap();
        assert!((told - value).abs() < value * 1e-6, "{metric}: {report}");
        assert_eq!(readings[metric]["source"], "dcgm", "{report}");
    }
    assert!(readings.get("nvlink_sent").is_none() && absent(&report).contains("NVLink"), "{report}");
    assert_eq!(readings["power"]["source"], "nvml_samples");
}

#[test]
fn without_an_engine_the_activity_is_unknown_and_it_is_said_why() {
    for (script, reason) in [
        (None, "DCGM: dcgmi is not installed"),
        (
            Some("echo 'Error: unable to establish a connection to the specified host: localhost'; exit 255"),
            "DCGM: no host engine answers",
        ),
    ] {
        let report = report(script);
        assert!(report["gpus"][0]["readings"].get("sm_active").is_none(), "{report}");
        assert!(absent(&report).contains("SM activity") && absent(&report).contains(reason), "{report}");
        assert_eq!(report["gpus"][0]["readings"]["gpu_busy"]["value"], 0.97);
    }
}
