//! One run of one searcher on one table with one seed, as it is written down: gputune's and the peers' alike.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One run; what a peer's program writes and what the report reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) method: String,
    pub(crate) table: String,
    pub(crate) seed: u64,
    /// The unique configs that it might probe.
    pub(crate) budget: usize,
    pub(crate) noise: bool,
    /// (probe, regret of what seemed the best after it), where that changed.
    pub(crate) curve: Vec<(usize, f64)>,
    /// The unique configs that it did probe: fewer once the best was found.
    pub(crate) probes: usize,
    pub(crate) failed: usize,
    /// Proposals that were answered without a probe: known ones, ones that are not in the space.
    #[serde(default)]
    pub(crate) repeats: usize,
    #[serde(default)]
    pub(crate) outside: usize,
    /// Probes that the harness drew, since the searcher kept proposing such.
    #[serde(default)]
    pub(crate) drawn: usize,
    /// Processor time of the searcher.
    pub(crate) seconds: f64,
    pub(crate) version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// What tells runs apart.
pub(crate) type Key = (String, String, u64, usize, bool);

impl Line {
    pub(crate) fn key(&self) -> Key {
        (self.method.clone(), self.table.clone(), self.seed, self.budget, self.noise)
    }

    /// The regret after each probe from the first to the last of the budget.
    pub(crate) fn regrets(&self, budget: usize) -> Vec<f64> {
        let mut changes = self.curve.iter().peekable();
        let mut regret = 1.0;
        let after = |probe| {
            while let Some((_, now)) = changes.next_if(|(at, _)| *at <= probe) {
                regret = *now;
            }
            regret
        };
        (1..=budget).map(after).collect()
    }
}

/// All runs of some files, each a file of lines or a report's JSON; of equal runs the last.
pub(crate) fn read(paths: &[impl AsRef<Path>]) -> Vec<Line> {
    let mut runs: BTreeMap<Key, Line> = BTreeMap::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = if path.extension().is_some_and(|extension| extension == "json") {
            let stored: Stored = serde_json::from_str(&text).unwrap();
            stored.runs.into_iter().flat_map(Bundle::into_lines).collect()
        } else {
            parsed(&text)
        };
        runs.extend(lines.into_iter().map(|line| (line.key(), line)));
    }
    runs.into_values().collect()
}

/// The lines of a file that another process may be writing to: a last one without an end is not one yet.
fn parsed(text: &str) -> Vec<Line> {
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n') && !line.trim().is_empty());
    whole.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

pub(crate) fn append(path: &Path, line: &Line) {
    let text = serde_json::to_string(line).unwrap() + "\n";
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[derive(Deserialize)]
struct Stored {
    runs: Vec<Bundle>,
}

/// The runs of one searcher on one table, short enough to be kept.
#[derive(Serialize, Deserialize)]
pub(crate) struct Bundle {
    method: String,
    table: String,
    budget: usize,
    noise: bool,
    version: String,
    errors: usize,
    /// For each seed its number, and what it probed, failed, repeated, proposed outside, had drawn; then milliseconds.
    counts: Vec<[u64; 7]>,
    /// For each seed `probe:regret` in units of 0.00001, where the regret changed.
    curves: Vec<String>,
}

const UNIT: f64 = 1e-5;

/// The runs in bundles.
pub(crate) fn bundles(lines: &[Line]) -> Vec<Bundle> {
    let mut bundles: BTreeMap<(&str, &str, usize, bool), Vec<&Line>> = BTreeMap::new();
    for line in lines {
        bundles.entry((&line.method, &line.table, line.budget, line.noise)).or_default().push(line);
    }
    let bundled = bundles.into_iter().map(|((method, table, budget, noise), runs)| Bundle {
        method: method.to_owned(),
        table: table.to_owned(),
        budget,
        noise,
        version: runs.last().map_or_else(String::new, |run| run.version.clone()),
        errors: runs.iter().filter(|run| run.error.is_some()).count(),
        counts: runs.iter().map(|run| counts(run)).collect(),
        curves: runs.iter().map(|run| compact(&run.curve)).collect(),
    });
    bundled.collect()
}

fn counts(run: &Line) -> [u64; 7] {
    let [probes, failed, repeats, outside, drawn] =
        [run.probes, run.failed, run.repeats, run.outside, run.drawn].map(|count| count as u64);
    [run.seed, probes, failed, repeats, outside, drawn, (run.seconds * 1e3).round() as u64]
}

/// A positive regret stays one: a found best is told from one that is nearly found.
fn compact(curve: &[(usize, f64)]) -> String {
    let units = |regret: f64| if regret > 0.0 { (regret / UNIT).round().max(1.0) } else { 0.0 };
    let steps: Vec<String> = curve.iter().map(|(probe, regret)| format!("{probe}:{}", units(*regret))).collect();
    steps.join(" ")
}

impl Bundle {
    fn into_lines(self) -> Vec<Line> {
        let runs = self.counts.iter().zip(&self.curves);
        let lines = runs.enumerate().map(|(at, (counts, curve))| {
            let [seed, probes, failed, repeats, outside, drawn, milliseconds] = *counts;
            let step = |text: &str| {
                let (probe, regret) = text.split_once(':').unwrap();
                (probe.parse().unwrap(), regret.parse::<f64>().unwrap() * UNIT)
            };
            Line {
                method: self.method.clone(),
                table: self.table.clone(),
                seed,
                budget: self.budget,
                noise: self.noise,
                curve: curve.split_whitespace().map(step).collect(),
                probes: probes as usize,
                failed: failed as usize,
                repeats: repeats as usize,
                outside: outside as usize,
                drawn: drawn as usize,
                seconds: milliseconds as f64 / 1e3,
                version: self.version.clone(),
                error: (at < self.errors).then(|| "as recorded".to_owned()),
            }
        });
        lines.collect()
    }
}
