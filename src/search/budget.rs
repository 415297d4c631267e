//! Decides when a search ends.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{History, Trial};

/// The limits on the cost of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Probes to run, the baseline included; a short one counts like any other. The confirmation of the leaders is
    /// extra.
    pub probes: u32,
    /// Wall time of the whole search, confirmation included.
    pub time: Duration,
    /// The time that probes and confirmations may take of GPUs together: of each, its own times the GPUs that it had. `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_time: Option<Duration>,
    /// How often each leader is measured again, interleaved with the others, before a winner is named; those between which too
    /// little is known then, up to [twice as often](Self::most_confirmations).
    pub confirmations: u32,
    /// The gain, as a share of the best, that the next few probes together must be expected to bring: as many as bits name a
    /// config of the space, from eight to sixteen. Zero never stops a search.
    /// It counts only where the strategy reports the gain it expects, and what it expected of as many last probes
    /// stands for those to come. The search also ends when ten gains in a row are below a quarter of the width of the
    /// best's 95 % interval (a width of up to 20 % of the best counts), because measurements could not tell them from
    /// zero.
    pub least_gain: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { probes: 24, time: Duration::from_secs(20 * 60), gpu_time: None, confirmations: 2, least_gain: 0.01 }
    }
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// All probes of the budget are done.
    ProbesSpent,
    /// Another probe would not have fitted into the time limit.
    TimeSpent,
    /// Another probe would not have fitted into the limit of GPU time.
    GpuTimeSpent,
    /// Another probe would not have fitted into the rest of the allocation.
    AllocationEnds,
    /// Every config has been probed or ruled out.
    SpaceExhausted,
    /// No further config was found, and it is not known whether the rules leave any.
    NothingFound,
    /// Further probes are expected to gain less than the budget asks.
    LittleToGain,
    /// Further probes are expected to gain as much as the budget asks, but each less than measurements can distinguish.
    GainWithinNoise,
    /// Someone stopped it.
    Interrupted,
    /// It has not ended: probes are still run.
    Running,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ProbesSpent => "the budget of probes is spent",
            Self::TimeSpent => "the budget of time is spent",
            Self::GpuTimeSpent => "the budget of GPU time is spent",
            Self::AllocationEnds => "the allocation ends; the same command goes on in another one",
            Self::SpaceExhausted => "every config was probed or ruled out",
            Self::NothingFound => "no further config was found; whether the rules leave one is not known",
            Self::GainWithinNoise => "another probe is expected to gain less than measurements can tell apart",
            Self::LittleToGain => "another probe is expected to gain too little",
            Self::Interrupted => "interrupted",
            Self::Running => "still running",
        })
    }
}

/// The number of configs that are measured again at the end, the baseline included. These are at most
/// the best, the runner-up, a third one and the baseline.
pub(crate) const CONFIRMED: u32 = 4;

impl Budget {
    /// How often a leader is measured again at most, where it is in doubt which to name.
    pub fn most_confirmations(&self) -> u32 {
        /// With two rounds of four configs a difference has three degrees of freedom, with four nine, which halves the interval
        /// of a claim. A round number.
        const TIMES: u32 = 2;
        self.confirmations.saturating_mul(TIMES)
    }

    /// Returns why the search for new configs must end here, if it must; `elapsed` is the wall time so far, `running` how many
    /// are probed now.
    ///
    /// A probe is expected to take the median time of those that measured something. Time for the confirmation is set
    /// aside, up to half of the limit. The first two probes may run as long as there is any time, since a single config
    /// cannot be compared with anything.
    pub fn stop(&self, history: &History, elapsed: Duration, running: usize) -> Option<StopReason> {
        const FEWEST: usize = 2;
        let searched = history.count_searched();
        if searched + running >= self.probes as usize {
            return Some(StopReason::ProbesSpent);
        }
        let measured = |trial: &&Trial| trial.outcome.measurement().is_some();
        let leaders = history.contenders(|outcome| outcome.measurement().is_some()).filter(measured);
        let leaders = leaders.take(CONFIRMED as usize).count();
        let expected = expected_probe(history);
        let reserve = if searched < FEWEST {
            Duration::ZERO
        } else {
            self.reserve(expected_confirmation(history), u32::try_from(leaders).unwrap_or(CONFIRMED))
        };
        (searched > 0 && elapsed + expected + reserve > self.time).then_some(StopReason::TimeSpent)
    }

    /// Returns how many probes are left, by their number and by the time that those so far took, where so many run side by side;
    /// other work is not counted.
    pub fn probes_left(&self, history: &History, beside: u32) -> u32 {
        let searched = u32::try_from(history.count_searched()).unwrap_or(u32::MAX);
        let left = self.probes.saturating_sub(searched);
        let expected = expected_probe(history);
        if expected.is_zero() {
            return left;
        }
        let reserve = self.reserve(expected_confirmation(history), CONFIRMED);
        let time = self.time.saturating_sub(reserve);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "such casts saturate")]
        let in_time = (time.div_duration_f64(expected) * f64::from(beside.max(1))) as u32;
        left.min(in_time.saturating_sub(searched))
    }

    /// Returns the time to set aside for confirming this many leaders: enough for all rounds, up to half of the limit,
    /// and always enough for a [first round](Self::round) of two, which may end one probe's length over the limit.
    fn reserve(&self, expected: Duration, leaders: u32) -> Duration {
        if self.confirmations == 0 {
            return Duration::ZERO;
        }
        let confirmed = if leaders < 2 { 0 } else { self.confirmations.saturating_mul(leaders.min(CONFIRMED)) };
        let all = expected.mul_f64(CONFIRMATION * f64::from(confirmed));
        all.min(self.time / 2).max(expected)
    }

    /// Decides how long to measure in the next round of confirmations, with this many configs waiting in it; `None` if
    /// there is no time for it.
    ///
    /// If there is no time to measure a round as long as usual, its measurements are as long as in the search. The
    /// first round may end one probe's length over the limit, because without it nothing is confirmed.
    pub(crate) fn round(&self, history: &History, elapsed: Duration, waiting: u32, is_first: bool) -> Option<Round> {
        let expected = expected_confirmation(history);
        let fits = |each: f64, time: Duration| elapsed + expected.mul_f64(each * f64::from(waiting)) <= time;
        if fits(CONFIRMATION, self.time) {
            return Some(Round::Usual);
        }
        let grace = if is_first { expected } else { Duration::ZERO };
        fits(1.0, self.time + grace).then_some(Round::Short)
    }
}

/// The time of a confirmation, in probes: it measures for up to twice as long, but its start-up takes no longer. Right
/// if start-up and measuring take equally long.
const CONFIRMATION: f64 = 1.5;

/// How long a round of confirmations measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// Up to twice as long as the search does.
    Usual,
    /// As long as the search does.
    Short,
}

/// How many of the last trials tell how long the next takes: enough for a median, few enough to ask for each of ten thousand
/// probes. A round number.
const LAST: usize = 256;

/// The last trials that searched.
fn last_searched(history: &History) -> impl Iterator<Item = &Trial> {
    history.trials().iter().rev().map(AsRef::as_ref).filter(|trial: &&Trial| !trial.purpose.is_repeated()).take(LAST)
}

/// Returns the median time of probes with a process of their own, as confirmations have, where others had none.
fn expected_confirmation(history: &History) -> Duration {
    let is_live = |trial: &Trial| trial.outcome.measurement().is_some_and(|run| run.is_live);
    if !last_searched(history).any(is_live) {
        return expected_probe(history);
    }
    let seconds = |trial: &Arc<Trial>| {
        let run = trial.outcome.measurement().filter(|run| !run.is_live)?;
        // What a fork imports, the process has that it was forked from; it is told with one trial.
        let of_all = run.spent.filter(|_| run.is_forked).map_or(0.0, |spent| spent.importing_s);
        Some((trial.elapsed.as_secs_f64() - of_all).max(0.0))
    };
    let times: Vec<f64> = history.trials().iter().rev().filter_map(seconds).take(LAST).collect();
    crate::probe::stats::median(&times).map_or_else(|| expected_probe(history), Duration::from_secs_f64)
}

/// Returns the median time of the last probes that measured something for the usual time; if there are none, of those that did
/// for a shorter time; if nothing was measured, of all probes.
fn expected_probe(history: &History) -> Duration {
    let seconds = |counts: &dyn Fn(&Trial) -> bool| -> Option<f64> {
        let times: Vec<f64> =
            last_searched(history).filter(|trial| counts(trial)).map(|trial| trial.elapsed.as_secs_f64()).collect();
        crate::probe::stats::median(&times)
    };
    let is_measured = |trial: &Trial| trial.outcome.measurement().is_some();
    let typical = seconds(&|trial| is_measured(trial) && !trial.purpose.is_short())
        .or_else(|| seconds(&is_measured))
        .or_else(|| seconds(&|_| true));
    Duration::from_secs_f64(typical.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Measurement, Outcome, Parameter, Space};

    #[test]
    fn time_is_kept_for_the_leaders_that_there_are() {
        let space = Space::new([Parameter::range("x", 0, 9, 1)]).unwrap();
        let budget = Budget { time: Duration::from_secs(12), ..Budget::default() };
        let mut history = History::default();
        let mut push = |number: u32, purpose: &str, seconds: f64| {
            history.push(Trial {
                ended_at: None,
                slot: None,
                number,
                purpose: purpose.parse().unwrap(),
                config: space.config(number.into()).unwrap(),
                outcome: Outcome::Measured(Measurement::default()),
                elapsed: Duration::from_secs_f64(seconds),
            });
            budget.stop(&history, history.elapsed(), 0)
        };
        for number in 0..5 {
            assert_eq!(push(number, "screen-9", 0.4), None);
        }
        assert_eq!(push(5, "search", 3.0), None, "one alone is not confirmed");
        assert_eq!(push(6, "search", 3.0), Some(StopReason::TimeSpent));
    }

    #[test]
    fn a_small_budget_goes_to_the_search_for_one_half_at_least() {
        let space = Space::new([Parameter::range("x", 0, 9, 1)]).unwrap();
        let budget = Budget { time: Duration::from_secs(90), ..Budget::default() };
        let mut history = History::default();
        assert_eq!(budget.probes_left(&history, 1), 24);
        for (number, left) in [(0, 3), (1, 2), (2, 1), (3, 0)] {
            assert_eq!(budget.stop(&history, history.elapsed(), 0), None, "{number}");
            history.push(Trial {
                ended_at: None,
                slot: None,
                number,
                purpose: crate::model::Purpose::Search,
                config: space.config(number.into()).unwrap(),
                outcome: Outcome::Measured(Measurement::default()),
                elapsed: Duration::from_secs(11),
            });
            assert_eq!(budget.probes_left(&history, 1), left);
        }
        assert_eq!(budget.stop(&history, history.elapsed(), 0), Some(StopReason::TimeSpent));
        let spent = |seconds| Duration::from_secs(seconds);
        let round = |waiting, seconds, is_first| budget.round(&history, spent(seconds), waiting, is_first);
        assert_eq!(round(2, 44, true), Some(Round::Usual));
        assert_eq!(round(4, 44, true), Some(Round::Short), "four times 16.5 s do not fit, four times 11 s do");
        assert_eq!(round(2, 78, true), Some(Round::Short), "over the time by less than a probe");
        assert_eq!(round(2, 78, false), None, "a further round is not worth that");
        assert_eq!(round(2, 80, true), None);
    }
}
