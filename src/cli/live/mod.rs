//! The live view on a terminal: a few lines at its foot, drawn by indicatif at most five times a second.
//!
//! They are one bar with a template of many lines, so that a frame is drawn as a whole; several bars in a `MultiProgress`
//! draw one after the other, and its `suspend` panics where the terminal is gone.

pub(super) mod keys;
mod view;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use console::{Term, measure_text_width};
use gputune::report::Screen;
use gputune::search::Status;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::colour;
use keys::Keys;
pub(in crate::cli) use view::once;
use view::{Block, WHOLE_BAR};

/// How often in a second the view is drawn at most, and keys are looked at.
const RATE: u8 = 5;

/// As a time.
const EVERY: Duration = Duration::from_millis(1000 / RATE as u64);

/// Finished lines that are kept: more than a screen has.
const RECENT: usize = 300;

/// A view that is shown until it is dropped.
pub(super) struct Live {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// All of the view.
    bar: ProgressBar,
    state: Mutex<State>,
    is_over: AtomicBool,
    /// Set by `q`.
    quit: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// What is drawn.
    block: Option<Block>,
    /// The rows and columns that the terminal had when it was drawn.
    size: (u16, u16),
    /// What is shown, with when it was told.
    status: Option<(Status, Instant)>,
    note: String,
    /// Finished lines that are not on the screen yet.
    above: Vec<String>,
    /// The last ones that are, to be written again when the terminal has another size.
    recent: Vec<String>,
}

impl Live {
    /// Whether standard error is a terminal that can show it.
    pub(super) fn is_possible() -> bool {
        std::io::stderr().is_terminal() && !colour::is_dumb()
    }

    /// Shows what it is told from now on; `q` sets `quit`.
    pub(super) fn begin(quit: Arc<AtomicBool>) -> Self {
        let bar = ProgressBar::with_draw_target(Some(WHOLE_BAR), target());
        let state = State { size: Term::stderr().size(), ..State::default() };
        let shared = Arc::new(Shared { bar, state: Mutex::new(state), is_over: AtomicBool::new(false), quit });
        leave_no_mess_on_panic(&shared);
        let theirs = Arc::clone(&shared);
        // Without the thread nothing moves between events; events are still drawn at the end.
        let thread = std::thread::Builder::new().name("live view".to_owned()).spawn(move || theirs.run()).ok();
        Self { shared, thread }
    }

    /// Shows another status from now on.
    pub(super) fn show(&self, status: &Status) {
        self.shared.state().status = Some((status.clone(), Instant::now()));
    }

    /// Shows another last line.
    pub(super) fn note(&self, note: &str) {
        note.clone_into(&mut self.shared.state().note);
    }

    /// Adds a line above the view, for good.
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
        keys::restore();
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
                // The shell has written below, and set the terminal as it likes it.
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
        let screen = Screen { columns: usize::from(columns), colours: colour::on_stderr() };
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

    /// Writes finished lines above the view, which has so many rows.
    ///
    /// In another size the whole screen is written again, since where the old lines are now cannot be known: one terminal
    /// breaks those that are too long, another cuts them off. indicatif takes them to be where they were
    /// (<https://github.com/console-rs/indicatif/issues/182>).
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
            // Not by `println`, which fills lines up with blanks instead of ending them.
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
            // indicatif draws nothing from a thread that panics, and who panics may hold the bar.
            let (done, cleared) = mpsc::channel();
            let bar = shared.bar.clone();
            std::thread::spawn(move || {
                bar.finish_and_clear();
                let _ = done.send(());
            });
            let _ = cleared.recv_timeout(EVERY);
        }
        keys::restore();
        report(panic);
    }));
}
