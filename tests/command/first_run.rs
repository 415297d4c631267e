//! The first run of `gputune init` and `gputune tune`: what a script opens, reads and imports, without a framework.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{self, stderr, stdout};
use gputune::model::{Settings, Value};
use gputune::spec::Spec;

/// A script with a file of settings, a variable and a printed rate. It writes a file, and starts a process that would stay.
const SCRIPT: &str = r#"
import argparse, json, os, subprocess, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="config.json")
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
config = json.load(open(args.config))
workers = int(os.environ.get("NUM_WORKERS", "2"))
open("trained", "w").close()
os.remove("kept.txt")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
for step in range(100000):
    time.sleep(0.005)
    print(f"{config['train']['batch_size'] / 0.005:.1f} samples/s", flush=True)
"#;

const CONFIG: &str = "{\n  \"train\": {\n    \"batch_size\": 24\n  },\n  \"eval\": {\n    \"batch_size\": 48\n  }\n}\n";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn gputune(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(support::gputune());
    command.args(words).current_dir(folder).env_remove("NUM_WORKERS").env("PYTHONPATH", folder.join("lib"));
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the processes whose working folder is this folder.
fn processes_in(folder: &Path) -> usize {
    let folder = folder.canonicalize().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder)).count()
}

#[test]
fn settings_in_a_file_and_a_variable_are_found_and_nothing_is_changed() {
    let folder = folder(&[("train.py", SCRIPT), ("config.json", CONFIG), ("kept.txt", "kept")]);
    let folder = folder.path();
    let output = gputune(folder, &["init", "--", "python3", "train.py", "--epochs", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("asking"), "the options are known: {}", stderr(&output));
    let mut left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["config.json", "gputune.config.json.in", "gputune.toml", "kept.txt", "train.py"]);
    assert_eq!(processes_in(folder), 0);
    let spec = Spec::load(&folder.join("gputune.toml")).unwrap();
    let settings = [("batch_size", Value::Int(48)), ("workers", Value::Int(0))];
    let settings: Settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let rendered = spec.step.template().render(&settings, Path::new("g"), Path::new("p"));
    assert_eq!(rendered.command, ["python3", "train.py", "--epochs", "3", "--config", "p/config.json"]);
    assert_eq!(rendered.files[0].1, CONFIG.replace("24", "48"), "the rest stays");
    let stated = spec.baseline.unwrap();
    assert_eq!(stated.get("batch_size").map(ToString::to_string).as_deref(), Some("24"));
    let text = fs::read_to_string(folder.join("gputune.toml")).unwrap();
    assert!(text.contains("apply = \"env.NUM_WORKERS\"") && text.contains("samples/s"), "{text}");
    assert!(!text.contains("eval"), "{text}");
    let probe = gputune(folder, &["probe", "gputune.toml", "--json", "--quiet", "--set", "batch_size=48"]);
    assert_eq!(probe.status.code(), Some(0), "{}{}", stderr(&probe), stdout(&probe));
}

#[test]
fn a_file_at_a_fixed_path_is_replaced_when_the_script_opens_it_and_variables_of_a_shell_script_stay() {
    let script = SCRIPT.replace("open(args.config)", "open('config.json')").replace("\"config.json\"", "None");
    let script = script
        .replace("time.sleep(600)", "pass")
        .replace("range(100000)", "range(int(os.environ.get('STEPS', '100000')))")
        .replace("/ 0.005:", "/ (0.005 + config['train']['batch_size'] / 20000):");
    let shell = "#!/bin/sh\nexport NUM_WORKERS=1\nexec python3 train.py \"$@\"\n";
    let folder = folder(&[("train.py", &script), ("config.json", CONFIG), ("kept.txt", "kept"), ("train.sh", shell)]);
    let output = gputune(folder.path(), &["init", "--", "sh", "train.sh"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let path = folder.path().join("gputune.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("path = \"config.json\", replaces = \"config.json\" }"), "{text}");
    assert!(text.contains("command = [\"sh\", \"train.sh\"]"), "{text}");
    assert!(text.contains("Not searched: workers, since the shell script sets NUM_WORKERS"), "{text}");
    // The largest batch is the fastest.
    let text = text.split("[limits]").next().unwrap().to_owned();
    fs::write(&path, text + "[limits]\nmeasure_time = \"300ms\"\n[search]\nprobes = 8\nrounds = 0\n").unwrap();
    let output = gputune(folder.path(), &["search", "gputune.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stderr(&output), stdout(&output));
    let summary = fs::read_to_string(folder.path().join("gputune-out/gputune/summary.md")).unwrap();
    let shown = stderr(&output) + &summary;
    let line = shown.lines().find(|line| line.contains("config.json:3: write: \"batch_size\": ")).unwrap_or(&shown);
    assert!(line.contains("(instead of \"batch_size\": 24)"), "{line}");
    assert!(shown.contains("gputune run ") && !shown.contains("GPUTUNE_REPLACED_FILES"), "{shown}");
    let batch: f64 = line.split("\"batch_size\": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(batch > 24.0, "{shown}");
    let mut command = Command::new(support::gputune());
    let output = command.args(["run"]).current_dir(folder.path()).env("STEPS", "2").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = format!("{:.1} samples/s", batch / (0.005 + batch / 20000.0));
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), [&expected; 2]);
    assert_eq!(fs::read_to_string(folder.path().join("config.json")).unwrap(), CONFIG);
    // A file that is gone is named by the spec.
    fs::remove_file(folder.path().join("config.json")).unwrap();
    let output = gputune(folder.path(), &["check", "gputune.toml"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("there is no file `config.json` to replace"), "{}", stderr(&output));
}

#[test]
fn a_setting_is_found_in_any_file_and_as_a_default_of_a_shell_script() {
    const LOOP: &str = "\nwhile True:\n    time.sleep(0.01)\n    print(f'{B / 0.01:.1f} samples/s', flush=True)\n";
    let json = "import json, time\nc = json.load(open('base.json'))\nc.update(json.load(open('exp.json')))\nB = c['batch_size']";
    let ini = "import configparser, time\nc = configparser.ConfigParser()\nc.read('train.ini')\n\
               B = c.getint('training', 'batch_size')";
    let environment = "import os, time\nB = int(os.environ['BATCH_SIZE'])";
    let settings = "{\"batch_size\": 16}";
    let sections = "[training]\nbatch_size = 16\n[validation]\nbatch_size = 32\n";
    let shell = "#!/bin/sh\nexport BATCH_SIZE=${BATCH_SIZE:-16}\nexec python3 train.py\n";
    let option = "import sys, time\nB = int(sys.argv[1])";
    let passes = "#!/bin/sh\nBATCH_SIZE=${BATCH_SIZE:-16}\nexec python3 train.py \"$BATCH_SIZE\"\n";
    for (code, files, words, expected) in [
        (
            json,
            &[("base.json", settings), ("exp.json", settings)][..],
            ["python3", "train.py"],
            "replaces = \"exp.json\"",
        ),
        (ini, &[("train.ini", sections)], ["python3", "train.py"], "replaces = \"train.ini\""),
        (environment, &[("train.sh", shell)], ["sh", "train.sh"], "apply = \"env.BATCH_SIZE\""),
        (option, &[("train.sh", passes)], ["sh", "train.sh"], "apply = \"env.BATCH_SIZE\""),
    ] {
        let script = format!("{code}{LOOP}");
        let folder = folder(&[&[("train.py", script.as_str())][..], files].concat());
        let output = gputune(folder.path(), &["init", "--", words[0], words[1]]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = fs::read_to_string(folder.path().join("gputune.toml")).unwrap();
        assert!(text.contains(expected) && !text.contains("base.json"), "{text}");
    }
}

#[test]
fn a_script_without_any_setting_gets_the_lines_to_add() {
    let folder = folder(&[("train.py", "import time\nBATCH_SIZE = 16\nwhile True:\n    time.sleep(1)\n")]);
    let output = gputune(folder.path(), &["init", "--", "python3", "train.py"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    for words in ["found no setting", "train.py:2 has `BATCH_SIZE = 16`", "import gputune", "gputune.step("] {
        assert!(stderr(&output).contains(words), "{words}: {}", stderr(&output));
    }
    assert!(!folder.path().join("gputune.toml").exists());
}

#[test]
fn an_installed_package_that_trains_with_torch_is_seen() {
    let folder = folder(&[("train.py", "from mytrainer import Model\n\nModel().train(batch=8)\n")]);
    let package = folder.path().join("lib/mytrainer");
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("__init__.py"), "from .loop import Model\n").unwrap();
    let text = "import torch\n\nclass Model:\n    def train(self, batch):\n        pass\n";
    fs::write(package.join("loop.py"), text).unwrap();
    let output = gputune(folder.path(), &["init", "--yes", "train.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let spec = fs::read_to_string(folder.path().join("gputune.toml")).unwrap();
    assert!(spec.contains("preset pytorch") && spec.contains("adapter = \"torch\""), "{spec}");
}
