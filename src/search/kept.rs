//! Reads and writes the folder of a search: `study.json` describes the search, and the journal has its results.
//!
//! These two files are enough to make the same [`Study`] again, in any folder and on any machine. The search may be running,
//! interrupted or over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::machine::Device;
use crate::model::{LocateError, Objective, Settings, Space};
use crate::probe::{
    StepTemplate, Template,
    adapter::{self, Applied, Apply, Target},
};
use crate::search::budget::{Budget, StopReason};
use crate::search::journal::{self, Header, JournalError, Line};
use crate::search::study::{Study, over_whole_epochs};

/// The file that describes the search.
pub const STUDY: &str = "study.json";

/// The file that has the trials.
pub const JOURNAL: &str = "journal.jsonl";

/// The version of `study.json` that this program reads and writes.
pub const FORMAT: u32 = 1;

/// The contents of `study.json`. The space is borrowed while a search runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record<S = Space> {
    /// The version of the format.
    pub format: u32,
    /// The program that wrote it.
    pub gputune_version: String,
    /// The spec, as given on the command line.
    pub spec: String,
    /// The space that is searched.
    pub space: S,
    /// The objective.
    pub objective: Objective,
    /// The config that the speedup is measured against.
    pub baseline: Option<Settings>,
    /// True if the baseline is the unmodified job, with only the settings in `baseline` set.
    #[serde(default)]
    pub baseline_as_it_is: bool,
    /// The limits on the cost of the search.
    pub budget: Budget,
    /// The device that trains.
    pub device: Device,
    /// The command that is run.
    pub step: StepRecord,
    /// Why the search ended; absent until it does.
    pub stopped: Option<StopReason>,
    /// Its wall time in seconds, once it ended.
    pub elapsed_s: Option<f64>,
    /// The result of comparing the slots, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side_by_side: Option<String>,
}

impl<'s> Record<&'s Space> {
    /// Describes a search that is about to begin; `spec` is its name on the command line.
    pub fn new(
        spec: impl Into<String>,
        (space, objective): (&'s Space, &Objective),
        baseline: Option<&Settings>,
        budget: Budget,
        device: &Device,
        step: &StepTemplate,
    ) -> Self {
        Self {
            format: FORMAT,
            gputune_version: env!("CARGO_PKG_VERSION").to_owned(),
            spec: spec.into(),
            space,
            objective: objective.clone(),
            baseline: baseline.cloned(),
            baseline_as_it_is: false,
            budget,
            device: device.clone(),
            step: StepRecord::of(step),
            stopped: None,
            elapsed_s: None,
            side_by_side: None,
        }
    }

    /// Adds how the search ended.
    #[must_use]
    pub fn ended(self, stopped: StopReason, elapsed: Duration) -> Self {
        Self { stopped: Some(stopped), elapsed_s: Some(elapsed.as_secs_f64()), ..self }
    }

    /// Adds how the search of a study ended, and the result of comparing its slots.
    #[must_use]
    pub fn of(self, study: &Study) -> Self {
        Self { side_by_side: study.side_by_side.clone(), ..self.ended(study.stopped, study.elapsed) }
    }

    /// The contents of `study.json`.
    ///
    /// # Errors
    /// A number in it is not finite, or a path is not valid UTF-8.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// The command that is run, before settings are filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRecord {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables that are set in addition to the inherited variables.
    pub env: Vec<(String, String)>,
    /// The folder that it runs in.
    pub cwd: PathBuf,
    /// Files that are rendered into the probe's folder.
    pub files: Vec<(PathBuf, String)>,
    /// The name of the adapter.
    pub adapter: Option<String>,
    /// The seed for random numbers of its hook.
    pub seed: u64,
    /// Parameters and the targets that they are applied to.
    pub apply: Vec<(String, String)>,
    /// Parameters of `apply` that are passed as command-line options, with their options.
    pub arguments: Vec<(String, String)>,
}

impl StepRecord {
    /// Returns the record of a template.
    pub fn of(template: &StepTemplate) -> Self {
        let StepTemplate { command, env, cwd, files, apply } = template;
        Self {
            command: command.iter().map(|word| word.text().to_owned()).collect(),
            env: env.iter().map(|(name, value)| (name.clone(), value.text().to_owned())).collect(),
            cwd: cwd.clone(),
            files: files.iter().map(|(path, text)| (path.clone(), text.text().to_owned())).collect(),
            adapter: apply.adapter.map(|adapter| adapter.name.to_owned()),
            seed: apply.seed,
            apply: apply.applied.iter().map(|applied| (applied.parameter.clone(), applied.name.clone())).collect(),
            arguments: apply.arguments_of_parameters(),
        }
    }

    /// Makes the template again; targets that this program does not know are left out.
    pub fn template(&self) -> StepTemplate {
        let applied = |(parameter, name): &(String, String)| {
            let target = Target::parse(name).ok()?;
            let argument = self.arguments.iter().find(|(name, _)| name == parameter);
            let argument = argument.map(|(_, option)| option.clone());
            Some(Applied { parameter: parameter.clone(), name: name.clone(), target, argument })
        };
        StepTemplate {
            command: self.command.iter().map(|word| Template::parse(word)).collect(),
            env: self.env.iter().map(|(name, value)| (name.clone(), Template::parse(value))).collect(),
            cwd: self.cwd.clone(),
            files: self.files.iter().map(|(path, text)| (path.clone(), Template::parse(text))).collect(),
            apply: Apply {
                adapter: self.adapter.as_deref().and_then(adapter::adapter),
                applied: self.apply.iter().filter_map(applied).collect(),
                seed: self.seed,
            },
        }
    }
}

/// Why the folder of a search cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// There is no such folder.
    #[error("there is no folder {}", .0.display())]
    Missing(PathBuf),
    /// It is not the folder of a search.
    #[error("{} is no folder of a search: it has no {JOURNAL}", .0.display())]
    NoJournal(PathBuf),
    /// The search has only just started, or ended before its first line was written.
    #[error("{} is empty: no search has started there", .0.display())]
    Empty(PathBuf),
    /// `study.json` is not there.
    #[error("{} has no {STUDY}", .0.display())]
    NoStudy(PathBuf),
    /// `study.json` cannot be read.
    #[error("cannot read {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// `study.json` is damaged.
    #[error("{} is damaged", .0.display())]
    Damaged(PathBuf, #[source] serde_json::Error),
    /// `study.json` was written by another version of the program: the file, its format, and the program.
    #[error("{path} has format {1}, written by gputune {2}, and this gputune reads format {FORMAT}", path = .0.display())]
    Format(PathBuf, u32, String),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A trial's config is not in the space: the journal, and the trial's number.
    #[error("trial {1} of {path} has a config that is not in the space of {STUDY}", path = .0.display())]
    Foreign(PathBuf, u32, #[source] LocateError),
}

impl KeptError {
    /// Returns advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } | Self::NoJournal { .. } => {
                "give the folder that the search prints as `results`: its --out, or gputune-out/<name of the spec>"
            }
            Self::Empty { .. } => "wait for the first probe, or run the search again with this folder as --out",
            Self::Format { .. } | Self::Journal(JournalError::Format { .. }) => {
                "read it with the gputune version that wrote it"
            }
            Self::NoStudy { .. } | Self::Damaged { .. } => "run the same search again, which writes it anew",
            Self::Journal(JournalError::Damaged { .. }) => "take the damaged line out of a copy of the folder",
            Self::Foreign { .. } => "the two files are of different searches: run the search again with --fresh",
            Self::Io { .. } | Self::Journal(_) => "is the path right, and may this user read it?",
        }
    }
}

/// A search as stored in its folder.
#[derive(Debug)]
pub struct Kept {
    /// The folder.
    pub folder: PathBuf,
    /// The spec, as given on the command line.
    pub spec: String,
    /// The limits on the cost of the search.
    pub budget: Budget,
    /// The device that trains.
    pub device: Device,
    /// The command that is run.
    pub step: StepTemplate,
    /// The first line of the journal.
    pub header: Header,
    /// The trials with everything that the journal says about them, in the order of the study's trials.
    pub lines: Vec<Line>,
    /// The trials and the conclusions about the best config.
    pub study: Study,
}

impl Kept {
    /// Reads the folder of a search, or the journal in it. The search may be running; finished trials count.
    ///
    /// # Errors
    /// It is no folder of a search, or no search has started there. It was written by another version, or it is damaged.
    pub fn read(place: &Path) -> Result<Self, KeptError> {
        let (folder, path) = journal_of(place)?;
        // A search that begins or ends during these reads counts as running.
        let is_in_use = || journal::is_in_use(&path) == Some(true);
        let was_running = is_in_use();
        let path_of_record = folder.join(STUDY);
        let text = match fs::read(&path_of_record) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(KeptError::NoStudy(folder)),
            Err(source) => return Err(KeptError::Io(path_of_record, source)),
        };
        let record = parse_record(&path_of_record, &text)?;
        let is_running = was_running || is_in_use();
        let (header, lines) = journal::read(&path)?;
        let foreign = |trial, source| KeptError::Foreign(path.clone(), trial, source);
        let trial = |line: &Line| line.trial(&record.space).map_err(|source| foreign(line.trial, source));
        let history = lines.iter().map(trial).collect::<Result<crate::model::History, KeptError>>()?;
        let stated = || record.baseline.as_ref().and_then(|settings| record.space.locate(settings).ok());
        let set = record.baseline.clone().unwrap_or_default();
        let baseline = if record.baseline_as_it_is { record.space.as_it_is_with(&set).ok() } else { stated() };
        let elapsed = record.elapsed_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let stopped = match record.stopped {
            _ if is_running => StopReason::Running,
            stopped => stopped.unwrap_or(StopReason::Interrupted),
        };
        let history = over_whole_epochs(history, baseline.as_ref());
        let study = Study {
            objective: record.objective.relative_to_first(&history, baseline.as_ref()),
            space: Arc::new(record.space),
            elapsed: elapsed.unwrap_or_else(|| history.elapsed()),
            history,
            baseline,
            stopped,
            side_by_side: record.side_by_side,
        };
        let (spec, budget, device, step) = (record.spec, record.budget, record.device, record.step.template());
        Ok(Self { folder, spec, budget, device, step, header, lines, study })
    }
}

fn journal_of(place: &Path) -> Result<(PathBuf, PathBuf), KeptError> {
    let (folder, path) = if place.is_dir() {
        (place.to_owned(), place.join(JOURNAL))
    } else if !place.exists() {
        return Err(KeptError::Missing(place.to_owned()));
    } else {
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        (folder.to_owned(), place.to_owned())
    };
    let is_journal = place.is_dir() || path.file_name().is_some_and(|name| name == JOURNAL);
    if !is_journal || !path.is_file() {
        return Err(KeptError::NoJournal(place.to_owned()));
    }
    // A header that is only partly written counts as none.
    let has_line = fs::read(&path).map(|text| text.contains(&b'\n'));
    match has_line {
        Ok(true) => Ok((folder, path)),
        Ok(false) => Err(KeptError::Empty(path)),
        Err(source) => Err(KeptError::Io(path, source)),
    }
}

/// Reads a record. It reads the format first, since records of other versions may look different.
fn parse_record(path: &Path, text: &[u8]) -> Result<Record, KeptError> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u32,
        #[serde(default)]
        gputune_version: String,
    }
    let damaged = |source| KeptError::Damaged(path.to_owned(), source);
    let Versioned { format, gputune_version } = serde_json::from_slice(text).map_err(damaged)?;
    if format != FORMAT {
        return Err(KeptError::Format(path.to_owned(), format, gputune_version));
    }
    serde_json::from_slice(text).map_err(damaged)
}
