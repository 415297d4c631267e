//! What a script uses, according to its first run. It wins over what the source seems to say.

use super::argument::{Argument, Kind};
use super::command::Command;
use super::preset::{Preset, preset};
use crate::model::Facts;
use crate::model::fact::Fact;
use crate::probe::{FirstRun, NotedArgument, Notes};

/// What a script uses, according to its first run.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The script's options, files and variables.
    pub notes: Notes,
    /// The facts about its first steps.
    facts: Facts,
    /// True if it made a training step.
    pub has_trained: bool,
}

/// The presets of packages that call the optimizer.
const TRAINERS: &[(&str, &str)] = &[
    ("deepspeed", "deepspeed"),
    ("lightning", "lightning"),
    ("pytorch_lightning", "lightning"),
    ("transformers", "huggingface"),
    ("trl", "huggingface"),
    ("accelerate", "accelerate"),
];

impl From<FirstRun> for Seen {
    fn from(run: FirstRun) -> Self {
        Self { notes: run.notes, facts: run.facts, has_trained: run.has_trained }
    }
}

impl Seen {
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

    /// Returns whether a loader trains; `None` if no step was seen.
    pub(super) fn has_loader(&self) -> Option<bool> {
        self.has_trained.then(|| self.facts.number("loader.workers").is_some())
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
            _ => return None,
        };
        if parameter.starts_with("batch") && self.has_loader() != Some(true) {
            return None;
        }
        Some(match self.facts.get(name)? {
            Fact::Number(number) => number.to_string(),
            Fact::Flag(flag) => flag.to_string(),
            Fact::Text(text) => text.clone(),
        })
    }

    /// Returns the line of the script that made the loader that trains.
    pub fn place(&self) -> Option<&str> {
        let (batch_size, workers) = (self.facts.number("loader.batch_size"), self.facts.number("loader.workers"));
        #[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
        let is_it = |size: Option<i64>, has: i64| {
            Some(has as f64) == workers && (size.is_none() || size.map(|size| size as f64) == batch_size)
        };
        let loaders = self.notes.loaders.iter().filter(|loader| is_it(loader.batch_size, loader.workers));
        loaders.filter_map(|loader| loader.place.as_deref()).next()
    }
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
