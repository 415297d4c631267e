//! A step has a terminal of its own, without input, through the real binary.

use std::fs;

use gputune::model::Outcome;

use crate::support::{Search, stderr};

const RATE: &str =
    "throughput = { pattern = '([0-9.]+) samples/s', unit = \"samples/s\" }\n[space]\nx = { values = [1] }\n";

/// Runs a search over one config of a shell script. Returns the outcome, its standard error and the log of the probe.
fn run(script: &str, more: &str) -> (Outcome, String, String) {
    let search = Search::of_command(&["sh", "-c", script].map(str::to_owned), &format!("{RATE}{more}"));
    let output = search.command().env("TERM", "dumb").env_remove("COLUMNS").output().unwrap();
    let log = fs::read_to_string(search.out().join("logs/0001.log")).unwrap();
    let outcome = search.lines().first().unwrap_or_else(|| panic!("{}", stderr(&output))).outcome.clone();
    (outcome, stderr(&output), log)
}

#[test]
fn a_step_sees_a_terminal_and_its_output_is_not_held_back() {
    // In a pipe, grep would hold back 4096 bytes, which these lines do not reach.
    let script = "stty size; echo $TERM; test -t 0 && test -t 2 && ! (: < /dev/tty) 2> /dev/null && echo own; \
                  while :; do printf '\\033[32m812.5\\033[0m samples/s\\n'; sleep 0.05; done | grep samples";
    let (outcome, shown, log) = run(script, "");
    let rate = outcome.measurement().unwrap_or_else(|| panic!("{shown}")).throughput.unwrap().value;
    assert!((rate - 812.5).abs() < 1e-6, "{rate}");
    assert!(log.starts_with("50 200\nxterm\nown\n812.5 samples/s\n812.5 samples/s\n"), "{log}");
}

#[test]
fn a_prompt_and_an_output_that_is_held_back_are_named() {
    let asks = "printf 'Overwrite? [y/N]: '; read answer || { printf '\\nAborted!\\n'; exit 1; }";
    let (outcome, ..) = run(asks, "");
    let reason = "the script asks for input (`Overwrite? [y/N]:`), and a probe has none";
    assert!(matches!(&outcome, Outcome::Crashed(failure) if failure.reason.ends_with(reason)), "{outcome:?}");
    let limits = "[limits]\nprobe_time = \"2s\"\n";
    let (outcome, ..) = run("while :; do echo 812.5 samples/s; sleep 0.05; done | grep samples | cat", limits);
    let reason = "nothing was printed: is the output held back";
    assert!(matches!(&outcome, Outcome::TimedOut(failure) if failure.reason.contains(reason)), "{outcome:?}");
}

#[test]
fn the_line_of_a_script_that_asks_for_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.py");
    for (asks, limits) in [
        ("assert sys.stdin.readline(), 'no answer'", ""),
        ("while not sys.stdin.readline(): time.sleep(0.1)", "[limits]\nprobe_time = \"4s\"\n"),
        ("input('Overwrite? ')", ""),
    ] {
        fs::write(&path, format!("import sys, time\n{asks}\n")).unwrap();
        let (outcome, shown, _) = run(&format!("exec python3 {}", path.display()), limits);
        let failure = outcome.failure().unwrap_or_else(|| panic!("{shown}"));
        let reason = &failure.reason;
        assert!(reason.contains("the script asks for input at ") && reason.contains("train.py:2"), "{reason}");
        assert!(reason.ends_with(", and a probe has none"), "{reason}");
    }
}
