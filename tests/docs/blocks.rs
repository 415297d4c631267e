//! Code blocks are valid: specs are accepted, JSON is read, Python and shell scripts compile.
//!
//! A block of TOML is a spec, whole or in part: the test adds missing parts before the check. A mark after a comma says
//! otherwise: `toml,space` is a file for `import`, `toml,other` is no spec at all.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gputune::spec::Spec;

use super::pages::{Block, Page, pages, root};

fn blocks(language: &str) -> Vec<Block> {
    pages().iter().flat_map(Page::blocks).filter(|block| block.language == language).collect()
}

/// Returns the mistake in a block of TOML, if any.
fn mistake(block: &Block, folder: &Path) -> Option<String> {
    let parsed: Result<toml::Table, _> = toml::from_str(&block.text);
    let table = match parsed {
        Ok(table) => table,
        Err(error) => return Some(error.to_string()),
    };
    let mut text = match block.mark.as_str() {
        "" => block.text.clone(),
        "space" => {
            fs::write(folder.join("block.toml"), &block.text).unwrap();
            "[space]\nimport = [\"./block.toml\"]\n".to_owned()
        }
        "other" => return None,
        mark => return Some(format!("`{mark}` is no mark: say space or other, or nothing for a spec")),
    };
    if !table.contains_key("step") {
        // A part of a spec may use any name.
        text += "\n[step]\ncommand = [\"train\"]\nadapter = \"torch\"\n";
    }
    if !table.contains_key("space") && block.mark.is_empty() {
        text += "\n[space]\nbatch_size = { powers_of_two = [8, 512] }\nworkers = { range = [0, 8] }\n";
    }
    let path = folder.join("spec.toml");
    fs::write(&path, text).unwrap();
    // A spec may name a folder to learn from, or a template, that the test lacks.
    match Spec::load(&path) {
        Err(error) if !error.to_string().contains("No such file") => Some(error.to_string()),
        _ => None,
    }
}

#[test]
fn blocks_of_toml_are_specs() {
    let blocks = blocks("toml");
    assert!(blocks.len() > 6, "only {} blocks were seen", blocks.len());
    let folder = tempfile::tempdir().unwrap();
    for block in blocks {
        if let Some(mistake) = mistake(&block, folder.path()) {
            panic!("{}: {mistake}\n{}", block.place, block.text);
        }
    }
}

#[test]
fn a_mistake_in_a_block_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let block = |mark: &str, text: &str| Block {
        place: String::new(),
        language: "toml".to_owned(),
        mark: mark.to_owned(),
        text: text.to_owned(),
    };
    for (mark, text) in [
        ("", "[limits]\nmemory_headrom = 0.1\n"),
        ("", "[search]\nprobes = \"many\"\n"),
        ("", "[space]\nbatch_size = { values = [] }\n"),
        ("space", "[space]\nworkers = { range = [8, 0] }\n"),
        ("other", "a = \n"),
        ("anything", "[search]\nprobes = 3\n"),
    ] {
        assert!(mistake(&block(mark, text), folder.path()).is_some(), "{text}");
    }
    assert_eq!(mistake(&block("", "[search]\nprobes = 3\n"), folder.path()), None);
}

#[test]
fn blocks_of_json_are_read() {
    for block in blocks("json") {
        let text = block.text.trim();
        let whole = if text.starts_with(['{', '[']) { text.to_owned() } else { format!("{{{text}}}") };
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).map(drop);
        let lines = || text.lines().all(|line| read(line).is_ok());
        assert!(read(&whole).is_ok() || lines(), "{}: {:?}", block.place, read(&whole));
    }
}

/// Runs a program with a text as its standard input, and returns its complaint; `None` if the program is missing.
fn complaint(program: &str, arguments: &[&str], text: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("NOT RUN: {program}: {error}");
            return None;
        }
    };
    // A program that does not read to the end has complained already.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    let output = child.wait_with_output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn blocks_of_python_compile() {
    for block in blocks("python") {
        let compile = "import sys; compile(sys.stdin.read(), 'block', 'exec')";
        if let Some(complaint) = complaint("python3", &["-c", compile], &block.text) {
            panic!("{}: {complaint}", block.place);
        }
    }
}

#[test]
fn blocks_of_shell_are_read() {
    for block in blocks("sh").into_iter().chain(blocks("bash")) {
        if let Some(complaint) = complaint("bash", &["-n"], &block.text) {
            panic!("{}: {complaint}", block.place);
        }
    }
    for block in blocks("console") {
        let lines = block.text.lines().filter_map(|line| line.strip_prefix("$ "));
        let script: Vec<&str> = lines.collect();
        assert!(!script.is_empty(), "{}: no line of a console begins with `$ `", block.place);
        if let Some(complaint) = complaint("bash", &["-n"], &(script.join("\n") + "\n")) {
            panic!("{}: {complaint}", block.place);
        }
    }
}

#[test]
fn every_page_with_rust_is_a_doc_test() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for block in blocks("rust") {
        let page = block.place.split(':').next().unwrap();
        assert!(
            lib.contains(&format!("include_str!(\"../{page}\")")),
            "{}: not among the doc tests of src/lib.rs",
            block.place
        );
    }
}
