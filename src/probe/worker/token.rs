//! The first message of a worker: a secret of 256 random bits. The search reads nothing from a caller before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::WorkerError;

const DIGITS: usize = 64;

/// The bytes of a token's line: its digits, and the end of the line.
pub(super) const SHOWN: usize = DIGITS + 1;

/// A secret that a search and its workers share.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; DIGITS]);

/// Quotes the path of a token file, with a suffix, for a shell.
fn quoted(path: &Path, suffix: &str) -> String {
    let path = format!("{}{suffix}", path.display());
    let is_bare = path.chars().all(|sign| sign.is_ascii_alphanumeric() || "/._-".contains(sign));
    if is_bare { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

fn unusable(path: &Path, reason: String) -> WorkerError {
    let new = quoted(path, ".new");
    let hint = format!("write a token to another file, for the search and its workers: gputune cluster token {new}");
    WorkerError::mistake(reason, hint)
}

fn failed(action: &str, path: &Path, source: io::Error) -> WorkerError {
    let reason = format!("cannot {action} the token file {}", path.display());
    let error = if source.kind() == io::ErrorKind::NotFound {
        let hint = format!("the search and its workers need one: gputune cluster token {}", quoted(path, ""));
        WorkerError::mistake(reason, hint)
    } else {
        unusable(path, reason)
    };
    error.caused_by(source)
}

impl std::fmt::Debug for Token {
    /// Prints the name only, so that no log has the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Returns a new token from the kernel's random numbers (random(4)).
    ///
    /// # Errors
    /// `/dev/urandom` does not exist.
    pub fn fresh() -> io::Result<Self> {
        let mut bytes = [0; DIGITS / 2];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        Ok(Self(digits))
    }

    /// Reads a token from a file that only its user may read. A file of root may be readable by its group, because Kubernetes
    /// mounts secrets this way for users other than root. A pipe is allowed.
    ///
    /// # Errors
    /// The file cannot be read, is readable by other users, or has no token.
    pub fn read(path: &Path) -> Result<Self, WorkerError> {
        let failed = |source| failed("read", path, source);
        let file = File::open(path).map_err(failed)?;
        let seen = file.metadata().map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        let others = if seen.uid() == 0 && own != 0 { 0o007 } else { 0o077 };
        let is_file = seen.is_file();
        if is_file && (seen.mode() & others != 0 || ![0, own].contains(&seen.uid())) {
            let (mode, old, new) = (seen.mode() & 0o7777, quoted(path, ""), quoted(path, ".new"));
            let reason = format!("other users may read the token file {} (mode {mode:04o})", path.display());
            let hint = format!(
                "chmod 600 {old}; if other users may have read it, write a new token: gputune cluster token {new}"
            );
            return Err(WorkerError::mistake(reason, hint));
        }
        let mut text = Vec::new();
        file.take(4 * DIGITS as u64).read_to_end(&mut text).map_err(failed)?;
        let text = text.trim_ascii();
        let form = |found: &str| {
            let file = path.display();
            let what = format!("{DIGITS} hexadecimal digits are one, and it has {found}");
            unusable(path, format!("the token file {file} holds no token: {what}"))
        };
        if !text.iter().all(u8::is_ascii_hexdigit) {
            return Err(form("other characters"));
        }
        text.to_ascii_lowercase().try_into().map(Self).map_err(|text: Vec<u8>| form(&text.len().to_string()))
    }

    /// Writes the token to a new file that only its user may read.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), WorkerError> {
        let failed = |source| failed("write", path, source);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
        file.write_all(&self.shown()).map_err(failed)
    }

    /// Returns its digits, for a cluster secret.
    pub fn digits(&self) -> String {
        self.0.iter().copied().map(char::from).collect()
    }

    /// Returns the line that a worker sends to show this token.
    pub(super) fn shown(&self) -> [u8; SHOWN] {
        let mut line = [b'\n'; SHOWN];
        line[..DIGITS].copy_from_slice(&self.0);
        line
    }

    /// Returns true if `line` shows this token. The time does not depend on the position of a difference.
    pub(super) fn is_shown_by(&self, line: &[u8; SHOWN]) -> bool {
        let differs = self.shown().iter().zip(line).fold(0, |differs, (own, other)| differs | (own ^ other));
        std::hint::black_box(differs) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_counts() {
        let token = Token::fresh().unwrap();
        assert!(token.is_shown_by(&token.shown()));
        for at in 0..SHOWN {
            let mut line = token.shown();
            line[at] ^= 1;
            assert!(!token.is_shown_by(&line), "{at}");
        }
    }
}
