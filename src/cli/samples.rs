//! Explains how the samples of a step are counted, and what to write if they are not.

use std::path::PathBuf;

use gputune::model::{Measurement, Role};
use gputune::probe::ProbeError;
use gputune::search::TuneError;
use gputune::spec::Spec;

use super::exit::{Exit, Failed};

/// The facts for the hint that samples are missing.
pub(super) struct Asked {
    path: PathBuf,
    /// The line number of `[step]`, counted from 1.
    step: Option<usize>,
    /// An expression of the spec's own parameters.
    expression: Option<String>,
}

impl Asked {
    /// Collects the facts from a spec before that is taken apart.
    pub(super) fn of(spec: &Spec) -> Self {
        let line = spec.text.lines().position(|line| line.trim_start().starts_with("[step]"));
        Self { path: spec.path.clone(), step: line.map(|line| line + 1), expression: expression(spec) }
    }

    /// Returns the failure with the line to paste, if the samples are missing.
    pub(super) fn unless_told(&self, error: &TuneError) -> Option<Failed> {
        let TuneError::Probe(no_samples @ ProbeError::NoSamples) = error else { return None };
        Some(Failed::because(Exit::Impossible, no_samples).hint(self.hint()))
    }

    pub(super) fn hint(&self) -> String {
        let place = match self.step {
            Some(line) => format!("below [step], line {line} of {}", self.path.display()),
            None => format!("into [step] of {}", self.path.display()),
        };
        let lines = match &self.expression {
            Some(expression) => format!("  samples_per_step = \"{expression}\""),
            // The placeholder is no real script's number.
            None => "  samples_per_step = 1   # how many a step of your script takes, an expression of parameters \
                     if it depends on them"
                .to_owned(),
        };
        format!("paste this {place}, and run with --fresh:\n{lines}")
    }
}

/// Returns the batch, multiplied by the accumulation if the batch is a part of the step.
fn expression(spec: &Spec) -> Option<String> {
    let parameters = spec.space.parameters();
    let batches = || parameters.iter().filter(|parameter| parameter.is_batch_size());
    let batch = batches().find(|batch| !batch.name().contains("micro")).or_else(|| batches().next())?;
    let accumulation = parameters.iter().find(|parameter| parameter.role() == Some(Role::Accumulation));
    let is_part = batch.name().contains("micro");
    Some(match accumulation.filter(|_| is_part) {
        Some(accumulation) => format!("{} * {}", batch.name(), accumulation.name()),
        None => batch.name().to_owned(),
    })
}

/// Returns a warning if the hook saw batches that do not match the counted samples.
pub(super) fn mismatch<'m>(mut measured: impl Iterator<Item = &'m Measurement>) -> Option<String> {
    let words = measured.find_map(|measurement| measurement.facts.text("samples.mismatch"))?;
    Some(format!("{words}: that is what samples are here. If they are not, set `samples_per_step` in [step]"))
}
