//! The pseudo-terminal of a step: its standard input, output and error.
//!
//! Scripts ask a terminal for its size, and programs hold back output that goes into a pipe (setvbuf(3)). So a step gets a
//! terminal of its own. It is nobody's controlling terminal, so it sends no signals.
//!
//! Output passes through unchanged. Input is always at its end: with `VMIN` and `VTIME` zero, a read without input returns zero
//! bytes (termios(3), "Canonical and noncanonical mode").

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, SpecialCodeIndex, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

/// The size: round numbers. A wide terminal keeps a rate at the end of a line visible.
const SIZE: Winsize = Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };

/// The reading end of a step's output, and the descriptor that the step gets.
pub(super) type Ends = (File, OwnedFd);

/// Opens a terminal, or a pipe for output if the system has no terminal left. A step with a pipe reads `/dev/null`.
pub(super) fn open() -> io::Result<Ends> {
    terminal().or_else(|_| io::pipe().map(|(reader, writer)| (OwnedFd::from(reader).into(), writer.into())))
}

fn terminal() -> io::Result<Ends> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let mut modes = tcgetattr(&slave)?;
    modes.make_raw();
    modes.special_codes[SpecialCodeIndex::VMIN] = 0;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&slave, OptionalActions::Now, &modes)?;
    tcsetwinsize(&slave, SIZE)?;
    Ok((File::from(master), slave))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_step_sees_a_wide_terminal_without_input_that_changes_no_byte() {
        let (mut master, slave) = terminal().unwrap();
        let script =
            "stty size; test -t 0 && test -t 1 && test -t 2 && echo all; read line || echo none; printf 'a\\tb\\r\\n'";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::from(slave.try_clone().unwrap()));
        command.stdout(Stdio::from(slave.try_clone().unwrap())).stderr(Stdio::from(slave));
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut text = Vec::new();
        // After the last byte, a read fails with EIO.
        assert!(master.read_to_end(&mut text).is_err());
        assert_eq!(String::from_utf8(text).unwrap(), "50 200\nall\nnone\na\tb\r\n");
        assert!(child.wait().unwrap().success());
    }
}
