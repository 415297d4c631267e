//! Decides whether text is coloured, and how wide a report is.

use std::io::IsTerminal;
use std::sync::OnceLock;

use console::Term;
use gputune::report::Screen;

/// When text is coloured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum When {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    /// Also into files and pipes
    Always,
    /// Not at all
    Never,
}

static WHEN: OnceLock<When> = OnceLock::new();

/// Stores the value of `--color`; only the first call counts.
pub(super) fn ask(when: When) {
    let _ = WHEN.set(when);
}

/// Returns true if text for a stream is coloured (<https://no-color.org>). `is_terminal` is true for a terminal.
fn colours(is_terminal: bool) -> bool {
    let unwanted = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || is_dumb();
    match WHEN.get().copied().unwrap_or_default() {
        When::Auto => is_terminal && !unwanted(),
        When::Always => true,
        When::Never => false,
    }
}

/// Returns true if the terminal knows no escape sequences (terminfo(5): `dumb`).
pub(super) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

pub(super) fn on_stderr() -> bool {
    colours(std::io::stderr().is_terminal())
}

pub(super) fn stderr() -> Screen {
    const DEFAULT_COLUMNS: usize = 100;
    screen(&Term::stderr(), on_stderr(), DEFAULT_COLUMNS)
}

/// The most columns of a text such as a diagnosis, even if the terminal is wider. Longer lines are hard to read.
pub(super) const WIDEST: usize = 120;

pub(super) fn stdout() -> Screen {
    const DEFAULT_COLUMNS: usize = 80;
    screen(&Term::stdout(), colours(std::io::stdout().is_terminal()), DEFAULT_COLUMNS)
}

/// Returns the columns of standard output; `None` if it is no terminal and `COLUMNS` is not set.
pub(super) fn columns_of_stdout() -> Option<usize> {
    columns(&Term::stdout())
}

/// Returns a screen as wide as the terminal. Without a terminal, the width is `COLUMNS`, else `fallback`.
fn screen(term: &Term, colours: bool, fallback: usize) -> Screen {
    Screen { columns: columns(term).unwrap_or(fallback), colours, is_verbose: false }
}

fn columns(term: &Term) -> Option<usize> {
    const LEAST: usize = 40;
    let variable = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    let terminal = term.size_checked().map(|(_, columns)| usize::from(columns)).filter(|columns| *columns > 0);
    terminal.or_else(variable).map(|columns| columns.max(LEAST))
}
