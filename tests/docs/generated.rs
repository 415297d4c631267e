//! Tables of the documentation that come from tables of the program: between `<!-- generated: NAME -->` and `<!-- end -->`.

use std::fmt::Write as _;
use std::fs;

use gputune::diagnosis::{self, Cause, DIFFERENTIALS, Kind, PARAMETERS, Scope};
use gputune::model::Value;
use gputune::probe::{
    SILENCERS,
    adapter::{Numerics, TARGETS},
    worker::LAUNCHERS,
};
use gputune::search::STRATEGIES;
use gputune::spec::SHIPPED_SPACES;

use super::pages::{pages, root};

/// The name in the marks, and the function that makes its text.
type Generated = (&'static str, fn() -> String);

const TABLES: &[Generated] = &[
    ("strategies", strategies),
    ("search spaces", search_spaces),
    ("adapter targets", adapter_targets),
    ("causes", causes),
    ("thresholds", thresholds),
    ("differential probes", differential_probes),
    ("parameters worth opening", parameters_worth_opening),
    ("trackers", trackers),
    ("launchers", launchers),
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

fn launchers() -> String {
    let mut text = String::from("| launcher | what it has |\n|---|---|\n");
    for launcher in LAUNCHERS {
        let _ = writeln!(text, "| `{}` | {} |", launcher.name, cell(launcher.about));
    }
    text
}

fn trackers() -> String {
    let mut text = String::from("| for | variable | value | what it does |\n|---|---|---|---|\n");
    for silencer in SILENCERS {
        let (tracker, about) = (cell(silencer.tracker), cell(silencer.about));
        let name = format!("`{}`", silencer.variable);
        let name = if silencer.source.is_empty() { name } else { format!("[{name}]({})", silencer.source) };
        let _ = writeln!(text, "| {tracker} | {name} | `{}` | {about} |", silencer.value);
    }
    text
}

fn adapter_targets() -> String {
    let mut text = String::from("| target | settings | what it sets | new | full |\n|---|---|---|---|---|\n");
    for target in TARGETS {
        let full = match target.numerics {
            Numerics::Changed(full) if matches!(Value::parse(full), Value::Text(_)) => format!("`\"{full}\"`"),
            Numerics::Changed(full) => format!("`{full}`"),
            Numerics::Same | Numerics::Other => String::new(),
        };
        let needs = target.needs.words();
        let (name, about, settings) = (target.shown_name(), cell(target.about), cell(&target.accepts.words()));
        let _ = writeln!(text, "| `{name}` | {settings} | {about} | {needs} | {full} |");
    }
    text
}

/// Writes a section for each cause: its meaning, its signs and its remedies. Thresholds have a page of their own.
fn causes() -> String {
    let mut text = String::new();
    for cause in diagnosis::causes() {
        let _ = writeln!(text, "## {}\n\n`{}`. {}\n", cause.title, cause.name, cause.about);
        let kind = match cause.kind {
            Kind::Validity => " Falsifies the measurement.",
            Kind::Healthy => " Nothing holds the job back.",
            Kind::Bottleneck => "",
        };
        let scope = match cause.scope {
            Scope::Any => "",
            Scope::Gpu => " GPU only.",
            Scope::Ranks => " Several ranks only.",
        };
        let _ = writeln!(text, "- Signs: {}.{kind}{scope}", cause.signature.trim_end_matches('.'));
        if !cause.opens.is_empty() {
            let names: Vec<String> = cause.opens.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(text, "- Parameters: {}.", names.join(", "));
        }
        for cure in cause.cures {
            let mut letters = cure.what.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            let _ = writeln!(text, "- {}.", first.chain(letters).collect::<String>());
        }
        text.push('\n');
    }
    text
}

/// Writes a row for each threshold, with its source and the causes that compare with it.
fn thresholds() -> String {
    let mut text = String::from("| threshold | value | source | causes |\n|---|--:|---|---|\n");
    let mut seen: Vec<&str> = Vec::new();
    for threshold in diagnosis::causes().flat_map(|cause| cause.thresholds) {
        if seen.contains(&threshold.what) {
            continue;
        }
        seen.push(threshold.what);
        let uses = |cause: &&Cause| cause.thresholds.iter().any(|other| other.what == threshold.what);
        let causes: Vec<String> = diagnosis::causes().filter(uses).map(|cause| format!("`{}`", cause.name)).collect();
        let (what, source) = (cell(threshold.what), cell(threshold.source));
        let _ = writeln!(text, "| {what} | {} | {source} | {} |", threshold.value, causes.join(", "));
    }
    text
}

fn differential_probes() -> String {
    let mut text = String::from("| probe | what it measures |\n|---|---|\n");
    for row in DIFFERENTIALS {
        let _ = writeln!(text, "| {} (`{}`) | {} |", row.label, row.name, cell(row.measures));
    }
    text
}

fn parameters_worth_opening() -> String {
    let mut text = String::from("| parameter | applied to | why |\n|---|---|---|\n");
    for row in PARAMETERS {
        let _ = writeln!(text, "| `{}` | `{}` | {} |", row.name, row.target, cell(row.why));
    }
    text
}

/// Writes a section for each file: its first comment, and the names of its imports and of the parameters to search.
fn search_spaces() -> String {
    let mut text = String::new();
    for (name, file) in SHIPPED_SPACES {
        let comment: Vec<&str> = file.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
        let space = file.lines().filter(|line| !line.starts_with(['#', '[']) && !line.starts_with("where "));
        let space = space.filter(|line| !line.contains("{ derive = "));
        let names = space.filter_map(|line| line.split_once(" = ")).map(|(key, value)| match key.trim() {
            "import" => value.trim_matches(['[', ']']).split(", ").map(|name| format!("all of {name}")).collect(),
            name => vec![format!("`{name}`")],
        });
        let names: Vec<String> = names.flatten().collect();
        let file = format!("[`{name}.toml`](../search-spaces/{name}.toml)");
        let _ = writeln!(text, "### `{name}`\n\n{}\n\n{file}: {}.\n", comment.join("\n"), names.join(", "));
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
