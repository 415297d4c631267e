//! The gain from larger batches: the part of a step that does not depend on its batch.

use super::super::cause::{Worth, shown_times};
use super::super::evidence::{Differential, Evidence, Gain, ratio};
use super::super::lines;

/// Returns the share of a step that does not depend on the batch, from the gain in samples per second of twice the batch.
pub(super) fn fixed_share(times: f64) -> f64 {
    (2.0 - 2.0 / times).clamp(0.0, 1.0)
}

/// The seconds of a step of replayed batches, and of its forward, backward and optimizer phases. The rest is the loop's own code.
/// Without phases, the device takes the whole step.
#[derive(Clone, Copy)]
struct Step {
    whole: f64,
    device: f64,
}

impl Step {
    /// Reads a run whose batch is this many times the job's batch.
    fn of(evidence: &Evidence, differential: Differential, batches: f64) -> Option<Self> {
        let run = evidence.run(differential)?;
        let by_rate = || ratio(batches, evidence.rate_of(differential)?.value);
        let whole = run.timing.step_seconds.or_else(by_rate)?;
        let phases = ["forward", "backward", "optimizer"].iter().filter_map(|name| run.phase_seconds.get(*name));
        let device = phases.sum::<f64>() * (1.0 - lines::python_in_computing(evidence));
        let device = Some(device).filter(|seconds| *seconds > 0.0 && *seconds <= whole);
        Some(Self { whole, device: device.unwrap_or(whole) })
    }

    /// Returns the gain in samples per second if the device takes this long for each batch.
    fn with_device(self, seconds: f64) -> Option<f64> {
        ratio(self.whole, self.own() + seconds)
    }

    /// Returns the seconds of the loop's own code.
    fn own(self) -> f64 {
        (self.whole - self.device).max(0.0)
    }

    /// Returns the gain in samples per second without the fixed cost of a step: the launches, and the loop's own code if it is smaller.
    /// `None` if the intervals hide the difference between one batch and eight.
    fn without_fixed(self, eight: Self, gain: Gain) -> Option<f64> {
        // The slope of the line through both steps is the time that each batch adds.
        let added = |once: f64, eight: f64| {
            let unsure = eight * (1.0 - gain.at_least / gain.times);
            (eight - once > unsure).then_some((eight - once) / (EIGHT - 1.0))
        };
        let by_device = added(self.device, eight.device)?;
        if self.own() > self.device - by_device {
            return self.with_device(by_device);
        }
        ratio(self.whole, added(self.whole, eight.whole)?)
    }
}

const EIGHT: f64 = 8.0;

/// The gain in samples per second from larger batches.
pub(super) struct Larger {
    /// The gain of twice the batch in the device's phases alone.
    pub(super) twice: f64,
    /// The gain of eight times the batch, if measured, and without the fixed cost of a step, if known.
    eight: Option<(f64, Option<f64>)>,
}

impl Larger {
    pub(super) fn of(evidence: &Evidence) -> Option<Self> {
        let once = Step::of(evidence, Differential::Replay, 1.0)?;
        let gain = evidence.gain_over_replay(Differential::DoubleBatch)?.times;
        let twice = Step::of(evidence, Differential::DoubleBatch, 2.0)?;
        let by_device = once.with_device(twice.device / 2.0).map_or(gain, |times| times.min(gain));
        let eight = evidence.gain_over_replay(Differential::EightBatches).map(|gain| {
            let eight = Step::of(evidence, Differential::EightBatches, EIGHT);
            (gain.times, eight.and_then(|eight| once.without_fixed(eight, gain)))
        });
        Some(Self { twice: by_device, eight })
    }

    /// Returns the worth without the fixed cost of a step, and by larger batches alone.
    pub(super) fn worth(&self, evidence: &Evidence) -> Worth {
        let size = |batches: u32| {
            let sizes = evidence.batch_size().map(|size| format!(" ({size} to {})", size.saturating_mul(batches)));
            sizes.unwrap_or_default()
        };
        match self.eight {
            Some((times, vanished)) => {
                let shown = shown_times(times);
                let words = format!("eight times the batch{}: {shown} as many samples per second, replayed", size(8));
                let vanished = vanished.filter(|vanished| *vanished > times);
                let rest = vanished.map(shown_times).map(|all| format!("; without the fixed cost of a step {all}"));
                let words = words + &rest.unwrap_or_default();
                Worth::measured(vanished.unwrap_or(times), words).by_parameters(Some(times))
            }
            None => {
                let gain = evidence.gain_over_replay(Differential::DoubleBatch).map(|gain| gain.times);
                let times = shown_times(gain.unwrap_or(self.twice));
                let words = format!("twice the batch{}: {times} as many samples per second, replayed", size(2));
                Worth::measured(self.twice, words).by_parameters(gain)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;

    #[test]
    fn eight_batches_tell_what_is_left_if_launches_vanished() {
        // A step takes 0.95 whatever the batch, and 0.05 for each batch: twice the batch takes 1.05, eight times 1.35.
        let twice = Job::cpu().replay(100.0).ran(Differential::DoubleBatch, 100.0 * 2.0 / 1.05);
        let worth = |job: &Job| Larger::of(&job.evidence()).unwrap().worth(&job.evidence());
        assert!((worth(&twice).times.unwrap() - 2.0 / 1.05).abs() < 1e-9);
        let eight = twice.ran(Differential::EightBatches, 100.0 * 8.0 / 1.35);
        let worth = worth(&eight);
        assert!((worth.times.unwrap() - 20.0).abs() < 1e-6, "{worth:?}");
        assert!((worth.by_parameters.unwrap() - 8.0 / 1.35).abs() < 1e-9, "{worth:?}");
    }

    #[test]
    fn where_eight_batches_take_no_longer_only_what_was_measured_is_said() {
        let job = Job::cpu().replay(100.0).ran(Differential::DoubleBatch, 200.0).ran(Differential::EightBatches, 820.0);
        let worth = Larger::of(&job.evidence()).unwrap().worth(&job.evidence());
        assert!((worth.times.unwrap() - 8.2).abs() < 1e-9, "{worth:?}");
        assert!(!worth.words.contains("without"), "{worth:?}");
    }
}
