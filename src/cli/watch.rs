//! `gputune watch`: the live view of a search in another terminal or on another machine.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gputune::model::{Line, Objective, quantity::show_duration};
use gputune::report::{self, Tone};
use gputune::search::{Ended, Follower, Kept, Status, StatusFile, journal::is_in_use};

use super::exit::{Exit, Failed};
use super::live::{self, Live};
use super::progress::{on_terminal, trial_line};
use super::{colour, folder, interrupt, paths, stdout};

/// Watch a search that runs elsewhere: in another terminal, or on another machine with the same disk
///
/// `q` and Ctrl-C end the watching, never the search. Without a terminal it prints a line for each trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune watch gputune-out/config
  gputune watch gputune-out/config --once
  ssh node7 gputune watch /scratch/run/gputune-out/config")]
pub(super) struct Args {
    /// The folder of the search; it need not be there yet [default: the newest below gputune-out]
    dir: Option<PathBuf>,
    /// Print the present state and end
    #[arg(long)]
    once: bool,
    /// Print JSON instead of text: the state of the search, a line for each change
    #[arg(long)]
    json: bool,
}

const EVERY: Duration = Duration::from_millis(200);

/// The known state of the search's process.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    /// There is no journal yet.
    Awaited,
    Running,
    Ended(Ended),
    /// Its process is gone, and did not report how it ended.
    Died,
    /// Its status is this old, and gputune cannot check if its process still runs.
    Silent(Duration),
}

pub(super) fn run(args: &Args) -> super::Result {
    let dir = folder_of(&folder::of_search(args.dir.as_deref())?)?;
    let quit = interrupt::stop_flag()?;
    let mut watch = Watch::new(&dir);
    if args.json {
        return watch.follow_as_json(args.once, &quit);
    }
    if args.once {
        watch.look()?;
        return watch.once();
    }
    let is_live = std::io::stdout().is_terminal() && Live::is_possible();
    let live = is_live.then(|| Live::begin(Arc::clone(&quit)));
    watch.follow(live, &quit)
}

/// Returns the folder; the path may name the folder or its journal.
fn folder_of(place: &Path) -> Result<PathBuf, Failed> {
    if place.is_dir() || !place.exists() {
        return Ok(place.to_owned());
    }
    match (place.file_name(), place.parent()) {
        (Some(name), Some(folder)) if name == folder::JOURNAL => Ok(folder.to_owned()),
        _ => Err(Failed::usage(format!("{} is no folder of a search", place.display()))
            .hint("give the folder that the search prints as `results`")),
    }
}

struct Watch {
    dir: PathBuf,
    journal: PathBuf,
    follower: Follower,
    objective: Option<Objective>,
    status: Option<Status>,
    /// The best score so far, of trials outside of rounds.
    best: Option<f64>,
    /// The numbers of the trials that ended.
    trials: BTreeSet<u32>,
    /// The kernel's answer about the journal's lock, and its time.
    asked: Option<(Instant, Option<bool>)>,
}

impl Watch {
    fn new(dir: &Path) -> Self {
        let journal = dir.join(folder::JOURNAL);
        let (follower, objective) = (Follower::new(&journal), None);
        let dir = dir.to_owned();
        Self { dir, journal, follower, objective, status: None, best: None, trials: BTreeSet::new(), asked: None }
    }

    /// Reads the news: lines of finished trials, and whether the status changed.
    fn look(&mut self) -> Result<(Vec<(String, Tone)>, bool), Failed> {
        let before = self.status.as_ref().map(|status| status.written_ms);
        // The status is read before the journal: if it says that the search has ended, the journal has all trials.
        self.status = StatusFile::read(&self.dir);
        let news = self.follower.news().map_err(|error| {
            Failed::because(Exit::Usage, &error)
                .hint("is it the folder of a search, written by this version of gputune?")
        })?;
        if news.is_another || self.objective.is_none() {
            // The search's objective; throughput if the folder is too old to record it.
            self.objective = Kept::read(&self.dir).ok().map(|kept| kept.study.objective);
        }
        let mut lines = Vec::new();
        if news.is_another {
            (self.best, self.trials) = (None, BTreeSet::new());
            lines.push(("the search was started over".to_owned(), Tone::Plain));
        }
        for line in &news.trials {
            let text = self.told(line);
            lines.push(text);
        }
        Ok((lines, before != self.status.as_ref().map(|status| status.written_ms)))
    }

    fn told(&mut self, line: &Line) -> (String, Tone) {
        self.trials.insert(line.trial);
        let may_lead = !line.purpose.is_repeated();
        let objective = self.objective.clone().unwrap_or_default();
        let score = objective.score_of(&line.outcome).filter(|_| may_lead);
        let is_best = score.is_some_and(|score| self.best.is_none_or(|best| score > best));
        if is_best {
            self.best = score;
        }
        trial_line(&objective, line.trial, line.purpose, &line.config, &line.outcome, is_best)
    }

    /// Returns the state of the search.
    fn life(&mut self) -> Life {
        /// The maximum age of a fresh status. A running search writes its status more often, unless it is busy with other work.
        const FRESH: Duration = Duration::from_secs(5);
        const ASK_EVERY: Duration = Duration::from_secs(1);
        if self.follower.header().is_none() {
            return Life::Awaited;
        }
        let age = self.status.as_ref().map(age);
        if let (Some(Status { ended: None, .. }), Some(age)) = (&self.status, age)
            && age < FRESH
        {
            return Life::Running;
        }
        let is_in_use = match self.asked {
            Some((at, answer)) if at.elapsed() < ASK_EVERY => answer,
            _ => self.asked.insert((Instant::now(), is_in_use(&self.journal))).1,
        };
        match (is_in_use, self.status.as_ref().and_then(|status| status.ended.clone())) {
            (Some(true), _) => Life::Running,
            (_, Some(ended)) => Life::Ended(ended),
            (Some(false), None) => Life::Died,
            (None, None) => Life::Silent(age.unwrap_or_default()),
        }
    }

    /// Prints the present state once.
    fn once(&mut self) -> super::Result {
        let life = self.life();
        if life == Life::Awaited {
            return Err(self.nothing_yet());
        }
        let mut text = String::new();
        if matches!(life, Life::Ended(_) | Life::Died)
            && let Ok(kept) = super::report::read(&self.dir)
        {
            let best = super::report::best_of(&kept);
            text += &(report::terminal(&kept.study, best.as_ref(), (&self.dir, None), colour::stdout()) + "\n\n");
        } else if let Some(status) = &self.status {
            text += &(live::once(status, colour::stdout()).join("\n") + "\n");
        }
        stdout::print(&(text + &self.words(&life) + "\n"))?;
        Ok(exit(&life))
    }

    /// Prints the state of the search as a line of JSON whenever it changes; with `once`, a single line.
    fn follow_as_json(&mut self, once: bool, quit: &AtomicBool) -> super::Result {
        loop {
            let (_, is_new) = self.look()?;
            let life = self.life();
            let is_over = matches!(life, Life::Ended(_) | Life::Died);
            match &self.status {
                _ if once && life == Life::Awaited => return Err(self.nothing_yet()),
                Some(status) if is_new || is_over => stdout::stream_json(&state(status, &life))?,
                None if once => return Err(self.no_status(Exit::Usage)),
                None if is_over => return Err(self.no_status(exit(&life))),
                _ => {}
            }
            if once || is_over || quit.load(Ordering::Relaxed) {
                return Ok(exit(&life));
            }
            std::thread::sleep(EVERY);
        }
    }

    fn nothing_yet(&self) -> Failed {
        let hint = format!("wait for it: gputune watch {}", paths::word(&self.dir));
        Failed::usage(format!("no search has started in {}", self.dir.display())).hint(hint)
    }

    fn no_status(&self, exit: Exit) -> Failed {
        let message = format!("{} has no status.json that this gputune can read", self.dir.display());
        Failed::new(exit, message).hint(format!("read its journal: gputune watch {} --once", paths::word(&self.dir)))
    }

    /// Follows the search to its end.
    fn follow(&mut self, live: Option<Live>, quit: &AtomicBool) -> super::Result {
        let mut last = None;
        let life = loop {
            let (lines, is_new) = self.look()?;
            tell(live.as_ref(), &lines)?;
            let life = self.life();
            let words = self.words(&life);
            if let Some(live) = &live {
                if let Some(status) = self.status.as_ref().filter(|_| is_new) {
                    live.show(status);
                }
                live.note(&format!("{words}; q leaves it"));
            } else if last.as_ref() != Some(&words) && matches!(life, Life::Awaited) {
                stdout::stream(&format!("{words}\n"))?;
            }
            last = Some(words);
            if matches!(life, Life::Ended(_) | Life::Died) || quit.load(Ordering::Relaxed) {
                break life;
            }
            std::thread::sleep(EVERY);
        };
        if live.is_none() && !self.trials.is_empty() {
            stdout::stream("\n")?;
        }
        drop(live);
        if matches!(life, Life::Ended(_) | Life::Died) {
            return self.once();
        }
        Ok(Exit::Found)
    }

    /// Describes the state of the search in a line.
    fn words(&self, life: &Life) -> String {
        let dir = self.dir.display();
        match life {
            Life::Awaited => format!("waits for a search in {dir}"),
            Life::Running => format!("watches the search in {dir}"),
            Life::Ended(Ended::Stopped(reason)) => format!("the search in {dir} has ended: {reason}"),
            Life::Ended(Ended::Failed(reason)) => format!("the search in {dir} has failed: {reason}"),
            Life::Died => format!(
                "the search in {dir} was killed: run the same search again to continue from its {} trials",
                self.trials.len()
            ),
            Life::Silent(age) => format!("no news from {dir} for {}", show_duration(*age)),
        }
    }
}

/// Returns the status to print, in which a killed search has failed.
fn state(status: &Status, life: &Life) -> Status {
    let killed = || Ended::Failed("the search was killed".to_owned());
    Status { ended: status.ended.clone().or_else(|| (*life == Life::Died).then(killed)), ..status.clone() }
}

/// Returns the time since a status was written, by this machine's clock.
fn age(status: &Status) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(status.written_ms))
}

/// Writes lines above the view, or to standard output without a view. The view gets at most the last `MOST` lines.
fn tell(live: Option<&Live>, lines: &[(String, Tone)]) -> Result<(), Failed> {
    const MOST: usize = 20;
    let Some(live) = live else {
        return lines.iter().try_for_each(|(line, _)| stdout::stream(&format!("{line}\n")));
    };
    let shown = lines.get(lines.len().saturating_sub(MOST)..).unwrap_or_default();
    if shown.len() < lines.len() {
        live.say(&format!("      {} trials before these", lines.len() - shown.len()));
    }
    shown.iter().for_each(|(line, tone)| live.say(&on_terminal(line, *tone)));
    Ok(())
}

fn exit(life: &Life) -> Exit {
    match life {
        Life::Died | Life::Ended(Ended::Failed(_)) => Exit::Impossible,
        _ => Exit::Found,
    }
}
