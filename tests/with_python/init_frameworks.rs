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
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let gputune = |arguments: &[&str]| {
        let mut command = Command::new(support::gputune());
        // One rank without a launcher.
        let rank = [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")];
        command.args(arguments).current_dir(folder.path()).envs(rank).env("MASTER_PORT", &free);
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

/// A training loop in a package, whose loader keeps one iterator for ever, as ultralytics' `InfiniteDataLoader` does.
const PACKAGE: &str = r#"
import torch
from torch.utils.data import DataLoader, TensorDataset

class Repeat:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)

class InfiniteDataLoader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeat(self.batch_sampler))
        self.iterator = None

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        if self.iterator is None:
            self.iterator = self._get_iterator()
        for _ in range(len(self)):
            yield next(self.iterator)

def train(batch, workers):
    data = TensorDataset(torch.randn(5000, 8), torch.randint(0, 10, (5000,)))
    loader = InfiniteDataLoader(data, batch_size=batch, num_workers=workers, shuffle=True)
    model = torch.nn.Linear(8, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
"#;

/// Its options have names that gputune does not know. Its batch size is a variable of an unknown name.
const OPTIONS: &str = r#"
import argparse, os
from mytrainer import train
parser = argparse.ArgumentParser()
for name in ("--seed", "--warm", "--nw"):
    parser.add_argument(name, type=int, default=0)
args = parser.parse_args()
train(int(os.environ.get("HOW_MANY", "12")), args.nw)
"#;

/// Keras makes the loader, and makes another one for each epoch.
const KERAS: &str = r#"
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
model = keras.Sequential([keras.layers.Dense(10)])
model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(numpy.random.rand(512, 8), numpy.random.randint(0, 10, 512), batch_size=16, epochs=10**6, verbose=0)
"#;

/// Runs gputune in a folder with these files. The folder `lib` has the package.
fn with_package(
    python: &Path,
    files: &[(&str, &str)],
) -> (tempfile::TempDir, impl Fn(&[&str]) -> std::process::Output + use<>) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("lib/mytrainer")).unwrap();
    for (name, text) in files.iter().chain(&[("lib/mytrainer/__init__.py", PACKAGE)]) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let path = format!("{}:{}", python.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let at = folder.path().to_owned();
    let gputune = move |words: &[&str]| {
        let mut command = Command::new(support::gputune());
        command.args(words).current_dir(&at).env("PATH", &path).env("PYTHONPATH", at.join("lib"));
        command.env("OMP_NUM_THREADS", "1").env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE").output().unwrap()
    };
    (folder, gputune)
}

#[test]
fn options_and_variables_of_any_name_are_found_by_trying() {
    let Some(python) = python_with(&["torch"]) else { return };
    let shell = "#!/bin/sh\nexport HOW_MANY=20\nexec python3 train.py \"$@\"\n";
    let (folder, gputune) = with_package(&python, &[("train.py", OPTIONS), ("train.sh", shell)]);
    let spec = || fs::read_to_string(folder.path().join("gputune.toml")).unwrap();
    let output = gputune(&["init", "--yes", "--", "python3", "train.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = spec();
    assert!(text.contains("\"train.py\", \"--nw\", \"{workers}\"]"), "{text}");
    assert!(text.contains("{ values = [3, 6, 12, 24, 48, 96, 192], apply = \"env.HOW_MANY\" }"), "{text}");
    assert!(text.contains("preset pytorch"), "{text}");
    // What the shell script exports wins over what gputune would set, so that the adapter sets it.
    let output = gputune(&["init", "--yes", "--fresh", "--", "sh", "train.sh"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = spec();
    assert!(text.contains("\"--nw\"") && text.contains("160, 320], apply = \"dataloader.batch_size\""), "{text}");
    let probe =
        gputune(&["probe", "gputune.toml", "--json", "--quiet", "--set", "batch_size=40", "--set", "workers=1"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&probe)).unwrap();
    let samples = find(&json, "samples_per_step").and_then(serde_json::Value::as_f64);
    assert_eq!(samples, Some(40.0), "{}{}", stderr(&probe), stdout(&probe));
}

#[test]
fn keras_on_torch_is_a_job_of_torch() {
    let Some(python) = python_with(&["torch", "keras"]) else { return };
    let (folder, gputune) = with_package(&python, &[("train.py", KERAS)]);
    let output = gputune(&["init", "--yes", "train.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = fs::read_to_string(folder.path().join("gputune.toml")).unwrap();
    assert!(text.contains("{ powers_of_two = [4, 256], apply = \"dataloader.batch_size\" }"), "{text}");
    let probe = gputune(&["probe", "gputune.toml", "--json", "--quiet", "--set", "batch_size=32"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&probe)).unwrap();
    let samples = find(&json, "samples_per_step").and_then(serde_json::Value::as_f64);
    assert_eq!(samples, Some(32.0), "{}{}", stderr(&probe), stdout(&probe));
}

#[test]
fn keras_on_jax_is_set_in_fit() {
    let Some(python) = python_with(&["jax", "keras"]) else { return };
    let script = KERAS.replace("\"torch\"", "\"jax\"");
    let (folder, gputune) = with_package(&python, &[("train.py", script.as_str())]);
    let output = gputune(&["init", "--yes", "train.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = fs::read_to_string(folder.path().join("gputune.toml")).unwrap();
    assert!(text.contains("{ powers_of_two = [4, 256], apply = \"keras.batch_size\" }"), "{text}");
    assert!(text.contains("\"keras.steps_per_execution\"") && !text.contains("keras.jit_compile"), "{text}");
    let set = ["--set", "batch_size=32", "--set", "steps_per_execution=8"];
    let probe = gputune(&[&["probe", "gputune.toml", "--json", "--quiet"], &set[..]].concat());
    let json: serde_json::Value = serde_json::from_str(&stdout(&probe)).unwrap();
    let samples = find(&json, "samples_per_step").and_then(serde_json::Value::as_f64);
    assert_eq!(samples, Some(256.0), "{}{}", stderr(&probe), stdout(&probe));
}
