//! Several configs in one training process, through the real binary, with the real torch.

use std::fs;
use std::path::Path;

use gputune::model::{Line, Outcome, Purpose};

use crate::support::python::{Python, python_with};
use crate::support::{Search, stderr};

/// A job with an option for its batch size. HIDDEN=1 has a state of the batch's size, so that another batch fails during
/// training. SLOW=1 gets slower with each change of the loader; only a new process undoes that.
const JOB: &str = r#"
import argparse, os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
args = parser.parse_args()
print("started with", args.batch, flush=True)
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(65536, 8)), args.batch, shuffle=True)
hidden = torch.zeros(args.batch if os.environ.get("HIDDEN") else 1, 1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
while True:
    for (batch,) in loader:
        optimizer.zero_grad()
        (model(batch) + hidden).square().mean().backward()
        is_other = len(batch) != args.batch
        # Most of a step is sleep, which other programs hardly make longer.
        time.sleep(0.04 if os.environ.get("SLOW") and is_other else 0.01)
        optimizer.step()
"#;

const LIMITS: &str =
    "[limits]\nprobe_time = \"60s\"\nmeasure_time = \"1s\"\n[search]\nrounds = 8\nstrategy = \"grid\"\n";
const BATCH: &str = "batch = { values = [4, 8, 16, 32], apply = \"dataloader.batch_size\", argument = \"--batch\" }\n";

fn torch() -> Option<Python> {
    python_with(&["torch"])
}

fn search(python: &Path, step: &str, space: &str) -> Search {
    search_by("live", python, step, space)
}

fn search_by(start: &str, python: &Path, step: &str, space: &str) -> Search {
    let words = [python.display().to_string(), "job.py".to_owned()];
    let fused = if space.contains("fused") { "fused = false\n" } else { "" };
    let baseline = format!("[baseline]\nbatch = 8\n{fused}");
    let text = format!("adapter = \"torch\"\nstart = \"{start}\"\n{step}\n{LIMITS}[space]\n{space}{baseline}");
    let search = Search::of_command(&words, &text);
    fs::write(search.folder.path().join("job.py"), JOB).unwrap();
    search
}

/// Runs a search, and returns it with its standard error in one line. Searches again if a busy machine made the two ways to measure differ.
fn undisturbed(make: impl Fn() -> Search) -> (Search, String) {
    let searched = || {
        let search = make();
        let output = search.command().arg("-v").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (search, stderr(&output).split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let is_undisturbed = |(_, text): &(Search, String)| !text.contains("is no longer changed while a process trains");
    std::iter::repeat_with(searched).take(4).find(is_undisturbed).expect("a search that keeps its settings live")
}

fn batch(line: &Line) -> i64 {
    line.config.get("batch").and_then(|value| value.as_i64()).unwrap()
}

fn is_live(line: &Line) -> bool {
    line.outcome.measurement().is_some_and(|run| run.is_live)
}

#[test]
fn configs_follow_each_other_in_one_process_and_the_last_rounds_have_others() {
    let Some(python) = torch() else { return };
    let (search, text) = undisturbed(|| search(&python, "", BATCH));
    let lines = search.lines();
    let (live, others): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(|line| is_live(line));
    let searched = live.iter().filter(|line| line.purpose == Purpose::Search);
    assert_eq!(searched.count(), 3, "{text}");
    assert!(others.iter().any(|line| line.purpose == Purpose::Round), "the last rounds have processes of their own");
    for line in &lines {
        let run = line.outcome.measurement().unwrap();
        assert_eq!(run.timing.samples_per_step, Some(batch(line) as f64));
        assert_eq!(run.first_losses.is_empty(), is_live(line));
    }
    assert!(text.contains("3 probes were measured in"), "{text}");
    assert!(text.contains("job.py --batch "), "what is written for the user has the option: {text}");
    let log = fs::read_to_string(search.out().join("logs/0001.log")).unwrap();
    assert_eq!(log.matches("started with 8").count(), 1);
}

/// On a CPU, the C library keeps memory of one config that makes the next config faster.
#[test]
fn on_a_processor_nothing_is_live_unless_it_is_asked_for() {
    let Some(python) = torch() else { return };
    let search = search_by("auto", &python, "", &BATCH.replace("4, 8, 16, 32", "8, 16"));
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!search.lines().iter().any(is_live), "{}", stderr(&output));
}

#[test]
fn a_config_that_fails_only_while_it_trains_on_is_measured_in_a_process_and_its_setting_closed() {
    let Some(python) = torch() else { return };
    let search = search(&python, "env = { HIDDEN = \"1\" }", BATCH);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    assert!(lines.iter().all(|line| matches!(line.outcome, Outcome::Measured(_))), "{lines:?}");
    assert!(!lines.iter().any(is_live));
    let text = stderr(&output);
    assert_eq!(text.matches("`batch` is no longer changed while a process trains").count(), 1, "{text}");
    assert!(text.contains("but not in a separate process"), "{text}");
}

#[test]
fn a_setting_that_measures_otherwise_while_it_trains_on_is_closed_and_said() {
    let Some(python) = torch() else { return };
    let search = search(&python, "env = { SLOW = \"1\" }", BATCH);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("`batch` is no longer changed while a process trains: probe "), "{text}");
    assert!(text.contains("% against a separate process"), "{text}");
}

#[test]
fn what_needs_a_process_gets_one_and_comes_together() {
    let Some(python) = torch() else { return };
    let fused = "fused = { values = [false, true], apply = \"torch.fused_optimizer\" }\n";
    let (search, _) = undisturbed(|| search(&python, "", &format!("{BATCH}{fused}")));
    let searched: Vec<bool> = search.lines().iter().filter(|line| !line.purpose.is_repeated()).map(is_live).collect();
    assert_eq!(searched.len(), 8);
    assert_eq!(searched[..4], [false, true, true, true], "one process has all that needs no other: {searched:?}");
}
