//! Finds out whether slots may measure side by side. It measures a config alone, in all slots at once, and next to the config that
//! takes most of the machine.
//!
//! Jobs side by side may disturb each other. Identical jobs on one node slow each other down by cores, memory bandwidth, disks and
//! power. See Mohan et al., "Looking beyond GPUs for DNN scheduling on multi-tenant clusters", OSDI 2022. A config that wins side
//! by side need not win alone.

use super::TuneError;
use super::search::{BETWEEN_RUNS, OnEvent, Search};
use crate::model::{Config, Event, Purpose, Role, Space, Trial};
use crate::probe::stats::{self, NORMAL_95};
use crate::search::budget::StopReason;
use crate::search::study::WIDEST_TIE;

/// After this many comparisons without a tie, slots count as disturbing each other.
const ROUNDS: usize = 2;

/// How much slower than the first slot a slot may be. GPUs of one model differ by at most 22%, except broken ones (Sinha et al.,
/// "Not all GPUs are created equal", SC 2022).
const MOST_APART: f64 = 0.22;

/// The largest half-width of a rate's interval, as a share of the rate. A less certain rate cannot show a loss of a
/// tenth. A round number.
const MOST_UNCERTAIN: f64 = 0.25;

/// How fast a config runs next to other probes, as ratios of rates.
#[derive(Debug, Default)]
struct Compared {
    /// The rate in all slots at once, divided by the rate alone.
    together: Vec<f64>,
    /// The rate in the first slot while the rest run a hungry config, divided by the rate while all run the same config.
    beside: Vec<f64>,
}

impl Compared {
    fn is_unknown(&self) -> bool {
        self.together.is_empty()
    }

    fn in_words(&self, space: &Space, slots: usize, hungry: Option<&Config>) -> String {
        let hungry = hungry.filter(|_| !self.beside.is_empty()).map(|hungry| {
            let settings = space.settings(hungry).line();
            format!(", and {:.2}x of that rate with {settings} in the other slots", mean(&self.beside))
        });
        let hungry = hungry.unwrap_or_default();
        format!("in {slots} slots at once it is {:.2}x as fast as alone{hungry}", mean(&self.together))
    }
}

impl Search<'_, '_> {
    /// Returns true if slots must be compared now, and a measured config is there for that.
    pub(super) fn is_calibration_due(&self) -> bool {
        !self.side_by_side.is_known
            && self.slots.there() > 1
            && self.slots.is_idle()
            && self.config_to_compare().is_some()
            && !self.setup.is_stopped()
    }

    /// Compares a config alone with the same config in all slots at once. If all slots slow it down, tries half of
    /// them. Closes the slots that may not measure side by side. Returns the reason if the search ends here.
    pub(super) fn calibrate(&mut self, on_event: OnEvent<'_>) -> Result<Option<StopReason>, TuneError> {
        let Some(config) = self.config_to_compare() else { return Ok(None) };
        let all = self.slots.parts();
        if all.is_empty() {
            return Ok(None);
        }
        let hungry = self.hungriest(&config);
        let was_alone = self.was_just_run(&config);
        let Some(compared) = self.compare(&config, hungry.as_ref(), &all, was_alone, on_event)? else {
            return Ok(Some(StopReason::Interrupted));
        };
        let seen = compared.in_words(&self.setup.space, all.len(), hungry.as_ref());
        let count = all.len();
        let mut kept = if self.is_fair(&compared) { all.clone() } else { Vec::new() };
        let mut text = match (compared.is_unknown(), kept.is_empty()) {
            (true, _) => format!(
                "one probe at a time instead of {count}: the same config could not be measured well enough to compare"
            ),
            (_, false) => {
                format!("{count} slots measure side by side: the other slots do not slow a config down ({seen})")
            }
            (_, true) => format!("one probe at a time instead of {count}: the other slots slow a config down ({seen})"),
        };
        // Takes every second slot: a resource that neighbours share then serves one slot, and every machine keeps a slot.
        let half: Vec<usize> = all.iter().copied().step_by(2).collect();
        if kept.is_empty() && !compared.is_unknown() && half.len() > 1 {
            let tries = format!("{count} slots at once slow a config down ({seen}): tries half of them");
            on_event(Event::Remark { text: &tries });
            let Some(compared) = self.compare(&config, hungry.as_ref(), &half, false, on_event)? else {
                return Ok(Some(StopReason::Interrupted));
            };
            if !compared.is_unknown() {
                let also = compared.in_words(&self.setup.space, half.len(), hungry.as_ref());
                if self.is_fair(&compared) {
                    let some = half.len();
                    text = format!(
                        "{some} of {count} slots measure side by side: all of them slow a config down ({seen}), these do not ({also})"
                    );
                    kept = half;
                } else {
                    text = text.replace(&seen, &format!("{seen}; {also}"));
                }
            }
        }
        if self.slots.parts() != all && (self.slots.there() > 1 || self.slots.may_grow()) {
            // A slot was lost in between, so the remaining and new slots are compared again.
            self.probes.elsewhere.retain(|request| request.purpose != Purpose::Round);
            return Ok(None);
        }
        self.side_by_side.is_known = true;
        // A later slot adds to the load, so it takes part only if all slots do.
        self.side_by_side.is_fair = kept == all;
        if kept.is_empty() {
            self.slots.leave_the_first();
        } else {
            self.open_those_like_the_first(&config, &kept, on_event);
        }
        on_event(Event::Remark { text: &text });
        self.side_by_side.result = Some(text);
        Ok(None)
    }

    /// Measures a config alone, then in all `parts` at once, then in the first part with a hungry config in the rest. Repeats this
    /// once if the rates differ. Returns `None` if it was interrupted. With `was_alone`, the last trial already measured the config
    /// alone.
    fn compare(
        &mut self,
        config: &Config,
        hungry: Option<&Config>,
        parts: &[usize],
        was_alone: bool,
        on_event: OnEvent<'_>,
    ) -> Result<Option<Compared>, TuneError> {
        let mut compared = Compared::default();
        let home = self.slots.home();
        for round in 0..ROUNDS {
            let is_known = round == 0 && was_alone;
            if !is_known && !self.run_at_once(config, &[home], None, on_event)? {
                return Ok(None);
            }
            let Some(alone) = self.last_rate(config, home) else { break };
            if !self.run_at_once(config, parts, None, on_event)? {
                return Ok(None);
            }
            // Slots without GPUs may get unequal parts of a shared resource, so the mean of all slots counts. GPUs may
            // differ in speed, so with GPUs only the slot that ran alone counts.
            let first = self.last_rate(config, parts[0]);
            let has_own_gpu = self.slots.slot(home).is_some_and(|slot| !slot.gpus.is_empty());
            let counted = if has_own_gpu { &parts[..1] } else { parts };
            let rates: Option<Vec<f64>> = counted.iter().map(|&slot| self.last_rate(config, slot)).collect();
            let Some(rates) = rates else { break };
            compared.together.push(mean(&rates) / alone);
            if let (Some(hungry), Some(first)) = (hungry, first) {
                if !self.run_at_once(config, &parts[..1], Some((hungry, &parts[1..])), on_event)? {
                    return Ok(None);
                }
                compared.beside.push(self.last_rate(config, parts[0]).unwrap_or(0.0) / first);
            }
            if self.is_fair(&compared) {
                break;
            }
        }
        Ok(Some(compared))
    }

    fn is_fair(&self, compared: &Compared) -> bool {
        !compared.is_unknown() && self.is_a_tie(&compared.together) && self.is_a_tie(&compared.beside)
    }

    /// Opens the slots that are about as fast as the first, and closes the rest.
    fn open_those_like_the_first(&mut self, config: &Config, parts: &[usize], on_event: OnEvent<'_>) {
        let first = self.last_rate(config, parts[0]).unwrap_or(0.0);
        self.slots.leave_only(parts);
        for &slot in parts {
            let rate = self.last_rate(config, slot).unwrap_or(0.0);
            let is_like_it = rate >= first * (1.0 - MOST_APART);
            self.slots.set_open([slot], is_like_it);
            if !is_like_it {
                let (named, times) = (self.named(slot), rate / first);
                let text = format!("{named} is left out: the same config is {times:.2}x as fast there as in the first");
                on_event(Event::Remark { text: &text });
            }
        }
    }

    /// Returns true if the mean ratio is close enough to 1, or if there is no ratio.
    fn is_a_tie(&self, ratios: &[f64]) -> bool {
        ratios.is_empty() || mean(ratios) >= 1.0 - most_lost(ratios.len(), BETWEEN_RUNS)
    }

    /// Returns the baseline, or else the first config that was measured.
    fn config_to_compare(&self) -> Option<Config> {
        let baseline = self.setup.baseline().filter(|baseline| self.trials.measured(baseline).is_some());
        let is_measured = |trial: &&Trial| trial.outcome.measurement().is_some();
        let first = || self.trials.history.searched().find(is_measured).map(|trial| &trial.config);
        baseline.or_else(first).cloned()
    }

    /// Returns the config with the most workers and threads, and otherwise the settings of `config`; `None` if it is the same or
    /// settled.
    fn hungriest(&self, config: &Config) -> Option<Config> {
        let start = if config.is_as_it_is() { self.setup.space.first()? } else { config.clone() };
        let mut hungry = start.clone();
        for (at, parameter) in self.setup.space.parameters().iter().enumerate() {
            if matches!(parameter.role(), Some(Role::Workers | Role::Threads)) {
                let last = u32::try_from(parameter.len().saturating_sub(1)).unwrap_or(0);
                hungry = self.setup.space.with_level(&hungry, at, last).unwrap_or(hungry);
            }
        }
        (hungry != start && !self.trials.history.is_settled(&hungry)).then_some(hungry)
    }

    /// Returns true if the last trial of this run of the search was this config in the first slot that is not lost.
    fn was_just_run(&self, config: &Config) -> bool {
        let last = self.trials.history.trials().last();
        last.is_some_and(|trial| {
            trial.number >= self.trials.first_number
                && trial.config == *config
                && trial.slot.as_ref() == self.slots.slot(self.slots.home())
        })
    }

    /// Measures a config in some slots at once, with another config as load in other slots. Returns false if they were interrupted.
    fn run_at_once(
        &mut self,
        config: &Config,
        slots: &[usize],
        load: Option<(&Config, &[usize])>,
        on_event: OnEvent<'_>,
    ) -> Result<bool, TuneError> {
        let measured = slots.iter().map(|slot| (*slot, config, false));
        let loads = load.into_iter().flat_map(|(load, slots)| slots.iter().map(move |slot| (*slot, load, true)));
        for (slot, config, is_load) in measured.chain(loads) {
            let mut request = self.probe_of(config.clone().into(), Purpose::Round);
            request.is_load = is_load;
            // The probe uses its whole time even if it is precise earlier, so that probes that start together measure
            // together.
            request.limits.precision = Some(f64::MIN_POSITIVE);
            self.begin(slot, request, on_event);
        }
        self.finish_all(on_event)
    }

    /// Returns the rate of the last run of a config in a slot, unless it is too uncertain.
    fn last_rate(&self, config: &Config, slot: usize) -> Option<f64> {
        let slot = self.slots.slot(slot);
        let run = self.trials.history.of(config).filter(|trial| trial.slot.as_ref() == slot).last()?;
        let rate = run.outcome.measurement()?.throughput?;
        let is_clear = rate.relative_half_width().is_some_and(|half| half <= MOST_UNCERTAIN);
        (rate.value > 0.0 && is_clear).then_some(rate.value)
    }
}

/// Returns the largest slowdown, as a share, that counts as none: what chance explains after this many runs, but at
/// least half of [`WIDEST_TIE`] and at most [`WIDEST_TIE`].
fn most_lost(runs: usize, between_runs: f64) -> f64 {
    let by_chance = NORMAL_95 * between_runs * (2.0 / runs.max(1) as f64).sqrt();
    by_chance.clamp(WIDEST_TIE / 2.0, WIDEST_TIE)
}

fn mean(ratios: &[f64]) -> f64 {
    stats::mean(ratios).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_counts_as_none_if_chance_explains_it_within_the_limits_of_a_tie() {
        assert_eq!(most_lost(1, 0.001), 0.05);
        assert!((most_lost(1, 0.03) - 0.083).abs() < 0.001 && (most_lost(2, 0.03) - 0.059).abs() < 0.001);
        assert_eq!(most_lost(1, 0.2), 0.1);
    }
}
