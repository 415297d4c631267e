//! Reads a journal while another process writes to it.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::eras::{is_header, parse_header};
use super::{Header, JournalError, Line, parse};

/// The news in a journal since the last call.
#[derive(Debug, Default)]
pub struct News {
    /// True if it is a different journal or a new era. Then nothing that was read before holds.
    pub is_another: bool,
    /// Trials that have not been returned yet, oldest first.
    pub trials: Vec<Line>,
}

/// Reads the lines of a journal as they come. It is never locked, and need not be there yet.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// The file that was read last, by its device and inode.
    file: Option<(u64, u64)>,
    /// The number of bytes in the complete lines that were read.
    read: u64,
    /// The number of lines that were read.
    lines: usize,
    header: Option<Header>,
}

impl Follower {
    /// Makes a follower of the journal at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, read: 0, lines: 0, header: None }
    }

    /// The first line, once it is there.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Returns the trials written since the last call. An incomplete last line is left for the next call.
    ///
    /// # Errors
    /// The journal cannot be read, has another format, or a whole line of it is damaged.
    pub fn news(&mut self) -> Result<News, JournalError> {
        let mut news = News::default();
        let error = |source| JournalError::Io { action: "read", path: self.path.clone(), source };
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            // The journal does not exist yet, or was moved aside a moment ago.
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(news),
            Err(source) => return Err(error(source)),
        };
        let about = file.metadata().map_err(error)?;
        let identity = (about.dev(), about.ino());
        if self.file.is_some_and(|known| known != identity) || about.len() < self.read {
            news.is_another = true;
            (self.read, self.lines, self.header) = (0, 0, None);
        }
        self.file = Some(identity);
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut text)).map_err(error)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in text[..whole].split_inclusive(|&byte| byte == b'\n') {
            match self.header {
                None => self.header = Some(parse_header(&self.path, self.lines + 1, line)?),
                Some(_) if is_header(line) => {
                    // A new era begins: earlier trials no longer count.
                    self.header = Some(parse_header(&self.path, self.lines + 1, line)?);
                    (news.is_another, news.trials) = (true, Vec::new());
                }
                Some(_) => news.trials.push(parse(&self.path, self.lines + 1, line)?),
            }
            self.lines += 1;
            self.read += line.len() as u64;
        }
        Ok(news)
    }
}

/// Returns true if a running search holds the journal at `path`. The lock is released however the search ends. Returns `None` if
/// this cannot be known, as on some network file systems.
///
/// If a search begins at the same moment, it waits until this check is over.
pub fn is_in_use(path: &Path) -> Option<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return (error.kind() == io::ErrorKind::NotFound).then_some(false),
    };
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock(); // see `Journal::drop`
            Some(false)
        }
        Err(TryLockError::WouldBlock) => Some(true),
        Err(TryLockError::Error(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::model::{Failure, Outcome, Parameter, Purpose, Space, Trial};
    use crate::search::journal::{Fingerprint, Journal};

    fn space() -> Space {
        Space::new([Parameter::range("x", 1, 9, 1)]).unwrap()
    }

    fn open(path: &Path) -> Journal {
        let nothing = || serde_json::Value::Null;
        let fingerprint =
            Fingerprint { device: String::new(), driver: String::new(), command: nothing(), space: nothing() };
        Journal::open(path, &Header::new(fingerprint), &space()).unwrap().0
    }

    fn trial(number: u32) -> Trial {
        Trial {
            elapsed: std::time::Duration::from_secs(1),
            ..Trial::new(
                number,
                Purpose::Search,
                space().config(number.into()).unwrap(),
                Outcome::Crashed(Failure::new("why")),
            )
        }
    }

    #[test]
    fn lines_come_once_each_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut follower = Follower::new(&path);
        assert!(follower.news().unwrap().trials.is_empty() && follower.header().is_none());
        let mut journal = open(&path);
        assert!(follower.news().unwrap().trials.is_empty());
        assert!(follower.header().is_some());
        for number in 1..4 {
            journal.record(&trial(number), &space(), None, None).unwrap();
            let news = follower.news().unwrap();
            assert_eq!(news.trials.iter().map(|line| line.trial).collect::<Vec<_>>(), [number]);
            assert!(!news.is_another && follower.news().unwrap().trials.is_empty());
        }
    }

    #[test]
    fn a_line_that_grows_byte_by_byte_comes_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (path, torn) = (folder.path().join("journal.jsonl"), folder.path().join("torn.jsonl"));
        let mut journal = open(&path);
        journal.record(&trial(1), &space(), None, None).unwrap();
        let mut follower = Follower::new(&torn);
        let mut file = File::create(&torn).unwrap();
        let mut seen = 0;
        for byte in std::fs::read(&path).unwrap() {
            file.write_all(&[byte]).unwrap();
            seen += follower.news().unwrap().trials.len();
        }
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_journal_that_was_started_over_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut follower = Follower::new(&path);
        let mut journal = open(&path);
        journal.record(&trial(1), &space(), None, None).unwrap();
        follower.news().unwrap();
        drop(journal);
        std::fs::rename(&path, folder.path().join("old.jsonl")).unwrap();
        assert!(!follower.news().unwrap().is_another, "it is gone, not another");
        let mut journal = open(&path);
        journal.record(&trial(7), &space(), None, None).unwrap();
        let news = follower.news().unwrap();
        assert!(news.is_another && news.trials.len() == 1 && news.trials[0].trial == 7);
    }

    #[test]
    fn damage_is_an_error_that_names_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        drop(open(&path));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text + "{}\n").unwrap();
        assert!(matches!(Follower::new(&path).news(), Err(JournalError::Damaged { line: 2, .. })));
        std::fs::write(&path, "\u{0}binary\n").unwrap();
        assert!(matches!(Follower::new(&path).news(), Err(JournalError::Damaged { line: 1, .. })));
    }

    #[test]
    fn a_journal_is_in_use_as_long_as_its_search_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        assert_eq!(is_in_use(&path), Some(false));
        let journal = open(&path);
        assert_eq!(is_in_use(&path), Some(true));
        drop(journal);
        assert_eq!(is_in_use(&path), Some(false));
    }
}
