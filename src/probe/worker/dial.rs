//! A worker that dials in to a search: it connects, sends the token, and then speaks the usual lines.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::{SILENCE, Token};

/// The reason why a search cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach a search at {address}")]
pub struct DialError {
    address: String,
    source: io::Error,
}

impl DialError {
    /// Returns the remedy.
    pub fn hint(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::ConnectionRefused => {
                "nothing listens there: `gputune search --listen` says where it does, and --wait has a worker wait for it"
            }
            io::ErrorKind::InvalidInput => "write HOST:PORT, such as 10.0.0.5:7331",
            io::ErrorKind::TimedOut => {
                "is there a firewall in between? `gputune search --listen` says where it listens"
            }
            _ => "write HOST:PORT with a name that is known here, or an IP address, such as 10.0.0.5:7331",
        }
    }
}

/// Connects and sends the token. Without an answer, retries each second for `patience`; `tell` receives the first failure.
///
/// # Errors
/// No search answers.
pub fn dial(
    address: &str,
    token: &Token,
    patience: Duration,
    mut tell: impl FnMut(&DialError),
) -> Result<TcpStream, DialError> {
    const PAUSE: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    let mut is_told = false;
    loop {
        let error = match connected(address, token) {
            Ok(stream) => return Ok(stream),
            Err(source) => DialError { address: address.to_owned(), source },
        };
        if begin.elapsed() + PAUSE > patience || error.source.kind() == io::ErrorKind::InvalidInput {
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
