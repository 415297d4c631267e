//! Runs the probes of a diagnosis, one after the other, within a time limit.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::evidence::{Around, Differential, Evidence, Ran};
use super::plan::{self, Allowed, Next};
use super::starvation;
use super::verdict::{Verdict, diagnose};
use crate::model::{Config, Failure, Measurement, Outcome, Progress, Settings, fact::LOADER_RATE};
use crate::probe::{Experiment, Job, Limits, Mode, ProbeError, Prober};

/// An event of a running session.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note<'n> {
    /// A probe begins; `None` is the observed probe.
    Begins(Option<Differential>),
    /// A probe is running.
    Progress(&'n Progress),
    /// A probe ended.
    Ended(Option<Differential>, &'n Ran, Duration),
    /// A differential probe was left out, with the reason.
    LeftOut(Differential, &'n str),
}

/// The result of a session.
#[derive(Debug)]
pub struct Examined {
    /// The evidence.
    pub evidence: Evidence,
    /// The verdict on the evidence.
    pub verdict: Verdict,
    /// The duration of the session.
    pub elapsed: Duration,
    /// True if the session was stopped before every probe was considered.
    pub is_interrupted: bool,
}

/// The reason why a session gives no diagnosis.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No probe can be run.
    #[error("probing is impossible")]
    Probe(#[from] ProbeError),
    /// The observed job could not be measured.
    #[error("the job could not be measured: {}", .0.failure().map_or_else(|| .0.name().to_owned(), |failure| failure.reason.clone()))]
    NotMeasured(Box<Outcome>),
    /// The session was stopped before it had any evidence.
    #[error("it was stopped before anything was known")]
    Interrupted,
}

/// A job under examination.
pub struct Session<'s> {
    /// The prober of the job.
    pub prober: &'s mut dyn Prober,
    /// The prober of the job with one rank, if the job can run with one rank.
    pub with_one_rank: Option<&'s mut dyn Prober>,
    /// The config of the job.
    pub config: &'s Config,
    /// The names and values of the config.
    pub settings: &'s Settings,
    /// The limits of a probe, cut to the session's time.
    pub limits: Limits,
    /// True if an adapter's hook is loaded.
    pub has_adapter: bool,
    /// The machine.
    pub around: Around,
    /// The time limit of the whole session.
    pub time: Duration,
    /// Stops the session, which then ends with the evidence it has.
    pub stop: &'s AtomicBool,
}

/// The longest measuring times of a probe, if the spec allows as much: round numbers.
const OBSERVED: Duration = Duration::from_secs(8);
const DIFFERENTIAL: Duration = Duration::from_secs(4);

impl Session<'_> {
    /// Runs the observed probe, then the most informative differential probes.
    ///
    /// # Errors
    /// Probing is impossible, the observed job gave no measurement, or the session was stopped before that.
    pub fn run(mut self, on_note: &mut dyn FnMut(&Note<'_>)) -> Result<Examined, SessionError> {
        let begin = Instant::now();
        on_note(&Note::Begins(None));
        let experiment = self.has_adapter.then(|| Experiment::new(Mode::Observe));
        // The observed job is always probed, however little time there is.
        let outcome = self.probe(1, experiment.as_ref(), OBSERVED, self.time, None, on_note)?;
        let measurement = match outcome {
            Outcome::Measured(measurement) => measurement,
            Outcome::Interrupted => return Err(SessionError::Interrupted),
            outcome => return Err(SessionError::NotMeasured(Box::new(outcome))),
        };
        let mut each = begin.elapsed();
        on_note(&Note::Ended(None, &Ran::Measured(Box::new(measurement.clone())), each));
        let mut evidence = Evidence::of(&measurement, self.around.clone());
        let allowed = Allowed {
            has_adapter: self.has_adapter,
            can_run_one_rank: self.with_one_rank.is_some(),
            can_drop_cache: self.has_adapter && folder_of_data(&evidence).is_some(),
        };
        let (mut number, mut is_interrupted) = (1, false);
        while let Some(next) = plan::next(&evidence, &allowed, self.time.saturating_sub(begin.elapsed()), each) {
            let differential = match next {
                Next::Run(differential) => differential,
                Next::LeaveOut(differential, reason) => {
                    on_note(&Note::LeftOut(differential, &reason));
                    evidence.runs.push((differential, Ran::LeftOut(reason)));
                    continue;
                }
            };
            is_interrupted |= self.stop.load(Ordering::Relaxed);
            if is_interrupted {
                evidence.runs.push((differential, Ran::LeftOut("it was stopped".to_owned())));
                continue;
            }
            number += 1;
            on_note(&Note::Begins(Some(differential)));
            let began = Instant::now();
            let left = self.time.saturating_sub(begin.elapsed());
            let ran = self.differential(number, differential, &evidence, left, on_note)?;
            let took = began.elapsed();
            each = each.min(took).max(Duration::from_secs(1));
            is_interrupted |= self.stop.load(Ordering::Relaxed);
            on_note(&Note::Ended(Some(differential), &ran, took));
            evidence.runs.push((differential, ran));
        }
        let verdict = diagnose(&evidence);
        Ok(Examined { evidence, verdict, elapsed: begin.elapsed(), is_interrupted })
    }

    fn differential(
        &mut self,
        number: u32,
        differential: Differential,
        evidence: &Evidence,
        left: Duration,
        on_note: &mut dyn FnMut(&Note<'_>),
    ) -> Result<Ran, ProbeError> {
        let dropped = || folder_of_data(evidence).map_or(0, |folder| drop_from_cache(folder, self.stop));
        if differential == Differential::Cold && dropped() == 0 {
            return Ok(Ran::Failed("no file could be dropped from the page cache".to_owned()));
        }
        let experiment = self.has_adapter.then(|| plan::experiment(differential, evidence));
        let outcome = self.probe(number, experiment.as_ref(), DIFFERENTIAL, left, Some(differential), on_note)?;
        Ok(match outcome {
            Outcome::Measured(measurement) if is_of_use(differential, &measurement) => {
                let is_replay = differential == Differential::Replay;
                match starvation::contradicted(evidence, &measurement).filter(|_| is_replay) {
                    Some(reason) => Ran::Failed(reason),
                    None => Ran::Measured(Box::new(measurement)),
                }
            }
            Outcome::Measured(_) => Ran::Failed("it measured nothing".to_owned()),
            Outcome::OutOfMemory { memory, .. } => Ran::OutOfMemory(memory),
            Outcome::Interrupted => Ran::LeftOut("it was stopped".to_owned()),
            outcome => Ran::Failed(
                outcome.failure().map_or_else(|| outcome.name().to_owned(), |failure| failure.reason.clone()),
            ),
        })
    }

    fn probe(
        &mut self,
        number: u32,
        experiment: Option<&Experiment>,
        measure_time: Duration,
        left: Duration,
        differential: Option<Differential>,
        on_note: &mut dyn FnMut(&Note<'_>),
    ) -> Result<Outcome, ProbeError> {
        let limits = Limits {
            measure_time: self.limits.measure_time.min(measure_time),
            probe_time: if differential.is_none() { left } else { self.limits.probe_time.min(left) },
            stall_time: self.limits.stall_time.min(left),
            ..self.limits
        };
        let job = Job { experiment: experiment.cloned(), ..Job::new(number, self.config, self.settings, &limits) };
        let prober: &mut dyn Prober = match (differential, &mut self.with_one_rank) {
            (Some(Differential::OneRank), Some(prober)) => &mut **prober,
            _ => &mut *self.prober,
        };
        let stop = self.stop;
        // A second try may be undisturbed; a third try is not worth the time.
        for _ in 0..2 {
            let outcome = prober.probe(&job, &mut |progress| {
                on_note(&Note::Progress(progress));
                if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if !matches!(outcome, Outcome::Disturbed(_)) {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Disturbed(Failure::new("another process disturbed the run twice")))
    }
}

fn is_of_use(differential: Differential, measurement: &Measurement) -> bool {
    match differential {
        Differential::LoaderOnly => !measurement.facts.numbered(LOADER_RATE).is_empty(),
        _ => measurement.throughput.is_some() || measurement.timing.step_seconds.is_some(),
    }
}

fn folder_of_data(evidence: &Evidence) -> Option<PathBuf> {
    let folder = PathBuf::from(evidence.text("files.path").filter(|path| !path.is_empty())?);
    let folder = if folder.is_file() { folder.parent()?.to_owned() } else { folder };
    folder.is_dir().then_some(folder)
}

/// Drops the files below a folder from the page cache, so that a probe measures storage. Returns their number.
///
/// It calls posix_fadvise(2) with `POSIX_FADV_DONTNEED`, which needs only read access. Unwritten and mapped parts of a file stay.
fn drop_from_cache(folder: PathBuf, stop: &AtomicBool) -> usize {
    /// Round numbers: bounds on the time that this step of a diagnosis takes.
    const MOST: usize = 200_000;
    const LONGEST: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    let drop_one = |path: PathBuf| {
        let file = File::open(path);
        file.is_ok_and(|file| rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).is_ok())
    };
    let (mut folders, mut dropped) = (vec![folder], 0);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            if dropped >= MOST || begin.elapsed() > LONGEST || stop.load(Ordering::Relaxed) {
                return dropped;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => dropped += usize::from(drop_one(entry.path())),
                _ => {}
            }
        }
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;

    #[test]
    fn files_below_the_folder_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        for name in ["a.bin", "below/b.bin"] {
            std::fs::write(folder.path().join(name), [0; 10]).unwrap();
        }
        let found = |path: &str| folder_of_data(&Job::cpu().text("files.path", path).evidence());
        let path = folder.path().display().to_string();
        assert_eq!(drop_from_cache(found(&path).unwrap(), &AtomicBool::new(false)), 2);
        assert_eq!(found(&format!("{path}/a.bin")), found(&path));
        assert_eq!(found("/not/there"), None);
        assert_eq!(folder_of_data(&Job::cpu().evidence()), None);
    }
}
