//! The arguments and the variables of the command that carry the settings, spelled as in the command.

use super::route::{Elsewhere, Route, Run};
use super::shell::{assignment, is_variable};
use super::{Chosen, Unwritable, Written, no_command, shell_word};
use crate::probe::{Template, Word, protocol::CONFIG};

/// Writes the words of a command that carry settings, each preceded by its option.
pub(super) fn arguments(chosen: &Chosen<'_>) -> Result<Written, Unwritable> {
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
    let is_here = |route: &Route| *route == Route::Argument;
    Ok(Written { text: shown.join(" ") + "\n", notes: elsewhere(chosen, run, is_here, "argument of the command") })
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

/// Writes one `NAME=value` line for each variable that carries a setting, as a shell or an environment file reads it.
pub(super) fn variables(chosen: &Chosen<'_>) -> Result<Written, Unwritable> {
    let run = chosen.run.as_ref().ok_or_else(no_command)?;
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

/// Returns notes about settings none of whose routes is `here`; `what` names these routes.
fn elsewhere(chosen: &Chosen<'_>, run: &Run<'_>, here: impl Fn(&Route) -> bool, what: &str) -> Vec<String> {
    let mut elsewhere = Elsewhere::default();
    for (name, value) in chosen.settings.iter() {
        let routes = run.routes(name);
        let Some(first) = routes.first().filter(|_| !routes.iter().any(&here)) else { continue };
        let why = match first {
            Route::Argument => "an argument of the command, see --format args".to_owned(),
            Route::Launcher(_) if what == "variable" => "an argument of the command, see --format command".to_owned(),
            Route::Launcher(word) => {
                format!("in front of the script's own arguments, in `{word}`, see --format command")
            }
            Route::Variable(variable) => format!("in the variable {variable}, see --format env"),
            Route::Config => format!("in the variable {CONFIG}, see --format env"),
            Route::File(file) => format!("in the file {file}, which is rendered for each probe"),
            Route::Hook => {
                format!("no {what}, but set by the adapter: --format command says what to write into the script")
            }
        };
        elsewhere.add(why, name, value);
    }
    elsewhere.notes().collect()
}
