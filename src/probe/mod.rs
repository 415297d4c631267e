//! Runs one config for a short time: starts it, reads its reports, measures it, ends it, and returns its outcome.
//!
//! Start with the trait [`Prober`] and [`CommandProber`], which runs a command under the `supervisor`. [`InProcess`]
//! probes a step in this program. `measuring` turns step reports into a throughput with its interval. `classify` finds
//! causes of failures. `writes` protects the user's files. [`adapter`] brings settings into an unmodified script.

pub mod adapter;
mod brief;
mod cgroup;
mod classify;
mod clock_watch;
mod command;
pub mod duel;
mod events;
mod experiment;
mod gpu_watch;
mod growth;
mod hang;
mod heard;
mod hook;
mod host_watch;
mod idle;
mod in_process;
mod kept_file;
mod ledger;
mod live;
mod measuring;
mod memory_peaks;
mod orders;
mod output;
mod printed;
pub mod protocol;
mod ranks;
pub mod relay;
mod replay;
mod scratch;
mod shared_watch;
pub mod supervisor;
mod sweep;
mod template;
mod terminal;
mod timeline;
mod totals;
mod trackers;
mod warm;
pub mod worker;
mod writes;

use std::io;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use brief::{Brief, Printed, PrintedEnd};
pub use command::{
    CommandProber, CommandStep, FirstRun, NotedArgument, NotedLoader, NotedVariable, Notes, Start, as_it_is_needs,
};
use duel::{Bout, Duel, DuelWatch, Duelled, Way};
pub use experiment::{Experiment, Mode};
pub use hook::prepared;
pub use in_process::{InProcess, Step, StepError, TrainingStep};
pub use kept_file::{KeptFile, MEMORY_SNAPSHOT};
pub use measuring::stats;
pub use printed::{Rate, RateUnit, RateUnitError};
pub use replay::{Replay, Table, TableError};
pub use template::{BUILTINS, Rendered, StepTemplate, Template, Word, escaped};
pub use timeline::Timeline;
pub use trackers::{SILENCERS, Silencer};
pub use writes::{Protection, Writes, WritesError, WritesWish};

use crate::model::{
    Config, Headroom, Outcome, Progress, Settings,
    quantity::{show_bytes, show_duration},
};

/// The limits of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time of one probe, including start-up. If enough has been measured by then, the measurement counts.
    pub probe_time: Duration,
    /// Time without progress after which a probe is ended. Until the first step, output and events are progress; then
    /// only steps are. If the rate is printed, output is always progress.
    pub stall_time: Duration,
    /// Time between asking processes to end and killing them.
    pub grace_time: Duration,
    /// Longest time spent measuring after warm-up.
    pub measure_time: Duration,
    /// Measuring ends early at this half width of the throughput's 95% interval, as a share. With `None`, a search
    /// chooses a share no finer than the difference between runs. Outside a search, `None` means [`PRECISION`].
    pub precision: Option<f64>,
    /// Host memory that must stay available; a probe that leaves less is ended.
    pub host_memory_headroom: Headroom,
    /// Largest difference of losses from the losses in full precision. A config with a larger difference counts as
    /// diverged. See [`numerics::drift`](crate::search::numerics::drift).
    pub loss_tolerance: f64,
    /// Bytes of a probe's output that its log keeps. The rest is read and dropped.
    pub log_size: Option<u64>,
}

/// The version of the measuring method: the choice of steps, the throughput and its interval, and the kinds of disturbance. Raise
/// it with every change that alters the result of the same run.
pub const MEASURING: u32 = 4;

/// The default precision: a difference of 2% is a tie to most users.
pub const PRECISION: f64 = 0.02;

impl Limits {
    /// Returns the precision at which measuring ends early.
    pub fn precision(&self) -> f64 {
        self.precision.unwrap_or(PRECISION)
    }

    /// Returns the limits that trials depend on, for a journal. The size of logs is not included.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "probe_time_s": self.probe_time.as_secs_f64(),
            "stall_time_s": self.stall_time.as_secs_f64(),
            "grace_time_s": self.grace_time.as_secs_f64(),
            "measure_time_s": self.measure_time.as_secs_f64(),
            "precision": self.precision(),
            "host_memory_headroom": self.host_memory_headroom.to_string(),
            "loss_tolerance": self.loss_tolerance,
        })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            probe_time: Duration::from_secs(60),
            stall_time: Duration::from_secs(30),
            grace_time: Duration::from_secs(5),
            measure_time: Duration::from_secs(10),
            precision: None,
            host_memory_headroom: Headroom::Fraction(0.02),
            loss_tolerance: 0.1,
            log_size: None,
        }
    }
}

/// How carefully a config is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// For a candidate among many.
    Probe,
    /// For a comparison of slots, or for the facts of a job: at most a part of the usual time, such as a third.
    Part {
        /// The divisor of the usual time.
        one_in: NonZeroU32,
    },
    /// Until the config has warmed up and its rate is roughly known, at most a second. Later rounds compare the config.
    Brief,
    /// Until the losses of the first steps are known, for a comparison with another config. Its log has another name.
    Losses {
        /// The number of losses.
        count: usize,
    },
}

impl Effort {
    /// Returns true if only losses are wanted.
    pub fn is_for_losses(self) -> bool {
        matches!(self, Self::Losses { .. })
    }
}

/// One config to probe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The number of its trial.
    pub number: u32,
    /// The config.
    pub config: Config,
    /// Its names and values.
    pub settings: Settings,
    /// The limits of the probe.
    pub limits: Limits,
    /// How carefully to measure it.
    pub effort: Effort,
    /// An action in addition to training, or instead of it; `None` for an ordinary probe. It needs a command prober with an
    /// adapter.
    #[serde(default)]
    pub experiment: Option<Experiment>,
    /// True if the process may stay for later rounds, held between two steps.
    pub keeps: bool,
}

impl Job {
    /// Makes an ordinary probe.
    pub fn new(number: u32, config: &Config, settings: &Settings, limits: &Limits) -> Self {
        let (config, settings, limits) = (config.clone(), settings.clone(), *limits);
        Self { number, config, settings, limits, effort: Effort::Probe, experiment: None, keeps: false }
    }

    /// Returns the action of its experiment, if it has one.
    fn mode(&self) -> Option<Mode> {
        self.experiment.as_ref().map(|experiment| experiment.mode)
    }
}

/// The number of losses of the first steps that a measurement keeps.
pub const FIRST_LOSSES: usize = 16;

/// The function that receives a prober's progress. Its answer tells the prober to continue or to stop.
pub type Watch<'w> = &'w mut dyn FnMut(&Progress) -> ControlFlow<()>;

/// The processes that a prober holds after a probe, so that a later round does not start them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// The process of each probe.
    Processes,
    /// One process, which receives new settings for each config.
    OneProcess,
    /// Nothing: a round starts a process for each config.
    Nothing,
}

/// A prober runs probes.
///
/// A failed probe is an [`Outcome`]. An error means that probing is impossible, whatever the config.
pub trait Prober {
    /// Runs one config.
    ///
    /// Calls `watch` at least every 100 ms while a process runs, or between the steps of a step in this program. If
    /// `watch` answers `Break`, the probe ends at once with [`Outcome::Interrupted`].
    ///
    /// # Errors
    /// No config can be probed; the error gives the reason.
    fn probe(&mut self, job: &Job, watch: Watch<'_>) -> Result<Outcome, ProbeError>;

    /// Compares configs head to head, seconds apart. A prober that holds no processes starts a new process for each turn.
    ///
    /// Calls `watch` as for a probe. If `watch` answers `Break`, the duel ends with [`DuelEnd::Interrupted`].
    ///
    /// # Errors
    /// No config can be probed; the error gives the reason.
    ///
    /// [`DuelEnd::Interrupted`]: duel::DuelEnd::Interrupted
    fn duel(&mut self, duel: &Duel<'_>, watch: DuelWatch<'_>) -> Result<Duelled, ProbeError> {
        let mut bout = Bout::new(duel, watch);
        bout.begin(Way::Processes);
        let end = duel::run_processes(self, &mut bout)?;
        Ok(bout.finish(end))
    }

    /// Returns the processes held for the next round.
    fn holds(&self) -> Holds {
        Holds::Processes
    }

    /// Ends held processes, except the processes of these configs.
    fn keep(&mut self, _configs: &[Config]) {}

    /// Ends the process that is held for a config, so that its next probe starts a new process.
    fn restart(&mut self, _config: &Config) {}

    /// Returns remarks for the user about how probes run, each remark once.
    fn remarks(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// The reason why no config can be probed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The command does not exist or may not be run.
    #[error("cannot start `{program}`: {reason}")]
    Start {
        /// The program: the first word of the command.
        program: String,
        /// The reason.
        reason: String,
        /// A remedy.
        hint: String,
    },
    /// The step cannot run here, whatever the config: a module or a program is missing, or its command line is wrong.
    #[error("the step cannot run in this environment: {reason}")]
    Environment {
        /// The missing or wrong thing.
        reason: String,
        /// A remedy.
        hint: String,
        /// The last lines that the step printed.
        last_lines: Vec<String>,
    },
    /// Steps were reported without their number of samples.
    #[error("the samples per step are unknown, so batch sizes cannot be compared")]
    NoSamples,
    /// The samples per step cannot be computed.
    #[error("`samples_per_step = \"{expression}\"` is no positive number for {settings}")]
    SamplesPerStep {
        /// The expression.
        expression: String,
        /// The settings, in one line.
        settings: String,
    },
    /// Processes of a probe do not end.
    #[error("{count} processes of the probe do not end, even by SIGKILL: {}", listed(.pids))]
    Survivors {
        /// Their number.
        count: usize,
        /// The first process ids.
        pids: Vec<u32>,
    },
    /// More memory is in use than before the first probe. A probe or another program holds it.
    #[error("{} more of {place} than before the first probe are in use{}", show_bytes(*.bytes), held_by(.holder.as_deref()))]
    MemoryHeld {
        /// The memory, such as `GPU 0`.
        place: String,
        /// The additional use, in bytes.
        bytes: u64,
        /// The process that holds most of it, if it is visible.
        holder: Option<String>,
    },
    /// The probe's files, pipes or sockets cannot be made or written.
    #[error("cannot {action}{}", path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The file, if the action has a file.
        path: Option<PathBuf>,
        /// The cause.
        source: std::io::Error,
    },
    /// The requested protection against writes is not possible.
    #[error(transparent)]
    Writes(#[from] WritesError),
    /// The worker of another node is gone, together with everything that ran there.
    #[error("the worker on {host} is gone: {reason}")]
    Lost {
        /// The node.
        host: String,
        /// The sign that the worker is gone.
        reason: String,
    },
    /// A probe would not fit into the rest of a worker's allocation.
    #[error("the allocation of {host} ends in {}, and a probe may take {}: no further probe starts there", show_duration(*.left), show_duration(*.takes))]
    NoTime {
        /// The node.
        host: String,
        /// The rest of the allocation.
        left: Duration,
        /// The longest time of a probe.
        takes: Duration,
    },
    /// The worker of another node can probe no config.
    #[error("on {host}: {reason}")]
    OnNode {
        /// The node.
        host: String,
        /// The reason.
        reason: String,
        /// A remedy.
        hint: Option<String>,
        /// The last lines that the step printed.
        last_lines: Vec<String>,
    },
    /// A step in this process asked to end the search.
    #[error("the training step gave up: {reason}")]
    GaveUp {
        /// The reason that the step gave.
        reason: String,
    },
}

impl ProbeError {
    /// Makes an error for `map_err` from an action, such as `create`, and the path of the action.
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path: Some(path), source }
    }

    /// Returns the last lines that the step printed, if they say more than the error.
    pub fn last_lines(&self) -> &[String] {
        match self {
            Self::Environment { last_lines, .. } | Self::OnNode { last_lines, .. } => last_lines,
            _ => &[],
        }
    }

    /// Returns a remedy, if one is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Start { hint, .. } | Self::Environment { hint, .. } => Some(hint),
            Self::NoSamples => Some(
                "report `samples` with each step event, or set `samples_per_step` in [step], for example to \"batch_size\"",
            ),
            Self::SamplesPerStep { .. } => {
                Some("a parameter that is not active has no value; write for example `batch * accum if big else batch`")
            }
            Self::Survivors { .. } => {
                Some("processes in state D wait for a driver or a file system; see their /proc/PID/stack")
            }
            Self::MemoryHeld { .. } => {
                Some("end that program and go on with the same command; GPUs not in CUDA_VISIBLE_DEVICES are left out")
            }
            Self::Io { .. } => Some("is there space left, and may this user write there?"),
            Self::Writes(error) => Some(error.hint()),
            Self::Lost { .. } => {
                Some("the same command goes on; is the node up, and is there time left in its allocation?")
            }
            Self::OnNode { hint, .. } => hint.as_deref(),
            Self::NoTime { .. } => Some("the same command goes on in another allocation; ask for a longer one"),
            Self::GaveUp { .. } => None,
        }
    }
}

fn held_by(holder: Option<&str>) -> String {
    holder.map_or_else(|| ", by no process that can be seen".to_owned(), |holder| format!(", by {holder}"))
}

/// Locks a mutex. Its content stays valid when a thread panics, so a poisoned lock does not matter.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listed(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
