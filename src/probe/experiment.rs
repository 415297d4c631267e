//! Experiments: probes that do more than measure a config's speed. They give an adapter's hook a special task.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{Settings, Value};
use crate::probe::adapter::{Adapter, Applied, Apply, By, Target};

/// An action that a probe does in addition to training, or instead of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The action.
    pub mode: Mode,
    /// The number of batches that [`Mode::Replay`] repeats, or that an epoch of [`Mode::ShortEpochs`] has.
    pub batches: u32,
    /// The numbers of workers that [`Mode::LoaderOnly`] tries, in this order.
    pub workers: Vec<u32>,
    /// How long [`Mode::LoaderOnly`] iterates with each number of workers, counted from its first batches; or how long
    /// [`Mode::LargestBatch`] reads.
    #[serde(with = "crate::model::quantity::seconds")]
    pub seconds: Duration,
    /// True if [`Mode::NoCommunication`] gathers all evidence, as [`Mode::Observe`] does.
    #[serde(default)]
    pub observe: bool,
    /// Settings by target, as `apply` would set them, for targets that no parameter of the space has. They have
    /// priority over the config's settings.
    pub set: BTreeMap<String, Value>,
}

/// The action of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// Trains as usual, and gathers facts that show why training waits.
    Observe,
    /// Trains on the first batches again and again, so that no data is loaded.
    Replay,
    /// Iterates over the training loader without training.
    LoaderOnly,
    /// Trains as usual, but the ranks exchange neither gradients nor weights.
    NoCommunication,
    /// Trains in epochs of a few batches, to measure the time between epochs.
    ShortEpochs,
    /// Reads batches ahead from the loader, and trains one step with the largest batch.
    LargestBatch,
    /// Trains as usual for three steps, and notes what the script uses.
    FirstRun,
    /// Trains as usual, and records a few steps with the framework's profiler.
    Trace,
}

impl Experiment {
    /// Makes an experiment with the usual numbers.
    pub fn new(mode: Mode) -> Self {
        let (workers, seconds) = (vec![0, 1, 2, 4], Duration::from_millis(2500));
        Self { mode, batches: 8, workers, seconds, observe: false, set: BTreeMap::new() }
    }

    /// Adds a setting to the experiment.
    #[must_use]
    pub fn with(mut self, target: &str, value: impl Into<Value>) -> Self {
        self.set.insert(target.to_owned(), value.into());
        self
    }

    /// Returns the settings as if each target were a parameter of the same name.
    fn applied(&self) -> (Apply, Settings) {
        let of_target = |name: &String| {
            let target = Target::parse(name).ok()?;
            Some(Applied { parameter: name.clone(), name: name.clone(), target, argument: None })
        };
        let apply = Apply { applied: self.set.keys().filter_map(of_target).collect(), ..Apply::default() };
        (apply, self.set.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let (apply, settings) = self.applied();
        apply.environment(&settings)
    }

    pub(super) fn hook_targets(&self) -> Vec<String> {
        let (apply, settings) = self.applied();
        apply.by_hook(&settings).map(|(applied, _)| applied.name.clone()).collect()
    }

    /// Returns the reason if the experiment is not possible with this adapter.
    pub(super) fn refusal(&self, adapter: Option<&Adapter>) -> Option<String> {
        if adapter.is_none() {
            return Some("an experiment needs an adapter: set `adapter = \"torch\"` in [step]".to_owned());
        }
        self.set.iter().find_map(|(name, value)| match Target::parse(name) {
            Err(error) => Some(error.to_string()),
            Ok(target) if target.by == By::Argument => Some(format!("`{name}` needs a parameter, whose name it takes")),
            Ok(target) if !target.accepts.takes(value) => {
                Some(format!("`{name}` is {value}, and takes {}", target.accepts.words()))
            }
            Ok(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::adapter::adapter;

    #[test]
    fn what_cannot_be_set_is_refused() {
        let torch = adapter("torch");
        let experiment = Experiment::new(Mode::Observe);
        assert_eq!(experiment.refusal(torch), None);
        assert!(experiment.refusal(None).unwrap().contains("adapter"));
        let refusal = |target: &str, value: Value| Experiment::new(Mode::Observe).with(target, value).refusal(torch);
        assert_eq!(refusal("dataloader.num_workers", Value::Int(2)), None);
        assert_eq!(refusal("env.OMP_NUM_THREADS", Value::Int(2)), None);
        assert!(refusal("dataloader.num_workers", Value::Int(-1)).unwrap().contains("whole numbers"));
        assert!(refusal("arg", Value::Int(1)).unwrap().contains("parameter"));
        assert!(refusal("dataloader.colour", Value::Int(1)).is_some());
    }
}
