//! Collects everything that the page shows about a trial, also from its files if the page has room for them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;

use super::table::described;
use crate::model::quantity::{show_bytes, show_number, show_seconds};
use crate::model::{METRICS, Measurement, Outcome, Readings, Trial, Unit};
use crate::probe::{CommandProber, Effort, Timeline};
use crate::report::Subject;
use crate::report::care::left_out;
use crate::report::gpus::{MemoryParts, gpu_lines};
use crate::report::probe::{HOW_TO_OPEN, snapshot};
use crate::report::redact::redacted;
use crate::report::row::{shown_estimate, shown_numerics};
use crate::search::{self, Study};

#[derive(Debug, Default, Serialize)]
pub(super) struct Detail {
    /// Labels, each with a text of one or more lines.
    facts: Vec<(String, String)>,
    /// The path of the trial's log, relative to the folder of the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Timeline>,
}

pub(super) fn details(study: &Study, mut kept: BTreeMap<u32, Kept>) -> BTreeMap<u32, Detail> {
    let trials = study.history.trials().iter();
    trials.map(|trial| (trial.number, detail(trial, kept.remove(&trial.number).unwrap_or_default()))).collect()
}

fn detail(trial: &Trial, kept: Kept) -> Detail {
    let mut facts = Facts::default();
    facts.add_known("proposed for", kept.why.as_ref());
    facts.add_known("ran in", trial.slot.as_ref().map(described));
    if let Some(failure) = trial.outcome.failure() {
        facts.add("why it failed", &redacted(&failure.reason));
        facts.add_known("memory snapshot", kept.snapshot.map(|path| format!("{path}; {HOW_TO_OPEN}")));
        // The log already has these lines.
        if kept.log.is_none() && !failure.last_lines.is_empty() {
            facts.add("last lines", &redacted(&failure.last_lines.join("\n")));
        }
    }
    if let Some(measurement) = trial.outcome.measurement() {
        measured(measurement, &mut facts);
    }
    let Kept { log_name, log, timeline, .. } = kept;
    Detail { facts: facts.0, log_name, log: log.map(|log| plain(&log)), timeline }
}

#[derive(Default)]
struct Facts(Vec<(String, String)>);

impl Facts {
    fn add(&mut self, label: &str, text: &str) {
        self.0.push((label.to_owned(), plain(text)));
    }

    fn add_known(&mut self, label: &str, text: Option<impl AsRef<str>>) {
        text.into_iter().for_each(|text| self.add(label, text.as_ref()));
    }
}

fn measured(m: &Measurement, facts: &mut Facts) {
    if let Some(throughput) = m.throughput {
        facts.add("throughput", &shown_estimate(throughput, &m.unit));
        if let (Some(low), Some(high)) = (throughput.low, throughput.high) {
            facts.add("95 % interval", &format!("{} to {} {}", show_number(low), show_number(high), m.unit));
        }
    }
    let steps = format!("{} measured, {} of warm-up before them", m.timing.steps, m.timing.warmup_steps);
    facts.add("steps", &steps);
    facts.add_known("step time", m.timing.step_seconds.map(show_seconds));
    m.phase_seconds.iter().for_each(|(phase, seconds)| facts.add(phase, &show_seconds(*seconds)));
    let of = m.memory.capacity_bytes.map(|bytes| format!(" of {}", show_bytes(bytes))).unwrap_or_default();
    facts.add_known("peak memory", m.memory.peak_bytes.map(|peak| format!("{}{of}", show_bytes(peak))));
    facts.add_known("parts of memory", MemoryParts::of(m).map(|parts| parts.words()));
    m.metrics.iter().for_each(|(name, number)| facts.add(name, &show_number(*number)));
    facts.add_known("left out", Some(left_out(Some(m))).filter(|words| !words.is_empty()));
    facts.add_known("numerics", m.numerics.as_ref().map(shown_numerics));
    let mut label = "GPU";
    for (name, line) in gpu_lines(&m.machine.gpus) {
        label = if name.is_empty() { label } else { name };
        facts.add(label, &line);
    }
    readings(&m.machine.host, facts);
    facts.add_known("framework", m.framework.as_ref());
}

/// Adds the readings of the host, each under its name.
fn readings(host: &Readings, facts: &mut Facts) {
    for row in METRICS {
        let Some(reading) = host.get(&row.metric) else { continue };
        let value = reading.value;
        let shown = match row.unit {
            Unit::Share => format!("{} %", show_number(value * 100.0)),
            Unit::Bytes => show_bytes(value as u64),
            Unit::BytesPerSecond => format!("{}/s", show_bytes(value as u64)),
            unit => format!("{} {}", show_number(value), unit.words()),
        };
        facts.add(row.label, &shown);
    }
}

/// Returns text without escape sequences (ECMA-48) and other control characters, except line ends and tabs. If a progress bar
/// overwrote a line, its last text is kept.
fn plain(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let last = line.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or("");
        lines.push(without_escapes(last));
    }
    lines.join("\n")
}

fn without_escapes(line: &str) -> String {
    let mut safe = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                // Skip the parameters, then one final character.
                while chars.next_if(|c| matches!(c, '\u{20}'..='\u{3f}')).is_some() {}
                chars.next_if(|c| matches!(c, '\u{40}'..='\u{7e}'));
            }
            '\u{1b}' if chars.peek() == Some(&']') => {
                // Skip a title or a link, up to BEL or ESC \.
                while chars.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}')).is_some() {}
                if chars.next() == Some('\u{1b}') {
                    chars.next_if_eq(&'\\');
                }
            }
            '\t' => safe.push(c),
            // Marks that reverse the writing direction could disguise a text (CVE-2021-42574).
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c if c.is_control() => {}
            c => safe.push(c),
        }
    }
    safe
}

/// The most bytes in a page for all logs together, and for a single log; with many trials, each log gets less. These
/// limits and the next two are round numbers.
const ALL_LOGS: usize = 2 << 20;
const ONE_LOG: usize = 8 << 10;
/// The most numbers for all timelines together; a number takes about seven bytes.
const ALL_NUMBERS: usize = 250_000;
/// The fewest bytes of a log that are worth showing.
const LEAST_LOG: usize = 400;
/// The bytes in front of a log's last lines that are also searched for secrets: more than most tokens have.
const MARGIN: usize = 4 << 10;

/// The stored data of a trial besides its outcome.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    /// The reason why the strategy proposed the trial.
    pub(super) why: Option<String>,
    /// The path of the log, relative to the folder of the search.
    pub(super) log_name: Option<String>,
    /// The path of the memory snapshot, relative to the folder of the search, if the device's memory ran out.
    pub(super) snapshot: Option<String>,
    pub(super) log: Option<String>,
    pub(super) timeline: Option<Timeline>,
}

/// Reads each trial's stored data, by its number. Room goes to trials of the best config, then to failed trials.
pub(super) fn kept(subject: &Subject<'_>) -> BTreeMap<u32, Kept> {
    let Subject { kept: search::Kept { study, folder, lines, .. }, best, .. } = *subject;
    let trials = study.history.trials();
    let whys = lines.iter().map(|line| (line.trial, Kept { why: line.why.clone(), ..Kept::default() }));
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
        entry.log = (!tail.is_empty()).then_some(tail);
    }
    kept
}

/// Returns the last complete lines of a file without its secrets, in at most `most` bytes, or the end of the last line if
/// that line is longer. Invalid UTF-8 is replaced. Returns `None` if the file cannot be read.
///
/// Secrets are redacted before the cut, because a value without its name does not look like a secret.
fn tail(path: &Path, most: usize) -> Option<String> {
    let mut file = File::open(path).ok()?;
    if most == 0 {
        return Some(String::new());
    }
    let length = file.metadata().ok()?.len();
    let wanted = most.saturating_add(MARGIN) as u64;
    let from = length.saturating_sub(wanted);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(wanted).read_to_end(&mut bytes).ok()?;
    let text = redacted(&String::from_utf8_lossy(&bytes));
    // The text may begin with the end of a secret.
    let margin = if from == 0 { 0 } else { MARGIN.min(text.len()) };
    let over = text.len().saturating_sub(most).max(margin);
    let cut = (over..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    let (before, shown) = text.split_at(cut);
    let shown = shown.trim_end();
    let is_whole_line = before.is_empty() || before.ends_with('\n');
    let begin = if is_whole_line { 0 } else { shown.find('\n').map_or(0, |end| end + 1) };
    Some(shown.get(begin..).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_for_a_terminal_becomes_plain_text() {
        let coloured = "\u{1b}[1;31mred\u{1b}[0m\tand\u{7} \u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\";
        assert_eq!(plain(coloured), "red\tand link");
        assert_eq!(plain("10%\r50%\r100%\r\ndone\r\n"), "100%\ndone\n");
        assert_eq!(plain("a\u{202e}b\0c\u{1b}"), "abc");
        assert_eq!(plain("\u{1b}[31"), "");
        assert_eq!(plain("\u{1b}]never ends"), "");
    }

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

    #[test]
    fn a_cut_through_a_secret_shows_no_part_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let many = "a ".repeat(10_000);
        let list = "command = [\n\"--hf-token\",\n\"QQQQQQ\",\n]\n";
        for text in ["HF_TOKEN=QQQQQQ end", &format!("{many}HF_TOKEN=QQQQQQ end\n"), list, &format!("{many}\n{list}")] {
            std::fs::write(&path, text).unwrap();
            for most in 0..60 {
                let shown = tail(&path, most).unwrap();
                assert!(shown.len() <= most && !shown.contains('Q'), "{most}: {shown}");
            }
        }
        // The text that is read begins in a secret, and gets much shorter without the other one.
        let rest = format!(" HF_TOKEN={} {}", "Q".repeat(4500), "a ".repeat(1000));
        std::fs::write(&path, format!("HF_TOKEN={}{rest}", "Q".repeat(100))).unwrap();
        let shown = tail(&path, rest.len() + 50 - MARGIN).unwrap();
        assert!(!shown.contains('Q'), "{shown}");
    }
}
