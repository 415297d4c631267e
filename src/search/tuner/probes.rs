//! The probes of a search: under way in the slots, and waiting to be tried again. Configs whose probes were disturbed are put back
//! and tried later, and configs that failed in a slot that may be sick are tried in another slot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::TuneError;
use super::request::{Request, Round};
use crate::model::{Config, History, Judgement, Measurement, Objective, Outcome};
use crate::probe::stats::median;
use crate::search::strategy::SoFar;

#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) request: Request,
    pub(super) began: Instant,
    /// The measurement, while the cost of the exchange between ranks is being measured.
    pub(super) waits_for_exchange: Option<Measurement>,
}

#[derive(Debug)]
pub(super) struct RoundUnderWay {
    pub(super) round: Round,
    pub(super) began: Instant,
}

/// The state of the rounds in this run of the search.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The time of the slices in the last complete round.
    pub(super) slice_time: Duration,
    pub(super) configs: u32,
    /// The time for the checks of the current winner: losses in full precision, ends of epochs, largest batch, and a recording of
    /// steps.
    pub(super) time_for_checks: Duration,
    pub(super) failures: u32,
    /// Why rounds could not be measured in a better way. Each reason is reported once.
    pub(super) fallbacks: BTreeSet<String>,
    /// The configs for which a run with short epochs was tried.
    pub(super) ends_tried: Vec<Config>,
    /// The time of these runs so far.
    pub(super) ends_time: Duration,
    /// The configs for which a step with the largest batch was tried.
    pub(super) largest_tried: Vec<Config>,
    /// True if no further config is probed and only rounds go on.
    pub(super) is_in_last_rounds: bool,
    /// True if the rounds so far show the winner.
    pub(super) is_clear: bool,
}

impl RoundUnderWay {
    /// Returns how long the round takes, if each config takes this long.
    pub(super) fn takes(&self, each: Duration) -> Duration {
        let count = u32::try_from(self.round.requests.len()).unwrap_or(u32::MAX);
        self.began.elapsed().max(each * count)
    }
}

/// The probes under way, and the configs that are retried later.
#[derive(Default)]
pub(super) struct Probes {
    pub(super) begun: Vec<Option<UnderWay>>,
    pub(super) in_round: Vec<Option<RoundUnderWay>>,
    /// The latest measurement of each probe under way, by trial number.
    pub(super) so_far: BTreeMap<u32, Measurement>,
    pub(super) health: Health,
    /// Configs that failed in a slot and are retried in another slot before the failure counts.
    pub(super) elsewhere: Vec<Request>,
    pub(super) put_back: PutBack,
}

impl Probes {
    pub(super) fn new(slots: usize) -> Self {
        let mut probes = Self::default();
        probes.make_room(slots);
        probes
    }

    /// Makes room for the state of slots that have joined. Returns the number of slots before.
    pub(super) fn make_room(&mut self, slots: usize) -> usize {
        let before = self.begun.len();
        self.begun.resize_with(slots.max(before), || None);
        self.in_round.resize_with(slots.max(before), || None);
        self.health.make_room(slots.max(before));
        before
    }

    pub(super) fn begun(&self) -> impl Iterator<Item = &UnderWay> {
        self.begun.iter().flatten()
    }

    /// Returns how many of the running probes search for a better config.
    pub(super) fn count_searches(&self) -> usize {
        self.begun().filter(|begun| !begun.request.purpose.is_repeated()).count()
    }

    pub(super) fn in_rounds(&self) -> impl Iterator<Item = &Request> {
        self.in_round.iter().flatten().flat_map(|under_way| &under_way.round.requests)
    }

    /// Returns the highest number of a trial under way; zero without one.
    pub(super) fn highest_number(&self) -> u32 {
        let begun = self.begun().map(|begun| &begun.request);
        begun.chain(self.in_rounds()).map(|request| request.number).max().unwrap_or(0)
    }

    /// Returns true if a slot may be sick, and the results of its configs in other slots are not known.
    pub(super) fn is_doubted(&self, slot: usize) -> bool {
        let begun = self.begun().map(|begun| &begun.request);
        self.elsewhere.iter().chain(begun).any(|request| request.failed_in == Some(slot))
    }

    /// Returns the configs under way, in the order of [`Self::so_far`], and then the configs that wait.
    pub(super) fn pending(&self) -> Vec<Config> {
        let begun = self.begun().map(|begun| begun.request.config().clone());
        let elsewhere = self.elsewhere.iter().map(|request| request.config().clone());
        begun.chain(self.put_back.configs()).chain(elsewhere).collect()
    }

    /// Returns the result so far of each probe under way, if the search is for throughput. Proposals do not wait for the end of
    /// these probes.
    ///
    /// First readings may come from a loader that still starts. With two workers on two cores, they showed a tenth of the final
    /// rate, to ±7%. So readings count from half of the usual probe time on.
    pub(super) fn so_far(&self, objective: &Objective, history: &History) -> Vec<Option<SoFar>> {
        /// Half the width of the interval that another run falls into, as a share: runs are 1 to 7% apart.
        const BETWEEN_RUNS: f64 = 0.06;
        /// The number of last trials that show how long a probe takes. A round number.
        const LAST: usize = 16;
        let last = history.trials().iter().rev().take(LAST);
        let usual =
            median(&last.map(|trial| trial.elapsed.as_secs_f64()).collect::<Vec<f64>>()).unwrap_or(f64::INFINITY);
        let of_probe = |begun: &UnderWay| {
            let counts = begun.waits_for_exchange.is_none()
                && !begun.request.purpose.is_repeated()
                && begun.began.elapsed().as_secs_f64() >= usual / 2.0
                && objective.is_largest_throughput();
            let measurement = self.so_far.get(&begun.request.number).filter(|_| counts)?;
            let Judgement::Feasible(score) = objective.judge(measurement) else { return None };
            let half_width = measurement.throughput?.relative_half_width()?;
            Some(SoFar { score, half_width: half_width.hypot(BETWEEN_RUNS) })
        };
        self.begun().map(of_probe).collect()
    }
}

/// The number of other probes between two turns of a config that was put back: a round number.
const OTHERS: usize = 3;

/// The number of turns after which a config is not tried any more in this run: a round number. A turn is three attempts
/// with pauses.
const MOST_TURNS: u32 = 3;

/// After this many disturbed turns in a row, of any configs, the search may give up: a round number.
const MOST_IN_A_ROW: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct PutBack {
    waiting: Vec<Waiting>,
    /// The number of disturbed turns in a row.
    pub(super) in_a_row: u32,
    /// The number of probes that were not disturbed.
    done: usize,
    /// True if nothing else is left to try.
    is_last: bool,
    /// The last disturbance.
    reason: String,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    turns: u32,
    /// The number of probes before its next turn; `None` during its turn, and if it has no further one.
    due: Option<usize>,
}

impl PutBack {
    /// Keeps a config for later. Fails if everything has been disturbed for too long.
    pub(super) fn put(&mut self, request: Request, reason: String) -> Result<(), TuneError> {
        self.in_a_row += 1;
        self.reason.clone_from(&reason);
        if self.in_a_row >= MOST_IN_A_ROW && (self.done == 0 || !self.is_last) {
            return Err(TuneError::Disturbed(reason));
        }
        // Rounds are repeated anyway, and by then other configs may lead.
        if request.purpose.is_repeated() {
            return Ok(());
        }
        let due = Some(self.done + OTHERS);
        match self.waiting.iter_mut().find(|waiting| waiting.request.config() == request.config()) {
            Some(waiting) => {
                waiting.turns += 1;
                waiting.due = due.filter(|_| waiting.turns < MOST_TURNS);
            }
            None => self.waiting.push(Waiting { request, turns: 1, due }),
        }
        Ok(())
    }

    pub(super) fn is_undisturbed(&mut self, config: &Config) {
        self.in_a_row = 0;
        self.done += 1;
        self.waiting.retain(|waiting| waiting.request.config() != config);
    }

    /// Returns a config for its next turn: a due config, or any waiting config if there is `nothing_else`.
    pub(super) fn next(&mut self, nothing_else: bool) -> Option<Request> {
        self.is_last |= nothing_else;
        let done = self.done;
        let is_due = |waiting: &&mut Waiting| waiting.due.is_some_and(|due| nothing_else || due <= done);
        let waiting = self.waiting.iter_mut().find(is_due)?;
        waiting.due = None;
        Some(waiting.request.clone())
    }

    pub(super) fn has(&self, config: &Config) -> bool {
        self.waiting.iter().any(|waiting| waiting.request.config() == config)
    }

    /// Returns the configs that were put back, so that no strategy proposes them.
    pub(super) fn configs(&self) -> impl Iterator<Item = Config> {
        self.waiting.iter().map(|waiting| waiting.request.config().clone())
    }

    pub(super) fn reason(&self) -> Option<&str> {
        (!self.waiting.is_empty()).then_some(self.reason.as_str())
    }
}

/// A slot is closed after this many failures in a row of configs that run elsewhere.
const IN_A_ROW: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Health {
    /// Failures in a row.
    failed: Vec<u32>,
    /// Failures in a row whose configs ran elsewhere.
    ran_elsewhere: Vec<u32>,
}

impl Health {
    fn make_room(&mut self, slots: usize) {
        self.failed.resize(slots, 0);
        self.ran_elsewhere.resize(slots, 0);
    }

    /// Records how a probe ended. Returns true if its config must be tried in another slot before it counts as failed: the slot has
    /// failed before, with nothing measured since.
    pub(super) fn is_doubtful(&mut self, slot: usize, outcome: &Outcome) -> bool {
        if !Self::blames(outcome) {
            if outcome.measurement().is_some() {
                (self.failed[slot], self.ran_elsewhere[slot]) = (0, 0);
            }
            return false;
        }
        self.failed[slot] += 1;
        self.failed[slot] > 1
    }

    /// Records that a config failed in a slot although it ran elsewhere before.
    pub(super) fn fails_known(&mut self, slot: usize) {
        self.failed[slot] += 1;
        self.ran_elsewhere[slot] += 1;
    }

    /// Returns true if the slot may be the cause of an outcome. A config that does not fit into memory would not fit elsewhere.
    pub(super) fn blames(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Crashed(_) | Outcome::Stalled(_) | Outcome::TimedOut(_))
    }

    /// Records how a config ended elsewhere after it failed in a slot. Returns true if that slot must be closed.
    pub(super) fn elsewhere(&mut self, failed_in: usize, outcome: &Outcome) -> bool {
        if Self::blames(outcome) {
            // The config is the cause, not the slot.
            (self.failed[failed_in], self.ran_elsewhere[failed_in]) = (0, 0);
            return false;
        }
        if outcome.measurement().is_some() {
            self.ran_elsewhere[failed_in] += 1;
        }
        // The first failure in the row was recorded as the config's.
        self.ran_elsewhere[failed_in] + 1 >= IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Purpose, Settings};
    use crate::probe::Limits;
    use crate::search::tests::{crashed, numbers};

    fn config(at: u128) -> Config {
        numbers(1, 5).config(at).unwrap()
    }

    fn put(back: &mut PutBack, at: u128) -> bool {
        let request = Request::new(config(at).into(), Purpose::Search, Settings::default(), Limits::default());
        back.put(request, "heat".to_owned()).is_ok()
    }

    #[test]
    fn a_config_waits_for_others_and_has_a_few_turns() {
        let mut back = PutBack::default();
        assert!(put(&mut back, 0) && back.has(&config(0)) && back.next(false).is_none());
        for turn in 1..MOST_TURNS {
            (0..OTHERS).for_each(|_| back.is_undisturbed(&config(4)));
            assert!(back.next(false).is_some_and(|next| *next.config() == config(0)), "turn {turn}");
            assert!(back.next(false).is_none(), "it has its turn");
            assert!(put(&mut back, 0));
        }
        assert!(back.next(true).is_none() && back.has(&config(0)), "it has no further turn, and is not proposed");
        assert_eq!(back.reason(), Some("heat"));
        back.is_undisturbed(&config(0));
        assert!(!back.has(&config(0)) && back.reason().is_none());
    }

    #[test]
    fn it_is_over_when_everything_is_disturbed_and_not_when_the_rest_is() {
        let mut back = PutBack::default();
        assert!((0..3).all(|at| put(&mut back, at)) && !put(&mut back, 3), "four in a row");
        let mut back = PutBack::default();
        back.is_undisturbed(&config(4));
        assert!(put(&mut back, 0) && put(&mut back, 1));
        while let Some(next) = back.next(true) {
            back.put(next, "heat".to_owned()).unwrap();
        }
    }

    #[test]
    fn a_slot_is_out_once_three_in_a_row_fail_that_run_elsewhere() {
        let (mut health, measured) = (Health::default(), Outcome::Measured(Measurement::default()));
        health.make_room(3);
        assert!(!health.is_doubtful(0, &crashed()), "one may well be the config's fault");
        assert!(health.is_doubtful(0, &crashed()));
        assert!(!health.elsewhere(0, &measured));
        assert!(health.is_doubtful(0, &crashed()));
        assert!(health.elsewhere(0, &measured));
        for _ in 0..5 {
            health.is_doubtful(1, &crashed());
            assert!(!health.elsewhere(1, &crashed()), "configs that fail everywhere are to blame themselves");
        }
        health.is_doubtful(2, &crashed());
        health.is_doubtful(2, &measured);
        assert!(!health.is_doubtful(2, &crashed()), "a probe was measured in between");
    }
}
