//! Reads a script without running it: its imports, its arguments, and the calls that show its settings. An interpreter parses the
//! script and its own modules with `ast` (`python/asking/read_source.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::argument::{Argument, Kind};
use super::command::Command;
use super::constants::{Constant, constants};
use super::knobs::VOCABULARIES;
use crate::search::environment;

const READER: &str = include_str!("../../python/asking/read_source.py");

/// A call in Python source.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Call {
    /// The name of the called function, as written: `torch.utils.data.DataLoader`.
    pub name: String,
    /// Positional arguments, as written.
    pub positional: Vec<String>,
    /// Keyword arguments.
    pub named: Vec<(String, String)>,
    /// The line where the call begins, counted from 1.
    pub line: usize,
}

impl Call {
    /// Returns the last part of the name.
    pub fn last(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// Returns the code of a named argument.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }
}

/// A file of a script's own, and its calls in the order of the text.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) calls: Vec<Call>,
}

/// The facts from a script's source.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Source {
    /// The modules that the script and its own modules import, each with its parents: `torch`, `torch.utils`.
    pub modules: BTreeSet<String>,
    /// True if the script uses gputune's protocol itself.
    pub speaks_protocol: bool,
    /// The rate that the script prints: a pattern for the number, and its unit.
    pub printed_rate: Option<(String, String)>,
    /// The files that were read, the script first.
    pub(super) files: Vec<SourceFile>,
    /// True if the ranks of the script share the batches to accumulate.
    pub(super) shares_accumulation: bool,
    /// Names with the literal that the source assigns to them; `None` if it assigns several values.
    constants: BTreeMap<String, Option<String>>,
    /// The same for attributes (`cfg.batch_size = 64`) and keys (`"batch_size": 64`).
    members: BTreeMap<String, Option<String>>,
    arguments: Vec<Argument>,
    own_options: OwnOptions,
    parses_arguments: bool,
    /// True if the script has a loader, or may get a loader from another module. The script's own classes and functions with such
    /// names do not count.
    pub has_loader: bool,
    /// True if the script always starts its ranks: it calls `torch.multiprocessing.spawn` unconditionally.
    pub spawns_ranks: bool,
    launcher_variable: Option<String>,
    /// Values of the command's options, by plain names.
    #[serde(skip)]
    given: BTreeMap<String, String>,
}

/// The settings of a script that parses its command line itself.
#[derive(Debug, Clone, Default, Deserialize)]
struct OwnOptions {
    /// Names with their positions on the command line: `batch_size = int(sys.argv[2])`.
    places: Vec<(String, usize)>,
    /// Options with their defaults, and the strings in the code of the default.
    options: Vec<(String, Option<String>, Vec<String>)>,
}

impl Source {
    /// Reads the script of a command, together with its own modules that it imports and files that it executes. Without a script, or
    /// without an interpreter, the source is empty.
    ///
    /// # Errors
    /// The script cannot be read. A module that cannot be read is left out.
    pub fn read(command: &Command, cwd: &Path) -> io::Result<Self> {
        let cwd = std::path::absolute(cwd)?;
        let Some(script) = command.script(&cwd) else { return Ok(Self::default()) };
        fs::read(&script)?;
        let asked = json!({ "script": script, "cwd": cwd, "words": command.told() });
        Ok(Self::asked(&command.words, &cwd, &asked).told_by(command))
    }

    /// Reads a single text; empty without an interpreter.
    pub fn of(text: &str) -> Self {
        Self::asked(&[], Path::new("."), &json!({ "text": text, "cwd": ".", "words": [] }))
    }

    fn asked(words: &[String], cwd: &Path, asked: &Value) -> Self {
        environment::ask(words, cwd, READER, asked).unwrap_or_default()
    }

    /// Returns the value of an argument: a literal, or a name that has the same literal everywhere, such as `BATCH`,
    /// `config["batch_size"]`, or `args.batch_size` if an option of that name has a default.
    pub fn value(&self, text: &str) -> Option<String> {
        let text = text.trim();
        let known = literal(text).or_else(|| self.constants.get(text)?.clone());
        let name = || text.trim_end_matches(['\'', '"', ']']).rsplit(['.', '\'', '"']).next();
        known.or_else(|| {
            let name = name().filter(|name| *name != text && !name.is_empty())?;
            let is_this = |it: &&Argument| it.names.iter().any(|known| Argument::plain(known) == Argument::plain(name));
            if let Some(given) = self.given.get(&Argument::plain(name)) {
                return Some(given.clone());
            }
            let declared = self.arguments.iter().find(is_this).and_then(|argument| argument.default.clone());
            declared.or_else(|| self.members.get(name)?.clone()).or_else(|| self.constants.get(name)?.clone())
        })
    }

    /// Adds the values of the command's options, since `args.batch_size` in the script may be one of them.
    fn told_by(mut self, command: &Command) -> Self {
        let words = command.inner().told();
        for (at, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with('-')) {
            let next = words.get(at + 1).filter(|next| !next.starts_with('-')).cloned();
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), next),
            };
            let spelled = self.arguments.iter().find(|known| known.names.iter().any(|other| other == name));
            let plain = Argument::plain(spelled.map_or(name, Argument::spelled));
            if let Some(value) = value {
                self.given.insert(plain, value);
            }
        }
        self
    }

    /// Returns true if a source was read.
    pub fn is_read(&self) -> bool {
        !self.files.is_empty()
    }

    /// Returns true if the script imports a module.
    pub fn imports(&self, module: &str) -> bool {
        self.modules.contains(module)
    }

    /// Returns true if the script imports a module, or calls it by its full name.
    pub(super) fn has(&self, module: &str) -> bool {
        self.imports(module) || self.calls().any(|call| call.name == module)
    }

    /// Returns true if the script parses arguments in a way that answers to `--help`, or if its source could not be read.
    pub fn parses_arguments(&self) -> bool {
        self.parses_arguments || !self.is_read()
    }

    /// Returns the launcher's variable that the script requires, if the command has no launcher.
    pub fn needs_launcher(&self, command: &Command) -> Option<&str> {
        self.launcher_variable.as_deref().filter(|_| command.launcher().is_none() && !self.spawns_ranks)
    }

    /// Returns the arguments that the source declares, with their defaults if these are literals. The source declares them in calls
    /// of a parser, in a function's parameters (typer, fire), or in fields of a dataclass (such as for `HfArgumentParser` and tyro).
    pub fn arguments(&self) -> Vec<Argument> {
        self.arguments.clone()
    }

    /// Returns the options of a script that parses `--name=value` itself, with their defaults from the script or from a settings
    /// file that the command names. A number format gets the names of its family as choices.
    pub fn own_options(&self) -> Vec<Argument> {
        let places =
            self.own_options.places.iter().map(|(name, place)| Argument::new(vec![name.clone()], Kind::Place(*place)));
        let options = self.own_options.options.iter().map(|(name, default, strings)| {
            let family = |text: &String| VOCABULARIES.iter().find(|family| family[1..].contains(&text.as_str()));
            let family = strings.iter().find_map(family);
            let choices = family.map(|family| family.map(str::to_owned).to_vec()).unwrap_or_default();
            let kind = if name.starts_with("--") { Kind::Assigned { choices } } else { Kind::Override };
            let default = default.clone().filter(|value| value != "None");
            Argument { default, ..Argument::new(vec![name.clone()], kind) }
        });
        places.chain(options).collect()
    }

    /// Returns the constants of the script and its own modules that fix a known parameter. Their places are as seen from `cwd`.
    pub fn constants(&self, cwd: &Path) -> Vec<Constant> {
        let of_file = |(path, text): (PathBuf, String)| constants(&text, &path.display().to_string());
        self.texts(cwd).into_iter().flat_map(of_file).collect()
    }

    /// Returns the files of the script, each with its path as seen from `cwd` and its text.
    pub(super) fn texts(&self, cwd: &Path) -> Vec<(PathBuf, String)> {
        let cwd = std::path::absolute(cwd).unwrap_or_default();
        let of_file = |file: &SourceFile| {
            let path = file.path.strip_prefix(&cwd).unwrap_or(&file.path).to_owned();
            Some((path, fs::read_to_string(&file.path).ok()?))
        };
        self.files.iter().filter_map(of_file).collect()
    }

    /// Returns all calls, the script's own first.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.files.iter().flat_map(|file| &file.calls)
    }

    /// Returns the calls of this last name.
    pub fn named(&self, name: &str) -> Vec<&Call> {
        self.calls().filter(|call| call.last() == name).collect()
    }

    /// Returns the training loader: it shuffles, samples, or has `train` in its dataset's name; else the first loader.
    pub fn loader(&self) -> Option<&Call> {
        let fits = |call: &Call| {
            let shuffles = call.get("shuffle").is_some_and(|shuffle| shuffle != "False");
            let is_random = |name: &str| ["Random", "Distributed", "train"].iter().any(|word| name.contains(word));
            let samples = call.get("sampler").is_some_and(is_random);
            let data = call.positional.first().map_or("", String::as_str);
            i32::from(shuffles) * 2 + i32::from(samples) * 2 + i32::from(data.contains("train"))
        };
        let loaders = self.named("DataLoader");
        let best = loaders.iter().map(|call| fits(call)).max()?;
        loaders.into_iter().find(|call| fits(call) == best)
    }

    /// Returns the `apply` target that is equivalent to an option of the script, which can then change while the script trains. Each
    /// loader that may train must take the option's unmodified value: `DataLoader(..., batch_size=args.batch_size)`.
    pub(super) fn loader_target(&self, parameter: &str, option: &Argument) -> Option<&'static str> {
        let (name, target) = match parameter {
            "batch_size" => ("batch_size", "dataloader.batch_size"),
            "workers" => ("num_workers", "dataloader.num_workers"),
            _ => return None,
        };
        if !matches!(option.kind, Kind::Value { .. }) || !option.spelled().starts_with("--") {
            return None;
        }
        // argparse stores the value under its first long option, with underscores.
        let kept = option.spelled().trim_start_matches('-').replace('-', "_");
        let is_option = |text: &str| {
            let (of, attribute) = text.trim().rsplit_once('.').unwrap_or_default();
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            attribute == kept && !of.is_empty() && of.chars().all(is_name)
        };
        let trains = |call: &&Call| call.get("shuffle").is_some_and(|shuffle| shuffle != "False");
        let calls = self.named("DataLoader");
        let is_any_shuffled = calls.iter().any(&trains);
        let mut training = calls.into_iter().filter(|call| !is_any_shuffled || trains(call)).peekable();
        training.peek()?;
        training.all(|call| call.get(name).is_some_and(is_option)).then_some(target)
    }
}

/// Returns the value of a literal: an unquoted string, a number, `True`, `False` or `None`. Other code gives no value.
pub fn literal(text: &str) -> Option<String> {
    let text = text.trim();
    let quoted = |quote: char| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains([quote, '\\'])).then(|| inner.to_owned())
    };
    let plain = || {
        let is_number =
            text.parse::<f64>().is_ok() && text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
        let is_constant = matches!(text, "True" | "False" | "None");
        (is_number || is_constant).then(|| text.to_owned())
    };
    quoted('"').or_else(|| quoted('\'')).or_else(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_values_and_nothing_else_is() {
        for (text, value) in [
            ("'a'", Some("a")),
            ("\"b\"", Some("b")),
            ("1e-3", Some("1e-3")),
            ("True", Some("True")),
            ("x", None),
            ("'a' + b", None),
            ("inf", None),
            ("", None),
            ("f'x'", None),
        ] {
            assert_eq!(literal(text).as_deref(), value, "{text}");
        }
    }

    #[test]
    fn options_that_a_script_parses_itself_are_arguments() {
        let options = r#"{"places": [["batch", 2]], "options": [["--dtype", null, ["float16", "bfloat16"]], ["lr", "None", []]]}"#;
        let source: Source = serde_json::from_str(&format!("{{\"own_options\": {options}}}")).unwrap();
        let all = source.own_options();
        assert_eq!((all[0].spelled(), &all[0].kind), ("batch", &Kind::Place(2)));
        assert_eq!(all[1].kind.choices(), ["float32", "bfloat16", "float16"]);
        assert_eq!((all[2].spelled(), &all[2].kind, &all[2].default), ("lr", &Kind::Override, &None));
        assert!(source.parses_arguments() && !source.is_read(), "a script that cannot be read is asked for its help");
    }

    #[test]
    fn an_option_is_the_loaders_if_all_that_may_train_take_it_unmodified() {
        const TEXT: &str = "\
train = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=self.opt.num_workers)
test = DataLoader(other, batch_size=4 * args.batch_size)";
        let found = |parameter: &str, option: &str, text: &str| {
            let option = Argument::new(vec![option.to_owned()], Kind::Value { choices: Vec::new() });
            Source::of(text).loader_target(parameter, &option)
        };
        assert_eq!(found("batch_size", "--batch-size", TEXT), Some("dataloader.batch_size"));
        assert_eq!(found("workers", "--num-workers", TEXT), Some("dataloader.num_workers"));
        assert_eq!(found("workers", "--workers", TEXT), None);
        assert_eq!(found("batch_size", "-b", TEXT), None);
        for other in [
            "DataLoader(data, batch_size=args.batch_size // 2, shuffle=True)",
            "DataLoader(data, batch_size=batch_size, shuffle=True)",
            "DataLoader(data, batch_size=args.batch_size, shuffle=True); DataLoader(data, batch_size=8, shuffle=True)",
            "DataLoader(data, args.batch_size, shuffle=True)",
            "",
        ] {
            assert_eq!(found("batch_size", "--batch-size", other), None, "{other}");
        }
    }
}
