//! Whole searches through the real binary: stopped, killed, resumed, refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{self, Search, stderr, stdout};
use gputune::model::Purpose;

const SPACE: &str = "[space]\nx = { range = [1, 12] }\ny = { values = [\"a\", \"b\"] }\n[baseline]\nx = 3\ny = \"b\"\n";

/// A step that takes a moment and then reports the more, the larger x is.
fn quick() -> Search {
    lasting("60ms", "")
}

/// The same search with this measuring time.
fn lasting(measure: &str, precision: &str) -> Search {
    let limits = "[limits]\nmeasure_time = \"MEASURE\"\ngrace_time = \"200ms\"\n[search]\nstrategy = \"grid\"\nprobes = 24\nrounds = 0\non_tie = \"fastest\"\n";
    let limits = limits.replace("MEASURE", measure).replace("[search]", &format!("{precision}[search]"));
    Search::of(&["print:{y}", "forever:{x}:500"], &format!("{SPACE}{limits}"))
}

fn configs(search: &Search) -> Vec<String> {
    let lines = search.lines();
    lines.iter().filter(|line| line.purpose != Purpose::Round).map(|line| line.config.line()).collect()
}

#[test]
fn a_reader_of_standard_error_that_is_gone_does_not_end_a_search() {
    let search = quick();
    let mut running = search.command().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(running.stderr.take());
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert!(search.best()["verdict"].is_string());
}

#[test]
fn the_folder_has_everything_and_stdout_only_the_best() {
    let search = quick();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut names: Vec<String> =
        fs::read_dir(search.out()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected = [
        "best.json",
        "best.toml",
        "journal.jsonl",
        "logs",
        "report.html",
        "spec.toml",
        "status.json",
        "study.json",
        "summary.md",
        "timelines",
        "trials.csv",
    ];
    assert_eq!(names, expected);
    assert_eq!(stdout(&output), fs::read_to_string(search.out().join("best.toml")).unwrap());
    assert_eq!(configs(&search)[0], "x=3 y=b", "the baseline comes first");
    assert_eq!(search.lines()[0].purpose, Purpose::Baseline);
    let best = search.best();
    for key in [
        "config",
        "command",
        "throughput",
        "baseline",
        "verdict",
        "peak_memory_bytes",
        "memory_headroom",
        "ties",
        "probes",
        "elapsed_s",
        "stopped_because",
        "device",
        "gputune_version",
    ] {
        assert!(best.get(key).is_some(), "{key}");
    }
    // On a busy machine, millisecond sleeps can differ in speed as much as these configs.
    match best["verdict"].as_str() {
        Some("unproven") => assert!(best["unproven_speedup"]["value"].as_f64().unwrap() > 1.0, "{best}"),
        verdict => assert_eq!(verdict, Some("tied_with_baseline"), "{best}"),
    }
    let mut trials = csv::Reader::from_path(search.out().join("trials.csv")).unwrap();
    let headers = trials.headers().unwrap().clone();
    assert!(headers.iter().any(|name| name == "peak_memory_bytes") && headers.iter().any(|name| name == "elapsed_s"));
    assert_eq!(trials.records().count(), search.lines().len());
    assert!(fs::read_to_string(search.out().join("summary.md")).unwrap().contains("| 1 | 3 | b |"));
}

#[test]
fn the_command_in_best_json_is_ready_to_run() {
    let search =
        Search::of(&["print:it's {x}"], "throughput = { pattern = \"it's ([0-9]+)\", unit = \"samples/s\" }\n");
    assert_eq!(search.run().status.code(), Some(0));
    let command = search.best()["command"].as_str().unwrap().to_owned();
    let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert_eq!(stdout(&output), "it's 2\n", "{command}");
}

#[test]
fn a_finished_search_run_again_probes_nothing() {
    let search = quick();
    search.run();
    let before = fs::read(search.out().join("journal.jsonl")).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = format!("goes on from {} finished trials", search.lines().len());
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    assert_eq!(fs::read(search.out().join("journal.jsonl")).unwrap(), before);
}

#[test]
fn rounds_measure_the_baseline_beside_the_others_and_prove_what_is_faster() {
    let more = "[space]\nx = { values = [1, 2, 3] }\n[baseline]\nx = 1\n[search]\nstrategy = \"grid\"\n";
    let search = Search::of(&["forever:{x}:500"], more);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut rounds: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for line in search.lines() {
        if let Some(round) = line.outcome.measurement().and_then(|run| run.round.clone()) {
            assert_eq!(line.purpose, Purpose::Round);
            rounds.entry(round.number).or_default().push(line.config.line());
        }
    }
    assert!(rounds.len() >= 3 && rounds.values().all(|configs| configs[0] == "x=1" && configs.len() > 1), "{rounds:?}");
    let best = search.best();
    assert_eq!((&best["config"]["x"], &best["verdict"]), (&3.into(), &"faster".into()), "{best}");
    assert!(best["speedup"]["low"].as_f64().unwrap() > 1.0, "{best}");
    assert_eq!(best["rounds"], rounds.len());
    assert!(stderr(&output).contains("round 1: "), "{}", stderr(&output));
}

#[test]
fn killed_at_any_moment_it_keeps_every_finished_trial_and_leaves_no_process() {
    let search = quick();
    let mut kept = Vec::new();
    for round in 0..12 {
        let mut running = search.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(40 + 37 * round));
        running.kill().unwrap();
        running.wait().unwrap();
        search.assert_no_survivors();
        let now = if search.out().join("journal.jsonl").exists() { journal_configs(&search) } else { Vec::new() };
        assert_eq!(&now[..kept.len()], &kept[..], "a finished trial was lost or changed");
        kept = now;
    }
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let all = configs(&search);
    assert_eq!(all.len(), 24);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 24, "a trial was repeated");
}

/// Like [`configs`], for a journal that may be cut off in its header.
fn journal_configs(search: &Search) -> Vec<String> {
    gputune::search::journal::read(&search.out().join("journal.jsonl"))
        .map(|(_, lines)| lines.iter().map(|line| line.config.line()).collect())
        .unwrap_or_default()
}

#[test]
fn a_supervisor_that_is_killed_leaves_no_process_and_no_hang() {
    let search = Search::of(&["daemon:TOKEN", "forever:{x}:1000"], "[limits]\nmeasure_time = \"3s\"\n");
    let running = search.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.id())).unwrap_or_default();
    for pid in children.split_whitespace() {
        std::process::Command::new("kill").args(["-9", pid]).status().unwrap();
    }
    let output = running.wait_with_output().unwrap();
    assert!(output.status.code().is_some());
    search.assert_no_survivors();
}

#[test]
fn a_torn_last_line_is_healed() {
    let search = quick();
    search.run();
    let path = search.out().join("journal.jsonl");
    let text = fs::read(&path).unwrap();
    let left = search.lines().len() - 1;
    fs::write(&path, &text[..text.len() - 20]).unwrap();
    let output = search.run();
    let told = format!("goes on from {left} finished trials; a line that was cut off");
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    assert_eq!(configs(&search).len(), 24);
}

#[test]
fn another_command_or_space_is_refused_and_fresh_keeps_the_old_folder() {
    let search = quick();
    search.run();
    let path = search.folder.path().join("spec.toml");
    let spec = fs::read_to_string(&path).unwrap();
    fs::write(&path, spec.replace("print:{y}", "print:{x}").replace("[1, 12]", "[1, 13]")).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("command.arguments was") && text.contains("space.parameters.x was"), "{text}");
    assert!(text.contains("--fresh"), "{text}");
    let output = search.command().arg("--fresh").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(search.folder.path().join("out.1/best.json").exists());
}

#[test]
fn another_device_is_refused() {
    let search = quick();
    search.run();
    let path = search.out().join("journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let device = search.best()["device"].as_str().unwrap().to_owned();
    fs::write(&path, text.replacen(&device, "NVIDIA Abacus", 1)).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the device was `NVIDIA Abacus` and is"), "{}", stderr(&output));
}

#[test]
fn a_second_gputune_on_the_folder_is_refused_and_fresh_does_not_take_it_away() {
    let search = Search::of(&["sleep:30000"], "");
    let mut running = search.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while search.survivors().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    for arguments in [&[][..], &["--fresh"]] {
        let output = search.command().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("another gputune is using"), "{}", stderr(&output));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    search.assert_no_survivors();
}

fn interrupt(pid: u32, signal: &str) {
    std::process::Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
}

#[test]
fn interrupted_once_it_keeps_everything_and_prints_the_best_so_far() {
    for signal in ["-INT", "-TERM"] {
        // The other probes take ten seconds more.
        let search = lasting("400ms", "precision = 0.0001\n");
        let running = search.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while journal_configs(&search).len() < 3 {
            std::thread::sleep(Duration::from_millis(10));
        }
        interrupt(running.id(), signal);
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        assert!(stdout(&output).contains("x = "), "{}", stdout(&output));
        assert!(stderr(&output).contains("interrupted"), "{}", stderr(&output));
        assert!(search.out().join("best.json").exists());
        search.assert_no_survivors();
        assert!(configs(&search).len() < 24);
    }
}

#[test]
fn an_edit_of_the_script_stops_the_search() {
    let words = ["sh", "train.sh", "token:TOKEN", "forever:{x}:500"].map(str::to_owned);
    let limits = "[limits]\nmeasure_time = \"1s\"\n[search]\nstrategy = \"grid\"\n";
    let search = Search::of_command(&words, &format!("{SPACE}{limits}"));
    let script = search.out().with_file_name("train.sh");
    fs::write(&script, format!("exec {} \"$@\"\n", support::child().display())).unwrap();
    let running = search.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while journal_configs(&search).is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::write(&script, "exit 1\n").unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("train.sh was edited during the search"), "{}", stderr(&output));
    assert_eq!(stdout(&output), "", "a config of the old script is no result");
    search.assert_no_survivors();
    assert!(configs(&search).len() < 24);
}

#[test]
fn interrupted_twice_it_leaves_at_once() {
    let search = Search::of(&["ignore-term", "sleep:60000"], "[limits]\ngrace_time = \"30s\"\n");
    let mut running = search.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while search.survivors().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    interrupt(running.id(), "-INT");
    std::thread::sleep(Duration::from_millis(300));
    interrupt(running.id(), "-INT");
    assert_eq!(running.wait().unwrap().code(), Some(130));
    search.assert_no_survivors();
}

#[test]
fn out_of_memory_rules_out_larger_batches_whatever_the_workers() {
    let more = "[space]\nbatch_size = { powers_of_two = [1, 64] }\nworkers = { values = [1, 2] }\n[search]\nstrategy = \"grid\"\nprobes = 14\nrounds = 0\n";
    let memory = "send:{\"event\":\"memory\",\"allocated\":{batch_size},\"capacity\":20}";
    let search = Search::of(&[memory, "forever:{batch_size}:500"], more);
    search.run();
    let sizes: Vec<i64> = search.lines().iter().filter_map(|line| line.config.integer("batch_size")).collect();
    // 16 of 20 fits, except for the 10% that must stay free; 32 needs too much. Neither 32 nor 64 is tried twice.
    assert_eq!(sizes.iter().filter(|&&size| size >= 32).count(), 1, "{sizes:?}");
    assert_eq!(search.best()["config"]["batch_size"], 16);
    assert_eq!(search.best()["memory_headroom"], 0.2);
}

#[test]
fn an_objective_may_be_any_metric_with_constraints() {
    let more = "[space]\nx = { range = [1, 5] }\n[objective]\nminimize = \"cost\"\nconstraints = [\"quality >= 3\"]\n[search]\nrounds = 0\n";
    let step = "send:{\"event\":\"step\",\"samples\":1,\"metrics\":{\"cost\":{x},\"quality\":{x}}}";
    let search = Search::of(&[step, step, "steps:300:1:1000"], more);
    let output = search.run();
    assert_eq!(stdout(&output), "x = 3\n", "{}", stderr(&output));
}

#[test]
fn formats_and_emit_agree() {
    let search = quick();
    for format in ["toml", "json", "yaml", "env", "args", "command"] {
        let output = search.command().args(["--quiet", "--format", format]).output().unwrap();
        // Only a warning about a busy machine, or, for `env`, a note about an argument that is no variable.
        let is_told = |line: &str| line.starts_with("warning: in ") || (format == "env" && line.starts_with("note: "));
        assert!(stderr(&output).lines().all(is_told), "{}", stderr(&output));
        let again = std::process::Command::new(support::gputune())
            .args(["emit", "out", "--format", format])
            .current_dir(search.folder.path())
            .output()
            .unwrap();
        assert_eq!(stdout(&again), stdout(&output), "{format}");
        assert_eq!(stdout(&output).is_empty(), format == "env");
    }
}

#[test]
fn a_quiet_search_prints_the_warnings_about_a_baseline_that_stays() {
    let fact = |name: &str, value: u32| format!("send:{{\"event\":\"fact\",\"name\":\"{name}\",\"value\":{value}}}");
    let (delivering, workers) = (fact("loader.workers_delivering", 1), fact("loader.workers", 4));
    let search = Search::of(&[&delivering, &workers, "forever:{x}:500"], "[baseline]\nx = 2\n");
    let output = search.command().arg("--quiet").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let warning = "warning: 1 of 4 workers deliver data";
    assert!(stderr(&output).contains(warning), "{}", stderr(&output));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_before_anything_runs() {
    let search = Search::of(&["steps:1:1:1"], "");
    fs::write(search.folder.path().join("out"), "a file").unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("cannot write to the folder out"), "{}", stderr(&output));
}

#[test]
fn a_replay_of_the_journal_finds_the_same_best() {
    let search = quick();
    search.run();
    let output = std::process::Command::new(support::gputune())
        .args(["replay", "out/journal.jsonl", "--strategy", "grid", "--probes", "24", "--json"])
        .current_dir(search.folder.path())
        .output()
        .unwrap();
    let runs: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(runs["runs"][0]["best"][23], runs["optimum"]);
    let lines = search.lines();
    let rates = lines.iter().filter_map(|line| Some(line.outcome.measurement()?.throughput?.value));
    assert_eq!(runs["optimum"], rates.fold(0.0, f64::max));
}

#[test]
fn a_leader_that_fails_in_a_round_makes_way_for_the_next() {
    let more =
        "[space]\nx = { values = [1, 2, 3, 4, 5] }\n[baseline]\nx = 1\n[search]\nstrategy = \"grid\"\nprobes = 5\n";
    let script = "if [ $GPUTUNE_TRIAL -gt 6 ] && [ {x} -gt 3 ]; then echo 'CUDA out of memory' >&2; exit 1; fi; echo {x}00 samples/s";
    let search = Search::of(&[], more);
    let path = search.folder.path().join("spec.toml");
    let step = format!(
        "[step]\ncommand = [\"sh\", \"-c\", {}]\nthroughput = {{ pattern = '([0-9]+) samples/s', unit = \"samples/s\" }}\n",
        serde_json::Value::from(script)
    );
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, step + &text[text.find("[space]").unwrap()..]).unwrap();
    let output = search.run();
    assert_eq!(stdout(&output), "x = 3\n", "{}", stderr(&output));
    let confirmed = |x| {
        search
            .lines()
            .iter()
            .filter(|line| line.purpose == Purpose::Round && line.config.integer("x") == Some(x))
            .count()
    };
    assert!([1, 3].map(confirmed).iter().all(|rounds| *rounds >= 1));
    assert!([4, 5].map(confirmed).iter().all(|rounds| *rounds <= 1), "what failed once is not tried again");
}

#[test]
fn an_extended_search_compares_its_new_leaders() {
    let more = "[space]\nx = { values = [1, 2, 3, 4, 50] }\n[search]\nstrategy = \"grid\"\nprobes = 3\n";
    let search = Search::of(&["forever:{x}:5000"], more);
    search.run();
    let path = search.folder.path().join("spec.toml");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("probes = 3", "probes = 5")).unwrap();
    search.run();
    assert!(
        search
            .lines()
            .last()
            .is_some_and(|line| line.purpose == Purpose::Round && line.outcome.measurement().is_some())
    );
    assert_eq!(search.best()["config"]["x"], 50);
}

#[test]
fn a_signal_that_is_ignored_from_the_start_stays_ignored() {
    let search = quick();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" search spec.toml --out out", support::gputune()]);
    let running =
        command.current_dir(search.folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while journal_configs(&search).is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    interrupt(running.id(), "-HUP");
    assert_eq!(running.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(configs(&search).len(), 24);
}

#[test]
fn a_step_that_reads_its_settings_from_the_environment_gets_them_in_the_command() {
    let search = Search::of(&["env:GPUTUNE_CONFIG", "steps:400:1:1000"], "");
    search.run();
    let command = search.best()["command"].as_str().unwrap().to_owned();
    assert!(command.starts_with("GPUTUNE_CONFIG='{\"x\":"), "{command}");
}

#[test]
fn fresh_leaves_a_folder_alone_that_is_no_search() {
    let search = quick();
    fs::create_dir(search.out()).unwrap();
    fs::write(search.out().join("data"), "mine").unwrap();
    assert_eq!(search.command().arg("--fresh").output().unwrap().status.code(), Some(0));
    assert!(search.out().join("data").exists() && !search.folder.path().join("out.1").exists());
}
