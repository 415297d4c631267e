//! Output for users and editors: help texts, the schema, completions, usage errors.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{self, stderr, stdout};

fn run(arguments: &[&str]) -> Output {
    Command::new(support::gputune()).args(arguments).env("COLUMNS", "100").output().unwrap()
}

#[test]
fn help_texts() {
    let commands = [
        "search",
        "watch",
        "diagnose",
        "check",
        "device",
        "report",
        "emit",
        "replay",
        "schema",
        "demo-step",
        "completions",
        "man",
    ];
    let mut text = stdout(&run(&["--help"]));
    for command in commands {
        let output = run(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        text += &format!("\n$ gputune {command} --help\n{}", stdout(&output));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_schema_in_the_docs_is_the_one_that_is_printed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gputune.schema.json");
    let printed = stdout(&run(&["schema"]));
    if std::env::var_os("GPUTUNE_BLESS").is_some() {
        fs::write(&path, &printed).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap();
    assert!(kept == printed, "run `gputune schema > docs/gputune.schema.json`");
}

#[test]
fn the_schema_knows_every_table_and_describes_every_key() {
    let schema: serde_json::Value = serde_json::from_str(&stdout(&run(&["schema"]))).unwrap();
    for table in ["step", "space", "rules", "baseline", "limits", "objective", "search"] {
        assert!(schema["properties"].get(table).is_some(), "{table}");
    }
    for (table, definition) in schema["$defs"].as_object().unwrap() {
        for (key, property) in definition["properties"].as_object().into_iter().flatten() {
            let described = property.get("description").is_some() || table == "SpaceTable";
            assert!(described, "{table}.{key} has no description");
        }
    }
}

#[test]
fn completions_come_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && stdout(&output).contains("gputune"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    assert!(run(&["man", pages.to_str().unwrap()]).status.success());
    for (page, text) in [("gputune.1", "gputune\\-tune(1)"), ("gputune-search.1", r"\fB\-\-time\fR")] {
        let written = fs::read_to_string(pages.join(page)).unwrap();
        assert!(written.contains(text), "{written}");
    }
    fs::write(folder.path().join("file"), "").unwrap();
    let output = run(&["man", folder.path().join("file/pages").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("error: cannot write the pages to "), "{}", stderr(&output));
}

#[test]
fn usage_errors_have_exit_code_2_and_print_nothing_to_stdout() {
    for arguments in [
        &[][..],
        &["serach"],
        &["search"],
        &["search", "no-such-file.toml"],
        &["check", "/"],
        &["report"],
        &["report", "/no/such/folder"],
        &["report", "."],
        &["report", ".", "--format", "pdf"],
        &["emit", "/no/such/folder"],
        &["emit", ".", "--format", "xml"],
        &["replay", "no-such-table.csv"],
        &["replay", "table.csv", "--strategy", "magic"],
        &["replay", "table.csv", "--probes", "0"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_is_gone_is_no_error() {
    let mut child = Command::new(support::gputune())
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
}

#[test]
fn the_demo_step_trains_and_refuses_nonsense() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let output = run(&["demo-step", "--batch-size", "4", "--steps", "3", "--data-dir", &data]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("step 3  loss "), "{}", stdout(&output));
    for arguments in [["--batch-size", "0"], ["--memory-limit", "1MiB"]] {
        let output = run(&["demo-step", arguments[0], arguments[1], "--data-dir", &data]);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    }
    assert_eq!(run(&["demo-step", "--precision", "f64"]).status.code(), Some(2));
}

#[test]
fn the_quick_start_spec_is_accepted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart.toml");
    let output = run(&["check", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("configs    84"), "{}", stdout(&output));
}
