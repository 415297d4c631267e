//! Begins probes and records how they end.

use std::time::{Duration, Instant};

use super::TuneError;
use super::probes::{Health, UnderWay};
use super::request::{Done, Request, Work};
use super::search::{OnEvent, Search};
use super::slots::Ended;
use crate::diagnosis;
use crate::model::{Event, Measurement, Outcome, Purpose, Slot, Trial};
use crate::search::journal;
use crate::search::strategy::Proposal;

impl Search<'_, '_> {
    pub(super) fn begin(&mut self, slot: usize, request: Request, on_event: OnEvent<'_>) {
        if !request.is_load {
            on_event(Event::Started {
                number: request.number,
                purpose: request.purpose,
                settings: &request.settings,
                searched: self.trials.history.count_searched(),
                reason: request.proposal.reason.as_deref(),
                slot: self.slots.slot(slot),
                left: self.expected_left(),
            });
        }
        self.slots.start(slot, Work::Probe(Box::new(request.clone())));
        self.probes.begun[slot] = Some(UnderWay { request, began: Instant::now(), waits_for_exchange: None });
    }

    /// Waits until nothing runs, and records the results. Returns false if a probe was interrupted.
    pub(super) fn finish_all(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        let mut goes_on = true;
        while !self.slots.is_idle() {
            goes_on &= self.finish_next(on_event)?;
        }
        Ok(goes_on)
    }

    /// Waits until a probe is over, and records it. Returns false if it was interrupted, which leaves no trial.
    pub(super) fn finish_next(&mut self, on_event: OnEvent<'_>) -> Result<bool, TuneError> {
        let Ended { slot, done } = self.next_ended(on_event)?;
        let before = self.probes.make_room(self.slots.count());
        // A search with a single slot never compared slots. If a slot joins it, a comparison is due, unless the slots
        // were stated not to disturb each other.
        self.side_by_side.is_known &= before == self.slots.count() || before > 1 || self.side_by_side.is_fair;
        let outcome = match done {
            Some(Done::Round(duelled)) => {
                let Some(under_way) = self.probes.in_round[slot].take() else { return Ok(true) };
                return self.keep_round(slot, under_way, *duelled, on_event);
            }
            Some(Done::Probe(outcome)) => Some(*outcome),
            // The slot joined or is gone. The probe of a lost slot runs again in another slot.
            None => {
                self.probes.in_round[slot] = None;
                None
            }
        };
        let Some(mut begun) = self.probes.begun[slot].take() else { return Ok(true) };
        self.probes.so_far.remove(&begun.request.number);
        if begun.request.is_load {
            let gpus = Slot::count_gpus(self.slots.slot(slot), self.setup.whole_gpus);
            self.clock.load_gpu_seconds += begun.began.elapsed().as_secs_f64() * f64::from(gpus);
            return Ok(outcome != Some(Outcome::Interrupted));
        }
        let Some(outcome) = outcome else {
            self.probes.elsewhere.push(Request { failed_in: None, ..begun.request });
            return Ok(true);
        };
        if let Some(measurement) = begun.waits_for_exchange.take() {
            if outcome == Outcome::Interrupted {
                return Ok(false);
            }
            let measurement = self.with_exchange(measurement, Some(outcome), on_event);
            self.keep(slot, begun, Outcome::Measured(measurement), on_event)?;
            return Ok(true);
        }
        let outcome = self.checked(outcome, &begun.request);
        if outcome == Outcome::Interrupted {
            return Ok(false);
        }
        let outcome = match outcome {
            Outcome::Measured(measurement) if self.is_exchange_unknown(begun.request.purpose) => {
                if let Some(request) = self.without_exchange(&begun.request, &measurement) {
                    on_event(Event::Remark { text: "the same without communication, to see what that costs" });
                    self.slots.start(slot, Work::Probe(Box::new(request)));
                    begun.waits_for_exchange = Some(measurement);
                    self.probes.begun[slot] = Some(begun);
                    return Ok(true);
                }
                Outcome::Measured(self.with_exchange(measurement, None, on_event))
            }
            outcome => outcome,
        };
        self.keep(slot, begun, outcome, on_event)?;
        Ok(true)
    }

    /// Waits until a probe or a round is over, and stores the readings of running probes.
    fn next_ended(&mut self, on_event: OnEvent<'_>) -> Result<Ended, TuneError> {
        let so_far = &mut self.probes.so_far;
        Ok(self.slots.next(&mut |event| {
            if let Event::Progress { number, progress } = &event
                && progress.throughput.is_some()
            {
                let (throughput, unit) = (progress.throughput, progress.unit.clone());
                so_far.insert(*number, Measurement { throughput, unit, ..Measurement::default() });
            }
            on_event(event);
        })?)
    }

    /// Keeps the outcome of a probe: as a trial, for later if it was disturbed, or for another slot if this slot may be sick.
    fn keep(
        &mut self,
        slot: usize,
        begun: UnderWay,
        mut outcome: Outcome,
        on_event: OnEvent<'_>,
    ) -> Result<(), TuneError> {
        let UnderWay { request, began, .. } = begun;
        let is_hurried = request.limits.probe_time < self.setup.limits.probe_time;
        if let Outcome::TimedOut(failure) = &mut outcome
            && is_hurried
            && request.purpose != Purpose::Baseline
        {
            if request.limits.probe_time >= request.left {
                // A probe that the end of the search cut short says nothing about its config.
                return Ok(());
            }
            failure.reason += ", half of the time left or more";
            return self.record(
                self.trial(slot, &request, outcome, began.elapsed()),
                Some(&request.proposal),
                on_event,
            );
        }
        if let Outcome::Disturbed(failure) = outcome {
            if self.setup.budget.probes == 1 {
                // There is no other config to continue with.
                return Err(TuneError::Disturbed(failure.reason));
            }
            on_event(Event::PutBack { number: request.number, reason: &failure.reason });
            return self.probes.put_back.put(request, failure.reason);
        }
        if self.is_doubted(slot, &request, &outcome, on_event) {
            return Ok(());
        }
        self.record(self.trial(slot, &request, outcome, began.elapsed()), Some(&request.proposal), on_event)
    }

    /// Records a measurement of the unmodified job before the search as the baseline's.
    pub(super) fn keep_baseline(
        &mut self,
        (measurement, elapsed): (Measurement, Duration),
        on_event: OnEvent<'_>,
    ) -> Result<(), TuneError> {
        let Some(baseline) = self.setup.baseline().cloned() else { return Ok(()) };
        let request = self.probe_of(baseline.into(), Purpose::Baseline);
        let outcome = self.checked(Outcome::Measured(measurement), &request);
        if outcome.measurement().is_none() {
            return Ok(());
        }
        let trial = self.trial(self.slots.home(), &request, outcome, elapsed);
        self.record(trial, Some(&request.proposal), on_event)
    }

    pub(super) fn trial(&self, slot: usize, request: &Request, outcome: Outcome, elapsed: Duration) -> Trial {
        let trial = Trial::new(request.number, request.purpose, request.config().clone(), outcome);
        Trial { elapsed, ended_at: journal::unix_time(), slot: self.slots.slot(slot).cloned(), ..trial }
    }

    /// Returns true if a failure does not count yet, because the slot may be sick. Also queues its config for another
    /// slot, and closes a slot that is found to be sick.
    fn is_doubted(&mut self, slot: usize, request: &Request, outcome: &Outcome, on_event: OnEvent<'_>) -> bool {
        if self.slots.open() < 2 && self.side_by_side.is_known {
            return false;
        }
        // A probe of a round repeats a config that ran before. If it fails, the slot is sick, and the config is not
        // retried.
        if request.purpose == Purpose::Round && self.slots.slot(slot).is_some() && Health::blames(outcome) {
            self.probes.health.fails_known(slot);
            on_event(Event::Remark { text: &format!("{}: the baseline fails there", self.named(slot)) });
            return true;
        }
        let Some(sick) = request.failed_in else {
            let is_doubtful = self.probes.health.is_doubtful(slot, outcome);
            if is_doubtful {
                self.probes.elsewhere.push(Request { failed_in: Some(slot), ..request.clone() });
                let reason = outcome.failure().map_or("", |failure| failure.reason.as_str());
                let slot = self.named(slot);
                let text = format!("{slot}: probes fail in a row ({reason}); this config is tried elsewhere");
                on_event(Event::Remark { text: &text });
            }
            return is_doubtful;
        };
        if self.probes.health.elsewhere(sick, outcome) {
            self.slots.set_open([sick], false);
            let text = format!("{} is taken out: configs fail there that run elsewhere", self.named(sick));
            on_event(Event::Remark { text: &text });
            // The first of the failures in a row was recorded as the failure of its config, so retry that config
            // elsewhere.
            let (place, mut last) = (self.slots.slot(sick), self.trials.history.trials().iter().rev());
            let first = last.find(|trial| trial.slot.as_ref() == place && trial.outcome.failure().is_some());
            if let Some(trial) = first {
                let request = self.probe_of(trial.config.clone().into(), trial.purpose);
                self.probes.elsewhere.push(Request { failed_in: Some(sick), ..request });
            }
        }
        false
    }

    pub(super) fn named(&self, slot: usize) -> String {
        self.slots.slot(slot).map_or_else(|| "this slot".to_owned(), ToString::to_string)
    }

    /// Keeps a trial that was not disturbed, with the proposal that led to it.
    pub(super) fn record(
        &mut self,
        trial: Trial,
        proposal: Option<&Proposal>,
        on_event: OnEvent<'_>,
    ) -> Result<(), TuneError> {
        let (space, objective) = (&self.setup.space, &self.setup.objective);
        self.probes.put_back.is_undisturbed(&trial.config);
        if let Some(journal) = &mut self.trials.journal {
            let reason = proposal.and_then(|proposal| proposal.reason.as_deref());
            journal.record(&trial, space, reason, proposal.and_then(|proposal| proposal.gain))?;
        }
        let judgement = trial.outcome.measurement().map(|measurement| objective.judge(measurement));
        let is_best = !trial.purpose.is_repeated() && self.trials.is_best(&trial, objective);
        let shown = if trial.config.is_as_it_is() {
            journal::settings_of(&trial, space)
        } else {
            self.trials.set_by(&trial.config, space)
        };
        on_event(Event::Finished { trial: &trial, settings: &shown, judgement: judgement.as_ref(), is_best });
        if let Some(measurement) = trial.outcome.measurement().filter(|_| trial.purpose == Purpose::Baseline) {
            let warnings = measurement.warnings(measurement.run_seconds(objective), false);
            let warnings = warnings.into_iter().map(|flaw| format!("warning: {flaw}"));
            for text in diagnosis::out_of_reach(space, measurement).into_iter().chain(warnings) {
                on_event(Event::Remark { text: &text });
            }
        }
        self.trials.history.push(trial);
        self.reject_without_effect(on_event)
    }

    pub(super) fn amend(&mut self, trial: Trial, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        if let Some(journal) = &mut self.trials.journal {
            journal.record(&trial, &self.setup.space, None, None)?;
        }
        on_event(Event::Amended { trial: &trial, settings: &self.trials.set_by(&trial.config, &self.setup.space) });
        self.trials.amend(trial);
        Ok(())
    }
}
