//! Explains why a command cannot be started, and suggests a remedy.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::ProbeError;

/// Makes the error for a program that exec refused with this error number, as seen from the command's working folder.
pub(super) fn start_error(program: &str, cwd: &Path, errno: i32, message: &str) -> ProbeError {
    const NO_SUCH_FILE: i32 = 2;
    const PERMISSION_DENIED: i32 = 13;
    let path = cwd.join(program);
    let is_path = program.contains('/');
    let (reason, hint) = if !cwd.is_dir() {
        let reason = format!("the folder {} does not exist", cwd.display());
        (reason, "set `cwd` in [step] to the folder that the command runs in".to_owned())
    } else if errno == NO_SUCH_FILE
        && is_path
        && let Some(interpreter) = missing_interpreter(&path)
    {
        let hint = "fix the first line of the script, or name an interpreter in the command";
        (format!("its interpreter `{interpreter}` does not exist"), hint.to_owned())
    } else if errno == NO_SUCH_FILE {
        let hint = if is_path { "is the path right, seen from `cwd`?" } else { "is it installed, and in PATH?" };
        ("no such program".to_owned(), hint.to_owned())
    } else if errno == PERMISSION_DENIED {
        ("permission denied".to_owned(), format!("make it executable: chmod +x {program}"))
    } else {
        (message.to_owned(), "try the command in a shell; `gputune check` prints it".to_owned())
    };
    ProbeError::Start { program: program.to_owned(), reason, hint }
}

/// Returns the program in the `#!` line of a script if that program does not exist.
fn missing_interpreter(script: &Path) -> Option<String> {
    let mut start = [0; 256];
    let count = fs::File::open(script).ok()?.read(&mut start).ok()?;
    let text = String::from_utf8_lossy(&start[..count]);
    let program = text.strip_prefix("#!")?.lines().next()?.split_whitespace().next()?.to_owned();
    (!Path::new(&program).exists()).then_some(program)
}
