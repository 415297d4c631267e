//! `gputune run`: the job takes the place of gputune, with the best config applied.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{self, Search, stderr, stdout};

/// Returns a search whose setting is a variable, and which has ended.
fn searched(more: &str) -> Search {
    let search = Search::of(&["forever:1:5"], more);
    let output = search.run();
    assert!(output.status.success(), "{}", stderr(&output));
    search
}

fn run(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(support::gputune());
    command.args(["run", "out"]).args(words).current_dir(folder).stdin(Stdio::null());
    command
}

fn job(folder: &Path, line: &str) -> Command {
    run(folder, &["--", "sh", "-c", line])
}

fn signal(name: &str, child: &Child) {
    assert!(Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap().success());
}

/// Waits until the state of a process is this (`man 5 proc`, /proc/PID/stat).
fn await_state(child: &Child, state: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let is_there = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(state))
    };
    while !is_there() {
        assert!(Instant::now() < deadline, "it is not in state {state}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a job that has said that it is there, sends signals to the process that was gputune, and returns how it ended.
fn signalled(folder: &Path, line: &str, signals: &[(&str, &str)]) -> ExitStatus {
    // In a group of its own, which a terminal's signals may stop.
    let mut child = job(folder, line).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    for (name, state) in signals {
        signal(name, &child);
        if !state.is_empty() {
            await_state(&child, state);
        }
    }
    child.wait().unwrap()
}

#[test]
fn two_hundred_jobs_end_as_without_it() {
    let search = searched("[step.env]\nX = \"{x}\"\n");
    let folder = search.folder.path();
    let codes = (0..=255).map(|code| (format!("exit {code}"), code));
    // A signal is 128 more here, as in a shell.
    let deaths = ["HUP", "INT", "QUIT", "ABRT", "KILL", "SEGV", "PIPE", "ALRM", "TERM", "USR1", "USR2"];
    let numbers = [1, 2, 3, 6, 9, 11, 13, 14, 15, 10, 12];
    let deaths = deaths.iter().zip(numbers).map(|(name, number)| (format!("kill -{name} $$; sleep 5"), 128 + number));
    let jobs: Vec<(String, i32)> = codes.chain(deaths).collect();
    let next = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((line, wanted)) = jobs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let status = job(folder, line).stderr(Stdio::null()).status().unwrap();
                    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
                    assert_eq!(code, Some(*wanted), "{line}");
                }
            });
        }
    });
}

#[test]
fn signals_reach_the_job_and_nothing_of_gputune_is_left() {
    let search = searched("[step.env]\nX = \"{x}\"\n");
    let folder = search.folder.path();
    let waits = "while :; do sleep 0.02; done";
    let trapping = |name: &str, code: i32| format!("trap 'exit {code}' {name}; echo ready; {waits}");
    let idle = format!("echo ready; {waits}");
    for (name, code) in [("INT", 41), ("TERM", 42), ("HUP", 43), ("USR1", 44)] {
        assert_eq!(signalled(folder, &trapping(name, code), &[(name, "")]).code(), Some(code), "{name}");
    }
    for (name, number) in [("INT", 2), ("TERM", 15), ("KILL", 9)] {
        assert_eq!(signalled(folder, &idle, &[(name, "")]).signal(), Some(number), "{name}");
    }
    // Stopped by the terminal, gone on, then ended.
    let stopped = signalled(folder, &trapping("TERM", 45), &[("STOP", "T"), ("CONT", "S"), ("TERM", "")]);
    assert_eq!(stopped.code(), Some(45));
    let stopped = signalled(folder, &idle, &[("TSTP", "T"), ("CONT", "S"), ("INT", "")]);
    assert_eq!(stopped.signal(), Some(2));
}

#[test]
fn the_job_has_its_streams_its_settings_and_no_mark_of_a_probe() {
    let search = searched("[step.env]\nX = \"{x}\"\n");
    let best = search.best()["config"]["x"].to_string();
    let folder = search.folder.path();
    let line = "cat; echo $X; echo err >&2; env | grep GPUTUNE | grep -v GPUTUNE_TEST | grep -v GPUTUNE_BLESS || true";
    let mut command = job(folder, line);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((stdout(&output), stderr(&output)), (format!("in\n{best}\n"), "err\n".to_owned()));
}

#[test]
fn another_command_gets_the_options_that_have_settings() {
    let search = searched(
        "[step.env]\nX = \"{x}\"\n[space]\nx = { values = [1] }\nlr = { values = [0.5], apply = \"arg\" }\n\
         amp = { values = [true], apply = \"arg\" }\n",
    );
    let folder = search.folder.path();
    let output = run(folder, &["--", "echo", "--epochs", "90", "x={x}", "{other}", "{\"a\": 1}"]).output().unwrap();
    assert_eq!(stdout(&output), "--epochs 90 x=1 {other} {\"a\": 1} --lr 0.5 --amp\n", "{}", stderr(&output));
    let output = run(folder, &["--", "echo", "--lr=3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the new command has `--lr=3`"), "{}", stderr(&output));
    let output = job(folder, "echo").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("a line for a shell"), "{}", stderr(&output));
    let output = job(folder, "echo {lr} {amp?--amp}").output().unwrap();
    assert_eq!(stdout(&output), "0.5 --amp\n", "{}", stderr(&output));
}

#[test]
fn what_cannot_be_run_is_one_sentence_and_the_code_of_a_shell() {
    let search = searched("[step.env]\nX = \"{x}\"\n");
    let folder = search.folder.path();
    fs::write(folder.join("plain"), "").unwrap();
    for (program, code) in [("no-such-program", 127), ("./plain", 126), ("./out", 126), ("./no/such", 127)] {
        let output = run(folder, &["--", program]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{program}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
    let output = Command::new(support::gputune()).args(["run", "nowhere"]).current_dir(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = Command::new(support::gputune()).arg("run").current_dir(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("no search below gputune-out"), "{}", stderr(&output));
}

#[test]
fn without_a_best_config_nothing_is_run() {
    let search = Search::of(&["exit:1"], "");
    search.run();
    let output = run(search.folder.path(), &["--", "touch", "ran"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("has no best config"), "{}", stderr(&output));
    assert!(!search.folder.path().join("ran").exists());
}
