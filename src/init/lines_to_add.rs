//! The lines that a user adds to a script in which gputune can set no parameter, or cannot see the steps.

use std::path::Path;

use regex::Regex;

use super::constants::Constant;
use super::plan::{Found, Plan, Planned, Way};
use crate::probe::NotedLoader;

/// Stands for a batch size that neither the source nor the first run shows. Python refuses it.
const UNKNOWN: &str = "<YOUR BATCH SIZE>";
/// Code that is wider, in columns, does not move the comments of the other lines to the right. A round number.
const WIDEST: usize = 64;

/// Returns the lines to add, each with its place as a comment. The values are those of the script today: from its
/// constants, its loader, or the samples of its first step.
pub fn lines_to_add(found: &Found<'_>, plan: &Plan, cwd: &Path) -> Vec<String> {
    let script = found.command.inner().script(cwd);
    let script = script.as_deref().map(|path| path.strip_prefix(cwd).unwrap_or(path).display().to_string());
    let added = Added::of(found, plan, cwd);
    let mut lines = Vec::new();
    for constant in &added.constants {
        let (target, _) = constant.code.split_once('=').unwrap_or_default();
        let value = value_of(constant.parameter, constant.value);
        lines.push((format!("{} = {value}", target.trim_end()), format!("replaces line {}", constant.place)));
    }
    if !added.settings.is_empty() {
        let settings: Vec<String> = added.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let place = match added.loader {
            Some(loader) => format!("before {}", loader.place.as_deref().unwrap_or("the DataLoader")),
            None => "at the start; train with settings[\"batch_size\"]".to_owned(),
        };
        lines.push((format!("settings = gputune.config({})", settings.join(", ")), place));
    }
    lines.extend(added.loader.and_then(|loader| added.arguments_of(loader)));
    let ranks = found.command.ranks();
    let ranks = if ranks > 1 { format!(" * {ranks}") } else { String::new() };
    let samples = added.samples(found, plan, (script.as_deref(), cwd));
    lines.push((format!("gputune.step(samples={samples}{ranks})"), "at the end of each training step".to_owned()));
    let files = added.constants.iter().filter_map(|constant| constant.place.rsplit_once(':')).map(|(file, _)| file);
    let mut files: Vec<&str> = script.as_deref().into_iter().chain(files).collect();
    files.dedup();
    let files = if files.is_empty() { "the script".to_owned() } else { files.join(" and ") };
    lines.insert(0, ("import gputune".to_owned(), format!("at the top of {files}")));
    let width = lines.iter().map(|(code, _)| code.len()).filter(|width| *width <= WIDEST).max().unwrap_or(0);
    lines.into_iter().map(|(code, place)| format!("{code:<width$}   # {place}")).collect()
}

/// The settings that the script gets from gputune.
struct Added<'f> {
    /// The constants to replace, at most one for each parameter.
    constants: Vec<Constant>,
    /// The settings without a constant, each with its value as code.
    settings: Vec<(&'static str, String)>,
    /// The loader that gets the settings without a constant.
    loader: Option<&'f NotedLoader>,
}

impl<'f> Added<'f> {
    fn of(found: &'f Found<'_>, plan: &Plan, cwd: &Path) -> Self {
        let mut added = Self { constants: Vec::new(), settings: Vec::new(), loader: None };
        if !plan.parameters.is_empty() {
            // The script's own options set the parameters; only its steps are unknown.
            return added;
        }
        let loader = found.seen.and_then(|seen| seen.loader(found.source.loader().map(|call| call.line)));
        let all = found.source.constants(cwd);
        for parameter in ["batch_size", "workers"] {
            let of_loader = loader.and_then(|loader| match parameter {
                "batch_size" => loader.batch_size,
                _ => Some(loader.workers),
            });
            let is_it = |constant: &&Constant| {
                !constant.is_of_class
                    && constant.parameter == parameter
                    && of_loader.is_none_or(|value| value == constant.value)
            };
            if let Some(constant) = all.iter().find(is_it) {
                added.constants.push(constant.clone());
                continue;
            }
            let samples = found.seen.and_then(|seen| seen.notes.samples).filter(|_| parameter == "batch_size");
            match of_loader.or(samples) {
                Some(value) => added.settings.push((parameter, value.to_string())),
                None if parameter == "batch_size" => added.settings.push((parameter, UNKNOWN.to_owned())),
                None => {}
            }
        }
        added.loader = loader.filter(|_| !added.settings.is_empty());
        added
    }

    /// Returns the arguments of the loader that take the settings.
    fn arguments_of(&self, loader: &NotedLoader) -> Option<(String, String)> {
        let argument = |parameter: &str| if parameter == "workers" { "num_workers" } else { "batch_size" };
        let is_known = |(parameter, _): &&(&str, String)| *parameter == "workers" || loader.batch_size.is_some();
        let own = self.settings.iter().filter(is_known);
        let own = own.map(|(parameter, _)| format!("{}=settings[\"{parameter}\"]", argument(parameter)));
        let own: Vec<String> = own.collect();
        let place = loader.place.as_deref().unwrap_or("the script");
        (!own.is_empty()).then(|| (own.join(", "), format!("arguments of the DataLoader in {place}")))
    }

    /// Returns the code for the samples of a step of one rank.
    fn samples(&self, found: &Found<'_>, plan: &Plan, (script, cwd): (Option<&str>, &Path)) -> String {
        if let Some(planned) = plan.parameters.iter().find(|planned| planned.name == "batch_size") {
            return of_planned(found, planned, cwd).unwrap_or_else(|| UNKNOWN.to_owned());
        }
        let constant = self.constants.iter().find(|constant| constant.parameter == "batch_size");
        match constant {
            Some(constant) if constant.place.rsplit_once(':').map(|(file, _)| file) == script => constant.name.clone(),
            Some(constant) => value_of(constant.parameter, constant.value),
            None if self.settings.iter().any(|(it, _)| *it == "batch_size") => "settings[\"batch_size\"]".to_owned(),
            None => UNKNOWN.to_owned(),
        }
    }
}

/// Returns the code that asks gputune for a single setting.
fn value_of(parameter: &str, value: i64) -> String {
    format!("gputune.config({parameter}={value})[\"{parameter}\"]")
}

/// Returns the code that reads the batch size: from an option of the script, an environment variable, or
/// `gputune.config`.
fn of_planned(found: &Found<'_>, planned: &Planned, cwd: &Path) -> Option<String> {
    match &planned.way {
        Way::Argument(option) => {
            let name = option.trim_start_matches('-').replace('-', "_");
            found.source.texts(cwd).iter().find_map(|(_, text)| variable(text, &name))
        }
        Way::Target(target) => {
            let (variable, today) = (target.strip_prefix("env.")?, planned.today.as_ref()?);
            Some(format!("int(os.environ.get(\"{variable}\", {today}))"))
        }
        Way::Config => Some(value_of("batch_size", planned.today.as_ref()?.parse().ok()?)),
        Way::File(_) => None,
    }
}

/// Returns the code that reads the script's option `name`: an attribute of parsed options, or a function's parameter.
fn variable(text: &str, name: &str) -> Option<String> {
    let captured = |pattern: &str| {
        let found = Regex::new(pattern).ok()?.captures(text)?;
        Some(found.get(1)?.as_str().to_owned())
    };
    let parsed = captured(r"(?m)^\s*(\w+)(?:\s*,\s*\w+)?\s*=.*\bparse_(?:known_)?args\(");
    let attribute = parsed.map(|of| format!("{of}.{name}")).filter(|code| text.contains(code.as_str()));
    attribute.or_else(|| captured(&format!(r"\bdef \w+\([^)]*?\b({})\b", regex::escape(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_of_an_option_is_found() {
        for (text, expected) in [
            ("args = parser.parse_args()\nprint(args.batch_size)", Some("args.batch_size")),
            ("    opt, rest = p.parse_known_args(words)\n    f(opt.batch_size)", Some("opt.batch_size")),
            ("@app.command()\ndef main(\n    lr: float,\n    batch_size: int = 8,\n):", Some("batch_size")),
            ("p.parse_args()", None),
        ] {
            assert_eq!(variable(text, "batch_size").as_deref(), expected, "{text}");
        }
    }
}
