//! Decides which parameters are searched, how each reaches the script, and its value today.

use std::path::Path;

use super::argument::{Argument, Kind};
use super::command::Command;
use super::constants::Constant;
use super::knobs::{KNOBS, Knob, Names, Settings};
use super::preset::{self, Line, Preset};
use super::seen::Seen;
use super::settings::{self, Means, literal_number};
use super::source::Source;
use super::words::{Given, Unwritable, Words};
use crate::probe::adapter::Target;

/// Facts about a command.
#[derive(Debug)]
pub struct Found<'f> {
    /// The command.
    pub command: &'f Command,
    /// The script's arguments according to its help or its source.
    pub arguments: &'f [Argument],
    /// The facts from the script's source.
    pub source: &'f Source,
    /// The findings of its first run, if it ran.
    pub seen: Option<&'f Seen>,
    /// The preset.
    pub preset: &'static Preset,
    /// The machine.
    pub means: &'f Means,
}

/// The way by which a parameter reaches the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// This argument.
    Argument(String),
    /// This target of `apply`.
    Target(String),
    /// This file, which is rendered for each probe.
    File(String),
    /// A call of `gputune.config`, or the variable `GPUTUNE_CONFIG`.
    Config,
}

/// A parameter of the draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// Its table in `[space]`, without the braces.
    pub definition: String,
    /// Its description.
    pub about: String,
    /// The way by which it reaches the script.
    pub way: Way,
    /// The script's current value in TOML, if known. The candidate values are chosen around it.
    pub today: Option<String>,
    /// The words of the command that state today's value. Only stated values become part of a baseline.
    pub stated: Option<String>,
    /// Values derived from it, with their expressions.
    pub derived: Vec<(String, String)>,
}

/// The contents of a draft.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The preset.
    pub preset: &'static Preset,
    /// The command with its placeholders.
    pub words: Words,
    /// The parameters that are searched.
    pub parameters: Vec<Planned>,
    /// Arguments that could be searched, and why they are not.
    pub closed: Vec<(String, String)>,
    /// Further notes.
    pub notes: Vec<String>,
    /// The expression for `samples_per_step`, if nothing counts samples.
    pub samples_per_step: Option<String>,
    /// The line that makes the training loader: `train.py:12`.
    pub loader: Option<String>,
}

/// Plans the parameters of a command.
///
/// # Errors
/// A word of the command cannot be expressed in a spec.
pub fn plan(found: &Found<'_>) -> Result<Plan, Unwritable> {
    let words = Words::of(found.command);
    words.written()?;
    let mut planner = Planner {
        found,
        lines: preset::lines(found.preset.space),
        plan: Plan {
            preset: found.preset,
            words,
            parameters: Vec::new(),
            closed: Vec::new(),
            notes: Vec::new(),
            samples_per_step: None,
            loader: found.seen.and_then(Seen::place).map(str::to_owned),
        },
        has_loader: false,
    };
    planner.has_loader = planner.may_have_loader();
    KNOBS.iter().for_each(|knob| planner.add(knob));
    planner.add_threads();
    planner.add_further_lines();
    planner.add_config();
    planner.leave_out_what_a_shell_sets();
    planner.count_samples();
    Ok(planner.plan)
}

impl Plan {
    /// Returns true if any parameter is passed by an argument.
    pub fn has_arguments(&self) -> bool {
        self.parameters.iter().any(|parameter| matches!(parameter.way, Way::Argument(_)))
    }
}

pub(super) struct Planner<'f> {
    pub(super) found: &'f Found<'f>,
    lines: Vec<Line>,
    pub(super) plan: Plan,
    /// True if the script may have a loader for the adapter to set.
    pub(super) has_loader: bool,
}

/// The value that a script uses today, in TOML, and the words of the command that state it.
#[derive(Debug, Clone, Default)]
pub(super) struct Today {
    value: Option<String>,
    stated: Option<String>,
}

impl Today {
    /// Makes it from the source or the help.
    pub(super) fn seen(value: Option<String>) -> Self {
        Self { value, stated: None }
    }

    /// Makes it from the command, if the command states the value.
    pub(super) fn told(value: Option<String>, given: Option<&Given>) -> Self {
        let stated = given.filter(|_| value.is_some()).map(|given| given.words.clone());
        Self { value, stated }
    }
}

impl Planner<'_> {
    /// Returns true if the script has or may have a loader. It may have a loader if its source was not read, its framework makes
    /// one, or an argument sets a loader's workers.
    fn may_have_loader(&self) -> bool {
        if let Some(has_loader) = self.found.seen.and_then(Seen::has_loader) {
            return has_loader;
        }
        let source = self.found.source;
        let workers = Knob::of("workers").map_or(Names(""), |knob| knob.names);
        let by_framework = matches!(self.found.preset.name, "lightning" | "huggingface" | "deepspeed");
        by_framework || !source.is_read() || source.has_loader || self.argument(workers).is_some()
    }

    fn add(&mut self, knob: &Knob) {
        if let Some(reason) = knob.closed {
            if let Some(argument) = self.argument(knob.names).or_else(|| self.argument(knob.off)) {
                self.close(argument.spelled(), reason);
            }
            return;
        }
        if needs_workers(knob.parameter) && !self.may_prefetch(knob) {
            return;
        }
        let added = match knob.settings {
            Settings::Precision => self.add_precision(knob),
            Settings::Switch | Settings::RoundingSwitch => self.add_switch(knob),
            Settings::BatchSize | Settings::Workers | Settings::Prefetch | Settings::Count => {
                self.add_number(knob) || self.add_variable(knob)
            }
        };
        if !added {
            self.add_target(knob);
        }
    }

    /// Returns true if this knob can be searched beside the workers. Otherwise may record why not.
    fn may_prefetch(&mut self, knob: &Knob) -> bool {
        let Some(workers) = self.planned("workers") else { return false };
        let is_stated = workers.stated.is_some();
        let given = self.argument(knob.names).filter(|argument| self.plan.words.has(argument));
        let Some(argument) = given.filter(|_| !is_stated) else { return true };
        let reason = "the command sets it, but it is only valid with workers, and the command does not set workers";
        self.close(argument.spelled(), reason);
        false
    }

    pub(super) fn planned(&self, name: &str) -> Option<&Planned> {
        self.plan.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// Finds the argument with one of these names; earlier names are preferred.
    pub(super) fn argument(&self, names: Names) -> Option<Argument> {
        if !self.found.command.takes_arguments() {
            return None;
        }
        let has = |argument: &&Argument, name: &str| argument.names.iter().any(|known| Argument::plain(known) == name);
        // Skip `sys.argv[n]` if the command has fewer than n arguments.
        let told = self.found.command.told().len();
        let is_there = |argument: &&Argument| !matches!(argument.kind, Kind::Place(place) if place > told);
        let all = || self.found.arguments.iter().filter(is_there);
        names.all().find_map(|name| all().find(|argument| has(argument, name))).cloned()
    }

    pub(super) fn push(&mut self, name: &str, about: &str, definition: String, way: Way, today: Today) {
        // The condition on workers is added only if the workers are searched.
        let workers = self.planned("workers").filter(|_| needs_workers(name));
        let definition = if workers.is_some() { format!("{definition}, when = \"workers > 0\"") } else { definition };
        let none = |workers: &Planned| workers.today.as_deref().and_then(literal_number).is_none_or(|count| count == 0);
        let Today { value: today, stated } = if workers.is_some_and(none) { Today::default() } else { today };
        let (name, about, derived) = (name.to_owned(), about.to_owned(), Vec::new());
        self.plan.parameters.push(Planned { name, definition, about, way, today, stated, derived });
    }

    fn add_number(&mut self, knob: &Knob) -> bool {
        let named = self.argument(knob.names).or_else(|| self.matched(knob.parameter));
        let Some(argument) = named.filter(|argument| argument.kind.takes_value()) else { return false };
        let mut words = self.plan.words.clone();
        let given = words.set(&argument, knob.parameter);
        let today = match &given {
            Some(given) => given.value.trim().parse().ok(),
            None => {
                let default = argument.default.as_ref().and_then(|default| default.trim().parse().ok());
                default.or_else(|| literal_number(&self.today(knob.parameter)?))
            }
        };
        let today = today.filter(|&today| settings::is_possible(knob.settings, today));
        if let Some(given) = given.as_ref().filter(|_| today.is_none()) {
            let reason = format!("the command gives `{}`; its other possible values are unknown", given.value);
            self.close(argument.spelled(), &reason);
            return true;
        }
        let choices: Vec<i64> = argument.kind.choices().iter().filter_map(|choice| choice.parse().ok()).collect();
        let ranks = self.found.command.ranks();
        let numbers = settings::numbers(knob.settings, today, &choices, self.found.means, ranks);
        let Some(mut definition) = numbers else { return false };
        if let Some(target) = self.live_target(knob.parameter, &argument)
            && let Some(option) = words.option_of(knob.parameter)
        {
            definition += &format!(", apply = \"{target}\", argument = \"{option}\"");
        }
        self.plan.words = words;
        let today = Today::told(today.map(|today| today.to_string()), given.as_ref());
        self.push(knob.parameter, knob.about, definition, Way::Argument(argument.spelled().to_owned()), today);
        true
    }

    /// Returns the target that changes an option's setting while the script trains.
    fn live_target(&self, parameter: &str, argument: &Argument) -> Option<&'static str> {
        let is_alone = self.found.command.ranks() <= 1 && self.found.preset.adapter == Some("torch");
        is_alone.then(|| self.found.source.loader_target(parameter, argument)).flatten()
    }

    pub(super) fn derive(&mut self, name: String, expression: String) {
        if let Some(last) = self.plan.parameters.last_mut() {
            last.derived.push((name, expression));
        }
    }

    /// Returns the line of the preset's space that sets a parameter without an argument.
    pub(super) fn line(&self, parameter: &str) -> Option<Line> {
        self.lines.iter().find(|line| line.name == parameter && line.target().is_some()).cloned()
    }

    /// Returns which constant of the script fixes a parameter, and how gputune could set it.
    fn fixed_by_a_constant(&self, parameter: &str) -> Option<String> {
        let today = self.today(parameter).as_deref().and_then(literal_number);
        let is_it =
            |constant: &Constant| constant.parameter == parameter && today.is_none_or(|today| today == constant.value);
        let Constant { name, value, code, place, .. } =
            self.found.source.constants(Path::new("")).into_iter().find(is_it)?;
        let place = place.rsplit('/').next()?;
        let begin = code.split('=').next().unwrap_or(&name).trim_end();
        let line = format!("{begin} = int(os.environ.get(\"{name}\", {value}))");
        Some(format!("{place} fixes it; with `{line}` there, gputune can set it"))
    }

    fn add_target(&mut self, knob: &Knob) {
        let Some(line) = self.line(knob.parameter) else { return };
        let Some(target) = line.target().map(str::to_owned) else { return };
        if target.starts_with("dataloader.") && !self.has_loader {
            if self.found.means.gpus > 0 || knob.parameter != "pin_memory" {
                let why =
                    || self.found.seen.map_or_else(|| Seen::without_loader("source"), Seen::why_no_loader_settings);
                self.close(knob.parameter, &self.fixed_by_a_constant(knob.parameter).unwrap_or_else(why));
            }
            return;
        }
        let why_unsized = match target.as_str() {
            "dataloader.batch_size" => {
                Some("the DataLoader has no batch size: its sampler or its dataset makes the batches")
            }
            "keras.batch_size" => Some("`fit` gets no arrays: its dataset or generator makes the batches"),
            _ => None,
        };
        let is_unsized = self.found.seen.is_some_and(|seen| seen.notes.is_sized == Some(false));
        if let Some(why) = why_unsized.filter(|_| is_unsized) {
            return self.close("batch_size", why);
        }
        let today = self.today(knob.parameter);
        let least = i64::from(knob.settings != Settings::Workers);
        let number = today.as_deref().and_then(literal_number).filter(|&number| number >= least);
        let ranks = self.found.command.ranks();
        let (definition, today) = match knob.settings {
            Settings::Precision => {
                let names = Target::parse(&target).map_or(&[][..], |target| target.accepts.names());
                let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
                let Some(offered) = settings::precisions(&names, self.found.means) else {
                    self.close("precision", "this machine computes in fp32 only, as far as its hardware tells");
                    return;
                };
                let format = today.as_deref().and_then(settings::named);
                let same = names.iter().find(|name| format.is_some() && settings::named(name) == format);
                (offered.values(None), same.or(today.as_ref()).map(|today| settings::text(today)))
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
        let definition = format!("{definition}, apply = \"{target}\"");
        self.push(knob.parameter, knob.about, definition, Way::Target(target), Today::seen(today));
    }

    /// Adds threads, which matter if the CPU trains.
    fn add_threads(&mut self) {
        let Means { cores, gpus, threads, .. } = *self.found.means;
        let ranks = self.found.command.ranks();
        let is_torch = self.found.preset.adapter == Some("torch") && self.found.preset.name != "keras-fit";
        if !is_torch || gpus > 0 || cores < 2 {
            return;
        }
        // Ranks share the cores; torchrun gives each of them one thread (torch.distributed.run).
        let (most, usual) = if ranks > 1 { ((cores / ranks).max(2), 1) } else { (cores, cores) };
        let today = threads.unwrap_or(usual).max(1);
        let definition = format!("{}, apply = \"env.OMP_NUM_THREADS\"", settings::doubled(most, today));
        let way = Way::Target("env.OMP_NUM_THREADS".to_owned());
        let today = Today::seen(Some(today.to_string()));
        self.push("threads", "threads of an operation on the CPU", definition, way, today);
    }

    /// Adds further lines of the preset's space, such as settings of NCCL.
    fn add_further_lines(&mut self) {
        let mut waiting = false;
        for line in self.lines.clone() {
            let Some(target) = line.target().filter(|_| Knob::of(&line.name).is_none()) else { continue };
            if target.starts_with("dataloader.") && !self.has_loader {
                continue;
            }
            if target.starts_with("ddp.") && !self.is_open_to_ddp(target) {
                continue;
            }
            if preset::gpus_needed(target) > self.found.means.gpus {
                waiting = true;
                continue;
            }
            // On JAX, Keras runs each operation by itself without it.
            let backend = self.found.seen.and_then(Seen::keras_backend);
            if target == "keras.jit_compile" && backend != Some("tensorflow") {
                continue;
            }
            let today = Today::seen(self.today(&line.name).or_else(|| line.first_value()));
            self.push(&line.name, &line.about, line.definition.clone(), Way::Target(target.to_owned()), today);
        }
        if waiting && !self.plan.parameters.is_empty() {
            let space = if self.has_loader { self.found.preset.space } else { "nccl" };
            self.plan.notes.push(format!(
                "on a machine with more GPUs, import = [\"{space}\"] in [space] has further settings for them"
            ));
        }
    }

    /// Returns true if the script's ranks train with DistributedDataParallel alone, and the script has no option for this target.
    fn is_open_to_ddp(&self, target: &str) -> bool {
        let calls = |names: &[&str]| names.iter().any(|name| !self.found.source.named(name).is_empty());
        let is_ddp = calls(&["DistributedDataParallel", "DDP"]);
        let is_sharded = calls(&["fully_shard", "FullyShardedDataParallel", "FSDP"]);
        let has_own = target == "ddp.bucket_cap_mb" && self.planned("bucket_mb").is_some();
        self.found.command.ranks() > 1 && is_ddp && !is_sharded && !has_own
    }

    /// Adds the settings that the script asks gputune for.
    fn add_config(&mut self) {
        let calls = self.found.source.calls().filter(|call| call.name == "gputune.config");
        let named: Vec<(String, String)> = calls.flat_map(|call| call.named.clone()).collect();
        for (name, text) in &named {
            let Some(value) = super::literal(text).filter(|_| self.planned(name).is_none()) else { continue };
            let knob = Knob::of(name);
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
                    let offered = settings::precisions(&settings::family(&value, self.found.preset), self.found.means);
                    (offered.map(|offered| offered.definition(Some(&value))), settings::text(&value))
                }
            };
            if let Some(definition) = definition {
                self.push(name, about, definition, Way::Config, Today::seen(Some(today)));
            } else {
                self.close(name, "its other settings are not known here");
            }
        }
    }
}

/// Returns true if a parameter only matters with workers.
fn needs_workers(parameter: &str) -> bool {
    matches!(parameter, "prefetch" | "persistent_workers")
}
