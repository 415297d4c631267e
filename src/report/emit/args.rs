//! The arguments that carry the settings, spelled as in the command.

use super::route::{Elsewhere, Route, Run};
use super::{Chosen, Unwritable, Written, no_command, shell_word};
use crate::probe::{Template, Word, protocol::CONFIG};

/// Writes the words of a command that carry settings, each preceded by its option.
pub(super) fn write(chosen: &Chosen<'_>) -> Result<Written, Unwritable> {
    let run = chosen.run.as_ref().ok_or_else(no_command)?;
    let behind = run.arguments_from().map_err(|reason| {
        Unwritable::new(
            format!("{reason}, so the script's arguments are unknown"),
            "`--format command` prints the whole of it",
        )
    })?;
    let words = run.words(chosen.settings);
    let shown: Vec<String> = words
        .iter()
        .enumerate()
        .filter(|(at, _)| carries(run, &words, *at, behind))
        .map(|(_, word)| shell_word(&word.text))
        .collect();
    Ok(Written { text: shown.join(" ") + "\n", notes: notes(chosen, run) })
}

/// Returns true if a word contains a setting, or is the option in front of a setting.
fn carries(run: &Run<'_>, words: &[Word], at: usize, behind: usize) -> bool {
    let template = |word: &Word| word.template.and_then(|at| Some((at, run.step.command.get(at)?)));
    let Some((place, own)) = words.get(at).and_then(template) else { return true };
    if place < behind {
        return false;
    }
    let is_its_value = |value: &Template| value.has_settings() && !value.is_switch() && !value.text().starts_with('-');
    let next = words.get(at + 1).and_then(template).filter(|(next, _)| *next == place + 1);
    own.has_settings()
        || (own.is_option() && !own.text().contains('=') && next.is_some_and(|(_, next)| is_its_value(next)))
}

/// Returns notes about settings that are in no argument.
fn notes(chosen: &Chosen<'_>, run: &Run<'_>) -> Vec<String> {
    let mut elsewhere = Elsewhere::default();
    for (name, value) in chosen.settings.iter() {
        let routes = run.routes(name);
        let why = match routes.first() {
            _ if routes.contains(&Route::Argument) => continue,
            None | Some(Route::Argument) => continue,
            Some(Route::Launcher(word)) => {
                format!("in front of the script's own arguments, in `{word}`, see --format command")
            }
            Some(Route::Variable(variable)) => format!("in the variable {variable}, see --format env"),
            Some(Route::Config) => format!("in the variable {CONFIG}, see --format env"),
            Some(Route::File(file)) => format!("in the file {file}, which is rendered for each probe"),
            Some(Route::Hook) => {
                "no argument of the command, but set by the adapter: --format command says what to write into the script"
                    .to_owned()
            }
        };
        elsewhere.add(why, name, value);
    }
    elsewhere.notes().collect()
}
