//! Settings that reach a script through the hook, through the real binary: the files for the hook, its required reports, the end
//! of the run, and the reporter. A Rust step plays the hook; the real hook runs if torch is installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::python::{python_with, python_with_old_torch};
use crate::support::{self, Search, stderr, stdout};
use gputune::model::Outcome;
use gputune::probe::adapter::{FILES, TARGETS, Target};

const ADAPTER: &str = "adapter = \"torch\"\n";
const HELLO: &str = "send:{\"event\":\"hello\",\"framework\":\"torch 2\",\"rank\":0,\"ranks\":1,\"orders\":true}";
const WORKERS: &str = "[space]\nx = { values = [1, 2], apply = \"dataloader.num_workers\" }\n";
const SHORT: &str =
    "[limits]\nprobe_time = \"20s\"\nstall_time = \"10s\"\ngrace_time = \"500ms\"\nmeasure_time = \"300ms\"\n";

fn first(search: &Search) -> Outcome {
    search.lines().first().map(|line| line.outcome.clone()).unwrap_or(Outcome::Interrupted)
}

fn reason(outcome: &Outcome) -> String {
    outcome.failure().map(|failure| failure.reason.clone()).unwrap_or_default()
}

fn log(search: &Search) -> String {
    fs::read_to_string(search.out().join("logs/0001.log")).unwrap()
}

fn hello(rank: u32, ranks: u32) -> String {
    format!("send:{{\"event\":\"hello\",\"rank\":{rank},\"ranks\":{ranks},\"orders\":true}}")
}

#[test]
fn variables_and_arguments_need_no_adapter() {
    let search = Search::of(&[], "");
    let child = support::child();
    let script = "echo \"$OMP_NUM_THREADS|$PYTORCH_CUDA_ALLOC_CONF|$PYTORCH_ALLOC_CONF\"; \
                  echo \"$NCCL_MIN_CTAS|$NCCL_MAX_CTAS|$*\"; exec \"$CHILD\" steps:400:1:1000";
    let space = "[space]\nthreads = { values = [3], apply = \"env.OMP_NUM_THREADS\" }\n\
                 memory = { values = [\"expandable-segments\"], apply = \"torch.allocator\" }\n\
                 channels = { values = [8], apply = \"nccl.channels\" }\n\
                 scale = { values = [0.5], apply = \"arg\" }\n\
                 amp = { values = [true], apply = \"arg\" }\n\
                 quiet = { values = [false], apply = \"arg\" }\n\
                 absent = { values = [1], when = \"threads > 3\", apply = \"arg\" }\n";
    let command = serde_json::to_string(&["sh", "-c", script, "sh"]).unwrap();
    let env = format!("env = {{ CHILD = \"{}\" }}\n", child.display());
    let text = format!("[step]\ncommand = {command}\n{env}{space}[search]\nas_it_is = false\nrounds = 0\n");
    fs::write(search.folder.path().join("spec.toml"), text).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(log(&search), "3|expandable_segments:True|expandable_segments:True\n8|8|--scale 0.5 --amp\n");
    let command = search.best()["command"].as_str().unwrap().to_owned();
    assert!(search.best()["applied"].is_null());
    assert!(command.contains("OMP_NUM_THREADS=3") && command.ends_with("--scale 0.5 --amp"), "{command}");
}

#[test]
fn the_hook_is_laid_down_first_on_the_path_and_goes_with_the_probe() {
    let script = "echo $PYTHONPATH; cd \"${PYTHONPATH%%:*}\"; pwd; find . -type f | sort; cat probe.json; exit 3";
    let search = Search::of(&[], "");
    let command = serde_json::to_string(&["sh", "-c", script]).unwrap();
    let space = "[space]\nx = { values = [2], apply = \"dataloader.num_workers\" }\n\
                 threads = { values = [3], apply = \"env.OMP_NUM_THREADS\" }\n\
                 absent = { values = [1], when = \"x > 3\", apply = \"dataloader.prefetch_factor\" }\n";
    let text = format!(
        "[step]\ncommand = {command}\n{ADAPTER}env = {{ PYTHONPATH = \"/theirs:/too\" }}\n{space}[search]\nas_it_is = false\nseed = 7\n"
    );
    fs::write(search.folder.path().join("spec.toml"), text).unwrap();
    search.run();
    let log = log(&search);
    let mut lines = log.lines();
    let (path, folder) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(path, format!("{folder}:/theirs:/too"));
    let found: BTreeSet<&str> = lines.clone().filter_map(|line| line.strip_prefix("./")).collect();
    let distribution = format!("gputune_hook-{}.dist-info", env!("CARGO_PKG_VERSION"));
    let others = ["METADATA", "entry_points.txt"].map(|name| format!("{distribution}/{name}"));
    let installed = FILES.iter().map(|(path, _)| path.strip_prefix("hook/").unwrap_or(path));
    let expected = installed.filter(|path| *path != "entry_points.txt").chain(["probe.json"]);
    assert_eq!(found, expected.chain(others.iter().map(String::as_str)).collect());
    let probe: serde_json::Value = serde_json::from_str(lines.next_back().unwrap()).unwrap();
    let apply = serde_json::json!({ "dataloader.num_workers": { "parameter": "x", "value": 2 } });
    assert_eq!(probe["apply"], apply);
    assert_eq!((&probe["version"], &probe["trial"], &probe["seed"]), (&1.into(), &1.into(), &7.into()));
    assert_eq!((&probe["adapter"], &probe["config"]["threads"]), (&"torch".into(), &3.into()));
    assert!(probe["socket"].as_str().unwrap().starts_with(Path::new(folder).parent().unwrap().to_str().unwrap()));
    assert!(!Path::new(folder).exists(), "it goes with the probe");
}

#[test]
fn a_setting_must_take_effect() {
    let applied = "send:{\"event\":\"applied\",\"target\":\"dataloader.num_workers\"}";
    let search = Search::of(&[HELLO, applied, "steps:400:{x}:1000"], &format!("{ADAPTER}{WORKERS}{SHORT}"));
    let output = search.run();
    assert!(matches!(first(&search), Outcome::Measured(_)), "{:?} {}", first(&search), stderr(&output));
    assert_eq!(first(&search).measurement().unwrap().ranks, Some(1));
    assert!(search.best()["applied"]["dataloader.num_workers"].is_i64(), "the command does not set it");

    let search = Search::of(&[HELLO, "steps:400:{x}:1000"], &format!("{ADAPTER}{WORKERS}{SHORT}"));
    search.run();
    assert!(matches!(first(&search), Outcome::Rejected(_)), "{:?}", first(&search));
    assert_eq!(reason(&first(&search)), "`x` had no effect: nothing says that `dataloader.num_workers` was applied");

    let error = "send:{\"event\":\"error\",\"kind\":\"not_applied\",\"message\":\"x: no DataLoader was built\"}";
    let search = Search::of(&[HELLO, "steps:3:{x}:1000", error, "exit:1"], &format!("{ADAPTER}{WORKERS}{SHORT}"));
    search.run();
    assert!(matches!(first(&search), Outcome::Rejected(_)), "{:?}", first(&search));
    assert_eq!(reason(&first(&search)), "x: no DataLoader was built");
}

#[test]
fn a_hook_that_is_never_heard_is_told_of() {
    let search = Search::of(&["exit:0"], &format!("{ADAPTER}{WORKERS}{SHORT}"));
    search.run();
    let reason_of_exit = reason(&first(&search));
    assert!(reason_of_exit.starts_with("ended with exit code 0 before a step was seen; the adapter `torch` was never"));
    assert!(reason_of_exit.contains("`python -I`"), "{reason_of_exit}");

    let search = Search::of(&["complain:KeyError: 'x'", "exit:1"], &format!("{ADAPTER}{WORKERS}{SHORT}"));
    search.run();
    assert_eq!(reason(&first(&search)), "exit code 1: KeyError: 'x'", "the error says it all");

    let pattern = "throughput = { pattern = '([0-9.]+) it/s', unit = \"it/s\" }\nsamples_per_step = 8\n";
    let search = Search::of(&["print:50.0 it/s", "exit:0"], &format!("{ADAPTER}{pattern}{WORKERS}{SHORT}"));
    search.run();
    assert!(matches!(first(&search), Outcome::Rejected(_)), "{:?}", first(&search));
    assert!(reason(&first(&search)).starts_with("no setting took effect: the adapter `torch` was never heard"));
}

#[test]
fn a_step_that_reads_orders_ends_by_itself() {
    let script = [HELLO, "ignore-term", "steps:500:{x}:1000", "await-order", "print:in order", "exit:0"];
    let limits = SHORT.replace("500ms", "300s");
    let search = Search::of(&script, &limits);
    let begin = Instant::now();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(log(&search), "order: {\"order\":\"stop\"}\nin order\n");
    assert!(begin.elapsed() < Duration::from_secs(250), "nothing waits for the grace time to pass");
    search.assert_no_survivors();
}

#[test]
fn a_step_that_does_not_heed_the_order_is_ended() {
    let search = Search::of(&[HELLO, "ignore-term", "forever:{x}:1000"], SHORT);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(matches!(first(&search), Outcome::Measured(_)));
    search.assert_no_survivors();
}

#[test]
fn the_wrong_number_of_processes_is_a_crash() {
    let two = [hello(0, 2), "on:1".to_owned(), hello(1, 2), "on:0".to_owned(), "forever:1:1000".to_owned()];
    let two: Vec<&str> = two.iter().map(String::as_str).collect();
    for (ranks, expected) in [
        ("ranks = 2\n", None),
        ("ranks = \"x + 1\"\n", None),
        ("ranks = 1\n", Some("2 processes reported, 1 were to (ranks = 1)")),
        ("ranks = 4\n", Some("2 processes reported, 4 were to (ranks = 4)")),
    ] {
        let rest = "[baseline]\nx = 1\n[search]\nprobes = 1\nrounds = 0\n";
        let search = Search::of(&two, &format!("{ranks}{SHORT}{rest}"));
        search.run();
        match (first(&search), expected) {
            (Outcome::Measured(measurement), None) => assert_eq!(measurement.ranks, Some(2)),
            (Outcome::Crashed(failure), Some(expected)) => assert_eq!(failure.reason, expected),
            (outcome, _) => panic!("{ranks}: {outcome:?}"),
        }
        search.assert_no_survivors();
    }
}

#[test]
fn with_an_adapter_every_process_of_the_job_reports() {
    let hello = hello(0, 2);
    let search = Search::of(&[&hello, "forever:{x}:1000"], &format!("{ADAPTER}{SHORT}[search]\nprobes = 1\n"));
    search.run();
    assert!(matches!(first(&search), Outcome::Crashed(_)), "{:?}", first(&search));
    assert_eq!(reason(&first(&search)), "1 process reported, and the job has 2");
}

#[test]
fn a_rank_that_dies_while_the_others_wait_is_told_of() {
    let script = [hello(0, 2), "on:1".to_owned(), hello(1, 2), "close".to_owned(), "on:0".to_owned()];
    let mut script: Vec<&str> = script.iter().map(String::as_str).collect();
    script.extend(["steps:1:1:1000", "sleep:60000"]);
    let search = Search::of(&script, &format!("{SHORT}[search]\nprobes = 1\n"));
    search.run();
    assert!(matches!(first(&search), Outcome::Crashed(_)), "{:?}", first(&search));
    assert_eq!(reason(&first(&search)), "rank 1 is gone (its connection closed) while the other ranks wait");

    let position = script.iter().position(|word| *word == "close").unwrap();
    script.insert(position, "send:{\"event\":\"bye\"}");
    script.splice(script.len() - 1.., ["sleep:2000", "steps:400:1:1000"]);
    let search = Search::of(&script, &format!("{SHORT}[search]\nprobes = 1\n"));
    search.run();
    assert!(matches!(first(&search), Outcome::Measured(_)), "{:?}", first(&search));
}

#[test]
fn memory_of_others_on_the_device_counts() {
    let memory = "send:{\"event\":\"memory\",\"allocated\":100,\"reserved\":300,\"other\":50,\"capacity\":1000}";
    let search = Search::of(&[memory, "steps:400:{x}:1000"], SHORT);
    search.run();
    assert_eq!(first(&search).measurement().unwrap().memory.peak_bytes, Some(350));
}

/// Returns all files below a folder of the source, relative to `python/`.
fn python_files(folder: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let mut open: Vec<PathBuf> = vec![root.join(folder)];
    let mut files = BTreeSet::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.extension().and_then(|extension| extension.to_str()) {
                _ if entry.is_dir() && !entry.ends_with("__pycache__") => open.push(entry),
                Some("py" | "typed" | "txt") => {
                    files.insert(entry.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
                _ => {}
            }
        }
    }
    files
}

#[test]
fn every_file_of_the_package_comes_along() {
    let listed: BTreeSet<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
    let folders = ["gputune", "hook"].map(python_files);
    assert_eq!(listed, folders.into_iter().flatten().collect());
}

/// Returns the line of a page's table about a target.
fn row<'p>(page: &'p str, target: &Target) -> &'p str {
    let start = format!("| `{}` |", target.shown_name());
    page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no row for {}", target.name))
}

#[test]
fn every_target_has_its_row_in_the_docs() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/adapters.md")).unwrap();
    for target in TARGETS {
        assert!(row(&page, target).contains(&target.accepts.words()), "docs/adapters.md: {}", target.name);
    }
}

/// A typical training script.
const SCRIPT: &str = r#"
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.full((16,), index / 1e6), index % 4


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    args = parser.parse_args()
    assert args.data == "imgs/"
    torch.manual_seed(0)
    loader = DataLoader(Numbers(), batch_size=4, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for samples, labels in loader:
        loss = nn.functional.cross_entropy(model(samples), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"#;

/// Searches the space of the issue's example, made small, with an unmodified script.
fn search_unmodified(python: &Path) {
    let search = Search::of(&[], "");
    let spec = format!(
        "[step]\ncommand = [\"{}\", \"train.py\", \"--data\", \"imgs/\"]\nadapter = \"torch\"\n\
         env = {{ OMP_NUM_THREADS = \"1\", ONEDNN_MAX_CPU_ISA = \"AVX512_CORE\" }}\n\
         [space]\n\
         batch_size = {{ powers_of_two = [8, 16], apply = \"dataloader.batch_size\" }}\n\
         workers = {{ range = [0, 1], apply = \"dataloader.num_workers\" }}\n\
         prefetch = {{ values = [3], apply = \"dataloader.prefetch_factor\" }}\n\
         precision = {{ values = [\"fp32\", \"bf16\"], apply = \"torch.precision\" }}\n\
         [limits]\nprobe_time = \"90s\"\nstall_time = \"60s\"\nmeasure_time = \"500ms\"\n\
         [search]\nstrategy = \"grid\"\nprobes = 5\nrounds = 0\n",
        python.display()
    );
    fs::write(search.folder.path().join("spec.toml"), spec).unwrap();
    fs::write(search.folder.path().join("train.py"), SCRIPT).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("batch_size = "), "{}", stdout(&output));
    let lines = search.lines();
    assert_eq!(lines.len(), 5);
    let used = &lines[0].config;
    assert!(lines[0].as_it_is.as_ref().is_some_and(gputune::model::Settings::is_empty), "{:?}", lines[0]);
    assert!(used.integer("batch_size").is_some() && used.integer("workers").is_some(), "what it used: {}", used.line());
    assert_eq!(used.text("precision"), Some("fp32"));
    for line in &lines[1..] {
        let Outcome::Measured(measurement) = &line.outcome else { panic!("{line:?} {}", stderr(&output)) };
        let batch_size = line.config.get("batch_size").unwrap().as_f64().unwrap();
        assert_eq!(measurement.timing.samples_per_step, Some(batch_size), "{measurement:?}");
        assert_eq!(measurement.first_losses.len(), 16);
        assert!(measurement.framework.as_ref().unwrap().starts_with("torch "), "{measurement:?}");
        assert!(measurement.phase_seconds.contains_key("data_wait"), "{measurement:?}");
    }
    search.assert_no_survivors();
}

#[test]
fn a_script_that_nobody_changed() {
    if let Some(python) = python_with(&["torch"]) {
        search_unmodified(&python);
    }
}

#[test]
fn a_script_that_nobody_changed_with_a_torch_that_loads_no_entry_points() {
    if let Some(python) = python_with_old_torch() {
        search_unmodified(&python);
    }
}
