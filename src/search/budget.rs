//! When a search ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{History, Trial};

/// What a search may cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Probes to run, the baseline included; a short one counts like any other. The leaders' confirmation comes on top.
    pub probes: u32,
    /// Wall time of the whole search, confirmation included.
    pub time: Duration,
    /// How often each leader is measured again, interleaved with the others, before one is named.
    pub confirmations: u32,
    /// The gain, as a share of the best, below which another probe is not worth its cost; zero never stops a search. It
    /// counts where the strategy tells what it expects. A gain is also too small when it is below a quarter of the width
    /// of the best's 95 % interval, which measurements could not tell from none (of a width up to 20 % of the best).
    pub least_gain: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { probes: 24, time: Duration::from_secs(20 * 60), confirmations: 2, least_gain: 0.01 }
    }
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// All probes of the budget are done.
    ProbesSpent,
    /// Another probe would not have fitted into the time of the budget.
    TimeSpent,
    /// Every config is probed or ruled out.
    SpaceExhausted,
    /// No further config was found, and whether the rules leave one is not known.
    NothingFound,
    /// No probe is expected to gain as much as is asked of one.
    LittleToGain,
    /// Some probes are expected to gain as much as is asked of one, but less than measurements can tell apart.
    GainWithinNoise,
    /// Someone stopped it.
    Interrupted,
    /// It has not: probes are still run.
    Running,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ProbesSpent => "the budget of probes is spent",
            Self::TimeSpent => "the budget of time is spent",
            Self::SpaceExhausted => "every config was probed or ruled out",
            Self::NothingFound => "no further config was found; whether the rules leave one is not known",
            Self::GainWithinNoise => "another probe is expected to gain less than measurements can tell apart",
            Self::LittleToGain => "another probe is expected to gain too little",
            Self::Interrupted => "interrupted",
            Self::Running => "still running",
        })
    }
}

/// Configs that are measured again at the end, the baseline included.
pub(crate) const CONFIRMED: u32 = 4;

impl Budget {
    /// Whether the search for new configs must end here; `elapsed` is the wall time so far.
    ///
    /// A probe is expected to take as long as those that measured something did (their median), and time is kept for the
    /// confirmation, up to half of all. The first two probes are allowed as long as there is time for them: one config alone
    /// is compared with nothing.
    pub fn stop(&self, history: &History, elapsed: Duration) -> Option<StopReason> {
        const FEWEST: usize = 2;
        let searched = history.searched().count();
        if searched >= self.probes as usize {
            return Some(StopReason::ProbesSpent);
        }
        let measured = |trial: &&Trial| trial.outcome.measurement().is_some();
        let leaders = history.contenders(|outcome| outcome.measurement().is_some()).filter(measured).count();
        let expected = expected_probe(history);
        let reserve = if searched < FEWEST {
            Duration::ZERO
        } else {
            self.reserve(expected, u32::try_from(leaders).unwrap_or(CONFIRMED))
        };
        (searched > 0 && elapsed + expected + reserve > self.time).then_some(StopReason::TimeSpent)
    }

    /// Probes that are left, by their number and by the time that those so far took: what is done besides is left out.
    pub fn probes_left(&self, history: &History) -> u32 {
        let searched = u32::try_from(history.searched().count()).unwrap_or(u32::MAX);
        let left = self.probes.saturating_sub(searched);
        let expected = expected_probe(history);
        if expected.is_zero() {
            return left;
        }
        let time = self.time.saturating_sub(self.reserve(expected, CONFIRMED));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "such casts saturate")]
        let in_time = time.div_duration_f64(expected) as u32;
        left.min(in_time.saturating_sub(searched))
    }

    /// Time that is kept for confirming so many leaders: for all rounds up to half of all time. In any case it is enough for
    /// a [first round](Self::round) of two, which may end one probe's length over the time.
    fn reserve(&self, expected: Duration, leaders: u32) -> Duration {
        if self.confirmations == 0 {
            return Duration::ZERO;
        }
        let confirmed = if leaders < 2 { 0 } else { self.confirmations.saturating_mul(leaders.min(CONFIRMED)) };
        let all = expected.mul_f64(CONFIRMATION * f64::from(confirmed));
        all.min(self.time / 2).max(expected)
    }

    /// How the next round of confirmations is measured, where so many configs are waiting to be measured in it; `None` where
    /// there is no time for it.
    ///
    /// A round that cannot be measured as long as usual is measured as long as the search measures. The first round may
    /// end one probe's length over the time, since without it nothing is confirmed.
    pub(crate) fn round(&self, history: &History, elapsed: Duration, waiting: u32, is_first: bool) -> Option<Round> {
        let expected = expected_probe(history);
        let fits = |each: f64, time: Duration| elapsed + expected.mul_f64(each * f64::from(waiting)) <= time;
        if fits(CONFIRMATION, self.time) {
            return Some(Round::Usual);
        }
        let grace = if is_first { expected } else { Duration::ZERO };
        fits(1.0, self.time + grace).then_some(Round::Short)
    }
}

/// What a confirmation takes of a probe's time: it measures twice as long, but starts up only as long.
const CONFIRMATION: f64 = 1.5;

/// How long a round of confirmations measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// Twice as long as the search does.
    Usual,
    /// As long as the search does.
    Short,
}

/// The median time of probes that measured something for the usual time; of those that did for a shorter one where there
/// are no others, and of all probes where none measured anything.
fn expected_probe(history: &History) -> Duration {
    let seconds = |counts: &dyn Fn(&Trial) -> bool| -> Option<f64> {
        let times: Vec<f64> =
            history.searched().filter(|trial| counts(trial)).map(|trial| trial.elapsed.as_secs_f64()).collect();
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
                number,
                purpose: purpose.parse().unwrap(),
                config: space.config(number.into()).unwrap(),
                outcome: Outcome::Measured(Measurement::default()),
                elapsed: Duration::from_secs_f64(seconds),
            });
            budget.stop(&history, history.elapsed())
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
        assert_eq!(budget.probes_left(&history), 24);
        for (number, left) in [(0, 3), (1, 2), (2, 1), (3, 0)] {
            assert_eq!(budget.stop(&history, history.elapsed()), None, "{number}");
            history.push(Trial {
                number,
                purpose: crate::model::Purpose::Search,
                config: space.config(number.into()).unwrap(),
                outcome: Outcome::Measured(Measurement::default()),
                elapsed: Duration::from_secs(11),
            });
            assert_eq!(budget.probes_left(&history), left);
        }
        assert_eq!(budget.stop(&history, history.elapsed()), Some(StopReason::TimeSpent));
        let spent = |seconds| Duration::from_secs(seconds);
        let round = |waiting, seconds, is_first| budget.round(&history, spent(seconds), waiting, is_first);
        assert_eq!(round(2, 44, true), Some(Round::Usual));
        assert_eq!(round(4, 44, true), Some(Round::Short), "four times 16.5 s do not fit, four times 11 s do");
        assert_eq!(round(2, 78, true), Some(Round::Short), "over the time by less than a probe");
        assert_eq!(round(2, 78, false), None, "a further round is not worth that");
        assert_eq!(round(2, 80, true), None);
    }
}
