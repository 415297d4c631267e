//! What `demo-step` trains on, with a stand-in for the CUDA driver's library.
#![cfg(feature = "cuda")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use support::{stderr, stdout};

/// The demo step where a driver shows these GPUs, and neither cuBLASLt nor NVRTC is to be found.
fn demo(folder: &Path, gpus: &str, arguments: &[&str]) -> Output {
    let libraries = folder.join("lib");
    fs::create_dir_all(&libraries).unwrap();
    fs::copy(support::library("stand_in_cuda"), libraries.join("libcuda.so.1")).unwrap();
    let mut command = Command::new(support::gputune());
    command.args(["demo-step", "--batch-size", "4", "--steps", "2", "--data-dir"]).arg(folder.join("data"));
    command.args(arguments).env("LD_LIBRARY_PATH", libraries).env("PATH", "/usr/bin:/bin").env("STAND_IN_CUDA", gpus);
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn has_cuda_libraries() -> bool {
    let found = Path::new("/usr/local/cuda").exists();
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
    let output = demo(folder.path(), "9.0", &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(stdout(&output).contains("step 2  loss "), "{}", stdout(&output));
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
        let output = demo(folder.path(), gpus, &["--device", "gpu"]);
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
        assert!(text.starts_with("error: the GPU cannot be used: ") && text.contains(missing), "{text}");
    }
}

#[test]
fn without_a_gpu_nothing_is_said_of_one() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["--device", "cpu"]] {
        let output = demo(folder.path(), "", arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    }
}

#[test]
fn a_precision_that_the_gpu_lacks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), "7.0", &["--precision", "bf16", "--device", "gpu"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "error: option precision cannot be bf16 on this GPU: use f32 or f16\n");
}
