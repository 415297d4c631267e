//! Distinguishes the ends of a job: the search's own, the time limit, pre-emption, a lost node, a cancellation.

use std::time::Duration;

use gputune::model::quantity::show_duration;

use super::asked::Over;
use crate::cli::exit::Exit;

/// The most that Slurm may signal a job too early (`sbatch`(1), `--signal`: "up to 60 seconds earlier").
const EARLY: Duration = Duration::from_secs(60);

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The search ended on its own, with this code.
    Own(u8),
    TimeLimit,
    Preempted,
    NodeLost,
    Cancelled,
    /// Another end, without a result of the search.
    Failed(String),
}

/// The facts about a finished job.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Slurm's answer, if it remembers the job.
    pub(super) over: Option<Over>,
    /// The exit code that the search left.
    pub(super) code: Option<u8>,
    /// The job's run time by the local clock, and its limit.
    pub(super) ran: Duration,
    pub(super) limit: Option<Duration>,
    /// True if the job has printed anything.
    pub(super) has_begun: bool,
}

impl Known {
    /// Returns the end of the job.
    ///
    /// If a signal stopped the search, Slurm names the cause. If Slurm names none and the job has run up to its limit by the
    /// local clock, the cause is the time limit.
    pub(super) fn end(&self) -> End {
        // The loss of all workers may be a cause or a consequence.
        let may_be_ended = |code: &u8| [INTERRUPTED, Exit::Impossible.code()].contains(code);
        if let Some(code) = self.code.filter(|code| !may_be_ended(code)) {
            return End::Own(code);
        }
        let over = self.over.clone().unwrap_or_default();
        let limit = over.limit.or(self.limit);
        let ran = self.ran.max(over.ran.unwrap_or_default());
        let is_at_limit = limit.is_some_and(|limit| ran + EARLY >= limit);
        match over.state.as_str() {
            "TIMEOUT" | "DEADLINE" => End::TimeLimit,
            "PREEMPTED" => End::Preempted,
            "NODE_FAIL" | "BOOT_FAIL" => End::NodeLost,
            "CANCELLED" if over.reason == "TimeLimit" => End::TimeLimit,
            "CANCELLED" => End::Cancelled,
            // Slurm 22.05 reports this if a job with `--no-kill`, which outlives its nodes, loses its first node.
            "FAILED" if over.reason == "JobLaunchFailure" && self.has_begun && self.code.is_none() => End::NodeLost,
            _ if self.code == Some(Exit::Impossible.code()) => End::Own(Exit::Impossible.code()),
            _ if self.code.is_some() && is_at_limit => End::TimeLimit,
            _ if self.code.is_some() => End::Cancelled,
            "" => End::Failed("Slurm does not know it any more".to_owned()),
            "OUT_OF_MEMORY" => End::Failed("Slurm ended it for using too much host memory".to_owned()),
            state => {
                let code = over.exit.split(':').next().filter(|code| !code.is_empty() && *code != "0");
                let code = code.map(|code| format!(" with code {code}")).unwrap_or_default();
                End::Failed(format!("it is {state}{code}"))
            }
        }
    }
}

/// The exit code of a search that a signal stopped.
const INTERRUPTED: u8 = 130;

impl End {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Own(code) => Exit::with_code(*code).unwrap_or(Exit::Impossible),
            Self::TimeLimit => Exit::TimeLimit,
            Self::Preempted => Exit::Preempted,
            Self::NodeLost => Exit::NodeLost,
            Self::Cancelled => Exit::Interrupted,
            Self::Failed(_) => Exit::Impossible,
        }
    }

    /// Returns the message about the end; `None` if the search has printed its own.
    pub(super) fn said(&self, limit: Option<Duration>) -> Option<String> {
        Some(match self {
            Self::Own(_) => return None,
            Self::TimeLimit => {
                let limit = limit.map(|limit| format!(" of {}", show_duration(limit))).unwrap_or_default();
                format!("has reached its time limit{limit}")
            }
            Self::Preempted => "was pre-empted by another job".to_owned(),
            Self::NodeLost => "has lost a node".to_owned(),
            Self::Cancelled => "was cancelled".to_owned(),
            Self::Failed(words) => format!("has ended without a result: {words}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(state: &str, code: Option<u8>, ran: u64) -> Known {
        let limit = Some(Duration::from_secs(600));
        let over = (!state.is_empty()).then(|| Over { state: state.to_owned(), limit, ..Over::default() });
        Known { over, code, ran: Duration::from_secs(ran), limit, has_begun: true }
    }

    #[test]
    fn what_the_search_says_itself_comes_first() {
        for state in ["COMPLETED", "FAILED", "TIMEOUT", ""] {
            assert_eq!(known(state, Some(0), 600).end(), End::Own(0), "{state}");
            assert_eq!(known(state, Some(1), 5).end(), End::Own(1), "{state}");
        }
    }

    #[test]
    fn a_first_node_that_goes_is_no_failed_launch() {
        let over = Over { state: "FAILED".to_owned(), reason: "JobLaunchFailure".to_owned(), ..Over::default() };
        let known = Known { over: Some(over), has_begun: true, ..Known::default() };
        assert_eq!(known.end(), End::NodeLost);
        assert!(matches!(Known { has_begun: false, ..known }.end(), End::Failed(_)));
    }

    #[test]
    fn who_stopped_it_is_told_by_slurm_or_else_by_the_clock_here() {
        assert_eq!(known("FAILED", Some(3), 5).end(), End::Own(3));
        for code in [None, Some(3), Some(130)] {
            assert_eq!(known("TIMEOUT", code, 5).end(), End::TimeLimit);
            assert_eq!(known("PREEMPTED", code, 600).end(), End::Preempted);
            assert_eq!(known("NODE_FAIL", code, 5).end(), End::NodeLost);
            assert_eq!(known("CANCELLED", code, 5).end(), End::Cancelled);
        }
        for state in ["COMPLETED", "FAILED", ""] {
            assert_eq!(known(state, Some(130), 595).end(), End::TimeLimit, "{state}");
            assert_eq!(known(state, Some(130), 500).end(), End::Cancelled, "{state}");
            assert!(matches!(known(state, None, 600).end(), End::Failed(_)), "{state}");
        }
    }
}
