//! Collects everything that the page shows about one trial.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{kept::Kept, slots};
use crate::model::{
    METRICS, Measurement, Readings, Trial, Unit,
    quantity::{show_bytes, show_number, show_seconds},
};
use crate::probe::Timeline;
use crate::report::care::left_out;
use crate::report::gpus::gpu_lines;
use crate::report::memory_parts::MemoryParts;
use crate::report::probe::HOW_TO_OPEN;
use crate::report::redact::redacted;
use crate::report::row::{shown_estimate, shown_numerics};
use crate::search::Study;

/// The facts about one trial.
#[derive(Debug, Default, Serialize)]
pub(super) struct Detail {
    /// Labels, each with a text of one or more lines.
    facts: Vec<(String, String)>,
    /// The path of the trial's log, relative to the folder of the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_name: Option<String>,
    /// The last lines of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// The timeline of the trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Timeline>,
}

pub(super) fn details(study: &Study, mut kept: BTreeMap<u32, Kept>) -> BTreeMap<u32, Detail> {
    let trials = study.history.trials().iter();
    trials.map(|trial| (trial.number, detail(trial, kept.remove(&trial.number).unwrap_or_default()))).collect()
}

fn detail(trial: &Trial, kept: Kept) -> Detail {
    let mut facts = Facts::default();
    if let Some(why) = &kept.why {
        facts.add("proposed for", why);
    }
    if let Some(slot) = &trial.slot {
        facts.add("ran in", &slots::described(slot));
    }
    if let Some(failure) = trial.outcome.failure() {
        facts.add("why it failed", &redacted(&failure.reason));
        if let Some(path) = &kept.snapshot {
            facts.add("memory snapshot", &format!("{path}; {HOW_TO_OPEN}"));
        }
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
    if let Some(seconds) = m.timing.step_seconds {
        facts.add("step time", &show_seconds(seconds));
    }
    for (phase, seconds) in &m.phase_seconds {
        facts.add(phase, &show_seconds(*seconds));
    }
    if let Some(peak) = m.memory.peak_bytes {
        let of = m.memory.capacity_bytes.map(|bytes| format!(" of {}", show_bytes(bytes))).unwrap_or_default();
        facts.add("peak memory", &format!("{}{of}", show_bytes(peak)));
    }
    if let Some(parts) = MemoryParts::of(m) {
        facts.add("parts of memory", &parts.words());
    }
    for (name, number) in &m.metrics {
        facts.add(name, &show_number(*number));
    }
    let left_out = left_out(Some(m));
    if !left_out.is_empty() {
        facts.add("left out", &left_out);
    }
    if let Some(numerics) = &m.numerics {
        facts.add("numerics", &shown_numerics(numerics));
    }
    let mut label = "GPU";
    for (name, line) in gpu_lines(&m.machine.gpus) {
        label = if name.is_empty() { label } else { name };
        facts.add(label, &line);
    }
    readings(&m.machine.host, facts);
    if let Some(framework) = &m.framework {
        facts.add("framework", framework);
    }
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

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn output_for_a_terminal_becomes_plain_text() {
        assert_eq!(
            plain("\u{1b}[1;31mred\u{1b}[0m\tand\u{7} \u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\"),
            "red\tand link"
        );
        assert_eq!(plain("10%\r50%\r100%\r\ndone\r\n"), "100%\ndone\n");
        assert_eq!(plain("a\u{202e}b\0c\u{1b}"), "abc");
        assert_eq!(plain("\u{1b}[31"), "");
        assert_eq!(plain("\u{1b}]never ends"), "");
    }
}
