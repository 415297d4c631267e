//! README and docs match the program: links lead somewhere, code blocks are valid, tables come from the program.
//!
//! `GPUTUNE_BLESS=1 cargo test --test docs` writes the generated tables anew. The tests of the binary check commands
//! (`src/cli/reference.rs`), and `cargo test --doc` checks blocks of Rust.
#![expect(clippy::unwrap_used, reason = "tests")]

mod blocks;
mod generated;
mod output;
#[expect(dead_code, reason = "the tests of the binary read the same pages, and more of them")]
mod pages;

use std::fs;
use std::path::Path;

use pages::{pages, read, root};

#[test]
fn the_readme_shows_the_quick_start_as_it_is() {
    let spec = read("examples/quickstart.toml");
    let lines: Vec<&str> = spec.lines().filter(|line| !line.starts_with('#')).collect();
    let pages = ["README.md", "docs/tutorial.md"].map(read);
    assert!(
        pages.iter().any(|page| page.contains(lines.join("\n").trim())),
        "the spec in README.md or docs/tutorial.md is not examples/quickstart.toml"
    );
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    assert!(pages.len() > 15, "only {} pages were found", pages.len());
    let mut checked = 0;
    for page in &pages {
        let folder = root().join(&page.path).parent().map(Path::to_owned).unwrap();
        for target in page.targets() {
            if target.starts_with("http://") || target.starts_with("https://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { root().join(&page.path) } else { folder.join(file) };
            assert!(path.exists(), "{}: {target} is not there", page.path);
            checked += 1;
            if anchor.is_empty() {
                continue;
            }
            let path = fs::canonicalize(&path).unwrap();
            let linked = pages.iter().find(|page| fs::canonicalize(root().join(&page.path)).unwrap() == path);
            let anchors = linked.map(pages::Page::anchors).unwrap_or_default();
            assert!(anchors.iter().any(|known| known == anchor), "{}: {target}: no such heading", page.path);
        }
    }
    assert!(checked > 80, "only {checked} links were seen: does the test still read the pages?");
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    let summary = pages().into_iter().find(|page| page.path == "docs/SUMMARY.md").unwrap();
    let mut listed: Vec<String> = summary.targets().iter().map(|target| format!("docs/{target}")).collect();
    let mut there: Vec<String> = pages()
        .into_iter()
        .map(|page| page.path)
        .filter(|path| path.starts_with("docs/") && *path != summary.path)
        .collect();
    listed.sort();
    there.sort();
    assert_eq!(listed, there, "docs/SUMMARY.md is to list every page in docs/, once");
}

#[test]
fn every_key_of_the_spec_is_described() {
    let docs = read("docs/spec.md");
    let schema: serde_json::Value = serde_json::from_str(&read("docs/gputune.schema.json")).unwrap();
    for (table, definition) in schema["$defs"].as_object().unwrap() {
        for key in definition["properties"].as_object().into_iter().flatten().map(|(key, _)| key) {
            let words = [format!("`{key}`"), format!("`{key} ="), format!("{key} =")];
            assert!(
                words.iter().any(|word| docs.contains(word.as_str())),
                "docs/spec.md says nothing of {table}.{key}"
            );
        }
    }
}

#[test]
fn the_list_of_strategies_in_the_spec_is_whole() {
    let spec = read("docs/spec.md");
    let line = spec.lines().find(|line| line.starts_with("| `strategy` |")).unwrap();
    let mut names = gputune::search::STRATEGIES.iter().map(|entry| entry.name);
    assert!(names.all(|name| line.contains(&format!("`{name}`"))), "{line}");
}

#[test]
fn the_example_specs_are_accepted() {
    for spec in [
        "examples/quickstart.toml",
        "examples/front.toml",
        "examples/pytorch/gputune.toml",
        "examples/events/gputune.toml",
    ] {
        if let Err(error) = gputune::spec::Spec::load(&root().join(spec)) {
            panic!("{spec}: {error}");
        }
    }
}
