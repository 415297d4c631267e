//! The findings of a script's first run. They override the findings in its source.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::argument::{Argument, Kind};
use super::command::Command;
use super::entries;
use super::knobs::Knob;
use super::preset::{Preset, preset};
use crate::model::fact::Fact;
use crate::model::{Facts, Measurement};
use crate::probe::{FirstRun, NotedArgument, NotedLoader, NotedVariable, Notes};

/// The findings of a script's first run.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The script's options, files and variables.
    pub notes: Notes,
    facts: Facts,
    /// True if it made a training step.
    pub has_trained: bool,
    /// The options, variables and entries of files that set a parameter of the loader, as a second run showed.
    pub matches: Vec<Match>,
    /// The measurement of the unmodified job, and how long the run took; `None` if too little was measured.
    pub measured: Option<(Measurement, Duration)>,
}

/// An option, a variable or an entry of a file that sets a parameter of the loader, whatever its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The parameter: `batch_size` or `workers`.
    pub parameter: &'static str,
    /// Its option, variable or entry.
    pub by: By,
}

/// An option, a variable or an entry of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// An option of this name.
    Argument(String),
    /// A variable of this name.
    Variable(String),
    /// A number in a settings file.
    Entry {
        /// The file.
        file: PathBuf,
        /// The key of the number.
        key: String,
        /// The bytes of the number.
        place: Range<usize>,
    },
}

/// A guess that an option, a variable or an entry sets a parameter, and another value to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// The guessed match.
    pub of: Match,
    /// The value to try. No other guess for the parameter has it.
    pub value: i64,
}

/// The most guesses that are tried at once. A round number: further options with the same value are ignored.
const MOST_GUESSES: usize = 12;

/// The presets of packages that call the optimizer.
const TRAINERS: &[(&str, &str)] = &[
    ("deepspeed", "deepspeed"),
    ("lightning", "lightning"),
    ("pytorch_lightning", "lightning"),
    ("transformers", "huggingface"),
    ("trl", "huggingface"),
    ("accelerate", "accelerate"),
    ("keras-fit", "keras-fit"),
];

impl From<FirstRun> for Seen {
    fn from(run: FirstRun) -> Self {
        let measured = run.outcome.measurement().cloned().map(|measurement| (measurement, run.elapsed));
        Self { notes: run.notes, facts: run.facts, has_trained: run.has_trained, matches: Vec::new(), measured }
    }
}

impl Seen {
    /// Adds the numbers that a shell script around the job takes from variables. A variable with a default there counts as not set.
    #[must_use]
    pub fn run_by(mut self, command: &Command) -> Self {
        for (name, default) in command.shell_defaults() {
            let variables = &mut self.notes.variables;
            match (variables.iter_mut().find(|variable| variable.name == name), default.parse()) {
                (Some(variable), _) => variable.is_set = false,
                (None, Ok(value)) => variables.push(NotedVariable { name: name.to_owned(), value, is_set: false }),
                (None, Err(_)) => {}
            }
        }
        self
    }

    /// Returns the preset of the framework that trains; `None` if no step was seen.
    pub fn preset(&self, command: &Command) -> Option<&'static Preset> {
        let trainer = self.notes.trainer.as_deref().filter(|_| self.has_trained)?;
        let by_launcher = match command.launcher() {
            Some("accelerate") => "accelerate",
            Some(_) => "torchrun",
            None if self.facts.get("distributed.backend").is_some() => "torchrun",
            None => "pytorch",
        };
        let by_trainer = TRAINERS.iter().find(|(package, _)| *package == trainer).map(|(_, preset)| *preset);
        let is_deepspeed = command.launcher() == Some("deepspeed");
        preset(if is_deepspeed { "deepspeed" } else { by_trainer.unwrap_or(by_launcher) })
    }

    /// Returns true if a loader feeds the training; `None` if no step was seen.
    pub(super) fn has_loader(&self) -> Option<bool> {
        self.has_trained.then(|| self.facts.number("loader.workers").is_some())
    }

    /// Returns why no setting of a loader is searched.
    pub(super) fn why_no_loader_settings(&self) -> String {
        match self.facts.text("loader.other").filter(|_| self.has_trained) {
            Some(name) => format!("gputune cannot set the workers of {name}, which is no torch DataLoader"),
            None => Self::without_loader("first run"),
        }
    }

    /// Returns that the source or the first run has no DataLoader.
    pub(super) fn without_loader(which: &str) -> String {
        format!("the script's {which} has no DataLoader")
    }

    /// Returns the back end of Keras if its `fit` trained, but not through torch.
    pub(super) fn keras_backend(&self) -> Option<&str> {
        self.facts.text("keras.backend").filter(|_| self.has_trained)
    }

    /// Returns the options of the script's parser.
    pub fn arguments(&self) -> Vec<Argument> {
        self.notes.arguments.iter().map(argument).collect()
    }

    /// Returns the value that the script uses for a parameter of the torch adapter.
    pub(super) fn today(&self, parameter: &str) -> Option<String> {
        let name = match parameter {
            "batch_size" => "loader.batch_size",
            "workers" => "loader.workers",
            "prefetch" => "loader.prefetch_factor",
            "persistent_workers" => "loader.persistent_workers",
            "pin_memory" => "loader.pin_memory",
            "precision" => "precision",
            "steps_per_execution" => "keras.steps_per_execution",
            "jit_compile" => "keras.jit_compile",
            _ => return None,
        };
        if parameter.starts_with("batch") && self.has_loader() != Some(true) && self.keras_backend().is_none() {
            return None;
        }
        Some(match self.facts.get(name)? {
            Fact::Number(number) => number.to_string(),
            Fact::Flag(flag) => flag.to_string(),
            Fact::Text(text) => text.clone(),
        })
    }

    /// Returns the variables that gputune can set. A shell script around the job may set other variables itself.
    pub(super) fn variables(&self) -> impl Iterator<Item = &NotedVariable> {
        self.notes.variables.iter().filter(|variable| may_be_set(variable))
    }

    /// Returns the names of the variables that a shell script around the job sets.
    pub(super) fn fixed_variables(&self) -> Vec<String> {
        let fixed = self.notes.variables.iter().filter(|variable| !may_be_set(variable));
        fixed.map(|variable| variable.name.clone()).collect()
    }

    /// Returns the number that the loader got for a parameter; `None` if no loader feeds the training.
    pub(super) fn number(&self, parameter: &str) -> Option<i64> {
        self.has_loader().filter(|has_loader| *has_loader)?;
        self.today(parameter)?.parse().ok()
    }

    /// Returns true if the hook counted the samples of a step without a loader: as many as these batches have with the
    /// batch size of `today`, if it has one. Only a count shows whether an option changes the batch.
    pub(super) fn counts_samples(&self, today: Option<&str>, batches: i64) -> bool {
        let today = today.and_then(|today| today.parse::<i64>().ok()).filter(|&today| today > 0);
        let is_keras = self.keras_backend().is_some();
        let is_it = |samples: i64| is_keras || today.is_none_or(|today| today.saturating_mul(batches) == samples);
        self.has_trained && self.notes.samples.is_some_and(is_it)
    }

    /// Returns the number that the training used. Without a loader that has a batch size, the batch size is the samples of a step.
    fn trained(&self, parameter: &str) -> Option<i64> {
        let samples = self.notes.samples.filter(|_| parameter == "batch_size" && self.has_trained);
        self.number(parameter).or(samples)
    }

    /// Returns the options, variables and entries of files with the value that the training used but an unknown name.
    pub fn guesses(&self, command: &Command, cwd: &Path) -> Vec<Guess> {
        let of = |parameter: &'static str| {
            let Some(today) = self.trained(parameter) else { return Vec::new() };
            let is_known = |name: &String| Knob::named(name).is_some_and(|knob| knob.parameter == parameter);
            let is_other = |name: &String| Knob::named(name).is_some_and(|knob| knob.parameter != parameter);
            let fits = |noted: &&NotedArgument| {
                let is_free = noted.kind == "value" && noted.choices.is_empty();
                is_free && noted.value.as_ref().and_then(serde_json::Value::as_i64) == Some(today)
            };
            let names = self.notes.arguments.iter().flat_map(|noted| &noted.names);
            if names.chain(self.variables().map(|variable| &variable.name)).any(is_known) {
                return Vec::new();
            }
            let arguments = self.notes.arguments.iter().filter(fits).filter(|noted| !noted.names.iter().any(is_other));
            let arguments = arguments.map(|noted| By::Argument(argument(noted).spelled().to_owned()));
            let variables = self.variables().filter(|known| known.value == today && !is_other(&known.name));
            let variables = variables.map(|variable| By::Variable(variable.name.clone()));
            let values = (1..)
                .filter(|&value| parameter != "workers" || value != today)
                .map(|value| if parameter == "workers" { value } else { today + value });
            let entries = self.entries(parameter, today, (command, cwd));
            let all = arguments.chain(variables).chain(entries).take(MOST_GUESSES).zip(values);
            all.map(|(by, value)| Guess { of: Match { parameter, by }, value }).collect()
        };
        [of("batch_size"), of("workers")].concat()
    }

    /// Returns the entries of files with a value that the training used, unless their key or the key of another entry is known. A
    /// file counts if the command names it, or if the adapter cannot set the parameter.
    fn entries(&self, parameter: &str, used: i64, (command, cwd): (&Command, &Path)) -> Vec<By> {
        /// The least value: zeros and ones are in every file. A round number.
        const LEAST: i64 = 2;
        let has_loader = self.has_loader() == Some(true);
        let is_settable = has_loader && (parameter == "workers" || self.notes.is_sized != Some(false));
        let is_read = |file: &&PathBuf| !is_settable || self.is_named(file, command, cwd);
        let files = self.notes.files.iter().filter(is_read).filter_map(|file| Some((file, entries::read(file)?.1)));
        let mut found = Vec::new();
        for (file, entries) in files {
            for entry in entries.into_iter().filter(|entry| entry.value == used && used >= LEAST && entry.trains()) {
                match Knob::named(&entry.key) {
                    Some(knob) if knob.parameter == parameter => return Vec::new(),
                    Some(_) => {}
                    None => found.push(By::Entry { file: file.clone(), key: entry.key, place: entry.place }),
                }
            }
        }
        found
    }

    /// Returns true if the command names a file, as a word or as the default of an option.
    fn is_named(&self, file: &Path, command: &Command, cwd: &Path) -> bool {
        let Ok(file) = file.canonicalize() else { return false };
        let is_it = |text: &str| !text.is_empty() && cwd.join(text).canonicalize().is_ok_and(|path| path == file);
        let mut words = command.told().iter().map(|word| word.split_once('=').map_or(word.as_str(), |(_, path)| path));
        let mut values = self.notes.arguments.iter().filter_map(|noted| noted.value.as_ref()?.as_str());
        command.takes_arguments() && (words.any(is_it) || values.any(is_it))
    }

    /// Adds the guesses whose value a second run trained with.
    #[must_use]
    pub fn with_tried(mut self, guesses: Vec<Guess>, second: &Self) -> Self {
        let is_right = |guess: &Guess| second.trained(guess.of.parameter) == Some(guess.value);
        self.matches.extend(guesses.into_iter().filter(is_right).map(|guess| guess.of));
        self
    }

    /// Returns the option, variable or entry that sets a parameter, as a second run showed.
    pub(super) fn matched(&self, parameter: &str) -> Option<&By> {
        self.matches.iter().find(|found| found.parameter == parameter).map(|found| &found.by)
    }

    /// Returns the line of the script that makes the training loader.
    pub fn place(&self) -> Option<&str> {
        let (batch_size, workers) = (self.facts.number("loader.batch_size"), self.facts.number("loader.workers"));
        #[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
        let is_it = |size: Option<i64>, has: i64| {
            Some(has as f64) == workers && (size.is_none() || size.map(|size| size as f64) == batch_size)
        };
        let loaders = self.notes.loaders.iter().filter(|loader| is_it(loader.batch_size, loader.workers));
        loaders.filter_map(|loader| loader.place.as_deref()).next()
    }

    /// Returns the loader that likely feeds the training: by the steps' facts, else that of `line`, else the first.
    pub(super) fn loader(&self, line: Option<usize>) -> Option<&NotedLoader> {
        let at = |is_it: &dyn Fn(&str) -> bool| {
            self.notes.loaders.iter().find(|loader| loader.place.as_deref().is_some_and(is_it))
        };
        let of_facts = self.place().and_then(|place| at(&|other| other == place));
        let of_line = || at(&|place| line.is_some_and(|line| place.ends_with(&format!(":{line}"))));
        of_facts.or_else(of_line).or_else(|| self.notes.loaders.first())
    }
}

/// Returns true if a variable has its default, or the value from gputune's own environment.
fn may_be_set(variable: &NotedVariable) -> bool {
    let ours = std::env::var(&variable.name).ok().and_then(|value| value.trim().parse().ok());
    !variable.is_set || ours == Some(variable.value)
}

fn argument(noted: &NotedArgument) -> Argument {
    let kind = match (noted.kind.as_str(), &noted.off) {
        ("switch", _) => Kind::Switch,
        ("pair", Some(off)) => Kind::Pair { off: off.clone() },
        ("maybe", _) => Kind::MaybeValue,
        _ => Kind::Value { choices: noted.choices.clone() },
    };
    Argument { names: noted.names.clone(), kind, default: noted.default.clone(), is_required: noted.is_required }
}
