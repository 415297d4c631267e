//! `gputune run` and the `next` line of a report: a script of plain PyTorch gets what the adapter sets.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::emit::{folder, searched, shell};
use crate::support::python::python_with;
use crate::support::{self, stdout};
use gputune::model::{Settings, Value};

/// Trains to its end, and prints what its loader and its model had. The second loader evaluates.
const SCRIPT: &str = r#"
import json, os, random, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 2)
        self.autocast = set()

    def forward(self, x):
        self.autocast.add(torch.is_autocast_enabled("cpu") and str(torch.get_autocast_dtype("cpu")))
        return self.inner(x)

def main():
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
    loader, test = DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=4)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    steps, workers = 0, set()
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        workers.update(worker.pid for worker in loader._iterator._workers)
        with torch.no_grad():
            sizes = {len(x) for x, _ in test}
    torch.save(net.state_dict(), "weights.pt")
    import gputune
    print(json.dumps({
        "batch": loader.batch_size, "workers": loader.num_workers, "persistent": loader.persistent_workers,
        "prefetch": loader.prefetch_factor, "pids": len(workers), "test": [sorted(sizes), test.num_workers],
        "autocast": sorted(net.autocast), "threads": torch.get_num_threads(), "steps": steps,
        "is_probe": gputune.is_probe(), "config": gputune.config(workers=0)["workers"], "argv": sys.argv[1:],
    }))

if __name__ == "__main__":
    main()
"#;

const SPEC: &str = r#"
[step]
command = ["python3", "train.py"]
adapter = "torch"
[space]
batch = { values = [4, 8], apply = "dataloader.batch_size" }
workers = { values = [0, 2], apply = "dataloader.num_workers" }
prefetch = { values = [2, 3], when = "workers > 0", apply = "dataloader.prefetch_factor" }
persistent = { values = [false, true], when = "workers > 0", apply = "dataloader.persistent_workers" }
precision = { values = ["fp32", "bf16"], apply = "torch.precision" }
threads = { values = [1, 2], apply = "env.OMP_NUM_THREADS" }
[baseline]
batch = 4
workers = 0
precision = "fp32"
threads = 2
"#;

fn set(folder: &Path) {
    let winner: Settings = [
        ("batch", Value::from(8)),
        ("workers", 2.into()),
        ("prefetch", 3.into()),
        ("persistent", true.into()),
        ("precision", "bf16".into()),
        ("threads", 1.into()),
    ]
    .into_iter()
    .collect();
    searched(folder, &winner, false);
}

#[test]
fn what_the_adapter_sets_arrives_in_a_run_to_its_end() {
    let Some(python) = python_with(&["torch"]) else { return };
    let folder = folder(&[("train.py", SCRIPT), ("gputune.toml", SPEC)]);
    set(folder.path());
    let mut report = Command::new(support::gputune());
    let report = stdout(&report.args(["report", "out"]).current_dir(folder.path()).output().unwrap());
    let next = report.lines().find_map(|line| line.strip_prefix("next ")).unwrap_or_else(|| panic!("{report}")).trim();
    assert_eq!(next, "gputune run out");
    let said = shell(folder.path(), &python, next);
    let wanted = serde_json::json!({
        "batch": 8, "workers": 2, "persistent": true, "prefetch": 3, "pids": 2, "test": [[4], 0],
        "autocast": ["torch.bfloat16"], "threads": 1, "steps": 16, "is_probe": false, "config": 2, "argv": [],
    });
    assert_eq!(said, wanted);
    assert!(folder.path().join("weights.pt").exists(), "its writes stay");
    let again = shell(folder.path(), &python, &format!("{next} -- python3 train.py --epochs 9"));
    assert_eq!((&again["argv"], &again["batch"]), (&serde_json::json!(["--epochs", "9"]), &8.into()));
    let laid = fs::read_dir(folder.path().join("out/run")).unwrap().count();
    assert_eq!(laid, 1, "both runs use the same hook");
}

#[test]
fn a_setting_without_effect_is_told_once_and_the_job_goes_on() {
    let Some(python) = python_with(&["torch"]) else { return };
    let script = "import torch\nw = torch.nn.Linear(2, 2)\no = torch.optim.SGD(w.parameters(), lr=0.1)\n\
                  for _ in range(4):\n    w(torch.randn(3, 2)).sum().backward()\n    o.step()\nprint('{\"end\": 1}')\n";
    let folder = folder(&[("train.py", script), ("gputune.toml", SPEC)]);
    set(folder.path());
    let said = shell(folder.path(), &python, "gputune run out 2>err");
    assert_eq!(said["end"], 1);
    let told = fs::read_to_string(folder.path().join("err")).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.starts_with("gputune: the best config is not applied in full: batch (dataloader.batch_size), "),
        "{told}"
    );
}
