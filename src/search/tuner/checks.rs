//! Checks a measured config: its settings had an effect, its samples are trained on and each only once, and its losses agree with
//! full precision. Also checks whether a stated baseline equals the unmodified job.
//!
//! A config that fails a check is rejected with the reason. The baseline is never rejected for its rate, since it runs today; the
//! reason is a remark then.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::TuneError;
use super::request::Request;
use super::search::{OnEvent, Search};
use crate::model::fact::{BY_SPEC, COUNTED_BY};
use crate::model::{
    Config, Event, Failure, Measurement, Memory, MemoryRole, Outcome, Parameter, Purpose, Role, Settings, Trial, Value,
    arrival,
};
use crate::probe::Effort;
use crate::search::journal::settings_of;
use crate::search::study::{Ranked, Study, TwoGains};

/// The part of a probe's time that is enough to learn the facts of a job: a round number.
const ONE_IN: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");

/// How many times more the rate may rise than the batch size: a round number. If a step takes the same time for any batch, the rate
/// rises as much as the batch. Other kernels for other sizes may gain a little more.
const MOST_GAIN: f64 = 1.25;

/// If other settings differ as well, batch and rate may rise alike by chance, unless the batch is this many times larger: a round
/// number.
const MUCH_LARGER: f64 = 4.0;

/// The difference of two step times, as a share, up to which they count as equal: a round number, twice the difference between two
/// processes of one config.
const SAME_STEP: f64 = 0.04;

/// The widest half interval of a ratio, as a share, that can show that two step times are equal: a round number.
const KNOWN: f64 = 0.1;

impl Search<'_, '_> {
    /// Runs the unmodified job for a moment, and reports where the stated baseline differs from it. Nothing is recorded. A setting
    /// that the job does not report counts as no difference. Nothing is reported if the unmodified job cannot run.
    pub(super) fn check_stated(&mut self, baseline: &Config, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        let (as_it_is, stated) = (self.setup.space.as_it_is(), self.setup.space.settings(baseline));
        let nothing = self.setup.space.settings(&as_it_is);
        on_event(Event::Remark { text: "runs the unmodified job, to compare the baseline with it" });
        let request = Request::new(as_it_is.into(), Purpose::Baseline, nothing.clone(), self.setup.limits);
        let outcome = self.slots.run(Request { effort: Effort::Part { one_in: ONE_IN }, ..request }, on_event)?;
        let Some(measurement) = outcome.measurement() else { return Ok(()) };
        let used = arrival::used(&self.setup.space, &measurement.facts, &nothing);
        let differences: Vec<String> = used
            .iter()
            .filter(|(_, used)| !used.is_as_it_is())
            .filter_map(|(name, used)| Some((name, used, stated.get(name)?)))
            .filter(|(_, used, stated)| used != stated)
            .map(|(name, used, stated)| format!("`{name}` = {stated}, but the unmodified job has {used}"))
            .collect();
        if !differences.is_empty() {
            let text = format!(
                "warning: the baseline differs from the unmodified job: {}. Fix [baseline], or remove it to use the \
                 unmodified job as baseline",
                differences.join("; ")
            );
            on_event(Event::Warning { text: &text });
        }
        Ok(())
    }

    /// Returns the outcome, or the failure that a check shows. Losses are compared only if some trial has them in full precision.
    pub(super) fn checked(&self, outcome: Outcome, request: &Request) -> Outcome {
        let Outcome::Measured(measurement) = outcome else { return outcome };
        if let Some(lack) = self.recovered(&measurement, request) {
            return lack;
        }
        let mismatch = arrival::mismatch(&self.setup.space, &request.settings, &measurement);
        if let Some(failure) = mismatch.map(Failure::new).or_else(|| self.implausible(&measurement, request)) {
            return Outcome::Rejected(failure);
        }
        self.with_judged_losses(measurement, &request.settings)
    }

    /// Checks the current winners: the gain by a larger batch, and the losses against full precision. Returns true if a winner
    /// failed, so that another config leads.
    pub(super) fn check_named(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        let implausible = self.implausible_gains();
        let mut has_failed = !implausible.is_empty();
        for trial in implausible {
            self.amend(trial, on_event)?;
        }
        has_failed |= self.check_losses(on_event)?;
        Ok(has_failed)
    }
}

/// Part of the reason to reject a config whose batch size provably had no effect.
const NO_EFFECT: &str = "has no effect: a step takes";

impl Search<'_, '_> {
    /// Returns the lack of memory of a config whose batch did not fit, if the script has caught it and trained with smaller
    /// batches.
    fn recovered(&self, measurement: &Measurement, request: &Request) -> Option<Outcome> {
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

    fn implausible(&self, measurement: &Measurement, request: &Request) -> Option<Failure> {
        let is_baseline = self.is_baseline(request);
        let flaw = || measurement.flaw().filter(|_| !is_baseline);
        let exhausted = || {
            let run = measurement.run_seconds(&self.setup.objective).filter(|_| !is_baseline)?;
            Some(format!("{}, before the end of the training", measurement.exhaustion(Some(run), false)?))
        };
        let no_effect = || self.no_effect(measurement, request.config(), &request.settings);
        flaw().or_else(exhausted).map(Failure::new).or_else(no_effect)
    }

    /// Rejects the configs that were measured with a parameter before it was found to have no effect: they differ from others only in
    /// that parameter.
    pub(super) fn reject_without_effect(&mut self, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        let trials = self.trials.history.trials();
        let found = |trial: &Arc<Trial>| {
            let failure = trial.outcome.failure().filter(|failure| failure.reason.contains(NO_EFFECT))?;
            Some((trial.number, failure.closes.first()?.clone(), trial.outcome.clone()))
        };
        // The last of them found it; an interrupted search may have rejected only some of the others.
        let last = trials.iter().filter_map(found).max_by_key(|(number, ..)| *number);
        let Some((number, name, outcome)) = last else { return Ok(()) };
        let sets = |trial: &&Arc<Trial>| {
            let set = self.setup.space.settings(&trial.config);
            trial.number < number
                && trial.outcome.measurement().is_some()
                && self.setup.baseline() != Some(&trial.config)
                && set.get(&name).is_some_and(|value| !value.is_as_it_is())
        };
        for trial in trials.iter().filter(sets).cloned().collect::<Vec<_>>() {
            self.amend(Trial { outcome: outcome.clone(), ..Trial::clone(&trial) }, on_event)?;
        }
        Ok(())
    }

    /// Returns rejected trials for the best configs whose gain cannot be right, or whose workers do not all deliver data.
    fn implausible_gains(&self) -> Vec<Trial> {
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
        let parameters = self.setup.space.parameters();
        let name = parameters[batch].name();
        let used_in =
            |entry: &Ranked| arrival::used(&self.setup.space, &entry.measurement.facts, &study.settings(&entry.config));
        let used = used_in(entry);
        let size = used.get(name)?.as_f64()?;
        // A printed rate, or a number in the spec, may follow from the option alone. On a GPU, a small step often takes the same
        // time for any batch, so there a printed rate counts.
        let (facts, machine) = (&entry.measurement.facts, &entry.measurement.machine);
        let is_printed = entry.measurement.timing.samples_per_step.is_none();
        let is_counted = facts.text(COUNTED_BY).map_or(!is_printed || !machine.gpus.is_empty(), |by| by != BY_SPEC);
        ranking.iter().filter(|other| other.config != entry.config).find_map(|other| {
            let others = used_in(other);
            let smaller = others.get(name)?.as_f64().filter(|smaller| *smaller < size)?;
            let is_pair =
                parameters.iter().all(|one| one.name() == name || used.get(one.name()) == others.get(one.name()));
            let gain = study.gain(entry, other)?;
            let more = size / smaller;
            if is_pair && gain.low.is_some_and(|least| least > more * MOST_GAIN) {
                return Some(format!(
                    "the rate rises {:.1} times from {name} = {smaller} to {size}: batches are skipped, or samples are \
                     counted wrong",
                    gain.value
                ));
            }
            let is_well_known = gain.relative_half_width().is_none_or(|half| half <= KNOWN);
            // A step may have a large constant part, so that its time hardly grows from one size to the next.
            let same = if more >= MUCH_LARGER { SAME_STEP } else { SAME_STEP / 2.0 };
            let takes_the_same = is_well_known && (more / gain.value - 1.0).abs() <= same;
            let takes_the_same = takes_the_same && (is_pair || more >= MUCH_LARGER);
            let grows = || {
                ranking.iter().any(|third| {
                    let larger = used_in(third).get(name).and_then(Value::as_f64).map(|larger| larger / smaller);
                    let time = |more: f64| Some(more / study.gain(third, other)?.value);
                    self.differ_only_in(batch, &third.config, &other.config)
                        && larger.filter(|more| *more > 1.0).and_then(time) > Some(1.0 + 2.0 * SAME_STEP)
                })
            };
            (takes_the_same && !is_counted && !grows()).then(|| {
                format!("a step takes the same time with {name} = {size} as with {smaller}: it seems to have no effect")
            })
        })
    }

    /// Returns the reason to reject a config if not all of its workers deliver data, and another config does the same with fewer
    /// workers.
    fn surplus(&self, entry: &Ranked, ranking: &[Ranked]) -> Option<String> {
        let (delivering, workers) = entry.measurement.surplus_workers()?;
        let is_workers = |parameter: &Parameter| parameter.role() == Some(Role::Workers);
        let at = self.setup.space.parameters().iter().position(is_workers)?;
        let enough = ranking.iter().find_map(|other| {
            let number = other.measurement.facts.number("loader.workers")?;
            let is_enough = delivering <= number && number < workers;
            (is_enough && self.differ_only_in(at, &other.config, &entry.config)).then_some(number)
        })?;
        Some(format!("{delivering} of {workers} workers deliver data: {enough} workers do the same"))
    }

    fn differ_only_in(&self, parameter: usize, one: &Config, other: &Config) -> bool {
        let same = |at: usize| at == parameter || one.level(at) == other.level(at);
        (0..self.setup.space.parameters().len()).all(same)
    }

    /// Returns the position of the parameter that sets the batch of a whole step.
    fn whole_batch(&self) -> Option<usize> {
        // A step may take as many micro-batches as make up the same batch.
        let is_whole = |parameter: &Parameter| parameter.is_batch_size() && !parameter.name().contains("micro");
        self.setup.space.parameters().iter().position(is_whole)
    }

    /// Returns why the batch size provably had no effect: it is different, but a step takes the same number of samples.
    ///
    /// This is a proof only for two configs that differ in nothing else that a step's samples could depend on. So both
    /// must have the same derived values, and the same settings except in parameters that are known to need no memory.
    fn no_effect(&self, measurement: &Measurement, config: &Config, set: &Settings) -> Option<Failure> {
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
            settings.get(name).is_some_and(|value| value != own && !value.is_as_it_is())
                && self.setup.space.derived().iter().all(|derived| is_derived_alike(derived.name()))
        };
        let samples_of = |trial: &Trial| trial.outcome.measurement().map(|run| run.timing.samples_per_step);
        let batch_of = |run: &Measurement| run.facts.number("loader.batch_size");
        let same_samples = |trial: &&Trial| {
            let other = trial.outcome.measurement();
            let both = other.and_then(batch_of).zip(batch_of(measurement));
            samples_of(trial) == Some(Some(samples)) && both.is_none_or(|(one, other)| one == other)
        };
        let other = self.trials.history.trials().iter().map(AsRef::as_ref).filter(same_samples).find(differs)?;
        let settings = settings_of(other, &self.setup.space);
        let value = settings.get(name)?;
        let reason = format!("`{name}` {NO_EFFECT} {samples} samples with {own} as with {value}");
        // The parameter is left out from now on if the baseline does without it, and if all configs have as many samples, more
        // than a batch: a dataset may have fewer samples than both batches.
        let is_optional = self.setup.baseline().is_some_and(|baseline| baseline.level(batch).is_none());
        let is_always =
            self.trials.history.trials().iter().filter_map(|trial| samples_of(trial)).all(|it| it == Some(samples));
        let pieces =
            f64::from(measurement.ranks.unwrap_or(1)) * measurement.facts.number("accumulation").unwrap_or(1.0);
        let is_less = |value: &Value| value.as_f64().is_some_and(|value| value * pieces < samples);
        let closes = is_optional && is_always && (is_less(own) || is_less(value));
        let closes = closes.then(|| name.to_owned()).into_iter().collect();
        Some(Failure { closes, ..Failure::new(reason) })
    }
}
