//! The description of a command to probe, and how to read it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::VISIBLE_GPUS;
use crate::model::{Expression, Slot};
use crate::probe::relay::Relays;
use crate::probe::{Rate, StepTemplate, Template, WritesWish};

/// The command that a prober runs, and how to read its results.
#[derive(Debug, Clone)]
pub struct CommandStep {
    /// The command, its environment and its files.
    pub template: StepTemplate,
    /// The source of the throughput.
    pub rate: Rate,
    /// Samples per step, if the step does not report them.
    pub samples_per_step: Option<Expression>,
    /// True if the throughput may be in steps per second when the samples per step are unknown. If false, unknown
    /// samples are an error.
    pub may_count_steps: bool,
    /// The number of processes of a distributed job that must report, if stated.
    pub ranks: Option<Expression>,
    /// The replacement for `{gputune}`.
    pub gputune: PathBuf,
    /// The executable that supervises: `gputune`, or a program that calls [`supervisor::run_if_asked`].
    ///
    /// [`supervisor::run_if_asked`]: crate::probe::supervisor::run_if_asked
    pub supervisor: PathBuf,
    /// True if the device is a GPU. Otherwise the memory of the probe's processes is device memory.
    pub is_gpu: bool,
    /// How files are protected from writes of probes.
    pub writes: WritesWish,
    /// How probes start.
    pub start: Start,
    /// The GPUs and CPU cores for these probes, if other probes run at the same time.
    pub slot: Option<Slot>,
    /// How processes on other nodes reach the probe, if it spans several nodes.
    pub relays: Relays,
}

impl CommandStep {
    /// Returns the same step bound to a part of the machine: its CPU cores and only its GPUs.
    #[must_use]
    pub fn in_slot(mut self, slot: Slot) -> Self {
        if !slot.gpus.is_empty() {
            let variables = &mut self.template.env;
            variables.retain(|(name, _)| name != VISIBLE_GPUS);
            variables.push((VISIBLE_GPUS.to_owned(), Template::parse(&slot.gpus.join(","))));
        }
        self.slot = Some(slot);
        self
    }
}

/// How probes of a command are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// As processes of their own.
    Fresh,
    /// Forked from a process that has done the imports, where that is possible.
    Warm,
    /// In a process that already trains, if only settings differ that can change there; else as `warm`. If the first config has
    /// another rate when it is forked, processes start fresh. Also for training on a CPU.
    Live,
    /// As `live` for training on a GPU. Not for training on a CPU: the memory that one config leaves to the process makes the
    /// next config faster than it is (`docs/adapters.md`).
    #[default]
    Auto,
}
