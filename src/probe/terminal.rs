//! The pseudo-terminal of a step: its standard input, output and error. Removes colours and other control characters from its
//! output, so that logs and lines have only text. A movement of the cursor back or to another line becomes a carriage return.
//!
//! Scripts ask a terminal for its size, and programs hold back output that goes into a pipe (setvbuf(3)). So a step
//! gets a terminal of its own. No session has it as its controlling terminal, so it sends no signals.
//!
//! The terminal is in raw mode, so it does not change output. Its input is always at the end: with `VMIN` and `VTIME`
//! zero, a read without input returns zero bytes (termios(3), "Canonical and noncanonical mode").

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
pub(super) struct PlainText {
    inside: Inside,
    /// True if the text since the last line end is not empty.
    has_text: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Inside {
    #[default]
    Text,
    /// After ESC, or after ESC and intermediate bytes such as `(`.
    Escape,
    /// After ESC `[`: parameters, then one final byte. The value is the number in the parameters.
    Control(u16),
    /// After ESC `]` and its like: a text such as the title of the window, which ends with BEL or ESC `\`.
    Command,
}

impl PlainText {
    /// Returns the bytes without control sequences and control characters. Tabs and line ends stay.
    ///
    /// A sequence that moves the cursor back or to another line becomes one carriage return, as in progress bars.
    pub(super) fn of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let text = |byte: &u8| {
            let (next, out) = self.inside.take(*byte);
            self.inside = next;
            let out = match out {
                Out::Text => Some(*byte),
                Out::Moved if self.has_text => Some(b'\r'),
                Out::Moved | Out::Nothing => None,
            };
            self.has_text = out.map_or(self.has_text, |out| !matches!(out, b'\r' | b'\n'));
            out
        };
        bytes.iter().filter_map(text).collect()
    }
}

/// The meaning of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Text,
    /// The cursor moves: the next text does not continue the line.
    Moved,
    Nothing,
}

impl Inside {
    const ESCAPE: u8 = 0x1b;
    const BELL: u8 = 0x07;
    const BACKSPACE: u8 = 0x08;

    /// Returns the state after a byte, and its meaning. A sequence that breaks off ends at the next control character.
    fn take(self, byte: u8) -> (Self, Out) {
        match (self, byte) {
            (_, Self::ESCAPE) => (Self::Escape, Out::Nothing),
            (Self::Escape, b'[') => (Self::Control(0), Out::Nothing),
            (Self::Escape, b']' | b'P' | b'^' | b'_' | b'X') => (Self::Command, Out::Nothing),
            (Self::Escape, b' '..=b'/') => (Self::Escape, Out::Nothing),
            (Self::Escape, b'0'..=b'~') => (Self::Text, Out::Nothing),
            (Self::Control(number), b'0'..=b'9') => {
                (Self::Control(number.saturating_mul(10).saturating_add(u16::from(byte - b'0'))), Out::Nothing)
            }
            (Self::Control(number), b' '..=b'?') => (Self::Control(number), Out::Nothing),
            (Self::Control(number), b'@'..=b'~') => (Self::Text, Self::moved(number, byte)),
            (Self::Command, Self::BELL) => (Self::Text, Out::Nothing),
            (Self::Command, byte) if byte >= b' ' => (Self::Command, Out::Nothing),
            (_, b'\t' | b'\n' | b'\r') => (Self::Text, Out::Text),
            (_, Self::BACKSPACE) => (Self::Text, Out::Moved),
            (_, byte) => (Self::Text, if byte >= b' ' && byte != 0x7f { Out::Text } else { Out::Nothing }),
        }
    }

    /// Returns the meaning of a control sequence. `K` alone erases without a move, and GCC and grep print it within a line; `G`
    /// with a larger number only aligns a column.
    fn moved(number: u16, last: u8) -> Out {
        match last {
            b'A' | b'B' | b'D' | b'E' | b'F' | b'H' | b'J' | b'f' => Out::Moved,
            b'G' if number <= 1 => Out::Moved,
            b'K' if number == 2 => Out::Moved,
            _ => Out::Nothing,
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
            ("\x1b[?25l12\x1b[K\x1b[5C it/s\x1b[40Gend", "12 it/send"),
            ("12\x1b[2K\x1b[1A\x1b[?25l it/s", "12\r it/s"),
            ("\x1b[1G\x1b[2K8 it/s\x1b[1G\x1b[2K9 it/s", "8 it/s\r9 it/s"),
            ("\x1b[1A\x1b[2K8 it/s\x1b[1B\x1b[G\x1b[1A9 it/s\n\x1b[A", "8 it/s\r9 it/s\n"),
            ("\x08\x088 it/s\x08\x08\x08\x08\x08\x089 it/s", "8 it/s\r9 it/s"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
            ("\x1b(B\x1b7a\x1b8\x1bc\x08\x08b", "a\rb"),
            ("\x1b[\nbroken \x1b]0;off\nline\x1b", "\nbroken \nline"),
        ] {
            assert_eq!(plain(printed), text, "{printed:?}");
            let bytes: Vec<&[u8]> = printed.as_bytes().chunks(1).collect();
            assert_eq!(plain_pieces(&bytes), text, "{printed:?} in pieces");
        }
        assert_eq!(plain_pieces(&[b"\xff\xfe two"]), "\u{fffd}\u{fffd} two");
    }
}
