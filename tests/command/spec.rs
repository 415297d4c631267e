//! Every mistake in a spec gives one message with its place and a hint; good specs are accepted.
//!
//! `GPUTUNE_BLESS=1 cargo test --test command spec::` writes the expected output anew.

#![expect(clippy::unwrap_used, reason = "a test may end where it cannot go on")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proptest::prelude::*;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/specs").join(name)
}

/// The specs of a folder, by name.
fn specs(name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder(name)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".toml")).collect();
    names.sort();
    names
}

/// Runs gputune in a folder, so that messages show relative paths.
fn gputune(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputune"));
    command.current_dir(folder).env("NO_COLOR", "1").args(arguments).output().unwrap()
}

/// Compares with a file next to the spec, or writes that file.
fn compare(path: &Path, found: &str) -> Result<(), String> {
    if std::env::var_os("GPUTUNE_BLESS").is_some() {
        std::fs::write(path, found).unwrap();
        return Ok(());
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    if expected == found {
        return Ok(());
    }
    Err(format!("{}\n--- expected\n{expected}\n--- found\n{found}", path.display()))
}

/// Checks the format of every message: one error, its place, a caret and a hint.
fn check_form(message: &str) -> Result<(), String> {
    let lines: Vec<&str> = message.lines().collect();
    let count = |wanted: &str| lines.iter().filter(|line| line.contains(wanted)).count();
    let is_place = |line: &str| {
        let numbers = line.trim_start().strip_prefix("--> ").map(|place| place.rsplitn(3, ':').collect::<Vec<_>>());
        numbers.is_some_and(|parts| parts.len() == 3 && parts[..2].iter().all(|part| part.parse::<u32>().is_ok()))
    };
    let is_caret = |line: &str| {
        let marks = line.trim_start().trim_start_matches('|').trim();
        line.contains('|') && !marks.is_empty() && marks.chars().all(|c| c == '^')
    };
    let checks = [
        ("begins with `error: `", message.starts_with("error: ")),
        ("has one error", lines.iter().filter(|line| line.starts_with("error")).count() == 1),
        ("has file:line:column", lines.iter().filter(|line| is_place(line)).count() == 1),
        ("has one line with carets", lines.iter().filter(|line| is_caret(line)).count() == 1),
        ("has one hint", count("hint: ") == 1),
        ("has no words of a library", count("invalid type") + count("expected a") + count("panicked") == 0),
        ("has no path from the root", count(env!("CARGO_MANIFEST_DIR")) == 0),
    ];
    let failed: Vec<&str> = checks.iter().filter(|(_, holds)| !holds).map(|(what, _)| *what).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("it is not so that it {}:\n{message}", failed.join(", "))) }
}

fn check_bad_spec(name: &str) -> Result<(), String> {
    let output = gputune(&folder("bad"), &["check", name]);
    let message = String::from_utf8(output.stderr).map_err(|error| error.to_string())?;
    if output.status.code() != Some(2) || !output.stdout.is_empty() {
        return Err(format!("{}, with this output:\n{message}", output.status));
    }
    check_form(&message)?;
    compare(&folder("bad").join(Path::new(name).with_extension("stderr")), &message)
}

#[test]
fn every_mistake_has_its_message() {
    let names = specs("bad");
    assert!(names.len() > 200, "{} bad specs", names.len());
    let check = |name: &String| check_bad_spec(name).err().map(|error| format!("{name}: {error}"));
    let failures: Vec<String> = names.iter().filter_map(check).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), names.len(), failures.join("\n"));
}

#[test]
fn a_search_shows_the_same_message_and_leaves_nothing_behind() {
    let out = tempfile::tempdir().unwrap();
    let out_dir = out.path().join("out");
    for name in specs("bad") {
        let checked = gputune(&folder("bad"), &["check", &name]);
        let searched = gputune(&folder("bad"), &["search", &name, "--out", out_dir.to_str().unwrap()]);
        assert_eq!(searched.status.code(), Some(2), "{name}");
        assert!(searched.stdout.is_empty(), "{name}");
        assert_eq!(String::from_utf8(searched.stderr), String::from_utf8(checked.stderr), "{name}");
        assert!(!out_dir.exists(), "{name}");
    }
}

#[test]
fn a_spec_that_cannot_be_read_is_named() {
    for path in ["no-such-file.toml", "imported", "/dev/zero"] {
        let output = gputune(&folder("bad"), &["check", path]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.starts_with(&format!("error: cannot read `{path}`: ")), "{message}");
        assert!(message.contains("hint: "), "{message}");
    }
}

#[test]
fn good_specs_are_accepted() {
    let names = specs("good");
    assert!(names.len() >= 6, "{} good specs", names.len());
    for name in names {
        let output = gputune(&folder("good"), &["check", &name]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{name}: {message}");
        assert!(!message.contains("error"), "{name}: {message}");
    }
}

#[test]
fn what_check_shows() {
    for name in ["as-in-the-readme.toml", "every-kind-of-parameter.toml", "adapter.toml", "front.toml", "weights.toml"]
    {
        let output = gputune(&folder("good"), &["check", name]);
        let root = env!("CARGO_MANIFEST_DIR");
        let shown = String::from_utf8(output.stdout).unwrap().replace(root, "[root]");
        // The protection differs between machines: tests/command/writes.rs covers it.
        let lines = shown.lines().map(|line| if line.starts_with("writes ") { "writes     [as here]" } else { line });
        let shown: String = lines.map(|line| format!("{line}\n")).collect();
        let path = folder("good").join(Path::new(name).with_extension("stdout"));
        compare(&path, &shown).unwrap_or_else(|difference| panic!("{difference}"));
    }
}

/// One change to a text: a position from 0 to 1, the number of bytes to replace, and their replacement.
type Change = (f64, usize, Vec<u8>);

fn change() -> impl Strategy<Value = Change> {
    let signs = prop::sample::select(b"[]{}\"'=.,#\n\r\t \\0-1aze\xff\xc3".to_vec());
    let pieces =
        prop::sample::select(vec!["[[", "]]", "\"\"\"", "when = ", "derive", "nan", "1e999", "-", "{a?", "\u{feff}"]);
    let bytes = prop_oneof![
        prop::collection::vec(signs, 0..4),
        prop::collection::vec(any::<u8>(), 0..4),
        pieces.prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    (0.0..1.0, 0_usize..6, bytes)
}

fn changed(text: &[u8], changes: Vec<Change>) -> Vec<u8> {
    let mut text = text.to_vec();
    for (place, removed, bytes) in changes {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a share"
        )]
        let start = (place * text.len() as f64) as usize;
        let end = (start + removed).min(text.len());
        text.splice(start..end, bytes);
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(changes in prop::collection::vec(change(), 1..5), which in 0_usize..3) {
        let name = ["as-in-the-readme.toml", "every-kind-of-parameter.toml", "texts-of-several-lines.toml"][which];
        let good = std::fs::read(folder("good").join(name)).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("spec.toml");
        std::fs::write(&path, changed(&good, changes)).unwrap();
        if let Err(error) = gputune::spec::Spec::load(&path) {
            prop_assert!(!error.message.is_empty());
            prop_assert!(error.hint.is_some(), "{}", error.message);
            let span = error.span.clone().unwrap_or(0..0);
            prop_assert!(error.text.get(span).is_some(), "{}", error.message);
        }
    }
}
