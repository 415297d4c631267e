//! The live view on a terminal: a few lines at the bottom, drawn by indicatif at most five times a second, and the key `q`.
//!
//! The view is one bar with a template of many lines, so each frame is drawn as a whole. Several bars in a `MultiProgress` draw
//! one after the other, and its `suspend` panics if the terminal is gone.

mod view;

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use console::{Term, measure_text_width};
use gputune::report::Screen;
use gputune::search::Status;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use super::colour;
pub(in crate::cli) use view::once;
use view::{Block, WHOLE_BAR};

/// The most draws and key checks per second.
const RATE: u8 = 5;
const EVERY: Duration = Duration::from_millis(1000 / RATE as u64);
/// The most finished lines to keep: more than a screen has.
const RECENT: usize = 300;

/// A view that is shown until it is dropped.
pub(super) struct Live {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// The whole view.
    bar: ProgressBar,
    state: Mutex<State>,
    is_over: AtomicBool,
    /// Set when the user presses `q`.
    quit: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    block: Option<Block>,
    /// The terminal's rows and columns when the block was drawn.
    size: (u16, u16),
    /// The shown status, and its arrival time.
    status: Option<(Status, Instant)>,
    note: String,
    /// Finished lines that are not on the screen yet.
    above: Vec<String>,
    /// The last finished lines on the screen, to be written again after a resize.
    recent: Vec<String>,
}

impl Live {
    /// Returns true if standard error is a terminal that can show the view.
    pub(super) fn is_possible() -> bool {
        std::io::stderr().is_terminal() && !colour::is_dumb()
    }

    /// Starts the view; `q` sets `quit`.
    pub(super) fn begin(quit: Arc<AtomicBool>) -> Self {
        let bar = ProgressBar::with_draw_target(Some(WHOLE_BAR), target());
        let state = State { size: Term::stderr().size(), ..State::default() };
        let shared = Arc::new(Shared { bar, state: Mutex::new(state), is_over: AtomicBool::new(false), quit });
        leave_no_mess_on_panic(&shared);
        let theirs = Arc::clone(&shared);
        // If the thread cannot start, nothing is drawn until the end, when `drop` writes the finished lines.
        let thread = std::thread::Builder::new().name("live view".to_owned()).spawn(move || theirs.run()).ok();
        Self { shared, thread }
    }

    pub(super) fn show(&self, status: &Status) {
        self.shared.state().status = Some((status.clone(), Instant::now()));
    }

    /// Replaces the last line.
    pub(super) fn note(&self, note: &str) {
        note.clone_into(&mut self.shared.state().note);
    }

    /// Adds a permanent line above the view.
    pub(super) fn say(&self, text: &str) {
        self.shared.state().above.extend(text.lines().map(str::to_owned));
    }
}

impl Drop for Live {
    /// Removes the view and restores the terminal.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.shared.state().scroll(&self.shared.bar, 0);
        self.shared.bar.finish_and_clear();
        restore();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let continued = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(signal_hook::consts::SIGCONT, Arc::clone(&continued));
        let mut keys = Keys::listen();
        while !self.is_over.load(Ordering::Relaxed) {
            if continued.swap(false, Ordering::Relaxed) {
                // While gputune was stopped, the shell wrote below the view and changed the terminal's settings.
                self.bar.set_draw_target(target());
                self.state().block = None;
                keys = Keys::listen();
            }
            self.state().draw(&self.bar);
            match &mut keys {
                Some(keys) => {
                    if keys.wait_for_q(EVERY) {
                        self.quit.store(true, Ordering::Relaxed);
                    }
                }
                None => std::thread::sleep(EVERY),
            }
        }
    }
}

impl State {
    fn draw(&mut self, bar: &ProgressBar) {
        let (_, columns) = Term::stderr().size();
        let screen = Screen { columns: usize::from(columns), colours: colour::on_stderr(), is_verbose: false };
        let block = match &self.status {
            Some((status, told)) => Block::of(status, told.elapsed(), &self.note, screen),
            None => Block::line(&self.note, screen),
        };
        let template = block.template();
        if self.block.as_ref() != Some(&block)
            && let Ok(style) = ProgressStyle::with_template(&template)
        {
            bar.set_style(style.progress_chars("━╸─"));
            bar.update(|state| state.set_pos(block.done.unwrap_or(0)));
            self.block = Some(block);
        }
        self.scroll(bar, template.lines().count());
    }

    /// Writes finished lines above the view, which has `height` rows.
    ///
    /// A resize rewrites the whole screen, because the positions of the old lines are unknown. Some terminals wrap long lines,
    /// and some cut them off. indicatif assumes the old positions (<https://github.com/console-rs/indicatif/issues/182>).
    fn scroll(&mut self, bar: &ProgressBar, height: usize) {
        let term = Term::stderr();
        let size = term.size();
        let is_resized = std::mem::replace(&mut self.size, size) != size;
        let (rows, columns) = (usize::from(size.0), usize::from(size.1));
        let fresh = self.above.len();
        self.recent.append(&mut self.above);
        let mut used = height;
        let fits = |line: &&String| {
            used += measure_text_width(line).div_ceil(columns).max(1);
            used <= rows
        };
        let count = if is_resized { self.recent.iter().rev().take_while(fits).count() } else { fresh };
        if is_resized || count > 0 {
            // `println` would pad lines with blanks instead of ending them.
            bar.suspend(|| {
                if is_resized {
                    let _ = term.clear_screen();
                }
                for line in &self.recent[self.recent.len() - count..] {
                    let _ = term.write_line(line);
                }
            });
        }
        self.recent.drain(..self.recent.len().saturating_sub(RECENT));
    }
}

/// Standard error, with nothing drawn on it yet.
fn target() -> ProgressDrawTarget {
    ProgressDrawTarget::stderr_with_hz(RATE)
}

/// Makes a panic restore the terminal and appear below the view.
fn leave_no_mess_on_panic(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(shared) = shared.upgrade()
            && !shared.is_over.swap(true, Ordering::Relaxed)
        {
            // indicatif draws nothing in a panicking thread, which may also hold its lock: another thread clears it.
            let (done, cleared) = mpsc::channel();
            let bar = shared.bar.clone();
            std::thread::spawn(move || {
                bar.finish_and_clear();
                let _ = done.send(());
            });
            let _ = cleared.recv_timeout(EVERY);
        }
        restore();
        report(panic);
    }));
}

/// The terminal's earlier settings; `None` if nothing was changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Standard input, if it is a terminal from which this process may read.
#[derive(Debug)]
struct Keys {
    terminal: File,
}

impl Keys {
    /// Makes the terminal deliver keys without a line end, and not show them. Ctrl-C and Ctrl-Z keep their meaning.
    fn listen() -> Option<Self> {
        let stdin = std::io::stdin();
        // The kernel stops a background process that changes the terminal's settings (termios(3), SIGTTOU).
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
    fn wait_for_q(&mut self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).ok();
        let mut ready = [PollFd::new(&self.terminal, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(1..) => {}
            _ => return false,
        }
        let mut signs = [0; 64];
        match self.terminal.read(&mut signs) {
            Ok(0) | Err(_) => {
                // If the terminal is gone, `poll` returns at once, so this waits instead.
                std::thread::sleep(time);
                false
            }
            Ok(count) => signs.iter().take(count).any(|sign| sign.eq_ignore_ascii_case(&b'q')),
        }
    }
}

/// Restores the terminal. May be called at any time, also twice.
pub(super) fn restore() {
    let Ok(mut before) = BEFORE.try_lock() else { return };
    if let Some(modes) = before.take() {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &modes);
    }
}
