//! The file that keeps a search: append-only JSON lines with one writer, and repaired if the last line is torn.
//!
//! The first line is the [`Header`]; each further line is one finished trial with names and values, so the file can be
//! read without the spec. A later line with the number of an earlier trial replaces it. A further header begins a new era, and
//! earlier trials no longer count. A line is in the file and on the disk before a trial is announced.

mod conditions;
mod eras;
mod follow;
mod guard;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::model::{LocateError, Space, Trial};

pub use crate::model::{Line, settings_of};
pub use conditions::{Conditions, Interpreter};
pub use eras::OlderEras;
pub use follow::{Follower, News, is_in_use};

/// The version of the file format that this program writes and reads.
pub const FORMAT: u32 = 2;

/// The things that must be equal for trials to be comparable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The device that trains.
    pub device: String,
    /// The device's driver.
    pub driver: String,
    /// The job before settings are filled in: command, environment, folder and files.
    pub command: serde_json::Value,
    /// Parameters, derived values and rules.
    pub space: serde_json::Value,
}

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub format: u32,
    /// The program that began the journal.
    pub gputune_version: String,
    /// The conditions that make trials comparable.
    pub fingerprint: Fingerprint,
    /// Further conditions of the trials.
    #[serde(default)]
    pub conditions: Conditions,
    /// The earlier studies that the search learns from; its proposals depend on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_start: Vec<WarmStart>,
    /// The eras before this one; not part of the line itself.
    #[serde(skip)]
    pub older: OlderEras,
}

/// An earlier study that a search learns from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmStart {
    /// Its folder or journal, as it was given.
    pub place: String,
    /// The trials in it.
    pub trials: usize,
    /// A digest that shows whether the trials are still the same.
    pub digest: String,
}

impl Header {
    /// The header that this program writes.
    pub fn new(fingerprint: Fingerprint) -> Self {
        let gputune_version = env!("CARGO_PKG_VERSION").to_owned();
        Self {
            format: FORMAT,
            gputune_version,
            fingerprint,
            conditions: Conditions::default(),
            warm_start: Vec::new(),
            older: OlderEras::default(),
        }
    }

    /// Sets the further conditions of the trials.
    #[must_use]
    pub fn conditions(mut self, conditions: Conditions) -> Self {
        self.conditions = conditions;
        self
    }

    /// Sets the earlier studies that the search learns from.
    #[must_use]
    pub fn warm_start(mut self, studies: Vec<WarmStart>) -> Self {
        self.warm_start = studies;
        self
    }

    /// Returns the differences between this command and the command of another search, one sentence each.
    pub fn command_differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        json_differences("command", &self.fingerprint.command, &other.fingerprint.command, &mut found);
        found
    }

    fn differences(&self, now: &Self) -> Vec<String> {
        let digests = |header: &Self| -> Vec<String> { header.warm_start.iter().map(|w| w.digest.clone()).collect() };
        let shown = |header: &Self| -> String {
            let each = header.warm_start.iter().map(|study| format!("{} trials of {}", study.trials, study.place));
            let all = each.collect::<Vec<_>>().join(", ");
            if all.is_empty() { "nothing".to_owned() } else { all }
        };
        let mut found = self.fingerprint.differences(&now.fingerprint);
        found.extend(self.conditions.differences(&now.conditions));
        if digests(self) != digests(now) {
            let (then, now) = (shown(self), shown(now));
            // A study may have as many trials, but different ones.
            let other = if then == now { "others of " } else { "" };
            found.push(format!("it started from {then} and is to start from {other}{now}"));
        }
        found
    }
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("cannot {action} the journal {}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process writes to it.
    #[error("another gputune is using {}", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A line that is not the last one cannot be read.
    #[error("line {line} of {} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// It was written in a format that this version of the program does not know.
    #[error("{} has format {found}, and this gputune reads format {FORMAT}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Its trials were made under other conditions.
    #[error("{} was made under other conditions: {}", path.display(), differences.join("; "))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The differences, one entry each.
        differences: Vec<String>,
    },
    /// The file was changed while the search ran.
    #[error("{} {how} while the search ran; its trials are in {}", path.display(), kept.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The kind of change.
        how: String,
        /// A file with everything that the journal should contain.
        kept: PathBuf,
    },
    /// A trial's config is not in the space.
    #[error("line {line} of {} has a config that is not in the space", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Why not.
        source: LocateError,
    },
}

/// A journal that is open for writing, and locked as long as it lives.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Its complete lines, from which the file can be restored if it is lost.
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
    /// The number of the last trial of earlier eras; numbering continues from it.
    pub last_number: u32,
    /// Why a new era begins, if one does: the differences, one entry each.
    pub changes: Vec<String>,
    /// The eras before.
    pub older: OlderEras,
}

impl Journal {
    /// Opens the journal at `path`, or creates it with `header`.
    ///
    /// # Errors
    /// It cannot be read or written, or another process has it open. It is damaged before its last line, or its trials were made
    /// under other conditions than `header` has.
    pub fn open(path: &Path, header: &Header, space: &Space) -> Result<(Self, Recovered), JournalError> {
        Self::open_with(path, header, space, false)
    }

    /// Opens the journal like [`open`](Self::open), but other conditions begin a new era.
    ///
    /// # Errors
    /// As for [`open`](Self::open), except for other conditions.
    pub fn open_accepting_changes(
        path: &Path,
        header: &Header,
        space: &Space,
    ) -> Result<(Self, Recovered), JournalError> {
        Self::open_with(path, header, space, true)
    }

    fn open_with(
        path: &Path,
        header: &Header,
        space: &Space,
        accepts_changes: bool,
    ) -> Result<(Self, Recovered), JournalError> {
        let mut journal = Self::lock(path)?;
        let mut text = Vec::new();
        journal.file.read_to_end(&mut text).map_err(|source| journal.error("read", source))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let healed = whole < text.len();
        if healed {
            journal.truncate(whole as u64)?;
        }
        text.truncate(whole);
        journal.text.clone_from(&text);
        let Some(eras) = eras::split(path, &text)? else {
            journal.append(header)?;
            return Ok((journal, Recovered { healed, ..Recovered::default() }));
        };
        let changes = eras.header.differences(header);
        if changes.is_empty() {
            let (last_number, older) = (eras.last_number, eras.header.older);
            let lines = eras::trials(path, &eras.lines)?.into_iter();
            let foreign = |line, source| JournalError::Foreign { path: path.to_owned(), line, source };
            let trials = lines.map(|(at, line)| {
                let trial = line.trial(space).map_err(|source| foreign(at, source))?;
                Ok((trial, line.expected_gain))
            });
            let (trials, expected_gains) = trials.collect::<Result<_, JournalError>>()?;
            return Ok((journal, Recovered { trials, expected_gains, healed, last_number, changes, older }));
        }
        if !accepts_changes {
            return Err(JournalError::Mismatch { path: path.to_owned(), differences: changes });
        }
        let lines = eras::trials(path, &eras.lines)?;
        let OlderEras { eras: count, trials } = eras.header.older;
        let older = OlderEras { eras: count + 1, trials: trials + lines.len() };
        let last_number = lines.iter().map(|(_, line)| line.trial).fold(eras.last_number, u32::max);
        journal.append(header)?;
        Ok((journal, Recovered { healed, last_number, changes, older, ..Recovered::default() }))
    }

    fn lock(path: &Path) -> Result<Self, JournalError> {
        let error = |source| JournalError::Io { action: "open", path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(error)?;
        match lock_patiently(&file) {
            Ok(()) => Ok(Self { path: path.to_owned(), file, text: Vec::new() }),
            Err(TryLockError::WouldBlock) => Err(JournalError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(JournalError::Io { action: "lock", path: path.to_owned(), source }),
        }
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
        let mut text = serde_json::to_vec(line).map_err(|error| self.error("write", error.into()))?;
        text.push(b'\n');
        let len = self.text.len() as u64;
        if let Some(how) = guard::change(&self.path, &self.file, len) {
            return Err(self.rescued(how, &text));
        }
        let written = self
            .file
            .seek(SeekFrom::Start(len))
            .and_then(|_| self.file.write_all(&text))
            .and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // Best effort: a torn line is healed when the journal is opened again.
            let _ = self.file.set_len(len);
            return Err(self.error("write", source));
        }
        self.text.append(&mut text);
        Ok(())
    }

    /// Writes all lines to another file, and returns the error that the journal was changed.
    fn rescued(&self, how: String, line: &[u8]) -> JournalError {
        let whole = [&self.text, line].concat();
        match guard::rescue(&self.path, &whole) {
            Ok(kept) => JournalError::Changed { path: self.path.clone(), how, kept },
            Err(source) => self.error("rescue the trials of", source),
        }
    }

    fn truncate(&mut self, len: u64) -> Result<(), JournalError> {
        self.file.set_len(len).map_err(|source| self.error("heal", source))
    }

    fn error(&self, action: &'static str, source: io::Error) -> JournalError {
        JournalError::Io { action, path: self.path.clone(), source }
    }
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
/// It cannot be read, or has another format. A line before the last is damaged.
pub fn read(path: &Path) -> Result<(Header, Vec<Line>), JournalError> {
    let text =
        std::fs::read(path).map_err(|source| JournalError::Io { action: "read", path: path.to_owned(), source })?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let Some(eras) = eras::split(path, &text[..whole])? else {
        // The journal has no header to read.
        return Err(eras::parse_header(path, 1, &[])
            .err()
            .unwrap_or(JournalError::Format { path: path.to_owned(), found: 0 }));
    };
    let trials = eras::trials(path, &eras.lines)?.into_iter().map(|(_, line)| line).collect();
    Ok((eras.header, trials))
}

fn parse<'l, T: Deserialize<'l>>(path: &Path, line: usize, text: &'l [u8]) -> Result<T, JournalError> {
    serde_json::from_slice(text).map_err(|source| JournalError::Damaged { path: path.to_owned(), line, source })
}

impl Fingerprint {
    fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let texts = [("device", &self.device, &now.device), ("driver", &self.driver, &now.driver)];
        for (what, then, now) in texts {
            if then != now {
                found.push(format!("the {what} was `{then}` and is `{now}`"));
            }
        }
        json_differences("command", &self.command, &now.command, &mut found);
        json_differences("space", &self.space, &now.space, &mut found);
        found
    }
}

/// Collects the innermost entries that differ, with the path to each.
fn json_differences(path: &str, then: &serde_json::Value, now: &serde_json::Value, found: &mut Vec<String>) {
    use serde_json::Value::{Null, Object};
    match (then, now) {
        (Object(a), Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let path = format!("{path}.{key}");
                json_differences(&path, a.get(key).unwrap_or(&Null), b.get(key).unwrap_or(&Null), found);
            }
        }
        _ if then == now => {}
        (Null, now) => found.push(format!("{path} was absent and is {now}")),
        (then, Null) => found.push(format!("{path} was {then} and is absent")),
        (then, now) => found.push(format!("{path} was {then} and is {now}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Failure, Outcome, Parameter, Purpose};

    fn space() -> Space {
        Space::new([Parameter::values("x", [1, 2, 3])]).unwrap()
    }

    fn header(command: &str) -> Header {
        Header::new(Fingerprint {
            device: "cpu".to_owned(),
            driver: "none".to_owned(),
            command: serde_json::json!({ "argv": command }),
            space: serde_json::json!({ "x": "1, 2, 3" }),
        })
    }

    fn trial(space: &Space, number: u32) -> Trial {
        Trial {
            elapsed: Duration::from_millis(1500),
            ..Trial::new(
                number,
                Purpose::Search,
                space.config(u128::from(number) - 1).unwrap(),
                Outcome::Crashed(Failure::new("why")),
            )
        }
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        (folder, path)
    }

    #[test]
    fn what_is_recorded_comes_back() {
        let (_folder, path) = place();
        let space = space();
        let (mut journal, recovered) = Journal::open(&path, &header("a"), &space).unwrap();
        assert!(recovered.trials.is_empty());
        journal.record(&trial(&space, 1), &space, None, None).unwrap();
        journal.record(&trial(&space, 2), &space, Some("why"), Some(0.25)).unwrap();
        drop(journal);
        let (_, recovered) = Journal::open(&path, &header("a"), &space).unwrap();
        assert_eq!(recovered.trials, [trial(&space, 1), trial(&space, 2)]);
        assert_eq!(recovered.expected_gains, [None, Some(0.25)]);
        assert!(!recovered.healed);
        assert_eq!(read(&path).unwrap().1.len(), 2);
    }

    #[test]
    fn cut_at_any_byte_it_heals_and_keeps_every_whole_line() {
        let (_folder, path) = place();
        let space = space();
        let (mut journal, _) = Journal::open(&path, &header("a"), &space).unwrap();
        journal.record(&trial(&space, 1), &space, None, None).unwrap();
        journal.record(&trial(&space, 2), &space, None, None).unwrap();
        drop(journal);
        let text = std::fs::read(&path).unwrap();
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let whole_lines = text[..cut].iter().filter(|&&byte| byte == b'\n').count();
            let (mut journal, recovered) = Journal::open(&path, &header("a"), &space).unwrap();
            assert_eq!(recovered.trials.len(), whole_lines.saturating_sub(1), "cut at {cut}");
            journal.record(&trial(&space, 3), &space, None, None).unwrap();
            drop(journal);
            let (_, recovered) = Journal::open(&path, &header("a"), &space).unwrap();
            assert_eq!(recovered.trials.last(), Some(&trial(&space, 3)), "cut at {cut}");
        }
    }

    #[test]
    fn another_command_is_refused_with_the_difference() {
        let (_folder, path) = place();
        drop(Journal::open(&path, &header("a"), &space()).unwrap());
        let error = Journal::open(&path, &header("b"), &space()).unwrap_err();
        assert!(error.to_string().ends_with(r#"command.argv was "a" and is "b""#), "{error}");
    }

    #[test]
    fn a_second_writer_is_refused_until_the_first_is_gone() {
        let (_folder, path) = place();
        let first = Journal::open(&path, &header("a"), &space()).unwrap();
        assert!(matches!(Journal::open(&path, &header("a"), &space()), Err(JournalError::Locked { .. })));
        drop(first);
        Journal::open(&path, &header("a"), &space()).unwrap();
    }

    #[test]
    fn damage_before_the_last_line_is_an_error_that_names_the_line() {
        let (_folder, path) = place();
        let space = space();
        let (mut journal, _) = Journal::open(&path, &header("a"), &space).unwrap();
        journal.record(&trial(&space, 1), &space, None, None).unwrap();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"trial\"", "\"trail\"") + "{}\n").unwrap();
        assert!(matches!(Journal::open(&path, &header("a"), &space), Err(JournalError::Damaged { line: 2, .. })));
        std::fs::write(&path, text.replace("\"format\":2", "\"format\":9")).unwrap();
        assert!(matches!(Journal::open(&path, &header("a"), &space), Err(JournalError::Format { found: 9, .. })));
    }
}
