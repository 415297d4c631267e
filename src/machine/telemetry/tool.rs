//! Runs programs that answer a question, such as the programs that come with a driver, and reads their output.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Returns the file of a program in `PATH`.
pub(in crate::machine) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the output of a program without input if it succeeds within a time limit. The limit is needed because the program
/// of a driver hangs if the driver hangs, and because the output stays open if a process that the program started outlives it.
pub(crate) fn output_within(command: &mut Command, limit: Duration) -> Option<Vec<u8>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let running = command.spawn().ok()?;
    let pid = Pid::from_child(&running);
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(running.wait_with_output()));
    let Ok(output) = ended.recv_timeout(limit) else {
        let _ = kill_process(pid, Signal::KILL);
        return None;
    };
    output.ok().filter(|output| output.status.success()).map(|output| output.stdout)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_long_output_is_read_and_a_program_that_hangs_or_leaves_its_output_open_tells_nothing() {
        let told = |script: &str, milliseconds| {
            output_within(Command::new("/bin/sh").args(["-c", script]), Duration::from_millis(milliseconds))
        };
        assert!(told("seq 100000", 30_000).is_some_and(|text| text.ends_with(b"100000\n")));
        let begin = Instant::now();
        assert_eq!(told("exec sleep 60", 50), None);
        assert_eq!(told("sleep 60 & echo said", 200), None);
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert_eq!(told("echo said; exit 1", 30_000), None);
        assert!(find("sh").is_some() && find("no such program").is_none());
    }
}
