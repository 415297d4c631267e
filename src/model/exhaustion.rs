//! Finds out if a resource that grows reaches its limit before the end of the training.

use super::RunLength;
use super::measurement::{HANDED_OUT, Measurement, SAMPLES_PER_SECOND};
use super::objective::Objective;

/// The longest time to a limit that matters if the length of the training is unknown: a day, as most trainings are shorter.
const A_DAY: f64 = 24.0 * 3600.0;

impl Measurement {
    /// Returns a sentence about a resource whose limit is reached before the end of a training of this many seconds. If the length is
    /// unknown, the limit must be reached within a day.
    ///
    /// A cache fills in the first epoch only. So unless it is known that the growth goes on after an epoch, the limit must be reached
    /// within the epoch.
    pub fn exhaustion(&self, run_seconds: Option<f64>, goes_on: bool) -> Option<String> {
        let epoch = if goes_on || self.grows_beyond_an_epoch() { None } else { self.epoch_seconds() };
        let most = run_seconds.unwrap_or(A_DAY).min(epoch.unwrap_or(f64::INFINITY));
        let growth = self.machine.growth.iter().find(|growth| growth.seconds_left() < most)?;
        Some(growth.words(self.timing.step_seconds))
    }

    /// Returns true if a resource grew, and the steps took longer than an epoch.
    pub fn grows_beyond_an_epoch(&self) -> bool {
        let saw_end = self.timing.epoch_factor.is_some() || self.timing.outliers.contains_key("epoch");
        let steps = self.account.as_ref().map(|account| account.steps_s);
        let is_longer = || steps.zip(self.epoch_seconds()).is_some_and(|(steps, epoch)| steps > epoch);
        !self.machine.growth.is_empty() && (saw_end || is_longer())
    }

    fn epoch_seconds(&self) -> Option<f64> {
        Some(self.samples_per_epoch()? / self.throughput?.value)
    }

    /// Returns the seconds of the whole training; `None` if nothing says how long it trains.
    pub fn run_seconds(&self, objective: &Objective) -> Option<f64> {
        let fact = |name: &str| self.facts.number(name).filter(|number| *number > 0.0);
        let length = objective.stated_run_length().or_else(|| fact("run.steps").map(RunLength::Steps));
        let rate = self.throughput.filter(|_| self.unit == SAMPLES_PER_SECOND)?.value;
        match length.or_else(|| fact("run.epochs").map(RunLength::Epochs))? {
            RunLength::Epochs(epochs) => Some(epochs * self.samples_per_epoch()? / rate),
            RunLength::Steps(steps) => Some(steps * self.timing.step_seconds?),
            RunLength::Samples(samples) => Some(samples / rate),
        }
    }

    /// Returns the samples of an epoch, as the throughput counts them; `None` if no loader says.
    ///
    /// If the script counts something else than the loader, such as tokens, each of the loader's samples counts for as much as in the
    /// measured time.
    pub fn samples_per_epoch(&self) -> Option<f64> {
        let fact = |name: &str| self.facts.number(name).filter(|number| *number > 0.0);
        let counted = self.metrics.get(HANDED_OUT).and_then(|handed_out| Some(self.throughput?.value / handed_out));
        let per_sample = counted.unwrap_or_else(|| f64::from(self.ranks.unwrap_or(1)));
        let of_sampler = fact("loader.samples").map(|samples| samples * per_sample);
        of_sampler.or_else(|| {
            let batch = self.timing.samples_per_step? / fact("accumulation").unwrap_or(1.0);
            Some(fact("loader.batches")? * batch)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Estimate, Fact, Growth, MachineUse, Resource, Timing};

    #[test]
    fn a_limit_counts_if_it_is_reached_before_the_end() {
        let gib = 1024.0 * 1024.0 * 1024.0;
        let memory = Growth { resource: Resource::HostMemory, per_second: gib / 4.0, left: 20.0 * gib };
        let mut run = Measurement {
            throughput: Some(Estimate::point(100.0)),
            timing: Timing { step_seconds: Some(0.1), ..Timing::default() },
            machine: MachineUse { growth: vec![memory], ..MachineUse::default() },
            ..Measurement::default()
        };
        let words = "host memory grows by 256 MiB a second (25.6 MiB a step): the 20.0 GiB that are left are full after 1m20s \
                     (800 steps)";
        assert_eq!(run.exhaustion(None, false).as_deref(), Some(words));
        assert_eq!(run.exhaustion(Some(79.0), false), None);
        assert!(run.exhaustion(Some(81.0), false).is_some());
        run.facts.insert(0, "loader.samples", Fact::Number(1000.0));
        assert_eq!(run.exhaustion(None, false), None, "a cache may be full at the end of the epoch, after 10 s");
        assert!(run.exhaustion(None, true).is_some(), "another run of the config grew for longer");
        assert!(!run.grows_beyond_an_epoch());
        let account = |steps_s| Some(crate::model::Account { steps_s, ..crate::model::Account::default() });
        run.account = account(11.0);
        assert!(run.exhaustion(None, false).is_some(), "an epoch takes 10 s");
        run.account = account(9.0);
        run.timing.epoch_factor = Some(0.9);
        assert!(run.exhaustion(None, false).is_some(), "it grew beyond an epoch");
        run.machine.growth = vec![Growth { resource: Resource::OpenFiles, per_second: 20.0, left: 964.0 }];
        let words = "open files grow by 20.0 a second (2.00 a step): 964 more reach the limit after 48.2 s (482 steps)";
        assert_eq!(run.exhaustion(None, false).as_deref(), Some(words));
        run.machine.growth[0] = Growth { resource: Resource::DeviceMemory, ..memory };
        let words = "device memory grows by 256 MiB a second (25.6 MiB a step): the 20.0 GiB that are left are full after 1m20s \
                     (800 steps)";
        assert_eq!(run.exhaustion(None, false).as_deref(), Some(words));
        run.machine.growth = vec![Growth { resource: Resource::OpenFiles, per_second: 0.01, left: 964.0 }];
        assert_eq!(run.exhaustion(None, false), None, "more than a day");
    }
}
