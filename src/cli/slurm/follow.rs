//! Follows a job: reports why it waits, shows its output, and reports its end.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::asked::{self, End, Known, Over, State};
use super::{BEST, CODE, FOLDER, LOG, NUMBER};
use crate::cli::exit::Failed;
use crate::cli::{interrupt, paths, stdout};

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The limits of the time between two questions to Slurm, which is the time since the start divided by `ASK_SHARE`. All
/// three are round numbers.
const ASK_SOONEST: Duration = Duration::from_secs(1);
const ASK_LATEST: Duration = Duration::from_secs(15);
const ASK_SHARE: u32 = 20;

/// How long a job runs without a log until gputune asks the user if the nodes share the file system: a round number.
const SILENT: Duration = Duration::from_secs(60);

/// How often in a row Slurm must not know the job before it counts as over: its controller may have restarted.
const FORGOTTEN: u32 = 3;

pub(super) struct Job {
    pub(super) number: String,
    files: PathBuf,
    is_quiet: bool,
}

struct Seen {
    stop: Arc<AtomicBool>,
    is_cancelled: bool,
    /// The number of shown bytes of the log.
    shown: u64,
    /// The last message.
    said: String,
    /// When Slurm first said that the job runs.
    since: Option<Instant>,
    limit: Option<Duration>,
    /// True if the job has run since it last waited in the queue.
    has_run: bool,
    /// How often in a row Slurm did not know the job.
    forgotten: u32,
    begin: Instant,
    /// The time of the next question to Slurm.
    next: Instant,
}

impl Job {
    pub(super) fn new(number: String, files: PathBuf, is_quiet: bool) -> Self {
        Self { number, files, is_quiet }
    }

    /// Returns the last job of the search in a folder.
    pub(super) fn of(out: &Path, is_quiet: bool) -> Option<Self> {
        let files = out.join(FOLDER);
        let number = fs::read_to_string(files.join(NUMBER)).ok()?.trim().to_owned();
        let is_number = !number.is_empty() && number.chars().all(|letter| letter.is_ascii_digit());
        is_number.then(|| Self::new(number, files, is_quiet))
    }

    pub(super) fn state(&self) -> State {
        asked::state(&self.number)
    }

    pub(super) fn say(&self, text: &str) {
        if !self.is_quiet {
            say!("{}", text.replace(char::is_control, " "));
        }
    }

    /// Follows the job to its end; the result is the search's result.
    ///
    /// # Errors
    /// The job ended without its search, or signals cannot be handled.
    pub(super) fn follow(self) -> crate::cli::Result {
        let stop = interrupt::stop_flag()?;
        let now = Instant::now();
        let mut seen = Seen {
            stop,
            is_cancelled: false,
            shown: 0,
            said: String::new(),
            since: None,
            limit: None,
            has_run: false,
            forgotten: 0,
            begin: now,
            next: now,
        };
        loop {
            self.show(&mut seen);
            if seen.stop.load(Ordering::Relaxed) && !seen.is_cancelled {
                self.cancel(&mut seen);
            }
            if Instant::now() >= seen.next {
                if let Some(over) = self.ask(&mut seen) {
                    return self.end(&mut seen, over);
                }
                let is_near = seen.is_cancelled || self.files.join(CODE).exists();
                let share = if is_near { Duration::ZERO } else { seen.begin.elapsed() / ASK_SHARE };
                seen.next = Instant::now() + share.clamp(ASK_SOONEST, ASK_LATEST);
            } else if !seen.is_cancelled && self.files.join(CODE).exists() {
                seen.next = seen.next.min(Instant::now() + ASK_SOONEST);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Asks Slurm for the state of the job. Returns `None` while the job waits or runs, and `Some(None)` if Slurm has
    /// forgotten the job.
    fn ask(&self, seen: &mut Seen) -> Option<Option<Over>> {
        let state = self.state();
        seen.forgotten = if state == State::Forgotten { seen.forgotten + 1 } else { 0 };
        match state {
            State::Waits { reason, start } => {
                if seen.has_run {
                    self.say(&format!(
                        "job {} was put back into the queue; its search goes on from the journal",
                        self.number
                    ));
                    (seen.has_run, seen.since) = (false, None);
                }
                let start = start.map(|start| format!(", expected to start at {start}")).unwrap_or_default();
                self.say_once(seen, &format!("job {} waits: {}{start}", self.number, why(&reason)));
            }
            State::Runs { nodes, limit } => {
                let since = *seen.since.get_or_insert_with(Instant::now);
                (seen.has_run, seen.limit) = (true, limit);
                let is_silent = seen.shown == 0 && since.elapsed() > SILENT && !self.files.join(LOG).exists();
                self.say_once(
                    seen,
                    &if is_silent {
                        let files = self.files.display();
                        format!(
                            "job {} runs on {nodes}, and nothing is in {files}: do the nodes share this file system?",
                            self.number
                        )
                    } else {
                        format!("job {} runs on {nodes}", self.number)
                    },
                );
            }
            State::Over(over) => return Some(Some(over)),
            State::Forgotten if seen.forgotten >= FORGOTTEN => return Some(None),
            State::Forgotten => {}
            State::Unclear(answer) => {
                self.say_once(
                    seen,
                    &format!("Slurm's answer about job {} is not clear, and it is asked again: {answer}", self.number),
                );
            }
        }
        None
    }

    fn say_once(&self, seen: &mut Seen, text: &str) {
        if seen.said != text {
            self.say(text);
            text.clone_into(&mut seen.said);
        }
    }

    fn cancel(&self, seen: &mut Seen) {
        let told = asked::run(Command::new("scancel").arg(&self.number), "");
        if let Err(error) = &told {
            self.say_once(seen, &format!("cannot run `scancel {}`, and tries again: {error}", self.number));
        }
        seen.is_cancelled = told.is_ok_and(|told| told.status.success());
        if seen.is_cancelled {
            self.say(&format!(
                "cancels job {} and waits for its end; all finished probes are kept (Ctrl-C again leaves at once)",
                self.number
            ));
        }
        seen.next = Instant::now();
    }

    /// Shows new output of the log.
    fn show(&self, seen: &mut Seen) {
        let new = || -> io::Result<Vec<u8>> {
            let mut file = File::open(self.files.join(LOG))?;
            file.seek(SeekFrom::Start(seen.shown))?;
            let mut new = Vec::new();
            file.read_to_end(&mut new)?;
            Ok(new)
        };
        let Ok(new) = new() else { return };
        seen.shown += new.len() as u64;
        let _ = io::stderr().write_all(&new);
    }

    fn end(&self, seen: &mut Seen, over: Option<Over>) -> crate::cli::Result {
        // A shared file system may show a write of another node some seconds later.
        const LATE: Duration = Duration::from_secs(3);
        let deadline = Instant::now() + LATE;
        let code = || fs::read_to_string(self.files.join(CODE)).ok()?.trim().parse().ok();
        while code().is_none() && seen.since.is_some() && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
        self.show(seen);
        let best = fs::read_to_string(self.files.join(BEST)).unwrap_or_default();
        stdout::print(&best)?;
        let ran = seen.since.map(|since| since.elapsed()).unwrap_or_default();
        let known = Known { over, code: code(), ran, limit: seen.limit, has_begun: seen.shown > 0 };
        let end = if seen.is_cancelled && known.may_be_ended() { End::Cancelled } else { known.end() };
        let Some(said) = end.said(known.over.as_ref().and_then(|over| over.limit).or(known.limit)) else {
            return Ok(end.exit());
        };
        let out = self.files.parent().unwrap_or(&self.files);
        let kept = format!(
            "all finished probes are kept in {}; run the same command to continue",
            paths::relative(out).display()
        );
        let message = format!("job {} {said}", self.number);
        if end == End::Cancelled {
            self.say(&format!("{message}; {kept}"));
            return Ok(end.exit());
        }
        let hint = match end {
            End::TimeLimit => format!("{kept}; a longer --time in --slurm leaves it more"),
            End::Failed(_) => format!("its output is in {}; {kept}", paths::relative(&self.files.join(LOG)).display()),
            _ => kept,
        };
        Err(Failed::new(end.exit(), message).hint(hint))
    }
}

/// Explains Slurm's reasons for waiting (`squeue`(1), "JOB REASON CODES").
fn why(reason: &str) -> String {
    let means = match reason {
        "None" => "it was just submitted",
        "Resources" => "the nodes are busy",
        "Priority" => "other jobs are before it",
        "PartitionTimeLimit" => "it asks for more time than its partition gives, and will not start",
        "PartitionNodeLimit" => "it asks for more nodes than its partition gives, and will not start",
        "PartitionDown" | "PartitionInactive" => "its partition takes no jobs now",
        "BadConstraints" => "no node is as it asks, and it will not start",
        "JobHeldUser" | "JobHeldAdmin" => "it is held back; `scontrol release` lets it go",
        "BeginTime" => "it may not start yet",
        "Dependency" => "it waits for another job",
        reason if reason.starts_with("ReqNodeNotAvail") => "nodes that it needs are not available",
        reason if reason.starts_with("QOS") || reason.starts_with("Assoc") || reason.starts_with("MaxJobs") => {
            "a limit of your account is reached"
        }
        _ => return reason.to_owned(),
    };
    format!("{means} ({reason})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_said_in_words_and_new_ones_as_they_are() {
        assert_eq!(why("Resources"), "the nodes are busy (Resources)");
        assert!(why("QOSMaxJobsPerUserLimit").starts_with("a limit of your account"));
        assert_eq!(why("SomethingNew"), "SomethingNew");
    }
}
