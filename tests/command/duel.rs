//! `gputune compare`: two configs head to head through the real binary.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::terminal::Terminal;
use crate::support::{Search, gputune, stderr, stdout};

const SPACE: &str = "[space]\npause = { values = [2000, 4000] }\nsamples = { values = [8, 16] }\n[baseline]\npause = 4000\nsamples = 8\n";
const STEP: &str = "obeying:{samples}:{pause}";

fn compare(search: &Search, arguments: &[&str]) -> Command {
    let mut command = Command::new(gputune());
    command.args(["compare", "spec.toml", "--out", "out"]).args(arguments).current_dir(search.folder.path());
    // Without a backtrace, the last lines of a panic are its message.
    command.env_remove("RUST_BACKTRACE");
    command
}

fn json(output: &Output) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

fn number(json: &serde_json::Value) -> f64 {
    json.as_f64().unwrap()
}

/// Returns true if a ratio is near the truth, or, on a busy machine, has the truth in its interval.
fn is_about(ratio: &serde_json::Value, truth: f64) -> bool {
    let is_near = (number(&ratio["value"]) / truth).ln().abs() < 0.3;
    is_near || (number(&ratio["low"]) < truth && truth < number(&ratio["high"]))
}

#[test]
fn two_processes_train_in_turn_and_their_ratio_is_told() {
    let search = Search::of(&["print:pause {pause}", STEP], SPACE);
    let output = compare(&search, &["pause=2000", "pause=4000", "--rounds", "2", "--json"]).output().unwrap();
    let report = json(&output);
    assert_eq!(report["way"], "in_turn", "{report}");
    assert_eq!((&report["ended_because"], &report["rounds"]), (&"all_rounds".into(), &2.into()));
    assert!(is_about(&report["ratio"], 1.8), "{}", report["ratio"]);
    let blocks = report["blocks"].as_array().unwrap();
    let sides: Vec<&str> = blocks.iter().map(|block| block["side"].as_str().unwrap()).collect();
    assert_eq!(sides, ["A", "B", "B", "A", "A", "B", "B", "A"]);
    let mut last = 0.0;
    for block in blocks {
        let (begin, end) = (number(&block["begin_s"]), number(&block["end_s"]));
        assert!(begin >= last && end > begin, "one after the other: {block}");
        assert!(number(&block["steps"]) >= 3.0 && number(&block["dropped_steps"]) >= 2.0, "{block}");
        last = end;
    }
    for (side, pause) in [("a", 2000), ("b", 4000)] {
        assert_eq!(report[side]["config"], serde_json::json!({ "pause": pause, "samples": 8 }));
        assert_eq!(report[side]["outcome"]["outcome"], "measured", "{report}");
        let measured = number(&report[side]["outcome"]["measured_seconds"]);
        assert!(measured < 10.0, "the time of the other is not its own: {measured}");
    }
    for (log, pause) in [("0001", "2000"), ("0002", "4000")] {
        let text = fs::read_to_string(search.out().join(format!("logs/{log}.log"))).unwrap();
        assert_eq!(text.matches(&format!("pause {pause}")).count(), 1, "one process: {text}");
    }
    search.assert_no_survivors();
}

/// The demo step reports through the Rust client, which waits on request.
#[test]
fn the_demo_step_trains_in_turn_also_in_a_round() {
    let data = tempfile::tempdir().unwrap();
    let words = ["demo-step", "--batch-size", "{batch}", "--workers", "0", "--steps", "1000000"];
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    words.insert(0, gputune().to_owned());
    words.extend(["--data-dir".to_owned(), data.path().display().to_string()]);
    let limits = "[limits]\nmeasure_time = \"1s\"\nprecision = 0.2\n[search]\nrounds = 1\n";
    let space = "[space]\nbatch = { values = [1, 4] }\n[baseline]\nbatch = 1\n";
    let search = Search::of_command(&words, &format!("{space}{limits}"));
    let report = json(&compare(&search, &["batch=1", "batch=4", "--rounds", "2", "--json"]).output().unwrap());
    assert_eq!(report["way"], "in_turn", "{report}");
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let journal = fs::read_to_string(search.out().join("journal.jsonl")).unwrap();
    let in_round: Vec<&str> = journal.lines().filter(|line| line.contains("\"purpose\":\"round\"")).collect();
    assert!(in_round.len() == 2 && in_round.iter().all(|line| line.contains("\"round\":{")), "{journal}");
    search.assert_no_survivors();
}

#[test]
fn a_person_reads_the_ratio_and_how_it_was_measured() {
    let search = Search::of(&[STEP], SPACE);
    let output = compare(&search, &["baseline", "samples=16", "--rounds", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("A         pause=4000 samples=8  "), "{text}");
    assert!(lines[1].starts_with("B         pause=4000 samples=16  "), "{text}");
    assert!(lines[2].starts_with("result    A is 0.") && lines[2].contains(") as fast as B: "), "{text}");
    assert!(lines[3].starts_with("measured  processes in turn: 8 blocks in 2 rounds, "), "{text}");
    assert!(stderr(&output).contains("A warms up"), "{}", stderr(&output));
}

#[test]
fn while_one_has_its_turn_the_workers_of_the_other_stand_still() {
    let search = Search::of(&["ticking:TICKS-{pause}", STEP], &format!("writes = \"allow\"\n{SPACE}"));
    let folder = search.folder.path();
    let mut running = compare(&search, &["pause=2000", "pause=4000", "--rounds", "6"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let size = |pause: u32| fs::metadata(folder.join(format!("TICKS-{pause}"))).map_or(0, |data| data.len());
    let (mut last, mut both, mut one) = ([0, 0], 0, [0, 0]);
    while running.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(100));
        let now = [size(2000), size(4000)];
        let ticked = [now[0] > last[0] + 1, now[1] > last[1] + 1];
        both += i32::from(ticked == [true, true]);
        one[0] += i32::from(ticked[0] && now[1] == last[1]);
        one[1] += i32::from(ticked[1] && now[0] == last[0]);
        last = now;
    }
    assert!(one[0] >= 4 && one[1] >= 4, "{one:?}, and both at a time {both}");
    search.assert_no_survivors();
}

#[test]
fn who_does_not_wait_is_compared_by_processes_in_turn() {
    let search = Search::of(&["forever:{samples}:5000"], SPACE);
    let output = compare(&search, &["samples=16", "samples=8", "--rounds", "2", "--json"]).output().unwrap();
    let report = json(&output);
    assert_eq!((&report["way"], &report["rounds"]), (&"processes".into(), &2.into()));
    let sides: Vec<&str> = report["blocks"].as_array().unwrap().iter().map(|it| it["side"].as_str().unwrap()).collect();
    assert_eq!(sides, ["A", "B", "B", "A"]);
    assert!(is_about(&report["ratio"], 2.0), "{}", report["ratio"]);
    let text = stderr(&output);
    assert!(text.contains("processes cannot train in turn: A does not wait between two steps when it is"), "{text}");
    let cause =
        "one process cannot switch between the configs: a setting that differs only takes effect when a process starts";
    let said = format!("each comparison starts new processes, which takes longer, because {cause}");
    assert!(text.contains(&said), "{text}");
    search.assert_no_survivors();
}

#[test]
fn where_both_do_not_fit_each_has_the_machine_to_itself() {
    let search = Search::of(&["alone:LOCK", STEP], &format!("writes = \"allow\"\n{SPACE}"));
    let output = compare(&search, &["samples=16", "samples=8", "--rounds", "2", "--json"]).output().unwrap();
    let report = json(&output);
    assert_eq!(report["way"], "processes");
    let reason = report["fallbacks"][0].as_str().unwrap();
    assert!(reason.contains("B ended next to A as out of memory"), "{reason}");
    search.assert_no_survivors();
}

#[test]
fn a_config_that_fails_is_told_with_its_last_lines() {
    let search = Search::of(
        &["print:last words", "panic-if:{fails}", STEP],
        "[space]\nfails = { values = [false, true] }\nsamples = { values = [8, 16] }\npause = { values = [1000] }\n",
    );
    let output = compare(&search, &["fails=false", "fails=true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("B could not be measured: crashed: ") && text.contains("as asked"), "{text}");
    assert!(text.contains("logs/0002.log"), "{text}");
    search.assert_no_survivors();
}

#[test]
fn trials_of_the_search_can_be_named() {
    let search = Search::of(&[STEP], SPACE);
    let searched = search.run();
    assert_eq!(searched.status.code(), Some(0), "{}", stderr(&searched));
    let lines = search.lines();
    let last = lines.last().unwrap();
    let first = format!("#{}", lines[0].trial);
    let named = ["--search", "out", "--rounds", "2", "--json"];
    let output = compare(&search, &[&["best", &first][..], &named].concat()).output().unwrap();
    let report = json(&output);
    assert_eq!(report["a"]["config"], search.best()["config"]);
    assert_eq!(report["b"]["config"], serde_json::to_value(&lines[0].config).unwrap());
    let output = compare(&search, &["1", "99", "--search", "out"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("B `99`: out has no trial 99"), "{text}");
    assert!(text.contains(&format!("its trials are 1 to {}", last.trial)), "{text}");
}

#[test]
fn what_is_no_config_is_told_with_its_cure() {
    let search = Search::of(&[STEP], SPACE);
    for (a, message) in [
        ("pausee=2000", "the space has no parameter `pausee`\n\nhint: did you mean `pause`?"),
        ("pause=1", "`pause` has no setting 1; it has 2000, 4000"),
        (
            "fastest",
            "A `fastest`: write NAME=VALUE, such as batch_size=64\n\nhint: write settings such as batch_size=64,workers=4",
        ),
        ("12a", "write NAME=VALUE, such as batch_size=64"),
        ("", "it is empty"),
        ("99999999999", "there are not so many trials"),
        ("7", "gputune-out/spec"),
    ] {
        let output = compare(&search, &[a, "baseline"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{a}: {}", stderr(&output));
        assert!(stderr(&output).contains(message), "{a}: {}", stderr(&output));
    }
    let output = compare(&search, &["baseline", "best", "--time", "soon"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn stopped_or_killed_amid_a_turn_it_leaves_nothing_behind() {
    for (signal, code) in [("-INT", Some(130)), ("-KILL", None)] {
        let search = Search::of(&["touch:STARTED-{pause}", STEP], &format!("writes = \"allow\"\n{SPACE}"));
        let folder = search.folder.path().to_owned();
        let mut running = compare(&search, &["pause=2000", "pause=4000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while !folder.join("STARTED-4000").exists() {
            assert!(begin.elapsed() < Duration::from_secs(240), "B never started");
            std::thread::sleep(Duration::from_millis(10));
        }
        // During the first blocks, one of the two processes is stopped.
        std::thread::sleep(Duration::from_millis(2500));
        assert!(!search.survivors().is_empty(), "it runs");
        Command::new("kill").args([signal, &running.id().to_string()]).status().unwrap();
        assert_eq!(running.wait().unwrap().code(), code, "{signal}");
        search.assert_no_survivors();
    }
}

#[test]
fn on_a_terminal_one_line_tells_what_it_does() {
    let search = Search::of(&[STEP], SPACE);
    let mut terminal = Terminal::run(&compare(&search, &["pause=2000", "pause=4000", "--rounds", "2"]), 100, 24);
    terminal.wait_for("A warms up");
    terminal.wait_for("measures B, processes in turn, 1 round: A is ");
    assert_eq!(terminal.end().code(), Some(0), "{}", terminal.text());
    let text = terminal.text();
    assert!(text.contains("result    A is ") && !text.contains("measures"), "the line is gone: {text}");
}

#[test]
fn the_processes_of_a_search_wait_for_their_rounds() {
    let more = format!("{SPACE}[limits]\nmeasure_time = \"2s\"\n[search]\nstrategy = \"grid\"\n");
    let search = Search::of(&[STEP], &more);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let journal = fs::read_to_string(search.out().join("journal.jsonl")).unwrap();
    let trials: Vec<serde_json::Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first: Vec<_> = trials.iter().filter(|trial| trial["round"]["number"] == 1).collect();
    assert!(first.len() >= 2, "{journal}");
    for trial in &first {
        let own = trials.iter().find(|other| other["config"] == trial["config"]).unwrap();
        assert_eq!(trial["round"]["process"], own["trial"], "its first process went on: {trial}");
        assert_eq!(trial["round"]["slices"].as_array().unwrap().len(), 2, "{trial}");
    }
    let baseline = trials.iter().filter(|trial| trial["config"] == first[0]["config"]);
    let mut processes: Vec<_> = baseline.filter_map(|trial| trial["round"]["process"].as_u64()).collect();
    processes.dedup();
    assert!(processes.len() >= 2, "the luck of one process is seen: {journal}");
    let best: serde_json::Value = serde_json::from_slice(&fs::read(search.out().join("best.json")).unwrap()).unwrap();
    assert_eq!(best["config"], serde_json::json!({ "pause": 2000, "samples": 16 }), "{best}");
    assert_eq!(best["verdict"], "faster", "{best}");
    search.assert_no_survivors();
}
