//! The file that keeps a search: JSON lines that one process appends. If the last line is incomplete, it is removed
//! when the file is opened.
//!
//! The first line is the [`Header`]; each further line is one finished trial with names and values, so the file can be
//! read without the spec. A later line with the number of an earlier trial replaces it. A further header begins a new era, and
//! earlier trials no longer count. A line is in the file and on the disk before a trial is announced.

mod conditions;
mod eras;
mod follow;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::model::{LocateError, Space, Trial};

pub use crate::model::{Line, settings_of};
pub use conditions::{Conditions, Fingerprint, Header, Interpreter, OlderEras, WarmStart};
pub use follow::{Follower, News, is_in_use};

/// The version of the file format that this program writes and reads.
pub const FORMAT: u32 = 2;

/// The error for a journal that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The journal cannot be read or written: the action that failed, and the file.
    #[error("cannot {0} the journal {path}", path = .1.display())]
    Io(&'static str, PathBuf, #[source] io::Error),
    /// Another process has the journal open for writing.
    #[error("another gputune is using {}", .0.display())]
    Locked(PathBuf),
    /// A line that is not the last one cannot be read: the file, and the line counted from 1.
    #[error("line {1} of {path} is damaged", path = .0.display())]
    Damaged(PathBuf, usize, #[source] serde_json::Error),
    /// The journal was written in a format that this version of gputune does not read: the file, and its format.
    #[error("{path} has format {1}, and this gputune reads format {FORMAT}", path = .0.display())]
    Format(PathBuf, u32),
    /// The journal's trials were measured under other conditions. Each difference is one entry.
    #[error("{} was made under other conditions: {}", .0.display(), .1.join("; "))]
    Mismatch(PathBuf, Vec<String>),
    /// The file was changed while the search ran: the file, the kind of change, and a file with everything that the journal should
    /// contain.
    #[error("{path} {1} while the search ran; its trials are in {kept}", path = .0.display(), kept = .2.display())]
    Changed(PathBuf, String, PathBuf),
    /// A trial's config is not in the space: the file, and the line counted from 1.
    #[error("line {1} of {path} has a config that is not in the space", path = .0.display())]
    Foreign(PathBuf, usize, #[source] LocateError),
}

/// A journal that is open for writing, and locked as long as it lives.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The complete lines of the file, to restore the file if it is lost.
    text: Vec<u8>,
}

impl Drop for Journal {
    /// Unlocks explicitly: closing the file does not release the lock while a child that another thread forked also has the file
    /// open (flock(2)).
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// The contents of a journal when it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The finished trials, oldest first.
    pub trials: Vec<Trial>,
    /// For each trial, the gain that the strategy expected, as a share of the best at that time, if it reported one.
    pub expected_gains: Vec<Option<f64>>,
    /// True if a partly written last line was dropped.
    pub healed: bool,
    /// The highest trial number of earlier eras; numbering continues from it.
    pub last_number: u32,
    /// The differences in conditions that began a new era, one entry each; empty if the era continues.
    pub changes: Vec<String>,
    /// The number of earlier eras, and of their trials.
    pub older: OlderEras,
}

impl Journal {
    /// Opens the journal at `path`, or creates it with `header`.
    ///
    /// # Errors
    /// The journal cannot be read or written, or another process has it open. It is damaged before its last line, or
    /// its trials were measured under other conditions than those in `header`.
    pub fn open(path: &Path, header: &Header, space: &Space) -> Result<(Self, Recovered), JournalError> {
        Self::open_with(path, header, space, false)
    }

    /// Opens the journal like [`open`](Self::open). If it accepts changes, other conditions begin a new era.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with(
        path: &Path,
        header: &Header,
        space: &Space,
        accepts_changes: bool,
    ) -> Result<(Self, Recovered), JournalError> {
        let mut journal = Self::lock(path)?;
        let mut text = Vec::new();
        journal.file.read_to_end(&mut text).map_err(failed("read", path))?;
        let torn = text.split_off(whole_lines(&text).len());
        let healed = !torn.is_empty();
        journal.text.clone_from(&text);
        let Some(eras) = eras::split(path, &text)? else {
            eras::check_torn_header(path, &torn)?;
            journal.heal()?;
            journal.append(header)?;
            return Ok((journal, Recovered { healed, ..Recovered::default() }));
        };
        let changes = eras.header.differences(header);
        if changes.is_empty() {
            let (last_number, older) = (eras.last_number, eras.header.older);
            let lines = eras::trials(path, &eras.lines)?.into_iter();
            let foreign = |line, source| JournalError::Foreign(path.to_owned(), line, source);
            let trials = lines.map(|(at, line)| {
                let trial = line.trial(space).map_err(|source| foreign(at, source))?;
                Ok((trial, line.expected_gain))
            });
            let (trials, expected_gains) = trials.collect::<Result<_, JournalError>>()?;
            journal.heal()?;
            return Ok((journal, Recovered { trials, expected_gains, healed, last_number, changes, older }));
        }
        if !accepts_changes {
            return Err(JournalError::Mismatch(path.to_owned(), changes));
        }
        let lines = eras::trials(path, &eras.lines)?;
        let OlderEras { eras: count, trials } = eras.header.older;
        let older = OlderEras { eras: count + 1, trials: trials + lines.len() };
        let last_number = lines.iter().map(|(_, line)| line.trial).fold(eras.last_number, u32::max);
        journal.heal()?;
        journal.append(header)?;
        Ok((journal, Recovered { healed, last_number, changes, older, ..Recovered::default() }))
    }

    fn lock(path: &Path) -> Result<Self, JournalError> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed("open", path))?;
        match lock_patiently(&file) {
            Ok(()) => Ok(Self { path: path.to_owned(), file, text: Vec::new() }),
            Err(TryLockError::WouldBlock) => Err(JournalError::Locked(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed("lock", path)(source)),
        }
    }

    /// Removes an incomplete last line from the file. A file that is refused stays unchanged, so this comes after all checks.
    fn heal(&self) -> Result<(), JournalError> {
        let whole = self.text.len() as u64;
        let is_torn = self.file.metadata().map_err(failed("read", &self.path))?.len() > whole;
        if is_torn { self.file.set_len(whole).map_err(failed("heal", &self.path)) } else { Ok(()) }
    }

    /// Adds a finished trial, with the reason for its proposal and its expected gain. Waits until the trial is on the disk.
    ///
    /// # Errors
    /// The line cannot be written; the journal then keeps its earlier contents.
    pub fn record(
        &mut self,
        trial: &Trial,
        space: &Space,
        why: Option<&str>,
        expected_gain: Option<f64>,
    ) -> Result<(), JournalError> {
        self.append(&Line {
            trial: trial.number,
            purpose: trial.purpose,
            config: settings_of(trial, space),
            as_it_is: trial.config.is_as_it_is().then(|| space.settings(&trial.config).chosen(space)),
            why: why.map(str::to_owned),
            expected_gain,
            elapsed_s: trial.elapsed.as_secs_f64(),
            ended_at: trial.ended_at,
            slot: trial.slot.clone(),
            outcome: trial.outcome.clone(),
        })
    }

    fn append(&mut self, line: &impl Serialize) -> Result<(), JournalError> {
        let mut text = serde_json::to_vec(line).map_err(|error| failed("write", &self.path)(error.into()))?;
        text.push(b'\n');
        let len = self.text.len() as u64;
        if let Some(how) = change(&self.path, &self.file, len) {
            let kept = rescue(&self.path, &[&self.text[..], &text].concat());
            let kept = kept.map_err(failed("rescue the trials of", &self.path))?;
            return Err(JournalError::Changed(self.path.clone(), how, kept));
        }
        let written = self
            .file
            .seek(SeekFrom::Start(len))
            .and_then(|_| self.file.write_all(&text))
            .and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // Best effort: an incomplete line is removed when the journal is opened again.
            let _ = self.file.set_len(len);
            return Err(failed("write", &self.path)(source));
        }
        self.text.append(&mut text);
        Ok(())
    }
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> JournalError + use<> {
    let path = path.to_owned();
    move |source| JournalError::Io(action, path.clone(), source)
}

fn whole_lines(text: &[u8]) -> &[u8] {
    &text[..text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)]
}

/// Locks a file. It retries, because a process that only checks whether the file is in use holds the lock for a moment.
fn lock_patiently(file: &File) -> Result<(), TryLockError> {
    const TRIES: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(20);
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    file.try_lock()
}

/// Seconds of Unix time, to the millisecond.
pub(super) fn unix_time() -> Option<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some((now * 1e3).round() / 1e3)
}

/// Reads the trials of a journal's last era without its space and without locking it.
///
/// # Errors
/// The journal cannot be read or has another format, or a line before the last is damaged.
pub fn read(path: &Path) -> Result<(Header, Vec<Line>), JournalError> {
    let text = std::fs::read(path).map_err(failed("read", path))?;
    // An empty journal counts as damaged.
    let damaged = |source| JournalError::Damaged(path.to_owned(), 1, source);
    let eras = eras::split(path, whole_lines(&text))?;
    let eras = eras.ok_or_else(|| damaged(serde::de::Error::custom("it has no header")))?;
    let trials = eras::trials(path, &eras.lines)?.into_iter().map(|(_, line)| line).collect();
    Ok((eras.header, trials))
}

fn parse<'l, T: Deserialize<'l>>(path: &Path, line: usize, text: &'l [u8]) -> Result<T, JournalError> {
    serde_json::from_slice(text).map_err(|source| JournalError::Damaged(path.to_owned(), line, source))
}

/// Returns what happened to an open journal that should have `len` bytes, in words that follow its name in a message.
/// Returns `None` if nothing happened, or if the file system does not answer.
fn change(path: &Path, file: &File, len: u64) -> Option<String> {
    let own = file.metadata().ok()?;
    match std::fs::metadata(path) {
        // The link in `/proc/self/fd` shows the current path of a file that was moved (proc(5)).
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
                Ok(place) if own.nlink() > 0 => format!("was moved to {}", place.display()),
                _ => "was deleted".to_owned(),
            })
        }
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

/// Writes the expected contents into a new file next to the journal, or else into the folder for temporary files.
fn rescue(path: &Path, text: &[u8]) -> io::Result<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::tests::{crashed, numbers};

    pub(super) fn space() -> Space {
        numbers(1, 9)
    }

    fn header(command: &str) -> Header {
        Header::new(Fingerprint {
            device: "cpu".to_owned(),
            driver: "none".to_owned(),
            command: serde_json::json!({ "argv": command }),
            space: serde_json::json!({ "x": "1 to 9" }),
        })
    }

    pub(super) fn trial(number: u32) -> Trial {
        let config = space().config(number.into()).unwrap();
        let elapsed = Duration::from_millis(1500);
        Trial { elapsed, ..crate::search::tests::trial(number, config, crashed()) }
    }

    pub(super) fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        (folder, path)
    }

    fn reopened(path: &Path) -> Result<(Journal, Recovered), JournalError> {
        Journal::open(path, &header("a"), &space())
    }

    pub(super) fn journal(path: &Path, numbers: &[u32]) -> Journal {
        let (mut journal, _) = reopened(path).unwrap();
        numbers.iter().for_each(|&number| journal.record(&trial(number), &space(), None, None).unwrap());
        journal
    }

    #[test]
    fn cut_at_any_byte_it_heals_and_keeps_every_whole_line() {
        let (_folder, path) = place();
        drop(journal(&path, &[1, 2]));
        let text = std::fs::read(&path).unwrap();
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let whole_lines = text[..cut].iter().filter(|&&byte| byte == b'\n').count();
            let (mut journal, recovered) = reopened(&path).unwrap();
            assert_eq!(recovered.trials.len(), whole_lines.saturating_sub(1), "cut at {cut}");
            journal.record(&trial(3), &space(), None, None).unwrap();
            drop(journal);
            let (_, recovered) = reopened(&path).unwrap();
            assert_eq!(recovered.trials.last(), Some(&trial(3)), "cut at {cut}");
        }
    }

    #[test]
    fn damage_before_the_last_line_is_an_error_that_names_the_line() {
        let (_folder, path) = place();
        drop(journal(&path, &[1]));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"trial\"", "\"trail\"") + "{}\n").unwrap();
        assert!(matches!(reopened(&path), Err(JournalError::Damaged(_, 2, _))));
        std::fs::write(&path, text.replace("\"format\":2", "\"format\":9")).unwrap();
        assert!(matches!(reopened(&path), Err(JournalError::Format(_, 9))));
    }

    #[test]
    fn a_file_that_is_refused_stays_unchanged_with_its_incomplete_last_line() {
        let (_folder, path) = place();
        drop(journal(&path, &[1]));
        let text = std::fs::read_to_string(&path).unwrap();
        let newer = text.replace("\"format\":2", "\"format\":9");
        let first = newer.lines().next().unwrap().to_owned();
        let damaged = text.replace("\"trial\"", "\"trail\"");
        let notes = "my notes".to_owned();
        let refused = [newer + "{\"tri", first, damaged + "{\"tri", "a,b\n1,".to_owned(), notes, "{\"tri".to_owned()];
        for text in refused {
            std::fs::write(&path, &text).unwrap();
            let error = reopened(&path).unwrap_err();
            assert!(matches!(error, JournalError::Format { .. } | JournalError::Damaged { .. }), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let torn = text + "{\"tri";
        std::fs::write(&path, &torn).unwrap();
        let other = Journal::open(&path, &header("b"), &space());
        assert!(matches!(other, Err(JournalError::Mismatch(..))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), torn);
        let other = Journal::open_with(&path, &header("b"), &space(), true);
        assert!(other.unwrap().1.healed);
    }
}
