//! The worker: runs the requests of a driver in the slots of its node.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Asked, Ended, FromWorker, HEARTBEAT, Hello, News, Refusal, Refused, SILENCE, ToWorker, Welcome};
use crate::machine::Allocation;
use crate::model::{Outcome, Space};
use crate::probe::orders::{read_line, send};
use crate::probe::scratch::Scratch;
use crate::probe::{CommandProber, Prober, locked};

/// The parts that serve a search on this node.
pub struct Site {
    /// The resources of the node.
    pub welcome: Welcome,
    /// The search space.
    pub space: Space,
    /// A prober for each slot.
    pub probers: Vec<CommandProber>,
    /// The end of the node's allocation.
    pub allocation: Option<Allocation>,
}

/// How the service of a search ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parting {
    /// The search is over.
    Over,
    /// The driver disappeared without a message.
    Gone,
    /// This worker cannot serve the search.
    Refused(Refusal),
    /// The driver rejects this worker.
    Unwanted(Refusal),
}

type Output = Arc<Mutex<dyn Write + Send>>;

/// Serves a driver until the driver ends the search or is silent for too long. The caller must then end this process,
/// which ends probes that still run. `make` makes the site from the driver's first line and the folder for the logs of
/// its probers.
///
/// # Errors
/// The other side is not a driver, or does not take messages.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    make: impl FnOnce(&Hello, &Path) -> Result<Site, Refusal>,
) -> io::Result<Parting> {
    // The folder is removed at the end, or by the next gputune on this machine if this process is killed.
    let scratch = Scratch::new().map_err(io::Error::other)?;
    let folder = scratch.path().join("worker");
    fs::create_dir(&folder)?;
    let mut input = BufReader::new(input);
    let output: Output = Arc::new(Mutex::new(output));
    let hello = match read_line(&mut input)? {
        Some(ToWorker::Hello(hello)) => hello,
        Some(ToWorker::Refused(refusal)) => return Ok(Parting::Unwanted(refusal)),
        Some(ToWorker::Goodbye) => return Ok(Parting::Over),
        None => return Ok(Parting::Gone),
        Some(_) => return Err(io::Error::other("the first line must be a hello")),
    };
    let Site { welcome, space, probers, allocation } = match make(&hello, &folder) {
        Ok(site) => site,
        Err(refusal) => {
            say(&output, &FromWorker::Refused(refusal.clone()))?;
            return Ok(Parting::Refused(refusal));
        }
    };
    say(&output, &FromWorker::Welcome(Box::new(welcome)))?;
    let space = Arc::new(space);
    let longest = Arc::new(Mutex::new(Duration::ZERO));
    let slot = |prober| {
        let (sender, asked) = channel();
        let stopped = Arc::new(AtomicU64::new(0));
        let worker = Slot {
            prober,
            space: Arc::clone(&space),
            folder: folder.clone(),
            stopped: Arc::clone(&stopped),
            allocation,
            longest: Arc::clone(&longest),
            output: Arc::clone(&output),
        };
        let thread = std::thread::spawn(move || worker.run(&asked));
        ((sender, stopped), thread)
    };
    let (slots, threads): (Vec<_>, Vec<_>) = probers.into_iter().map(slot).unzip();
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        while let Ok(Some(line)) = read_line::<ToWorker>(&mut input) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut last = Instant::now();
    loop {
        match heard.recv_timeout(HEARTBEAT) {
            Ok(ToWorker::Goodbye) => return Ok(Parting::Over),
            Ok(ToWorker::Refused(refusal)) => return Ok(Parting::Unwanted(refusal)),
            Ok(line) => {
                last = Instant::now();
                obey(line, &slots);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(Parting::Gone),
        }
        if last.elapsed() > SILENCE + SILENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the driver is silent"));
        }
        check(&threads)?;
        say(&output, &FromWorker::Heartbeat)?;
    }
}

/// Returns an error if the thread of a slot has ended, as after a panic. The driver would wait for the slot's answer as long
/// as it hears heartbeats.
fn check(threads: &[JoinHandle<()>]) -> io::Result<()> {
    if threads.iter().any(JoinHandle::is_finished) {
        return Err(io::Error::other("a slot of this worker has failed"));
    }
    Ok(())
}

fn obey(line: ToWorker, slots: &[(Sender<Box<Asked>>, Arc<AtomicU64>)]) {
    match line {
        ToWorker::Probe(asked) => {
            if let Some((slot, _)) = slots.get(asked.slot) {
                let _ = slot.send(asked);
            }
        }
        ToWorker::Stop { slot, attempt } => {
            if let Some((_, stopped)) = slots.get(slot) {
                stopped.fetch_max(attempt, Ordering::Relaxed);
            }
        }
        ToWorker::Hello(_) | ToWorker::Heartbeat | ToWorker::Goodbye | ToWorker::Refused(_) => {}
    }
}

fn say(output: &Output, message: &FromWorker) -> io::Result<()> {
    send(&mut *locked(output), message)
}

struct Slot {
    prober: CommandProber,
    space: Arc<Space>,
    folder: PathBuf,
    /// The largest number of an attempt that the driver stopped.
    stopped: Arc<AtomicU64>,
    allocation: Option<Allocation>,
    /// The time of the longest probe in any slot of this node.
    longest: Arc<Mutex<Duration>>,
    output: Output,
}

impl Slot {
    fn run(mut self, asked: &Receiver<Box<Asked>>) {
        for asked in asked {
            let answer = self.no_time(&asked).unwrap_or_else(|| self.ended(&asked));
            if say(&self.output, &answer).is_err() {
                return;
            }
        }
    }

    fn ended(&mut self, asked: &Asked) -> FromWorker {
        let begin = Instant::now();
        let outcome = self.probe(asked);
        let took = begin.elapsed();
        {
            let mut longest = locked(&self.longest);
            *longest = longest.max(took);
        }
        let log = tail(&self.folder.join(CommandProber::log_name(asked.job.number, asked.job.effort)));
        let (slot, attempt, remarks) = (asked.slot, asked.attempt, self.prober.remarks());
        FromWorker::Ended(Box::new(Ended { slot, attempt, outcome, remarks, log }))
    }

    /// Returns the remaining and the needed time if a probe does not fit into the allocation. A probe needs as much
    /// time as this node's longest probe, but at least its measuring time and at most its time limit. The grace time is
    /// added.
    fn no_time(&self, asked: &Asked) -> Option<FromWorker> {
        let left = self.allocation?.left();
        let limits = &asked.job.limits;
        let takes = (*locked(&self.longest)).max(limits.measure_time).min(limits.probe_time) + limits.grace_time;
        let (slot, attempt, left_s, takes_s) = (asked.slot, asked.attempt, left.as_secs_f64(), takes.as_secs_f64());
        (left < takes).then_some(FromWorker::NoTime { slot, attempt, left_s, takes_s })
    }

    fn probe(&mut self, asked: &Asked) -> Result<Outcome, Refused> {
        const TELL_EVERY: Duration = Duration::from_millis(200);
        if !self.space.has_levels_of(&asked.job.config) {
            let reason = "the config is of another space".to_owned();
            return Err(Refused { reason, hint: None, last_lines: Vec::new() });
        }
        let (output, stopped) = (&self.output, &self.stopped);
        let mut next = Instant::now();
        let outcome = self.prober.probe(&asked.job, &mut |progress| {
            if stopped.load(Ordering::Relaxed) >= asked.attempt {
                return ControlFlow::Break(());
            }
            if Instant::now() >= next {
                next = Instant::now() + TELL_EVERY;
                let news = News { slot: asked.slot, attempt: asked.attempt, progress: progress.clone() };
                if say(output, &FromWorker::Progress(Box::new(news))).is_err() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        outcome.map_err(|error| Refused {
            reason: error.to_string(),
            hint: error.hint().map(str::to_owned),
            last_lines: error.last_lines().to_vec(),
        })
    }
}

fn tail(log: &Path) -> String {
    /// A round number: some hundreds of lines.
    const BYTES: u64 = 64 << 10;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.take(BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_panics_ends_the_worker() {
        let (sender, asked) = channel::<()>();
        let waits = std::thread::spawn(move || {
            let _ = asked.recv();
        });
        let panics: JoinHandle<()> = std::thread::spawn(|| panic!("as asked"));
        while !panics.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut threads = vec![waits];
        assert!(check(&threads).is_ok());
        threads.push(panics);
        assert!(check(&threads).is_err());
        drop(sender);
    }
}
