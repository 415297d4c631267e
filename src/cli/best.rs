//! Completes the report on the best config with facts of the command line: the command, and the device's ceilings.

use std::path::{Path, PathBuf};

use gputune::init::edits::edits;
use gputune::machine::{Ceilings, Device, ceilings};
use gputune::model::{GpuUse, Settings, Space};
use gputune::probe::{CommandProber, StepTemplate};
use gputune::report::{self, BestReport, Compute, LearningRate, emit::Run};
use gputune::search::{Study, WarmStart};

use super::paths;

/// The inputs of a rendered command, besides its settings.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) gputune: PathBuf,
    pub(super) probe_dir: PathBuf,
}

impl Ran {
    /// Makes the inputs for the trial `number` of a search with the folder `out`.
    pub(super) fn new(out: &Path, number: u32) -> Self {
        Self { gputune: paths::gputune_path(), probe_dir: CommandProber::probe_dir(out, number) }
    }

    /// Makes the inputs for the trial that found a config.
    pub(super) fn of(study: &Study, config: &Settings, out: &Path) -> Self {
        Self::new(out, number_of(study, config))
    }

    /// Combines the inputs with a command.
    pub(super) fn with<'c>(&'c self, step: &'c StepTemplate, space: &'c Space) -> Run<'c> {
        Run { step, space: Some(space), gputune: &self.gputune, probe_dir: &self.probe_dir }
    }
}

/// Returns the number of the trial that found a config; 0 if no trial did.
pub(super) fn number_of(study: &Study, config: &Settings) -> u32 {
    let found = study.space.locate(&config.chosen(&study.space)).ok();
    found.and_then(|config| study.history.of(&config).next().map(|trial| trial.number)).unwrap_or(0)
}

/// Makes the report on the best config of a search with the folder `out`; `None` when none is feasible.
pub(super) fn report(
    study: &Study,
    device: &Device,
    template: &StepTemplate,
    warm_start: &[WarmStart],
    out: &Path,
) -> Option<BestReport> {
    let best = with_command(report::best(study, device)?, study, template, device, out);
    let best = with_compute(best, study, template, device);
    Some(BestReport { warm_start: warm_start.to_vec(), ..best })
}

/// Adds the command that runs the best config with the files of its trial, and the settings that the command does not carry.
fn with_command(best: BestReport, study: &Study, template: &StepTemplate, device: &Device, out: &Path) -> BestReport {
    let ran = Ran::of(study, &best.config, out);
    let set = best.to_set().clone();
    let words = template.words(&set, &ran.gputune, &ran.probe_dir);
    let words: Vec<String> = words.into_iter().map(|word| word.text).collect();
    let baseline = best.baseline.as_ref().map(|baseline| baseline.config.clone());
    let baseline = baseline.or_else(|| study.baseline.as_ref().map(|config| study.settings(config)));
    let applied = template.apply.by_hook(&set);
    BestReport {
        applied: applied.map(|(applied, value)| (applied.name.clone(), value.clone())).collect(),
        edits: Some(edits(template, &words, &set, baseline.as_ref(), device.is_gpu)),
        command: Some(ran.with(template, &study.space).command_line(&set)),
        cwd: Some(template.cwd.display().to_string()),
        learning_rate: LearningRate::of(study, Some(template)),
        ..best
    }
}

/// Adds how the config compares with the ceilings of its GPUs, if these were measured.
fn with_compute(best: BestReport, study: &Study, template: &StepTemplate, device: &Device) -> BestReport {
    let Some(winner) = study.best().map(|best| best.winner) else { return best };
    let known = known_ceilings(device, &winner.measurement.machine.gpus);
    let precision = template.apply.precision(&best.config);
    BestReport { compute: Compute::of(&winner.measurement, precision, known.as_ref()), ..best }
}

/// Returns the measured ceilings of a GPU that trained, or of another GPU of the same model.
pub(super) fn known_ceilings(device: &Device, gpus: &[GpuUse]) -> Option<Ceilings> {
    let folder = ceilings::folder().filter(|_| device.is_gpu)?;
    ceilings::known(&folder, device, gpus)
}
