//! Reports the protection of files before the first probe.

use gputune::probe::{CommandProber, Protection, WritesError};

use super::diagnostic;
use super::exit::{Exit, Failed};

/// Finds what protects files, and reports it in one line, with a warning if nothing does.
///
/// # Errors
/// The protection that the spec asks for is not possible.
pub(super) fn announce(prober: &mut CommandProber, quiet: bool) -> Result<(), Failed> {
    let protection = prober.protect().map_err(|error| impossible(&error))?;
    if !quiet {
        say!("{}", line(protection));
        warn(protection);
    }
    Ok(())
}

/// Makes the failure for a protection that is not possible.
pub(super) fn impossible(error: &WritesError) -> Failed {
    Failed::because(Exit::Impossible, error).hint(error.hint())
}

/// Returns the line that describes the protection.
pub(super) fn line(protection: &Protection) -> String {
    format!("{:<10} {}", "writes", protection.line())
}

/// Warns if files are unprotected and the user did not ask for that.
pub(super) fn warn(protection: &Protection) {
    if let Some(warning) = protection.warning() {
        diagnostic::print_warning(&warning);
    }
}
