//! The role between fork and exec of a probe's command: it enters the mount namespace, asks to die with the supervisor,
//! and becomes the command.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::Signal;

use super::super::writes::{self, Layout};

/// Becomes the command. Standard input is a connection to the supervisor, which says where writes go, and closes when
/// the command runs.
pub(super) fn launch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = arguments.next() else { return ExitCode::FAILURE };
    let Ok(mut link) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else { return ExitCode::FAILURE };
    // It is set again below, since entering another user namespace may clear it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if let Err(error) = take_cover(&link) {
        let _ = writeln!(link, "{error}");
        return ExitCode::from(127);
    }
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let error = Command::new(&program).args(arguments).stdin(Stdio::null()).exec();
    let _ = writeln!(link, "{}", error.raw_os_error().unwrap_or(0));
    ExitCode::from(127)
}

/// Enters the mount namespace that the supervisor asks for, if any; the working folder stays the same there.
fn take_cover(link: &UnixStream) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(link.try_clone()?).read_line(&mut line)?;
    let Some(layout) = serde_json::from_str::<Option<Layout>>(&line)? else { return Ok(()) };
    let cwd = std::env::current_dir()?;
    writes::enter(&layout).map_err(|refused| io::Error::other(refused.words(layout.has_user_namespace())))?;
    std::env::set_current_dir(cwd)
}
