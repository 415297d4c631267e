//! The socket to which a probe's processes report.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::heard::Message;
use super::locked;
use super::orders::{is_own, send};
use super::protocol::{Event, LONGEST_LINE, Order};

/// A socket with a reader thread per connection. A process must wait if it sends more lines than gputune can handle.
pub(super) struct EventSocket {
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

struct Shared {
    listener: UnixListener,
    closing: AtomicBool,
    /// The number of connections that are still being read.
    open: AtomicUsize,
    /// Connections whose processes read orders.
    listeners: Mutex<Vec<UnixStream>>,
}

impl EventSocket {
    pub(super) fn bind(path: &Path, messages: &SyncSender<Message>) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let (closing, open) = (AtomicBool::new(false), AtomicUsize::new(0));
        let shared = Arc::new(Shared { listener, closing, open, listeners: Mutex::default() });
        let (theirs, messages) = (Arc::clone(&shared), messages.clone());
        let acceptor = std::thread::Builder::new().name("events".to_owned()).spawn(move || {
            while let Some(stream) = accept(&theirs) {
                theirs.open.fetch_add(1, Ordering::AcqRel);
                let (messages, reading) = (messages.clone(), Reading(Arc::clone(&theirs)));
                // If no thread can be started, the connection is closed, and the process at its other end notices that.
                let reader = std::thread::Builder::new().name("event reader".to_owned());
                let _ = reader.spawn(move || read(stream, &messages, &reading));
            }
        })?;
        Ok(Self { shared, acceptor })
    }

    /// Sends an order to every process that reads orders. Returns true if at least one process received it.
    pub(super) fn order(&self, order: &Order) -> bool {
        // An order fits into any socket's buffer. If a buffer is full, its process does not read.
        const PATIENCE: Duration = Duration::from_millis(10);
        let mut told = false;
        for stream in locked(&self.shared.listeners).iter_mut() {
            told |= stream.set_write_timeout(Some(PATIENCE)).and_then(|()| send(stream, order)).is_ok();
        }
        told
    }

    /// Stops accepting connections, except connections that are already waiting.
    pub(super) fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        // The acceptor first accepts all waiting connections, then ends. This works without the socket's file.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
    }

    /// Returns true if all lines that the processes sent are in the channel of messages.
    pub(super) fn is_drained(&self) -> bool {
        self.acceptor.is_finished() && self.shared.open.load(Ordering::Acquire) == 0
    }
}

impl Drop for EventSocket {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the next connection of this user; `None` if the socket is closing.
///
/// Closes connections of other users, except root: other users cannot enter the socket's folder, so such a connection
/// does not belong to the probe.
fn accept(shared: &Shared) -> Option<UnixStream> {
    const PAUSE: Duration = Duration::from_millis(10);
    loop {
        match shared.listener.accept() {
            Ok((stream, _)) if is_own(&stream) => return Some(stream),
            Ok(_) => {}
            Err(_) if shared.closing.load(Ordering::Acquire) => return None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An error such as too many open files may pass later.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Counts a connection while it is read.
struct Reading(Arc<Shared>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

fn read(stream: UnixStream, messages: &SyncSender<Message>, reading: &Reading) {
    let mut who = Introduced::default();
    let mut twin = stream.try_clone().ok();
    let mut lines = BufReader::with_capacity(1 << 16, stream);
    let mut line = Vec::new();
    while let Ok(Some(is_short)) = next_line(&mut lines, &mut line) {
        if line.ends_with(b"\n") && line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let message = match Event::parse(&line) {
            Ok(event) if is_short => {
                if let Some(closed) = who.hear(&event) {
                    let _ = messages.send(closed);
                }
                if who.reads_orders {
                    locked(&reading.0.listeners).extend(twin.take());
                }
                Message::Event { event, rank: who.rank.unwrap_or(0), at: Instant::now() }
            }
            _ => Message::BadLine,
        };
        if messages.send(message).is_err() {
            return;
        }
    }
    if let Some(closed) = who.closed() {
        let _ = messages.send(closed);
    }
}

/// The `hello` and the `bye` of the process at the other end.
#[derive(Debug, Default)]
struct Introduced {
    rank: Option<u32>,
    reads_orders: bool,
    said_bye: bool,
}

impl Introduced {
    /// Records an event. An event that changes the rank closes the connection for the old rank.
    fn hear(&mut self, event: &Event) -> Option<Message> {
        match event {
            Event::Hello { rank, orders, .. } => {
                let before = Self { said_bye: true, ..std::mem::take(self) };
                *self = Self { rank: Some(*rank), reads_orders: *orders || before.reads_orders, said_bye: false };
                before.closed()
            }
            _ => {
                self.said_bye |= *event == Event::Bye;
                None
            }
        }
    }

    fn closed(&self) -> Option<Message> {
        let is_orderly = self.said_bye || !self.reads_orders;
        self.rank.map(|rank| Message::Closed { rank, is_orderly, at: Instant::now() })
    }
}

/// Reads a line with its line break. Returns `None` at the end, and false if the line is too long. The part of a line beyond
/// the limit is skipped.
fn next_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let read = lines.by_ref().take(LONGEST_LINE as u64 + 1).read_until(b'\n', line)?;
    let is_short = read <= LONGEST_LINE || line.ends_with(b"\n");
    if !is_short {
        lines.skip_until(b'\n')?;
    }
    Ok((read > 0).then_some(is_short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_line_that_is_too_long_is_skipped() {
        let text = format!("{}\nshort\nlast", "x".repeat(LONGEST_LINE + 10));
        let (mut lines, mut line) = (text.as_bytes(), Vec::new());
        assert_eq!(next_line(&mut lines, &mut line).unwrap(), Some(false));
        for rest in ["short\n", "last"] {
            assert_eq!(next_line(&mut lines, &mut line).unwrap(), Some(true));
            assert_eq!(line, rest.as_bytes());
        }
        assert_eq!(next_line(&mut lines, &mut line).unwrap(), None);
    }
}
