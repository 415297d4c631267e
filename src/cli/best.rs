//! The report on the best config, with what only the command line knows: the command, and the device's ceilings.

use std::path::Path;

use gputune::ceilings::{self, Ceilings};
use gputune::journal::WarmStart;
use gputune::metric::GpuUse;
use gputune::probe::StepTemplate;
use gputune::report::{self, BestReport, Compute, LearningRate};
use gputune::study::Study;
use gputune::telemetry::Device;

use super::check;

/// The report on the best config of a search with the folder `out`; `None` when none is feasible.
pub(super) fn report(
    study: &Study,
    device: &Device,
    template: &StepTemplate,
    warm_start: &[WarmStart],
    out: &Path,
) -> Option<BestReport> {
    let best = with_command(report::best(study, device)?, study, template, out);
    let best = with_compute(best, study, template, device);
    Some(BestReport { warm_start: warm_start.to_vec(), ..best })
}

/// Adds the command that runs the best config, with the files of the trial that found it.
fn with_command(best: BestReport, study: &Study, template: &StepTemplate, out: &Path) -> BestReport {
    let winner = study.space.locate(&best.config.chosen(&study.space)).ok();
    let number = winner.and_then(|config| study.history.of(&config).next().map(|trial| trial.number));
    let applied = template.apply.by_hook(&best.config);
    BestReport {
        applied: applied.map(|(applied, value)| (applied.name.clone(), value.clone())).collect(),
        command: Some(check::command_line(template, &best.config, out, number.unwrap_or(0))),
        cwd: Some(template.cwd.display().to_string()),
        learning_rate: LearningRate::of(study, Some(template)),
        ..best
    }
}

/// Adds how far the config is from what its GPUs reached, where that was measured.
fn with_compute(best: BestReport, study: &Study, template: &StepTemplate, device: &Device) -> BestReport {
    let Some(winner) = study.best().map(|best| best.winner) else { return best };
    let known = known_ceilings(device, &winner.measurement.gpus);
    let precision = template.apply.precision(&best.config);
    BestReport { compute: Compute::of(&winner.measurement, precision, known.as_ref()), ..best }
}

/// What was measured of GPUs at best, where one of those that trained, or another of their model, was.
pub(super) fn known_ceilings(device: &Device, gpus: &[GpuUse]) -> Option<Ceilings> {
    let folder = ceilings::folder().filter(|_| device.is_gpu)?;
    ceilings::known(&folder, device, gpus)
}
