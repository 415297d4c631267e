//! Reads results of an earlier study, on another device or with another model, for a search to learn from.
//!
//! A study is kept by names and values. For each trial, a search sees the score and, in each common parameter, the place among the
//! search's own settings. It learns nothing about a parameter that the study lacks. Trials that differ only in parameters that the
//! search lacks count as one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::model::{
    Config, Direction, History, Judgement, LocateError, Objective, Outcome, Parameter, Settings, Space, Value,
};
use crate::search::journal::{self, JournalError, Line, WarmStart};
use crate::search::kept::JOURNAL;

/// Why an earlier study cannot be learned from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EarlierError {
    /// There is no journal.
    #[error("{} is no folder of a search and no journal", .0.display())]
    NoJournal(PathBuf),
    /// The place is the folder that the search itself writes to.
    #[error("{} is the folder of this search itself", .0.display())]
    Own(PathBuf),
    /// The journal cannot be read.
    #[error("the earlier study cannot be read")]
    Journal(#[from] JournalError),
    /// The study has no trial.
    #[error("{0} has no finished trial")]
    Empty(String),
    /// The search is for a front, so its scores change from proposal to proposal.
    #[error("a search for a front of several metrics does not learn from earlier studies")]
    Front,
    /// No trial of the study has the metric that the search optimises.
    #[error("no trial of {0} has a `{1}` to learn from")]
    NotMeasured(String, String),
    /// The study varied other parameters: the study, its parameters, and the parameters of the search.
    #[error("{0} has no parameter in common with this search: there {1}; here {2}")]
    NothingInCommon(String, String, String),
    /// The study tried other settings than the search has of the common parameters.
    #[error("no trial of {0} is among the settings of this search: {1}")]
    NoneWithin(String, String),
}

impl EarlierError {
    /// Returns advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoJournal { .. } => "give the folder that the search prints as `results`, or the journal.jsonl in it",
            Self::Own { .. } => "its trials already count; after --fresh, give the folder with the old trials",
            Self::Journal(JournalError::Format { .. }) => "read it with the gputune that wrote it, or leave it out",
            Self::Journal(JournalError::Damaged { .. }) => {
                "take the damaged line out of a copy, or leave the study out"
            }
            Self::Journal(_) => "is the path right, and may this user read it?",
            Self::Empty { .. } => "let that search finish a probe, or leave it out",
            Self::Front => "leave the earlier studies out, or write weights instead of pareto",
            Self::NotMeasured { .. } => "leave it out, or optimise what its steps report",
            Self::NothingInCommon { .. } => "parameters are compared by name: rename them, or leave the study out",
            Self::NoneWithin { .. } => "leave the study out, or widen the space",
        }
    }
}

/// The trials of an earlier study, by names and values.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierStudy {
    place: String,
    trials: Vec<(Settings, Outcome)>,
}

impl EarlierStudy {
    /// The most studies that one search learns from. It ignores further studies. A round number.
    pub const MOST: usize = 5;

    /// Reads the folder of a search, or its journal. Another search may be writing to it.
    ///
    /// # Errors
    /// There is no journal, or it cannot be read.
    pub fn read(place: &Path) -> Result<Self, EarlierError> {
        let path = if place.is_dir() { place.join(JOURNAL) } else { place.to_owned() };
        if !path.is_file() {
            return Err(EarlierError::NoJournal(place.to_owned()));
        }
        if path.metadata().is_ok_and(|file| file.len() == 0) {
            return Err(EarlierError::Empty(place.display().to_string()));
        }
        let (_, lines) = journal::read(&path)?;
        let trials = lines
            .into_iter()
            .filter(|line| line.as_it_is.is_none())
            .map(|Line { config, outcome, .. }| (config, outcome));
        Ok(Self { place: place.display().to_string(), trials: trials.collect() })
    }

    /// Reads a study for a search with the folder `own`. A search cannot learn from itself.
    ///
    /// # Errors
    /// The study is that folder or its journal, there is no journal, or it cannot be read.
    pub fn read_for(place: &Path, own: &Path) -> Result<Self, EarlierError> {
        let absolute = |path: &Path| {
            path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
        };
        let own = absolute(&own.join(JOURNAL));
        if absolute(place) == own || absolute(&place.join(JOURNAL)) == own {
            return Err(EarlierError::Own(place.to_owned()));
        }
        Self::read(place)
    }

    /// Makes a study from a search in this process, with a name for it.
    pub fn of(name: impl Into<String>, space: &Space, history: &History) -> Self {
        // A config that sets nothing says nothing about any setting.
        let set = history.trials().iter().filter(|trial| !trial.config.is_as_it_is());
        let trials = set.map(|trial| (space.settings(&trial.config), trial.outcome.clone()));
        Self { place: name.into(), trials: trials.collect() }
    }

    /// The folder or journal as it was given, or the name.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the study's record for a journal.
    pub fn record(&self) -> WarmStart {
        let shown = self.trials.iter().map(|trial| serde_json::to_string(trial).unwrap_or_default());
        let digest = shown.fold(EMPTY_DIGEST, |digest, trial| added_to_digest(digest, trial.as_bytes()));
        WarmStart { place: self.place.clone(), trials: self.trials.len(), digest: format!("{digest:016x}") }
    }

    /// Returns the part of the study that a search of this space can learn from.
    ///
    /// # Errors
    /// The objective is a front. The study has no trial, no metric of the objective, no parameter of the space, or none of its
    /// settings.
    pub fn seen_from(&self, space: &Space, objective: &Objective) -> Result<Earlier, EarlierError> {
        let place = || self.place.clone();
        if objective.is_pareto() {
            return Err(EarlierError::Front);
        }
        if self.trials.is_empty() {
            return Err(EarlierError::Empty(place()));
        }
        let has = |name: &str| self.trials.iter().any(|(settings, _)| settings.get(name).is_some());
        let common: Vec<usize> =
            (0..space.parameters().len()).filter(|&at| has(space.parameters()[at].name())).collect();
        if common.is_empty() {
            let here: Vec<&str> = space.parameters().iter().map(Parameter::name).collect();
            let (there, here) = (self.names().join(", "), here.join(", "));
            return Err(EarlierError::NothingInCommon(place(), there, here));
        }
        let measured =
            self.trials.iter().filter_map(|(settings, outcome)| Some((settings, score(objective, outcome)?)));
        let measured: Vec<(&Settings, f64)> = measured.collect();
        if measured.is_empty() {
            return Err(EarlierError::NotMeasured(place(), objective.metric().to_owned()));
        }
        let mut within = 0;
        let mut found: BTreeMap<Vec<u64>, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        for (settings, score) in measured {
            let levels = common.iter().map(|&at| level(&space.parameters()[at], settings));
            let Some(levels) = levels.collect::<Option<Vec<f64>>>() else { continue };
            within += 1;
            let key = levels.iter().map(|level| level.to_bits()).collect();
            found.entry(key).or_insert_with(|| (levels, Vec::new())).1.push(score);
        }
        if found.is_empty() {
            let settings = common.iter().map(|&at| &space.parameters()[at]);
            let settings = settings.map(|parameter| format!("{} = {}", parameter.name(), parameter.summary()));
            let settings = settings.collect::<Vec<_>>().join("; ");
            return Err(EarlierError::NoneWithin(place(), settings));
        }
        let mean = |scores: &[f64]| scores.iter().map(|score| score / scores.len() as f64).sum::<f64>();
        let points = found.into_values().map(|(levels, scores)| Point { levels, score: mean(&scores) });
        Ok(Earlier::new(self.place.clone(), within, common, points.collect(), objective.direction()))
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.trials.iter().flat_map(|(settings, _)| settings.iter()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// Returns the score of a trial. A config that lacked memory there may have enough here, so its measurement counts.
fn score(objective: &Objective, outcome: &Outcome) -> Option<f64> {
    let measurement = outcome.measurement()?;
    match objective.judge(measurement) {
        Judgement::Feasible(score) => Some(score),
        Judgement::Infeasible { lacks_memory: true, .. } => {
            let score = objective.score(objective.estimate(measurement)?.value);
            score.is_finite().then_some(score)
        }
        Judgement::Infeasible { lacks_memory: false, .. } => None,
    }
}

/// Returns where a trial lies among the settings of a parameter: its level, with a fraction between two settings. Not a number if
/// the parameter was not active; `None` outside of the settings.
fn level(parameter: &Parameter, settings: &Settings) -> Option<f64> {
    let Some(value) = settings.get(parameter.name()) else { return Some(f64::NAN) };
    match parameter.level(value) {
        Some(level) => Some(f64::from(level)),
        None if parameter.is_ordinal() => between(parameter, value.as_f64()?),
        None => None,
    }
}

/// Returns the level of a number that lies between two settings: by ratio if both are positive, else by difference.
fn between(parameter: &Parameter, number: f64) -> Option<f64> {
    let setting = |level: u32| parameter.value(level).as_f64();
    let (mut low, mut high) = (0, u32::try_from(parameter.len().checked_sub(1)?).ok()?);
    if !(setting(low)?..=setting(high)?).contains(&number) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if setting(middle)? <= number { low = middle } else { high = middle }
    }
    let (from, to) = (setting(low)?, setting(high)?);
    let share =
        if from > 0.0 { libm::log(number / from) / libm::log(to / from) } else { (number - from) / (to - from) };
    share.is_finite().then(|| f64::from(low) + share.clamp(0.0, 1.0))
}

/// An earlier study as a search of one space sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Earlier {
    place: String,
    trials: usize,
    /// The places of the parameters in common, in the order of the space.
    pub(super) parameters: Vec<usize>,
    /// The configs, the best first.
    pub(super) points: Vec<Point>,
    /// A number that is equal for studies with equal contents.
    pub(super) id: u64,
}

/// A config of the study, in the parameters that the search has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    /// The level of each parameter in common; see [`level`].
    pub(super) levels: Vec<f64>,
    pub(super) score: f64,
}

impl Earlier {
    /// The most configs of a study that are used: a round number, since the work grows with their number.
    const MOST: usize = 300;

    fn new(place: String, trials: usize, parameters: Vec<usize>, mut points: Vec<Point>, direction: Direction) -> Self {
        points.sort_by(|a, b| b.score.total_cmp(&a.score));
        if points.len() > Self::MOST {
            points = spread(points.len(), Self::MOST).into_iter().map(|at| points[at].clone()).collect();
        }
        let values = points.iter().flat_map(|point| point.levels.iter().chain([&point.score]));
        let numbers = parameters.iter().map(|&at| at as u64).chain(values.map(|value| value.to_bits()));
        let start = added_to_digest(EMPTY_DIGEST, &[u8::from(direction == Direction::Minimize)]);
        let id = numbers.fold(start, |digest, number| added_to_digest(digest, &number.to_le_bytes()));
        Self { place, trials, parameters, points, id }
    }

    /// The folder or journal of the study as it was given, or its name.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the number of trials whose settings are within the space.
    pub fn trials(&self) -> usize {
        self.trials
    }

    /// How many parameters of the space the study has.
    pub fn in_common(&self) -> usize {
        self.parameters.len()
    }

    /// Returns the configs of the space that are nearest to the study's best configs, the best first. Parameters that the study
    /// lacks are as in `start`, or at their first settings.
    pub(super) fn leaders(&self, space: &Space, start: Option<&Config>) -> impl Iterator<Item = Config> {
        const MOST: usize = 10;
        self.points.iter().take(MOST).filter_map(move |point| self.nearest(space, start, point))
    }

    fn nearest(&self, space: &Space, start: Option<&Config>, point: &Point) -> Option<Config> {
        let setting = |(at, parameter): (usize, &Parameter)| {
            let level = match self.parameters.binary_search(&at) {
                Ok(common) => Some(point.levels[common]).filter(|level| !level.is_nan()).map(|l| l.round() as u32),
                Err(_) => start.and_then(|start| start.level(at)),
            };
            level.map(|level| (parameter.name().to_owned(), parameter.value(level)))
        };
        let mut settings: Vec<(String, Value)> = space.parameters().iter().enumerate().filter_map(setting).collect();
        loop {
            match space.locate(&settings.iter().cloned().collect()) {
                Ok(config) => return Some(config),
                Err(LocateError::Inactive { name, .. }) => settings.retain(|(known, _)| *known != name),
                Err(_) => return None,
            }
        }
    }
}

/// Selects `most` places of a list that begins with the best: half of them are the best places, the other half is spread over the
/// rest.
pub(super) fn spread(len: usize, most: usize) -> Vec<usize> {
    if len <= most {
        return (0..len).collect();
    }
    let best = most / 2;
    (0..best).chain((0..most - best).map(|at| best + at * (len - best) / (most - best))).collect()
}

/// The digest of no bytes.
const EMPTY_DIGEST: u64 = 0xCBF2_9CE4_8422_2325;

/// Adds bytes to a digest: FNV-1a (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>).
fn added_to_digest(digest: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(digest, |digest, &byte| (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}
