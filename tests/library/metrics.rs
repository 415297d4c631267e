//! The page on metrics matches the table of metrics.
//!
//! `GPUTUNE_BLESS=1 cargo test --test library metrics::` writes its tables anew.

#![expect(clippy::unwrap_used, reason = "a test may end where it cannot go on")]

use std::fmt::Write as _;
use std::path::Path;

use gputune::model::{
    METRICS,
    metric::{MetricRow, SOURCES},
};

const BEGIN: &str =
    "<!-- metrics: generated from src/model/metric.rs; GPUTUNE_BLESS=1 cargo test --test library metrics:: -->\n";
const END: &str = "<!-- end -->\n";

fn tables() -> String {
    let mut text = String::new();
    let is_of_host = |row: &&MetricRow| {
        ["cpu_", "host_", "read_", "io_", "memory_pressure"].iter().any(|start| row.name.starts_with(start))
    };
    for (title, is_host) in [("GPU", false), ("Host", true)] {
        let _ = writeln!(
            text,
            "\n## {title}\n\n| metric | unit | source | meaning | what it is not |\n|---|---|---|---|---|"
        );
        for row in METRICS.iter().filter(|row| is_of_host(row) == is_host) {
            let sources: Vec<String> = row
                .sources
                .iter()
                .map(|origin| {
                    let name = serde_json::to_value(origin.source).unwrap();
                    let needs = if origin.needs.is_empty() { String::new() } else { format!(" ({})", origin.needs) };
                    format!("`{}`{needs}", name.as_str().unwrap())
                })
                .collect();
            let (name, label, unit) = (row.name, row.label, row.unit.words());
            let _ = writeln!(
                text,
                "| `{name}`<br>{label} | {unit} | {} | {} | {} |",
                sources.join(", "),
                row.meaning,
                row.is_not
            );
        }
    }
    text.push_str("\n## Sources\n\n| source | what it is |\n|---|---|\n");
    for row in SOURCES {
        let _ = writeln!(text, "| `{}` | {} |", row.name, row.meaning);
    }
    text.push('\n');
    text
}

#[test]
fn the_page_has_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (kept, after) = rest.split_once(END).unwrap();
    if std::env::var_os("GPUTUNE_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", tables())).unwrap();
        return;
    }
    assert!(kept == tables(), "run GPUTUNE_BLESS=1 cargo test --test library metrics::");
}
