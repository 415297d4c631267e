//! Decides which parameters are searched, how each reaches the script, and what it is today.

use super::argument::{Argument, Kind};
use super::command::Command;
use super::knobs::{KNOBS, Knob, Settings};
use super::machine::Means;
use super::preset::Preset;
use super::settings::{self, literal_number};
use super::shipped::{self, Line};
use super::source::Source;
use super::today;
use super::words::{Unwritable, Words};

/// What was found out about a command.
#[derive(Debug)]
pub struct Found<'f> {
    /// The command.
    pub command: &'f Command,
    /// The arguments that its help or its source tells of.
    pub arguments: &'f [Argument],
    /// What its source tells.
    pub source: &'f Source,
    /// The preset that it has.
    pub preset: &'static Preset,
    /// The machine.
    pub means: &'f Means,
}

/// How a parameter reaches the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By this argument.
    Argument(String),
    /// By this target of `apply`.
    Target(String),
    /// By this file, which is rendered for each probe.
    File(String),
    /// The script reads it with `gputune.config`, or from the variable `GPUTUNE_CONFIG`.
    Config,
}

/// A parameter of the draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// Its table in `[space]`, without the braces.
    pub definition: String,
    /// What it is.
    pub about: String,
    /// How it reaches the script.
    pub way: Way,
    /// What the script does today, in TOML.
    pub today: Option<String>,
    /// Values derived from it, with their expressions.
    pub derived: Vec<(String, String)>,
}

/// What a draft is written from.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The preset.
    pub preset: &'static Preset,
    /// The command with its placeholders.
    pub words: Words,
    /// What is searched.
    pub parameters: Vec<Planned>,
    /// Arguments that could be searched, and why they are not.
    pub closed: Vec<(String, String)>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// Plans the parameters of a command.
///
/// # Errors
/// A word of the command cannot stand in a spec.
pub fn plan(found: &Found<'_>) -> Result<Plan, Unwritable> {
    let words = Words::of(found.command);
    words.written()?;
    let lines = shipped::lines(found.preset.space);
    let mut planner = Planner {
        found,
        lines,
        plan: Plan { preset: found.preset, words, parameters: Vec::new(), closed: Vec::new(), notes: Vec::new() },
    };
    for knob in KNOBS {
        planner.add(knob);
    }
    planner.add_threads();
    planner.add_further_lines();
    planner.add_config();
    Ok(planner.plan)
}

impl Plan {
    /// Whether any parameter goes in by an argument.
    pub fn has_arguments(&self) -> bool {
        self.parameters.iter().any(|parameter| matches!(parameter.way, Way::Argument(_)))
    }
}

pub(super) struct Planner<'f> {
    pub(super) found: &'f Found<'f>,
    lines: Vec<Line>,
    pub(super) plan: Plan,
}

impl Planner<'_> {
    fn add(&mut self, knob: &Knob) {
        if let Some(reason) = knob.closed {
            if let Some(argument) = self.argument(knob.names).or_else(|| self.argument(knob.off)) {
                self.plan.closed.push((argument.spelled().to_owned(), reason.to_owned()));
            }
            return;
        }
        if matches!(knob.parameter, "prefetch" | "persistent_workers") && self.planned("workers").is_none() {
            return;
        }
        let added = match knob.settings {
            Settings::Precision => self.add_precision(knob),
            Settings::Switch | Settings::RoundingSwitch => self.add_switch(knob),
            Settings::BatchSize | Settings::Workers | Settings::Prefetch | Settings::Count => self.add_number(knob),
        };
        if !added {
            self.add_target(knob);
        }
    }

    fn planned(&self, name: &str) -> Option<&Planned> {
        self.plan.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The argument with one of these names; those in front are preferred.
    pub(super) fn argument(&self, names: &[&str]) -> Option<Argument> {
        if !self.found.command.takes_arguments() {
            return None;
        }
        let has = |argument: &&Argument, name: &str| argument.names.iter().any(|known| Argument::plain(known) == name);
        names.iter().find_map(|name| self.found.arguments.iter().find(|argument| has(argument, name))).cloned()
    }

    pub(super) fn push(&mut self, name: &str, about: &str, definition: String, way: Way, today: Option<String>) {
        // Where the workers are not searched by the adapter, nothing follows by itself.
        let has_workers = self.planned("workers").is_some();
        let conditional = has_workers && matches!(name, "prefetch" | "persistent_workers");
        let definition = if conditional { format!("{definition}, when = \"workers > 0\"") } else { definition };
        let idle = conditional
            && self
                .planned("workers")
                .and_then(|workers| literal_number(workers.today.as_deref()?))
                .is_none_or(|workers| workers == 0);
        let today = today.filter(|_| !idle);
        let (name, about) = (name.to_owned(), about.to_owned());
        self.plan.parameters.push(Planned { name, definition, about, way, today, derived: Vec::new() });
    }

    fn add_number(&mut self, knob: &Knob) -> bool {
        let Some(argument) =
            self.argument(knob.names).filter(|argument| matches!(argument.kind, Kind::Value { .. } | Kind::Override))
        else {
            return false;
        };
        let default = argument.default_number();
        let mut words = self.plan.words.clone();
        let given = words.set(&argument, knob.parameter);
        let today = match given {
            Some(given) => given.trim().parse().ok(),
            None => default,
        };
        let choices: Vec<i64> = match &argument.kind {
            Kind::Value { choices } => choices.iter().filter_map(|choice| choice.parse().ok()).collect(),
            _ => Vec::new(),
        };
        let ranks = self.found.command.ranks();
        let Some(definition) = settings::numbers(knob.settings, today, &choices, self.found.means, ranks) else {
            return false;
        };
        self.plan.words = words;
        let today = today.filter(|&today| settings::is_possible(knob.settings, today)).map(|today| today.to_string());
        self.push(knob.parameter, knob.about, definition, Way::Argument(argument.spelled().to_owned()), today);
        true
    }

    fn add_switch(&mut self, knob: &Knob) -> bool {
        let name = knob.parameter;
        let full = if knob.settings == Settings::RoundingSwitch { ", full_precision = false" } else { "" };
        let definition = format!("values = [false, true]{full}");
        let off = self.argument(knob.off).filter(|argument| argument.kind == Kind::Switch);
        if let Some(argument) = self.argument(knob.names) {
            let way = Way::Argument(argument.spelled().to_owned());
            let on = argument.is_on_by_default();
            match &argument.kind {
                Kind::Switch if !on => {
                    let today = self.plan.words.switch(&argument.names, argument.spelled(), name);
                    self.push(name, knob.about, definition, way, Some(today.to_string()));
                }
                Kind::Pair { off } => {
                    let given = self.plan.words.switch(&argument.names, argument.spelled(), name);
                    let not = format!("no_{name}");
                    let refused = self.plan.words.switch(std::slice::from_ref(off), off, &not);
                    let today = given || (on && !refused);
                    self.push(name, knob.about, definition, way, Some(today.to_string()));
                    self.derive(not, format!("not {name}"));
                }
                Kind::MaybeValue | Kind::Override | Kind::Value { .. } => {
                    if matches!(&argument.kind, Kind::Value { choices } if !choices.iter().any(|choice| choice.eq_ignore_ascii_case("true")))
                    {
                        return false;
                    }
                    let given = self.plan.words.set(&argument, name);
                    let today = given.map_or(on, |given| given.eq_ignore_ascii_case("true"));
                    self.push(name, knob.about, definition, way, Some(today.to_string()));
                }
                Kind::Switch => return false,
            }
            return true;
        }
        let Some(off) = off else { return false };
        let not = format!("no_{name}");
        let refused = self.plan.words.switch(&off.names, off.spelled(), &not);
        self.push(name, knob.about, definition, Way::Argument(off.spelled().to_owned()), Some((!refused).to_string()));
        self.derive(not, format!("not {name}"));
        true
    }

    pub(super) fn derive(&mut self, name: String, expression: String) {
        if let Some(last) = self.plan.parameters.last_mut() {
            last.derived.push((name, expression));
        }
    }

    /// The line of the preset's space that sets a parameter by itself.
    pub(super) fn line(&self, parameter: &str) -> Option<Line> {
        self.lines.iter().find(|line| line.name == parameter && line.target().is_some()).cloned()
    }

    fn add_target(&mut self, knob: &Knob) {
        let Some(line) = self.line(knob.parameter) else { return };
        let Some(target) = line.target().map(str::to_owned) else { return };
        let today = today::of(knob.parameter, self.found.source);
        let least = i64::from(knob.settings != Settings::Workers);
        let number = today.as_deref().and_then(literal_number).filter(|&number| number >= least);
        let ranks = self.found.command.ranks();
        let (definition, today) = match knob.settings {
            Settings::Precision => {
                let names: Vec<String> = ["fp32", "tf32", "bf16", "fp16"].map(str::to_owned).to_vec();
                let Some(offered) = settings::precisions(&names, self.found.means) else {
                    self.plan.notes.push(
                        "precision is not searched: this machine computes in fp32 only, as far as its hardware tells"
                            .to_owned(),
                    );
                    return;
                };
                (offered.values(today.as_deref()), today.map(|today| settings::text(&today)))
            }
            Settings::Switch | Settings::RoundingSwitch => {
                if knob.parameter == "pin_memory" && self.found.means.gpus == 0 {
                    return;
                }
                ("values = [false, true]".to_owned(), today.map(|today| today.to_ascii_lowercase()))
            }
            other => {
                let Some(definition) = settings::numbers(other, number, &[], self.found.means, ranks) else { return };
                (definition, number.map(|number| number.to_string()))
            }
        };
        self.push(
            knob.parameter,
            knob.about,
            format!("{definition}, apply = \"{target}\""),
            Way::Target(target),
            today,
        );
    }

    /// Threads matter where the processor trains.
    fn add_threads(&mut self) {
        let Means { cores, gpus, threads, .. } = *self.found.means;
        if self.found.preset.adapter != Some("torch") || gpus > 0 || cores < 2 || self.found.command.ranks() > 1 {
            return;
        }
        let today = threads.unwrap_or(cores).max(1);
        let definition = settings::doubled(1, cores, today);
        let way = Way::Target("env.OMP_NUM_THREADS".to_owned());
        self.push(
            "threads",
            "threads of an operation on the processor",
            format!("{definition}, apply = \"env.OMP_NUM_THREADS\""),
            way,
            Some(today.to_string()),
        );
    }

    /// What the preset's space has beyond the knobs, such as settings of NCCL.
    fn add_further_lines(&mut self) {
        let mut waiting = false;
        for line in self.lines.clone() {
            let Some(target) = line.target().filter(|_| KNOBS.iter().all(|knob| knob.parameter != line.name)) else {
                continue;
            };
            if shipped::gpus_needed(target) > self.found.means.gpus {
                waiting = true;
                continue;
            }
            let today = line.first_value();
            self.push(&line.name, &line.about, line.definition.clone(), Way::Target(target.to_owned()), today);
        }
        if waiting {
            let space = self.found.preset.space;
            self.plan.notes.push(format!(
                "on a machine with more GPUs, import = [\"{space}\"] in [space] has further settings for them"
            ));
        }
    }

    /// What the script asks gputune for.
    fn add_config(&mut self) {
        let Some(call) = self.found.source.of_gputune("config").cloned() else { return };
        for (name, text) in &call.named {
            let Some(value) = super::calls::literal(text).filter(|_| self.planned(name).is_none()) else { continue };
            let knob = KNOBS.iter().find(|knob| knob.parameter == name);
            let about = knob.map_or("the script asks gputune for it", |knob| knob.about);
            let kind = knob.map_or(Settings::Count, |knob| knob.settings);
            let ranks = self.found.command.ranks();
            let (definition, today) = match (literal_number(&value), value.as_str()) {
                (Some(number), _) if settings::is_possible(kind, number) => {
                    (settings::numbers(kind, Some(number), &[], self.found.means, ranks), number.to_string())
                }
                (Some(number), _) => (None, number.to_string()),
                (None, "True" | "False") => (Some("values = [false, true]".to_owned()), value.to_ascii_lowercase()),
                (None, "None") => continue,
                (None, _) => {
                    let offered =
                        settings::precisions(&super::formats::family(&value, self.found.preset), self.found.means);
                    (offered.map(|offered| offered.definition(Some(&value))), settings::text(&value))
                }
            };
            if let Some(definition) = definition {
                self.push(name, about, definition, Way::Config, Some(today));
            } else {
                self.plan.closed.push((name.clone(), "its other settings are not known here".to_owned()));
            }
        }
    }
}
