//! The baseline is the unmodified job. A config is rejected unless its settings were applied.

use std::path::Path;
use std::process::Command;

use crate::support::{self, Search, stderr};

const LIMITS: &str =
    "[limits]\nprobe_time = \"40s\"\nstall_time = \"30s\"\nmeasure_time = \"400ms\"\ngrace_time = \"300ms\"\n";

/// A search over a job that reports its settings; `more` has the space and `[search]`.
fn search(options: &[&str], more: &str) -> Option<Search> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild/job.py");
    let mut words = vec!["python3".to_owned(), script.display().to_string()];
    words.extend(options.iter().map(|&word| word.to_owned()));
    Some(Search::of_command(&words, &format!("{more}{LIMITS}")))
}

const SPACE: &str = "[space]\nbatch_size = { values = [8, 16] }\nworkers = { values = [0, 2] }\n";
const OPTIONS: &[&str] = &["--batch-size", "{batch_size}", "--workers={workers}"];

#[test]
fn without_a_baseline_the_first_probe_sets_nothing_and_what_it_used_is_the_baseline() {
    let Some(search) = search(OPTIONS, &format!("{SPACE}[search]\nprobes = 3\nrounds = 1\nas_it_is = true\n")) else {
        return;
    };
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    assert!(lines[0].as_it_is.as_ref().is_some_and(gputune::model::Settings::is_empty));
    assert_eq!(lines[0].config.line(), "batch_size=24 workers=2", "the space has no 24");
    let log = std::fs::read_to_string(search.out().join("logs/0001.log")).unwrap();
    assert!(log.starts_with("used 24 2 fp32"), "{log}");
    let best = search.best();
    assert_eq!(best["baseline"]["config"], serde_json::json!({ "batch_size": 24, "workers": 2 }));
    assert!(["faster", "unproven", "tied_with_baseline"].contains(&best["verdict"].as_str().unwrap()), "{best}");
    // The figures show a setting that the job used, even if the space lacks it.
    let page = std::fs::read_to_string(search.out().join("report.html")).unwrap();
    assert!(page.contains("at each batch_size: ") && !page.contains("not use batch_size"));
    // A second run continues from the journal, and a report reads it.
    assert_eq!(search.run().status.code(), Some(0));
    let report = Command::new(support::gputune()).args(["report", "out"]).current_dir(search.folder.path()).output();
    assert!(report.unwrap().status.success());
}

#[test]
fn the_size_that_the_job_has_already_may_be_set_too() {
    let space = "[space]\nbatch_size = { values = [24] }\nworkers = { values = [0, 2] }\n";
    let Some(search) = search(OPTIONS, &format!("{space}[search]\nrounds = 0\nas_it_is = true\n")) else {
        return;
    };
    let output = search.run();
    // The job's present settings are not probed again.
    assert_eq!(search.lines().len(), 2);
    for line in search.lines() {
        assert_eq!(line.outcome.name(), "measured", "{:?} {}", line.outcome, stderr(&output));
    }
}

#[test]
fn the_baseline_stays_where_nothing_is_faster_and_what_is_printed_runs_it() {
    // The job takes at most as many samples as it does today, and reports the number.
    let Some(search) = search(
        &["--clamp", "24", "--batch-size", "{batch_size}"],
        "[space]\nbatch_size = { values = [6, 48] }\n[search]\nprobes = 3\nrounds = 1\nas_it_is = true\n",
    ) else {
        return;
    };
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    let clamped = lines.iter().find(|line| line.config.integer("batch_size") == Some(48)).unwrap();
    let reason = &clamped.outcome.failure().unwrap().reason;
    assert_eq!(reason, "`batch_size` was set to 48, the script trains with 24 (loader.batch_size)");
    let best = search.best();
    assert_eq!(best["verdict"], "tied_with_baseline");
    assert_eq!(best["as_it_is"], serde_json::json!({}));
    assert!(best["command"].as_str().unwrap().ends_with("job.py --clamp 24"), "{}", best["command"]);
    assert!(
        stderr(&output).contains("baseline  stays: no config is faster beyond the noise (2 of 2"),
        "{}",
        stderr(&output)
    );
    let args = search.command().args(["--format", "args"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&args.stdout).trim(), "", "there is nothing to set");
}

#[test]
fn an_option_that_has_no_effect_is_left_out_from_then_on() {
    let Some(search) = search(
        &["--samples", "24", "--batch-size", "{batch_size}", "--workers={workers}"],
        "[space]\nbatch_size = { values = [6, 12, 48] }\nworkers = { values = [0, 2] }\n\
         [search]\nprobes = 6\nrounds = 0\nas_it_is = true\n",
    ) else {
        return;
    };
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rejected = search.lines().iter().filter(|line| line.outcome.name() == "rejected").count();
    assert!(rejected >= 2, "the config that was measured first is rejected as well: {}", stderr(&output));
    let measured = search.lines().iter().filter(|line| line.outcome.measurement().is_some()).count();
    assert!(measured >= 2, "the other parameter is searched: {}", stderr(&output));
    let named = search.best()["command"].as_str().unwrap().to_owned();
    assert!(!named.contains("--batch-size"), "{named}");
    let shown = stderr(&output);
    assert!(shown.contains("`batch_size` has no effect: a step takes 24 samples with "), "{shown}");
    assert!(!shown.contains("with as it is") && shown.contains("  workers=0  "), "{shown}");
}

#[test]
fn a_precision_that_the_script_ignores_is_rejected_with_both_values() {
    let Some(search) = search(
        &["--amp-dtype", "{precision}"],
        "[space]\nprecision = { values = [\"float16\", \"float32\"] }\n[search]\nrounds = 0\n",
    ) else {
        return;
    };
    search.run();
    let lines = search.lines();
    let half = lines.iter().find(|line| line.config.text("precision") == Some("float16")).unwrap();
    let reason = &half.outcome.failure().unwrap().reason;
    assert_eq!(reason, "`precision` was set to float16, the script trains with fp32 (precision)");
    let full = lines.iter().find(|line| line.config.text("precision") == Some("float32")).unwrap();
    assert!(full.outcome.measurement().is_some());
}

#[test]
fn a_baseline_states_some_settings_and_leaves_the_others_as_they_are() {
    let more = format!("{SPACE}[baseline]\nbatch_size = 16\n[search]\nprobes = 1\nrounds = 0\n");
    let Some(search) = search(OPTIONS, &more) else { return };
    search.run();
    let line = &search.lines()[0];
    assert_eq!(line.as_it_is.as_ref().unwrap().line(), "batch_size=16");
    assert_eq!(line.config.line(), "batch_size=16 workers=2", "not the first of the space, but what the script has");
}

#[test]
fn a_job_that_cannot_do_without_settings_has_no_baseline_and_says_so() {
    let Some(search) = search(
        &["--batch-size={batch_size}", "{batch_size}"],
        "[space]\nbatch_size = { values = [8] }\n[search]\nas_it_is = true\n",
    ) else {
        return;
    };
    let check =
        Command::new(support::gputune()).args(["check", "spec.toml"]).current_dir(search.folder.path()).output();
    let check = stderr(&check.unwrap());
    assert!(check.contains("the argument `{batch_size}` cannot be left out"), "{check}");
}

#[test]
fn what_finds_nothing_to_act_on_is_closed_at_once() {
    let event = "{\"event\":\"error\",\"kind\":\"not_applied\",\"message\":\"y: nothing\",\"parameters\":[\"y\"]}";
    let more =
        "[space]\nx = { values = [1, 2] }\ny = { values = [5, 6, 7] }\n[search]\nstrategy = \"grid\"\nrounds = 0\n";
    // The job reports `y` only while it gets `y`.
    let script = format!(
        "import json, os, socket, time\nc = json.loads(os.environ['GPUTUNE_CONFIG'])\ns = socket.socket(socket.AF_UNIX)\n\
         s.connect(os.environ['GPUTUNE_SOCKET'])\n\
         if 'y' in c:\n    s.sendall(b'''{event}\\n'''); time.sleep(1); raise SystemExit(1)\n\
         for _ in range(2000):\n    time.sleep(0.002); s.sendall(b'{{\"event\": \"step\", \"samples\": 8}}\\n')\n"
    );
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3");
        return;
    }
    let words = ["python3".to_owned(), "-c".to_owned(), script];
    let search = Search::of_command(&words, &format!("{more}{LIMITS}"));
    let output = search.command().arg("-v").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let outcomes: Vec<&str> = search.lines().iter().map(|line| line.outcome.name()).collect();
    assert_eq!(outcomes, ["rejected", "measured", "measured"], "one probe was lost, and three `y` are one");
    let best = search.best();
    assert_eq!(best["closed"], serde_json::json!(["y"]));
    assert!(best["config"].get("y").is_none());
    assert!(stderr(&output).contains("unchanged, since nothing takes them: y"), "{}", stderr(&output));
}
