//! The examples of the frameworks, run for real: their scripts, their specs, the real binary. Without the frameworks, a line
//! reports the skip. `tests/with_python/adapter.rs` shows the same for plain PyTorch, and the Trainer, which runs on Accelerate,
//! covers Accelerate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::python::{python_with, python_with_old_torch};
use crate::support::{self, stderr, stdout};
use gputune::model::{Line, Measurement, Outcome};
use gputune::search::journal;

/// A search over two configs of an example: the baseline, and a config that differs in every parameter.
struct Example {
    folder: &'static str,
    spec: &'static str,
    baseline: &'static str,
    /// The rule for parameters that are always active: a rule does not apply while its parameters are inactive.
    changed: &'static str,
    /// The rule for parameters that are active in the changed config only.
    also_changed: Option<&'static str>,
}

struct Searched {
    output: Output,
    lines: Vec<Line>,
    _folder: tempfile::TempDir,
}

impl Example {
    fn search(&self, python: &Path) -> Searched {
        let folder = tempfile::tempdir().unwrap();
        let source = root().join("examples").join(self.folder);
        for entry in fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            fs::copy(&entry, folder.path().join(entry.file_name().unwrap())).unwrap();
        }
        let spec = fs::read_to_string(folder.path().join(self.spec)).unwrap();
        fs::write(folder.path().join(self.spec), self.shortened(&spec, python)).unwrap();
        let output = Command::new(support::gputune())
            .args(["search", self.spec, "--out", "out"])
            .current_dir(folder.path())
            .env("PYTHONPATH", root().join("python")) // as `pip install gputune` would have it
            .env("OMP_NUM_THREADS", "1")
            // Virtual machines may announce AMX without supporting it; bfloat16 then dies by SIGILL.
            .env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
            .output()
            .unwrap();
        let lines = journal::read(&folder.path().join("out/journal.jsonl")).map(|(_, lines)| lines).unwrap_or_default();
        Searched { output, lines, _folder: folder }
    }

    /// Returns the spec with this Python, two configs, and a short time limit.
    fn shortened(&self, spec: &str, python: &Path) -> String {
        let spec = spec.replacen("\"python3\"", &format!("\"{}\"", python.display()), 1);
        let end = spec.find("[limits]").unwrap();
        // On a busy machine, importing a framework takes a minute.
        let limits = "[limits]\nprobe_time = \"3m\"\nstall_time = \"2m\"\nmeasure_time = \"1s\"\n";
        let either = format!("({}) or ({})", self.baseline, self.changed);
        let rules = [Some(either.as_str()), self.also_changed];
        let rules = rules.iter().flatten().map(|rule| format!("[[rules]]\nwhere = \"{rule}\"\n"));
        let configs: String = rules.collect();
        format!("{}{configs}{limits}[search]\nprobes = 2\nrounds = 0\n", &spec[..end])
    }

    /// Asserts that both configs were measured, and that the size of their steps matches their batch size.
    fn assert_takes_effect(&self, python: &Path, samples: impl Fn(i64) -> f64) -> Vec<Measurement> {
        let searched = self.search(python);
        assert_eq!(searched.output.status.code(), Some(0), "{}", stderr(&searched.output));
        assert!(stdout(&searched.output).contains("batch_size = "), "{}", stdout(&searched.output));
        let mut sizes = Vec::new();
        let mut measurements = Vec::new();
        for line in &searched.lines {
            let Outcome::Measured(measurement) = &line.outcome else { panic!("{}", stderr(&searched.output)) };
            let size = line.config.get("batch_size").and_then(gputune::model::Value::as_i64).unwrap();
            assert_eq!(measurement.timing.samples_per_step, Some(samples(size)), "batch size {size}: {measurement:?}");
            sizes.push(size);
            measurements.push(measurement.clone());
        }
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes.len(), 2, "{}", stderr(&searched.output));
        measurements
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[expect(clippy::cast_precision_loss, reason = "a batch size")]
fn one_device(batch_size: i64) -> f64 {
    batch_size as f64
}

fn assert_framework(measurements: &[Measurement], name: &str) {
    for measurement in measurements {
        let framework = measurement.framework.as_deref().unwrap_or_default();
        assert!(framework.starts_with(name), "{framework}");
    }
}

#[test]
fn a_lightning_script_as_it_is() {
    let Some(python) = python_with(&["torch", "lightning"]) else { return };
    let example = Example {
        folder: "lightning",
        spec: "gputune.toml",
        baseline: "batch_size == 32 and workers == 0 and precision == 'fp32'",
        changed: "batch_size == 64 and workers == 1 and precision == 'bf16'",
        also_changed: Some("not persistent"),
    };
    let measurements = example.assert_takes_effect(&python, one_device);
    assert_framework(&measurements, "torch ");
    assert!(measurements.iter().all(|measurement| measurement.phase_seconds.contains_key("data_wait")));
}

#[test]
fn a_transformers_script_as_it_is() {
    let Some(python) = python_with(&["torch", "transformers", "accelerate"]) else { return };
    let example = Example {
        folder: "huggingface",
        spec: "gputune.toml",
        baseline: "batch_size == 8 and workers == 0 and precision == 'fp32' and fused",
        changed: "batch_size == 16 and workers == 1 and precision == 'bf16' and not fused",
        also_changed: None,
    };
    let measurements = example.assert_takes_effect(&python, one_device);
    assert_framework(&measurements, "torch ");
}

#[test]
fn an_accelerate_script_as_it_is() {
    if !support::is_thorough() {
        return;
    }
    let Some(python) = python_with(&["torch", "accelerate"]) else { return };
    let example = Example {
        folder: "accelerate",
        spec: "gputune.toml",
        baseline: "batch_size == 16 and workers == 0 and precision == 'fp32' and not channels_last",
        changed: "batch_size == 32 and workers == 1 and precision == 'bf16' and channels_last",
        also_changed: Some("prefetch == 4"),
    };
    let measurements = example.assert_takes_effect(&python, one_device);
    assert_framework(&measurements, "torch ");
}

const PYTORCH: Example = Example {
    folder: "pytorch",
    spec: "adapter.toml",
    baseline: "batch_size == 32 and workers == 0 and precision == 'fp32'",
    changed: "batch_size == 64 and workers == 1 and precision == 'bf16'",
    also_changed: Some("prefetch == 4"),
};

#[test]
fn a_pytorch_script_as_it_is() {
    if !support::is_thorough() {
        return;
    }
    let Some(python) = python_with(&["torch"]) else { return };
    PYTORCH.assert_takes_effect(&python, one_device);
}

#[test]
fn a_pytorch_script_as_it_is_with_a_torch_that_loads_no_entry_points() {
    if !support::is_thorough() {
        return;
    }
    let Some(python) = python_with_old_torch() else { return };
    let measurements = PYTORCH.assert_takes_effect(&python, one_device);
    assert_framework(&measurements, "torch 1.");
}

#[test]
fn a_keras_script_with_three_lines() {
    let Some(python) = python_with(&["tensorflow", "keras"]) else { return };
    let example = Example {
        folder: "keras",
        spec: "gputune.toml",
        baseline: "batch_size == 32 and parallel_calls == 1 and prefetch == 0 and precision == 'float32'",
        changed: "batch_size == 64 and parallel_calls == 2 and prefetch == 2 and precision == 'mixed_bfloat16'",
        also_changed: None,
    };
    let measurements = example.assert_takes_effect(&python, one_device);
    assert_framework(&measurements, "tensorflow ");
}

#[test]
fn a_jax_script_with_three_lines() {
    let Some(python) = python_with(&["jax", "optax"]) else { return };
    let example = Example {
        folder: "jax",
        spec: "gputune.toml",
        baseline: "batch_size == 64 and precision == 'float32'",
        changed: "batch_size == 128 and precision == 'bfloat16'",
        also_changed: None,
    };
    let measurements = example.assert_takes_effect(&python, one_device);
    assert_framework(&measurements, "jax ");
    assert!(measurements.iter().all(|measurement| measurement.phase_seconds.contains_key("data_wait")));
}
