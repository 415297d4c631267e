//! Reads a script without running it: its imports, and the calls that show its settings.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::argument::Argument;
use super::calls::{Call, calls, literal};
use super::command::Command;
use super::printed::printed_rate;

/// The most files of a script's own that are read, since a project's package may be large. The limits here are round
/// numbers.
const MOST_FILES: usize = 60;
/// Bytes of a file that are read.
const MOST_BYTES: u64 = 512 * 1024;

/// How many folders above a script its project is looked for.
const HIGHEST_PROJECT: usize = 5;

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
    "main",
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

/// The facts from a script's source.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// The modules that it and its own modules import, each with those above it: `torch`, `torch.utils`.
    pub modules: BTreeSet<String>,
    /// The calls that show settings, those in its own file first.
    pub calls: Vec<Call>,
    /// The files that were read, its own first.
    pub files: Vec<PathBuf>,
    /// Whether any text in it reads the command line: `sys.argv`.
    pub reads_command_line: bool,
    /// Names to which all of its text assigns the same literal, with the literal.
    constants: BTreeMap<String, Option<String>>,
    /// The same for attributes (`cfg.batch_size = 64`) and keys (`"batch_size": 64`).
    members: BTreeMap<String, Option<String>>,
    /// What its command states, by plain names.
    given: BTreeMap<String, String>,
    /// Its text, and those of its own modules.
    pub(super) texts: Vec<String>,
    /// Whether it uses gputune's protocol itself.
    pub speaks_protocol: bool,
    /// The rate that it prints: a pattern for the number, and its unit.
    pub printed_rate: Option<(String, String)>,
}

impl Source {
    /// Reads a script that is run in a folder, together with the modules that it imports and files that it executes,
    /// from beside it and from that folder.
    ///
    /// # Errors
    /// The script cannot be read. A module that cannot be read is left out.
    pub fn read(script: &Path, cwd: &Path) -> io::Result<Self> {
        let mut source = Self::default();
        let folder = script.parent().unwrap_or(Path::new("."));
        let folders = import_folders(folder, cwd);
        let mut left = VecDeque::from([script.to_owned()]);
        let mut seen = BTreeSet::from([script.canonicalize().unwrap_or(script.to_owned())]);
        let mut first = true;
        while let Some(file) = left.pop_front() {
            let text = match text(&file) {
                Ok(text) => text,
                Err(error) if first => return Err(error),
                Err(_) => continue,
            };
            first = false;
            source.files.push(file.clone());
            let executed = executed(&text).into_iter().flat_map(|name| [cwd.join(&name), folder.join(&name)]);
            let executed: Vec<PathBuf> = executed.collect();
            let own = file.parent().unwrap_or(folder);
            let imported = source.add(text).into_iter().flat_map(|module| own_files(&folders, own, &module));
            for own in executed.into_iter().chain(imported) {
                if seen.len() < MOST_FILES && own.is_file() && seen.insert(own.canonicalize().unwrap_or(own.clone())) {
                    left.push_back(own);
                }
            }
        }
        Ok(source)
    }

    /// Makes a source from a single text.
    pub fn of(text: &str) -> Self {
        let mut source = Self::default();
        source.add(text.to_owned());
        source
    }

    /// Adds a text; returns the modules that it imports, as written.
    fn add(&mut self, text: String) -> Vec<String> {
        let modules = imports(&text);
        for module in &modules {
            let parts: Vec<&str> = module.split('.').filter(|part| !part.is_empty()).collect();
            self.modules.extend((1..=parts.len()).filter_map(|end| parts.get(..end)).map(|parts| parts.join(".")));
        }
        self.calls.extend(calls(&text, WANTED));
        self.reads_command_line |= text.contains("sys.argv");
        self.speaks_protocol |= text.contains("GPUTUNE_SOCKET");
        self.add_constants(&text);
        self.add_members(&text);
        self.printed_rate = self.printed_rate.take().or_else(|| printed_rate(&text));
        self.texts.push(text);
        modules
    }

    /// Adds names with a literal of their own: `BATCH = 16`, or `batch_size=16` as a default of a function.
    fn add_constants(&mut self, text: &str) {
        const ASSIGNED: &str =
            r#"(?m)(?:^|[(,\s])([A-Za-z_]\w*)\s*(?::\s*(?:int|str|bool)\s*)?=\s*([\w."'-]+)\s*(?:$|[,)#])"#;
        static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ASSIGNED).ok());
        let Some(pattern) = PATTERN.as_ref() else { return };
        for found in pattern.captures_iter(text) {
            let (Some(name), Some(value)) = (found.get(1), found.get(2)) else { continue };
            let Some(value) = literal(value.as_str()) else { continue };
            note(&mut self.constants, name.as_str(), value);
        }
    }

    /// Adds attributes and keys with a literal: `C.batch_size = 64`, `"batch_size": 64`; the one in
    /// `dict(batch_size=64)` is a constant.
    fn add_members(&mut self, text: &str) {
        const MEMBER: &str = r#"(?m)\.([A-Za-z_]\w*)\s*=\s*([\w."'-]+)\s*(?:$|#)|['"]([A-Za-z_]\w*)['"]\s*:\s*([\w."'-]+)\s*(?:$|[,}#])"#;
        static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(MEMBER).ok());
        let Some(pattern) = PATTERN.as_ref() else { return };
        for found in pattern.captures_iter(text) {
            let part = |at: usize| found.get(at).map(|part| part.as_str());
            let (Some(name), Some(value)) = (part(1).or(part(3)), part(2).or(part(4))) else { continue };
            if let Some(value) = literal(value) {
                note(&mut self.members, name, value);
            }
        }
    }

    /// Returns the value of an argument: a literal, or a name that has the same literal everywhere, such as `BATCH`,
    /// `config["batch_size"]`, or `args.batch_size` if an option of that name has a default.
    pub fn value(&self, text: &str) -> Option<String> {
        let text = text.trim();
        let known = literal(text).or_else(|| self.constants.get(text)?.clone());
        let name = || text.trim_end_matches(['\'', '"', ']']).rsplit(['.', '\'', '"']).next();
        known.or_else(|| {
            let name = name().filter(|name| *name != text && !name.is_empty())?;
            let is_this = |argument: &Argument| {
                argument.names.iter().any(|known| Argument::plain(known) == Argument::plain(name))
            };
            if let Some(given) = self.given.get(&Argument::plain(name)) {
                return Some(given.clone());
            }
            let declared = self.arguments().into_iter().find(is_this).and_then(|argument| argument.default);
            declared.or_else(|| self.member(name)).or_else(|| self.constants.get(name)?.clone())
        })
    }

    /// Adds the values of the command's options, since `args.batch_size` in the script may be one of them.
    #[must_use]
    pub fn told_by(mut self, command: &Command) -> Self {
        let words = command.inner().told();
        for (at, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with('-')) {
            let next = words.get(at + 1).filter(|next| !next.starts_with('-')).cloned();
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), next),
            };
            let spelled = self.arguments().into_iter().find(|known| known.names.iter().any(|other| other == name));
            let name = spelled.as_ref().map_or(name, Argument::spelled);
            if let Some(value) = value {
                self.given.insert(Argument::plain(name), value);
            }
        }
        self
    }

    /// Adds modules that the script was seen to import.
    #[must_use]
    pub fn with_modules(mut self, modules: &BTreeSet<String>) -> Self {
        self.modules.extend(modules.iter().cloned());
        self
    }

    /// Whether there is any source that was read.
    pub fn is_read(&self) -> bool {
        !self.texts.is_empty()
    }

    /// Whether it imports a module.
    pub fn imports(&self, module: &str) -> bool {
        self.modules.contains(module)
    }

    /// Whether it parses arguments in a way that answers to `--help`.
    pub fn parses_arguments(&self) -> bool {
        // argparse is often imported but not used.
        let parses = |text: &String| {
            ["parse_args(", "parse_known_args(", "parse_intermixed_args("].iter().any(|call| text.contains(call))
        };
        let is_used = |parser: &str| parser != "argparse" || self.texts.iter().any(parses);
        PARSERS.iter().any(|parser| self.imports(parser) && is_used(parser))
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

    /// Returns the loader that trains: one that shuffles or samples, or whose name says so; else the first.
    pub fn loader(&self) -> Option<&Call> {
        let fits = |call: &Call| {
            let shuffles = call.get("shuffle").is_some_and(|shuffle| shuffle != "False");
            let samples = call
                .get("sampler")
                .is_some_and(|sampler| ["Random", "Distributed", "train"].iter().any(|word| sampler.contains(word)));
            let data = call.positional.first().map_or("", String::as_str);
            i32::from(shuffles) * 2 + i32::from(samples) * 2 + i32::from(data.contains("train"))
        };
        let loaders = self.named("DataLoader");
        let best = loaders.iter().map(|call| fits(call)).max()?;
        loaders.into_iter().find(|call| fits(call) == best)
    }

    /// Returns the value that all attributes and keys of this name share.
    fn member(&self, name: &str) -> Option<String> {
        self.members.get(name)?.clone()
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
            // The names continue until the bracket is closed.
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

/// Records a name's value; a name with different values has none.
fn note(values: &mut BTreeMap<String, Option<String>>, name: &str, value: String) {
    let known = values.entry(name.to_owned()).or_insert_with(|| Some(value.clone()));
    if known.as_ref() != Some(&value) {
        *known = None;
    }
}

/// The files that a text executes: `exec(open("configurator.py").read())`.
fn executed(text: &str) -> Vec<String> {
    static EXECUTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?m)^[^#\n]*\bexec\(\s*open\(\s*['"]([^'"\n]+)['"]"#).ok());
    let Some(pattern) = EXECUTED.as_ref() else { return Vec::new() };
    pattern.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str().to_owned())).collect()
}

/// Returns the folders in which a script's own modules may lie: its own, the working folder, and that of its project,
/// from which it may have been installed.
fn import_folders(folder: &Path, cwd: &Path) -> Vec<PathBuf> {
    let is_project = |folder: &&Path| {
        ["pyproject.toml", "setup.py", "setup.cfg", ".git"].iter().any(|name| folder.join(name).exists())
    };
    let absolute = folder.canonicalize().unwrap_or(folder.to_owned());
    let project = absolute.ancestors().take(HIGHEST_PROJECT).find(is_project).map(Path::to_owned);
    let mut folders = vec![folder.to_owned(), cwd.to_owned()];
    folders.extend(project.into_iter().flat_map(|project| [project.join("src"), project]));
    folders
}

/// Returns the files that may be a module of the script's own, relative to these folders or the importing file's.
fn own_files(folders: &[PathBuf], own: &Path, module: &str) -> Vec<PathBuf> {
    let dots = module.len() - module.trim_start_matches('.').len();
    let parts: PathBuf = module.trim_start_matches('.').split('.').collect();
    let mut above = own.to_owned();
    for _ in 1..dots {
        above.pop();
    }
    let bases = if dots == 0 { folders } else { std::slice::from_ref(&above) };
    let paths = bases.iter().map(|base| base.join(&parts));
    paths.flat_map(|path| [path.with_extension("py"), path.join("__init__.py")]).collect()
}
