//! The specs that `gputune init` writes for a real script of each framework are probed unchanged. Without the frameworks, a line
//! reports the skip.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::python::{python_with, python_with_new_torch};
use crate::support::{self, stderr, stdout};
use gputune::model::Value;
use gputune::spec::Spec;

/// A script of `examples/`, and the expectations for its spec.
struct Case {
    folder: &'static str,
    /// The command after Python.
    words: &'static [&'static str],
    preset: &'static str,
    /// Parameters that init must find, each with the setting that the script uses today.
    today: &'static [(&'static str, &'static str)],
    /// The settings to probe.
    set: &'static [&'static str],
    /// The samples of a step with the probed settings.
    samples: f64,
}

impl Case {
    /// Writes the spec, has it checked, and probes one config. Skips the probe if `tests/with_python/frameworks.rs` probes the
    /// example and the tests are not thorough.
    fn run(&self, python: &Path) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(root.join("examples").join(self.folder)).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap();
            if entry.is_file() && name != "gputune.toml" {
                fs::copy(&entry, folder.path().join(name)).unwrap();
            }
        }
        let gputune = |arguments: &[&str]| {
            let mut command = Command::new(support::gputune());
            command.args(arguments).current_dir(folder.path()).env("PYTHONPATH", root.join("python"));
            // Virtual machines may announce AMX that they do not carry out; bfloat16 then dies by SIGILL.
            command.env("OMP_NUM_THREADS", "1").env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE");
            command.output().unwrap()
        };
        let python = python.to_str().unwrap();
        let output = gputune(&[&["init", "--yes", "--", python], self.words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let path = folder.path().join("gputune.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("preset {}:", self.preset)), "{text}");
        let spec = Spec::load(&path).unwrap();
        for (name, today) in self.today {
            let parameter = spec.space.parameters().iter().find(|parameter| parameter.name() == *name);
            // Precisions are searched if the machine has several.
            let has =
                parameter.map_or(*name == "precision", |parameter| parameter.level(&Value::parse(today)).is_some());
            assert!(has, "{name} {today}: {text}");
        }
        assert!(spec.baseline.is_none(), "only what the command says is a baseline: {text}");
        assert_eq!(gputune(&["check", "gputune.toml"]).status.code(), Some(0));
        let is_probed_elsewhere = !["pytorch", "torchrun"].contains(&self.folder);
        if is_probed_elsewhere && !support::is_thorough() {
            return;
        }
        // On a busy machine, importing a framework takes a minute.
        let patient = text.split("[limits]").next().unwrap().to_owned()
            + "[limits]\nprobe_time = \"4m\"\nstall_time = \"3m\"\nmeasure_time = \"1s\"\n";
        fs::write(&path, patient).unwrap();
        let set: Vec<&str> = self.set.iter().flat_map(|set| ["--set", *set]).collect();
        let probe = gputune(&[&["probe", "gputune.toml", "--json", "--quiet"], set.as_slice()].concat());
        assert_eq!(probe.status.code(), Some(0), "{}\n{text}", stderr(&probe));
        let json: serde_json::Value = serde_json::from_str(&stdout(&probe)).unwrap();
        let found = find(&json, "samples_per_step").and_then(serde_json::Value::as_f64);
        assert_eq!(found, Some(self.samples), "{}", stdout(&probe));
    }
}

/// Returns a member anywhere in a JSON value.
fn find<'j>(json: &'j serde_json::Value, name: &str) -> Option<&'j serde_json::Value> {
    match json {
        serde_json::Value::Object(members) => {
            members.get(name).or_else(|| members.values().find_map(|value| find(value, name)))
        }
        serde_json::Value::Array(values) => values.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}

#[test]
fn plain_pytorch() {
    let Some(python) = python_with(&["torch"]) else { return };
    let today = &[("batch_size", "32"), ("workers", "0"), ("precision", "fp32")];
    Case {
        folder: "pytorch",
        words: &["train.py", "--steps", "1000000"],
        preset: "pytorch",
        today,
        set: &["batch_size=64"],
        samples: 64.0,
    }
    .run(&python);
}

#[test]
fn lightning() {
    let Some(python) = python_with(&["torch", "lightning"]) else { return };
    let today = &[("batch_size", "32"), ("workers", "0"), ("precision", "fp32")];
    Case {
        folder: "lightning",
        words: &["train.py"],
        preset: "lightning",
        today,
        set: &["batch_size=16"],
        samples: 16.0,
    }
    .run(&python);
}

#[test]
fn hugging_face_trainer() {
    let Some(python) = python_with(&["torch", "transformers", "accelerate"]) else { return };
    let today = &[("batch_size", "8"), ("workers", "0"), ("precision", "fp32")];
    Case {
        folder: "huggingface",
        words: &["train.py"],
        preset: "huggingface",
        today,
        set: &["batch_size=4"],
        samples: 4.0,
    }
    .run(&python);
}

#[test]
fn accelerate() {
    let Some(python) = python_with(&["torch", "accelerate"]) else { return };
    let today = &[("batch_size", "16"), ("workers", "0"), ("precision", "fp32")];
    Case {
        folder: "accelerate",
        words: &["train.py"],
        preset: "accelerate",
        today,
        set: &["batch_size=32"],
        samples: 32.0,
    }
    .run(&python);
}

#[test]
fn keras() {
    let Some(python) = python_with(&["tensorflow", "keras"]) else { return };
    let today = &[("batch_size", "32"), ("parallel_calls", "1"), ("prefetch", "0"), ("precision", "float32")];
    Case { folder: "keras", words: &["train.py"], preset: "keras", today, set: &["batch_size=64"], samples: 64.0 }
        .run(&python);
}

#[test]
fn jax() {
    let Some(python) = python_with(&["jax", "optax"]) else { return };
    let today = &[("batch_size", "64"), ("precision", "float32")];
    Case { folder: "jax", words: &["train.py"], preset: "jax", today, set: &["batch_size=32"], samples: 32.0 }
        .run(&python);
}

const RANKS: &[&str] = &["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"];

#[test]
fn two_ranks_by_torchrun() {
    let Some(python) = python_with_new_torch() else { return };
    let today = &[("batch_size", "32"), ("workers", "0"), ("bucket_mb", "25")];
    Case {
        folder: "torchrun",
        words: RANKS,
        preset: "torchrun",
        today,
        set: &["batch_size=16", "bucket_mb=50"],
        samples: 32.0,
    }
    .run(&python);
}

#[test]
fn two_sharded_ranks_by_torchrun() {
    let Some(python) = python_with_new_torch() else { return };
    let words: &[&str] =
        &["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", "--fsdp"];
    Case {
        folder: "torchrun",
        words,
        preset: "torchrun",
        today: &[("batch_size", "32")],
        set: &["batch_size=64"],
        samples: 128.0,
    }
    .run(&python);
}

/// DeepSpeed compiles its parts at their first use, which takes minutes: it is probed only where it is installed.
#[test]
fn deepspeed() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/deepspeed");
    for name in ["train.py", "ds_config.json"] {
        fs::copy(source.join(name), folder.path().join(name)).unwrap();
    }
    let installed = python_with(&["deepspeed"]);
    let python = installed.as_deref().unwrap_or(Path::new("python3"));
    let gputune = |arguments: &[&str]| {
        let mut command = Command::new(support::gputune());
        // One rank without a launcher.
        let rank = [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")];
        command.args(arguments).current_dir(folder.path()).envs(rank).env("MASTER_PORT", "29847");
        command.env("DS_ACCELERATOR", "cpu").env("OMP_NUM_THREADS", "1").output().unwrap()
    };
    let words = ["train.py", "--deepspeed_config", "ds_config.json"];
    let output = gputune(&[&["init", "--", python.to_str().unwrap()], &words[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let spec = Spec::load(&folder.path().join("gputune.toml")).unwrap();
    let baseline = spec.baseline.as_ref().unwrap();
    for (name, today) in [("batch_size", "32"), ("zero_stage", "1"), ("overlap_comm", "false")] {
        assert_eq!(baseline.get(name).map(Value::to_string).as_deref(), Some(today), "{name}");
    }
    let settings = spec.space.settings(&spec.space.locate(baseline).unwrap());
    let rendered = spec.step.template().render(&settings, Path::new("gputune"), Path::new("probe"));
    assert_eq!(rendered.command[1..], ["train.py", "--deepspeed_config", "probe/ds_config.json"]);
    let (path, text) = &rendered.files[0];
    assert_eq!(path, Path::new("probe/ds_config.json"));
    let config: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(config["train_micro_batch_size_per_gpu"], 32);
    let zero = &config["zero_optimization"];
    assert_eq!((&zero["stage"], &zero["overlap_comm"]), (&serde_json::json!(1), &serde_json::json!(false)), "{text}");
    if installed.is_some() {
        let probe = gputune(&["probe", "gputune.toml", "--json", "--quiet", "--set", "batch_size=64"]);
        let json: serde_json::Value = serde_json::from_str(&stdout(&probe)).unwrap();
        let samples = find(&json, "samples_per_step").and_then(serde_json::Value::as_f64);
        assert_eq!(samples, Some(64.0), "{}", stdout(&probe));
    }
}
