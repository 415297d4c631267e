//! Handles scripts that parse `--name=value` from the command line themselves, for their own variables.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::argument::{Argument, Kind};
use super::calls::{code, literal};
use super::command::Command;
use super::knobs::VOCABULARIES;
use super::source::Source;

/// The bytes of a config file that are read.
const MOST_BYTES: u64 = 256 * 1024;

/// The names that a script's command line can set, with their values as written.
type Names = BTreeMap<String, String>;

impl Source {
    /// Returns the options of such a script with their default values, from the script or from a settings file that the command
    /// names.
    pub fn own_options(&self, command: &Command, cwd: &Path) -> Vec<Argument> {
        if self.parses_arguments() {
            return Vec::new();
        }
        let mut all = self.places();
        if !self.splits_words() {
            return all;
        }
        let mut names = self.settable();
        for text in command.told().iter().filter_map(|word| config_file(word, cwd)) {
            let known: Vec<String> = names.keys().cloned().collect();
            let there = assignments(&text).into_iter().filter(|(name, _)| known.contains(name));
            names.extend(there);
        }
        let dashes = if self.has_dashes() { "--" } else { "" };
        all.extend(names.into_iter().map(|(name, value)| argument(format!("{dashes}{name}"), &value)));
        all
    }

    /// Returns the names that the script takes from positions of its command line: `batch_size = int(sys.argv[2])`.
    fn places(&self) -> Vec<Argument> {
        static PLACE: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"(?m)^\s*([A-Za-z_]\w*)\s*=\s*(?:int|str|float)?\(?\s*sys\.argv\[(\d)\]").ok()
        });
        let (Some(main), Some(pattern)) = (self.texts.first(), PLACE.as_ref()) else { return Vec::new() };
        let code = code(main);
        let found = pattern.captures_iter(&code).filter_map(|found| {
            let place = found.get(2)?.as_str().parse().ok().filter(|place| *place > 0)?;
            let name = found.get(1)?.as_str().to_owned();
            Some(Argument { names: vec![name], kind: Kind::Place(place), default: None, is_required: false })
        });
        found.collect()
    }

    /// Returns true if the script splits words of its command line at `=`.
    fn splits_words(&self) -> bool {
        static SPLIT: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r#"\.(?:r?split|r?partition)\(\s*['"]=['"]"#).ok());
        let splits = |text: &String| SPLIT.as_ref().is_some_and(|pattern| pattern.is_match(text));
        self.reads_command_line && self.texts.iter().any(splits)
    }

    /// Returns true if its options start with two dashes.
    fn has_dashes(&self) -> bool {
        let takes = |text: &String| {
            let reads = text.contains("argv") || text.contains("split('=')") || text.contains("split(\"=\"");
            reads && ["'--'", "\"--\"", "lstrip('-')", "lstrip(\"-\")", "[2:]"].iter().any(|sign| text.contains(sign))
        };
        self.texts.iter().any(takes)
    }

    /// Returns the names that can be set: the script's globals, attributes of a config object, or keys of a dictionary.
    fn settable(&self) -> Names {
        let Some(main) = self.texts.first() else { return Names::new() };
        let has = |word: &str| self.texts.iter().any(|text| text.contains(word));
        if has("globals()") {
            return assignments(main);
        }
        if has("setattr(") {
            return self.attributes(main);
        }
        entries(main)
    }

    /// Returns the names in a config whose parts come from classes. `C.trainer = Trainer.get_default_config()`, with
    /// `C.batch_size = 64` in that class, gives `trainer.batch_size`.
    fn attributes(&self, main: &str) -> Names {
        static LINK: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"(?m)^\s*[A-Za-z_]\w*\.([A-Za-z_][\w.]*)\s*=\s*([A-Za-z_]\w*)\.[A-Za-z_]\w*\(\s*\)").ok()
        });
        let classes: Vec<(Option<String>, Names)> = self.texts.iter().flat_map(|text| by_class(text)).collect();
        let mut names = Names::new();
        for link in LINK.as_ref().into_iter().flat_map(|pattern| pattern.captures_iter(main)) {
            let (Some(path), Some(class)) = (link.get(1), link.get(2)) else { continue };
            let of_class = classes.iter().filter(|(name, _)| name.as_deref() == Some(class.as_str()));
            let below = of_class.flat_map(|(_, names)| names);
            names.extend(below.map(|(name, value)| (format!("{}.{name}", path.as_str()), value.clone())));
        }
        let own = by_class(main).into_iter().filter(|(class, _)| class.is_none());
        names.extend(own.flat_map(|(_, names)| names));
        names
    }
}

/// Makes an argument from a value: the default is its literal, and a number format gets the names of its family as choices.
fn argument(name: String, value: &str) -> Argument {
    let default = literal(value).or_else(|| product(value));
    let texts = value.split(['\'', '"']).skip(1).step_by(2);
    let family = |text: &str| VOCABULARIES.iter().find(|family| family[1..].contains(&text));
    let choices = texts.into_iter().find_map(family).map(|family| family.map(str::to_owned).to_vec());
    let kind =
        if name.starts_with("--") { Kind::Assigned { choices: choices.unwrap_or_default() } } else { Kind::Override };
    Argument { names: vec![name], kind, default: default.filter(|value| value != "None"), is_required: false }
}

/// Computes a product such as `5 * 8`.
fn product(text: &str) -> Option<String> {
    let factors = text.split('*').map(|factor| factor.trim().parse::<i64>().ok());
    let product = factors.collect::<Option<Vec<_>>>()?.into_iter().try_fold(1_i64, i64::checked_mul)?;
    Some(product.to_string())
}

/// Returns the assignments at the beginning of lines: `name = value`, up to a comment. The first assignment of each name counts.
fn assignments(text: &str) -> Names {
    let mut names = Names::new();
    for line in text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic())) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.split(':').next().unwrap_or_default().trim();
        let value = value.split(" #").next().unwrap_or_default().trim();
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name && !value.is_empty() && !value.starts_with('=') {
            names.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    names
}

/// Returns, for each class of a text, the names it assigns to attributes of other objects: `C.batch_size = 64`.
fn by_class(text: &str) -> Vec<(Option<String>, Names)> {
    static MEMBER: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^\s+([A-Za-z_]\w*)\.([A-Za-z_][\w.]*)\s*=\s*([^=#].*?)\s*(?:#.*)?$").ok());
    let mut all = vec![(None, Names::new())];
    for line in text.lines() {
        if let Some(class) = line.strip_prefix("class ") {
            let name = class.split(['(', ':']).next().unwrap_or_default().trim();
            all.push((Some(name.to_owned()), Names::new()));
        } else if line.starts_with(|c: char| !c.is_whitespace() && c != '#' && c != '@') && all.len() > 1 {
            all.push((None, Names::new()));
        }
        let Some(found) = MEMBER.as_ref().and_then(|pattern| pattern.captures(line)) else { continue };
        let part = |at: usize| found.get(at).map_or("", |part| part.as_str());
        let is_value = literal(part(3)).is_some() || product(part(3)).is_some();
        if part(1) != "self"
            && is_value
            && let Some((_, names)) = all.last_mut()
        {
            names.entry(part(2).to_owned()).or_insert_with(|| part(3).to_owned());
        }
    }
    all
}

/// Returns the entries of literal dictionaries: `"batch_size": 64`.
fn entries(text: &str) -> Names {
    static ENTRY: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"['"]([A-Za-z_]\w*)['"]\s*:\s*([\w."'-]+)\s*(?:$|[,}#])"#).ok());
    let found = ENTRY.as_ref().into_iter().flat_map(|pattern| pattern.captures_iter(text));
    let pairs = found.filter_map(|found| Some((found.get(1)?.as_str().to_owned(), found.get(2)?.as_str().to_owned())));
    pairs.filter(|(_, value)| literal(value).is_some()).collect()
}

/// Reads a settings file that a command names, such as `config/small.py`.
fn config_file(word: &str, cwd: &Path) -> Option<String> {
    let path = cwd.join(word).to_owned();
    let is_one = word.ends_with(".py") && path.is_file();
    let mut text = String::new();
    fs::File::open(path).ok().filter(|_| is_one)?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, words: &[&str]) -> Vec<String> {
        let command = Command::new(words.iter().map(|&word| word.to_owned()).collect(), "python3");
        let all = Source::of(text).own_options(&command, Path::new("/nowhere"));
        let one =
            |argument: &Argument| format!("{} {}", argument.spelled(), argument.default.as_deref().unwrap_or("-"));
        all.iter().map(one).collect()
    }

    #[test]
    fn names_of_a_module_are_its_options() {
        let text = "import sys\nbatch_size = 12 # small\nsteps = 5 * 8\ndtype = 'bfloat16' if x else 'float16'\nname = 'a'\n\
                    for arg in sys.argv[1:]:\n    key, val = arg.split('=')\n    globals()[key[2:]] = val\n";
        assert_eq!(shown(text, &["t.py"]), ["--batch_size 12", "--dtype -", "--name a", "--steps 40"]);
        let dtype = Source::of(text).own_options(&Command::new(vec!["t.py".to_owned()], "python3"), Path::new("/"));
        let dtype = dtype.into_iter().find(|argument| argument.spelled() == "--dtype").unwrap();
        assert_eq!(dtype.kind.choices(), ["float32", "bfloat16", "float16"]);
        assert_eq!(
            shown(&format!("import argparse\nargparse.ArgumentParser().parse_args()\n{text}"), &["t.py"]),
            Vec::<String>::new(),
            "it has a parser"
        );
    }

    #[test]
    fn parts_of_a_config_are_named_by_their_path() {
        let text = "import sys\ndef get_config():\n    C = CN()\n    C.system.seed = 3\n    C.trainer = Trainer.defaults()\n    C.trainer.lr = 5e-4\n\
                    class Trainer:\n    def defaults():\n        C.num_workers = 4\n        C.lr = 1\n\
                    def merge(self, args):\n    for arg in args:\n        key, val = arg.split('=')\n        setattr(self, key[2:], val)\n\
                    merge(c, sys.argv[1:])\n";
        assert_eq!(shown(text, &["t.py"]), ["--system.seed 3", "--trainer.lr 5e-4", "--trainer.num_workers 4"]);
    }

    #[test]
    fn entries_of_a_dictionary_and_places_are_found() {
        let text = "import sys\nconfig = {\n  'batch_size': 64, # each\n  \"amp\": True}\nfor a in sys.argv[1:]:\n  k, v = a.split('=')\n  config[k] = v\n";
        assert_eq!(shown(text, &["t.py"]), ["amp True", "batch_size 64"]);
        let text = "import sys\ndata = sys.argv[1]\nbatch_size = int(sys.argv[2])\n";
        assert_eq!(shown(text, &["t.py", "x", "32"]), ["data -", "batch_size -"]);
    }
}
