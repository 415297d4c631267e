//! Output of the program on the pages: each label that begins a line is a label that the program prints.
//!
//! `gputune search`, `tune`, `report` and `compare` begin lines with a label in ten columns, such as `speedup   1.69x`. A
//! label that the source no longer prints fails the test, so a page cannot keep an old wording.

use std::fs;
use std::path::{Path, PathBuf};

use super::pages::{Page, pages, root};

/// The columns of a label with the blanks behind it.
const LABEL: usize = 10;

/// The folders whose files print reports.
const FOLDERS: [&str; 2] = ["src/report", "src/cli"];

/// The file that prints two searches side by side: labels are cells of a table, without blanks behind them.
const COMPARISON: &str = "src/report/compare_text.rs";

/// A line of this text is in each comparison of two searches.
const OF_TWO_SEARCHES: &str = "B to A ";

/// Returns the label that begins a line: words in ten columns, with at least two blanks behind them.
fn label(line: &str) -> Option<&str> {
    let (end, _) = line.char_indices().nth(LABEL)?;
    let (head, text) = line.split_at(end);
    let label = head.trim_end();
    let is_name = label.starts_with(|c: char| c.is_ascii_alphabetic())
        && label.chars().all(|c| c.is_ascii_alphabetic() || c == ' ');
    // One letter is a side of `gputune compare`: A or B.
    (is_name && label.len() > 1 && label.len() + 2 <= LABEL && !text.starts_with(' ')).then_some(label)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            collect(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// Returns the source of a file without its tests, which may repeat labels.
fn without_tests(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()
}

/// Returns the source that prints reports.
fn source() -> String {
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&root().join(folder), &mut files);
    }
    assert!(files.len() > 30, "only {} source files were found", files.len());
    files.iter().map(|file| without_tests(file)).collect()
}

/// Returns true if a string literal of the source is this label, or begins with it and its blanks.
fn is_printed(label: &str, source: &str) -> bool {
    let with_blanks = format!("{label:<LABEL$}");
    let begins = ["\"", "\\n"].iter().any(|before| source.contains(&format!("{before}{with_blanks}")));
    // A label of several lines: `if at == 0 { "trace" } else { "" }`.
    let of_the_first_line = format!("{{ \"{label}\" }}");
    begins || source.contains(&of_the_first_line) || source.contains(&format!("labelled(\"{label}\""))
}

#[test]
fn labels_of_output_are_labels_that_the_program_prints() {
    let source = source();
    let comparison = without_tests(&root().join(COMPARISON));
    let mut checked = 0;
    for block in pages().iter().flat_map(Page::blocks).filter(|block| block.language == "text") {
        let is_of_two = block.text.lines().any(|line| line.starts_with(OF_TWO_SEARCHES));
        for label in block.text.lines().filter_map(label) {
            let is_cell = is_of_two && comparison.contains(&format!("\"{label}\","));
            assert!(
                is_cell || is_printed(label, &source),
                "{}: gputune prints no label `{label}`: copy the output of a new run",
                block.place
            );
            checked += 1;
        }
    }
    assert!(checked > 25, "only {checked} labels were seen: does the test still read the blocks?");
}

#[test]
fn an_old_label_is_seen() {
    let labels = |text: &'static str| text.lines().filter_map(label).collect::<Vec<_>>();
    assert_eq!(labels("speedup   1.69x\n          (1.61 to 1.78)\nleft out  3 steps"), ["speedup", "left out"]);
    // Lines of the live view, of a diagnosis, of `gputune check`, of Python, and of a table have other columns.
    let others =
        "speed   3,120 samples/s\nranks       2; 53 %\nspace      batch_size\nwhole run  17.3 min\n 1  best  32";
    assert!(labels(others).is_empty(), "{:?}", labels(others));
    let source = source();
    assert!(["best", "limit", "tried", "next", "trace"].iter().all(|label| is_printed(label, &source)));
    assert!(!["fastest", "winner", "ended"].iter().any(|label| is_printed(label, &source)));
}
