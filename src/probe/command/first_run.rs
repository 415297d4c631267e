//! The first run of a job: a few steps of the unmodified command, with notes of what the script uses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;

use super::super::orders::Ending;
use super::session::{Opening, Session};
use super::starting::Process;
use super::verdict::Verdict;
use super::{CommandProber, Job, ProbeError, Watch};
use crate::model::fact::COUNTED_BY;
use crate::model::{Facts, HANDED_OUT, Outcome};

/// The prefix of the files with notes, next to `probe.json` (`first_run.py`).
const FILE: &str = "first-run-";

/// The file with the line that asked for input (`closed_input.py`).
const ASKED_FILE: &str = "asked-for-input.txt";

/// The number of steps with a time after which enough is known. The first step has no time and does not count here.
const STEPS: u64 = 2;

/// How long a first run goes on after its first step, so that it is the baseline's first measurement: a round number.
/// The run always goes on for at least `STEPS`.
const MEASURES: Duration = Duration::from_secs(1);

/// After this time without a new note, a script without a framework of the hook has imported its modules and read its
/// settings: a round number.
const QUIET: Duration = Duration::from_secs(4);

/// A first run without any note ends after this time: the command is not Python. A round number.
const WITHOUT_NOTES: Duration = Duration::from_secs(10);

/// The findings of a job's first run.
#[derive(Debug, Clone)]
pub struct FirstRun {
    /// How the run ended.
    pub outcome: Outcome,
    /// True if the hook saw a training step.
    pub has_trained: bool,
    /// True if the command ended by itself with an error.
    pub has_failed: bool,
    /// The facts that the hook reported.
    pub facts: Facts,
    /// The notes that the hook wrote in all processes of the run.
    pub notes: Notes,
    /// The script's line that asked for input, which a probe does not have; empty if the line is unknown.
    pub asked_for_input_at: Option<String>,
    /// How long it took.
    pub elapsed: Duration,
}

/// The notes about a script in its first run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    /// The top-level names of the packages that the script imported.
    pub modules: BTreeSet<String>,
    /// The package that calls the optimizer; empty if the script calls it. `None` without a step.
    pub trainer: Option<String>,
    /// The options of the script's command line.
    pub arguments: Vec<NotedArgument>,
    /// The settings files that the script read.
    pub files: Vec<PathBuf>,
    /// The environment variables with a number that the script read.
    pub variables: Vec<NotedVariable>,
    /// True if the batch size of the training loader can be set; `None` without a training loader.
    pub is_sized: Option<bool>,
    /// The samples of the first step, if they can be counted.
    pub samples: Option<i64>,
    /// The loaders that the script made.
    pub loaders: Vec<NotedLoader>,
}

/// An option of a script's parser.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct NotedArgument {
    /// Its spellings.
    pub names: Vec<String>,
    /// `value`, `switch` (no value), `pair` (`--x` and `--no-x`), or `maybe` (the value can be left out).
    pub kind: String,
    /// The option that turns it off.
    pub off: Option<String>,
    /// The accepted values; empty if any value is accepted.
    pub choices: Vec<String>,
    /// Its default.
    pub default: Option<String>,
    /// True if the script fails without it.
    pub is_required: bool,
    /// The value that the script got, if it is a number or a string.
    pub value: Option<serde_json::Value>,
}

/// An environment variable that a script read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NotedVariable {
    /// Its name.
    pub name: String,
    /// Its value, or the script's default.
    pub value: i64,
    /// True if the variable is set.
    pub is_set: bool,
}

/// A loader that a script made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NotedLoader {
    /// The line of code that made the loader, such as `train.py:12`.
    pub place: Option<String>,
    /// Its batch size, if it has one.
    pub batch_size: Option<i64>,
    /// Its number of workers.
    pub workers: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Module(String),
    Trainer(String),
    Arguments(Vec<NotedArgument>),
    File(PathBuf),
    Variable(NotedVariable),
    Loader(NotedLoader),
    Sized(Option<bool>),
    Samples(Option<i64>),
}

impl Notes {
    /// Reads the notes of all processes. If the training process has options, the options of other processes are left out.
    fn read(folder: &Path) -> Self {
        let mut notes = Self::default();
        let texts: Vec<String> = files(folder).iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
        let (training, others): (Vec<_>, Vec<_>) = texts.iter().partition(|text| text.contains("{\"trainer\""));
        for text in training.into_iter().chain(others) {
            let known = !notes.arguments.is_empty();
            for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                notes.add(line, known);
            }
        }
        notes
    }

    /// Returns true if the script imported a framework whose steps the hook sees.
    fn has_hook(&self) -> bool {
        ["torch", "keras"].iter().any(|&module| self.modules.contains(module))
    }

    fn add(&mut self, line: Line, has_arguments: bool) {
        match line {
            Line::Module(name) => drop(self.modules.insert(name)),
            Line::Trainer(name) => self.trainer = self.trainer.take().or(Some(name)),
            Line::Arguments(arguments) if !has_arguments => self.arguments.extend(arguments),
            Line::File(path) if !self.files.contains(&path) => self.files.push(path),
            Line::Variable(variable) if self.variables.iter().all(|known| known.name != variable.name) => {
                self.variables.push(variable);
            }
            Line::Loader(loader) => self.loaders.push(loader),
            Line::Samples(samples) => self.samples = self.samples.or(samples),
            Line::Sized(is_sized) => self.is_sized = self.is_sized.or(is_sized),
            _ => {}
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(FILE));
    let mut files: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    files.sort();
    files
}

impl Session {
    /// Returns true if a first run needs no more time. Either it has made three steps and was measured for a moment, or
    /// its script has no framework of the hook and adds no notes.
    pub(super) fn has_shown_enough(&self, now: Instant) -> bool {
        if self.heard.window.steps() >= STEPS {
            return self.heard.first_step.is_none_or(|first| now.duration_since(first) >= MEASURES);
        }
        if self.heard.any_step() {
            return false;
        }
        let notes = files(&self.notes());
        let age = |file: &PathBuf| SystemTime::now().duration_since(fs::metadata(file).ok()?.modified().ok()?).ok();
        match notes.iter().filter_map(age).min() {
            None => now.duration_since(self.begin) >= WITHOUT_NOTES,
            Some(age) => age >= QUIET && !Notes::read(&self.notes()).has_hook(),
        }
    }

    fn notes(&self) -> PathBuf {
        self.scratch.path().join("python")
    }

    pub(super) fn asked_for_input_at(&self) -> Option<String> {
        fs::read_to_string(self.notes().join(ASKED_FILE)).ok()
    }
}

impl CommandProber {
    /// Runs a job until it has made a few steps, and returns the findings. The job's experiment is `Mode::FirstRun`.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn first_run(&mut self, job: &Job, watch: Watch<'_>) -> Result<FirstRun, ProbeError> {
        self.protect().map_err(ProbeError::from)?;
        let (step, began) = (Arc::clone(&self.step), Instant::now());
        let opening = Opening { process: Process::Fresh { tells_imports: false }, keeps: false, place: 0 };
        let mut session = Session::open(&step, (&self.folder, self.protection.as_ref()), opening, job)?;
        let (verdict, ended, _) = session.measure_and_hold(false, watch)?;
        let (facts, notes) = (session.heard.facts.clone(), Notes::read(&session.notes()));
        let has_trained = session.heard.any_step();
        let has_failed = matches!(verdict, Verdict::Exited) && !session.heard.ending.is_some_and(Ending::is_success);
        let (mut outcome, asked_for_input_at) = (session.outcome(&verdict), session.asked_for_input_at());
        session.tell_times(&mut outcome, (ended, Instant::now()));
        if let Outcome::Measured(measurement) = &mut outcome
            && let Some(rate) = measurement.throughput.filter(|_| measurement.facts.get(COUNTED_BY).is_some())
        {
            // The hook counts the samples itself. It reports too rarely to compute a separate rate from a run of a
            // second.
            measurement.metrics.entry(HANDED_OUT.to_owned()).or_insert(rate.value);
        }
        let elapsed = began.elapsed();
        Ok(FirstRun { outcome, has_trained, has_failed, facts, notes, asked_for_input_at, elapsed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_trains_says_which_options_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let option = |name: &str| {
            format!(
                "{{\"arguments\": [{{\"names\": [\"{name}\"], \"kind\": \"value\", \"off\": null, \"choices\": [], \
                 \"default\": \"4\", \"is_required\": false, \"value\": 4}}]}}\n"
            )
        };
        let (launcher, trainer) = (option("--port"), option("--bs"));
        fs::write(folder.path().join("first-run-10.jsonl"), launcher + "{\"module\": \"torch\"}\n").unwrap();
        let rest = "{\"file\": \"/a/c.yaml\"}\n{\"variable\": {\"name\": \"BATCH\", \"value\": 4, \"is_set\": false}}\n{\"trainer\": \"lightning\"}\nbroken\n\
                    {\"loader\": {\"place\": \"t.py:3\", \"batch_size\": 4, \"workers\": 0}}\n";
        fs::write(folder.path().join("first-run-11.jsonl"), trainer + rest).unwrap();
        let notes = Notes::read(folder.path());
        assert_eq!(notes.arguments.iter().map(|argument| argument.names.join(",")).collect::<Vec<_>>(), ["--bs"]);
        assert_eq!(notes.trainer.as_deref(), Some("lightning"));
        assert!(notes.modules.contains("torch") && notes.files == [PathBuf::from("/a/c.yaml")]);
        assert_eq!(notes.variables, [NotedVariable { name: "BATCH".to_owned(), value: 4, is_set: false }]);
        assert_eq!(notes.loaders[0].batch_size, Some(4));
    }
}
