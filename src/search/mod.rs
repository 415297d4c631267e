//! The loop of a search: it chooses the next config, decides when to end, finds the best config, and stores the results.
//!
//! Start with [`tuner`], the loop. A [`strategy`] proposes configs; each strategy is a file in that module and a row in
//! its table. The [`study`] draws conclusions from the trials, the [`journal`] stores them, and [`kept`] reads the
//! folder of an earlier search.

pub mod budget;
pub mod environment;
pub mod journal;
pub mod kept;
pub mod numerics;
mod rounds;
pub mod status;
pub mod strategy;
pub mod study;
mod trend;
pub mod tuner;

pub use budget::{Budget, StopReason};
pub use journal::{Conditions, Fingerprint, Follower, Header, Journal, JournalError, Recovered, WarmStart};
pub use kept::{Kept, KeptError};
pub use numerics::FullPrecision;
pub use status::{BestSoFar, Ended, Running, Status, StatusFile, Watched};
pub use strategy::{Earlier, EarlierError, EarlierStudy, STRATEGIES, Strategy};
pub use study::{Ahead, Alternatives, Best, OnFront, Part, Ranked, SlotSeen, Study, Verdict, WholeRun};
pub use trend::Trend;
pub use tuner::{Arrival, TuneError, Tuner};

#[cfg(test)]
mod tests {
    use crate::model::{
        Config, Estimate, Failure, History, Measurement, Objective, Outcome, Parameter, Purpose, Space, Trial,
    };
    use crate::search::strategy::{View, strategy};

    pub(super) fn numbers(first: i64, last: i64) -> Space {
        Space::new([Parameter::range("x", first, last, 1)]).unwrap()
    }

    pub(super) fn measured(throughput: Estimate) -> Outcome {
        Outcome::Measured(Measurement { throughput: Some(throughput), ..Measurement::default() })
    }

    pub(super) fn crashed() -> Outcome {
        Outcome::Crashed(Failure::new("as scripted"))
    }

    pub(super) fn trial(number: u32, config: Config, outcome: Outcome) -> Trial {
        Trial::new(number, Purpose::Search, config, outcome)
    }

    pub(super) fn push(history: &mut History, config: Config, outcome: Outcome) {
        let number = u32::try_from(history.trials().len() + 1).unwrap();
        history.push(trial(number, config, outcome));
    }

    pub(super) fn history(trials: impl IntoIterator<Item = (Config, Outcome)>) -> History {
        let mut history = History::default();
        trials.into_iter().for_each(|(config, outcome)| push(&mut history, config, outcome));
        history
    }

    pub(super) fn searched(
        name: &str,
        space: &Space,
        (probes, probes_left, seed): (u32, u32, u64),
        answer: impl Fn(&Config) -> Outcome,
    ) -> History {
        let (objective, mut history) = (Objective::default(), History::default());
        let mut strategy = (strategy(name).unwrap().build)();
        for _ in 0..probes {
            let view = View::new(space, &objective, &history, &[], None).with(probes_left, seed);
            let Some(proposal) = strategy.propose(&view) else { break };
            let outcome = answer(&proposal.config);
            push(&mut history, proposal.config, outcome);
        }
        history
    }
}
