//! README and docs say what is there: the spec that is shown is the one that is run, links lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

const PAGES: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "docs/spec.md",
    "docs/search.md",
    "docs/protocol.md",
    "docs/outcomes.md",
    "docs/failures.md",
    "docs/device.md",
    "docs/metrics.md",
    "examples/pytorch/README.md",
];

#[test]
fn the_readme_shows_the_quick_start_as_it_is() {
    let spec = read("examples/quickstart.toml");
    let lines: Vec<&str> = spec.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(
        read("README.md").contains(lines.join("\n").trim()),
        "the spec in README.md is not examples/quickstart.toml"
    );
}

#[test]
fn links_to_files_lead_somewhere() {
    for page in PAGES {
        let folder = root().join(page).parent().map(Path::to_owned).unwrap();
        let text = read(page);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { root().join(page) } else { folder.join(file) };
            assert!(path.exists(), "{page}: {target}");
            let linked = fs::read_to_string(&path).unwrap_or_default();
            assert!(anchor.is_empty() || headings(&linked).contains(&anchor.to_owned()), "{page}: {target}");
        }
    }
}

/// Headings as links name them: lower case, blanks as hyphens, other signs left out.
fn headings(text: &str) -> Vec<String> {
    let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    titles
        .map(|title| {
            let kept = title
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .collect::<String>();
            kept.replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_strategy_is_in_the_table_and_in_the_list_of_the_spec() {
    let (search, spec) = (read("docs/search.md"), read("docs/spec.md"));
    let table = search.lines().skip_while(|line| !line.starts_with("| strategy | what it does |"));
    let table = table.skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = table.filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let names: Vec<&str> = gputune::strategy::STRATEGIES.iter().map(|entry| entry.name).collect();
    assert_eq!(rows, names, "the table in docs/search.md");
    let line = spec.lines().find(|line| line.starts_with("| `strategy` |")).unwrap();
    assert!(names.iter().all(|name| line.contains(&format!("`{name}`"))), "{line}");
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
