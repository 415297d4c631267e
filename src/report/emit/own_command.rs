//! Applies the settings of a spec's command to another command, such as the whole run with more epochs.

use super::Unwritable;
use super::route::Run;
use crate::model::Settings;
use crate::probe::{BUILTINS, StepTemplate, Template, adapter::By};

impl Run<'_> {
    /// Returns the step with another command. `{name}` in it stands for a setting, as in a spec. Options with settings that it does
    /// not have are appended to it.
    ///
    /// # Errors
    /// It has an option of a setting with another value, or a setting has no place in it.
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
        if is_longer && let Err(reason) = (Run { step: &step, ..*self }).arguments_from() {
            let names: Vec<String> = settings.iter().map(|(name, _)| format!("{{{name}}}")).collect();
            let hint = format!("write them into the command, such as `--option {}`", names.join(" "));
            return Err(Unwritable::new(format!("{reason}, so no settings can be put behind it"), hint));
        }
        Ok(step)
    }

    /// Returns the words of the spec's command that carry settings which the new command does not have, each with its option.
    fn carried(&self, new: &StepTemplate, settings: &Settings) -> Result<Vec<Vec<Template>>, Unwritable> {
        let behind = self.arguments_from();
        let mut carried = Vec::new();
        for (at, word) in self.step.command.iter().enumerate() {
            let is_active =
                |name: &str| name == "probe_dir" || settings.get(name).is_some_and(|value| !value.is_as_it_is());
            let mut names = word.names().map(|(name, _)| name).filter(|name| is_active(name)).peekable();
            if names.peek().is_none() || names.all(|name| new.command_has(name)) {
                continue;
            }
            let option = at.checked_sub(1).and_then(|before| self.step.command.get(before));
            let option = option.filter(|option| option.is_option() && !option.text().contains('='));
            let has_option = word.is_switch() || word.is_assignment() || option.is_some();
            if !has_option || behind.is_err() || behind.is_ok_and(|behind| at < behind) {
                let message =
                    format!("the spec's command has a setting in `{}`, and the new command has not", word.text());
                return Err(Unwritable::new(
                    message,
                    "write the word into the new command, in quotes, where it belongs",
                ));
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

/// Refuses a command that has an option of a setting: which of both counts would depend on the script.
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
