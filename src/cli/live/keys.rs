//! Reads single keys, and always restores the terminal.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// The terminal's earlier settings; `None` if nothing was changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Standard input, if it is a terminal from which this process may read.
#[derive(Debug)]
pub(super) struct Keys {
    terminal: File,
}

impl Keys {
    /// Makes the terminal deliver keys without a line end, and not show them. Ctrl-C and Ctrl-Z keep their meaning.
    pub(super) fn listen() -> Option<Self> {
        let stdin = std::io::stdin();
        // A background process would be stopped (termios(3), SIGTTOU).
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

    /// Waits for at most this time; returns true if `q` was pressed.
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
                // A terminal that is gone is always ready.
                std::thread::sleep(time);
                false
            }
            Ok(count) => signs.iter().take(count).any(|sign| sign.eq_ignore_ascii_case(&b'q')),
        }
    }
}

/// Restores the terminal. May be called at any time, also twice.
pub(in crate::cli) fn restore() {
    let Ok(mut before) = BEFORE.try_lock() else { return };
    if let Some(modes) = before.take() {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &modes);
    }
}
