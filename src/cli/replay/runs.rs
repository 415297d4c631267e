//! Runs a strategy on a table, for a fixed number of probes or as a search with its own end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gputune::model::{Config, Event, History, Objective, Outcome, Purpose, Space, Trial, front};
use gputune::probe::Replay;
use gputune::search::strategy::{Entry, Proposal, SoFar, View};
use gputune::search::{Budget, StopReason, Strategy, TuneError, Tuner};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub(super) struct Run {
    pub(super) seed: u64,
    /// The best value after each probe, `null` until the first success.
    pub(super) best: Vec<Option<f64>>,
    /// The expected gain of each probe, as a share of the best so far; `null` if the strategy expects none.
    pub(super) expected_gain: Vec<Option<f64>>,
    pub(super) failed: usize,
    /// Why it ended, if it was a search with its own end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<Ending>,
    #[serde(skip)]
    scores: Vec<Vec<f64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    SameFailure,
    #[serde(untagged)]
    Stopped(StopReason),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped(reason) => reason.fmt(f),
            Self::SameFailure => f.write_str("every config so far failed in the same way"),
        }
    }
}

pub(super) struct Plan<'p> {
    pub(super) strategy: &'static Entry,
    pub(super) space: &'p Space,
    pub(super) replay: &'p Replay,
    pub(super) objective: &'p Objective,
    /// The scores of all feasible configs in the table.
    pub(super) all: Vec<Vec<f64>>,
    pub(super) probes: u32,
    /// The number of probes that run at the same time.
    pub(super) slots: usize,
}

/// A simulated probe. Times are multiples of the mean time of a probe.
struct Running {
    /// The time of the first reading.
    shows_at: f64,
    /// The first reading; `None` if the probe fails or the objective is a Pareto front.
    shows: Option<SoFar>,
    ends_at: f64,
    number: u32,
    proposal: Proposal,
    outcome: Outcome,
}

impl Plan<'_> {
    /// The first rate that a running probe shows: its standard deviation from the final rate, and the share of its time
    /// until then. `benches/results/slots.md` has both measurements.
    const FIRST_READING: (f64, f64) = (0.05, 0.5);

    /// Draws the first reading of a probe at random around its final score.
    fn first_reading(&self, objective: &Objective, outcome: &Outcome, random: &mut ChaCha8Rng) -> Option<SoFar> {
        /// The sum of this many uniform numbers has variance 1.
        const TERMS: usize = 12;
        /// 95% of normal values lie within this many standard deviations.
        const NORMAL_95: f64 = 1.96;
        let (deviation, _) = Self::FIRST_READING;
        let normal = (0..TERMS).map(|_| random.random_range(-0.5..0.5)).sum::<f64>();
        let score = objective.score_of(outcome)? * (1.0 + deviation * normal);
        (!objective.is_pareto()).then_some(SoFar { score, half_width: NORMAL_95 * deviation })
    }

    /// Runs the strategy until it has made all probes, or proposes no further config.
    pub(super) fn of_probes(&self, seed: u64) -> Run {
        let mut strategy = (self.strategy.build)();
        let mut history = History::default();
        let mut run = Run { seed, ..Run::default() };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut readings = ChaCha8Rng::seed_from_u64(!seed);
        let mut running: Vec<Running> = Vec::new();
        let (mut number, mut now, mut is_over) = (0, 0.0, false);
        loop {
            // The first probe runs alone: its result shows whether parallel probes disturb each other.
            let slots = if history.trials().is_empty() { 1 } else { self.slots };
            while running.len() < slots && number < self.probes && !is_over {
                let objective = self.objective.scalarised(&history, seed);
                let pending: Vec<Config> = running.iter().map(|running| running.proposal.config.clone()).collect();
                let so_far: Vec<Option<SoFar>> =
                    running.iter().map(|running| running.shows.filter(|_| running.shows_at <= now)).collect();
                let mut view =
                    View::new(self.space, &objective, &history, &pending, None).with(self.probes - number, seed);
                view.so_far = &so_far;
                let Some(proposal) = strategy.propose(&view) else {
                    // The results of running probes may lead the strategy to new proposals.
                    is_over = running.is_empty();
                    break;
                };
                number += 1;
                let Some(outcome) = self.replay.answer(&proposal.config).cloned() else { continue };
                let takes = random.random_range(0.5..1.5);
                let (shows_at, ends_at) = (now + takes * Self::FIRST_READING.1, now + takes);
                let shows = self.first_reading(&objective, &outcome, &mut readings);
                running.push(Running { shows_at, shows, ends_at, number, proposal, outcome });
            }
            let next = running.iter().enumerate().min_by(|(_, a), (_, b)| a.ends_at.total_cmp(&b.ends_at));
            let Some((next, _)) = next else { break };
            let Running { ends_at, number, proposal, outcome, .. } = running.remove(next);
            now = ends_at;
            let Proposal { config, gain, .. } = proposal;
            run.expected_gain.push(gain);
            self.record(&outcome, &mut run);
            history.push(Trial::new(number, Purpose::Search, config, outcome));
        }
        run
    }

    /// Searches as `gputune search` does, until the search ends or reaches the number of probes. No round
    /// re-measures configs, because a table has one value for each config. Consumes a space and a replay of the table.
    pub(super) fn until_end(&self, space: Space, replay: Replay, seed: u64) -> Result<Run, TuneError> {
        let gains = Arc::new(Mutex::new(Vec::new()));
        let strategy = Heard { strategy: (self.strategy.build)(), gains: Arc::clone(&gains) };
        let budget = Budget { probes: self.probes, time: Duration::MAX, rounds: 0, ..Budget::default() };
        let mut run = Run { seed, ..Run::default() };
        let study = Tuner::with_prober(space, replay)
            .objective(self.objective.clone())
            .budget(budget)
            .with_strategy(strategy)
            .seed(seed)
            .run(|event| {
                if let Event::Finished { trial, .. } = event {
                    self.record(&trial.outcome, &mut run);
                }
            });
        run.stopped = Some(match study {
            Ok(study) => Ending::Stopped(study.stopped),
            Err(TuneError::SameFailure { .. }) => Ending::SameFailure,
            Err(error) => return Err(error),
        });
        run.expected_gain.clone_from(&gains.lock().unwrap_or_else(PoisonError::into_inner));
        // The proposal with which the search ended was not probed.
        run.expected_gain.truncate(run.best.len());
        Ok(run)
    }

    fn record(&self, outcome: &Outcome, run: &mut Run) {
        let scores = self.objective.scores_of(outcome);
        run.failed += usize::from(scores.is_none());
        run.scores.extend(scores);
        run.best.push(self.best(&run.scores));
    }

    /// Returns the best value of the table; for a front, the share 1.
    pub(super) fn optimum(&self) -> Option<f64> {
        self.best(&self.all)
    }

    /// Returns the best value among the scores of some configs; for a front, their share of the table's hypervolume.
    fn best(&self, found: &[Vec<f64>]) -> Option<f64> {
        if self.objective.is_pareto() {
            return (!found.is_empty()).then(|| front::share(found, &self.all));
        }
        let top = found.iter().filter_map(|scores| scores.first()).copied().max_by(f64::total_cmp);
        top.map(|score| self.objective.score(score))
    }
}

/// A strategy that records its expected gains.
struct Heard {
    strategy: Box<dyn Strategy>,
    gains: Arc<Mutex<Vec<Option<f64>>>>,
}

impl Strategy for Heard {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        let proposal = self.strategy.propose(view)?;
        self.gains.lock().unwrap_or_else(PoisonError::into_inner).push(proposal.gain);
        Some(proposal)
    }
}
