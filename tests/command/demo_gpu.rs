//! The device that `demo-step` trains on, with a stand-in for the CUDA driver's library.
#![cfg(feature = "cuda")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use crate::support::{self, stderr, stdout};

static DRIVER: LazyLock<PathBuf> = LazyLock::new(|| support::library("stand_in_cuda"));
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| support::library("stand_in_cuda_libraries"));

/// Runs the demo step with a driver that shows these GPUs, and with or without stand-ins for cuBLASLt and NVRTC.
fn demo(folder: &Path, gpus: &str, has_libraries: bool, arguments: &[&str]) -> Output {
    let libraries = folder.join("lib");
    fs::create_dir_all(&libraries).unwrap();
    fs::copy(&*DRIVER, libraries.join("libcuda.so.1")).unwrap();
    for name in ["libnvrtc.so.13", "libcublasLt.so.13"] {
        if has_libraries {
            fs::copy(&*LIBRARIES, libraries.join(name)).unwrap();
        }
    }
    let mut command = Command::new(support::gputune());
    // One dataset for all runs.
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo-data");
    command.args(["demo-step", "--steps", "3", "--data-dir"]).arg(data);
    command.args(arguments).env("LD_LIBRARY_PATH", libraries).env("PATH", "/usr/bin:/bin").env("STAND_IN_CUDA", gpus);
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

/// Returns true if the loader or a toolkit has the libraries, so that none is missing.
fn has_cuda_libraries() -> bool {
    let listed = Command::new("/sbin/ldconfig").arg("-p").output();
    let listed = listed.is_ok_and(|output| stdout(&output).contains("libnvrtc.so"));
    let found = listed || Path::new("/usr/local/cuda").exists();
    if found {
        eprintln!("NOT RUN: there is a CUDA toolkit");
    }
    found
}

#[test]
fn a_gpu_that_cannot_be_used_is_told_and_the_processor_trains() {
    if has_cuda_libraries() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), "9.0", false, &["--batch-size", "4"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(stdout(&output).contains("step 3  loss "), "{}", stdout(&output));
    assert!(text.starts_with("warning: the GPU cannot be used: libnvrtc was not found; "), "{text}");
    assert!(text.trim_end().ends_with("; the CPU trains") && text.lines().count() == 1, "{text}");
}

#[test]
fn a_gpu_that_was_asked_for_is_an_error_where_it_cannot_be_used() {
    if has_cuda_libraries() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (gpus, missing) in [("9.0", "libnvrtc"), ("", "no GPU is visible")] {
        let output = demo(folder.path(), gpus, false, &["--device", "gpu"]);
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
        assert!(text.starts_with("error: the GPU cannot be used: ") && text.contains(missing), "{text}");
    }
}

#[test]
fn without_a_gpu_nothing_is_said_of_one() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--batch-size", "4"][..], &["--batch-size", "4", "--device", "cpu"]] {
        let output = demo(folder.path(), "", false, arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    }
}

#[test]
fn a_precision_that_the_gpu_lacks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), "7.0", false, &["--precision", "bf16", "--device", "gpu"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "error: option precision cannot be bf16 on this GPU: use f32 or f16\n");
}

#[test]
fn a_step_on_a_gpu_is_asked_for_in_every_precision() {
    let folder = tempfile::tempdir().unwrap();
    for precision in ["f32", "tf32", "bf16", "f16"] {
        for workers in ["0", "2"] {
            let arguments = ["--device", "gpu", "--precision", precision, "--workers", workers, "--batch-size", "4"];
            let output = demo(folder.path(), "9.0", true, &arguments);
            assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{precision}");
            assert!(stdout(&output).contains("step 3  loss "), "{}", stdout(&output));
        }
    }
}

#[test]
fn memory_of_the_gpu_that_runs_out_is_told_as_the_processors_is() {
    let folder = tempfile::tempdir().unwrap();
    // The stand-in allocates at most 100 MiB at once.
    for arguments in [&["--batch-size", "2048"][..], &["--batch-size", "64", "--memory-limit", "1MiB"]] {
        let output = demo(folder.path(), "9.0", true, arguments);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.starts_with("error: out of memory: ") && text.lines().count() == 1, "{text}");
    }
}
