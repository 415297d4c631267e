//! Whether a baseline that is stated is what the job does when nothing is set.

use std::num::NonZeroU32;

use super::TuneError;
use super::search::{OnEvent, Search};
use crate::model::{Config, Event, arrival};
use crate::probe::{Effort, Job};

/// Of a probe's time, this part is enough to hear the facts of a job.
const ONE_IN: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");

impl Search<'_, '_> {
    /// Runs the job as it is for a moment, and tells where the baseline that is stated says something else. Nothing of it is
    /// kept, and what the job does not tell, or a job that does not run so, is no difference.
    pub(super) fn check_stated(&mut self, baseline: &Config, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        let (as_it_is, stated) = (self.space.as_it_is(), self.space.settings(baseline));
        let nothing = self.space.settings(&as_it_is);
        let job = Job {
            number: 0,
            config: &as_it_is,
            settings: &nothing,
            limits: self.limits,
            effort: Effort::Screen { one_in: ONE_IN },
            rival: None,
            experiment: None,
        };
        on_event(Event::LookingAtJob);
        let outcome = self.run_undisturbed(&job, on_event)?;
        let Some(measurement) = outcome.partial_measurement() else { return Ok(()) };
        let used = arrival::used(self.space, &measurement.facts, &nothing);
        let differences: Vec<String> = used
            .iter()
            .filter(|(_, used)| !used.is_as_it_is())
            .filter_map(|(name, used)| Some((name, used, stated.get(name)?)))
            .filter(|(_, used, stated)| used != stated)
            .map(|(name, used, stated)| format!("`{name}` = {stated}, and the job as it is has {used}"))
            .collect();
        if !differences.is_empty() {
            on_event(Event::BaselineDiffers { differences: &differences });
        }
        Ok(())
    }
}
