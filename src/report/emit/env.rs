//! One `NAME=value` line for each variable that carries a setting, as a shell or an environment file reads it.

use super::route::{Elsewhere, Route};
use super::shell::{assignment, is_variable};
use super::{Chosen, Unwritable, Written, no_command};

pub(super) fn write(chosen: &Chosen<'_>) -> Result<Written, Unwritable> {
    let run = chosen.run.as_ref().ok_or_else(no_command)?;
    let mut written = Written { text: String::new(), notes: Vec::new() };
    for (name, value) in run.variables(chosen.settings) {
        if is_variable(&name) {
            written.text += &format!("{}\n", assignment(&name, &value));
        } else {
            let word = super::shell_word(&format!("{name}={value}"));
            written
                .notes
                .push(format!("`{name}` is left out, as a shell cannot set it: start the program with env {word}"));
        }
    }
    let mut elsewhere = Elsewhere::default();
    for (name, value) in chosen.settings.iter() {
        let routes = run.routes(name);
        let why = match routes.first() {
            _ if routes.iter().any(|route| matches!(route, Route::Variable(_) | Route::Config)) => continue,
            None | Some(Route::Variable(_) | Route::Config) => continue,
            Some(Route::Argument) => "an argument of the command, see --format args".to_owned(),
            Some(Route::Launcher(_)) => "an argument of the command, see --format command".to_owned(),
            Some(Route::File(file)) => format!("in the file {file}, which is rendered for each probe"),
            Some(Route::Hook) => {
                "no variable, but set by the adapter: --format command says what to write into the script".to_owned()
            }
        };
        elsewhere.add(why, name, value);
    }
    written.notes.extend(elsewhere.notes());
    Ok(written)
}
