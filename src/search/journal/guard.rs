//! Checks if the open file is still the journal: a user may have deleted, replaced, moved or cut it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns what happened to an open journal, in words that follow its name; `None` if all is well. `len` is the number
/// of bytes written to it.
pub(super) fn change(path: &Path, file: &File, len: u64) -> Option<String> {
    let own = file.metadata().ok()?;
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(match place_of(file) {
            Some(place) if own.nlink() > 0 => format!("was moved to {}", place.display()),
            _ => "was deleted".to_owned(),
        }),
        // An error need not be a problem: a network file system may not answer for a moment.
        Err(_) => None,
        Ok(named) if (named.dev(), named.ino()) != (own.dev(), own.ino()) => {
            Some("was replaced by another file".to_owned())
        }
        Ok(_) if own.len() < len => Some(format!("was cut to {} of its {len} bytes", own.len())),
        Ok(_) if own.len() > len => Some("was written to by another program".to_owned()),
        Ok(_) => None,
    }
}

/// Returns the current path of an open file (proc(5), `/proc/PID/fd`).
fn place_of(file: &File) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Writes the expected contents of the journal into a new file next to it, or else into the folder for temporary files. Returns the
/// path of the new file.
pub(super) fn rescue(path: &Path, text: &[u8]) -> io::Result<PathBuf> {
    const MOST: u32 = 1000;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.parent().filter(|folder| folder.is_dir()).map(Path::to_owned);
    let mut failed = io::Error::other("there is no free name");
    for folder in beside.into_iter().chain([std::env::temp_dir()]) {
        for number in 1..MOST {
            let place = folder.join(format!("{name}-kept-{number}.jsonl"));
            let written =
                File::create_new(&place).and_then(|mut file| file.write_all(text).and_then(|()| file.sync_data()));
            match written {
                Ok(()) => return Ok(place),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    failed = error;
                    break;
                }
            }
        }
    }
    Err(failed)
}
