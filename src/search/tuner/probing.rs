//! Begins probes and takes note of how they end.

use std::time::Instant;

use super::TuneError;
use super::begun::{Begun, Wanted};
use super::calibration::PART;
use super::health::Health;
use super::order::{Done, Order};
use super::search::{OnEvent, Search};
use super::slots::Ended;
use crate::model::{Event, Measurement, Outcome, Purpose, Trial};
use crate::probe::{Effort, Limits};
use crate::search::journal;
use crate::search::strategy::Proposal;

/// Half the interval width, as a share, at which a config is known well enough before its rounds.
const COARSE: f64 = 0.1;

impl Search<'_, '_> {
    /// Begins a probe in a free slot.
    pub(super) fn begin(&mut self, slot: usize, wanted: Wanted, on_event: OnEvent<'_>) {
        let Wanted { proposal, purpose, failed_in, takes_its_time, is_load } = wanted;
        let number = self.next_number();
        let settings = self.set_by(&proposal.config);
        let (searched, reason) = (self.history.count_searched(), proposal.reason.as_deref());
        let place = self.slots.slot(slot);
        let left = self.expected_left();
        if !is_load {
            on_event(Event::Started { number, purpose, settings: &settings, searched, reason, slot: place, left });
        }
        let is_compared = self.has_rounds() && self.compares_rates();
        let effort = match purpose {
            Purpose::Baseline | Purpose::Search if is_compared && !takes_its_time => Effort::Brief,
            Purpose::Baseline | Purpose::Search => Effort::Probe,
            Purpose::Round => Effort::Part { one_in: PART },
        };
        let mut limits = *self.limits;
        let keeps = is_compared && matches!(purpose, Purpose::Baseline | Purpose::Search);
        if keeps {
            // Rounds will tell how fast it is.
            limits.precision = limits.precision.map(|precision| precision.max(COARSE));
        }
        limits.probe_time = limits.probe_time.min(self.time_left());
        let precision = if takes_its_time { Some(f64::MIN_POSITIVE) } else { limits.precision };
        let order = Order {
            number,
            config: proposal.config.clone(),
            settings,
            limits: Limits { precision, ..limits },
            effort,
            experiment: None,
            keeps,
            is_after_disturbance: self.put_back.is_disturbed(),
        };
        self.slots.start(slot, order.clone());
        let began = Instant::now();
        self.begun[slot] =
            Some(Begun { order, purpose, proposal, began, waits_for_exchange: None, failed_in, is_load });
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
        self.make_room();
        let outcome = match done {
            Some(Done::Round(duelled)) => {
                let Some(under_way) = self.in_round[slot].take() else { return Ok(true) };
                return self.keep_round(slot, under_way, *duelled, on_event);
            }
            Some(Done::Probe(outcome)) => Some(*outcome),
            // Its slot is gone.
            None => {
                self.in_round[slot] = None;
                None
            }
        };
        let Some(mut begun) = self.begun[slot].take() else { return Ok(true) };
        self.so_far.remove(&begun.order.number);
        if begun.is_load {
            self.load_gpu_seconds +=
                begun.began.elapsed().as_secs_f64() * f64::from(self.gpus_of(self.slots.slot(slot)));
            return Ok(outcome != Some(Outcome::Interrupted));
        }
        let Some(outcome) = outcome else {
            self.elsewhere.push(Wanted::new(begun.proposal, begun.purpose));
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
        let outcome = self.checked(outcome, &begun.order.job());
        if outcome == Outcome::Interrupted {
            return Ok(false);
        }
        let outcome = match outcome {
            Outcome::Measured(measurement) if self.is_exchange_unknown(begun.purpose) => {
                if let Some(order) = self.without_exchange(&begun, &measurement) {
                    on_event(Event::Remark { text: "the same without communication, to see what that costs" });
                    self.slots.start(slot, order);
                    begun.waits_for_exchange = Some(measurement);
                    self.begun[slot] = Some(begun);
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
        let so_far = &mut self.so_far;
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

    /// Makes room for the state of slots that have joined.
    fn make_room(&mut self) {
        let (before, count) = (self.begun.len(), self.slots.count());
        if before < count {
            self.begun.resize_with(count, || None);
            self.in_round.resize_with(count, || None);
            self.health.add(count - before);
            // A single slot needed no comparison.
            self.is_calibrated &= before > 1 || self.is_fair;
        }
    }

    /// Keeps the outcome of a probe: as a trial, for later if it was disturbed, or for another slot if this slot may be sick.
    fn keep(&mut self, slot: usize, begun: Begun, outcome: Outcome, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        let Begun { order, purpose, proposal, began, failed_in, .. } = begun;
        let number = order.number;
        // A probe that the end of the search cut short says nothing about its config.
        let is_late = order.limits.probe_time < self.limits.probe_time && matches!(outcome, Outcome::TimedOut(_));
        if is_late && purpose != Purpose::Baseline {
            return Ok(());
        }
        if let Outcome::Disturbed(failure) = outcome {
            if self.budget.probes == 1 {
                // There is no other config to continue with.
                return Err(TuneError::Disturbed { reason: failure.reason });
            }
            on_event(Event::PutBack { number, reason: &failure.reason });
            return self.put_back.put(proposal, purpose, failure.reason);
        }
        if self.is_doubted(slot, &proposal, purpose, (failed_in, &outcome), on_event) {
            return Ok(());
        }
        let (reason, gain) = (proposal.reason.as_deref(), proposal.gain);
        let (elapsed, ended_at, place) = (began.elapsed(), journal::unix_time(), self.slots.slot(slot).cloned());
        let trial = Trial { number, purpose, config: proposal.config, outcome, elapsed, ended_at, slot: place };
        self.record(trial, (reason, gain), on_event)
    }

    /// Returns true if a failure does not count yet, because the slot may be sick.
    fn is_doubted(
        &mut self,
        slot: usize,
        proposal: &Proposal,
        purpose: Purpose,
        (failed_in, outcome): (Option<usize>, &Outcome),
        on_event: OnEvent<'_>,
    ) -> bool {
        if self.slots.open() < 2 && self.is_calibrated {
            return false;
        }
        // A config that was measured before does not fail by chance: the slot is sick, and the failure shows nothing new.
        if purpose == Purpose::Round && self.slots.slot(slot).is_some() && Health::blames(outcome) {
            self.health.fails_known(slot);
            let text = format!("{}: the baseline fails there", self.named(slot));
            on_event(Event::Remark { text: &text });
            return true;
        }
        let Some(sick) = failed_in else {
            let is_doubtful = self.health.is_doubtful(slot, outcome);
            if is_doubtful {
                let wanted = Wanted::new(proposal.clone(), purpose);
                self.elsewhere.push(Wanted { failed_in: Some(slot), ..wanted });
                let reason = outcome.failure().map_or("", |failure| failure.reason.as_str());
                let text =
                    format!("{}: probes fail in a row ({reason}); this config is tried elsewhere", self.named(slot));
                on_event(Event::Remark { text: &text });
            }
            return is_doubtful;
        };
        if self.health.elsewhere(sick, outcome) {
            self.slots.set_open([sick], false);
            let text = format!("{} is taken out: configs fail there that run elsewhere", self.named(sick));
            on_event(Event::Remark { text: &text });
            // The first failure in that slot was recorded as the config's.
            let first = self
                .history
                .trials()
                .iter()
                .rev()
                .find(|trial| trial.slot.as_ref() == self.slots.slot(sick) && trial.outcome.failure().is_some());
            if let Some(trial) = first {
                let wanted = Wanted::new(trial.config.clone().into(), trial.purpose);
                self.elsewhere.push(Wanted { failed_in: Some(sick), ..wanted });
            }
        }
        false
    }

    pub(super) fn named(&self, slot: usize) -> String {
        self.slots.slot(slot).map_or_else(|| "this slot".to_owned(), ToString::to_string)
    }
}
