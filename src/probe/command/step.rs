//! What a probe of a command is asked for.

use std::path::PathBuf;

use crate::model::Expression;
use crate::probe::{Rate, StepTemplate, WritesWish};

/// What a command prober runs and how it reads it.
#[derive(Debug)]
pub struct CommandStep {
    /// The command, its environment and its files.
    pub template: StepTemplate,
    /// How throughput is read.
    pub rate: Rate,
    /// Samples per step, where the step does not tell.
    pub samples_per_step: Option<Expression>,
    /// Whether steps are counted where nobody knows their samples; else that is an error.
    pub may_count_steps: bool,
    /// How many processes of a distributed job must report, where that is stated.
    pub ranks: Option<Expression>,
    /// What `{gputune}` stands for.
    pub gputune: PathBuf,
    /// The executable that supervises: `gputune`, or one that calls [`supervisor::run_if_asked`].
    ///
    /// [`supervisor::run_if_asked`]: crate::probe::supervisor::run_if_asked
    pub supervisor: PathBuf,
    /// Whether the device is a GPU; if not, the memory of the probe's processes is device memory.
    pub is_gpu: bool,
    /// What is to become of the probes' writes.
    pub writes: WritesWish,
}
