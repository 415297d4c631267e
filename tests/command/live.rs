//! The live view and `gputune watch`, in a terminal that belongs to the tests.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::terminal::Terminal;
use crate::support::{Search, gputune, stderr, stdout};

const SPACE: &str = "[space]\nx = { range = [1, 12] }\n[baseline]\nx = 3\n";
const LIMITS: &str = "[limits]\nmeasure_time = \"MEASURE\"\nprecision = 0.0001\ngrace_time = \"200ms\"\n[search]\nstrategy = \"grid\"\nprobes = 12\nrounds = 0\n";

/// Enough rows for the whole ending: on a busy machine it may take more than 24 rows.
const TALL: u16 = 70;

/// A search of twelve probes with this measuring time.
fn search(measure: &str) -> Search {
    Search::of(&["forever:{x}:500"], &format!("{SPACE}{}", LIMITS.replace("MEASURE", measure)))
}

fn watch(search: &Search, more: &[&str]) -> Command {
    let mut command = Command::new(gputune());
    command.args(["watch", "out"]).args(more).current_dir(search.folder.path());
    command
}

fn trials(search: &Search) -> usize {
    gputune::search::journal::read(&search.out().join("journal.jsonl")).map_or(0, |(_, lines)| lines.len())
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(240), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill(pid: u32, signal: &str) {
    Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
}

/// Returns the process of the search itself, a descendant of the process that made the terminal.
fn process_of(search: &Search) -> u32 {
    let status = gputune::search::StatusFile::read(&search.out());
    status.map(|status| status.pid).unwrap()
}

#[test]
fn a_search_shows_what_it_does_and_leaves_a_report() {
    let search = search("200ms");
    let mut terminal = Terminal::run(&search.command(), 80, TALL);
    terminal.wait_for("q or Ctrl-C stops the search and keeps everything");
    terminal.wait_until("a probe with its speed", |rows| {
        let has = |word: &str| rows.iter().any(|row| row.starts_with(word));
        has("search") && has("probe   #") && has("speed") && has("devices") && has("best    #")
    });
    assert_eq!(terminal.end().code(), Some(0));
    let text = terminal.text();
    assert!(text.contains("best      x=") && text.contains("results   out"), "{text}");
    assert!(!text.contains("q or Ctrl-C"), "the view is gone:\n{text}");
    assert!(terminal.is_as_before());
    let written = terminal.written();
    assert!(written.contains("━╸─"), "a bar is drawn");
    for number in 1..=12 {
        assert!(written.contains(&format!("{number:>4}  x=")), "trial {number} scrolled by");
    }
}

#[test]
fn q_stops_the_search_and_keeps_everything() {
    let search = search("2s");
    let mut terminal = Terminal::run(&search.command(), 80, TALL);
    terminal.wait_for("best    #");
    // The page is there while the search runs, and is loaded again until its end.
    let page = || fs::read_to_string(search.out().join("report.html")).unwrap_or_default();
    let is_loaded_again = || page().contains("http-equiv=\"refresh\"");
    wait_until("the page of a running search", is_loaded_again);
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(130), "{}", terminal.text());
    let text = terminal.text();
    assert!(text.contains("interrupted") && search.out().join("best.json").exists(), "{text}");
    assert!(page().contains("interrupted") && !is_loaded_again());
    assert!(terminal.is_as_before() && (1..12).contains(&trials(&search)));
    search.assert_no_survivors();
}

#[test]
fn ctrl_c_and_signals_give_the_terminal_back() {
    for how in ["ctrl-c", "-TERM", "twice"] {
        let search = match how {
            "twice" => Search::of(&["ignore-term", "sleep:60000"], "[limits]\ngrace_time = \"30s\"\n"),
            _ => search("2s"),
        };
        let mut terminal = Terminal::run(&search.command(), 100, 30);
        terminal.wait_for("probe   #");
        wait_until("its process runs", || !search.survivors().is_empty());
        match how {
            "-TERM" => kill(process_of(&search), how),
            _ => terminal.press("\x03"),
        }
        if how == "twice" {
            std::thread::sleep(Duration::from_millis(300));
            terminal.press("\x03");
        }
        assert_eq!(terminal.end().code(), Some(130), "{how}: {}", terminal.text());
        assert!(terminal.is_as_before(), "{how}");
        search.assert_no_survivors();
    }
}

#[test]
fn after_a_resize_every_line_is_there_once() {
    // More trials than the test waits for, even if it misses some.
    let limits = LIMITS.replace("MEASURE", "1s").replace("probes = 12", "probes = 90");
    let search = Search::of(&["forever:{x}:500"], &format!("{}{limits}", SPACE.replace("12", "90")));
    let mut terminal = Terminal::run(&search.command(), 80, 24);
    terminal.wait_for("best    #");
    for (columns, rows) in [(120, 40), (60, 20), (200, 50), (40, 16), (80, 24)] {
        terminal.resize(columns, rows);
        let before = trials(&search);
        terminal.wait_until("the view in its new width", |rows| {
            let count = |word: &str| rows.iter().filter(|row| row.starts_with(word)).count();
            let newest = format!("{:>4}  x=", trials(&search));
            let is_whole = count("search") == 1 && count("speed") == 1 && count("best    ") == 1;
            is_whole && count(&newest) == 1 && trials(&search) > before
        });
        let widest = terminal.rows().iter().map(|row| row.chars().count()).max().unwrap();
        assert!(widest <= usize::from(columns));
    }
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(130));
}

#[test]
fn without_a_terminal_that_can_there_are_plain_lines() {
    let search = search("60ms");
    let mut command = search.command();
    command.env("TERM", "dumb");
    let mut terminal = Terminal::run(&command, 80, 24);
    assert_eq!(terminal.end().code(), Some(0));
    let written = terminal.written();
    assert!(written.contains("   1  x=3  ") && !written.contains('\x1b'), "{written:?}");

    let colours = |more: &[&str], no_color: &str| {
        let mut command = Command::new(gputune());
        command.args(["report", "out"]).args(more).env("NO_COLOR", no_color).current_dir(search.folder.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).contains("\x1b[")
    };
    assert!(!colours(&[], "") && !colours(&["--color", "never"], ""));
    assert!(colours(&["--color", "always"], "1"));
    let mut report = Command::new(gputune());
    report.args(["report", "out"]).current_dir(search.folder.path());
    let mut terminal = Terminal::run(&report, 80, 50);
    terminal.end();
    assert!(terminal.written().contains("\x1b[1;32mbest\x1b[0m"), "{:?}", terminal.written());
}

#[test]
fn who_watches_sees_the_same_and_leaves_the_search_alone() {
    let search = search("500ms");
    let mut early = Terminal::run(&watch(&search, &[]), 80, 24);
    early.wait_for("waits for a search in out");
    let mut running = search.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    early.wait_until("trials, and the probe", |rows| {
        let has = |word: &str| rows.iter().any(|row| row.starts_with(word));
        has("   1  x=3") && has("probe   #") && has("speed") && has("best    #")
    });
    early.press("q");
    assert_eq!(early.end().code(), Some(0));
    assert!(early.is_as_before());
    assert!(running.try_wait().unwrap().is_none(), "the search goes on");
    let mut late = Terminal::run(&watch(&search, &[]), 120, 30);
    late.wait_for("   1  x=3");
    late.wait_for("watches the search in out; q leaves it");
    let output = watch(&search, &["--once"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("watches the search in out"), "{}", stdout(&output));
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert_eq!(late.end().code(), Some(0));
    assert!(late.text().contains("the search in out has ended: every config was probed"), "{}", late.text());
    assert!(late.is_as_before());
}

#[test]
fn a_pipe_gets_a_line_for_each_trial_and_the_end() {
    let search = search("60ms");
    let watching = watch(&search, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(search.run().status.code(), Some(0));
    let output = watching.wait_with_output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.starts_with("waits for a search in out\n") || text.starts_with("   1  x=3"), "{text}");
    let is_again = |line: &str| line.ends_with("(baseline again)");
    let is_trial = |line: &&str| line.get(4..).is_some_and(|rest| rest.starts_with("  x=")) && !is_again(line);
    assert_eq!(text.lines().filter(is_trial).count(), 12, "{text}");
    assert!(text.contains("best      x=") && !text.contains('\x1b'), "{text}");
    assert!(text.trim_end().ends_with("the search in out has ended: every config was probed or ruled out"), "{text}");
}

#[test]
fn a_search_that_was_killed_is_not_taken_for_one_that_runs() {
    let search = search("800ms");
    let mut running = search.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("two trials", || trials(&search) >= 2);
    let watching = watch(&search, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    let output = watching.wait_with_output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("the search in out was killed"), "{text}");
    assert!(text.contains("best      x="), "what it found is shown: {text}");
    search.assert_no_survivors();
}

fn once(search: &Search) -> Output {
    watch(search, &["--once"]).output().unwrap()
}

#[test]
fn folders_in_any_state_are_told_from_one_another() {
    let search = search("60ms");
    let output = once(&search);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no search has started in out"), "{}", stderr(&output));
    assert_eq!(search.run().status.code(), Some(0));
    let journal = search.out().join("journal.jsonl");
    let whole = fs::read(&journal).unwrap();
    let as_it_is = |what: &str, code: i32, words: &str| {
        let output = once(&search);
        let text = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{what}: {text}");
        assert!(text.contains(words), "{what}: {text}");
    };
    as_it_is("whole", 0, "has ended");
    fs::write(&journal, &whole[..whole.len() - 30]).unwrap();
    as_it_is("torn", 0, "has ended");
    fs::write(&journal, &whole[..40]).unwrap();
    as_it_is("cut in its header", 2, "no search has started");
    fs::write(&journal, "not a journal\n").unwrap();
    as_it_is("no journal", 2, "line 1 of");
    fs::write(&journal, &whole).unwrap();
    fs::write(search.out().join("status.json"), "{").unwrap();
    as_it_is("no status", 3, "the search in out was killed");
    let as_json = watch(&search, &["--once", "--json"]).output().unwrap();
    assert_eq!((as_json.status.code(), stdout(&as_json).as_str()), (Some(2), ""));
    assert!(stderr(&as_json).contains("out has no status.json that this gputune can read"), "{}", stderr(&as_json));
    fs::remove_file(search.out().join("study.json")).unwrap();
    fs::remove_file(search.out().join("spec.toml")).unwrap();
    as_it_is("nothing but the journal", 3, "the search in out was killed");
    let output = Command::new(gputune()).args(["watch", "/dev/null"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
