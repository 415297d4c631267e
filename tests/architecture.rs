//! Modules depend downwards: a module uses only those of lower layers.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the library, from the lowest layer up. `cli` is above all and belongs to the binary alone.
const LAYERS: &[&[&str]] = &[
    &["space", "outcome", "metric", "fact", "quantity", "process_table", "precision", "foreign"],
    &["trial", "telemetry", "stats", "arrival"],
    &["adapter"],
    &["objective", "journal", "budget", "numerics", "machine", "ceilings"],
    &["event"],
    &["strategy", "probe", "study", "status"],
    &["diagnosis", "emit"],
    &["tuner", "kept", "demo", "environment"],
    &["report"],
    &["spec"],
    &["init"],
    &["edits"],
];

/// Within the lowest layer, what a config is may rest on how a probe can end and on quantities, never the other way.
const ALSO_ALLOWED: &[(&str, &str)] =
    &[("space", "outcome"), ("outcome", "metric"), ("outcome", "fact"), ("foreign", "precision")];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files.extend(rust_files(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    files.sort();
    files
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The module of the library that a file belongs to.
fn module_of(file: &Path) -> String {
    let first = file.strip_prefix(source()).unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// The modules that a text names after `crate::`, leaving comments and the tests at its foot out.
fn uses(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.collect::<Vec<_>>().join("\n");
    let names = code.match_indices("crate::").map(|(at, found)| {
        let rest = &code[at + found.len()..];
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()
    });
    names.collect()
}

#[test]
fn every_module_has_a_layer() {
    let lib = fs::read_to_string(source().join("lib.rs")).unwrap();
    let declared =
        lib.lines().filter_map(|line| line.trim().trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    for module in declared {
        assert!(layer(module).is_some(), "give `{module}` a layer in tests/architecture.rs");
    }
}

#[test]
fn modules_use_only_lower_layers() {
    let mut checked = 0;
    for file in rust_files(&source()) {
        let module = module_of(&file);
        let Some(own) = layer(&module) else { continue };
        for used in uses(&fs::read_to_string(&file).unwrap()) {
            let allowed = used == module || ALSO_ALLOWED.contains(&(module.as_str(), used.as_str()));
            let Some(other) = layer(&used).filter(|_| !allowed) else { continue };
            checked += 1;
            assert!(other < own, "{}: `{module}` may not use `{used}`", file.display());
        }
    }
    assert!(checked > 50, "only {checked} uses were seen: does the test still read the code?");
}

#[test]
fn the_library_knows_nothing_of_the_command_line() {
    let lib = fs::read_to_string(source().join("lib.rs")).unwrap();
    assert!(!lib.contains("mod cli"));
    assert!(fs::read_to_string(source().join("main.rs")).unwrap().contains("mod cli;"));
}

#[test]
fn functions_and_files_stay_small_and_say_what_they_are_for() {
    const LONGEST: usize = 355;
    for file in rust_files(&source()) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!") || text.starts_with("#!["), "{} does not say what it is for", file.display());
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//")).count();
        assert!(lines <= LONGEST, "{} has {lines} lines of code: is there a second idea in it?", file.display());
    }
}
