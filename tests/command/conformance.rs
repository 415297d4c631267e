//! What all commands have in common: JSON on standard output and nothing else there, errors on standard error, and no
//! failure because nobody reads the output.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{self, Search, stderr, stdout};

/// The commands that print results, each with the member that its JSON must have. A search is in `out`.
const RESULTS: &[(&[&str], &str)] = &[
    (&["search", "spec.toml", "--out", "out"], "x"),
    (&["emit", "out"], "x"),
    (&["report", "out"], "config"),
    (&["report", "out", "out"], "speedup"),
    (&["watch", "out", "--once"], "searched"),
    (&["watch", "out"], "searched"),
    (&["check", "spec.toml"], "commands"),
    (&["probe", "spec.toml", "--out", "probe"], "outcome"),
    (&["compare", "spec.toml", "x=1", "x=2", "--rounds", "2", "--time", "2m", "--out", "compare"], "ratio"),
    (&["diagnose", "spec.toml", "--time", "1m", "--out", "diagnose"], "throughput"),
    (&["device"], "host"),
    (&["replay", "out/journal.jsonl"], "runs"),
    (&["init", "--fresh", "--no-run", "--out", "new.toml", "train.py"], "parameters"),
];

/// The commands that print a document in its own format.
const DOCUMENTS: &[&[&str]] =
    &[&["schema"], &["completions", "bash"], &["--help"], &["search", "--help"], &["--version"]];

const SCRIPT: &str = "
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--batch-size', type=int, default=8)
parser.parse_args()
";

/// A folder with a finished search in `out`, whose spec is `spec.toml`.
fn searched() -> Search {
    let search = Search::of(&["forever:1:2000"], "");
    std::fs::write(search.folder.path().join("train.py"), SCRIPT).unwrap();
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    search
}

fn gputune(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(support::gputune());
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

fn text_of(output: &Output) -> String {
    stdout(output) + &stderr(output)
}

/// Returns a device whose disk is full.
fn full() -> std::fs::File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// Returns a pipe that nobody reads.
fn unread() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

#[test]
fn results_come_as_json_and_outputs_without_a_reader_change_no_exit_code() {
    let search = searched();
    let folder = search.folder.path();
    for (words, member) in RESULTS {
        let json = [*words, &["--json"]].concat();
        let output = gputune(folder, &json).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{json:?}: {}", text_of(&output));
        let read: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{json:?}: {error}: {}", stdout(&output)));
        assert!(read.get(member).is_some(), "{json:?}: {read}");
        let is_config = matches!(words[0], "search" | "emit");
        assert!(is_config || read["format"] == 1 || read.get("gputune_version").is_some(), "{json:?}: {read}");
        // The same with text, which nobody reads or for which there is no room.
        let alone = gputune(folder, words).stdout(unread()).stderr(unread()).output().unwrap();
        assert_eq!(alone.status.code(), Some(0), "{words:?}");
        let is_silent = gputune(folder, words).stderr(full()).output().unwrap();
        assert_eq!(is_silent.status.code(), Some(0), "{words:?}");
        let is_cut = gputune(folder, words).stdout(full()).output().unwrap();
        assert_eq!(is_cut.status.code(), Some(3), "{words:?}: {}", stderr(&is_cut));
        assert!(stderr(&is_cut).contains("error: cannot write to standard output: "), "{}", stderr(&is_cut));
        assert!(!stderr(&is_cut).contains("panicked"), "{}", stderr(&is_cut));
    }
    search.assert_no_survivors();
}

#[test]
fn documents_and_errors_without_a_reader_change_no_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    for words in DOCUMENTS {
        let output = gputune(folder.path(), words).stdout(unread()).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{words:?}");
        let is_cut = gputune(folder.path(), words).stdout(full()).stderr(full()).output().unwrap();
        assert_eq!(is_cut.status.code(), Some(3), "{words:?}");
    }
    // Without `--once`, `watch` waits for a search to begin.
    let rows = RESULTS.iter().map(|(words, _)| *words).filter(|words| words.len() > 1 && *words != ["watch", "out"]);
    for words in rows {
        let missing = |word: &&'static str| match *word {
            "spec.toml" => "none.toml",
            "out" => "none",
            "out/journal.jsonl" => "none/journal.jsonl",
            "train.py" => "none.py",
            word => word,
        };
        let words: Vec<&str> = words.iter().map(missing).chain(["--json"]).collect();
        let output = gputune(folder.path(), &words).output().unwrap();
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("error: "), "{words:?}: {}", stderr(&output));
        let unheard = gputune(folder.path(), &words).stderr(full()).stdout(full()).output().unwrap();
        assert_eq!(unheard.status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn a_search_whose_reader_leaves_goes_on_to_its_end() {
    let search = Search::of(&["forever:1:2000"], "");
    let mut shell = Command::new("bash");
    let line = format!("set -o pipefail; {} search spec.toml --out out 2>&1 | head -1", support::gputune());
    let output = shell.args(["-c", &line]).current_dir(search.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
    assert!(stdout(&output).lines().count() == 1 && search.out().join("best.json").exists(), "{}", text_of(&output));
    // A regression is told by the exit code, although nobody reads the comparison.
    let infeasible = Search::of(&["exit:1"], "");
    infeasible.run();
    let (a, b) = (search.out().display().to_string(), infeasible.out().display().to_string());
    let compared =
        gputune(Path::new("."), &["report", &a, &b, "--max-slowdown", "5%"]).stdout(unread()).output().unwrap();
    assert_eq!(compared.status.code(), Some(1), "{}", stderr(&compared));
}
