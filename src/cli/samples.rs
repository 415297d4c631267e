//! Who counts the samples of a step: what is said of it, and what to write where nobody does.

use std::path::PathBuf;

use gputune::model::{Measurement, Role};
use gputune::probe::ProbeError;
use gputune::search::TuneError;
use gputune::spec::Spec;

use super::exit::{Exit, Failed};

/// What a search asks for where nobody knows the samples of a step.
pub(super) struct Asked {
    path: PathBuf,
    /// The line of `[step]`, from one on.
    step: Option<usize>,
    /// The expression, from the spec's own parameters.
    expression: Option<String>,
}

impl Asked {
    /// For a spec, before it is taken apart.
    pub(super) fn of(spec: &Spec) -> Self {
        let line = spec.text.lines().position(|line| line.trim_start().starts_with("[step]"));
        Self { path: spec.path.clone(), step: line.map(|line| line + 1), expression: expression(spec) }
    }

    /// The failure with the line to paste, where that is what is missing.
    pub(super) fn unless_told(&self, error: &TuneError) -> Option<Failed> {
        let TuneError::Probe(no_samples @ ProbeError::NoSamples) = error else { return None };
        Some(Failed::because(Exit::Impossible, no_samples).hint(self.hint()))
    }

    fn hint(&self) -> String {
        let place = match self.step {
            Some(line) => format!("below [step], line {line} of {}", self.path.display()),
            None => format!("into [step] of {}", self.path.display()),
        };
        let lines = match &self.expression {
            Some(expression) => format!("  samples_per_step = \"{expression}\""),
            // Not a number of anybody's script.
            None => "  samples_per_step = 1   # how many a step of your script takes, an expression of parameters \
                     if it depends on them"
                .to_owned(),
        };
        format!("paste this {place}, and run with --fresh:\n{lines}")
    }
}

/// The batch, times what a step accumulates of it where the batch is a part.
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

/// That batches do not look like the samples that are counted in them, where the hook saw it.
pub(super) fn mismatch<'m>(mut measured: impl Iterator<Item = &'m Measurement>) -> Option<String> {
    let words = measured.find_map(|measurement| measurement.facts.text("samples.mismatch"))?;
    Some(format!("{words}: that is what samples are here. If they are not, set `samples_per_step` in [step]"))
}
