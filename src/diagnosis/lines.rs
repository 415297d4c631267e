//! Names the lines of the script that take the host's time, as the sampler inside the job saw them.
//!
//! The facts `lines.main` and `lines.workers` hold the samples; `docs/design/facts.md` describes them. Lines that compute
//! (forward, backward, optimizer) are kept apart from lines that wait for data and from the loop's own code.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::cause::{Cause, shown_share};
use super::evidence::Evidence;
use super::starvation::WAIT;

/// The thread or processes in which a line was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seat {
    /// The thread that trains.
    Main,
    /// The workers of the training loader.
    Workers,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The full path of the file.
    pub file: String,
    /// The line number, from 1.
    pub line: u32,
    /// The function that contains the line.
    pub function: String,
    /// The text of the line, cut if it is long; empty if the file cannot be read.
    pub code: String,
    /// The share of the time of the thread, or of all workers, from 0 to 1.
    pub share: f64,
}

/// A line of the script, and the time that goes into it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The thread or processes in which the line was seen.
    pub seat: Seat,
    /// The kind of the line, by its name in `docs/design/facts.md`.
    pub kind: String,
    /// The line in the loop, in the dataset, or in a function that a library calls.
    #[serde(flatten)]
    pub place: Place,
    /// The share of a step, or of the whole run for a line outside of steps. For a worker's line, the share of a step that waits
    /// while workers run it.
    pub of_step: f64,
    /// How often the line was seen.
    pub samples: u64,
    /// The share of its time that the sampler saw late: a call here or in the line before held the interpreter's lock, or no core
    /// was free.
    pub late: f64,
    /// The library function that the line calls for most of its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
    /// The innermost lines of the script within this line that take most of its time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<Place>,
    /// True if the line is host work: it neither computes nor waits for data.
    pub is_host: bool,
}

/// The JSON in a fact.
#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    kinds: BTreeMap<String, f64>,
    #[serde(default)]
    lines: Vec<ToldLine>,
}

#[derive(Deserialize)]
struct ToldLine {
    kind: String,
    #[serde(flatten)]
    place: Place,
    samples: u64,
    #[serde(default)]
    late: f64,
    calls: Option<String>,
    #[serde(default)]
    inside: Vec<Place>,
}

/// Kinds of lines that load a sample or collate a batch.
const OF_DATA: [&str; 2] = ["loading", "collating"];
/// The kind of lines that choose the samples of the next batch.
const CHOOSING: &str = "choosing";
/// Kinds of lines that compute; `PYTHON` is the script's own Python within them.
const COMPUTING: [&str; 3] = ["forward", "backward", "optimizer"];
const PYTHON: &str = "python";
/// Kinds of lines between steps.
const OUTSIDE: [&str; 3] = ["evaluation", "checkpoint", "epoch"];
/// Kinds of the script's own lines on the host.
const OF_SCRIPT: [&str; 2] = ["loop", "logging"];

/// Returns all lines that were seen: host lines first, then the rest, each group sorted by share.
pub fn lines(evidence: &Evidence) -> Vec<Line> {
    let mut all = of_main(evidence);
    all.extend(of_workers(evidence));
    all.sort_by(|a, b| b.is_host.cmp(&a.is_host).then(b.of_step.total_cmp(&a.of_step)));
    all
}

/// Returns the host lines that matter: their share reaches the threshold of waiting for data.
pub fn host_lines(evidence: &Evidence) -> Vec<Line> {
    lines(evidence).into_iter().filter(|line| line.is_host && line.of_step >= WAIT.value).collect()
}

/// Returns the host lines that belong to a cause.
pub fn lines_of(cause: &Cause, evidence: &Evidence) -> Vec<Line> {
    let of_cause: fn(&Line) -> bool = match cause.name {
        "cpu_preprocessing"
        | "storage"
        | "single_threaded_loader"
        | "too_little_prefetch"
        | "worker_imbalance"
        | "shared_source"
        | "data_starvation"
        | "worker_overhead" => Line::is_of_data,
        "slow_sampler" => |line| line.kind == CHOOSING,
        "logging" => |line| OF_SCRIPT.contains(&line.kind.as_str()),
        "synchronising_calls" => |line| line.kind == "sync" || OF_SCRIPT.contains(&line.kind.as_str()),
        "worker_start" => |line| line.kind == "epoch",
        "compute_bound" | "memory_bandwidth" | "wrong_precision" | "thermal_throttling" | "power_cap"
        | "memory_limited" | "host_memory" | "shared_memory" | "communication" | "healthy" => |_| false,
        _ => |_| true,
    };
    host_lines(evidence).into_iter().filter(of_cause).collect()
}

/// Returns the share of the workers' loading time in lines that take or release locks, and the costliest of these lines.
///
/// The text of the line decides, because the interpreter shows no frame of a built-in `acquire`.
pub(super) fn locks(evidence: &Evidence) -> Option<(f64, Place)> {
    let told = told(evidence, "lines.workers")?;
    let busy: f64 = OF_DATA.iter().filter_map(|kind| told.kinds.get(*kind)).sum();
    let places = told.lines.into_iter().filter(|line| OF_DATA.contains(&line.kind.as_str()));
    let innermost = places.flat_map(|line| if line.inside.is_empty() { vec![line.place] } else { line.inside });
    let locks: Vec<Place> = innermost.filter(|place| is_lock(&place.code)).collect();
    let share: f64 = locks.iter().map(|place| place.share).sum();
    let most = locks.into_iter().max_by(|a, b| a.share.total_cmp(&b.share))?;
    (busy > 0.0).then(|| ((share / busy).min(1.0), most))
}

/// Returns true if a line of Python takes or releases a lock: `with self.lock:`, `index_lock.acquire()`, `fcntl.flock(file, LOCK_EX)`.
fn is_lock(code: &str) -> bool {
    const CALLS: [&str; 3] = ["flock", "lockf", "acquire"];
    const NAMES: [&str; 7] = ["lock", "rlock", "filelock", "mutex", "semaphore", "sem", "condition"];
    let is_of_name = |character: char| character.is_alphanumeric() || character == '_';
    let calls = |name: &str| {
        let before_bracket = code.match_indices('(').map(|(at, _)| &code[..at]);
        before_bracket.map(|text| text.rsplit(|c| !is_of_name(c)).next()).any(|last| last == Some(name))
    };
    let names = || code.split(|character: char| !character.is_alphanumeric()).map(str::to_lowercase);
    CALLS.into_iter().any(calls)
        || code.trim_start().starts_with("with ") && names().any(|name| NAMES.contains(&name.as_str()))
}

/// Returns the share of the time in forward, backward and optimizer that the script's own Python takes: layers, hooks, functions
/// with their own gradients. Zero on a GPU, which may compute at the same time.
pub(super) fn python_in_computing(evidence: &Evidence) -> f64 {
    let Some(told) = told(evidence, "lines.main").filter(|_| !evidence.is_gpu()) else { return 0.0 };
    let share = |kind: &str| told.kinds.get(kind).copied().unwrap_or(0.0);
    let computing: f64 = COMPUTING.into_iter().map(share).sum();
    let python = share(PYTHON);
    if python > 0.0 { python / (python + computing) } else { 0.0 }
}

/// Returns the share of a step in which the training thread chooses the next batch, with the line that takes most of it.
pub(super) fn choosing(evidence: &Evidence) -> Option<(f64, Option<Place>)> {
    let told = told(evidence, "lines.main")?;
    let share = told.kinds.get(CHOOSING)? / steps(&told);
    let line = told.lines.into_iter().find(|line| line.kind == CHOOSING);
    Some((share.min(1.0), line.map(|line| line.place)))
}

fn steps(told: &Told) -> f64 {
    let outside: f64 = OUTSIDE.iter().filter_map(|kind| told.kinds.get(*kind)).sum();
    (1.0 - outside).max(f64::EPSILON)
}

fn told(evidence: &Evidence, name: &str) -> Option<Told> {
    serde_json::from_str(evidence.text(name)?).ok()
}

fn of_main(evidence: &Evidence) -> Vec<Line> {
    let Some(told) = told(evidence, "lines.main") else { return Vec::new() };
    let steps = steps(&told);
    let line = |line: ToldLine| {
        let is_outside = OUTSIDE.contains(&line.kind.as_str());
        let is_host = is_outside
            || OF_DATA.contains(&line.kind.as_str())
            || OF_SCRIPT.contains(&line.kind.as_str())
            || ["sync", PYTHON, CHOOSING].contains(&line.kind.as_str());
        let of_step = if is_outside { line.place.share } else { (line.place.share / steps).min(1.0) };
        Line::of(line, Seat::Main, of_step, is_host)
    };
    told.lines.into_iter().map(line).collect()
}

fn of_workers(evidence: &Evidence) -> Vec<Line> {
    let Some(told) = told(evidence, "lines.workers") else { return Vec::new() };
    let busy: f64 = OF_DATA.iter().filter_map(|kind| told.kinds.get(*kind)).sum();
    let waits = evidence.share("data_wait").unwrap_or(0.0);
    let line = |line: ToldLine| {
        let of_step = if busy > 0.0 { waits * (line.place.share / busy).min(1.0) } else { 0.0 };
        Line::of(line, Seat::Workers, of_step, true)
    };
    told.lines.into_iter().map(line).collect()
}

impl Line {
    fn of(told: ToldLine, seat: Seat, of_step: f64, is_host: bool) -> Self {
        let ToldLine { kind, place, samples, late, calls, inside } = told;
        Self { seat, kind, place, of_step, samples, late, calls, inside, is_host }
    }

    /// Returns true if the line loads samples, collates a batch, or chooses the samples of a batch.
    pub fn is_of_data(&self) -> bool {
        OF_DATA.contains(&self.kind.as_str()) || self.kind == CHOOSING
    }

    /// Returns the line in words: ``train.py:31 `burn(15)`: 78 % of a step``.
    pub fn words(&self) -> String {
        let mut words = format!("{}: {}", self.place.shown(), self.cost());
        let inner = self.inside.iter().find(|inner| inner.share >= self.place.share / 2.0);
        if let Some(inner) = inner {
            let _ = write!(words, "; most of it in {}", inner.shown());
        }
        if let Some(calls) = &self.calls {
            let _ = write!(words, " (calls {calls})");
        }
        if self.late >= 0.5 {
            words += "; seen late: a call kept the interpreter's lock (GIL), here or in the line before, or no core was free";
        }
        words
    }

    fn cost(&self) -> String {
        let share = shown_share(self.of_step);
        match (self.seat, self.kind.as_str()) {
            (Seat::Workers, _) => {
                format!("{} of the workers' time, for which {share} of a step waits", shown_share(self.place.share))
            }
            (_, kind) if OUTSIDE.contains(&kind) => format!("{share} of the run ({kind})"),
            (_, "loading" | "collating") => format!("{share} of a step (loading in the training process)"),
            (_, CHOOSING) => format!("{share} of a step (choosing batches in the training process)"),
            (_, "logging") => format!("{share} of a step (logging)"),
            (_, "sync") => format!("{share} of a step (waits for the device)"),
            _ => format!("{share} of a step"),
        }
    }
}

impl Place {
    /// Returns the file name, the line number and the text of the line.
    pub fn shown(&self) -> String {
        let name = self.file.rsplit('/').next().unwrap_or(&self.file);
        if self.code.is_empty() {
            format!("{name}:{} in {}", self.line, self.function)
        } else {
            format!("{name}:{} `{}`", self.line, self.code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::cause;
    use crate::diagnosis::sample::Job;

    const MAIN: &str = r#"{"samples": 200, "seconds": 4.0, "kinds": {"loop": 0.4, "evaluation": 0.5, "backward": 0.1}, "lines": [
        {"kind": "evaluation", "file": "/j/train.py", "line": 52, "function": "main", "code": "validate(model)", "share": 0.5, "samples": 99},
        {"kind": "loop", "file": "/j/train.py", "line": 31, "function": "main", "code": "burn(15)", "share": 0.39, "samples": 77,
         "inside": [{"file": "/j/train.py", "line": 8, "function": "burn", "code": "while True:", "share": 0.38}]},
        {"kind": "loop", "file": "/j/train.py", "line": 33, "function": "main", "code": "x += 1", "share": 0.01, "samples": 2},
        {"kind": "backward", "file": "/j/train.py", "line": 32, "function": "main", "code": "loss.backward()", "share": 0.1, "samples": 20}]}"#;
    const WORKERS: &str = r#"{"samples": 300, "seconds": 8.0, "kinds": {"loading": 0.8, "idle": 0.2}, "lines": [
        {"kind": "loading", "file": "/j/data.py", "line": 9, "function": "Data.__getitem__", "code": "", "share": 0.8, "samples": 240,
         "late": 0.9, "calls": "synchronize.__enter__"}]}"#;

    #[test]
    fn lines_of_steps_count_by_the_steps_and_computing_is_no_hosts() {
        let evidence = Job::cpu().text("lines.main", MAIN).evidence();
        let words: Vec<String> = host_lines(&evidence).iter().map(Line::words).collect();
        assert_eq!(
            words,
            [
                "train.py:31 `burn(15)`: 78 % of a step; most of it in train.py:8 `while True:`",
                "train.py:52 `validate(model)`: 50 % of the run (evaluation)",
            ]
        );
        assert!(lines(&evidence).iter().any(|line| line.kind == "backward" && !line.is_host));
    }

    #[test]
    fn lines_that_take_a_lock_are_told_by_their_text() {
        for code in [
            "with self.lock:",
            "with index_lock, open(path) as file:",
            "fcntl.flock(self.file, fcntl.LOCK_EX)",
            "if not self.mutex.acquire(timeout=1):",
            "with FileLock(path).acquire() as _:",
        ] {
            assert!(is_lock(code), "{code}");
        }
        for code in
            ["", "with open_block(path) as block:", "time.sleep(LOOK_UP)", "locked = read(path)", "lock = Lock()"]
        {
            assert!(!is_lock(code), "{code}");
        }
    }

    #[test]
    fn what_locks_cost_is_a_share_of_loading() {
        let told = |code: &str| {
            WORKERS.replace(r#""calls""#, &format!(
                r#""inside": [{{"file": "/j/data.py", "line": 4, "function": "at", "code": "{code}", "share": 0.4}}], "calls""#
            ))
        };
        let locked = Job::cpu().text("lines.workers", &told("with self.lock:")).evidence();
        let (share, place) = locks(&locked).unwrap();
        assert!((share - 0.5).abs() < 1e-9);
        assert_eq!(place.shown(), "data.py:4 `with self.lock:`");
        assert!(locks(&Job::cpu().text("lines.workers", &told("decode(image)")).evidence()).is_none());
    }

    #[test]
    fn lines_of_workers_weigh_what_the_step_waits_for_them() {
        let evidence = Job::cpu().wait(0.6).text("lines.workers", WORKERS).evidence();
        let words = host_lines(&evidence)[0].words();
        assert!(
            words.starts_with(
                "data.py:9 in Data.__getitem__: 80 % of the workers' time, for which 60 % of a step waits"
            ),
            "{words}"
        );
        assert!(words.contains("(calls synchronize.__enter__)") && words.contains("GIL"), "{words}");
        assert!(host_lines(&Job::cpu().wait(0.01).text("lines.workers", WORKERS).evidence()).is_empty());
    }

    #[test]
    fn a_cause_has_its_own_lines() {
        let evidence = Job::cpu().wait(0.6).text("lines.main", MAIN).text("lines.workers", WORKERS).evidence();
        let count = |name: &str| lines_of(cause(name).unwrap(), &evidence).len();
        assert_eq!((count("storage"), count("logging"), count("compute_bound"), count("launch_bound")), (1, 1, 0, 3));
    }

    #[test]
    fn nothing_told_and_nonsense_are_no_lines() {
        assert!(lines(&Job::cpu().evidence()).is_empty());
        assert!(lines(&Job::cpu().text("lines.main", "{").evidence()).is_empty());
    }
}
