//! Makes the report on the best config, with its command and how it compares with the device's ceilings.

use std::path::Path;

use gputune::init::edits::{edits, file_edits};
use gputune::machine::{Ceilings, Device, ceilings};
use gputune::model::{FLOPS, GpuUse, Measurement, Settings, Space};
use gputune::probe::adapter::{Applied, Apply};
use gputune::probe::{CommandProber, StepTemplate};
use gputune::report::{self, BestReport, Compute, LearningRate, emit::Run};
use gputune::search::{Study, WarmStart};

use super::paths;

/// Combines a command with the paths that it needs: of gputune, and of the folder of the trial `number`.
pub(super) fn run_of<'c>(step: &'c StepTemplate, space: &'c Space, out: &Path, number: u32) -> Run<'c> {
    let probe_dir = CommandProber::probe_dir(out, number);
    Run { step, space: Some(space), gputune: paths::gputune_path(), probe_dir }
}

/// Returns the number of the trial that found a config; 0 if no trial did. Numbers of trials begin at 1.
pub(super) fn number_of(study: &Study, config: &Settings) -> u32 {
    let found = study.space.locate(&config.chosen(&study.space)).ok();
    found.and_then(|config| study.history.of(&config).next().map(|trial| trial.number)).unwrap_or(0)
}

/// Makes the report on the best config of a search with the folder `out`; `None` if no config is feasible.
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

/// Adds the command of the best config, the edits for the user's files, the hook's settings and the learning rate.
fn with_command(best: BestReport, study: &Study, template: &StepTemplate, device: &Device, out: &Path) -> BestReport {
    let run = run_of(template, &study.space, out, number_of(study, &best.config));
    let set = best.to_set().clone();
    let words = template.words(&set, &run.gputune, &run.probe_dir);
    let words: Vec<String> = words.into_iter().map(|word| word.text).collect();
    let baseline = best.baseline.as_ref().map(|baseline| baseline.config.clone());
    let baseline = baseline.or_else(|| study.baseline.as_ref().map(|config| study.settings(config)));
    let applied = template.apply.by_hook(&set);
    let mut edits = edits(template, &words, &set, baseline.as_ref(), device.is_gpu);
    edits.extend(file_edits(template, &set));
    BestReport {
        applied: applied.map(|(applied, value)| (applied.name.clone(), value.clone())).collect(),
        edits: Some(edits),
        command: Some(run.command_line(&set)),
        cwd: Some(template.cwd.display().to_string()),
        learning_rate: LearningRate::of(study, Some(template)),
        ..best
    }
}

/// Adds how the config and the baseline compare with the ceilings of their GPUs.
fn with_compute(best: BestReport, study: &Study, template: &StepTemplate, device: &Device) -> BestReport {
    let Some(found) = study.best() else { return best };
    let of = |measurement: &Measurement, settings: &Settings| {
        let known = known_ceilings(device, &measurement.machine.gpus);
        Compute::of(measurement, template.apply.precision(settings), known.as_ref())
    };
    let other = found.baseline.as_ref().filter(|baseline| baseline.config != found.winner.config);
    let other = other.map(|baseline| (&baseline.measurement, study.settings(&baseline.config)));
    let winner = match &other {
        Some((baseline, settings)) => {
            counted_by(baseline, &found.winner.measurement, || has_same_work(&template.apply, settings, &best.config))
        }
        None => found.winner.measurement.clone(),
    };
    let baseline = other.and_then(|(measurement, settings)| of(measurement, &settings));
    let compute = of(&winner, &best.config).map(|compute| compute.with_baseline(baseline));
    BestReport { compute, ..best }
}

/// Returns `own` with its floating-point operations per step. If they were not counted, because compiled code hides
/// them, they follow from the operations per sample of `other`, provided that both do the same work.
fn counted_by(other: &Measurement, own: &Measurement, is_same_work: impl FnOnce() -> bool) -> Measurement {
    let mut own = own.clone();
    if !own.metrics.contains_key(FLOPS)
        && let Some((flops, samples)) = other.flops_per_sample().zip(own.timing.samples_per_step)
        && is_same_work()
    {
        own.metrics.insert(FLOPS.to_owned(), flops * samples);
    }
    own
}

/// Returns true if two configs differ only in settings of the hook that do not change the operations of a sample.
/// `torch.checkpoint` changes them: the backward pass repeats operations.
fn has_same_work(apply: &Apply, settings: &Settings, others: &Settings) -> bool {
    let keeps_work = |applied: &Applied| applied.is_by_hook() && applied.name != "torch.checkpoint";
    let may_differ = |name: &str| apply.applied.iter().any(|applied| applied.parameter == name && keeps_work(applied));
    settings.iter().all(|(name, value)| others.get(name) == Some(value) || may_differ(name))
}

/// Returns the measured ceilings of a GPU that trained, or of another GPU of the same model.
pub(super) fn known_ceilings(device: &Device, gpus: &[GpuUse]) -> Option<Ceilings> {
    let folder = ceilings::folder().filter(|_| device.is_gpu)?;
    ceilings::known(&folder, device, gpus)
}

#[cfg(test)]
mod tests {
    use gputune::model::Value;
    use gputune::probe::adapter::Target;

    use super::*;

    fn measured(samples: f64, flops: Option<f64>) -> Measurement {
        let mut measured = Measurement::default();
        measured.timing.samples_per_step = Some(samples);
        measured.metrics.extend(flops.map(|flops| (FLOPS.to_owned(), flops)));
        measured
    }

    #[test]
    fn operations_that_were_not_counted_follow_from_the_baseline() {
        let flops = |own, is_same_work| {
            let counted = counted_by(&measured(8.0, Some(80.0)), &own, || is_same_work);
            counted.metrics.get(FLOPS).copied()
        };
        assert_eq!(flops(measured(32.0, None), true), Some(320.0));
        assert_eq!(flops(measured(32.0, None), false), None);
        assert_eq!(flops(measured(32.0, Some(7.0)), true), Some(7.0));
    }

    #[test]
    fn checkpointing_is_other_work_and_compilation_is_the_same_work() {
        let applied = |(parameter, name): (&str, &str)| Applied {
            parameter: parameter.to_owned(),
            name: name.to_owned(),
            target: Target::parse(name).unwrap(),
            argument: None,
        };
        let targets = [("compile", "torch.compile"), ("saves", "torch.checkpoint")].map(applied);
        let apply = Apply { applied: targets.into(), ..Apply::default() };
        let settings = |compile: bool, saves: bool, width: i64| -> Settings {
            let values = [Value::from(compile), Value::from(saves), Value::from(width)];
            ["compile", "saves", "width"].into_iter().zip(values).collect()
        };
        let baseline = settings(false, false, 8);
        assert!(has_same_work(&apply, &baseline, &settings(true, false, 8)));
        assert!(!has_same_work(&apply, &baseline, &settings(false, true, 8)));
        assert!(!has_same_work(&apply, &baseline, &settings(false, false, 16)));
    }
}
