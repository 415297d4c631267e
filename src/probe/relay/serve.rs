//! The relay: provides a probe's folder and socket on a node that does not run gputune.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{FromRelay, GPUTUNE, SOCKET, ToRelay};
use crate::machine::Device;
use crate::probe::locked;
use crate::probe::orders::{is_own, read_line, send};
use crate::probe::scratch::{OWNER, claim};
use crate::probe::sweep::sweep_in;

/// Serves the probes of a search until `input` ends, then removes the folders that this relay has made. If the relay is
/// killed, the next probe on this node removes the folders.
///
/// # Errors
/// The other side is not a search, or cannot be written to.
pub fn serve(input: impl Read, output: impl Write + Send + 'static, device: Device) -> io::Result<()> {
    let out = Out { output: Arc::new(Mutex::new(output)), connections: Arc::default() };
    out.say(&FromRelay::Here { gputune_version: GPUTUNE.to_owned(), device })?;
    let mut input = BufReader::new(input);
    let mut places: BTreeMap<PathBuf, Place> = BTreeMap::new();
    while let Some(line) = read_line(&mut input)? {
        match line {
            ToRelay::Open { folder, files } => {
                let answer = match open(&folder, &files, &out) {
                    Ok(place) => {
                        places.extend(place.map(|place| (folder.clone(), place)));
                        FromRelay::Reached { folder }
                    }
                    Err(error) => {
                        FromRelay::Cannot { reason: error.to_string(), hint: hint(&error).to_owned(), folder }
                    }
                };
                out.say(&answer)?;
            }
            ToRelay::Order { connection, text } => out.pass_on(connection, &text),
            ToRelay::Close { folder } => drop(places.remove(&folder)),
        }
    }
    Ok(())
}

#[derive(Clone)]
struct Out {
    output: Arc<Mutex<dyn Write + Send>>,
    connections: Arc<Mutex<BTreeMap<u64, UnixStream>>>,
}

impl Out {
    fn say(&self, message: &FromRelay) -> io::Result<()> {
        send(&mut *locked(&self.output), message)
    }

    /// Passes orders to a process. Write errors are ignored, because an ended process is reported elsewhere.
    fn pass_on(&self, connection: u64, text: &str) {
        if let Some(stream) = locked(&self.connections).get_mut(&connection) {
            let _ = stream.write_all(text.as_bytes());
        }
    }
}

/// A probe's folder on this node, which is removed when this value is dropped.
struct Place {
    folder: PathBuf,
    listener: Arc<UnixListener>,
    _owner: File,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes a probe's folder. Returns `None` if the probe's own socket already answers in the folder, because the probe
/// runs on this node or shares its folder with this node. Then processes reach the probe without a relay.
fn open(folder: &Path, files: &[(PathBuf, String)], out: &Out) -> io::Result<Option<Place>> {
    if UnixStream::connect(folder.join(SOCKET)).is_ok() {
        return Ok(None);
    }
    // Remove the folders of killed relays.
    folder.parent().into_iter().for_each(sweep_in);
    DirBuilder::new().mode(0o700).create(folder)?;
    // From here on, the folder is removed after an error.
    let made = || -> io::Result<Place> {
        let owner = claim(folder, OWNER)?;
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::write(path, text)?;
        }
        let listener = Arc::new(UnixListener::bind(folder.join(SOCKET))?);
        Ok(Place { folder: folder.to_owned(), listener, _owner: owner })
    };
    let place = made().inspect_err(|_| drop(fs::remove_dir_all(folder)))?;
    let (listener, folder, out) = (Arc::clone(&place.listener), folder.to_owned(), out.clone());
    std::thread::spawn(move || accept(&listener, &folder, &out));
    Ok(Some(place))
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "nodes share the folder for temporary files; set TMPDIR to a folder that each has for itself, such as /tmp"
        }
        io::ErrorKind::NotFound => {
            "the folder for temporary files must be under the same path on all nodes; set TMPDIR"
        }
        _ => "can this user write to the folder for temporary files there? Set TMPDIR to a folder that is on all nodes",
    }
}

/// Forwards the connections of this user, until the listener is shut down.
fn accept(listener: &UnixListener, folder: &Path, out: &Out) {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
    while let Ok((stream, _)) = listener.accept() {
        if !is_own(&stream) {
            continue;
        }
        let Ok(twin) = stream.try_clone() else { continue };
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        locked(&out.connections).insert(connection, twin);
        let connected = out.say(&FromRelay::Connected { folder: folder.to_owned(), connection });
        let own = out.clone();
        let reader = std::thread::Builder::new().name("relay".to_owned());
        let started = reader.spawn(move || {
            let _ = hear(stream, connection, &own);
            locked(&own.connections).remove(&connection);
            let _ = own.say(&FromRelay::Left { connection });
        });
        if connected.is_err() || started.is_err() {
            return;
        }
    }
}

/// Forwards the messages of a process until they end. Keeps whole lines together if possible.
fn hear(stream: UnixStream, connection: u64, out: &Out) -> io::Result<()> {
    /// Bytes without a line end are forwarded only above this size: a round number, far below the longest line between
    /// relay and probe.
    const MOST: usize = 1 << 20;
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    let mut held = Vec::new();
    loop {
        let buffer = reader.fill_buf()?;
        let (read, is_end) = (buffer.len(), buffer.is_empty());
        held.extend_from_slice(buffer);
        reader.consume(read);
        let whole = held.iter().rposition(|&byte| byte == b'\n').map(|end| end + 1);
        let ready = match whole {
            Some(whole) => whole,
            None if is_end => held.len(),
            None if held.len() > MOST => whole_characters(&held),
            None => 0,
        };
        if ready > 0 {
            let text = String::from_utf8_lossy(&held[..ready]).into_owned();
            held.drain(..ready);
            out.say(&FromRelay::Heard { connection, text })?;
        }
        if is_end {
            return Ok(());
        }
    }
}

/// Returns the number of bytes without an incomplete character of UTF-8 at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    /// The most bytes of an incomplete character.
    const MOST: usize = 3;
    let is_first = |byte: &u8| byte & 0b1100_0000 != 0b1000_0000;
    let last = bytes.iter().rev().take(MOST).position(is_first).map(|after| bytes.len() - after - 1);
    let is_cut = |&start: &usize| std::str::from_utf8(&bytes[start..]).is_err_and(|error| error.error_len().is_none());
    last.filter(is_cut).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_not_cut_inside_a_character() {
        assert_eq!(whole_characters("plain".as_bytes()), 5);
        for character in ["ä", "€", "🦀"] {
            let text = format!("a{character}");
            assert_eq!(whole_characters(text.as_bytes()), text.len());
            for cut in 1..character.len() {
                assert_eq!(whole_characters(&text.as_bytes()[..=cut]), 1, "{character} after {cut} bytes");
            }
        }
        assert_eq!(whole_characters(b"a\x80\x80\x80\x80"), 5, "no character begins there");
        assert_eq!(whole_characters(b"a\xff"), 2, "no character begins with this byte");
    }
}
