//! Reads a script without running it: what it imports, and the calls that tell its settings.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::argument::{Argument, Kind};
use super::calls::{Call, calls, literal, literals};

/// Files of a script's own that are read: a project's package may be large.
const MOST_FILES: usize = 60;
/// Bytes of a file that are read.
const MOST_BYTES: u64 = 512 * 1024;

/// Bytes of one import.
const LONGEST_IMPORT: usize = 4_000;

/// The calls that are looked at: arguments, loaders, precision, the frameworks' own, and gputune's.
const WANTED: &[&str] = &[
    "add_argument",
    "option",
    "DEFINE_integer",
    "DEFINE_enum",
    "DEFINE_bool",
    "DEFINE_boolean",
    "DEFINE_string",
    "DataLoader",
    "autocast",
    "set_float32_matmul_precision",
    "GradScaler",
    "TrainingArguments",
    "Seq2SeqTrainingArguments",
    "Trainer",
    "Fabric",
    "Accelerator",
    "LightningCLI",
    "HfArgumentParser",
    "config",
    "step",
    "fit",
    "initialize",
    "AdamW",
    "Adam",
    "SGD",
    "compile",
    "set_global_policy",
];

/// Modules that parse arguments, and so answer to `--help`.
const PARSERS: &[&str] = &[
    "argparse",
    "click",
    "typer",
    "hydra",
    "absl",
    "fire",
    "tyro",
    "simple_parsing",
    "jsonargparse",
    "docopt",
    "configargparse",
    "lightning.pytorch.cli",
    "pytorch_lightning.cli",
    "draccus",
    "tap",
    "plac",
    "optparse",
    "gflags",
];

/// What a script's source tells.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// The modules that it and its own modules import, each with those above it: `torch`, `torch.utils`.
    pub modules: BTreeSet<String>,
    /// The calls that tell settings, its own file first.
    pub calls: Vec<Call>,
    /// Whether any text in it reads the command line: `sys.argv`.
    pub reads_command_line: bool,
    /// Names that are assigned one literal in all of its text, and the literal.
    constants: BTreeMap<String, Option<String>>,
    /// Whether it speaks gputune's protocol by itself.
    pub speaks_protocol: bool,
    /// The rate that it prints: a pattern for the number, and its unit.
    pub printed_rate: Option<(String, String)>,
}

impl Source {
    /// Reads a script and the modules beside it that it imports.
    ///
    /// # Errors
    /// The script cannot be read. A module that cannot be read is left out.
    pub fn read(script: &Path) -> io::Result<Self> {
        let mut source = Self::default();
        let folder = script.parent().unwrap_or(Path::new("."));
        let mut left = VecDeque::from([script.to_owned()]);
        let mut seen = BTreeSet::from([script.to_owned()]);
        let mut first = true;
        while let Some(file) = left.pop_front() {
            let text = match text(&file) {
                Ok(text) => text,
                Err(error) if first => return Err(error),
                Err(_) => continue,
            };
            first = false;
            for module in source.add(&text) {
                for own in own_files(folder, file.parent().unwrap_or(folder), &module) {
                    if seen.len() < MOST_FILES && own.is_file() && seen.insert(own.clone()) {
                        left.push_back(own);
                    }
                }
            }
        }
        Ok(source)
    }

    /// Of one text.
    pub fn of(text: &str) -> Self {
        let mut source = Self::default();
        source.add(text);
        source
    }

    /// Adds a text; the modules that it imports, as they are written.
    fn add(&mut self, text: &str) -> Vec<String> {
        let modules = imports(text);
        for module in &modules {
            let parts: Vec<&str> = module.split('.').filter(|part| !part.is_empty()).collect();
            self.modules.extend((1..=parts.len()).filter_map(|end| parts.get(..end)).map(|parts| parts.join(".")));
        }
        self.calls.extend(calls(text, WANTED));
        self.reads_command_line |= text.contains("sys.argv");
        self.speaks_protocol |= text.contains("GPUTUNE_SOCKET");
        self.add_constants(text);
        self.printed_rate = self.printed_rate.take().or_else(|| printed_rate(text));
        modules
    }

    /// Names with a literal of their own: `BATCH = 16`, or `batch_size=16` as a default of a function.
    fn add_constants(&mut self, text: &str) {
        const ASSIGNED: &str =
            r#"(?m)(?:^|[(,\s])([A-Za-z_]\w*)\s*(?::\s*(?:int|str|bool)\s*)?=\s*([\w."'-]+)\s*(?:$|[,)#])"#;
        static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ASSIGNED).ok());
        let Some(pattern) = PATTERN.as_ref() else { return };
        for found in pattern.captures_iter(text) {
            let (Some(name), Some(value)) = (found.get(1), found.get(2)) else { continue };
            let Some(value) = literal(value.as_str()) else { continue };
            let known = self.constants.entry(name.as_str().to_owned()).or_insert_with(|| Some(value.clone()));
            if known.as_ref() != Some(&value) {
                *known = None;
            }
        }
    }

    /// What an argument is: a literal, or a name that has one everywhere.
    pub fn value(&self, text: &str) -> Option<String> {
        literal(text).or_else(|| self.constants.get(text.trim())?.clone())
    }

    /// Whether it imports a module.
    pub fn imports(&self, module: &str) -> bool {
        self.modules.contains(module)
    }

    /// Whether it asks for arguments in a way that answers to `--help`.
    pub fn parses_arguments(&self) -> bool {
        PARSERS.iter().any(|parser| self.imports(parser))
            || !self.named("HfArgumentParser").is_empty()
            || !self.named("LightningCLI").is_empty()
    }

    /// The calls of this last name.
    pub fn named(&self, name: &str) -> Vec<&Call> {
        self.calls.iter().filter(|call| call.last() == name).collect()
    }

    /// Calls of the package `gputune`.
    pub fn of_gputune(&self, name: &str) -> Option<&Call> {
        let full = format!("gputune.{name}");
        self.calls.iter().find(|call| call.name == full)
    }

    /// The loader that trains: one that shuffles, or else the first.
    pub fn loader(&self) -> Option<&Call> {
        let loaders = self.named("DataLoader");
        let shuffles = |call: &&&Call| call.get("shuffle").is_some_and(|shuffle| shuffle != "False");
        loaders.iter().find(shuffles).or(loaders.first()).copied()
    }

    /// The arguments that the source declares for argparse, click and absl, with their defaults where they are literals.
    pub fn arguments(&self) -> Vec<Argument> {
        self.calls.iter().filter_map(declared).collect()
    }
}

fn text(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The modules of `import a, b.c as d` and `from a.b import c` (which may name a module `a.b.c`).
fn imports(text: &str) -> Vec<String> {
    let mut modules = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
        let mut line = code(line);
        if line.starts_with("from ") && line.contains('(') {
            // The names go on until the bracket is closed.
            while !line.contains(')') && line.len() < LONGEST_IMPORT {
                let Some(next) = lines.next() else { break };
                line = format!("{line} {}", code(next));
            }
        }
        let name = |text: &str| {
            text.split_whitespace().next().unwrap_or_default().trim_matches([',', '(', ')', ';']).to_owned()
        };
        if let Some(list) = line.strip_prefix("import ") {
            modules.extend(list.split(',').map(name));
        } else if let Some((module, names)) = line.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) {
            let module = module.trim();
            modules.push(module.to_owned());
            let dot = if module.ends_with('.') { "" } else { "." };
            modules.extend(names.split(',').map(|part| format!("{module}{dot}{}", name(part))));
        }
    }
    modules
        .retain(|module| !module.is_empty() && module.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.')));
    modules
}

/// The files that a module of the script's own may be, seen from the script's folder and from the importing file's.
fn own_files(folder: &Path, own: &Path, module: &str) -> Vec<PathBuf> {
    let dots = module.len() - module.trim_start_matches('.').len();
    let parts: PathBuf = module.trim_start_matches('.').split('.').collect();
    let mut base = if dots == 0 { folder.to_owned() } else { own.to_owned() };
    for _ in 1..dots {
        base.pop();
    }
    let path = base.join(parts);
    vec![path.with_extension("py"), path.join("__init__.py")]
}

/// The argument that a call declares.
fn declared(call: &Call) -> Option<Argument> {
    let flags = || -> Vec<String> {
        let names = call.positional.iter().filter_map(|text| literal(text));
        names
            .flat_map(|text| text.split('/').map(str::to_owned).collect::<Vec<_>>())
            .filter(|name| name.starts_with('-'))
            .collect()
    };
    let default = call.literal("default");
    let (mut names, kind, default) = match call.last() {
        "add_argument" => {
            let kind = match call.get("action").and_then(literal).as_deref() {
                Some("store_true" | "store_false") => Kind::Switch,
                Some(_) => return None,
                None if call.get("action").is_some_and(|action| action.contains("BooleanOptionalAction")) => {
                    let off =
                        flags().into_iter().find_map(|name| Some(format!("--no-{}", name.strip_prefix("--")?)))?;
                    Kind::Pair { off }
                }
                None => Kind::Value { choices: call.get("choices").map(literals).unwrap_or_default() },
            };
            (flags(), kind, default)
        }
        "option" => {
            let names = flags();
            let off = names.iter().find(|name| name.starts_with("--no-")).cloned();
            let kind = match off {
                Some(off) => Kind::Pair { off },
                None if call.get("is_flag").is_some_and(|is| is == "True") => Kind::Switch,
                None => {
                    let choices = call
                        .get("type")
                        .and_then(|text| text.split_once("Choice("))
                        .map(|(_, list)| list.split_once(')').map_or(list, |(list, _)| list));
                    Kind::Value { choices: choices.map(literals).unwrap_or_default() }
                }
            };
            (names, kind, default)
        }
        "DEFINE_bool" | "DEFINE_boolean" => {
            let name = literal(call.positional.first()?)?;
            (
                vec![format!("--{name}")],
                Kind::Pair { off: format!("--no{name}") },
                call.positional.get(1).and_then(|text| literal(text)),
            )
        }
        "DEFINE_integer" | "DEFINE_enum" | "DEFINE_string" => {
            let name = literal(call.positional.first()?)?;
            let choices =
                if call.last() == "DEFINE_enum" { call.positional.get(2).map(|list| literals(list)) } else { None };
            (
                vec![format!("--{name}")],
                Kind::Value { choices: choices.unwrap_or_default() },
                call.positional.get(1).and_then(|text| literal(text)),
            )
        }
        _ => return None,
    };
    if let Kind::Pair { off } = &kind {
        names.retain(|name| name != off);
    }
    let is_required = call.get("required").is_some_and(|is| is == "True");
    let default = default.filter(|value| value != "None");
    (!names.is_empty()).then_some(Argument { names, kind, default, is_required })
}

/// The rate whose unit stands in a text of the script, such as `images/sec`.
fn printed_rate(text: &str) -> Option<(String, String)> {
    const UNIT: &str =
        r"\b(samples|images|imgs|img|examples|sequences|seqs|tokens|tok|steps|it|iters|batches)/(s|sec|second)\b";
    static UNITS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(UNIT).ok());
    let unit = UNITS.as_ref()?.find(text)?.as_str();
    Some((format!(r"([0-9.]+)\s*{unit}"), unit.to_owned()))
}
