//! A probed config with its outcome and slot, its line in the journal, and the history of all trials.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::arrival;
use crate::model::measurement::Exchange;
use crate::model::outcome::Outcome;
use crate::model::space::{Config, LocateError, Settings, Space, Value};

worded! {
    /// The reason why a config was probed; it determines how carefully.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Purpose {
        Baseline = "baseline": "The user runs this config today.";
        Search = "search": "The strategy proposed this config.";
        Round = "round": "The config was probed before, and is re-measured next to other configs.";
    }
}

impl Purpose {
    /// Returns true if the probe repeats a known config instead of trying a new config.
    pub fn is_repeated(self) -> bool {
        self == Self::Round
    }
}

/// The part of a machine that a probe may use: some of its GPUs, whole cores near them, and a share of its memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// Its number among the slots of a search, counted from 1.
    pub number: u32,
    /// The machine.
    pub host: String,
    /// Its GPUs by UUID, since a GPU's number can differ between processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// The CPUs that it is bound to, by kernel number; empty if it is not bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<u32>,
    /// Its share of the host's memory in bytes; `None` if it may use all memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Slot {
    /// Makes a slot with only a number, for steps in this process.
    pub fn numbered(number: u32) -> Self {
        Self { number, host: String::new(), gpus: Vec::new(), cores: Vec::new(), memory_bytes: None }
    }

    /// Returns the number of GPUs in a slot; `whole` if there is no slot, or it names no GPUs.
    pub fn count_gpus(slot: Option<&Self>, whole: u32) -> u32 {
        let own = slot.map(|slot| slot.gpus.len()).filter(|count| *count > 0);
        own.and_then(|count| u32::try_from(count).ok()).unwrap_or(whole)
    }

    /// Returns its CPUs in the kernel's format: `0-3,8`.
    pub fn processors(&self) -> String {
        let shown = |range: &[u32]| match range {
            [first, .., last] => format!("{first}-{last}"),
            other => other.iter().map(u32::to_string).collect(),
        };
        self.cores.chunk_by(|a, b| a.checked_add(1) == Some(*b)).map(shown).collect::<Vec<_>>().join(",")
    }

    /// Formats the GPU and CPU counts, such as `1 GPU, 4 CPUs`.
    pub fn shape(&self) -> String {
        let counted = |count: usize, name: &str| format!("{count} {name}{}", if count == 1 { "" } else { "s" });
        let gpus = if self.gpus.is_empty() { String::new() } else { counted(self.gpus.len(), "GPU") + ", " };
        gpus + &counted(self.cores.len(), "CPU")
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.number)?;
        let gpus = self.gpus.iter().map(|uuid| uuid.chars().take(12).collect::<String>());
        let cores = (!self.cores.is_empty()).then(|| format!("CPUs {}", self.processors()));
        let parts: Vec<String> = gpus.chain(cores).collect();
        if parts.is_empty() { Ok(()) } else { write!(f, " ({})", parts.join(", ")) }
    }
}

/// A config with its outcome and number.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its number, counted from 1; its log has the same number.
    pub number: u32,
    /// Why it was probed.
    pub purpose: Purpose,
    /// The probed config.
    pub config: Config,
    /// How it ended.
    pub outcome: Outcome,
    /// Wall time of the probe, starting and cleaning up included.
    pub elapsed: Duration,
    /// When the probe ended, in seconds of Unix time; `None` if it was not recorded.
    pub ended_at: Option<f64>,
    /// The slot that it ran in, if probes ran in parallel; absent if it had the machine to itself.
    pub slot: Option<Slot>,
}

impl Trial {
    /// Makes a trial that took no time and had the machine to itself.
    pub fn new(number: u32, purpose: Purpose, config: Config, outcome: Outcome) -> Self {
        Self { number, purpose, config, outcome, elapsed: Duration::ZERO, ended_at: None, slot: None }
    }

    /// Returns its GPU time in seconds: its wall time times the GPUs of its slot, or `whole` if the slot names none.
    pub fn gpu_seconds(&self, whole: u32) -> f64 {
        self.elapsed.as_secs_f64() * f64::from(Slot::count_gpus(self.slot.as_ref(), whole))
    }
}

/// All finished trials, in the order in which they ended.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Shared with other owners, since a trial does not change.
    trials: Vec<Arc<Trial>>,
    by_config: HashMap<Config, Vec<usize>>,
    searched: usize,
    /// The highest trial number; not always the last trial's.
    highest: u32,
    /// Parameters that nothing in the step used, each once.
    closed: Vec<String>,
    /// The index of the first trial with a measured cost of communication between ranks.
    exchange_at: Option<usize>,
}

impl History {
    /// Adds a finished trial.
    pub fn push(&mut self, trial: impl Into<Arc<Trial>>) {
        let trial = trial.into();
        self.searched += usize::from(!trial.purpose.is_repeated());
        self.highest = self.highest.max(trial.number);
        if trial.outcome.measurement().is_some_and(|told| told.exchange.is_some()) {
            self.exchange_at.get_or_insert(self.trials.len());
        }
        for name in trial.outcome.closes() {
            if !self.closed.contains(name) {
                self.closed.push(name.clone());
            }
        }
        self.by_config.entry(trial.config.clone()).or_default().push(self.trials.len());
        self.trials.push(trial);
    }

    /// Replaces the last trial with the same number; does nothing without such a trial.
    pub(crate) fn amend(&mut self, trial: Trial) {
        let Some(place) = self.trials.iter().rposition(|known| known.number == trial.number) else { return };
        let mut trials = std::mem::take(&mut self.trials);
        trials[place] = Arc::new(trial);
        // A resumed search also computes closed parameters and the communication cost from the amended trials.
        *self = trials.into_iter().collect();
    }

    /// Returns the trials, oldest first.
    pub fn trials(&self) -> &[Arc<Trial>] {
        &self.trials
    }

    /// Returns the trials of one config, oldest first.
    pub fn of(&self, config: &Config) -> impl Iterator<Item = &Trial> {
        self.by_config.get(config).into_iter().flatten().map(|&place| &*self.trials[place])
    }

    /// Returns true if another probe would add nothing. A probe that closed a parameter does not count, since it says nothing
    /// about the rest of the config.
    pub fn is_settled(&self, config: &Config) -> bool {
        self.of(config).any(|trial| trial.outcome.closes().is_empty())
    }

    /// Returns the trials that looked for a better config. They include the baseline, but no repeated trials.
    pub fn searched(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().map(Arc::as_ref).filter(|trial| !trial.purpose.is_repeated())
    }

    /// Returns the number of trials that looked for a better config.
    pub fn count_searched(&self) -> usize {
        self.searched
    }

    /// Returns true if other programs kept the CPUs busy in most probes.
    pub(crate) fn is_beside_others(&self) -> bool {
        let measured = || self.trials.iter().filter_map(|trial| trial.outcome.measurement());
        let beside = measured().filter(|run| run.machine.foreign_cpu_share.is_some()).count();
        beside * 2 > measured().count()
    }

    /// Returns the highest number of a trial, or 0 for an empty history.
    pub fn highest_number(&self) -> u32 {
        self.highest
    }

    /// Returns the parameters that are closed for all later probes: nothing used them in a probe, or they only affect
    /// communication between ranks that costs next to nothing.
    pub fn closed(&self) -> Vec<&str> {
        let mut closed = self.taken_by_nothing();
        let by_exchange = self.exchange().into_iter().flat_map(|(_, exchange)| &exchange.closes);
        for name in by_exchange.map(String::as_str) {
            if !closed.contains(&name) {
                closed.push(name);
            }
        }
        closed
    }

    /// Returns the parameters that nothing used in some probe.
    pub fn taken_by_nothing(&self) -> Vec<&str> {
        self.closed.iter().map(String::as_str).collect()
    }

    /// Returns the cost of communication between ranks, and the trial next to which it was measured.
    pub fn exchange(&self) -> Option<(&Trial, &Exchange)> {
        let trial = self.trials.get(self.exchange_at?)?;
        Some((trial, trial.outcome.measurement()?.exchange.as_ref()?))
    }

    /// Returns the settings that a probe applies. Drops parameters that nothing uses; a parameter closed by the communication
    /// experiment gets the setting of that experiment's trial, or none.
    pub fn set(&self, space: &Space, settings: &Settings) -> Settings {
        let Some((trial, exchange)) = self.exchange() else { return settings.without(&self.closed()) };
        let stays = |name: &str| exchange.closes.iter().any(|closed| closed == name);
        let kept = if trial.config.is_as_it_is() { Settings::default() } else { space.settings(&trial.config) };
        let of = |(name, value): (&str, &Value)| {
            let value = if stays(name) { kept.get(name).cloned()? } else { value.clone() };
            Some((name.to_owned(), value))
        };
        let set: Settings = settings.iter().filter_map(of).collect();
        set.without(&self.taken_by_nothing())
    }

    /// Returns the total wall time of all trials; time in which several ran counts once.
    pub fn elapsed(&self) -> Duration {
        wall_time(self.trials.iter().map(Arc::as_ref))
    }
}

/// Returns the total wall time of trials; time in which several ran in parallel counts once.
pub fn wall_time<'t>(trials: impl IntoIterator<Item = &'t Trial>) -> Duration {
    let (beside, alone): (Vec<&Trial>, Vec<&Trial>) =
        trials.into_iter().partition(|trial| trial.slot.is_some() && trial.ended_at.is_some());
    let span = |trial: &&Trial| {
        let end = trial.ended_at.unwrap_or(0.0);
        (end - trial.elapsed.as_secs_f64(), end)
    };
    let mut spans: Vec<(f64, f64)> = beside.iter().map(span).collect();
    spans.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (mut seconds, mut until) = (0.0, f64::NEG_INFINITY);
    for (begin, end) in spans {
        seconds += (end - begin.max(until)).max(0.0);
        until = until.max(end);
    }
    let alone: Duration = alone.iter().map(|trial| trial.elapsed).sum();
    alone + Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

impl<T: Into<Arc<Trial>>> FromIterator<T> for History {
    fn from_iter<I: IntoIterator<Item = T>>(trials: I) -> Self {
        let mut history = Self::default();
        trials.into_iter().for_each(|trial| history.push(trial));
        history
    }
}

/// One finished trial, as a line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The trial's number.
    pub trial: u32,
    /// Why it was run.
    pub purpose: Purpose,
    /// Names and values; for an unmodified job, the settings that it reports.
    pub config: Settings,
    /// For an unmodified job, the few settings that it was given nevertheless; `None` for all other trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_it_is: Option<Settings>,
    /// Why the strategy proposed the trial, if it gives a reason. The key is not `reason`, because a failure on the
    /// same line has that key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The gain that the strategy expected, as a share of the best result at that time, if it gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_gain: Option<f64>,
    /// Wall time of the probe in seconds.
    pub elapsed_s: f64,
    /// When the probe ended, in seconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<f64>,
    /// The slot that it ran in, if probes ran in parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Line {
    /// Returns the trial, with its config in the space.
    ///
    /// # Errors
    /// The space has no such config.
    pub fn trial(&self, space: &Space) -> Result<Trial, LocateError> {
        let config = match &self.as_it_is {
            Some(set) => space.as_it_is_with(set),
            None => space.locate(&self.config.chosen(space)),
        };
        Ok(Trial {
            elapsed: Duration::try_from_secs_f64(self.elapsed_s).unwrap_or_default(),
            ended_at: self.ended_at,
            slot: self.slot.clone(),
            ..Trial::new(self.trial, self.purpose, config?, self.outcome.clone())
        })
    }
}

/// Returns the settings of a trial; for an unmodified job, the settings that it reports.
pub fn settings_of(trial: &Trial, space: &Space) -> Settings {
    match trial.outcome.measurement() {
        Some(measurement) if trial.config.is_as_it_is() => {
            arrival::used(space, &measurement.facts, &space.settings(&trial.config))
        }
        _ => space.settings(&trial.config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::measurement::Measurement;
    use crate::model::outcome::Failure;
    use crate::model::space::{Parameter, Space};

    #[test]
    fn time_in_which_several_ran_counts_once() {
        let space = Space::new([Parameter::values("x", [1, 2])]).unwrap();
        let config = space.config(0).unwrap();
        let ran = |begin: f64, end: f64, slot: Option<u32>| Trial {
            elapsed: Duration::from_secs_f64(end - begin),
            ended_at: Some(end),
            slot: slot.map(Slot::numbered),
            ..Trial::new(1, Purpose::Search, config.clone(), Outcome::Interrupted)
        };
        assert_eq!(wall_time(&[ran(0.0, 4.0, None), ran(0.0, 4.0, None)]), Duration::from_secs(8));
        let beside = [ran(0.0, 4.0, None), ran(4.0, 9.0, Some(1)), ran(4.5, 8.0, Some(2)), ran(8.5, 10.0, Some(2))];
        assert_eq!(wall_time(&beside), Duration::from_secs(10));
    }

    #[test]
    fn an_amended_trial_changes_closed_parameters_and_the_communication_cost() {
        let space = Space::new([Parameter::values("x", [1, 2])]).unwrap();
        let trial = |number: u32, outcome: Outcome| {
            Trial::new(number, Purpose::Search, space.config(u128::from(number - 1)).unwrap(), outcome)
        };
        let measured = || {
            let exchange = Some(Exchange { closes: vec!["bucket".to_owned()], ..Exchange::default() });
            Outcome::Measured(Measurement { exchange, ..Measurement::default() })
        };
        let failed = |closes: &[&str]| {
            let closes = closes.iter().map(|&name| name.to_owned()).collect();
            Outcome::Crashed(Failure { closes, ..Failure::new("gone") })
        };
        let mut history: History = [trial(1, measured()), trial(2, failed(&["unused"]))].into_iter().collect();
        let at = |history: &History| history.exchange().map(|(trial, _)| trial.number);
        assert_eq!((at(&history), history.closed()), (Some(1), vec!["unused", "bucket"]));
        history.amend(trial(1, failed(&[])));
        assert_eq!((at(&history), history.closed()), (None, vec!["unused"]));
        history.amend(trial(2, measured()));
        assert_eq!((at(&history), history.closed()), (Some(2), vec!["bucket"]));
        assert_eq!((history.count_searched(), history.highest_number()), (2, 2));
    }

    #[test]
    fn it_says_what_it_has() {
        let uuid = "GPU-0a1b2c3d-4e5f".to_owned();
        let slot = Slot { gpus: vec![uuid], cores: vec![0, 1, 2, 8], ..Slot::numbered(2) };
        assert_eq!(slot.to_string(), "slot 2 (GPU-0a1b2c3d, CPUs 0-2,8)");
        assert_eq!(slot.shape(), "1 GPU, 4 CPUs");
        assert_eq!(Slot::numbered(1).to_string(), "slot 1");
    }
}
