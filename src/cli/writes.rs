//! What is said of a probe's writes before the first probe.

use gputune::probe::{CommandProber, Protection, WritesError};

use super::diagnostic;
use super::exit::{Exit, Failed};

/// Finds out what protects files, and says it in one line, with a warning where nothing does.
///
/// # Errors
/// What the spec asks for cannot be had.
pub(super) fn announce(prober: &mut CommandProber, quiet: bool) -> Result<(), Failed> {
    let protection = prober.protect().map_err(|error| impossible(&error))?;
    if !quiet {
        eprintln!("{}", line(protection));
        warn(protection);
    }
    Ok(())
}

/// What the spec asks for cannot be had.
pub(super) fn impossible(error: &WritesError) -> Failed {
    Failed::because(Exit::Impossible, error).hint(error.hint())
}

/// The line that says it.
pub(super) fn line(protection: &Protection) -> String {
    format!("{:<10} {}", "writes", protection.line())
}

/// Warns that nothing protects, where nobody asked for that.
pub(super) fn warn(protection: &Protection) {
    if let Some(warning) = protection.warning() {
        diagnostic::print_warning(&warning);
    }
}
