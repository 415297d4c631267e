//! The real binary runs typical scripts that write files; afterwards the folder is unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::python::python_with;
use crate::support::{Search, gputune, stderr};
use gputune::model::Outcome;

/// A search over two configs of a script of `tests/wild`, in a folder with files of an earlier run.
struct Wild {
    search: Search,
    script: &'static str,
}

impl Wild {
    fn of(script: &'static str, python: &Path, writes: &str) -> Self {
        let words = [python.display().to_string(), format!("{script}.py")];
        let rate = "throughput = { pattern = '([0-9.]+) samples/s', unit = \"samples/s\" }";
        let step = format!("{rate}\nadapter = \"torch\"\nwrites = \"{writes}\"\n");
        let search = Search::of_command(&words, &step);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/wild/{script}.py"));
        fs::copy(source, search.folder.path().join(format!("{script}.py"))).unwrap();
        for (path, text) in EARLIER {
            let path = search.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink("run-1", search.folder.path().join("tracker/latest-run")).unwrap();
        Self { search, script }
    }

    /// Asserts that two probes measured, and that only gputune's own folder is new.
    fn leaves_all_as_it_was(&self) {
        let before = digest(self.search.folder.path());
        let output = self.search.run();
        assert_eq!(output.status.code(), Some(0), "{}: {}", self.script, stderr(&output));
        let mut after = digest(self.search.folder.path());
        after.retain(|path, _| !path.starts_with("out/") || before.contains_key(path));
        assert_eq!(after, before, "{}", self.script);
        let lines = self.search.lines();
        assert_eq!(lines.len(), 2, "{}", self.script);
        for line in lines {
            assert!(matches!(line.outcome, Outcome::Measured(_)), "{}: {:?}", self.script, line.outcome);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.search.out().join("logs/0001.log")).unwrap()
    }
}

/// Rotated checkpoints, overwritten models, and folders of loggers.
const SCRIPTS: [&str; 3] = ["rotation", "overwritten", "loggers"];

/// The files of an earlier run.
const EARLIER: &[(&str, &str)] = &[
    ("saved/checkpoint-1/weights.pkl", "(lp0\nF0.0\na."), // a list with a number in it, as pickle writes it
    ("saved/checkpoint-1/state.json", "{\"step\": 1}"),
    ("saved/checkpoint-3/weights.pkl", "(lp0\nF0.0\na."),
    ("saved/checkpoint-3/state.json", "{\"step\": 3}"),
    ("result/ckpt.pt", "the best so far"),
    ("model.pt", "the model of last week"),
    ("log.txt", "1\n2\n"),
    ("best.txt", "12345678"),
    ("stale.pt", "not so stale"),
    ("lightning_logs/version_0/metrics.csv", "1,1\n"),
    ("lightning_logs/version_7/metrics.csv", "1,1\n"),
    ("runs/Jan01_00-00-00/events.out.1", "events"),
    ("tracker/run-1/history.jsonl", "{}\n"),
];

/// Returns everything below a folder, by path: kind and mode, and the content of files.
fn digest(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if metadata.is_file() {
                fs::read(&path).unwrap()
            } else {
                folders.push(path.clone());
                Vec::new()
            };
            let name = path.strip_prefix(root).unwrap().to_owned();
            if name != Path::new("out") {
                found.insert(name, (metadata.mode(), content));
            }
        }
    }
    found
}

#[test]
fn a_guarded_script_changes_nothing() {
    let Some(python) = python_with(&[]) else { return };
    for script in SCRIPTS {
        Wild::of(script, &python, "guard").leaves_all_as_it_was();
    }
}

#[test]
fn in_a_scratch_layer_a_script_changes_nothing() {
    let Some(python) = python_with(&[]) else { return };
    for script in SCRIPTS {
        let wild = Wild::of(script, &python, "scratch");
        let check =
            Command::new(gputune()).args(["check", "spec.toml"]).current_dir(wild.search.folder.path()).output();
        if !check.unwrap().status.success() {
            eprintln!("skipped: there can be no scratch layer here");
            return;
        }
        wild.leaves_all_as_it_was();
    }
}

#[test]
fn the_same_scripts_without_a_guard_do_change_files() {
    let Some(python) = python_with(&[]) else { return };
    for script in SCRIPTS {
        let wild = Wild::of(script, &python, "allow");
        let before = digest(wild.search.folder.path());
        let output = wild.search.run();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let after = digest(wild.search.folder.path());
        let lost = before.iter().filter(|(path, was)| after.get(*path) != Some(was)).count();
        assert!(lost > 0 || after.len() > before.len() + 2, "{script} changed nothing");
        assert!(wild.log().contains("samples/s"), "{}", wild.log());
    }
}
