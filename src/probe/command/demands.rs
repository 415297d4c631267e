//! Checks what must hold besides a throughput: all expected processes reported, and each setting took effect.

use std::time::Instant;

use super::super::classify;
use super::super::heard::Asked;
use super::super::orders::Ending;
use super::super::ranks::Attendance;
use super::super::template::StepTemplate;
use super::{CommandStep, Experiment, Job, Mode, ProbeError, Rate, Session};
use crate::model::{Expression, Failure, Outcome, Settings};

impl Session {
    /// Returns the outcome if a measurement does not count because a demand is not met.
    pub(super) fn unmet(&self, last_lines: &[String]) -> Option<Outcome> {
        let failure =
            |reason: String| Failure { reason, last_lines: classify::shown(last_lines), ..Failure::default() };
        let heard = &self.heard;
        if let Some(reason) = self.silence().filter(|_| !heard.wanted.is_empty()) {
            return Some(Outcome::Rejected(failure(format!("no setting took effect: {reason}"))));
        }
        if let Attendance::Missing(reason) | Attendance::Wrong(reason) = heard.ranks.attendance(Instant::now()) {
            return Some(Outcome::Crashed(failure(reason)));
        }
        let (target, parameter) = heard.wanted.first_key_value()?;
        Some(Outcome::Rejected(failure(format!(
            "`{parameter}` had no effect: nothing says that `{target}` was applied"
        ))))
    }

    /// Returns a message if the hook never reported although it should have been loaded. Returns `None` if the step failed with its
    /// own error.
    pub(super) fn silence(&self) -> Option<String> {
        let adapter = self.step.template.apply.adapter?;
        let failed = self.heard.ending.is_some_and(|ending| !Ending::is_success(ending));
        // A printed rate does not show that the hook works. Step events come from the hook, or from a script that reports by
        // itself.
        let reports = self.heard.any_step() && matches!(self.step.rate, Rate::Events);
        let silent = self.heard.ranks.count() == 0 && !reports && !failed;
        silent.then(|| format!("the adapter `{}` was never heard ({})", adapter.name, adapter.when_silent))
    }
}

/// Returns the reason and the last lines of a failure.
pub(super) fn said(failure: &Failure) -> Vec<String> {
    std::iter::once(&failure.reason).chain(&failure.last_lines).cloned().collect()
}

/// Adds the reason for missing reports to an outcome.
pub(super) fn explained(mut outcome: Outcome, silence: Option<String>) -> Outcome {
    if let Outcome::TimedOut(failure) | Outcome::Stalled(failure) | Outcome::Crashed(failure) = &mut outcome
        && let Some(silence) = silence
    {
        failure.reason += &format!("; {silence}");
    }
    outcome
}

/// Returns the expectations of the spec for a training process that receives this config.
pub(super) fn asked_in_session(step: &CommandStep, job: &Job<'_>) -> Result<Asked, ProbeError> {
    let targets = step.template.apply.in_session(job.settings);
    let targets = targets.map(|(applied, _)| (applied.name.clone(), applied.parameter.clone())).collect();
    Ok(Asked { targets, ..asked(step, job)? })
}

/// Returns the expectations of the spec for the step with one config.
pub(super) fn asked(step: &CommandStep, job: &Job<'_>) -> Result<Asked, ProbeError> {
    let targets = step.template.apply.by_hook(job.settings);
    let ranks = step.ranks.as_ref().and_then(|ranks| ranks.value(|name| job.settings.get(name)).ok());
    let of_config = targets.map(|(applied, _)| (applied.name.clone(), applied.parameter.clone()));
    let of_experiment = job.experiment.into_iter().flat_map(Experiment::hook_targets);
    // A loader-only experiment does not train, so training settings cannot take effect.
    let is_loader_only = job.experiment.is_some_and(|experiment| experiment.mode == Mode::LoaderOnly);
    let matters = |(target, _): &(String, String)| !is_loader_only || target.starts_with("dataloader.");
    Ok(Asked {
        samples_per_step: samples_per_step(step, job)?,
        ranks: ranks.and_then(|ranks| u32::try_from(ranks.as_i64()?).ok()),
        targets: of_experiment.map(|name| (name.clone(), name)).chain(of_config).filter(matters).collect(),
    })
}

/// Returns what the unmodified job lacks if it runs with `set` only.
pub fn as_it_is_needs(
    template: &StepTemplate,
    rate: &Rate,
    samples_per_step: Option<&Expression>,
    set: &Settings,
) -> Option<String> {
    let counts = || {
        let is_known = |samples: &&Expression| samples.value(|name| set.get(name)).is_ok();
        let expression = samples_per_step.filter(|samples| !is_known(samples))?;
        let is_counted = template.apply.adapter.is_some() && matches!(rate, Rate::Events);
        (!is_counted).then(|| format!("samples_per_step = \"{}\" needs settings", expression.text()))
    };
    template.needs_settings(set).or_else(counts)
}

/// Returns the reason if the unmodified job is requested but cannot run.
pub(super) fn refusal_as_it_is(step: &CommandStep, job: &Job<'_>) -> Option<String> {
    let needs = || as_it_is_needs(&step.template, &step.rate, step.samples_per_step.as_ref(), job.settings);
    job.config.is_as_it_is().then(needs).flatten()
}

fn samples_per_step(step: &CommandStep, job: &Job<'_>) -> Result<Option<f64>, ProbeError> {
    let Some(expression) = &step.samples_per_step else { return Ok(None) };
    let samples = expression.value(|name| job.settings.get(name)).ok().and_then(|samples| samples.as_f64());
    // For the unmodified job, the hook counts the samples.
    if job.config.is_as_it_is() && samples.is_none() {
        return Ok(None);
    }
    let error =
        || ProbeError::SamplesPerStep { expression: expression.text().to_owned(), settings: job.settings.line() };
    samples.filter(|samples| *samples > 0.0).map(Some).ok_or_else(error)
}
