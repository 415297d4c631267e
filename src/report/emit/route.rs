//! Finds the route of each setting to the command: an argument, an environment variable, a file, or an adapter's hook.
//! Writes these arguments and variables, and applies them to another command, such as the whole run with more epochs.

use std::path::PathBuf;

use super::shell::{self, assignment, is_shell_line, is_variable, shell_word};
use super::{Chosen, Unwritable, Written, no_command};
use crate::model::{Settings, Space};
use crate::probe::protocol::{CONFIG, REPLACED_FILES};
use crate::probe::{BUILTINS, StepTemplate, Template, Word, adapter::By};

/// The command that runs a config.
#[derive(Debug, Clone)]
pub struct Run<'c> {
    /// The command before settings are filled in.
    pub step: &'c StepTemplate,
    /// The space, if known.
    pub space: Option<&'c Space>,
    /// The path of this program.
    pub gputune: PathBuf,
    /// The folder with the files that were rendered for the config.
    pub probe_dir: PathBuf,
}

/// A way for a setting to reach the command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    Argument,
    /// A word before the script's arguments: a word of its launcher, or the script's own name.
    Launcher(String),
    Variable(String),
    File(String),
    /// An adapter's hook, which no command line can replace.
    Hook,
    /// The variable that holds the whole config.
    Config,
}

/// Programs that start a script, in Python or not; the words in front of the script belong to the launcher.
const LAUNCHERS: &[&str] = &["torchrun", "accelerate", "deepspeed", "srun", "mpirun", "mpiexec", "horovodrun"];
const LAUNCHER_MODULES: &[&str] = &["torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"];

impl Run<'_> {
    fn words(&self, settings: &Settings) -> Vec<Word> {
        self.step.words(settings, &self.gputune, &self.probe_dir)
    }

    /// Returns the index of the script's first own argument among the templates of the command, or why it is not known.
    fn arguments_from(&self) -> Result<usize, &'static str> {
        let command: Vec<&str> = self.step.command.iter().map(Template::text).collect();
        let base = |at: usize| command.get(at).map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        if is_shell_line(&command) {
            return Err("the command is a line for a shell");
        }
        let is_script = |word: &str| word.ends_with(".py") && !word.starts_with('-') && !word.contains('=');
        let module = command.iter().enumerate().find_map(|(at, word)| {
            let name = command.get(at + 1).filter(|name| !LAUNCHER_MODULES.contains(name))?;
            (["-m", "--module"].contains(word) && !name.starts_with('-')).then_some(at + 1)
        });
        let script = command.iter().position(|word| is_script(word));
        if let Some(at) = [module, script].into_iter().flatten().min() {
            return Ok(at + 1);
        }
        let is_launched = LAUNCHERS.contains(&base(0)) || command.iter().any(|word| LAUNCHER_MODULES.contains(word));
        if is_launched { Err("gputune cannot find the script among the command's words") } else { Ok(1) }
    }

    /// Returns the routes of a setting; empty if the setting only serves to derive other settings.
    fn routes(&self, name: &str) -> Vec<Route> {
        let has = |template: &Template| template.names().any(|(found, _)| found == name);
        let begin = self.arguments_from().unwrap_or(usize::MAX);
        let command = self.step.command.iter().enumerate().filter(|(_, template)| has(template));
        let command = command.map(|(at, template)| match at < begin {
            true => Route::Launcher(template.text().to_owned()),
            false => Route::Argument,
        });
        let env = self.step.env.iter().filter(|(_, value)| has(value));
        let env = env.map(|(variable, _)| Route::Variable(variable.clone()));
        let files = self.step.files.iter().filter(|(_, text)| has(text));
        let files = files.map(|(path, _)| Route::File(path.display().to_string()));
        let applied = self.step.apply.applied.iter().filter(|applied| applied.parameter == name);
        let applied = applied.flat_map(|applied| match applied.by() {
            By::Hook { .. } => vec![Route::Hook],
            By::Argument => vec![Route::Argument],
            By::Environment => applied.variables().into_iter().map(|it| Route::Variable(it.to_owned())).collect(),
        });
        let mut routes: Vec<Route> = command.chain(env).chain(files).chain(applied).collect();
        if self.unheard().contains(&name) {
            routes.push(Route::Config);
        }
        routes
    }

    /// Returns the parameters whose only route is the variable of the whole config.
    fn unheard(&self) -> Vec<&str> {
        self.space.map(|space| self.step.unheard(space)).unwrap_or_default()
    }

    /// Returns the variables that carry settings. They include the variable of the whole config if a setting has no other route.
    fn variables(&self, settings: &Settings) -> Vec<(String, String)> {
        let tuned = |name: &str| {
            let template = self.step.env.iter().find(|(known, _)| known == name).map(|(_, value)| value);
            let is_applied = || self.step.apply.applied.iter().any(|applied| applied.variables().contains(&name));
            template.is_some_and(Template::has_settings) || is_applied() || name == CONFIG
        };
        let mut all = self.environment(settings);
        all.retain(|(name, _)| tuned(name));
        all
    }

    /// Returns all variables of the command, each once.
    fn environment(&self, settings: &Settings) -> Vec<(String, String)> {
        let rendered = self.step.render(settings, &self.gputune, &self.probe_dir);
        let is_heard = self.step.uses_settings() && self.unheard().iter().all(|name| settings.get(name).is_none());
        let json = || serde_json::to_string(settings).unwrap_or_default();
        let config = (!is_heard).then(|| (CONFIG.to_owned(), json()));
        let mut all: Vec<(String, String)> = Vec::new();
        // Only the hook reads this variable, and the written command runs without the hook.
        let env = rendered.env.into_iter().filter(|(name, _)| name != REPLACED_FILES);
        for (name, value) in config.into_iter().chain(env) {
            // The last value of a variable counts, as in a process.
            all.retain(|(known, _)| *known != name);
            all.push((name, value));
        }
        all
    }

    /// Returns the command as a shell would take it, with its variables in front.
    pub fn command_line(&self, settings: &Settings) -> String {
        let words = self.words(settings);
        let command = shell::command(words.iter().map(|word| word.text.as_str()));
        shell::command_with(&self.environment(settings), &command)
    }
}

impl Run<'_> {
    /// Returns the step with another command, in which `{name}` stands for a setting, as in a spec. If the new command
    /// lacks a setting that the spec's command carries, the option with this setting is appended.
    ///
    /// # Errors
    /// The new command already has an option that would be appended, or the place of a setting in it is unknown.
    pub fn with_command(&self, words: &[String], settings: &Settings) -> Result<StepTemplate, Unwritable> {
        let known = |name: &str| settings.get(name).is_some() || BUILTINS.iter().any(|(builtin, _)| *builtin == name);
        let read = |word: &String| {
            let template = Template::parse(word);
            if template.names().all(|(name, _)| known(name)) { template } else { Template::literal(word) }
        };
        let own: Vec<Template> = words.iter().map(read).collect();
        let mut step = StepTemplate { command: own.clone(), ..self.step.clone() };
        let carried = self.carried(&step, settings)?;
        let appended = self.step.apply.active(settings).filter(|(applied, _)| applied.by() == By::Argument);
        let appended: Vec<String> = appended
            .filter(|(applied, _)| !step.command_has(&applied.parameter) && !self.step.command_has(&applied.parameter))
            .map(|(applied, _)| applied.shown())
            .collect();
        let options = carried.iter().filter_map(|templates| option_of(templates)).chain(appended.iter().cloned());
        for option in options {
            refuse_twice(&own, &option)?;
        }
        step.command.extend(carried.into_iter().flatten());
        let is_longer = step.command.len() > own.len() || !appended.is_empty();
        if is_longer && let Err(reason) = (Run { step: &step, ..self.clone() }).arguments_from() {
            let names: Vec<String> = settings.iter().map(|(name, _)| format!("{{{name}}}")).collect();
            let hint = format!("write them into the command, such as `--option {}`", names.join(" "));
            return Err(Unwritable::new(format!("{reason}, so no settings can be put behind it"), hint));
        }
        Ok(step)
    }

    /// Returns words of the spec's command with settings that the new command lacks, each with its option.
    fn carried(&self, new: &StepTemplate, settings: &Settings) -> Result<Vec<Vec<Template>>, Unwritable> {
        let begin = self.arguments_from();
        let mut carried = Vec::new();
        for (at, word) in self.step.command.iter().enumerate() {
            let is_active = |name: &str| name == "probe_dir" || settings.get(name).is_some_and(|it| !it.is_as_it_is());
            let mut names = word.names().map(|(name, _)| name).filter(|name| is_active(name)).peekable();
            if names.peek().is_none() || names.all(|name| new.command_has(name)) {
                continue;
            }
            let option = at.checked_sub(1).and_then(|before| self.step.command.get(before));
            let option = option.filter(|option| option.is_option() && !option.text().contains('='));
            let has_option = word.is_switch() || word.is_assignment() || option.is_some();
            if !has_option || begin.is_err() || begin.is_ok_and(|begin| at < begin) {
                let message =
                    format!("the new command lacks `{}`, which carries a setting in the spec's command", word.text());
                let hint = "write the word into the new command, in quotes, where it belongs";
                return Err(Unwritable::new(message, hint));
            }
            let option = option.filter(|_| !word.is_switch() && !word.is_assignment());
            carried.push(option.into_iter().chain([word]).cloned().collect());
        }
        Ok(carried)
    }
}

/// Returns the option of words that carry a setting: `--batch`, or `--batch=` with the setting in one word.
fn option_of(templates: &[Template]) -> Option<String> {
    let text = templates.first()?.text();
    match text.split_once('{') {
        Some(("", switched)) => switched.split_once('?')?.1.strip_suffix('}').map(str::to_owned),
        Some((option, _)) => Some(option.to_owned()),
        None => Some(text.to_owned()),
    }
}

/// Returns an error if the command already has this option: the script would decide which of two values counts.
fn refuse_twice(own: &[Template], option: &str) -> Result<(), Unwritable> {
    let name = option.trim_end_matches('=');
    let is_there = |word: &&Template| {
        word.text() == name || word.text().strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
    };
    match own.iter().find(is_there) {
        None => Ok(()),
        Some(word) => Err(Unwritable::new(
            format!("the new command has `{}`, which the best config sets", word.text()),
            "leave it out, and the setting is put behind the command",
        )),
    }
}

/// Writes the words of a command that carry settings, each preceded by its option.
pub(super) fn arguments(chosen: &Chosen<'_>) -> Result<Written, Unwritable> {
    let run = chosen.run.ok_or_else(no_command)?;
    let begin = run.arguments_from().map_err(|reason| {
        let message = format!("{reason}, so the script's arguments are unknown");
        Unwritable::new(message, "`--format command` prints the whole command")
    })?;
    let words = run.words(chosen.settings);
    let carrying = words.iter().enumerate().filter(|(at, _)| carries(run, &words, *at, begin));
    let shown: Vec<String> = carrying.map(|(_, word)| shell_word(&word.text)).collect();
    let is_here = |route: &Route| *route == Route::Argument;
    Ok(Written { text: shown.join(" ") + "\n", notes: elsewhere(chosen, run, is_here, "argument of the command") })
}

/// Returns true if a word contains a setting, or is the option in front of a setting.
fn carries(run: &Run<'_>, words: &[Word], at: usize, begin: usize) -> bool {
    let template = |word: &Word| word.template.and_then(|at| Some((at, run.step.command.get(at)?)));
    let Some((place, own)) = words.get(at).and_then(template) else { return true };
    if place < begin {
        return false;
    }
    let is_its_value = |value: &Template| value.has_settings() && !value.is_switch() && !value.text().starts_with('-');
    let next = words.get(at + 1).and_then(template).filter(|(next, _)| *next == place + 1);
    own.has_settings()
        || (own.is_option() && !own.text().contains('=') && next.is_some_and(|(_, next)| is_its_value(next)))
}

/// Writes one `NAME=value` line for each variable that carries a setting, as a shell or an environment file reads it.
pub(super) fn variables(chosen: &Chosen<'_>) -> Result<Written, Unwritable> {
    let run = chosen.run.ok_or_else(no_command)?;
    let mut written = Written { text: String::new(), notes: Vec::new() };
    for (name, value) in run.variables(chosen.settings) {
        if is_variable(&name) {
            written.text += &format!("{}\n", assignment(&name, &value));
        } else {
            let word = shell_word(&format!("{name}={value}"));
            written
                .notes
                .push(format!("`{name}` is left out, as a shell cannot set it: start the program with env {word}"));
        }
    }
    let is_here = |route: &Route| matches!(route, Route::Variable(_) | Route::Config);
    written.notes.extend(elsewhere(chosen, run, is_here, "variable"));
    Ok(written)
}

/// Returns notes about settings without a route that `here` accepts, by reason. `what` names the accepted routes.
fn elsewhere(chosen: &Chosen<'_>, run: &Run<'_>, here: impl Fn(&Route) -> bool, what: &str) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for (name, value) in chosen.settings.iter() {
        let routes = run.routes(name);
        let Some(first) = routes.first().filter(|_| !routes.iter().any(&here)) else { continue };
        let why = match first {
            Route::Argument => "an argument of the command, see --format args".to_owned(),
            Route::Launcher(_) if what == "variable" => "an argument of the command, see --format command".to_owned(),
            Route::Launcher(it) => format!("in front of the script's own arguments, in `{it}`, see --format command"),
            Route::Variable(variable) => format!("in the variable {variable}, see --format env"),
            Route::Config => format!("in the variable {CONFIG}, see --format env"),
            Route::File(file) => format!("in the file {file}, which is rendered for each probe"),
            Route::Hook => {
                format!("no {what}, but set by the adapter: --format command says what to write into the script")
            }
        };
        match notes.iter_mut().find(|note| note.starts_with(&format!("{why}: "))) {
            Some(note) => *note += &format!(", `{name}` = {value}"),
            None => notes.push(format!("{why}: `{name}` = {value}")),
        }
    }
    notes
}
