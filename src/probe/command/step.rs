//! The description of a command to probe, and how to read it.

use std::path::PathBuf;

use crate::machine::VISIBLE_GPUS;
use crate::model::{Expression, Slot};
use crate::probe::relay::Relays;
use crate::probe::{Rate, Start, StepTemplate, Template, WritesWish};

/// What a command prober runs and how it reads it.
#[derive(Debug, Clone)]
pub struct CommandStep {
    /// The command, its environment and its files.
    pub template: StepTemplate,
    /// How throughput is read.
    pub rate: Rate,
    /// Samples per step, where the step does not report them.
    pub samples_per_step: Option<Expression>,
    /// Whether to count steps where nobody reports their samples; otherwise that is an error.
    pub may_count_steps: bool,
    /// The number of processes of a distributed job that must report, where it is stated.
    pub ranks: Option<Expression>,
    /// What `{gputune}` stands for.
    pub gputune: PathBuf,
    /// The executable that supervises: `gputune`, or one that calls [`supervisor::run_if_asked`].
    ///
    /// [`supervisor::run_if_asked`]: crate::probe::supervisor::run_if_asked
    pub supervisor: PathBuf,
    /// Whether the device is a GPU; if not, the memory of the probe's processes is device memory.
    pub is_gpu: bool,
    /// What happens to the files that probes write.
    pub writes: WritesWish,
    /// How probes are started.
    pub start: Start,
    /// The part of the machine that probes have, where others have the rest at the same time.
    pub slot: Option<Slot>,
    /// How processes on other nodes reach the probe, where it spans several.
    pub relays: Relays,
}

impl CommandStep {
    /// The same step in a part of the machine: bound to its processors, with its GPUs only.
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
