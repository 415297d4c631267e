//! What larger batches bring: how much of a step is there whatever its batch.

use super::super::cause::{Worth, shown_times};
use super::super::evidence::{Differential, Evidence, ratio};

/// Returns the share of a step that does not depend on the batch, from the line through a step and one of twice the
/// batch.
pub(super) fn fixed_share(times: f64) -> f64 {
    (2.0 - 2.0 / times).clamp(0.0, 1.0)
}

/// The seconds of a step of replayed batches, and those that the device's own phases take of it: what the loop's own code takes in
/// each step is no launch. Without phases all of it is the device's.
#[derive(Clone, Copy)]
struct Step {
    whole: f64,
    device: f64,
}

impl Step {
    /// Reads a run whose steps have so many batches of the job.
    fn of(evidence: &Evidence, differential: Differential, batches: f64) -> Option<Self> {
        let run = evidence.run(differential)?;
        let by_rate = || ratio(batches, evidence.rate_of(differential)?.value);
        let whole = run.timing.step_seconds.or_else(by_rate)?;
        let phases = ["forward", "backward", "optimizer"].iter().filter_map(|name| run.phase_seconds.get(*name));
        let device = Some(phases.sum::<f64>()).filter(|seconds| *seconds > 0.0 && *seconds <= whole);
        Some(Self { whole, device: device.unwrap_or(whole) })
    }

    /// How many times as many samples per second there are if the device takes so long for each batch.
    fn with_device(self, seconds: f64) -> Option<f64> {
        ratio(self.whole, (self.whole - self.device).max(0.0) + seconds)
    }
}

/// How many times as many samples per second larger batches bring by the device's own phases.
pub(super) struct Larger {
    /// With twice the batch.
    pub(super) twice: f64,
    /// With eight times the batch, where that was measured, and if what is there whatever the batch vanished.
    eight: Option<(f64, f64)>,
}

impl Larger {
    pub(super) fn of(evidence: &Evidence) -> Option<Self> {
        let by_device = |differential: Differential, batches: f64| {
            let gain = evidence.gain_over_replay(differential)?;
            let once = Step::of(evidence, Differential::Replay, 1.0)?;
            let many = Step::of(evidence, differential, batches)?;
            let times = once.with_device(many.device / batches).map_or(gain.times, |times| times.min(gain.times));
            // The line through both has the time that each batch adds: no less than what the intervals leave open.
            let open = many.device * (1.0 - gain.at_least / gain.times);
            let added = (many.device - once.device).max(open) / (batches - 1.0);
            Some((times, once.with_device(added).unwrap_or(times).max(times)))
        };
        let (twice, _) = by_device(Differential::DoubleBatch, 2.0)?;
        Some(Self { twice, eight: by_device(Differential::EightBatches, 8.0) })
    }

    /// What it is worth if what is there whatever the batch vanished, and by the batch alone.
    pub(super) fn worth(&self, evidence: &Evidence) -> Worth {
        let size = |batches: u32| {
            let sizes = evidence.batch_size().map(|size| format!(" ({size} to {})", size.saturating_mul(batches)));
            sizes.unwrap_or_default()
        };
        let by_parameters = |differential| evidence.gain_over_replay(differential).map(|gain| gain.times);
        match self.eight {
            Some((times, vanished)) => {
                let words = format!(
                    "eight times the batch{}: {} as many samples per second, replayed; without what is there whatever the batch {}",
                    size(8),
                    shown_times(times),
                    shown_times(vanished)
                );
                Worth::measured(vanished, words).by_parameters(by_parameters(Differential::EightBatches))
            }
            None => {
                let times = shown_times(self.twice);
                let words = format!("twice the batch{}: {times} as many samples per second, replayed", size(2));
                Worth::measured(self.twice, words).by_parameters(by_parameters(Differential::DoubleBatch))
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
        // A step of 0.95 whatever the batch, and 0.05 for each: twice the batch takes 1.05, eight times 1.35.
        let twice = Job::cpu().replay(100.0).ran(Differential::DoubleBatch, 100.0 * 2.0 / 1.05);
        let worth = |job: &Job| Larger::of(&job.evidence()).unwrap().worth(&job.evidence());
        assert!((worth(&twice).times.unwrap() - 2.0 / 1.05).abs() < 1e-9);
        let eight = twice.ran(Differential::EightBatches, 100.0 * 8.0 / 1.35);
        let worth = worth(&eight);
        assert!((worth.times.unwrap() - 20.0).abs() < 1e-6, "{worth:?}");
        assert!((worth.by_parameters.unwrap() - 8.0 / 1.35).abs() < 1e-9, "{worth:?}");
    }
}
