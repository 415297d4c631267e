//! Checks whether a stated baseline equals the unmodified job.

use std::num::NonZeroU32;

use super::TuneError;
use super::order::Order;
use super::search::{OnEvent, Search};
use crate::model::{Config, Event, arrival};
use crate::probe::{Effort, Job};

/// The part of a probe's time that is enough to learn the facts of a job: a round number.
const ONE_IN: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");

impl Search<'_, '_> {
    /// Runs the unmodified job for a moment, and reports where the stated baseline differs from it. Nothing is recorded. A setting
    /// that the job does not report counts as no difference, and so does a job that cannot run like this.
    pub(super) fn check_stated(&mut self, baseline: &Config, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        let (as_it_is, stated) = (self.space.as_it_is(), self.space.settings(baseline));
        let nothing = self.space.settings(&as_it_is);
        let job = Job {
            number: 0,
            config: &as_it_is,
            settings: &nothing,
            limits: self.limits,
            effort: Effort::Part { one_in: ONE_IN },
            experiment: None,
            keeps: false,
        };
        on_event(Event::LookingAtJob);
        let outcome = self.slots.run(Order::of(&job), on_event)?;
        let Some(measurement) = outcome.measurement() else { return Ok(()) };
        let used = arrival::used(self.space, &measurement.facts, &nothing);
        let differences: Vec<String> = used
            .iter()
            .filter(|(_, used)| !used.is_as_it_is())
            .filter_map(|(name, used)| Some((name, used, stated.get(name)?)))
            .filter(|(_, used, stated)| used != stated)
            .map(|(name, used, stated)| format!("`{name}` = {stated}, but the unmodified job has {used}"))
            .collect();
        if !differences.is_empty() {
            on_event(Event::BaselineDiffers { differences: &differences });
        }
        Ok(())
    }
}
