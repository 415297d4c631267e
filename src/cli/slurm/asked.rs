//! Runs Slurm's programs with a time-out, and parses their output.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use gputune::machine::slurm_duration;

/// The time limit of a Slurm program: three times its own time-out for messages (`slurm.conf`(5), `MessageTimeout`).
const PATIENCE: Duration = Duration::from_secs(30);

/// The state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// It waits, with the reason and the expected start.
    Waits { reason: String, start: Option<String> },
    /// It has nodes.
    Runs { nodes: String, limit: Option<Duration> },
    /// It is over, with Slurm's word for how.
    Over(Over),
    /// Slurm does not know it any more.
    Forgotten,
    /// An answer that gputune does not understand.
    Unclear(String),
}

/// How a job ended, in Slurm's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Over {
    pub(super) state: String,
    pub(super) reason: String,
    /// Code and signal, as `1:0`.
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
            // The controller knows more about the end.
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
const WAITS: &[&str] = &["PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"];
const RUNS: &[&str] =
    &["RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"];
const OVER: &[&str] = &[
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "DEADLINE",
    "PREEMPTED",
    "CANCELLED",
    "NODE_FAIL",
    "BOOT_FAIL",
    "OUT_OF_MEMORY",
];

/// Reads a line of `squeue -h -o "%T|%r|%S|%l|%N"`.
fn queued(line: &str) -> State {
    let parts: Vec<&str> = line.lines().next().unwrap_or_default().split('|').map(str::trim).collect();
    let [state, reason, start, limit, nodes] = *parts.as_slice() else { return State::Unclear(line.to_owned()) };
    match state {
        state if WAITS.contains(&state) => {
            let start = Some(start).filter(|start| *start != "N/A" && !start.is_empty()).map(str::to_owned);
            State::Waits { reason: reason.to_owned(), start }
        }
        state if RUNS.contains(&state) => State::Runs { nodes: nodes.to_owned(), limit: slurm_duration(limit) },
        state if OVER.contains(&state) => State::Over(Over { state: state.to_owned(), ..Over::default() }),
        state => State::Unclear(format!("its state is {state}")),
    }
}

/// Reads a line of `scontrol -o show job`: `Name=value` with blanks between them.
fn remembered(line: &str) -> State {
    let of = |name: &str| {
        let is_it =
            |word: &str| word.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
        line.split_whitespace().find_map(is_it).unwrap_or_default()
    };
    let (state, limit) = (of("JobState"), slurm_duration(&of("TimeLimit")));
    match state.as_str() {
        state if WAITS.contains(&state) => State::Waits { reason: of("Reason"), start: None },
        state if RUNS.contains(&state) => State::Runs { nodes: of("NodeList"), limit },
        state if OVER.contains(&state) => State::Over(Over {
            state: state.to_owned(),
            reason: of("Reason"),
            exit: of("ExitCode"),
            ran: slurm_duration(&of("RunTime")),
            limit,
        }),
        _ => State::Unclear(format!("its state is {state}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squeue_are_read_and_what_is_new_is_asked_again() {
        let waits = State::Waits { reason: "Resources".to_owned(), start: None };
        assert_eq!(queued("PENDING|Resources|N/A|10:00|"), waits);
        let start = Some("2026-11-23T18:00:00".to_owned());
        assert_eq!(
            queued("PENDING|Priority|2026-11-23T18:00:00|10:00|"),
            State::Waits { reason: "Priority".to_owned(), start }
        );
        let limit = Some(Duration::from_secs(600));
        assert_eq!(
            queued("RUNNING|None|2026-11-23T18:00:00|10:00|gt[1-2]"),
            State::Runs { nodes: "gt[1-2]".to_owned(), limit }
        );
        assert!(matches!(queued("TIMEOUT|TimeLimit|x|1:00|gt1"), State::Over(over) if over.state == "TIMEOUT"));
        for line in ["LAUNCH_FAILED_AGAIN|None|x|y|", "", "slurm_load_jobs error: Unable to contact slurm controller"] {
            assert!(matches!(queued(line), State::Unclear(_)), "{line}");
        }
    }

    #[test]
    fn what_the_controller_remembers_is_read() {
        let line = "JobId=7 JobName=gputune UserId=root(0) JobState=TIMEOUT Reason=TimeLimit Dependency=(null) Requeue=1 Restarts=0 \
                    ExitCode=0:15 RunTime=00:01:05 TimeLimit=00:01:00 NodeList=gt1";
        let State::Over(over) = remembered(line) else { panic!("{:?}", remembered(line)) };
        assert_eq!((over.state.as_str(), over.reason.as_str(), over.exit.as_str()), ("TIMEOUT", "TimeLimit", "0:15"));
        assert_eq!((over.ran, over.limit), (Some(Duration::from_secs(65)), Some(Duration::from_secs(60))));
        assert!(matches!(
            remembered("JobId=7 JobState=RUNNING NodeList=gt1 TimeLimit=UNLIMITED"),
            State::Runs { limit: None, .. }
        ));
        assert!(
            matches!(remembered("JobId=7 JobState=NEW_ONE"), State::Unclear(_))
                && matches!(remembered(""), State::Unclear(_))
        );
        assert!(
            is_unknown("slurm_load_jobs error: Invalid job id specified")
                && !is_unknown("Unable to contact slurm controller")
        );
    }
}
