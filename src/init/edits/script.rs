//! Reads a script in order to change it: its calls with their places, and its variable names.

use std::path::Path;

use crate::init::source::SourceFile;
use crate::init::{Call, Command, Source};
use crate::model::Value;
use crate::probe::adapter::{Names, Spot};

/// Optimizers of torch: their first argument contains the model's name.
const OPTIMIZERS: &[&str] = &["AdamW", "Adam", "SGD", "Adagrad"];
/// Words of each target: a script that contains none of them does not do itself what the target does.
const SIGNS: &[(&str, &[&str])] = &[
    ("torch.precision", &["autocast", "float16", "half", "precision", "tf32", "bf16", "fp16", "amp"]),
    ("torch.compile", &["compile"]),
    ("torch.channels_last", &["channels_last"]),
    ("torch.cudnn_benchmark", &["benchmark"]),
    ("torch.fused_optimizer", &["fused"]),
    ("torch.sdpa", &["sdpa", "attention", "attn"]),
    ("torch.grad_accumulation", &["accum"]),
    ("torch.checkpoint", &["checkpoint"]),
];
const MOST_BYTES: usize = 512 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Found<'s> {
    pub(super) call: &'s Call,
    pub(super) place: String,
}

#[derive(Debug)]
struct File {
    /// The path relative to the working directory of the command.
    name: String,
    text: String,
    calls: Vec<Call>,
}

/// A script with the local modules that it imports.
#[derive(Debug, Default)]
pub(super) struct Script {
    files: Vec<File>,
    source: Source,
}

impl Script {
    /// Reads the script of a command; an unreadable script counts as empty.
    pub(super) fn read(words: &[String], cwd: &Path) -> Self {
        let command = Command::new(words.to_vec(), "python3");
        let Ok(mut source) = Source::read(&command, cwd) else { return Self::default() };
        let folder = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        let file = |SourceFile { path, calls }: SourceFile| {
            let text = std::fs::read(&path).ok()?;
            let text = String::from_utf8_lossy(&text[..text.len().min(MOST_BYTES)]).into_owned();
            let name = path.strip_prefix(&folder).unwrap_or(&path).display().to_string();
            Some(File { name: name.trim_start_matches("./").to_owned(), calls, text })
        };
        Self { files: std::mem::take(&mut source.files).into_iter().filter_map(file).collect(), source }
    }

    pub(super) fn imports(&self, module: &str) -> bool {
        self.source.imports(module)
    }

    /// Returns the calls of these names. A name with a dot must match completely.
    pub(super) fn all(&self, names: &[&str]) -> impl Iterator<Item = Found<'_>> {
        let is_named = |call: &Call| {
            names.iter().any(|name| if name.contains('.') { call.name == *name } else { call.last() == *name })
        };
        let all = self.files.iter().flat_map(|file| file.calls.iter().map(move |call| (file, call)));
        let named: Vec<(&File, &Call)> = all.filter(|(_, call)| is_named(call)).collect();
        named.into_iter().map(|(file, call)| Found { call, place: format!("{}:{}", file.name, call.line) })
    }

    /// Returns the training call among the calls of these names: the first loader that shuffles, else the first call.
    pub(super) fn call(&self, names: &[&str]) -> Option<Found<'_>> {
        let all: Vec<Found<'_>> = self.all(names).collect();
        let is_training = |found: &&Found<'_>| {
            let is_set = |name: &str| found.call.get(name).is_some_and(|code| !["False", "None"].contains(&code));
            ["shuffle", "sampler", "batch_sampler"].iter().any(|name| is_set(name))
                || found.call.positional.get(2).is_some_and(|code| code == "True")
        };
        let is_loader = names == ["DataLoader"];
        let training = all.iter().find(|found| is_loader && is_training(found)).or(all.first());
        training.cloned()
    }

    /// Returns the variable names that the script uses.
    pub(super) fn names(&self, is_gpu: bool) -> Names {
        let (first, usual) = (|code: &&String| is_path(code), Names::default());
        let optimizer = self.call(OPTIMIZERS);
        let given = optimizer.as_ref().and_then(|found| found.call.positional.first()?.strip_suffix(".parameters()"));
        let asked = || self.all(&["parameters"]).find_map(|found| found.call.name.strip_suffix(".parameters"));
        let model = given.or_else(asked).filter(|model| is_path(model) && *model != "self");
        let model = model.map_or(usual.model, str::to_owned);
        let scaled = self.all(&["scale"]).find_map(|found| found.call.positional.first().filter(first));
        let loss = self.all(&["backward"]).find_map(|found| {
            let own = found.call.name.strip_suffix(".backward").filter(|_| found.call.positional.is_empty());
            own.or(found.call.positional.first().filter(first).map(String::as_str)).map(str::to_owned)
        });
        let is_optimizer = |name: &&str| name.to_ascii_lowercase().contains("opt");
        let stepped = self.all(&["step"]).find_map(|found| found.call.name.strip_suffix(".step").filter(is_optimizer));
        let inputs = self.forward(&model).and_then(|(_, call)| call.positional.into_iter().find(|code| first(&code)));
        Names {
            loss: scaled.cloned().or(loss).unwrap_or(usual.loss),
            optimizer: stepped.map_or(usual.optimizer, str::to_owned),
            inputs: inputs.unwrap_or(usual.inputs),
            device: if is_gpu { "cuda" } else { "cpu" },
            has_call: false,
            has_scaler: self.all(&["GradScaler"]).next().is_some(),
            is_transformers: self.imports("transformers"),
            has_graphs: false,
            model,
        }
    }

    /// Finds the forward pass: the model's last call before the backward pass, else its first call.
    fn forward(&self, model: &str) -> Option<(&File, Call)> {
        let of = |file: &File| -> Vec<Call> { file.calls.iter().filter(|call| call.name == model).cloned().collect() };
        let backward = |file: &File| file.calls.iter().find(|call| call.last() == "backward").map(|call| call.line);
        let trains = self.files.iter().find_map(|file| {
            let end = backward(file)?;
            Some((file, of(file).into_iter().rfind(|call| call.line <= end)?))
        });
        trains.or_else(|| self.files.iter().find_map(|file| Some((file, of(file).into_iter().next()?))))
    }

    /// Returns true if a setting turns on a target that only the hook applies: the script has none of its words.
    pub(super) fn cannot_do(&self, target: &str, value: &Value) -> bool {
        let is_plain = matches!(value, Value::Bool(false) | Value::Int(0 | 1))
            || matches!(value, Value::Text(name) if ["off", "fp32", "math"].contains(&name.as_str()));
        let words = SIGNS.iter().find(|(known, _)| *known == target).map(|(_, words)| *words);
        let Some(words) = words.filter(|_| !is_plain && !self.files.is_empty()) else { return false };
        !self.files.iter().any(|file| words.iter().any(|word| file.text.contains(word)))
    }

    /// Returns the file and line of a spot in the script.
    pub(super) fn spot(&self, spot: Spot, names: &Names) -> Option<String> {
        match spot {
            Spot::Start => self.files.iter().find_map(|file| {
                let is_import = |line: &str| line.starts_with("import torch") || line.starts_with("from torch");
                let line = file.text.lines().position(is_import)?;
                Some(format!("{}:{}", file.name, line + 1))
            }),
            Spot::Model => Some(self.call(OPTIMIZERS)?.place),
            Spot::Inputs | Spot::Forward => {
                self.forward(&names.model).map(|(file, call)| format!("{}:{}", file.name, call.line))
            }
            Spot::Update => Some(self.all(&["backward"]).next()?.place),
            Spot::Blocks => None,
        }
    }

    /// Returns the place and text of the script's line that assigns to the same name as this code.
    pub(super) fn assignment(&self, code: &str) -> Option<(String, String)> {
        let (name, _) = code.split_once(" = ").filter(|(name, _)| name.starts_with("torch.backends."))?;
        self.files.iter().find_map(|file| {
            let is_it = |line: &str| {
                line.trim().strip_prefix(name).is_some_and(|rest| {
                    let rest = rest.trim_start();
                    rest.starts_with('=') && !rest.starts_with("==")
                })
            };
            let (at, line) = file.text.lines().enumerate().find(|(_, line)| is_it(line))?;
            let line = line.split('#').next().unwrap_or(line).trim().to_owned();
            Some((format!("{}:{}", file.name, at + 1), line))
        })
    }
}

/// Returns true if code is a name, or names joined by dots.
fn is_path(code: &str) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    code.split('.').all(is_name)
}
