//! Returns the code to write into a script for settings that only an adapter's hook applies, in the script's own terms.
//!
//! The first choice is a framework's own argument (`TrainingArguments(bf16=True)`). The second is an argument of a call in the
//! script (`DataLoader(num_workers=4)`). The last is separate lines ([`ByHand`](crate::probe::adapter::ByHand)).

mod frameworks;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::init::Call;
use crate::model::{Settings, Value};
use crate::probe::adapter::{Applied, Names, OwnCall, Spot, has_graphs};
use crate::probe::{StepTemplate, protocol::REPLACED_FILES};
use crate::report::Edit;

use script::{Found, Script};

/// Arguments that a `DataLoader` rejects without workers (torch's documentation, `torch.utils.data`).
const OF_WORKERS: [&str; 4] = ["prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"];
/// The positions of a `DataLoader`'s arguments that may be given without a name.
const POSITIONS: &[(&str, usize)] = &[("batch_size", 1), ("num_workers", 5), ("pin_memory", 7)];

/// Returns the changes for a config, in the order of the script; empty for the baseline's config.
///
/// `words` is the command. A setting that equals the baseline's needs no change, unless the script's text contradicts it.
pub fn edits(
    step: &StepTemplate,
    words: &[String],
    settings: &Settings,
    baseline: Option<&Settings>,
    is_gpu: bool,
) -> Vec<Edit> {
    let is_baseline = baseline.is_some_and(|baseline| baseline == settings);
    let all: Vec<(&Applied, Value)> = applied(step, settings);
    if is_baseline || all.is_empty() {
        return Vec::new();
    }
    let script = Script::read(words, &step.cwd);
    let names = Names { has_graphs: is_gpu && compiles_with_graphs(&script, &all), ..script.names(is_gpu) };
    let mut writer = Writer { names, script: &script, arguments: Vec::new(), lines: Vec::new() };
    for (applied, value) in &all {
        let is_of_baseline =
            baseline.is_some_and(|baseline| baseline.get(&applied.parameter) == settings.get(&applied.parameter));
        writer.add(applied, value, is_of_baseline && !script.cannot_do(&applied.name, value));
    }
    writer.add_pieces(step, settings);
    writer.edits()
}

/// Returns true if the config compiles the model in a mode with CUDA graphs. Without such a setting, the script decides.
fn compiles_with_graphs(script: &Script, all: &[(&Applied, Value)]) -> bool {
    match all.iter().find(|(applied, _)| applied.name == "torch.compile") {
        Some((_, Value::Text(mode))) => has_graphs(mode),
        Some(_) => false,
        None => {
            let found = script.call(&["torch.compile"]);
            let mode = found.as_ref().and_then(|found| found.call.get("mode"));
            mode.is_some_and(|code| has_graphs(code.trim_matches(|c: char| c == '"' || c == '\'')))
        }
    }
}

/// Returns the hook's settings as a script without the hook needs them: a batch size becomes the size of a piece.
fn applied<'s>(step: &'s StepTemplate, settings: &'s Settings) -> Vec<(&'s Applied, Value)> {
    let pieces = pieces(step, settings);
    let value = |(applied, value): (&'s Applied, &'s Value)| {
        let part = value.as_i64().filter(|size| applied.name == "dataloader.batch_size" && size % pieces == 0);
        (applied, part.map_or_else(|| value.clone(), |size| Value::Int(size / pieces)))
    };
    step.apply.by_hook(settings).map(value).collect()
}

/// Returns the number of pieces in which the hook computes a batch.
fn pieces(step: &StepTemplate, settings: &Settings) -> i64 {
    let pieces = step.apply.by_hook(settings).find(|(applied, _)| applied.name == "torch.grad_accumulation");
    pieces.and_then(|(_, value)| value.as_i64()).filter(|&pieces| pieces > 0).unwrap_or(1)
}

/// The arguments that a call should have.
struct Arguments<'s> {
    targets: Vec<String>,
    /// The call in the script, or its usual name if the script has no such call.
    call: Result<Found<'s>, String>,
    /// Names and code; an empty list removes the call.
    wanted: Vec<(String, String)>,
}

/// Collects changes, and merges changes in the same place.
struct Writer<'s> {
    script: &'s Script,
    names: Names,
    arguments: Vec<Arguments<'s>>,
    lines: Vec<(Spot, String, String)>,
}

impl<'s> Writer<'s> {
    fn add(&mut self, applied: &Applied, value: &Value, is_as_before: bool) {
        if let Some((call, wanted)) = frameworks::arguments(self.script, &applied.name, value, self.names.device) {
            if !is_as_before {
                self.want(&applied.name, call, wanted);
            }
            return;
        }
        let by_hand = &applied.target.by_hand;
        let found = by_hand.call.as_ref().and_then(|own| Some((self.script.call(own.names)?, (own.arguments)(value)?)));
        let has_call = found.is_some();
        match found {
            Some((call, wanted)) => {
                // A literal in the text is certain; without a literal the baseline decides.
                let is_known = wanted.iter().any(|(name, code)| is_another_literal(call.call, name, code));
                if !is_as_before || is_known {
                    self.want(&applied.name, Ok(call), owned(wanted));
                }
            }
            None if is_as_before => {}
            None => self.want_new(&applied.name, by_hand.call.as_ref(), value),
        }
        if !is_as_before {
            let names = Names { has_call, ..self.names.clone() };
            for line in (by_hand.lines)(value, &names) {
                self.lines.push((line.spot, line.code, applied.name.clone()));
            }
        }
    }

    /// Adds arguments of a required call that was not found in the script.
    fn want_new(&mut self, target: &str, own: Option<&OwnCall>, value: &Value) {
        let Some(own) = own.filter(|own| own.is_needed) else { return };
        let name = if own.names.len() == 1 { own.names.concat() } else { "the optimizer".to_owned() };
        let wanted = (own.arguments)(value).unwrap_or_default();
        self.want(target, Err(name), owned(wanted));
    }

    /// Divides the batch. If the hook divides the command's batch size into pieces, the loader must divide it instead.
    fn add_pieces(&mut self, step: &StepTemplate, settings: &Settings) {
        let pieces = pieces(step, settings);
        let is_by_hook = step.apply.by_hook(settings).any(|(applied, _)| applied.name == "dataloader.batch_size");
        let Some(found) = self.script.call(&["DataLoader"]).filter(|_| pieces > 1 && !is_by_hook) else { return };
        let now = now(found.call, "batch_size").map_or_else(|| "batch_size".to_owned(), str::to_owned);
        let wanted = vec![("batch_size".to_owned(), format!("{now} // {pieces}"))];
        self.want("torch.grad_accumulation", Ok(found), wanted);
    }

    fn want(&mut self, target: &str, call: Result<Found<'s>, String>, wanted: Vec<(String, String)>) {
        let is_same = |known: &&mut Arguments<'s>| match (&known.call, &call) {
            (Ok(known), Ok(call)) => known.place == call.place && known.call.name == call.call.name,
            (Err(known), Err(name)) => known == name,
            _ => false,
        };
        match self.arguments.iter_mut().find(is_same) {
            Some(known) => {
                known.targets.push(target.to_owned());
                known.wanted.extend(wanted);
            }
            None => self.arguments.push(Arguments { targets: vec![target.to_owned()], call, wanted }),
        }
    }

    fn edits(self) -> Vec<Edit> {
        let Self { script, arguments, lines, names } = self;
        let mut edits: Vec<Edit> = arguments.into_iter().filter_map(of_call).collect();
        let spots: BTreeSet<Spot> = lines.iter().map(|(spot, ..)| *spot).collect();
        for spot in spots {
            let here: Vec<&(Spot, String, String)> = lines.iter().filter(|(at, ..)| *at == spot).collect();
            let (known, new): (Vec<_>, Vec<_>) =
                here.into_iter().partition(|(_, code, _)| script.assignment(code).is_some());
            edits.extend(known.into_iter().filter_map(|(_, code, target)| reassigned(script, code, target)));
            if !new.is_empty() {
                let mut targets: Vec<String> = new.iter().map(|(.., target)| target.clone()).collect();
                targets.dedup();
                edits.push(Edit {
                    targets,
                    place: script.spot(spot, &names),
                    what: spot.words().to_owned(),
                    lines: new.iter().map(|(_, code, _)| code.clone()).collect(),
                    instead_of: Vec::new(),
                });
            }
        }
        edits
    }
}

fn owned(arguments: crate::probe::adapter::Arguments) -> Vec<(String, String)> {
    arguments.into_iter().map(|(name, code)| (name.to_owned(), code)).collect()
}

/// Changes an assignment in the script to another value; `None` if the value is the same.
fn reassigned(script: &Script, code: &str, target: &str) -> Option<Edit> {
    let (place, now) = script.assignment(code)?;
    let (targets, what, lines) = (vec![target.to_owned()], "set".to_owned(), vec![code.to_owned()]);
    (now != code).then(|| Edit { targets, place: Some(place), what, lines, instead_of: vec![now] })
}

/// Returns the current code of a call's argument.
fn now<'c>(call: &'c Call, name: &str) -> Option<&'c str> {
    let position = POSITIONS.iter().find(|(known, _)| *known == name && call.last() == "DataLoader");
    let by_position = || call.positional.get(position?.1).filter(|code| !code.starts_with('*')).map(String::as_str);
    call.get(name).or_else(by_position)
}

/// Returns true if a call passes a literal for this argument that differs from the literal in `code`.
fn is_another_literal(call: &Call, name: &str, code: &str) -> bool {
    let literal = now(call, name).and_then(crate::init::literal);
    literal.is_some_and(|now| crate::init::literal(code).is_some_and(|wanted| wanted != now))
}

/// Makes the change of one call; `None` if the call needs no change.
fn of_call(arguments: Arguments<'_>) -> Option<Edit> {
    let Arguments { targets, call, wanted } = arguments;
    let code = |(name, code): (&String, &String)| format!("{name}={code}");
    let found = match call {
        Ok(found) => found,
        Err(name) => {
            let lines = vec![wanted.iter().map(|(name, value)| code((name, value))).collect::<Vec<_>>().join(", ")];
            return Some(Edit { targets, what: format!("in {name}"), lines, ..Edit::default() });
        }
    };
    let Found { call, place } = found;
    if wanted.is_empty() {
        let what = format!("leave out {}(...)", call.name);
        return Some(Edit { targets, place: Some(place), what, ..Edit::default() });
    }
    let is_there = |(name, code): &&(String, String)| now(call, name) != Some(code);
    let new: Vec<&(String, String)> = wanted.iter().filter(is_there).collect();
    let mut instead_of: Vec<String> =
        new.iter().filter_map(|(name, _)| Some(format!("{name}={}", now(call, name)?))).collect();
    let has_no_workers = wanted.iter().any(|(name, code)| name == "num_workers" && code == "0");
    let idle = OF_WORKERS.iter().filter(|_| has_no_workers && call.last() == "DataLoader");
    let idle = idle.filter_map(|name| Some(format!("{name}={}", call.get(name)?)));
    instead_of.extend(idle);
    if new.is_empty() && instead_of.is_empty() {
        return None;
    }
    // Arguments that are passed as a dictionary may contain the same names.
    let table = call.positional.iter().find(|code| code.starts_with("**"));
    let what = match table {
        Some(table) => format!("in {}(...), and out of {}", call.name, table.trim_start_matches('*')),
        None => format!("in {}(...)", call.name),
    };
    let line = new.iter().map(|(name, value)| code((name, value))).collect::<Vec<_>>().join(", ");
    Some(Edit { targets, place: Some(place), what, lines: vec![line], instead_of })
}

/// Returns the lines of the user's files that differ from the rendered files for a config.
pub fn file_edits(step: &StepTemplate, settings: &Settings) -> Vec<Edit> {
    let rendered = step.render(settings, Path::new(""), Path::new(""));
    let variable = rendered.env.iter().find(|(name, _)| name == REPLACED_FILES);
    let replaced: BTreeMap<String, String> =
        variable.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
    let of_file = |(own, path): (&String, &String)| {
        let (_, new) = rendered.files.iter().find(|(file, _)| Path::new("/").join(file) == Path::new(path))?;
        let old = fs::read_to_string(own).ok()?;
        let shown = Path::new(own).strip_prefix(&step.cwd).unwrap_or(Path::new(own)).display().to_string();
        Some(changed_lines(&old, new, &shown))
    };
    replaced.iter().filter_map(of_file).flatten().collect()
}

/// Returns the changed lines of two texts with the same number of lines.
fn changed_lines(old: &str, new: &str, file: &str) -> Vec<Edit> {
    let pairs = old.lines().zip(new.lines()).zip(1..).filter(|((old, new), _)| old != new);
    let edit = |((old, new), number): ((&str, &str), u32)| Edit {
        place: Some(format!("{file}:{number}")),
        what: "write".to_owned(),
        lines: vec![new.trim().to_owned()],
        instead_of: vec![old.trim().to_owned()],
        ..Edit::default()
    };
    pairs.map(edit).collect()
}

#[cfg(test)]
mod tests;
