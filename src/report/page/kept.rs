//! Reads the files of each trial in the folder of the search, as far as a page has room for them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::model::{Outcome, Trial};
use crate::probe::{CommandProber, Effort, Timeline};
use crate::report::Subject;
use crate::report::probe::snapshot;
use crate::report::redact::redacted;

/// The most bytes in a page for all logs together, and for a single log; with many trials each log gets less. The limits here are
/// round numbers.
const ALL_LOGS: usize = 2 << 20;
const ONE_LOG: usize = 8 << 10;

/// The most numbers for all timelines together; a number takes about seven bytes.
const ALL_NUMBERS: usize = 250_000;

/// The fewest bytes of a log that are worth showing.
const LEAST_LOG: usize = 400;

/// The stored data of a trial besides its outcome.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    /// The reason why the strategy proposed the trial.
    pub(super) why: Option<String>,
    /// The path of the log, relative to the folder of the search.
    pub(super) log_name: Option<String>,
    /// The path of the allocator's blocks, relative to the folder of the search, if the device's memory ran out.
    pub(super) snapshot: Option<String>,
    /// The last lines of the log.
    pub(super) log: Option<String>,
    /// The timeline of the trial.
    pub(super) timeline: Option<Timeline>,
}

/// Reads the stored data of each trial, by its number. If the page has no room for all, the best trials come first, then failed
/// trials.
pub(super) fn kept(subject: &Subject<'_>) -> BTreeMap<u32, Kept> {
    let Subject { study, best, folder, .. } = *subject;
    let trials = study.history.trials();
    let whys = subject.lines.iter().map(|line| (line.trial, Kept { why: line.why.clone(), ..Kept::default() }));
    let mut kept: BTreeMap<u32, Kept> = whys.collect();
    let each = (ALL_LOGS / trials.len().max(1)).clamp(LEAST_LOG, ONE_LOG);
    let (mut room, mut numbers) = (ALL_LOGS, ALL_NUMBERS);
    let is_best = |trial: &Trial| best.is_some_and(|best| best.config == study.settings(&trial.config));
    let rank = |trial: &&Trial| match trial.outcome {
        _ if is_best(trial) => 0,
        Outcome::Measured(_) => 2,
        _ => 1,
    };
    let mut order: Vec<&Trial> = trials.iter().map(AsRef::as_ref).collect();
    order.sort_by_key(rank);
    for trial in order {
        if numbers > 0
            && let Some(timeline) = Timeline::read(folder, trial.number)
        {
            numbers = numbers.saturating_sub(timeline.numbers());
            kept.entry(trial.number).or_default().timeline = Some(timeline);
        }
        let log = CommandProber::log_name(trial.number, Effort::Probe);
        if let Some(path) = snapshot(trial, &folder.join(&log)) {
            let path = Path::new(&path).strip_prefix(folder).unwrap_or(Path::new(&path)).display().to_string();
            kept.entry(trial.number).or_default().snapshot = Some(path);
        }
        let Some(tail) = tail(&folder.join(&log), each.min(room)) else { continue };
        room -= tail.len().min(room);
        let entry = kept.entry(trial.number).or_default();
        entry.log_name = Some(log.display().to_string());
        entry.log = (!tail.is_empty()).then(|| redacted(&tail));
    }
    kept
}

/// Returns the last complete lines of a file, in at most `most` bytes, with invalid UTF-8 replaced; `None` if the file does not
/// exist.
fn tail(path: &Path, most: usize) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let from = length.saturating_sub(most as u64);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).ok()?;
    let begin = if from == 0 { 0 } else { bytes.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1) };
    let text = String::from_utf8_lossy(bytes.get(begin..).unwrap_or_default()).into_owned();
    // A replaced byte becomes three bytes.
    let over = text.len().saturating_sub(most);
    let cut = (over..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    Some(text.get(cut..).unwrap_or_default().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::tail;

    #[test]
    fn the_tail_of_a_log_is_bounded_whatever_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        assert_eq!(tail(&path, 100), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(tail(&path, 100).as_deref(), Some(""));
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&path, 100).as_deref(), Some("one\ntwo\nthree"));
        assert_eq!(tail(&path, 8).as_deref(), Some("three"));
        std::fs::write(&path, vec![0xff; 10 << 20]).unwrap();
        let text = tail(&path, 1000).unwrap();
        assert!(text.len() <= 1000 && text.chars().all(|c| c == '\u{fffd}'), "{}", text.len());
    }
}
