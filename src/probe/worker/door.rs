//! Workers that dial in to a search: the listener of the search, and the call of the worker. The listener reads nothing from a
//! caller that does not send the token first.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::token::SHOWN;
use super::{Hello, Node, Refusal, SILENCE, ToWorker, Token, WorkerError};
use crate::probe::orders::send;

/// How long a caller may take to send the token, and how many callers may do so at a time. Round numbers: far above the needs of a
/// slow network and a large cluster, and too small to delay a search.
const LONGEST_SHOWING: Duration = Duration::from_secs(10);
const MOST_SHOWING: usize = 64;

/// A caller that dialled in.
#[derive(Debug)]
pub enum Knock {
    /// A worker that can serve.
    Worker(Box<Node>),
    /// A rejected caller.
    Turned {
        /// The address of the caller.
        host: String,
        /// The reason.
        reason: String,
    },
}

/// A listener with the token that it requires.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
}

impl Door {
    /// Listens on an address; port 0 selects a free port.
    ///
    /// # Errors
    /// The address is not of this machine, or in use.
    pub fn open(address: &str, token: Token) -> Result<Self, WorkerError> {
        let none = |source: io::Error| {
            let hint = "write HOST:PORT with a name or an IP address of this machine, such as 10.0.0.5:7331";
            WorkerError::mistake(format!("`{address}` is no address to listen on"), hint).caused_by(source)
        };
        let first = address.to_socket_addrs().map_err(none)?.next();
        let first = first.ok_or_else(|| none(io::ErrorKind::NotFound.into()))?;
        let failed = |source: io::Error| {
            let hint = if source.kind() == io::ErrorKind::AddrInUse {
                "another program listens there: choose another port, or 0 for any that is free"
            } else {
                "take an address that this machine has (`ip addr`), and a port from 1024 on, or 0 for any that is free"
            };
            WorkerError::mistake(format!("cannot listen on {first}"), hint).caused_by(source)
        };
        let listener = TcpListener::bind(first).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, token })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts workers as long as this process lives. Each worker receives the hello.
    pub fn answer(self, hello: Hello) -> Receiver<Knock> {
        let (knocks, heard) = channel();
        std::thread::spawn(move || {
            let (token, hello, showing) = (Arc::new(self.token), Arc::new(hello), Arc::new(AtomicUsize::new(0)));
            for stream in self.listener.incoming() {
                let Ok(stream) = stream else {
                    // For example, there are too many open files (accept(2)).
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                };
                let host =
                    stream.peer_addr().map_or_else(|_| "an unknown host".to_owned(), |peer| peer.ip().to_string());
                let knocks = knocks.clone();
                if showing.load(Ordering::Relaxed) >= MOST_SHOWING {
                    turn(&knocks, host, format!("{MOST_SHOWING} other connections have not shown their token yet"));
                    continue;
                }
                showing.fetch_add(1, Ordering::Relaxed);
                let (token, hello, showing) = (Arc::clone(&token), Arc::clone(&hello), Arc::clone(&showing));
                std::thread::spawn(move || {
                    let shown = shown(&stream, &token).map_err(str::to_owned);
                    showing.fetch_sub(1, Ordering::Relaxed);
                    let node = shown.and_then(|()| {
                        Node::dialled(&host, stream, (*hello).clone()).map_err(|error| error.to_string())
                    });
                    match node {
                        Ok(node) => drop(knocks.send(Knock::Worker(Box::new(node)))),
                        Err(reason) => turn(&knocks, host, reason),
                    }
                });
            }
        });
        heard
    }
}

fn turn(knocks: &Sender<Knock>, host: String, reason: String) {
    let _ = knocks.send(Knock::Turned { host, reason });
}

/// Reads exactly the bytes of a token, and compares them.
fn shown(mut stream: &TcpStream, token: &Token) -> Result<(), &'static str> {
    let failed = |_| "the connection failed";
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_write_timeout(Some(SILENCE)).map_err(failed)?;
    let (mut line, mut length, begin) = ([0; SHOWN], 0, Instant::now());
    while length < SHOWN {
        let left = LONGEST_SHOWING.saturating_sub(begin.elapsed()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).map_err(failed)?;
        match stream.read(&mut line[length..]) {
            Ok(0) => return Err("it has shown no token"),
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err("it has shown no token in time"),
        }
        if begin.elapsed() >= LONGEST_SHOWING && length < SHOWN {
            return Err("it has shown no token in time");
        }
    }
    if !token.is_shown_by(&line) {
        let refusal = Refusal {
            reason: "its token is another".to_owned(),
            hint: "give it the token file of the search that it is to serve".to_owned(),
        };
        let _ = send(&mut stream, &ToWorker::Refused(refusal));
        return Err("its token is wrong");
    }
    stream.set_read_timeout(None).map_err(failed)
}

/// Connects and sends the token. Without an answer, retries each second for `patience`; `tell` receives the first failure.
///
/// # Errors
/// No search answers.
pub fn dial(
    address: &str,
    token: &Token,
    patience: Duration,
    mut tell: impl FnMut(&WorkerError),
) -> Result<TcpStream, WorkerError> {
    const PAUSE: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    let mut is_told = false;
    loop {
        let source = match connected(address, token) {
            Ok(stream) => return Ok(stream),
            Err(source) => source,
        };
        let kind = source.kind();
        let hint = match kind {
            io::ErrorKind::ConnectionRefused => {
                "nothing listens there: `gputune search --listen` says where it does, and --wait has a worker wait for it"
            }
            io::ErrorKind::InvalidInput => "write HOST:PORT, such as 10.0.0.5:7331",
            io::ErrorKind::TimedOut => {
                "is there a firewall in between? `gputune search --listen` says where it listens"
            }
            _ => "write HOST:PORT with a name that is known here, or an IP address, such as 10.0.0.5:7331",
        };
        let error = WorkerError::new(format!("cannot reach a search at {address}"), hint).caused_by(source);
        if begin.elapsed() + PAUSE > patience || kind == io::ErrorKind::InvalidInput {
            return Err(error);
        }
        if !is_told {
            is_told = true;
            tell(&error);
        }
        std::thread::sleep(PAUSE);
    }
}

fn connected(address: &str, token: &Token) -> io::Result<TcpStream> {
    const LONGEST: Duration = Duration::from_secs(10);
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, LONGEST) {
            Ok(mut stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(SILENCE))?;
                stream.write_all(&token.shown())?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
