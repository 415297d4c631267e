//! The first message of a worker: a secret of 256 random bits. The search reads nothing from a caller before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const DIGITS: usize = 64;

/// The bytes of a token's line: its digits, and the end of the line.
pub(super) const SHOWN: usize = DIGITS + 1;

/// A secret that a search and its workers share.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; DIGITS]);

/// The reason why a file has no valid token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("cannot {action} the token file {}", path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Other users may know the token.
    #[error("other users may read the token file {} (mode {mode:04o})", path.display())]
    Shared {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The content is not a token.
    #[error("the token file {} holds no token: {DIGITS} hexadecimal digits are one, and it has {found}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The content that was found.
        found: String,
    },
}

impl TokenError {
    /// Returns the remedy.
    pub fn hint(&self) -> String {
        let (Self::Io { path, .. } | Self::Form { path, .. } | Self::Shared { path, .. }) = self;
        let quoted = |suffix: &str| {
            let path = format!("{}{suffix}", path.display());
            let is_bare = path.chars().all(|sign| sign.is_ascii_alphanumeric() || "/._-".contains(sign));
            if is_bare { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
        };
        let (old, new) = (quoted(""), quoted(".new"));
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                format!("the search and its workers need one: gputune cluster token {old}")
            }
            Self::Io { .. } | Self::Form { .. } => {
                format!("write a token to another file, for the search and its workers: gputune cluster token {new}")
            }
            Self::Shared { .. } => format!(
                "chmod 600 {old}; if other users may have read it, write a new token: gputune cluster token {new}"
            ),
        }
    }
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
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Io { action: "read", path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let seen = file.metadata().map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        let others = if seen.uid() == 0 && own != 0 { 0o007 } else { 0o077 };
        let is_file = seen.is_file();
        if is_file && (seen.mode() & others != 0 || ![0, own].contains(&seen.uid())) {
            return Err(TokenError::Shared { path: path.to_owned(), mode: seen.mode() & 0o7777 });
        }
        let mut text = Vec::new();
        file.take(4 * DIGITS as u64).read_to_end(&mut text).map_err(failed)?;
        let text = text.trim_ascii();
        let form = |found: String| TokenError::Form { path: path.to_owned(), found };
        if !text.iter().all(u8::is_ascii_hexdigit) {
            return Err(form("other characters".to_owned()));
        }
        text.to_ascii_lowercase().try_into().map(Self).map_err(|text: Vec<u8>| form(text.len().to_string()))
    }

    /// Writes the token to a new file that only its user may read.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let failed = |source| TokenError::Io { action: "write", path: path.to_owned(), source };
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
    fn a_token_is_what_was_written_and_nobody_else_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::fresh().unwrap();
        assert!(token != Token::fresh().unwrap());
        token.write(&path).unwrap();
        assert!(token.write(&path).is_err(), "there is one");
        assert_eq!(Token::read(&path).unwrap(), token);
        for mode in [0o640, 0o604, 0o644, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Token::read(&path).unwrap_err();
            assert!(error.to_string().contains(&format!("(mode 0{mode:o})")), "{error}");
            assert!(error.hint().contains("chmod 600"));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for (text, said) in [("", "it has 0"), (&"z".repeat(64), "other characters")] {
            fs::write(&path, text).unwrap();
            let error = Token::read(&path).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }

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
