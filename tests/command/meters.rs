//! The readings of GPUs, through the real binary and a stand-in for NVIDIA's library.

use std::process::{Command, Output};

use crate::support::stand_in::{StandIn, hopper};
use crate::support::{self, Search, gputune, stderr, stdout};
use serde_json::{Value, json};

const LIMITS: &str = "[limits]\nprobe_time = \"20s\"\nstall_time = \"10s\"\ngrace_time = \"300ms\"\nmeasure_time = \"1200ms\"\nprecision = 1e-9\n";

/// Runs `gputune probe` on a step that writes its process number to a file and never ends.
fn probe(stand_in: &StandIn, arguments: &[&str], env: &str) -> Output {
    probe_within(stand_in, arguments, env, LIMITS)
}

fn probe_within(stand_in: &StandIn, arguments: &[&str], env: &str, limits: &str) -> Output {
    probe_in_folder(stand_in, arguments, env, limits).0
}

/// Also returns the folder, which is removed when dropped.
fn probe_in_folder(stand_in: &StandIn, arguments: &[&str], env: &str, limits: &str) -> (Output, Search) {
    let pid = format!("pid:{}", stand_in.path("pid").display());
    let mut words = vec![pid.as_str()];
    words.extend(arguments);
    words.push("forever:8:2000");
    let search = Search::of(&words, &format!("{env}{limits}"));
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out", "--json"]).current_dir(search.folder.path());
    (stand_in.before(&mut command).output().unwrap(), search)
}

/// Returns the report of such a probe on these GPUs.
fn report(stand_in: &StandIn, env: &str) -> Value {
    let output = probe(stand_in, &[], env);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// Returns a stand-in with one GPU that lists the step's process.
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
    // On a busy machine, the first and the last look are not at the ends of the measured time.
    let energy = gpu["readings"]["energy"]["value"].as_f64().unwrap();
    assert!((0.3..3.0).contains(&(energy / (500.0 * seconds))), "{gpu}");
    assert_eq!(gpu["readings"]["energy"]["source"], "nvml");
    assert_eq!(absent(gpu), "");
}

#[test]
fn a_client_of_the_multi_process_service_is_a_process_of_its_own() {
    // NVML lists the server among the processes, and its clients by another call.
    let stand_in = with_gpu(|gpu| {
        gpu["state"]["mps_clients"] = gpu["state"]["processes"].take();
        gpu["state"]["processes"] = json!([{ "pid": 1, "bytes": 30e6 }]);
    });
    let gpu = &report(&stand_in, "")["gpus"][0];
    close(&gpu["readings"]["memory_own"], 40e9, "nvml_processes");
}

#[test]
fn the_course_of_its_numbers_is_kept_beside_the_log() {
    let stand_in = with_gpu(|_| {});
    let (output, search) = probe_in_folder(&stand_in, &[], "", &LIMITS.replace("1200ms", "4s"));
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let overall = json["gpus"][0]["readings"]["sm_active"]["value"].as_f64().unwrap();
    let timelines: Vec<_> = std::fs::read_dir(search.folder.path().join("out/timelines")).unwrap().collect();
    let text = std::fs::read_to_string(timelines[0].as_ref().unwrap().path()).unwrap();
    let timeline: Value = serde_json::from_str(&text).unwrap();
    for name in ["sm_active", "memory_own", "power", "sm_clock"] {
        assert!(timeline["gpus"][name].is_array(), "{name}: {timeline}");
    }
    let told: Vec<f64> = timeline["gpus"]["sm_active"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert!(told.len() >= 3 && told.iter().all(|share| (share - overall).abs() < 0.05), "{overall}: {timeline}");
}

#[test]
fn an_ampere_gpu_has_no_sm_activity_and_says_why() {
    let stand_in = with_gpu(|gpu| {
        gpu["name"] = "NVIDIA A100".into();
        for metric in
            ["sm", "occupancy", "tensor", "dram", "pcie_received", "pcie_sent", "nvlink_received", "nvlink_sent"]
        {
            gpu["state"].as_object_mut().unwrap().remove(metric);
        }
    });
    let gpu = &report(&stand_in, "")["gpus"][0];
    assert!(gpu["readings"]["sm_active"].is_null() && gpu["readings"]["pcie_received"].is_null(), "{gpu}");
    close(&gpu["readings"]["gpu_busy"], 0.97, "nvml_samples");
    close(&gpu["readings"]["memory_own"], 40e9, "nvml_processes");
    assert!(
        absent(gpu)
            .contains("SM activity, SM occupancy, tensor cores, memory bandwidth, PCIe from the host, PCIe to the host, NVLink received, NVLink sent: GPM: not supported"),
        "{gpu}"
    );
}

/// NVML would report that GPM is supported.
#[test]
fn a_virtual_gpu_fails_when_it_is_sampled() {
    for code in [3, 999, 4711] {
        let stand_in = with_gpu(|gpu| gpu["state"]["errors"] = json!({ "nvmlGpmSampleGet": code }));
        let gpu = &report(&stand_in, "")["gpus"][0];
        assert!(gpu["readings"]["sm_active"].is_null(), "{gpu}");
        assert!(absent(gpu).contains("SM activity"), "{gpu}");
        close(&gpu["readings"]["gpu_busy"], 0.97, "nvml_samples");
    }
}

#[test]
fn without_permission_the_rest_is_told() {
    let stand_in = with_gpu(|gpu| {
        gpu["state"]["errors"] = json!({ "nvmlGpmSampleGet": 4, "nvmlDeviceGetTotalEnergyConsumption": 4 });
    });
    let gpu = &report(&stand_in, "")["gpus"][0];
    assert!(absent(gpu).contains("GPM: no permission"), "{gpu}");
    assert!(absent(gpu).contains("energy: no permission"), "{gpu}");
    close(&gpu["readings"]["power"], 512.0, "nvml_samples");
}

#[test]
fn an_old_driver_tells_what_it_can() {
    let missing = [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetFieldValues",
        "nvmlGpmSampleAlloc",
        "nvmlGpmSampleFree",
        "nvmlGpmSampleGet",
        "nvmlGpmMigSampleGet",
        "nvmlGpmMetricsGet",
        "nvmlDeviceGetSamples",
        "nvmlEventSetFree",
        "nvmlDeviceGetMigMode",
    ];
    let stand_in = StandIn::without(&missing, &json!({}));
    rewrite(&stand_in, |_| {});
    let gpu = &report(&stand_in, "")["gpus"][0];
    assert!(absent(gpu).contains("GPM: this driver has no nvmlGpmSampleFree"), "{gpu}");
    assert!(absent(gpu).contains("Xid errors: this driver has no nvmlEventSetFree"), "{gpu}");
    close(&gpu["readings"]["memory_own"], 40e9, "nvml_processes");
    // The first version of the call includes the driver's own memory.
    close(&gpu["readings"]["memory_others"], 1.003e9, "nvml_processes");
    close(&gpu["readings"]["throttled_by_heat"], 0.0, "nvml");
    close(&gpu["readings"]["gpu_busy"], 0.97, "nvml");
    close(&gpu["readings"]["power"], 512.0, "nvml");
}

#[test]
fn any_function_may_be_missing() {
    let functions = [
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlGpmSampleAlloc",
        "nvmlGpmMetricsGet",
        "nvmlEventSetCreate",
        "nvmlDeviceRegisterEvents",
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetApplicationsClock",
    ];
    let stand_in = StandIn::without(&functions, &json!({}));
    rewrite(&stand_in, |_| {});
    let gpu = &report(&stand_in, "")["gpus"][0];
    close(&gpu["readings"]["memory_own"], 40e9, "nvml_processes");
    assert!(absent(gpu).contains("this driver has no nvmlGpmSampleAlloc"), "{gpu}");
    assert!(absent(gpu).contains("SM clock, memory clock: this driver has no nvmlDeviceGetClockInfo"), "{gpu}");
}

#[test]
fn values_that_nobody_knows_are_no_numbers() {
    let stand_in = with_gpu(|gpu| {
        gpu["state"]["value_kind"] = 42.into();
        gpu["state"]["tensor"] = "nan".into();
        gpu["state"]["errors"] = json!({ "nvmlDeviceGetClockInfo": 4711 });
    });
    let gpu = &report(&stand_in, "")["gpus"][0];
    close(&gpu["readings"]["sm_active"], 0.62, "gpm");
    assert!(gpu["readings"]["tensor_active"].is_null(), "{gpu}");
    assert!(absent(gpu).contains("tensor cores: GPM: NVML says NaN"), "{gpu}");
    assert!(absent(gpu).contains("SM clock, memory clock: NVML answers 4711, which has no meaning here"), "{gpu}");
    // The buffer has values of an unknown type, so other calls replace it.
    close(&gpu["readings"]["gpu_busy"], 0.97, "nvml");
    close(&gpu["readings"]["throttled_by_power"], 0.0, "nvml");
}

#[test]
fn a_library_that_does_not_work_is_told_and_the_probe_goes_on() {
    for (stand_in, reason) in [
        (StandIn::broken(b"no library"), "file too short"),
        (StandIn::of(&json!({ "init": 9 })), "NVIDIA driver is not loaded"),
        (StandIn::of(&json!({ "init": 4 })), "permission"),
        (with_gpu(|gpu| gpu["state"]["errors"] = json!({ "nvmlDeviceGetHandleByIndex_v2": 4 })), ""),
        (StandIn::without(&["nvmlInit_v2"], &json!({})), "nvmlInit_v2"),
    ] {
        // Only a started program gets the script's file, so the library in this process has none.
        if ["file too short", "nvmlInit_v2"].contains(&reason) {
            let error = gputune::machine::GpuMeter::open(stand_in.place().as_os_str()).unwrap_err().to_string();
            assert!(error.starts_with("NVML: ") && error.contains(reason) && !error.contains('\n'), "{error}");
        }
        // Without NVML and without the kernel module, the CPU is the device.
        let report = report(&stand_in, "");
        assert!(report["gpus"].is_null() && !report["device"].as_str().unwrap().contains("NVIDIA"), "{report}");
    }
}

#[test]
fn a_gpu_that_is_lost_midway_loses_its_numbers_and_not_the_probe() {
    let stand_in = with_gpu(|_| {});
    let flag = stand_in.path("lost");
    rewrite(&stand_in, |gpu| gpu["changes"] = json!([{ "when": flag, "set": { "errors": { "*": 15 } } }]));
    let touch = format!("touch:{}", flag.display());
    let output = probe(&stand_in, &["steps:8:8:100000", &touch], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let gpu = &report["gpus"][0];
    assert!(report["throughput"]["value"].as_f64().unwrap() > 0.0);
    assert!(gpu["readings"]["sm_active"].is_null() && gpu["readings"]["energy"].is_null(), "{gpu}");
    assert!(absent(gpu).contains("GPM: the GPU is lost"), "{gpu}");
}

#[test]
fn a_call_that_hangs_stalls_nothing() {
    let stand_in = with_gpu(|_| {});
    let flag = stand_in.path("hang");
    rewrite(&stand_in, |gpu| {
        gpu["changes"] = json!([{ "when": flag, "set": { "hang": ["nvmlDeviceGetPowerUsage"] } }])
    });
    let touch = format!("touch:{}", flag.display());
    let output = probe(&stand_in, &["steps:100:8:2000", &touch], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(report["throughput"]["value"].as_f64().unwrap() > 0.0);
    assert_eq!(absent(&report["gpus"][0]), "SM activity and all else: NVML does not answer");
}

#[test]
fn an_instance_is_a_device_like_any_other() {
    let stand_in = with_gpu(|_| {});
    let whole = hopper(&stand_in.path("pid"));
    let mut instance = whole.clone();
    for metric in ["busy", "busy_samples", "power", "power_samples", "energy", "shares"] {
        instance["state"].as_object_mut().unwrap().remove(metric);
    }
    let mut other = instance.clone();
    (instance["uuid"], instance["name"]) = ("MIG-1111".into(), "NVIDIA H200 MIG 1g.18gb".into());
    (other["uuid"], other["name"]) = ("MIG-2222".into(), "NVIDIA H200 MIG 1g.18gb".into());
    other["state"]["sm"] = 11.into();
    // NVML does not list the memory of an instance's processes here.
    other["state"]["processes"] = json!([{ "pid_file": stand_in.path("pid"), "bytes": null }]);
    other["changes"] = json!([{ "when": stand_in.path("pid"), "set": { "memory_other": 5.003e9 } }]);
    instance["state"]["processes"] = json!([]);
    let mut gpu = whole;
    gpu["instances"] = json!([instance, other]);
    std::fs::write(stand_in.path("script.json"), json!({ "gpus": [gpu] }).to_string()).unwrap();
    for visible in ["MIG-2222", "0", "GPU-a1"] {
        let report = report(&stand_in, &format!("[step.env]\nCUDA_VISIBLE_DEVICES = \"{visible}\"\n"));
        let count = if visible == "MIG-2222" { "" } else { "2 x " };
        assert_eq!(report["device"], format!("{count}NVIDIA H200 MIG 1g.18gb"));
        assert_eq!(report["gpus"].as_array().unwrap().len(), 1, "{report}");
        let gpu = &report["gpus"][0];
        assert_eq!(gpu["uuid"], "MIG-2222");
        close(&gpu["readings"]["sm_active"], 0.11, "gpm");
        close(&gpu["readings"]["memory_own"], 5e9, "difference");
        for metric in ["gpu_busy", "power", "energy"] {
            assert!(gpu["readings"][metric].is_null(), "absent, not zero: {gpu}");
        }
        assert!(absent(gpu).contains("not supported by this device"), "{gpu}");
        std::fs::remove_file(stand_in.path("pid")).unwrap();
    }
}

/// Two GPUs of different models. The step uses the second by bus order, which CUDA may number first.
#[test]
fn the_gpus_that_are_used_are_found_by_identity_not_by_number() {
    let stand_in = with_gpu(|_| {});
    let mut slow = hopper(&stand_in.path("none"));
    (slow["uuid"], slow["name"]) = ("GPU-b2".into(), "NVIDIA T4".into());
    let fast = hopper(&stand_in.path("pid"));
    std::fs::write(stand_in.path("script.json"), json!({ "gpus": [slow, fast] }).to_string()).unwrap();
    for visible in ["", "CUDA_VISIBLE_DEVICES = \"0\"", "CUDA_VISIBLE_DEVICES = \"GPU-a\""] {
        let report = report(&stand_in, &format!("[step.env]\n{visible}\n"));
        assert_eq!(report["gpus"].as_array().unwrap().len(), 1, "{visible}: {report}");
        assert_eq!(report["gpus"][0]["uuid"], "GPU-a1");
        std::fs::remove_file(stand_in.path("pid")).unwrap();
    }
    let by_bus = "[step.env]\nCUDA_VISIBLE_DEVICES = \"0\"\nCUDA_DEVICE_ORDER = \"PCI_BUS_ID\"\n";
    let report = report(&stand_in, by_bus);
    assert_eq!(absent(&report["gpus"][0]), "SM activity and all else: no process of the probe was seen on a GPU");
}

/// Probes on the GPUs that a variable allows; returns the exit code, the report and standard error.
fn device_for(stand_in: &StandIn, step: &str, variable: Option<&str>) -> (Option<i32>, Value, String) {
    let pid = format!("pid:{}", stand_in.path("pid").display());
    let search = Search::of(&[&pid, "forever:8:2000"], &format!("{step}\n{LIMITS}"));
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out", "--json"]).current_dir(search.folder.path());
    command.env_remove("CUDA_VISIBLE_DEVICES").envs(variable.map(|value| ("CUDA_VISIBLE_DEVICES", value)));
    let output = stand_in.before(&mut command).output().unwrap();
    let report = serde_json::from_str(&stdout(&output)).unwrap_or_default();
    (output.status.code(), report, stderr(&output))
}

#[test]
fn gpus_that_are_hidden_do_not_train() {
    let stand_in = with_gpu(|_| {});
    for list in ["7", "NoDevFiles", "GPU-zz", "-1", "0,0"] {
        let reason = format!("found no GPU: CUDA_VISIBLE_DEVICES={list} hides all of them");
        let env = format!("[step.env]\nCUDA_VISIBLE_DEVICES = \"{list}\"");
        for (step, variable) in [("", Some(list)), (env.as_str(), None)] {
            let (code, _, text) = device_for(&stand_in, &format!("device = \"gpu\"\n{step}"), variable);
            assert_eq!(code, Some(3), "{list}: {text}");
            assert!(text.contains(&reason), "{list}: {text}");
        }
        let (code, report, text) = device_for(&stand_in, "", Some(list));
        assert_eq!(code, Some(0), "{list}: {text}");
        assert!(report["device"].as_str().unwrap().contains(" cores"), "{list}: {report}");
        assert!(report["gpus"].is_null(), "{list}: {report}");
    }
    let searched = "device = \"gpu\"\nenv = { CUDA_VISIBLE_DEVICES = \"{gpu}\" }\n[space]\ngpu = { values = [\"0\"] }";
    let (code, report, text) = device_for(&stand_in, searched, Some("7"));
    assert_eq!((code, &report["device"]), (Some(0), &"NVIDIA H200".into()), "{text}");
}

#[test]
fn the_device_is_what_the_step_sees() {
    let stand_in = with_gpu(|_| {});
    let mut slow = hopper(&stand_in.path("none"));
    (slow["uuid"], slow["name"]) = ("GPU-b2".into(), "NVIDIA T4".into());
    let fast = hopper(&stand_in.path("pid"));
    std::fs::write(stand_in.path("script.json"), json!({ "gpus": [slow, fast] }).to_string()).unwrap();
    let by_bus = "[step.env]\nCUDA_DEVICE_ORDER = \"PCI_BUS_ID\"";
    for (step, variable, device) in [
        ("", None, "NVIDIA H200 + NVIDIA T4"),
        ("", Some("1,0"), "NVIDIA H200 + NVIDIA T4"),
        ("", Some("GPU-a1"), "NVIDIA H200"),
        (by_bus, Some("1"), "NVIDIA H200"),
        ("", Some("1"), "NVIDIA H200 or NVIDIA T4 (CUDA_VISIBLE_DEVICES=1)"),
    ] {
        let (code, report, text) = device_for(&stand_in, step, variable);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(report["device"], device, "{step} {variable:?}");
    }
}

#[test]
fn several_gpus_are_told_each_and_together() {
    let stand_in = with_gpu(|_| {});
    let first = hopper(&stand_in.path("pid"));
    let mut second = first.clone();
    (second["uuid"], second["state"]["sm"]) = ("GPU-b2".into(), 31.into());
    std::fs::write(stand_in.path("script.json"), json!({ "gpus": [first, second] }).to_string()).unwrap();
    let pid = format!("pid:{}", stand_in.path("pid").display());
    let search = Search::of(&[&pid, "forever:8:2000"], LIMITS);
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out"]).current_dir(search.folder.path());
    let text = stdout(&stand_in.before(&mut command).output().unwrap());
    assert!(text.contains("NVIDIA H200, GPU-a1") && text.contains("NVIDIA H200, GPU-b2"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("together") && line.contains(" % (31 to 62 %)")), "{text}");

    let mut command = search.command();
    command.arg("-v");
    let output = stand_in.before(&mut command).output().unwrap();
    let text = stderr(&output);
    assert!(
        text.lines()
            .any(|line| line.starts_with("GPU       2 together: SM activity 4") && line.contains(" % (31 to 62 %)")),
        "{text}"
    );
    let journal = std::fs::read_to_string(search.out().join("journal.jsonl")).unwrap();
    assert!(journal.contains("\"sm_active\":{\"value\":0.") && journal.contains("\"source\":\"gpm\""), "{journal}");
    let table = std::fs::read_to_string(search.out().join("trials.csv")).unwrap();
    assert!(table.starts_with("trial,") && table.contains("sm_active,sm_occupancy"), "{table}");
    let best: Value = serde_json::from_slice(&std::fs::read(search.out().join("best.json")).unwrap()).unwrap();
    assert_eq!(best["gpus"].as_array().unwrap().len(), 2);
}

#[test]
fn numbers_of_processes_that_nobody_has_are_told_apart_by_difference() {
    // Driver 535.54 gave unknown numbers; in a container, they are the host's numbers.
    let stand_in = with_gpu(|_| {});
    rewrite(&stand_in, |gpu| {
        gpu["state"]["processes"] = json!([{ "pid_file": stand_in.path("pid"), "told_as": 4_194_305, "bytes": 40e9 }]);
    });
    let gpu = &report(&stand_in, "")["gpus"][0];
    close(&gpu["readings"]["memory_own"], 40e9, "difference");
    close(&gpu["readings"]["memory_others"], 3e6, "difference");
    close(&gpu["readings"]["sm_active"], 0.62, "gpm");
}

#[test]
fn xids_are_told_with_the_numbers_and_with_a_failure() {
    let stand_in = with_gpu(|_| {});
    let flag = stand_in.path("xid");
    rewrite(&stand_in, |gpu| gpu["changes"] = json!([{ "when": flag, "set": { "xids": [31, 43], "ecc": 2 } }]));
    let touch = format!("touch:{}", flag.display());
    let output = probe(&stand_in, &["steps:100:8:2000", &touch], "");
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let gpu = &report["gpus"][0];
    assert_eq!(gpu["xids"], json!([31, 43]));
    close(&gpu["readings"]["xid_errors"], 2.0, "nvml");
    close(&gpu["readings"]["ecc_errors"], 2.0, "nvml");
    std::fs::remove_file(&flag).unwrap();
    let output = probe(&stand_in, &["steps:100:8:2000", &touch, "sleep:1500", "exit:3"], "");
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["outcome"], "crashed");
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.ends_with("; the driver reported Xid 31 of GPU 0, Xid 43 of GPU 0"), "{reason}");
}

/// Runs a probe during which the stand-in reports an event; returns the exit code and all output.
fn disturbed(stand_in: &StandIn, arguments: &[&str]) -> (Option<i32>, String) {
    let output = probe(stand_in, arguments, "");
    (output.status.code(), stdout(&output) + &stderr(&output))
}

#[test]
fn a_foreign_process_disturbs_and_is_named() {
    let stand_in = with_gpu(|_| {});
    let own = json!({ "pid_file": stand_in.path("pid"), "bytes": 40e9, "share": 90 });
    let foreign = std::process::id();
    // A process from before the probe that computes all the time.
    rewrite(&stand_in, |gpu| {
        gpu["state"]["processes"] = json!([own, { "pid": foreign, "bytes": 2_147_483_648_u64, "share": 40 }]);
    });
    let (code, text) = disturbed(&stand_in, &[]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("disturbed, and probed again: "), "{text}");
    assert!(text.contains(&format!("process {foreign} (`")), "{text}");
    assert!(text.contains("computed on GPU 0 for 40 % of the time"), "{text}");

    // A process from before the probe that is idle.
    rewrite(&stand_in, |gpu| gpu["state"]["processes"] = json!([own, { "pid": foreign, "bytes": 2e9, "share": 2 }]));
    let gpu = &report(&stand_in, "")["gpus"][0];
    close(&gpu["readings"]["memory_others"], 2.003e9, "nvml_processes");

    // A process that starts during the first try. If it is there before the next try and idle, it may stay.
    let flag = stand_in.path("come");
    rewrite(&stand_in, |gpu| {
        let set = json!({ "processes": [own, { "pid": foreign, "bytes": 3e7 }] });
        gpu["changes"] = json!([{ "when": flag, "set": set }]);
    });
    let touch = format!("touch:{}", flag.display());
    let (code, text) = disturbed(&stand_in, &["steps:100:8:2000", &touch]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("disturbed, and probed again").count(), 1, "{text}");
    assert!(text.contains("came onto GPU 0 during the probe and holds 28.6 MiB of it"), "{text}");
}

#[test]
fn heat_disturbs_and_a_power_cap_is_told() {
    for (change, words) in [
        (json!({ "heat": 0.01 }), "heat slowed GPU 0 down for 1.0 % of the time"),
        (json!({ "reasons": 0x80 }), "the hardware slowed GPU 0 down"),
    ] {
        let stand_in =
            with_gpu(|gpu| gpu["state"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone()));
        let (code, text) = disturbed(&stand_in, &[]);
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("the probes are disturbed from outside: ") && text.contains(words), "{text}");
    }
    // A short throttling changes the throughput by less than the noise.
    let stand_in = with_gpu(|gpu| gpu["state"]["heat"] = json!(0.004));
    let (code, text) = disturbed(&stand_in, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("heat slowed"), "{text}");
    // At full load the power cap always applies: no reason to re-measure.
    let stand_in = with_gpu(|gpu| gpu["state"]["power_capped"] = json!(0.62));
    let gpu = &report(&stand_in, "")["gpus"][0];
    close(&gpu["readings"]["throttled_by_power"], 0.62, "nvml");
    let search = Search::of(&[&format!("pid:{}", stand_in.path("pid").display()), "forever:8:2000"], LIMITS);
    let mut command = search.command();
    command.arg("-v");
    let text = stderr(&stand_in.before(&mut command).output().unwrap());
    assert!(text.contains("held back by the power limit for 62 % of the time"), "{text}");
}

#[test]
fn clocks_and_limits_that_somebody_changes_disturb() {
    for (set, words, tries) in [
        (json!({ "power_limit": 500 }), "GPU 0: its power limit was 700 W before the first probe and is 500 W now", 3),
        (json!({ "set_sm_clock": 1200 }), "its application clock was 1980 MHz before the first probe", 3),
        (
            json!({ "reasons": 2, "sm_clock": 1200 }),
            "its clocks were set while the probe ran (1200 MHz and 1755 MHz)",
            1,
        ),
    ] {
        let stand_in = with_gpu(|_| {});
        let flag = stand_in.path("changed");
        rewrite(&stand_in, |gpu| gpu["changes"] = json!([{ "when": flag, "set": set }]));
        let touch = format!("touch:{}", flag.display());
        // Long enough for the change to fall into the measured time, whatever counts as warm-up.
        let limits = if tries == 1 { LIMITS.replace("1200ms", "6s") } else { LIMITS.to_owned() };
        let output = probe_within(
            &stand_in,
            &[if tries == 1 { "steps:800:8:2000" } else { "steps:100:8:2000" }, &touch],
            "",
            &limits,
        );
        let (code, text) = (output.status.code(), stdout(&output) + &stderr(&output));
        assert!(text.contains(words), "{text}");
        // A changed limit stays changed, so earlier measurements are no longer comparable.
        assert_eq!(code, Some(if tries == 3 { 3 } else { 0 }), "{text}");
    }
}

#[test]
fn a_script_that_prints_its_rate_is_metered_too() {
    let stand_in = with_gpu(|_| {});
    let pid = format!("pid:{}", stand_in.path("pid").display());
    let mut words = vec![pid];
    words.extend((0..100).flat_map(|_| ["sleep:100".to_owned(), "print:100 samples/s".to_owned()]));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let search = Search::of(
        &words,
        &format!("throughput = {{ pattern = '([0-9.]+) samples/s', unit = \"samples/s\" }}\n{LIMITS}"),
    );
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out", "--json"]).current_dir(search.folder.path());
    let output = stand_in.before(&mut command).output().unwrap();
    let report: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    assert_eq!(absent(&report["gpus"][0]), "", "{report}");
    close(&report["gpus"][0]["readings"]["sm_active"], 0.62, "gpm");
}

/// In a container, the driver may report a process by its number inside.
#[test]
fn a_process_in_a_container_is_known_by_its_number_inside() {
    let may = Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        return;
    }
    let stand_in = with_gpu(|_| {});
    let pid = stand_in.path("pid");
    let words =
        ["unshare", "--pid", "--fork", &support::child().display().to_string(), "token:TOKEN"].map(str::to_owned);
    let words: Vec<String> =
        words.into_iter().chain([format!("pid:{}", pid.display()), "forever:8:2000".into()]).collect();
    let search = Search::of_command(&words, LIMITS);
    let mut command = Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out", "--json"]).current_dir(search.folder.path());
    let output = stand_in.before(&mut command).output().unwrap();
    let report: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    close(&report["gpus"][0]["readings"]["memory_own"], 40e9, "nvml_processes");
    assert_eq!(std::fs::read_to_string(pid).unwrap(), "1", "it is the first process in there");
}

/// The library is found by its name. So the probe runs in this program, restarted where it finds the stand-in.
#[test]
fn a_step_in_this_process_is_metered_too() {
    use gputune::model::{Parameter, Settings, Space};
    use gputune::search::Tuner;

    const INSIDE: &str = "METERED_INSIDE";
    if let Some(pid) = std::env::var_os(INSIDE) {
        std::fs::write(pid, std::process::id().to_string()).unwrap();
        let space = Space::new([Parameter::values("x", [1])]).unwrap();
        let step = |_: &Settings| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            Ok(gputune::probe::Step::new(8))
        };
        let tuner = Tuner::new(space, step).measure_time(std::time::Duration::from_secs(1));
        let study = tuner.run(|_| ()).unwrap();
        let measurement = study.history.trials()[0].outcome.measurement().unwrap();
        let readings = &measurement.machine.gpus[0].readings;
        assert!((readings[&gputune::model::Metric::SmActive].value - 0.62).abs() < 0.02, "{readings:?}");
        assert_eq!(readings[&gputune::model::Metric::MemoryOwn].source, gputune::model::Source::NvmlProcesses);
        return;
    }
    let stand_in = with_gpu(|_| {});
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_step_in_this_process_is_metered_too"]).env(INSIDE, stand_in.path("pid"));
    let output = stand_in.before(&mut command).output().unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_device_has_the_same_identity_by_nvml_and_by_the_kernel() {
    let stand_in = with_gpu(|_| {});
    let pid = format!("pid:{}", stand_in.path("pid").display());
    let search = Search::of(&[&pid, "forever:8:2000"], LIMITS);
    let mut command = search.command();
    assert_eq!(stand_in.before(&mut command).output().unwrap().status.code(), Some(0));
    let journal = std::fs::read_to_string(search.out().join("journal.jsonl")).unwrap();
    let header: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
    let text = header.to_string();
    assert!(text.contains("\"NVIDIA H200\"") && text.contains("\"580.95.05\""), "{text}");
    // The same command continues, and probes nothing again.
    let mut command = search.command();
    let output = stand_in.before(&mut command).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("goes on from 2 finished trials"), "{}", stderr(&output));
}

#[test]
fn gpu_memory_that_is_not_back_is_waited_for() {
    let stand_in = with_gpu(|_| {});
    let (held, back) = (stand_in.path("held"), stand_in.path("back"));
    rewrite(&stand_in, |gpu| {
        gpu["changes"] = json!([
            { "when": held, "set": { "memory_other": 2e9 } },
            { "when": back, "set": { "memory_other": 3e6 } },
        ]);
    });
    let (pid, touch) = (format!("pid:{}", stand_in.path("pid").display()), format!("touch:{}", held.display()));
    let search = Search::of(&[&pid, "steps:100:8:2000", &touch, "forever:8:2000"], LIMITS);
    let mut command = search.command();
    let mut running = stand_in
        .before(&mut command)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let journal = search.out().join("journal.jsonl");
    let trials = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count().saturating_sub(1));
    while trials() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::remove_file(stand_in.path("pid")).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(!stand_in.path("pid").exists(), "the next probe has begun, though what the first held is not back");
    std::fs::write(back, "").unwrap();
    assert!(running.wait().unwrap().success());
    assert_eq!(trials(), 2);
}

#[test]
fn a_lack_of_memory_that_another_program_brought_about_is_not_the_configs() {
    let stand_in = with_gpu(|_| {});
    let flag = stand_in.path("come");
    let foreign = std::process::id();
    rewrite(&stand_in, |gpu| {
        let set = json!({ "processes": [{ "pid": foreign, "bytes": 5e7 }] });
        gpu["changes"] = json!([{ "when": flag, "set": set }]);
    });
    let touch = format!("touch:{}", flag.display());
    let words = [
        &touch,
        "sleep:1500",
        "complain:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "exit:1",
    ];
    let (code, text) = disturbed(&stand_in, &words);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("CUDA out of memory") && text.contains(&format!("process {foreign} (`")), "{text}");
    assert!(text.contains("has taken 47.7 MiB of GPU 0 meanwhile"), "{text}");
}
