//! Settings that no option of the script sets: files at fixed paths, variables, constants and defaults in the code.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::UNIX_EPOCH;

use crate::support::python::python_with;
use crate::support::{self, stderr, stdout};

/// Trains without a `DataLoader`, with batches of `size` samples.
const LOOP: &str = r#"
x, y = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    for at in range(0, len(x) - size + 1, size):
        loss = torch.nn.functional.cross_entropy(model(x[at:at + size]), y[at:at + size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"#;

/// Trains with the `DataLoader` that `made(data)` makes.
const LOADER: &str = r#"
def main():
    loader = made(torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,))))
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"#;

/// A place of settings.
struct Case {
    /// The code in front of the loop.
    code: &'static str,
    rest: &'static str,
    /// The settings file: its name and text.
    file: Option<(&'static str, &'static str)>,
    /// What the spec has.
    spec: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        code: "import torch, yaml\nsize = yaml.safe_load(open('config.yaml'))['data']['batch_size']\n",
        rest: LOOP,
        file: Some(("config.yaml", "data:\n  batch_size: 16  # samples\nval:\n  batch_size: 8\n")),
        spec: &["replaces = \"config.yaml\"", "batch_size = 16 # config.yaml"],
    },
    Case {
        code: "import pathlib, random, tomllib, torch\n\
               config = tomllib.loads((pathlib.Path(__file__).parent / 'config.toml').read_text())['train']\n\
               def batches(data):\n    while True:\n        yield random.sample(range(len(data)), config['bs'])\n\
               def made(data):\n    return torch.utils.data.DataLoader(data, batch_sampler=batches(data), num_workers=config['nw'])\n",
        rest: LOADER,
        file: Some(("config.toml", "[train]\nbs = 16\nnw = 0\n[eval]\nbs = 4\n")),
        // The adapter can set the workers of a loader, but not the batches that a sampler makes.
        spec: &["replaces = \"config.toml\"", "batch_size = 16 # config.toml", "apply = \"dataloader.num_workers\""],
    },
    Case {
        // A second run shows which of two numbers with the value of a step's samples sets it.
        code: "import torch, yaml\nsize = yaml.safe_load(open('config.yaml'))['imgs_per_step']\n",
        rest: LOOP,
        file: Some(("config.yaml", "width: 16\nimgs_per_step: 16\n")),
        spec: &["replaces = \"config.yaml\"", "batch_size = 16 # config.yaml"],
    },
    Case {
        code: "import argparse, json, torch\nparser = argparse.ArgumentParser()\n\
               parser.add_argument('--config', default='config.json')\n\
               config = json.load(open(parser.parse_args().config))\n\
               def made(data):\n    size, count = config['per_gpu_batch'], config['nproc_loader']\n    \
               return torch.utils.data.DataLoader(data, size, num_workers=count)\n",
        rest: LOADER,
        file: Some(("config.json", "{\"per_gpu_batch\": 16, \"nproc_loader\": 2, \"heads\": 2}\n")),
        spec: &["{probe_dir}/config.json", "batch_size = 16 # config.json", "workers = 2 # config.json"],
    },
    Case {
        // Of two variables with the value of a step's samples, further runs show which of them sets it. The script fails if the
        // other one changes.
        code: "import os, torch\nsize, layers = int(os.environ.get('PER_STEP', '16')), os.environ.get('LAYERS', '16')\n\
               assert layers == '16'\n",
        rest: LOOP,
        file: None,
        spec: &["apply = \"env.PER_STEP\""],
    },
    Case {
        code: "import os, torch\nsize = int(os.getenv('BATCH_SIZE') or 16)\nint(os.environ.get('BATCH_SIZE', '16'))\n",
        rest: LOOP,
        file: None,
        spec: &["apply = \"env.BATCH_SIZE\""],
    },
    Case {
        code: "import dataclasses, torch\nNUM_WORKERS = 0\n@dataclasses.dataclass\nclass Config:\n    batch_size: int = 16\n\
               def made(data):\n    return torch.utils.data.DataLoader(data, Config().batch_size, num_workers=NUM_WORKERS)\n",
        rest: LOADER,
        file: None,
        spec: &[
            "apply = \"dataloader.batch_size\"",
            "apply = \"dataloader.num_workers\"",
            "batch_size         = { powers_of_two = [4, 256]",
        ],
    },
];

#[test]
fn settings_are_found_and_set_wherever_they_are() {
    let Some(python) = python_with(&["torch", "yaml", "tomllib"]) else { return };
    for Case { code, rest, file, spec } in CASES {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train.py"), format!("{code}{rest}")).unwrap();
        if let Some((name, text)) = file {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let gputune = |words: &[&str]| {
            let mut command = Command::new(support::gputune());
            command.args(words).current_dir(folder.path()).env_remove("BATCH_SIZE");
            command.env("OMP_NUM_THREADS", "1").env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE").output().unwrap()
        };
        let output = gputune(&["init", "--yes", "--", python.to_str().unwrap(), "train.py"]);
        assert_eq!(output.status.code(), Some(0), "{code}{}", stderr(&output));
        let text = fs::read_to_string(folder.path().join("gputune.toml")).unwrap();
        for words in *spec {
            assert!(text.contains(words), "{words}: {code}{text}{}", stderr(&output));
        }
        assert!(!text.contains("samples_per_step"), "the hook counts them: {code}{text}");
        let probe = gputune(&["probe", "gputune.toml", "--json", "--quiet", "--set", "batch_size=32"]);
        assert_eq!(samples(&probe.stdout), Some(32.0), "{code}{}{}", stderr(&probe), stdout(&probe));
        if let Some((name, text)) = file {
            assert_eq!(fs::read_to_string(folder.path().join(Path::new(name))).unwrap(), *text);
        }
    }
}

#[test]
fn the_first_run_measures_the_baseline() {
    let Some(python) = python_with(&["torch"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let made = "import torch\ndef made(data):\n    return torch.utils.data.DataLoader(data, batch_size=16)\n";
    fs::write(folder.path().join("train.py"), made.to_owned() + LOADER).unwrap();
    let mut command = Command::new(support::gputune());
    command.args(["tune", "--time", "170s", "--probes", "2", "--", python.to_str().unwrap(), "train.py"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let out = folder.path().join("gputune-out/train");
    let journal = fs::read_to_string(out.join("journal.jsonl")).unwrap();
    let trials: Vec<serde_json::Value> =
        journal.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&trials[0]["purpose"], &trials[0]["config"]["batch_size"]),
        (&"baseline".into(), &16.into()),
        "{journal}"
    );
    assert!(trials[0]["spent"]["measuring_s"].as_f64().unwrap() < 2.0, "{}", trials[0]);
    // The baseline has no process of its own: it is there sooner than a process could import torch.
    let begin = fs::metadata(out.join("gputune.toml")).unwrap().modified().unwrap();
    let begin = begin.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let took = trials[0]["ended_at"].as_f64().unwrap() - begin;
    assert!(took < trials[0]["spent"]["importing_s"].as_f64().unwrap(), "{took} s: {journal}{}", stderr(&output));
    // A search that goes on does not take it again.
    let mut again = Command::new(support::gputune());
    let again = again.args(["search", "--probes", "2"]).arg(out.join("gputune.toml")).output().unwrap();
    let after = fs::read_to_string(out.join("journal.jsonl")).unwrap();
    let is_baseline = |line: &&str| line.contains("\"purpose\":\"baseline\"");
    // A trial that learned its epoch's end is written once more.
    let is_first = |line: &str| line.starts_with("{\"trial\":1,");
    assert!(after.lines().filter(is_baseline).all(is_first), "{after}{}", stderr(&again));
}

/// Returns the samples of a step in the JSON of a probe.
fn samples(json: &[u8]) -> Option<f64> {
    let text = String::from_utf8_lossy(json);
    let after = text.split("\"samples_per_step\":").nth(1)?;
    after.split([',', '}', '\n']).next()?.trim().parse().ok()
}

#[test]
fn the_lines_to_add_name_the_loader_that_the_first_run_saw() {
    let Some(python) = python_with(&["torch"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "import time, torch\nfrom torch.utils.data import DataLoader, TensorDataset\n\ndef main():\n    \
                  data = TensorDataset(torch.zeros(4096, 4))\n    \
                  loader = DataLoader(data, batch_size=24, num_workers=1)\n    while True:\n        \
                  for batch in loader:\n            time.sleep(0.005)\n\nmain()\n";
    let path = folder.path().join("train.py");
    fs::write(&path, script).unwrap();
    let gputune =
        |words: &[&str]| Command::new(support::gputune()).args(words).current_dir(folder.path()).output().unwrap();
    // gputune sees no step of a framework that has no adapter.
    let init = ["init", "--yes", "--preset", "jax", "--time", "20s", "--", python.to_str().unwrap(), "train.py"];
    let output = gputune(&init);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let lines = support::lines_to_add(&stderr(&output));
    let expected = [
        ("import gputune", "at the top of train.py"),
        ("settings = gputune.config(batch_size=24, workers=1)", "before train.py:6"),
        (
            "batch_size=settings[\"batch_size\"], num_workers=settings[\"workers\"]",
            "arguments of the DataLoader in train.py:6",
        ),
        ("gputune.step(samples=settings[\"batch_size\"])", "at the end of each training step"),
    ];
    assert_eq!(lines, expected.map(|(code, place)| (code.to_owned(), place.to_owned())), "{}", stderr(&output));
    let [import, settings, arguments, step] = expected.map(|(code, _)| code);
    let pasted = script.replace("batch_size=24, num_workers=1", arguments);
    let pasted = pasted.replace("    loader =", &format!("    {settings}\n    loader ="));
    let pasted = pasted.replace("sleep(0.005)", &format!("sleep(0.005)\n            {step}"));
    fs::write(&path, format!("{import}\n{pasted}")).unwrap();
    let output = gputune(&init);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let probe = gputune(&["probe", "gputune.toml", "--json", "--quiet", "--set", "batch_size=48"]);
    assert_eq!(samples(&probe.stdout), Some(48.0), "{}{}", stderr(&probe), stdout(&probe));
}
