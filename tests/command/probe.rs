//! `gputune probe`: one config through the real binary.

use std::process::Output;

use crate::support::{Search, gputune, stderr, stdout};

const SPACE: &str = "[space]\nbatch_size = { values = [8, 16] }\nworkers = { range = [0, 4] }\nprefetch = { values = [2, 4], when = \"workers > 0\" }\nmode = { values = [\"1\", \"2\"] }\n[[rules]]\nwhere = \"batch_size * workers <= 48\"\n[baseline]\nbatch_size = 8\nworkers = 2\nprefetch = 4\nmode = \"2\"\n";

fn probe(search: &Search, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(gputune());
    command.args(["probe", "spec.toml", "--out", "out"]).args(arguments).current_dir(search.folder.path());
    command.output().unwrap()
}

#[test]
fn it_probes_the_baseline_with_what_is_set_and_tells_everything() {
    let search = Search::of(&["print:{batch_size} {workers} {mode}", "forever:{batch_size}:500"], SPACE);
    let output = probe(&search, &["--set", "batch_size=16", "--set", "workers=0", "--set", "mode=1", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    // Without workers no prefetching happens, whatever the baseline says.
    assert_eq!(report["config"], serde_json::json!({ "batch_size": 16, "workers": 0, "mode": "1" }));
    assert_eq!((&report["outcome"], &report["feasible"]), (&"measured".into(), &true.into()));
    for key in ["throughput", "steps", "step_seconds", "host_peak_bytes", "elapsed_s", "log", "device"] {
        assert!(report.get(key).is_some(), "{key}");
    }
    let log = std::fs::read_to_string(report["log"].as_str().unwrap()).unwrap();
    assert!(log.contains("16 0 1"), "{log}");
}

#[test]
fn a_person_reads_lines() {
    let search = Search::of(&["forever:{batch_size}:500"], SPACE);
    let output = probe(&search, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for start in
        ["config      batch_size=8 workers=2 prefetch=4 mode=2\n", "outcome     measured\n", "throughput ", "log "]
    {
        assert!(text.lines().any(|line| format!("{line}\n").starts_with(start)), "{start:?} in {text}");
    }
}

#[test]
fn a_failure_is_told_with_its_last_lines() {
    let search = Search::of(&["print:last words", "exit:3"], SPACE);
    let output = probe(&search, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("outcome     crashed: exit code 3: last words\n"), "{text}");
    assert!(text.contains("  | last words\n"), "{text}");
}

#[test]
fn what_cannot_be_set_is_told_with_its_cure() {
    let search = Search::of(&["forever:8:500"], SPACE);
    for (set, message) in [
        (&["batchsize=8"][..], "the space has no parameter `batchsize`\n\nhint: did you mean `batch_size`?"),
        (&["batch_size=9"], "`batch_size` has no setting 9; it has 8, 16"),
        (&["batch_size"], "write NAME=VALUE, such as batch_size=64"),
        (&["workers=0", "prefetch=2"], "`prefetch` is not active here"),
        (&["workers=4", "batch_size=16"], "the rule `batch_size * workers <= 48` forbids it: workers=4 batch_size=16"),
        (&["workers=1", "workers=2"], "`workers` is set twice"),
    ] {
        let arguments: Vec<&str> = set.iter().flat_map(|set| ["--set", *set]).collect();
        let output = probe(&search, &arguments);
        assert_eq!(output.status.code(), Some(2), "{set:?}");
        let text = stderr(&output);
        assert!(text.contains(message), "{set:?}: {text}");
    }
}
