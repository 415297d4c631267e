//! Asks Slurm about a job, with a time-out, and finds why the job ended: by the search itself, by the time limit,
//! pre-emption, a lost node, or a cancellation.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use gputune::machine::slurm_duration;
use gputune::model::quantity::show_duration;

use crate::cli::exit::Exit;

/// The time limit of a Slurm program: three times the default of Slurm's own time-out (`slurm.conf`(5),
/// `MessageTimeout`).
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The job waits, for this reason and until the expected start.
    Waits { reason: String, start: Option<String> },
    /// The job has these nodes, and this time limit.
    Runs { nodes: String, limit: Option<Duration> },
    /// The job is over.
    Over(Over),
    /// Slurm no longer knows the job.
    Forgotten,
    /// Slurm did not answer, or gave an answer that gputune does not understand.
    Unclear(String),
}

/// How a job ended, in Slurm's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Over {
    pub(super) state: String,
    pub(super) reason: String,
    /// The exit code and the signal, such as `1:0`.
    pub(super) exit: String,
    pub(super) ran: Option<Duration>,
    pub(super) limit: Option<Duration>,
}

/// Runs a program of Slurm; Ctrl-C at a terminal does not reach it.
pub(super) fn run(command: &mut Command, input: &str) -> io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let pid = child.id();
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input reports why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let (sender, ended) = channel();
    std::thread::spawn(move || drop(sender.send(child.wait_with_output())));
    ended.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", PATIENCE.as_secs())))
    })
}

/// Returns the state of a job from the queue, or else from the controller's memory.
pub(super) fn state(job: &str) -> State {
    let ask = |program: &str, arguments: &[&str]| match run(Command::new(program).args(arguments), "") {
        Ok(output) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            (output.status.success(), text(&output.stdout), text(&output.stderr))
        }
        Err(error) => (false, String::new(), error.to_string()),
    };
    let (is_told, line, error) = ask("squeue", &["-h", "-j", job, "-o", "%T|%r|%S|%l|%N"]);
    if is_told && !line.is_empty() {
        match queued(&line) {
            // The controller knows more about the end than the queue.
            State::Over(_) => {}
            state => return state,
        }
    } else if !is_told && !is_unknown(&error) {
        return State::Unclear(error);
    }
    let (is_told, line, error) = ask("scontrol", &["-o", "show", "job", job]);
    match is_told {
        true => remembered(&line),
        false if is_unknown(&error) => State::Forgotten,
        false => State::Unclear(error),
    }
}

/// Returns true if Slurm knows no such job; false if it cannot answer.
fn is_unknown(error: &str) -> bool {
    error.contains("Invalid job id")
}

/// States of a job that waits, has nodes, or is over (`squeue`(1), "JOB STATE CODES"). Any other state is unknown.
const WAITS: &str = "PENDING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD";
const RUNS: &str = "RUNNING CONFIGURING COMPLETING SUSPENDED STOPPED SIGNALING RESIZING STAGE_OUT";
const OVER: &str = "COMPLETED FAILED TIMEOUT DEADLINE PREEMPTED CANCELLED NODE_FAIL BOOT_FAIL OUT_OF_MEMORY";

/// Returns the state of a job by Slurm's word for it, given what else Slurm says about the job.
fn state_of(over: Over, nodes: &str, start: Option<String>) -> State {
    let is_in = |words: &str| words.split(' ').any(|word| word == over.state);
    match () {
        () if is_in(WAITS) => State::Waits { reason: over.reason, start },
        () if is_in(RUNS) => State::Runs { nodes: nodes.to_owned(), limit: over.limit },
        () if is_in(OVER) => State::Over(over),
        () => State::Unclear(format!("its state is {}", over.state)),
    }
}

/// Reads a line of `squeue -h -o "%T|%r|%S|%l|%N"`.
fn queued(line: &str) -> State {
    let parts: Vec<&str> = line.lines().next().unwrap_or_default().split('|').map(str::trim).collect();
    let [state, reason, start, limit, nodes] = *parts.as_slice() else { return State::Unclear(line.to_owned()) };
    let start = Some(start).filter(|start| *start != "N/A" && !start.is_empty()).map(str::to_owned);
    let (state, reason, limit) = (state.to_owned(), reason.to_owned(), slurm_duration(limit));
    state_of(Over { state, reason, limit, ..Over::default() }, nodes, start)
}

/// Reads a line of `scontrol -o show job`: `Name=value` with blanks between them.
fn remembered(line: &str) -> State {
    let of = |name: &str| {
        let is_it =
            |word: &str| word.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
        line.split_whitespace().find_map(is_it).unwrap_or_default()
    };
    let (state, reason, exit) = (of("JobState"), of("Reason"), of("ExitCode"));
    let (ran, limit) = (slurm_duration(&of("RunTime")), slurm_duration(&of("TimeLimit")));
    state_of(Over { state, reason, exit, ran, limit }, &of("NodeList"), None)
}

/// The longest time by which Slurm may signal a job too early (`sbatch`(1), `--signal`: "up to 60 seconds earlier").
const EARLY: Duration = Duration::from_secs(60);

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

/// The facts about an ended job.
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
    /// Returns true if Slurm may have ended the search: by a signal, or by ending its workers first.
    pub(super) fn may_be_ended(&self) -> bool {
        self.code.is_none_or(|code| [Exit::Interrupted.code(), Exit::Impossible.code()].contains(&code))
    }

    /// Returns the end of the job.
    ///
    /// If a signal stopped the search, Slurm names the cause. If Slurm names none and the job has run up to its limit by the
    /// local clock, the cause is the time limit.
    pub(super) fn end(&self) -> End {
        if let Some(code) = self.code.filter(|_| !self.may_be_ended()) {
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

    #[test]
    fn lines_of_squeue_are_read_and_what_is_new_is_asked_again() {
        let waits = |reason: &str, start: Option<&str>| State::Waits {
            reason: reason.to_owned(),
            start: start.map(str::to_owned),
        };
        for (line, state) in [
            ("PENDING|Resources|N/A|10:00|", waits("Resources", None)),
            ("PENDING|Priority|2026-11-23T18:00:00|10:00|", waits("Priority", Some("2026-11-23T18:00:00"))),
            (
                "RUNNING|None|2026-11-23T18:00:00|10:00|gt[1-2]",
                State::Runs { nodes: "gt[1-2]".to_owned(), limit: Some(Duration::from_secs(600)) },
            ),
        ] {
            assert_eq!(queued(line), state);
        }
        assert!(matches!(queued("TIMEOUT|TimeLimit|x|1:00|gt1"), State::Over(over) if over.state == "TIMEOUT"));
        for line in ["LAUNCH_FAILED_AGAIN|None|x|y|", "", "slurm_load_jobs error: Unable to contact slurm controller"] {
            assert!(matches!(queued(line), State::Unclear(_)), "{line}");
        }
    }

    #[test]
    fn what_the_controller_remembers_is_read() {
        let line = "JobId=7 JobName=gputune UserId=root(0) JobState=TIMEOUT Reason=TimeLimit Dependency=(null) Requeue=1 Restarts=0 \
                    ExitCode=0:15 RunTime=00:01:05 TimeLimit=00:01:00 NodeList=gt1";
        let over = Over {
            state: "TIMEOUT".to_owned(),
            reason: "TimeLimit".to_owned(),
            exit: "0:15".to_owned(),
            ran: Some(Duration::from_secs(65)),
            limit: Some(Duration::from_secs(60)),
        };
        assert_eq!(remembered(line), State::Over(over));
        let running = "JobId=7 JobState=RUNNING NodeList=gt1 TimeLimit=UNLIMITED";
        assert_eq!(remembered(running), State::Runs { nodes: "gt1".to_owned(), limit: None });
        for line in ["JobId=7 JobState=NEW_ONE", ""] {
            assert!(matches!(remembered(line), State::Unclear(_)), "{line}");
        }
        assert!(is_unknown("slurm_load_jobs error: Invalid job id specified"));
        assert!(!is_unknown("Unable to contact slurm controller"));
    }

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
