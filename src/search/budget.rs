//! Decides when a search ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{History, Trial, worded};
use crate::probe::stats::median;

/// The limits on the cost of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Probes to run, the baseline included. Rounds are extra.
    pub probes: u32,
    /// Wall time of the whole search, its end included.
    pub time: Duration,
    /// The GPU time for probes and rounds together: the time of each, times its GPUs. `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_time: Option<Duration>,
    /// The most rounds, in which configs are compared next to each other. With zero each config is measured once, and no config
    /// is proven to be faster.
    pub rounds: u32,
    /// The least gain, as a share of the best, that the next few probes together must promise. Zero never stops a search.
    ///
    /// The number of these probes is log2 of the number of configs, from 8 to 16. The expected gains of that many last probes stand
    /// for the next probes. Only a strategy that reports expected gains is limited.
    ///
    /// The search also ends when ten gains in a row are below a quarter of the width of the best's 95% interval. Measurements
    /// cannot distinguish such gains from zero. Widths above 20% of the best count as 20%.
    pub least_gain: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { probes: 24, time: Duration::from_secs(20 * 60), gpu_time: None, rounds: 1000, least_gain: 0.01 }
    }
}

worded! {
    /// Why a search ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum StopReason {
        ProbesSpent = "all probes of its budget were run": "All probes of the budget are done.";
        TimeSpent = "no time is left for another": "Another probe would not have fitted into the time limit.";
        GpuTimeSpent = "no GPU time is left for another":
            "Another probe would not have fitted into the limit of GPU time.";
        AllocationEnds = "the allocation ends; the same command goes on in another one":
            "Another probe would not have fitted into the rest of the allocation.";
        SpaceExhausted = "every config was probed or ruled out": "Every config has been probed or ruled out.";
        NothingFound = "no further config was found; whether the rules leave one is not known":
            "No further config was found, and it is not known whether the rules leave any.";
        LittleToGain = "another probe is expected to gain too little":
            "Further probes are expected to gain less than the budget asks.";
        GainWithinNoise = "another probe is expected to gain less than the noise":
            "Further probes are expected to gain as much as the budget asks, but each less than measurements can distinguish.";
        Interrupted = "interrupted": "Someone stopped it.";
        Running = "still running": "It has not ended: probes are still run.";
    }
}

impl Budget {
    /// Returns the time for probes and rounds. The rest is for ending processes and writing results.
    pub(crate) fn for_probes(&self) -> Duration {
        /// Four processes with loader workers end in a second; both are round numbers.
        const LONGEST_END: Duration = Duration::from_secs(2);
        const SHARE: u32 = 20;
        self.time.saturating_sub((self.time / SHARE).min(LONGEST_END))
    }

    fn at_most_half(&self, reserve: Duration) -> Duration {
        reserve.min(self.time / 2)
    }

    /// Returns why the search for new configs must end here, if it must. `elapsed` is the wall time so far, `running` is the number
    /// of running probes, and `reserve` is the time that rounds need afterwards.
    ///
    /// A probe is expected to take as long as the last ones. Until two configs are measured, no reserve is needed, since a single
    /// config cannot be compared with anything.
    pub fn stop(&self, history: &History, elapsed: Duration, running: usize, reserve: Duration) -> Option<StopReason> {
        const FEWEST: usize = 2;
        let searched = history.count_searched();
        if searched + running >= self.probes as usize {
            return Some(StopReason::ProbesSpent);
        }
        let measured = history.searched().filter(|trial| trial.outcome.measurement().is_some()).take(FEWEST).count();
        let reserve = if measured < FEWEST { Duration::ZERO } else { self.at_most_half(reserve) };
        (searched > 0 && elapsed + expected_probe(history) + reserve > self.for_probes())
            .then_some(StopReason::TimeSpent)
    }

    /// Returns how many probes are left, by their number and by the time that probes took so far, with `beside` probes at a time.
    /// Rounds do not count.
    pub fn probes_left(&self, history: &History, elapsed: Duration, beside: u32, reserve: Duration) -> u32 {
        let searched = u32::try_from(history.count_searched()).unwrap_or(u32::MAX);
        let left = self.probes.saturating_sub(searched);
        let expected = expected_probe(history);
        if expected.is_zero() {
            return left;
        }
        let time = self.for_probes().saturating_sub(elapsed + self.at_most_half(reserve));
        let in_time = (time.div_duration_f64(expected) * f64::from(beside.max(1))) as u32;
        left.min(in_time)
    }
}

/// Returns the expected time of the next probe: the median of the last measured probes, or else of all probes.
pub(crate) fn expected_probe(history: &History) -> Duration {
    /// Few, because the first probe imports the modules that later probes are forked with.
    const LAST: usize = 3;
    let searched =
        || history.trials().iter().rev().map(AsRef::as_ref).filter(|trial: &&Trial| !trial.purpose.is_repeated());
    let seconds = |counts: &dyn Fn(&Trial) -> bool| -> Option<f64> {
        let counted = searched().filter(|trial| counts(trial)).take(LAST);
        median(&counted.map(|trial| trial.elapsed.as_secs_f64()).collect::<Vec<f64>>())
    };
    let is_measured = |trial: &Trial| trial.outcome.measurement().is_some();
    let typical = seconds(&is_measured).or_else(|| seconds(&|_| true));
    Duration::from_secs_f64(typical.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Measurement, Outcome};
    use crate::search::tests::{numbers, trial};

    #[test]
    fn a_probe_must_fit_beside_what_is_reserved() {
        let budget = Budget { time: Duration::from_secs(90), ..Budget::default() };
        let mut history = History::default();
        let reserve = Duration::from_secs(30);
        assert_eq!(budget.probes_left(&history, Duration::ZERO, 1, reserve), 24);
        for (number, left) in [(0, 4), (1, 3), (2, 2), (3, 1)] {
            assert_eq!(budget.stop(&history, history.elapsed(), 0, reserve), None, "{number}");
            let (config, elapsed) = (numbers(0, 9).config(number.into()).unwrap(), Duration::from_secs(11));
            history.push(Trial { elapsed, ..trial(number, config, Outcome::Measured(Measurement::default())) });
            assert_eq!(budget.probes_left(&history, history.elapsed(), 1, reserve), left);
        }
        assert_eq!(budget.stop(&history, Duration::from_secs(48), 0, reserve), Some(StopReason::TimeSpent));
        assert_eq!(budget.stop(&history, Duration::from_secs(48), 0, Duration::ZERO), None);
    }
}
