//! Workers on machines that `ssh` reaches. This program is copied to each machine for the search, and removed afterwards.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::{OnNode, Wanted, WorkerError, quoted};

/// Ask no questions, and do not wait for a machine that is down (`ssh_config`(5)).
const OPTIONS: &[&str] = &["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];

pub(super) fn commands(wanted: &Wanted<'_>) -> Result<Vec<OnNode>, WorkerError> {
    if wanted.hosts.is_empty() {
        let hint = "name them in [machine]: hosts = [\"gpu1\", \"gpu2\"]";
        return Err(WorkerError::new("`launcher = \"ssh\"` needs machines", hint));
    }
    wanted.hosts.iter().map(|host| on(host, wanted)).collect()
}

fn on(host: &str, wanted: &Wanted<'_>) -> Result<OnNode, WorkerError> {
    let folder = copied(host, wanted)?;
    let mut command = ssh(host);
    // The shell outlives the worker, which ends with the connection.
    let script = format!("trap 'rm -rf {folder}' EXIT; {folder}/gputune {}", wanted.serves);
    command.arg(format!("sh -c {}", quoted(&script))).process_group(0);
    Ok((host.to_owned(), command))
}

fn ssh(host: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(OPTIONS).arg("--").arg(host);
    command
}

/// Copies this program into its own folder on the host. Returns the folder.
fn copied(host: &str, wanted: &Wanted<'_>) -> Result<String, WorkerError> {
    const COPY: &str = "umask 077; d=$(mktemp -d \"${TMPDIR:-/tmp}/gputune-ssh-XXXXXX\") && cat >\"$d/gputune\" \
                        && chmod 700 \"$d/gputune\" && printf \"%s\\n\" \"$d\"";
    let failed = |reason: String| {
        let hint = "does `ssh HOST true` work there without a question? A key, an agent and known_hosts make it so";
        WorkerError::new(format!("cannot copy gputune to {host}: {reason}"), hint)
    };
    let program = File::open(wanted.gputune).map_err(|error| failed(error.to_string()))?;
    let mut command = ssh(host);
    let told = command.arg(format!("sh -c {}", quoted(COPY))).stdin(program).stderr(Stdio::piped()).output();
    let told = told.map_err(|error| failed(format!("cannot run `ssh`: {error}")))?;
    if !told.status.success() {
        let said = String::from_utf8_lossy(&told.stderr);
        return Err(failed(said.lines().last().unwrap_or("it does not say why").trim().to_owned()));
    }
    let folder = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if !folder.starts_with('/') || !folder.chars().all(is_plain) {
        return Err(failed(format!("its temporary folder is `{folder}`")));
    }
    Ok(folder)
}
