//! The role between fork and exec of a probe's command. It leaves gputune's terminal, enters the mount namespace, asks to die with
//! the supervisor, and becomes the command.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::Signal;

use super::super::orders::Cover;
use super::super::writes::{self, Layout};

/// The variable that tells a zygote the descriptor of the outer mount namespace.
const WAY_OUT: &str = "GPUTUNE_WAY_OUT";

/// Becomes the command. Standard input is a connection to the supervisor, which sends the layout for writes. The connection
/// closes when the command runs.
pub(super) fn launch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = arguments.next() else { return ExitCode::FAILURE };
    let Ok(mut link) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else { return ExitCode::FAILURE };
    // In a session of its own, the command can neither read from the user's terminal nor be stopped by it.
    let _ = rustix::process::setsid();
    // It is set again below, since entering another user namespace may clear it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let way_out = match take_cover(&link) {
        Ok(way_out) => way_out,
        Err(error) => {
            let _ = writeln!(link, "{error}");
            return ExitCode::from(127);
        }
    };
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let mut command = Command::new(&program);
    command.envs(way_out.iter().map(|way_out| (WAY_OUT, way_out.as_raw_fd().to_string())));
    let stdout = io::stdout();
    let terminal = if stdout.is_terminal() { stdout.as_fd().try_clone_to_owned().ok() } else { None };
    let error = command.args(arguments).stdin(terminal.map_or_else(Stdio::null, Stdio::from)).exec();
    let _ = writeln!(link, "{}", error.raw_os_error().unwrap_or(0));
    ExitCode::from(127)
}

/// Enters the mount namespace that the supervisor asks for, if any. The working folder stays the same there. A zygote gets a way
/// out of it.
fn take_cover(link: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut line = String::new();
    BufReader::new(link.try_clone()?).read_line(&mut line)?;
    let Cover { layout: Some(layout), is_zygote } = serde_json::from_str(&line)? else { return Ok(None) };
    let cwd = std::env::current_dir()?;
    let entered =
        if is_zygote { writes::enter_with_way_out(&layout).map(Some) } else { writes::enter(&layout).map(|()| None) };
    let way_out = entered.map_err(|refused| io::Error::other(refused.words(layout.has_user_namespace())))?;
    std::env::set_current_dir(cwd)?;
    Ok(way_out)
}

/// Enters a mount namespace and stays in it until standard input closes, so that another process can also enter it. Answers with
/// one line on standard input: empty, or the reason for a failure.
pub(super) fn hold() -> io::Result<()> {
    let mut link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(link.try_clone()?);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let layout: Layout = serde_json::from_str(&line)?;
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let answer = writes::enter(&layout).err().map(|refused| refused.words(layout.has_user_namespace()));
    writeln!(link, "{}", answer.unwrap_or_default())?;
    lines.read_line(&mut line).map(drop)
}
