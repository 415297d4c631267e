//! The pseudo-terminal of a step: its standard input, output and error. Removes colours, cursor movements and other control
//! characters from its output, so that logs and lines have only text.
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

/// Returns a text without control sequences and control characters.
pub(super) fn plain(text: &str) -> String {
    String::from_utf8_lossy(&PlainText::default().of(text.as_bytes())).into_owned()
}

/// Removes control sequences (ECMA-48) from bytes that arrive in pieces.
#[derive(Debug, Default)]
pub(super) struct PlainText(Inside);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Inside {
    #[default]
    Text,
    /// After ESC, or after ESC and intermediate bytes such as `(`.
    Escape,
    /// After ESC `[`: parameters, then one final byte.
    Control,
    /// After ESC `]` and its like: a text such as the title of the window, which ends with BEL or ESC `\`.
    Command,
}

impl PlainText {
    /// Returns the bytes without control sequences and control characters. Tabs and line ends stay.
    pub(super) fn of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let is_text = |byte: &u8| {
            let (next, is_text) = self.0.take(*byte);
            self.0 = next;
            is_text
        };
        bytes.iter().copied().filter(is_text).collect()
    }
}

impl Inside {
    const ESCAPE: u8 = 0x1b;
    const BELL: u8 = 0x07;

    /// Returns the state after a byte, and true if the byte is text. A sequence that breaks off ends at the next control character.
    fn take(self, byte: u8) -> (Self, bool) {
        match (self, byte) {
            (_, Self::ESCAPE) => (Self::Escape, false),
            (Self::Escape, b'[') => (Self::Control, false),
            (Self::Escape, b']' | b'P' | b'^' | b'_' | b'X') => (Self::Command, false),
            (Self::Escape, b' '..=b'/') => (Self::Escape, false),
            (Self::Escape, b'0'..=b'~') => (Self::Text, false),
            (Self::Control, b' '..=b'?') => (Self::Control, false),
            (Self::Control, b'@'..=b'~') => (Self::Text, false),
            (Self::Command, Self::BELL) => (Self::Text, false),
            (Self::Command, byte) if byte >= b' ' => (Self::Command, false),
            (_, b'\t' | b'\n' | b'\r') => (Self::Text, true),
            (_, byte) => (Self::Text, byte >= b' ' && byte != 0x7f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain_pieces(pieces: &[&[u8]]) -> String {
        let mut text = PlainText::default();
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| text.of(piece)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn only_text_and_line_ends_stay() {
        for (printed, text) in [
            ("\x1b[1;31mred\x1b[0m\x07\tof α\x7f\r\n", "red\tof α\r\n"),
            ("12\x1b[2K\x1b[1A\x1b[?25l it/s", "12 it/s"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
            ("\x1b(B\x1b7a\x1b8\x1bc\x08\x08b", "ab"),
            ("\x1b[\nbroken \x1b]0;off\nline\x1b", "\nbroken \nline"),
        ] {
            assert_eq!(plain(printed), text, "{printed:?}");
            let bytes: Vec<&[u8]> = printed.as_bytes().chunks(1).collect();
            assert_eq!(plain_pieces(&bytes), text, "{printed:?} in pieces");
        }
        assert_eq!(plain_pieces(&[b"\xff\xfe two"]), "\u{fffd}\u{fffd} two");
    }
}
