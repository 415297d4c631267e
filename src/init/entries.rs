//! Reads the numbers in files of settings: YAML, JSON, TOML, INI and `.env`.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::argument::Argument;

/// The size of the largest file that is read, in bytes. A round number.
const MOST_BYTES: u64 = 1024 * 1024;
/// Sections of a file that are not about training.
const NOT_TRAINING: &[&str] = &["val", "valid", "validation", "eval", "evaluation", "test", "testing", "inference"];

/// A number in a file, with its key and the section around it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    section: Option<String>,
    pub(super) value: i64,
    /// The bytes of the number in the file.
    pub(super) place: Range<usize>,
}

impl Entry {
    /// Returns true unless the entry's section is about evaluation.
    pub(super) fn trains(&self) -> bool {
        let section = self.section.as_deref().map(Argument::plain).unwrap_or_default();
        !NOT_TRAINING.iter().any(|word| section.split('-').any(|part| part == *word))
    }
}

/// Returns the text of a file and its numbers; `None` for a large or unreadable file.
pub(super) fn read(file: &Path) -> Option<(String, Vec<Entry>)> {
    let is_fit = fs::metadata(file).is_ok_and(|data| data.is_file() && data.len() <= MOST_BYTES);
    let text = fs::read_to_string(file).ok().filter(|_| is_fit)?;
    let entries = entries(&text);
    Some((text, entries))
}

/// Returns the whole numbers of a file with their keys: `batch_size: 16`, `"batch_size": "16"`, `batch_size = 16`.
fn entries(text: &str) -> Vec<Entry> {
    static ENTRY: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"(?:^|[\s{,])["']?([A-Za-z_][\w.-]*)["']?\s*[:=]\s*["']?(\d+)["']?\s*(?:$|[,}#;])"#).ok()
    });
    static SECTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"^\s*(?:\[\[?([\w.-]+)\]\]?|["']?([A-Za-z_][\w.-]*)["']?\s*:\s*[{]?)\s*(?:#.*)?$"#).ok()
    });
    let (Some(entry), Some(section)) = (ENTRY.as_ref(), SECTION.as_ref()) else { return Vec::new() };
    let (mut found, mut open, mut begin): (Vec<Entry>, Vec<(usize, String)>, usize) = Default::default();
    for line in text.split_inclusive('\n') {
        // In INI files, `;` also begins a comment.
        let is_comment = line.trim_start().starts_with(';');
        let code = line.split('#').next().filter(|_| !is_comment).unwrap_or_default().trim_end();
        let indent = code.len() - code.trim_start().len();
        if let Some(named) = section.captures(code) {
            open.retain(|(outer, _)| *outer < indent);
            if let Some(name) = named.get(1).or(named.get(2)) {
                // A table of TOML holds the lines below it, whatever their indentation.
                open.retain(|_| named.get(1).is_none());
                open.push((indent, name.as_str().to_owned()));
            }
        }
        for captures in entry.captures_iter(code) {
            let (Some(key), Some(value)) = (captures.get(1), captures.get(2)) else { continue };
            let Ok(number) = value.as_str().parse() else { continue };
            let is_table = |(outer, _): &&(usize, String)| *outer < indent || code.contains('=');
            found.push(Entry {
                key: key.as_str().to_owned(),
                section: open.iter().rev().find(is_table).map(|(_, name)| name.clone()),
                value: number,
                place: begin + value.start()..begin + value.end(),
            });
        }
        begin += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_with_their_sections() {
        for (text, expected) in [
            ("a: 1\ndata:\n  bs: 16   # samples\n  lr: 0.1\nval:\n  bs: 8\n", "a=1 data.bs=16 val.bs=8"),
            ("{\n  \"train\": {\n    \"bs\": 4, \"n\": 2\n  },\n  \"b\": 3\n}", "train.bs=4 train.n=2 b=3"),
            ("seed = 1\n[data]\nbs = 32\n# bs = 3\n[data.eval]\nbs = 5\n", "seed=1 data.bs=32 data.eval.bs=5"),
            ("x: 1.5\ny: '3'\nz: [1, 2]\n", "y=3"),
            ("train:\n    \"batch-size\": \"16\"\n", "train.batch-size=16"),
            ("[training]\nbs = 16 ; samples\n; bs = 3\n[validation]\nbs=8\n", "training.bs=16 validation.bs=8"),
            ("export BATCH_SIZE=16\nLR=0.1\n", "BATCH_SIZE=16"),
        ] {
            let shown = |entry: &Entry| {
                assert_eq!(text[entry.place.clone()], entry.value.to_string());
                let section = entry.section.as_ref().map(|section| format!("{section}.")).unwrap_or_default();
                format!("{section}{}={}", entry.key, entry.value)
            };
            assert_eq!(entries(text).iter().map(shown).collect::<Vec<_>>().join(" "), expected, "{text}");
        }
    }
}
