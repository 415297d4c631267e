//! Records a few steps of the baseline and of the best config with the framework's profiler, in runs after all measurements.

use std::time::Duration;

use super::TuneError;
use super::request::Request;
use super::search::{OnEvent, Search};
use crate::model::fact::{TRACE, TRACE_ERROR, TRACE_FILE, TRACE_STEPS};
use crate::model::{Config, Event, Outcome, Purpose, Trial};
use crate::probe::{Effort, Experiment, Limits, Mode};

/// The share of the search so far that both runs may take. Otherwise nothing is recorded. A round number.
const SHARE: f64 = 0.05;

/// The steps before and in a recording (`_hook/tracing.py`), and the seconds to write and read it. Both are rounded up.
const STEPS: f64 = 16.0;
const WRITING: f64 = 3.0;

/// The fact of an adapter's hook that trains.
const DEVICE: &str = "device";

impl Search<'_, '_> {
    /// Records steps of the baseline and of the best config, if there is time.
    pub(super) fn take_traces(&mut self, on_event: OnEvent<'_>) -> Result<(), TuneError> {
        let needed = self.time_for_traces();
        if needed.is_zero() || needed > self.time_left() {
            return Ok(());
        }
        for trial in self.untraced() {
            if self.setup.is_stopped() {
                break;
            }
            let request = self.trace_of(&trial);
            let Outcome::Measured(run) = self.slots.run(request, on_event)? else { break };
            let Outcome::Measured(mut measurement) = trial.outcome.clone() else { break };
            let facts = run.facts.iter().filter(|(name, _)| name.starts_with(TRACE));
            facts.for_each(|(name, fact)| measurement.facts.insert(0, name, fact.clone()));
            let number = trial.number;
            let text = match (run.facts.text(TRACE_FILE), run.facts.text(TRACE_ERROR)) {
                (_, Some(error)) => format!("no steps of #{number} were recorded: {error}"),
                (Some(file), None) => format!("a few steps of #{number} were recorded: {file}"),
                (None, None) => format!("a few steps of #{number} were recorded"),
            };
            on_event(Event::Remark { text: &text });
            self.amend(Trial { outcome: Outcome::Measured(measurement), ..trial }, on_event)?;
        }
        Ok(())
    }

    /// Returns the time to reserve for these runs; zero if they would take too large a share of the search.
    pub(super) fn time_for_traces(&self) -> Duration {
        let start = self.trials.time_to_start().as_secs_f64();
        let step = |trial: &Trial| trial.outcome.measurement().and_then(|run| run.timing.step_seconds);
        let each = |trial: &Trial| start + STEPS * step(trial).unwrap_or(0.0) + WRITING;
        let needed: f64 = self.untraced().iter().map(each).sum();
        let most = self.clock.elapsed().as_secs_f64() * SHARE;
        Duration::try_from_secs_f64(if needed > most { 0.0 } else { needed }).unwrap_or_default()
    }

    /// Returns a trial of the baseline and of the best config, as far as a hook trained and no steps were recorded.
    fn untraced(&self) -> Vec<Trial> {
        let best = self.study().best().map(|best| best.winner.config);
        let Some(best) = best else { return Vec::new() };
        let baseline = self.setup.baseline().filter(|baseline| **baseline != best).cloned();
        baseline.into_iter().chain([best]).filter_map(|config| self.untraced_trial(&config)).collect()
    }

    fn untraced_trial(&self, config: &Config) -> Option<Trial> {
        let measured =
            || self.trials.history.of(config).filter_map(|trial| Some((trial, trial.outcome.measurement()?)));
        let has = |name: &str| measured().any(|(_, run)| run.facts.get(name).is_some());
        if has(TRACE_STEPS) || has(TRACE_ERROR) || !has(DEVICE) {
            return None;
        }
        measured().map(|(trial, _)| trial).min_by_key(|trial| trial.purpose.is_repeated()).cloned()
    }

    fn trace_of(&self, trial: &Trial) -> Request {
        let request = self.request(trial.config.clone().into(), Purpose::Baseline);
        let limits = Limits { probe_time: request.limits.probe_time.min(self.time_left()), ..request.limits };
        let experiment = Some(Experiment::new(Mode::Trace));
        Request { number: trial.number, limits, effort: Effort::Brief, experiment, ..request }
    }
}
