//! Runs programs that come with a driver, and reads their output.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the file of a program in `PATH`.
pub(in crate::machine) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the output of a program if it succeeds within a time limit. The limit is needed because the program hangs if
/// the driver hangs.
pub(in crate::machine) fn output_within(program: &Path, arguments: &[&OsStr], limit: Duration) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = command.spawn().ok()?;
    let mut pipe = running.stdout.take()?;
    // A thread reads the pipe while the program runs, because a full pipe would block the program.
    let output = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| bytes)
    });
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = running.try_wait().ok()? {
            break status;
        }
        if Instant::now() >= deadline {
            let _ = running.kill();
            let _ = running.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let bytes = output.join().ok()?.ok()?;
    status.success().then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_is_read_and_a_program_that_hangs_tells_nothing() {
        let long = output_within(Path::new("/bin/sh"), &["-c", "seq 100000"].map(OsStr::new), Duration::from_secs(30));
        assert!(long.is_some_and(|text| text.ends_with("100000\n")));
        let begin = Instant::now();
        assert!(output_within(Path::new("/bin/sleep"), &["60".as_ref()], Duration::from_millis(50)).is_none());
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert!(find("sh").is_some() && find("no such program").is_none());
    }
}
