//! Keeps the current state of a search: for display, and in a small file next to the journal for other processes.
//!
//! The results are in the journal, so nothing is lost with this file. It is always replaced as a whole, so a reader never sees half
//! of it.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::model::{DeviceReadings, Estimate, Event, Objective, Outcome, Purpose, Settings, Space, Trial, wall_time};
use crate::search::budget::{Budget, StopReason};

/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;

/// The name of the file in the folder of a search.
pub const FILE: &str = "status.json";

/// The current state of a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of the format.
    pub format: u32,
    /// The program that writes it.
    pub gputune_version: String,
    /// The subject of the search, such as the path of the spec.
    pub name: String,
    /// The process id of the search.
    pub pid: u32,
    /// The machine that it runs on.
    pub machine: String,
    /// When this was written, in milliseconds since 1970.
    pub written_ms: u64,
    /// Seconds that the search has taken so far, earlier runs of it included.
    pub elapsed_s: f64,
    /// Seconds that the search may take.
    pub time_s: f64,
    /// The expected seconds of the whole search; absent until two probes allow an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<f64>,
    /// GPU seconds that probes took, and that they may take, if the budget limits GPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_time_s: Option<(f64, f64)>,
    /// Configs that were probed.
    pub searched: u32,
    /// Configs that may be probed.
    pub probes: u32,
    /// Rounds that have ended.
    #[serde(default)]
    pub rounds: u32,
    /// The configs of the round that runs, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_round: Option<usize>,
    /// The running probe, if probes run one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Running>,
    /// The running probe of each slot, the first slot first; empty if probes run one at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Option<Running>>,
    /// The best so far; absent if the result is a front.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<BestSoFar>,
    /// How the search ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// A probe that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// The number of the trial that it will be.
    pub number: u32,
    /// Why it is run.
    pub purpose: Purpose,
    /// Names and values.
    pub config: Settings,
    /// The strategy's reason to propose the config, if it gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Seconds since it began.
    pub elapsed_s: f64,
    /// Steps (or readings of a rate) so far.
    pub steps: u64,
    /// The throughput so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Estimate>,
    /// Its unit.
    pub unit: String,
    /// The readings of the devices over the last seconds.
    #[serde(flatten)]
    pub devices: DeviceReadings,
}

/// The best so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestSoFar {
    /// Its trial.
    pub number: u32,
    /// Names and values.
    pub config: Settings,
    /// The value of the objective's metric.
    pub estimate: Estimate,
    /// Its throughput, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Estimate>,
    /// The throughput's unit.
    pub unit: String,
    /// How many times better than the baseline it is; absent if this is unknown, or if it is the baseline itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_better: Option<f64>,
}

/// How a search ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// In the regular way, or because someone stopped it.
    Stopped(StopReason),
    /// With an error.
    Failed(String),
}

/// Keeps a status up to date from the events of a search.
#[derive(Debug)]
pub struct Watched {
    status: Status,
    objective: Objective,
    begin: Instant,
    earlier: Duration,
    baseline: Option<f64>,
    best_score: Option<f64>,
    /// The number of GPUs of a probe whose slot names none.
    whole_gpus: u32,
}

impl Watched {
    /// Makes a status for a search that begins now, or continues after the trials in `recovered`.
    pub fn new(
        name: &str,
        space: &Space,
        objective: &Objective,
        (budget, whole_gpus): (Budget, u32),
        recovered: &[Trial],
    ) -> Self {
        let status = Status {
            format: FORMAT,
            gputune_version: env!("CARGO_PKG_VERSION").to_owned(),
            name: name.to_owned(),
            pid: std::process::id(),
            machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            time_s: budget.time.as_secs_f64(),
            gpu_time_s: budget.gpu_time.map(|time| (0.0, time.as_secs_f64())),
            probes: budget.probes,
            ..Status::default()
        };
        let earlier = wall_time(recovered);
        let (begin, objective) = (Instant::now(), objective.clone());
        let mut watched = Self { status, objective, begin, earlier, baseline: None, best_score: None, whole_gpus };
        for trial in recovered {
            watched.finished(trial, &space.settings(&trial.config));
        }
        watched
    }

    /// Updates the status from an event.
    pub fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { number, purpose, settings, reason, slot, left, .. } => {
                self.status.in_round = None;
                self.expect(*left);
                let running = Running {
                    number: *number,
                    purpose: *purpose,
                    config: (*settings).clone(),
                    why: reason.map(str::to_owned),
                    elapsed_s: 0.0,
                    steps: 0,
                    throughput: None,
                    unit: String::new(),
                    devices: DeviceReadings::default(),
                };
                match slot.and_then(|slot| usize::try_from(slot.number).ok()?.checked_sub(1)) {
                    Some(at) => {
                        let slots = &mut self.status.slots;
                        slots.resize(slots.len().max(at + 1), None);
                        slots[at] = Some(running);
                    }
                    None => self.status.probe = Some(running),
                }
            }
            Event::Progress { number, progress } => {
                if let Some(probe) = self.running().find(|probe| probe.number == *number) {
                    probe.elapsed_s = progress.elapsed.as_secs_f64();
                    probe.steps = progress.steps;
                    probe.throughput = progress.throughput;
                    probe.unit.clone_from(&progress.unit);
                    probe.devices = DeviceReadings::clone(&progress.devices);
                }
            }
            Event::Finished { trial, settings, .. } => {
                self.over(trial.number);
                self.finished(trial, settings);
            }
            Event::Amended { trial, .. } => {
                let is_best = self.status.best.as_ref().is_some_and(|best| best.number == trial.number);
                if is_best && trial.outcome.failure().is_some() {
                    (self.status.best, self.best_score) = (None, None);
                }
            }
            Event::PutBack { number, .. } => self.over(*number),
            Event::RoundBegins { configs, left, .. } => {
                self.status.in_round = Some(*configs);
                self.expect(*left);
            }
            Event::RoundEnds { .. } => {
                self.status.rounds += 1;
                self.status.in_round = None;
            }
            _ => {}
        }
    }

    /// Records how the search ended.
    pub fn end(&mut self, ended: Ended) {
        self.status.probe = None;
        self.status.slots.clear();
        self.status.ended = Some(ended);
    }

    /// Returns the current status.
    pub fn status(&mut self) -> &Status {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.status.written_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        self.status.elapsed_s = self.elapsed().as_secs_f64();
        &self.status
    }

    fn elapsed(&self) -> Duration {
        self.earlier + self.begin.elapsed()
    }

    fn expect(&mut self, left: Option<Duration>) {
        self.status.expected_s = left.map(|left| (self.elapsed() + left).as_secs_f64());
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Running> {
        self.status.probe.iter_mut().chain(self.status.slots.iter_mut().flatten())
    }

    fn over(&mut self, number: u32) {
        let Status { probe, slots, .. } = &mut self.status;
        for place in slots.iter_mut().chain([probe]) {
            if place.as_ref().is_some_and(|running| running.number == number) {
                *place = None;
            }
        }
    }

    fn finished(&mut self, trial: &Trial, settings: &Settings) {
        if let Some((spent, _)) = &mut self.status.gpu_time_s {
            *spent += trial.gpu_seconds(self.whole_gpus);
        }
        if trial.purpose == Purpose::Round {
            return;
        }
        self.status.searched += 1;
        let estimate = trial.outcome.measurement().and_then(|measurement| self.objective.estimate(measurement));
        if trial.purpose == Purpose::Baseline {
            self.baseline = estimate.map(|estimate| estimate.value);
        }
        if self.objective.is_pareto() {
            return;
        }
        let score = self.objective.score_of(&trial.outcome);
        if let (Some(score), Some(estimate), Outcome::Measured(measurement)) = (score, estimate, &trial.outcome)
            && self.best_score.is_none_or(|best| score > best)
        {
            self.best_score = Some(score);
            let baseline = self.baseline.filter(|_| trial.purpose != Purpose::Baseline);
            let is_more = self.objective.score(1.0) > 0.0;
            let times = |baseline: f64| if is_more { estimate.value / baseline } else { baseline / estimate.value };
            self.status.best = Some(BestSoFar {
                number: trial.number,
                config: settings.clone(),
                estimate,
                throughput: measurement.throughput,
                unit: measurement.unit.clone(),
                times_better: baseline.map(times).filter(|times| times.is_finite() && *times > 0.0),
            });
        }
    }
}

/// The status file next to the journal.
#[derive(Debug)]
pub struct StatusFile {
    folder: PathBuf,
    next: Instant,
}

impl StatusFile {
    /// The shortest time between two replacements of the file.
    pub const EVERY: Duration = Duration::from_millis(500);

    /// Makes the file in the folder of a search.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), next: Instant::now() }
    }

    /// Returns true if the file is due to be written again.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Replaces the file; a reader sees the old one or the new one.
    ///
    /// # Errors
    /// It cannot be written. A search goes on without it.
    pub fn write(&mut self, status: &Status) -> io::Result<()> {
        self.next = Instant::now() + Self::EVERY;
        let text = serde_json::to_string(status)?;
        let mut file = tempfile::Builder::new().prefix(".status").tempfile_in(&self.folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.persist(self.folder.join(FILE)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Reads the status of a search in a folder; `None` if the file is missing or has another format.
    pub fn read(folder: &Path) -> Option<Status> {
        let text = std::fs::read(folder.join(FILE)).ok()?;
        serde_json::from_slice::<Status>(&text).ok().filter(|status| status.format == FORMAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Progress, Slot};
    use crate::search::tests::{crashed, measured, numbers};

    fn trial(number: u32, purpose: Purpose, outcome: Outcome) -> Trial {
        let config = numbers(1, 9).config(number.into()).unwrap();
        Trial { elapsed: Duration::from_secs(2), ..Trial::new(number, purpose, config, outcome) }
    }

    fn watched(recovered: &[Trial]) -> Watched {
        Watched::new("spec.toml", &numbers(1, 9), &Objective::default(), (Budget::default(), 1), recovered)
    }

    fn starts(watched: &mut Watched, number: u32, settings: &Settings, reason: Option<&str>, slot: Option<&Slot>) {
        let (purpose, searched, left) = (Purpose::Search, 2, None);
        watched.hear(&Event::Started { number, purpose, settings, searched, reason, slot, left });
    }

    #[test]
    fn the_status_follows_the_events_and_comes_back_from_its_file() {
        let rate = |rate| measured(Estimate::point(rate));
        let mut watched = watched(&[trial(1, Purpose::Baseline, rate(100.0)), trial(2, Purpose::Search, crashed())]);
        let settings = Settings::from_iter([("x", 4)]);
        starts(&mut watched, 3, &settings, Some("why not"), None);
        let throughput = Some(Estimate::interval(150.0, 140.0, 160.0));
        let progress = Progress { steps: 7, throughput, unit: "samples/s".to_owned(), ..Progress::default() };
        watched.hear(&Event::Progress { number: 3, progress: &progress });
        let folder = tempfile::tempdir().unwrap();
        let mut file = StatusFile::new(folder.path());
        assert!(file.is_due() && StatusFile::read(folder.path()).is_none());
        file.write(watched.status()).unwrap();
        let read = StatusFile::read(folder.path()).unwrap();
        assert_eq!((read.searched, read.best.as_ref().unwrap().number), (2, 1));
        assert!(read.elapsed_s >= 4.0);
        let probe = read.probe.unwrap();
        assert_eq!((probe.number, probe.steps, probe.throughput), (3, 7, throughput));
        assert_eq!(probe.why.as_deref(), Some("why not"));

        let trial = trial(3, Purpose::Search, rate(150.0));
        watched.hear(&Event::Finished { trial: &trial, settings: &settings, judgement: None, is_best: true });
        watched.hear(&Event::RoundEnds { number: 1, ratios: &[] });
        watched.end(Ended::Stopped(StopReason::ProbesSpent));
        file.write(watched.status()).unwrap();
        let read = StatusFile::read(folder.path()).unwrap();
        assert_eq!(read.best.unwrap().times_better, Some(1.5));
        assert_eq!((read.probe, read.rounds), (None, 1));
        assert_eq!(read.ended, Some(Ended::Stopped(StopReason::ProbesSpent)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn each_slot_has_its_own_probe() {
        let mut watched = watched(&[]);
        for (number, slot) in [(4, 2), (5, 1)] {
            starts(&mut watched, number, &Settings::default(), None, Some(&Slot::numbered(slot)));
        }
        watched.hear(&Event::Progress { number: 4, progress: &Progress { steps: 9, ..Progress::default() } });
        let steps = |watched: &mut Watched| -> Vec<Option<(u32, u64)>> {
            watched.status().slots.iter().map(|slot| slot.as_ref().map(|probe| (probe.number, probe.steps))).collect()
        };
        assert_eq!(steps(&mut watched), [Some((5, 0)), Some((4, 9))]);
        watched.hear(&Event::PutBack { number: 5, reason: "heat" });
        assert_eq!(steps(&mut watched), [None, Some((4, 9))]);
    }
}
