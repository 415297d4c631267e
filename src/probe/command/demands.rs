//! Checks the demands on a measurement: the environment works, all processes reported, and each setting took effect.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::classify::{self, missing_module, says_usage_error};
use super::super::heard::Asked;
use super::super::orders::Ending;
use super::super::ranks::Attendance;
use super::super::template::StepTemplate;
use super::verdict::Verdict;
use super::{CommandStep, Experiment, Job, Mode, ProbeError, Rate, Session};
use crate::model::{Expression, Failure, Outcome, Settings};

const MODULE: &str = "this Python does not have it: activate its environment, or name the right Python in `command`, such as \
     \".venv/bin/python\"; the same gputune command then goes on. If only some configs need it, install it or take them \
     out of [space]";
const PROGRAM: &str =
    "is it installed, may it be run, and is it in the PATH of the command? The same gputune command then goes on";
const USAGE: &str = "fix `command` in [step], or `apply` in [space]; `gputune check` prints the whole command";

/// The words of the commands that reached a step: their arguments are known to be right.
#[derive(Default)]
pub(super) struct KnownWords(BTreeSet<String>);

impl KnownWords {
    pub(super) fn learn(&mut self, command: &[String]) {
        self.0.extend(command.iter().flat_map(|word| parts(word)).map(str::to_owned));
    }

    /// Returns true if an error names a word of this command that is not known; false before any word is known.
    fn blames_one_of(&self, command: &[String], error: &str) -> bool {
        // Ignore the valid choices, which argparse lists after this string.
        let error = error.split("(choose from").next().unwrap_or_default();
        let of_word = |c: char| !(c.is_ascii_alphanumeric() || "_./+-".contains(c));
        let said: BTreeSet<&str> = error.split(of_word).map(|word| word.trim_end_matches('.')).collect();
        let own = command.iter().flat_map(|word| parts(word)).filter(|word| !self.0.contains(*word));
        !self.0.is_empty() && own.into_iter().any(|word| said.contains(word))
    }
}

/// Returns a word of a command, and its parts before and after the first `=`.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    [word, name, value].into_iter().filter(|part| !part.is_empty())
}

impl Session {
    /// Returns an error if the environment made the command fail: a missing module or program, or a wrong command line.
    /// Such a failure does not depend on the config, so the error ends the search. If only this config's words are
    /// wrong, returns the config's outcome. Returns `None` for all other failures.
    pub(super) fn of_environment(&self, verdict: &Verdict, known: &KnownWords) -> Option<Result<Outcome, ProbeError>> {
        if !matches!(verdict, Verdict::Exited) || self.heard.is_done || self.heard.diverged.is_some() {
            return None;
        }
        let last_lines = self.output.last_lines();
        let error = |reason: String, hint: &str| {
            let last_lines = classify::shown(&last_lines);
            Some(Err(ProbeError::Environment { reason, hint: hint.to_owned(), last_lines }))
        };
        let reported = self.heard.reported.as_ref().map(|(_, message)| message.as_str());
        let ending = self.heard.ending.filter(|ending| !ending.is_success());
        if (reported.is_some() || ending.is_some())
            && let Some(missing) = missing_module(reported, &last_lines, self.heard.ranks.count())
        {
            return error(missing, MODULE);
        }
        let ending = classify::first_ending(ending?, &last_lines);
        if reported.is_some() || self.heard.any_step() {
            return None;
        }
        match ending {
            Ending::Exited(126 | 127) => error(classify::with_last_words(ending, &last_lines), PROGRAM),
            Ending::Exited(2) => {
                let reason = classify::with_last_words(ending, &last_lines);
                // A command may require an argument from the space; then the unmodified command fails.
                if self.job.config.is_as_it_is() {
                    let reason =
                        format!("the unmodified command fails: {reason}; state today's settings in [baseline]");
                    return Some(Ok(Outcome::Rejected(Failure::new(reason))));
                }
                let said = says_usage_error(&last_lines);
                if said.is_some_and(|said| known.blames_one_of(&self.words, said)) {
                    return Some(Ok(Outcome::Rejected(classify::failure(reason, &last_lines))));
                }
                error(reason, USAGE)
            }
            _ => None,
        }
    }

    /// Returns the outcome of a measurement that does not count, because a demand is not met.
    pub(super) fn unmet(&self, last_lines: &[String]) -> Option<Outcome> {
        let failure = |reason: String| classify::failure(reason, last_lines);
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

    /// Returns a message if the hook never reported, unless the step failed with its own error.
    pub(super) fn silence(&self) -> Option<String> {
        let adapter = self.step.template.apply.adapter?;
        let failed = self.heard.ending.is_some_and(|ending| !Ending::is_success(ending));
        // A printed rate does not show that the hook works. The hook, or the script itself, reports step events.
        let reports = self.heard.any_step() && matches!(self.step.rate, Rate::Events);
        let silent = self.heard.ranks.count() == 0 && !reports && !failed;
        silent.then(|| format!("the adapter `{}` was never heard ({})", adapter.name, adapter.when_silent))
    }
}

/// Returns the reason and the last lines of a failure.
pub(super) fn said(failure: &Failure) -> Vec<String> {
    std::iter::once(&failure.reason).chain(&failure.last_lines).cloned().collect()
}

/// Returns what a process that already trains must report after it received this config.
pub(super) fn asked_in_session(step: &CommandStep, job: &Job) -> Result<Asked, ProbeError> {
    let targets = step.template.apply.in_session(&job.settings);
    let targets = targets.map(|(applied, _)| (applied.name.clone(), applied.parameter.clone())).collect();
    Ok(Asked { targets, ..asked(step, job)? })
}

/// Returns what the processes of a step with this config must report.
pub(super) fn asked(step: &CommandStep, job: &Job) -> Result<Asked, ProbeError> {
    let targets = step.template.apply.by_hook(&job.settings);
    let ranks = step.ranks.as_ref().and_then(|ranks| ranks.value(|name| job.settings.get(name)).ok());
    let of_config = targets.map(|(applied, _)| (applied.name.clone(), applied.parameter.clone()));
    let of_experiment = job.experiment.iter().flat_map(Experiment::hook_targets);
    // A loader-only experiment does not train, so training settings cannot take effect.
    let is_loader_only = job.mode() == Some(Mode::LoaderOnly);
    let matters = |(target, _): &(String, String)| !is_loader_only || target.starts_with("dataloader.");
    Ok(Asked {
        samples_per_step: samples_per_step(step, job)?,
        ranks: ranks.and_then(|ranks| u32::try_from(ranks.as_i64()?).ok()),
        targets: of_experiment.map(|name| (name.clone(), name)).chain(of_config).filter(matters).collect(),
    })
}

/// Returns what is missing if the unmodified job runs with only the settings `set`; `None` if it can run.
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

fn samples_per_step(step: &CommandStep, job: &Job) -> Result<Option<f64>, ProbeError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_that_no_other_config_had_is_to_blame() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut known = KnownWords::default();
        known.learn(&words("t.py --precision=fp32 --batch 8"));
        let other = words("t.py --precision=bf16 --batch 8 --fused");
        for (error, is_to_blame) in [
            ("argument --precision: invalid choice: 'bf16' (choose from 'fp32', 'fp16')", true),
            ("unrecognized arguments: --fused", true),
            ("unrecognized arguments: --batch 8", false),
        ] {
            assert_eq!(known.blames_one_of(&other, error), is_to_blame, "{error}");
        }
    }
}
