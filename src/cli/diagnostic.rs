//! Prints errors, warnings and notes on standard error.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use gputune::spec::{LeftOut, SpecError};

use super::colour;

/// Prints a mistake in a spec: file, line, column, the line with a caret, a hint.
pub(super) fn print_spec_error(error: &SpecError) {
    let renderer = if colour::on_stderr() { Renderer::styled() } else { Renderer::plain() };
    say!("{}", spec_error(error, &renderer));
}

/// Returns a text as one line, with control characters escaped.
fn in_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for sign in text.chars() {
        if sign.is_control() { line.extend(sign.escape_default()) } else { line.push(sign) }
    }
    line
}

/// Replaces control characters by blanks, but keeps line ends.
fn without_control_characters(text: &str) -> String {
    text.replace(|sign: char| sign.is_control() && sign != '\n', " ")
}

fn spec_error(error: &SpecError, renderer: &Renderer) -> String {
    let path = error.path.display().to_string();
    let (message, hint) = (in_one_line(&error.message), error.hint.as_deref().map(in_one_line));
    let mut group = Level::ERROR.primary_title(message.as_str()).elements(error.span.as_ref().map(|span| {
        Snippet::source(error.text.as_str()).path(path.as_str()).annotation(AnnotationKind::Primary.span(span.clone()))
    }));
    if let Some(hint) = &hint {
        group = group.element(Level::HELP.with_name("hint").message(hint.as_str()));
    }
    renderer.render(&[group])
}

/// Prints any other error: one line, the last lines of the user's step, a hint.
pub(super) fn print_error(message: &str, last_lines: &[String], hint: Option<&str>) {
    let (red, bold, reset) = if colour::on_stderr() { ("\x1b[1;31m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
    let message = without_control_characters(message);
    say!("{red}error{reset}{bold}: {message}{reset}");
    if !last_lines.is_empty() {
        say!("\nthe step's last lines:");
        for line in last_lines {
            say!("  | {}", line.replace(|c: char| c.is_control(), " "));
        }
    }
    if let Some(hint) = hint {
        say!("\nhint: {}", without_control_characters(hint));
    }
}

/// Prints the parts of a spec's space that this machine excludes, and unless `quiet` is true, the spec's warnings.
pub(super) fn print_notes(left_out: &[LeftOut], warnings: &[String], quiet: bool) {
    left_out.iter().for_each(|left_out| say!("note: {}", left_out.line()));
    warnings.iter().filter(|_| !quiet).for_each(|warning| print_warning(warning));
}

pub(super) fn print_note(message: &str) {
    say!("note: {}", in_one_line(message));
}

/// Prints a warning about an allowed but probably unintended choice.
pub(super) fn print_warning(message: &str) {
    let (yellow, reset) = if colour::on_stderr() { ("\x1b[33m", "\x1b[0m") } else { ("", "") };
    say!("{yellow}warning{reset}: {}", in_one_line(message));
}
