//! Tries a layout in a separate process, before the first probe.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::enter;
use super::layout::{Layout, Refused, Stage};

/// The first argument that chooses this role of the supervisor's executable.
pub(in crate::probe) const REHEARSE: &str = "__rehearse";

/// The time limit of a rehearsal: a file system that does not answer would block it for ever. A round number.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
struct Request {
    layout: Layout,
    there_before: Option<PathBuf>,
}

/// Tries a layout; `there_before` is an existing file that the probe must be able to change.
pub(super) fn rehearse(executable: &Path, layout: &Layout, there_before: Option<&Path>) -> Result<(), Refused> {
    let request = Request { layout: layout.clone(), there_before: there_before.map(Path::to_owned) };
    let failed = |error: io::Error| Refused { stage: Stage::Rehearsal, errno: error.raw_os_error().unwrap_or(0) };
    ask(executable, &request).unwrap_or_else(|error| Err(failed(error)))
}

fn ask(executable: &Path, request: &Request) -> io::Result<Result<(), Refused>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(LONGEST))?;
    let mut child = Command::new(executable)
        .arg(REHEARSE)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    let mut answer = String::new();
    let told = ours.write_all(&line).and_then(|()| BufReader::new(ours).read_line(&mut answer));
    if told.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    told?;
    Ok(serde_json::from_str(&answer)?)
}

/// Runs the rehearsal: reads the layout from standard input and answers there.
pub(in crate::probe) fn answer() -> io::Result<()> {
    let mut link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut line = String::new();
    BufReader::new(link.try_clone()?).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let result = enter::rehearse(&request.layout, request.there_before.as_deref());
    let mut line = serde_json::to_vec(&result)?;
    line.push(b'\n');
    link.write_all(&line)
}
