//! Reads a journal while another process writes to it.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::eras::{is_header, parse_header};
use super::{Header, JournalError, Line, failed, parse, whole_lines};

/// The news in a journal since the last call.
#[derive(Debug, Default)]
pub struct News {
    /// True if the file is a different journal or began a new era. The trials that were read before then no longer
    /// count.
    pub is_another: bool,
    /// Trials that have not been returned yet, oldest first.
    pub trials: Vec<Line>,
}

/// Reads the lines of a journal as they are written. It does not lock the journal, which need not exist yet.
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

    /// Returns the header of the journal's last era; `None` before it was read.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Returns the trials written since the last call. An incomplete last line is left for the next call.
    ///
    /// # Errors
    /// The journal cannot be read, has another format, or a whole line of it is damaged.
    pub fn news(&mut self) -> Result<News, JournalError> {
        let mut news = News::default();
        let error = failed("read", &self.path);
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            // The journal does not exist yet, or was moved aside a moment ago.
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(news),
            Err(source) => return Err(error(source)),
        };
        let about = file.metadata().map_err(&error)?;
        let identity = (about.dev(), about.ino());
        if self.file.is_some_and(|known| known != identity) || about.len() < self.read {
            news.is_another = true;
            (self.read, self.lines, self.header) = (0, 0, None);
        }
        self.file = Some(identity);
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut text)).map_err(&error)?;
        for line in whole_lines(&text).split_inclusive(|&byte| byte == b'\n') {
            if self.header.is_some() && !is_header(line) {
                news.trials.push(parse(&self.path, self.lines + 1, line)?);
            } else {
                let header = parse_header(&self.path, self.lines + 1, line)?;
                // In a new era, earlier trials no longer count.
                if self.header.replace(header).is_some() {
                    (news.is_another, news.trials) = (true, Vec::new());
                }
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
    use crate::search::journal::tests::{journal, place, space, trial};

    #[test]
    fn lines_come_once_each_as_they_are_written() {
        let (_folder, path) = place();
        let mut follower = Follower::new(&path);
        assert!(follower.news().unwrap().trials.is_empty() && follower.header().is_none());
        let mut journal = journal(&path, &[]);
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
        let (folder, path) = place();
        let torn = folder.path().join("torn.jsonl");
        drop(journal(&path, &[1]));
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
        let (folder, path) = place();
        let mut follower = Follower::new(&path);
        drop(journal(&path, &[1]));
        follower.news().unwrap();
        std::fs::rename(&path, folder.path().join("old.jsonl")).unwrap();
        assert!(!follower.news().unwrap().is_another, "it is gone, not another");
        drop(journal(&path, &[7]));
        let news = follower.news().unwrap();
        assert!(news.is_another && news.trials.len() == 1 && news.trials[0].trial == 7);
    }

    #[test]
    fn damage_is_an_error_that_names_the_line() {
        let (_folder, path) = place();
        drop(journal(&path, &[]));
        let text = std::fs::read_to_string(&path).unwrap();
        for (text, damaged) in [(text + "{}\n", 2), ("\u{0}binary\n".to_owned(), 1)] {
            std::fs::write(&path, text).unwrap();
            let error = Follower::new(&path).news().unwrap_err();
            assert!(matches!(error, JournalError::Damaged(_, line, _) if line == damaged), "{error}");
        }
    }
}
