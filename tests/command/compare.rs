//! `gputune report A B`: two searches side by side, through the real binary.

use std::fs;
use std::process::{Command, Output};

use crate::support::{Search, gputune, stderr, stdout};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

const LIMITS: &str = "[limits]\nmeasure_time = \"60ms\"\ngrace_time = \"200ms\"\n[search]\nstrategy = \"grid\"\nrounds = 0\non_tie = \"fastest\"\n";

/// A search whose step prints a fixed rate, so that its numbers are known.
fn search(space: &str, rate: &str) -> Search {
    let pattern = "throughput = { pattern = \"rate ([0-9.]+)\", unit = \"samples/s\" }\n";
    Search::of(&[&format!("print:rate {rate}")], &format!("{pattern}{space}{LIMITS}"))
}

fn report(a: &Search, b: &Search, more: &[&str]) -> Output {
    let mut command = Command::new(gputune());
    command.arg("report").arg(a.out()).arg(b.out()).args(more).env("COLUMNS", "80").output().unwrap()
}

fn json(a: &Search, b: &Search) -> Value {
    let output = report(a, b, &["--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn the_same_search_twice_is_as_fast_as_itself() {
    let search = search("[space]\nx = { values = [10, 20, 30] }\n[baseline]\nx = 10\n", "{x}");
    search.run();
    let comparison = json(&search, &search);
    assert_eq!(comparison["speedup"]["value"], 1.0);
    assert_eq!(comparison["configs"].as_array().unwrap().len(), 3);
    assert!(comparison["differences"].as_array().unwrap().is_empty(), "{comparison}");
    let output = report(&search, &search, &["--max-slowdown", "0%"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("the best of B is 1.00x"), "{}", stdout(&output));
}

#[test]
fn a_regression_has_an_exit_code_and_a_reason() {
    let space = "[space]\nx = { values = [10, 20] }\n[baseline]\nx = 10\n";
    let (fast, slow) = (search(space, "{x}00"), search(space, "{x}90"));
    let faster = search(space, "1{x}00");
    for search in [&fast, &slow, &faster] {
        assert_eq!(search.run().status.code(), Some(0));
    }
    let output = report(&faster, &fast, &["--max-slowdown", "5%"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let reason = stderr(&output);
    assert!(reason.contains("regression: the best of B is 83.3 % worse than the best of A in throughput"), "{reason}");
    assert!(reason.contains("at most 5.0 % are allowed") && stdout(&output).contains("best of both"), "{reason}");
    assert_eq!(report(&faster, &fast, &["--max-slowdown", "90%"]).status.code(), Some(0));
    assert_eq!(report(&fast, &slow, &["--max-slowdown", "5%"]).status.code(), Some(0), "it became faster");
    for wrong in
        [&["--max-slowdown", "x"][..], &["--max-slowdown", "-1%"], &["--format", "trials"], &["--format", "no"]]
    {
        let output = report(&fast, &slow, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", stderr(&output));
    }
    let output = Command::new(gputune()).arg("report").arg(fast.out()).args(["--max-slowdown", "5%"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "it needs a second search");
}

#[test]
fn what_differs_is_named_and_what_both_have_is_compared() {
    // Each has one parameter of its own, so the spaces have equally many.
    let a = search("[space]\nx = { values = [10, 20, 30] }\nz = { values = [1, 2] }\n", "{x}{z}");
    let b = search("[space]\nx = { values = [20, 30, 40] }\ny = { values = [1, 2] }\n", "{x}{y}");
    for search in [&a, &b] {
        assert_eq!(search.run().status.code(), Some(0));
    }
    let comparison = json(&a, &b);
    let configs: Vec<&Value> =
        comparison["configs"].as_array().unwrap().iter().map(|both| &both["config"]["x"]).collect();
    assert_eq!(configs.len(), 2, "{comparison}");
    assert_eq!(comparison["alone"], serde_json::json!([1, 1]));
    let differences = comparison["differences"].to_string();
    for words in [
        "x is 10, 20, 30 in A and 20, 30, 40 in B",
        "only A has the parameter z",
        "only B has the parameter y",
        "if several match, the best counts",
        "command",
    ] {
        assert!(differences.contains(words), "{words}: {differences}");
    }
    let text = stdout(&report(&a, &b, &[]));
    assert!(text.lines().all(|line| line.width() <= 80), "{text}");
    let page = stdout(&report(&a, &b, &["--format", "html"]));
    assert!(page.contains("<h1>The best of B is ") && page.contains("<th scope=\"row\">device</th>"), "{page}");
    let markdown = stdout(&report(&a, &b, &["--format", "md"]));
    assert!(markdown.starts_with("# gputune: ") && markdown.contains("| B to A |"), "{markdown}");
    assert_eq!(markdown, stdout(&report(&a, &b, &["--format", "summary"])));
}

#[test]
fn searches_that_found_nothing_are_told_from_those_that_did() {
    let good = search("[space]\nx = { values = [10, 20] }\n", "{x}");
    let bad = search("[space]\nx = { values = [10, 20] }\n", "no {x}");
    assert_eq!(good.run().status.code(), Some(0));
    bad.run();
    let output = report(&good, &bad, &["--max-slowdown", "5%"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("B found nothing feasible, and A did"), "{}", stderr(&output));
    assert!(stdout(&output).contains("only A found anything feasible"), "{}", stdout(&output));
    assert_eq!(json(&good, &bad)["lost"].as_array().unwrap().len(), 2);
    let output = report(&bad, &bad, &["--max-slowdown", "5%"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("neither found anything feasible"), "{}", stdout(&output));
    // A journal with only its header.
    let journal = bad.out().join("journal.jsonl");
    let header = fs::read_to_string(&journal).unwrap().lines().next().unwrap().to_owned() + "\n";
    fs::write(&journal, header).unwrap();
    let output = report(&good, &bad, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("0, 0 failed"), "{}", stdout(&output));
    let missing = Command::new(gputune()).arg("report").arg(good.out()).arg("/nowhere").output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}
