//! Computes the samples of a step from the batch and the accumulation in the command, for scripts without a known loader.

use super::argument::Argument;
use super::knobs::KNOBS;
use super::plan::{Planner, Way};

impl Planner<'_> {
    /// Sets the samples of a step, if the adapter counts steps and no loader counts samples.
    pub(super) fn count_samples(&mut self) {
        let is_known = |way: &Way| match way {
            Way::Argument(_) => true,
            Way::Target(target) => target.starts_with("env."),
            Way::File(_) | Way::Config => false,
        };
        let mut all = self.plan.parameters.iter();
        let is_searched = all.any(|planned| planned.name == "batch_size" && is_known(&planned.way));
        if self.has_loader || !is_searched || self.found.preset.adapter.is_none() {
            return;
        }
        let batches = self.batches_of_a_step();
        self.plan.samples_per_step =
            Some(if batches > 1 { format!("batch_size * {batches}") } else { "batch_size".to_owned() });
    }

    /// Returns the number of batches that all ranks together accumulate in a step.
    fn batches_of_a_step(&self) -> i64 {
        let names = KNOBS.iter().find(|knob| knob.parameter == "grad_accumulation").map_or(&[][..], |knob| knob.names);
        let argument = self.argument(names).filter(|argument| argument.kind.takes_value());
        let said = |argument: &Argument| {
            let given = self.plan.words.clone().set(argument, "x").map(|given| given.value);
            given.or_else(|| argument.default.clone())?.trim().parse::<i64>().ok()
        };
        let accumulated = argument.as_ref().and_then(said).filter(|&count| count > 0).unwrap_or(1);
        let ranks = i64::try_from(self.found.command.ranks()).unwrap_or(1);
        if self.found.source.shares_accumulation { accumulated } else { accumulated.saturating_mul(ranks) }
    }
}
