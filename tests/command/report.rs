//! `gputune report`: every format from the folder of a search, wherever the folder is and however the search ended.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{self, Search, kept, stderr, stdout};
use gputune::model::Objective;
use gputune::report::{Place, REPORTS};
use gputune::search::{
    Journal, Kept, StopReason,
    kept::{JOURNAL, STUDY},
};

fn report(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(support::gputune()).arg("report").arg(folder).args(arguments).env("COLUMNS", "80").output().unwrap()
}

/// Returns true if the texts are equal up to the last digit of a number, which a journal does not keep.
fn is_alike(one: &str, other: &str) -> bool {
    let words = |text: &str| -> Vec<String> { text.split([',', ' ', '\n']).map(str::to_owned).collect() };
    let is_same = |(one, other): (String, String)| match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => (one - other).abs() <= 1e-12 * one.abs(),
        _ => one == other,
    };
    words(one).len() == words(other).len() && words(one).into_iter().zip(words(other)).all(is_same)
}

#[test]
fn a_report_says_what_the_search_said_at_its_end() {
    let search = Search::of(&["steps:300:{x}:200"], "[baseline]\nx = 1\n");
    let said = search.command().env("COLUMNS", "80").output().unwrap();
    let again = report(&search.out(), &[]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    // Tables differ in width.
    let lines = stdout(&again);
    let verdict: Vec<&str> = lines.lines().skip_while(|line| !line.starts_with("best ")).collect();
    assert!(verdict.len() > 3, "{lines}");
    // The folder is named as the user gave it, and so is the folder in the command. The command does not run in the report's
    // folder.
    for line in verdict.into_iter().filter(|line| !line.starts_with("results ") && !line.starts_with("next ")) {
        assert!(stderr(&said).contains(line), "{line}\nis not in\n{}", stderr(&said));
    }
    for (format, file) in [("summary", "summary.md"), ("trials", "trials.csv"), ("best", "best.json")] {
        let kept = fs::read_to_string(search.out().join(file)).unwrap();
        let said = stdout(&report(&search.out(), &["--format", format]));
        assert!(is_alike(&said, &kept), "{format}:\n{said}\n{kept}");
    }
}

#[test]
fn every_form_is_made_of_every_search_and_named_in_the_help_and_the_docs() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    kept::write(&place("single"));
    kept::write_front(&place("front"));
    kept::write_with(&place("one"), &Objective::default(), &kept::trials()[..1], None);
    let help = stdout(&Command::new(support::gputune()).args(["report", "--help"]).output().unwrap());
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/emit.md")).unwrap();
    for format in REPORTS {
        assert!(help.contains(&format!("- {}: ", format.name)), "{}", format.name);
        assert!(docs.contains(&format!("`{}`", format.name)), "docs/emit.md does not say `{}`", format.name);
        for search in ["single", "front", "one"] {
            let output = report(&place(search), &["--format", format.name]);
            assert_eq!(output.status.code(), Some(0), "{} {search}: {}", format.name, stderr(&output));
            match format.place {
                Place::Stdout => assert!(!output.stdout.is_empty(), "{}", format.name),
                Place::File(name) => assert!(place(search).join(name).is_file(), "{}", format.name),
                Place::Folder(name) => assert!(place(search).join(name).is_dir(), "{}", format.name),
            }
            let out = place(&format!("{search}-{}", format.name));
            let output = report(&place(search), &["--format", format.name, "--out", out.to_str().unwrap()]);
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""), "{}", stderr(&output));
            assert_eq!(out.is_dir(), matches!(format.place, Place::Folder(_)), "{}", format.name);
            assert_eq!(stderr(&output), format!("wrote {}\n", out.display()));
        }
    }
}

#[test]
fn a_search_may_run_or_have_been_interrupted_and_its_folder_may_have_moved() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (folder.path().join("a"), folder.path().join("b"));
    kept::write_with(&before, &Objective::default(), &kept::trials()[..2], None);
    fs::rename(&before, &after).unwrap();
    let said = stdout(&report(&after, &[]));
    assert!(said.contains("tried     2 configs in 24.0 s; interrupted"), "{said}");
    let space = kept::space();
    let header = Kept::read(&after).unwrap().header;
    let journal = Journal::open(&after.join(JOURNAL), &header, &space).unwrap();
    let said = stdout(&report(&after.join(JOURNAL), &[]));
    assert!(said.contains("; still running"), "{said}");
    drop(journal);
    assert_eq!(Kept::read(&after).unwrap().study.stopped, StopReason::Interrupted);
}

#[test]
fn a_folder_without_a_record_of_its_search_is_refused() {
    let search = Search::of(&["steps:300:{x}:200"], "");
    search.run();
    fs::remove_file(search.out().join(STUDY)).unwrap();
    let output = report(&search.out(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has no study.json\n\nhint: "), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_read_or_written_is_one_error_that_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    kept::write(&place("good"));
    fs::create_dir(place("empty")).unwrap();
    let write = |name: &str, file: &str, change: fn(&str) -> String| {
        kept::write(&place(name));
        let path = place(name).join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, change(&text)).unwrap();
    };
    write("begun", JOURNAL, |_| String::new());
    write("cut", JOURNAL, |text| text[..5].to_owned());
    write("newer", JOURNAL, |text| text.replace("\"format\":2", "\"format\":9"));
    write("new-study", STUDY, |text| text.replace("\"format\":1", "\"format\":7"));
    write("cut-study", STUDY, |text| text[..20].to_owned());
    write("foreign", STUDY, |text| text.replace("[\"fp32\",\"bf16\"]", "[\"fp32\"]"));
    for (name, expected) in [
        ("nowhere", "there is no folder"),
        ("empty", "is no folder of a search"),
        ("good/study.json", "is no folder of a search"),
        ("begun", "is empty: no search has started there"),
        ("cut", "is empty: no search has started there"),
        ("newer", "has format 9, and this gputune reads format 2"),
        ("new-study", "has format 7, written by gputune"),
        ("cut-study", "is damaged"),
        ("foreign", "trial 2 of"),
    ] {
        let output = report(&place(name), &[]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{name}");
        let said = stderr(&output);
        assert!(said.contains(expected) && said.contains(name) && said.contains("\nhint: "), "{said}");
    }
    let output = report(&place("good"), &["--format", "trials", "--out", "/proc/none/trials.csv"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot write /proc/none/trials.csv"), "{}", stderr(&output));
    let output = report(&place("good"), &["--format", "trials", "--out", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn nothing_feasible_is_a_report_too_but_there_is_no_best() {
    let folder = tempfile::tempdir().unwrap();
    kept::write_with(folder.path(), &Objective::default(), &kept::trials()[2..3], None);
    let output = report(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("nothing feasible"), "{}", stdout(&output));
    let output = report(folder.path(), &["--format", "best"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{}", stderr(&output));
}
