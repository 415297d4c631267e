//! Tables of the documentation that are tables of the program: between `<!-- generated: NAME -->` and `<!-- end -->`.

use std::fmt::Write as _;
use std::fs;

use gputune::adapter::{By, Literal, Numerics, TARGETS};
use gputune::emit::FORMATS;
use gputune::spec::SHIPPED_SPACES;
use gputune::strategy::STRATEGIES;

use super::pages::{pages, root};

/// What a name in the marks stands for.
type Generated = (&'static str, fn() -> String);

const TABLES: &[Generated] = &[
    ("strategies", strategies),
    ("emit formats", emit_formats),
    ("search spaces", search_spaces),
    ("adapter targets", adapter_targets),
];

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn strategies() -> String {
    let mut text = String::from("| strategy | what it does |\n|---|---|\n");
    for entry in STRATEGIES {
        let _ = writeln!(text, "| `{}` | {} |", entry.name, cell(entry.about));
    }
    text
}

fn emit_formats() -> String {
    let mut text = String::from("| `--format` | the config as |\n|---|---|\n");
    for format in FORMATS {
        let _ = writeln!(text, "| `{}` | {} |", format.name, cell(format.about));
    }
    text
}

fn adapter_targets() -> String {
    let mut text = String::from(
        "| target | what a setting does | settings | who sets it | in full precision |\n|---|---|---|---|---|\n",
    );
    for target in TARGETS {
        let by = match target.by {
            By::Hook(_) => "hook",
            By::Environment => "environment",
            By::Argument => "argument",
        };
        let full = match target.numerics {
            Numerics::Changed(Literal::Text(name)) => format!("`\"{name}\"`"),
            Numerics::Changed(Literal::Bool(is)) => format!("`{is}`"),
            Numerics::Same | Numerics::Other => String::new(),
        };
        let (name, about, settings) = (target.shown_name(), cell(target.about), cell(&target.accepts.words()));
        let _ = writeln!(text, "| `{name}` | {about} | {settings} | {by} | {full} |");
    }
    text
}

/// Each file as it is, its comment as text.
fn search_spaces() -> String {
    let mut text = String::new();
    for (name, file) in SHIPPED_SPACES {
        let comment: Vec<&str> = file.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
        let code: Vec<&str> = file.lines().skip(comment.len()).collect();
        let _ = writeln!(
            text,
            "### `import = [\"{name}\"]`\n\n{}\n\n```toml,space\n{}\n```\n",
            comment.join("\n"),
            code.join("\n").trim()
        );
    }
    text
}

#[test]
fn generated_tables_are_those_of_the_program() {
    let blesses = std::env::var_os("GPUTUNE_BLESS").is_some();
    let mut seen = Vec::new();
    for page in pages() {
        let mut text = page.text.clone();
        for (name, table) in TABLES {
            let begin = format!("<!-- generated: {name} -->\n");
            let Some((before, rest)) = text.split_once(&begin) else { continue };
            let (kept, after) = rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{}: no end", page.path));
            let table = format!("\n{}\n", table());
            seen.push(*name);
            if blesses {
                text = format!("{before}{begin}{table}<!-- end -->{after}");
            } else {
                assert!(kept == table, "{}: {name}: run `GPUTUNE_BLESS=1 cargo test --test docs`", page.path);
            }
        }
        if blesses && text != page.text {
            fs::write(root().join(&page.path), text).unwrap();
        }
    }
    for (name, _) in TABLES {
        assert!(seen.contains(name), "no page has the table of {name}");
    }
}
