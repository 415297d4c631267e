//! The connection to a worker: the streams of a command, or a TCP connection from the worker.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStdin};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::{SILENCE, ToWorker};
use crate::probe::lines::line_of;

/// The other end of the connection.
#[derive(Debug)]
pub(super) enum Peer {
    /// A command whose standard streams belong to the worker.
    Command(Child, Option<ChildStdin>),
    /// A worker that has dialled in.
    Stream(TcpStream),
}

/// The connection.
#[derive(Debug)]
pub(super) struct Link {
    peer: Mutex<Peer>,
    /// The time of the worker's last line; `None` after the worker was given up.
    heard: Mutex<Option<Instant>>,
}

/// A handle that shows if a worker is still alive.
#[derive(Debug, Clone)]
pub struct Life(pub(super) Weak<Link>);

impl Life {
    /// Returns true if the worker is alive.
    pub fn goes_on(&self) -> bool {
        self.0.upgrade().is_some_and(|link| !link.is_silent())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(super) fn to(peer: Peer) -> Self {
        Self { peer: Mutex::new(peer), heard: Mutex::new(Some(Instant::now())) }
    }

    pub(super) fn say(&self, message: &ToWorker) -> io::Result<()> {
        let line = line_of(message)?;
        match &mut *locked(&self.peer) {
            Peer::Command(_, Some(input)) => input.write_all(&line).and_then(|()| input.flush()),
            Peer::Command(_, None) => Err(io::ErrorKind::BrokenPipe.into()),
            Peer::Stream(stream) => stream.write_all(&line),
        }
    }

    /// Records that the worker is alive.
    pub(super) fn hear(&self) {
        if let Some(heard) = &mut *locked(&self.heard) {
            *heard = Instant::now();
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        locked(&self.heard).is_none_or(|heard| heard.elapsed() > SILENCE)
    }

    /// Closes the worker's input, which ends the worker.
    pub(super) fn give_up(&self) {
        locked(&self.heard).take();
        match &mut *locked(&self.peer) {
            Peer::Command(_, input) => drop(input.take()),
            Peer::Stream(stream) => drop(stream.shutdown(Shutdown::Both)),
        }
    }
}

impl Drop for Link {
    /// Tells the worker that the search is over or closes its input. A command that hangs is killed.
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let _ = self.say(&ToWorker::Goodbye);
        self.give_up();
        if let Peer::Command(child, _) = &mut *locked(&self.peer) {
            let deadline = Instant::now() + PATIENCE;
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
