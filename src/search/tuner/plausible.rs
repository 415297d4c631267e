//! Checks if a measured rate can be right: its samples are trained on, and each only once.
//!
//! A config that fails a check is rejected with the reason. The baseline is never rejected, since it runs today; the reason is a
//! remark then.

use super::request::Request;
use super::search::Search;
use crate::model::fact::{BY_SPEC, COUNTED_BY};
use crate::model::{
    Config, Failure, Measurement, Memory, MemoryRole, Outcome, Parameter, Role, Settings, Trial, arrival,
};
use crate::search::journal::settings_of;
use crate::search::study::{Ranked, Study, TwoGains};

/// How many times more the rate may rise than the batch size: a round number. If a step takes the same time for any batch, the rate
/// rises as much as the batch. Other kernels for other sizes may gain a little more.
const MOST_GAIN: f64 = 1.25;

/// The difference of two step times, as a share, up to which they count as equal: a round number, twice the difference between two
/// processes of one config.
const SAME_STEP: f64 = 0.04;

/// The widest half interval of a ratio, as a share, that can show that two step times are equal: a round number.
const KNOWN: f64 = 0.1;

impl Search<'_, '_> {
    /// Returns the lack of memory of a config whose batch did not fit, if the script has caught it and trained with smaller batches.
    pub(super) fn recovered(&self, measurement: &Measurement, request: &Request) -> Option<Outcome> {
        let reason = measurement.recovery().filter(|_| !self.is_baseline(request))?;
        let is_set = |parameter: &&Parameter| {
            let set = request.settings.get(parameter.name());
            parameter.is_batch_size() && set.is_some_and(|value| !value.is_as_it_is())
        };
        self.setup.space.parameters().iter().find(is_set)?;
        let is_host = measurement.facts.text("device") == Some("cpu");
        let memory = if is_host { Memory::Host } else { Memory::Device };
        Some(Outcome::OutOfMemory { memory, failure: Failure::new(reason) })
    }

    fn is_baseline(&self, request: &Request) -> bool {
        self.setup.baseline() == Some(request.config()) || request.config().is_as_it_is()
    }

    /// Returns why a measurement cannot be right.
    pub(super) fn implausible(&self, measurement: &Measurement, request: &Request) -> Option<String> {
        let is_baseline = self.is_baseline(request);
        let flaw = || measurement.flaw().filter(|_| !is_baseline);
        let exhausted = || {
            let run = measurement.run_seconds(&self.setup.objective).filter(|_| !is_baseline)?;
            Some(format!("{}, before the end of the training", measurement.exhaustion(Some(run), false)?))
        };
        flaw().or_else(exhausted).or_else(|| self.no_effect(measurement, request.config(), &request.settings))
    }

    /// Returns the trials of configs whose gain cannot be right, or with workers that deliver nothing, as rejected.
    /// Only the best configs may be named.
    pub(super) fn implausible_gains(&self) -> Vec<Trial> {
        /// A round number: a search of thousands of configs must not compare all pairs.
        const MOST: usize = 32;
        let (batch, study) = (self.whole_batch(), self.study());
        let ranking = study.ranking();
        let rejected = |entry: &Ranked| {
            let gain = || self.implausible_gain(batch?, entry, &study, &ranking);
            let apart = || Some(study.two_gains(entry).filter(TwoGains::disagree_in_sign)?.words());
            let reason = self.surplus(entry, &ranking).or_else(gain).or_else(apart)?;
            let outcome = Outcome::Rejected(Failure::new(reason));
            let trial = self.trials.history.of(&entry.config).find(|trial| trial.outcome.measurement().is_some())?;
            Some(Trial { outcome, ..trial.clone() })
        };
        let best = ranking.iter().filter(|entry| self.setup.baseline() != Some(&entry.config)).take(MOST);
        best.filter_map(rejected).collect()
    }

    /// Returns why the gain of a config by a larger batch cannot be right, compared with configs that differ only in the batch.
    fn implausible_gain(&self, batch: usize, entry: &Ranked, study: &Study, ranking: &[Ranked]) -> Option<String> {
        let name = self.setup.space.parameters()[batch].name();
        let size_of = |entry: &Ranked| {
            let settings = arrival::used(&self.setup.space, &entry.measurement.facts, &study.settings(&entry.config));
            settings.get(name)?.as_f64()
        };
        let size = size_of(entry)?;
        let is_counted = entry.measurement.facts.text(COUNTED_BY) != Some(BY_SPEC);
        let is_pair = |other: &&Ranked| {
            let same = |at: usize| at == batch || other.config.level(at) == entry.config.level(at);
            other.config != entry.config && (0..self.setup.space.parameters().len()).all(same)
        };
        ranking.iter().filter(is_pair).find_map(|other| {
            let smaller = size_of(other).filter(|smaller| *smaller < size)?;
            let gain = study.gain(entry, other)?;
            let more = size / smaller;
            if gain.low.is_some_and(|least| least > more * MOST_GAIN) {
                return Some(format!(
                    "the rate rises {:.1} times from {name} = {smaller} to {size}: batches are skipped, or samples are \
                     counted wrong",
                    gain.value
                ));
            }
            let is_well_known = gain.relative_half_width().is_none_or(|half| half <= KNOWN);
            let takes_the_same = is_well_known && (more / gain.value - 1.0).abs() <= SAME_STEP;
            (takes_the_same && !is_counted).then(|| {
                format!("a step takes the same time with {name} = {size} as with {smaller}: it seems to have no effect")
            })
        })
    }

    /// Returns how many workers deliver data, if that is fewer than a config has, and another config does the same with fewer.
    fn surplus(&self, entry: &Ranked, ranking: &[Ranked]) -> Option<String> {
        let (delivering, workers) = entry.measurement.surplus_workers()?;
        let is_workers = |parameter: &Parameter| parameter.role() == Some(Role::Workers);
        let at = self.setup.space.parameters().iter().position(is_workers)?;
        let other = ranking.iter().find(|other| {
            let same = |place: usize| place == at || other.config.level(place) == entry.config.level(place);
            let number = other.measurement.facts.number("loader.workers");
            let is_enough = number.is_some_and(|number| delivering <= number && number < workers);
            is_enough && (0..self.setup.space.parameters().len()).all(same)
        })?;
        let enough = other.measurement.facts.number("loader.workers")?;
        Some(format!("{delivering} of {workers} workers deliver data: {enough} workers do the same"))
    }

    /// Returns the position of the parameter that sets the batch of a whole step.
    fn whole_batch(&self) -> Option<usize> {
        // A step may take as many micro-batches as make up the same batch.
        let is_whole = |parameter: &Parameter| parameter.is_batch_size() && !parameter.name().contains("micro");
        self.setup.space.parameters().iter().position(is_whole)
    }

    /// Returns why a setting provably had no effect: the batch size is different, but a step takes the same number of
    /// samples.
    ///
    /// This is a proof only for two configs that differ in nothing else that a step's samples could depend on. So both
    /// must have the same derived values, and the same settings except in parameters that are known to need no memory.
    fn no_effect(&self, measurement: &Measurement, config: &Config, set: &Settings) -> Option<String> {
        let samples = measurement.timing.samples_per_step?;
        let parameters = self.setup.space.parameters();
        let batch = self.whole_batch()?;
        let name = parameters[batch].name();
        let own = set.get(name)?;
        let matters = |at: usize| at != batch && parameters[at].memory_role() != MemoryRole::Same;
        let matter: Vec<usize> = (0..parameters.len()).filter(|at| matters(*at)).collect();
        let differs = |trial: &&Trial| {
            let same_batch = trial.config.level(batch) == config.level(batch);
            if same_batch && !trial.config.is_as_it_is() && !config.is_as_it_is() {
                return false;
            }
            if matter.iter().any(|at| trial.config.level(*at) != config.level(*at)) {
                return false;
            }
            let settings = settings_of(trial, &self.setup.space);
            let is_derived_alike = |name: &str| settings.get(name) == set.get(name);
            // The settings that an unmodified job reports count as its settings.
            settings.get(name).is_some_and(|value| value != own)
                && self.setup.space.derived().iter().all(|derived| is_derived_alike(derived.name()))
        };
        let same_samples = |trial: &&Trial| {
            trial.outcome.measurement().and_then(|other| other.timing.samples_per_step) == Some(samples)
        };
        let other = self.trials.history.trials().iter().map(AsRef::as_ref).filter(same_samples).find(differs)?;
        let value = settings_of(other, &self.setup.space).get(name).map(ToString::to_string).unwrap_or_default();
        Some(format!("`{name}` has no effect: a step takes {samples} samples with {own} as with {value}"))
    }
}
