//! The live view on a terminal: a few lines at the bottom, redrawn by a thread at most five times a second.

pub(super) mod keys;
mod painter;
mod view;

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use console::Term;
use gputune::report::{Screen, shortened};
use gputune::search::Status;

use super::colour;
use keys::Keys;
use painter::Painter;
pub(in crate::cli) use view::once;

/// How often the view is drawn and keys are read.
const EVERY: Duration = Duration::from_millis(200);

/// A view that is shown until it is dropped.
pub(super) struct Live {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    is_over: AtomicBool,
    /// Set by `q`.
    quit: Arc<AtomicBool>,
}

struct State {
    painter: Painter,
    /// The status that is shown, with the time of its arrival.
    status: Option<(Status, Instant)>,
    note: String,
    /// Finished lines that are not on the screen yet.
    above: Vec<String>,
}

impl Live {
    /// Whether standard error is a terminal that can show it.
    pub(super) fn is_possible() -> bool {
        std::io::stderr().is_terminal() && !colour::is_dumb()
    }

    /// Begins a view with `note` as its last line; `q` sets `quit`.
    pub(super) fn begin(note: &str, quit: Arc<AtomicBool>) -> Self {
        let state = State { painter: Painter::default(), status: None, note: note.to_owned(), above: Vec::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), is_over: AtomicBool::new(false), quit });
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
        self.shared.state().clear();
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
                // The shell has written below the view, and has changed the terminal's settings.
                self.state().painter.forget();
                keys = Keys::listen();
            }
            self.state().draw();
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
    fn draw(&mut self) {
        let size = size();
        let screen = Screen { columns: size.0, colours: colour::on_stderr() };
        let note = &self.note;
        let block = |(status, told): &(Status, Instant)| view::block(status, told.elapsed(), note, screen);
        let block = self.status.as_ref().map_or_else(|| vec![shortened(note, size.0.saturating_sub(1))], block);
        let above = std::mem::take(&mut self.above);
        write(&self.painter.frame(&above, block, size));
    }

    fn clear(&mut self) {
        let above = std::mem::take(&mut self.above);
        write(&self.painter.frame(&above, Vec::new(), size()));
    }
}

/// Returns columns and rows.
fn size() -> (usize, usize) {
    const USUAL: (u16, u16) = (24, 80);
    let (rows, columns) = Term::stderr().size_checked().filter(|(_, columns)| *columns > 0).unwrap_or(USUAL);
    (usize::from(columns), usize::from(rows))
}

/// Writes a text in one piece; a terminal that is gone does not matter to a search.
fn write(text: &str) {
    if !text.is_empty() {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// Makes a panic restore the terminal and appear below the view.
fn leave_no_mess_on_panic(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(shared) = shared.upgrade() {
            shared.is_over.store(true, Ordering::Relaxed);
            if let Ok(mut state) = shared.state.try_lock() {
                state.clear();
            }
        }
        keys::restore();
        report(panic);
    }));
}
