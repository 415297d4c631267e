//! Keys that are heard at once, and the terminal as it was, whatever happens.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// How the terminal was before; none where nothing was changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Standard input, where it is a terminal that this process may read from.
#[derive(Debug)]
pub(super) struct Keys {
    terminal: File,
}

impl Keys {
    /// Lets keys be heard without a line's end, and not be shown. Ctrl-C and Ctrl-Z stay what they are.
    pub(super) fn listen() -> Option<Self> {
        let stdin = std::io::stdin();
        // Who is in the background would be stopped (termios(3), SIGTTOU).
        let is_in_front = || tcgetpgrp(&stdin).is_ok_and(|group| group == rustix::process::getpgrp());
        if !stdin.is_terminal() || !is_in_front() {
            return None;
        }
        let terminal = File::from(stdin.as_fd().try_clone_to_owned().ok()?);
        let before = tcgetattr(&terminal).ok()?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Now, &modes).ok()?;
        if let Ok(mut known) = BEFORE.lock() {
            known.get_or_insert(before);
        }
        Some(Self { terminal })
    }

    /// Waits for at most so long; whether `q` was pressed.
    pub(super) fn wait_for_q(&mut self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).ok();
        let mut ready = [PollFd::new(&self.terminal, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(1..) => {}
            _ => return false,
        }
        let mut signs = [0; 64];
        match self.terminal.read(&mut signs) {
            Ok(0) | Err(_) => {
                // A terminal that is gone is ready for ever.
                std::thread::sleep(time);
                false
            }
            Ok(count) => signs.iter().take(count).any(|sign| sign.eq_ignore_ascii_case(&b'q')),
        }
    }
}

/// Gives the terminal back as it was. May be called at any time, also twice.
pub(in crate::cli) fn restore() {
    let Ok(mut before) = BEFORE.try_lock() else { return };
    if let Some(modes) = before.take() {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &modes);
    }
}
