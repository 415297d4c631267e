//! `report.html` of a search: the study, and what its folder keeps of each trial.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use gputune::emit::shell_word;
use gputune::journal;
use gputune::outcome::Outcome;
use gputune::probe::{CommandProber, Effort};
use gputune::report::{self, BestReport, Kept, PageInput};
use gputune::study::Study;
use gputune::telemetry::Device;
use gputune::trial::Trial;

use super::exit::Failed;
use super::folder;

/// The most of all logs together that a page has, in bytes, and of one; with many trials each has less.
const ALL_LOGS: usize = 2 << 20;
const ONE_LOG: usize = 8 << 10;
/// Less of a log would say nothing.
const LEAST_LOG: usize = 400;

/// Writes the page into the folder of a search.
pub(super) fn write(
    study: &Study,
    device: &Device,
    name: &str,
    best: Option<&BestReport>,
    out: &Path,
) -> Result<(), Failed> {
    folder::write(out, folder::PAGE, &page(study, device, name, best, out))
}

/// The page of a search that is kept in a folder.
pub(super) fn page(study: &Study, device: &Device, name: &str, best: Option<&BestReport>, out: &Path) -> String {
    let kept = kept(study, best, out);
    let reproduce = reproduce(name, out);
    report::page(&PageInput { study, device, name, best, kept: &kept, reproduce: &reproduce })
}

/// How to get the same again.
fn reproduce(name: &str, out: &Path) -> Vec<(String, String)> {
    let (spec, folder) = (shell_word(name), shell_word(&out.display().to_string()));
    let mut steps = vec![
        ("The same search, started over".to_owned(), format!("gputune search {spec} --out {folder} --fresh")),
        ("The best config again, in another form".to_owned(), format!("gputune emit {folder} --format json")),
    ];
    if let Ok(text) = std::fs::read_to_string(out.join(folder::SPEC)) {
        steps.push(("The spec as it was".to_owned(), text));
    }
    steps
}

/// What is kept of each trial. Of what there is no room for, what failed and what is best goes first.
fn kept(study: &Study, best: Option<&BestReport>, out: &Path) -> BTreeMap<u32, Kept> {
    let trials = study.history.trials();
    let mut kept: BTreeMap<u32, Kept> = BTreeMap::new();
    if let Ok((_, lines)) = journal::read(&out.join(folder::JOURNAL)) {
        for line in lines {
            kept.insert(line.trial, Kept { why: line.why, ..Kept::default() });
        }
    }
    let each = (ALL_LOGS / trials.len().max(1)).clamp(LEAST_LOG, ONE_LOG);
    let mut room = ALL_LOGS;
    let is_best = |trial: &Trial| best.is_some_and(|best| best.config == study.settings(&trial.config));
    let rank = |trial: &&Trial| match trial.outcome {
        _ if is_best(trial) => 0,
        Outcome::Measured(_) | Outcome::Pruned(_) => 2,
        _ => 1,
    };
    let mut order: Vec<&Trial> = trials.iter().collect();
    order.sort_by_key(rank);
    for trial in order {
        let log = CommandProber::log_name(trial.number, Effort::Probe);
        let entry = kept.entry(trial.number).or_default();
        let Some(tail) = tail(&out.join(&log), each.min(room)) else { continue };
        room -= tail.len().min(room);
        entry.log_name = Some(log.display().to_string());
        entry.log = (!tail.is_empty()).then_some(tail);
    }
    kept
}

/// The last whole lines of a file, in no more than so many bytes; what is no UTF-8 is replaced. None where there is no file.
fn tail(path: &Path, most: usize) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let from = length.saturating_sub(most as u64);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).ok()?;
    let begin = if from == 0 { 0 } else { bytes.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1) };
    let text = String::from_utf8_lossy(bytes.get(begin..).unwrap_or_default()).into_owned();
    // A replaced byte takes three.
    let over = text.len().saturating_sub(most);
    let cut = (over..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    Some(text.get(cut..).unwrap_or_default().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
