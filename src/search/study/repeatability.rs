//! How far runs of one config are apart, as the trials of a search show it.

use serde::{Deserialize, Serialize};

use super::{Place, Ranked, Scale, Study, TAIL};
use crate::model::{Estimate, Objective, Trial};
use crate::probe::stats::{self, NORMAL_95};
use crate::search::noise::{NoisePrior, Run, RunNoise, Uncertain};

/// How far runs of one config are apart when each is started anew.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Repeatability {
    /// The standard deviation between runs, as a share of their mean, beyond what the intervals of the runs explain.
    pub between_runs: f64,
    /// The repetitions that show it. Where there are few, what is known of other jobs counts as two more.
    pub repetitions: usize,
    /// Half the width, as a share, of the 95 % interval that a run falls into, seen from another that was measured without
    /// any error of its own.
    pub again: f64,
}

impl Study {
    /// Returns the standard deviation between runs that the repetitions alone show, as a share, and how many there are; `None`
    /// where nothing was repeated.
    pub fn shown_between_runs(&self) -> Option<(f64, usize)> {
        let noise = noise_of(&self.ranked_by(&self.objective), NoisePrior::NONE);
        Some((noise.deviation()?, noise.repetitions())).filter(|(_, repetitions)| *repetitions > 0)
    }

    /// Returns how far runs are apart; `None` where the objective is no rate, or nothing was measured.
    pub fn repeatability(&self) -> Option<Repeatability> {
        let ranked = self.ranked_by(&self.objective);
        let noise = noise_of(&ranked, self.noise_prior);
        let is_rate = ranked.iter().any(|entry| entry.scale == Scale::Ratio);
        let exact = Run::alone(0.0, 0.0, None);
        let again = noise.again(&[exact])?.half_width(TAIL).exp_m1();
        let (between_runs, repetitions) = (noise.deviation()?, noise.repetitions());
        is_rate.then_some(Repeatability { between_runs, repetitions, again })
    }

    /// Returns what tells of each trial where a run again falls.
    pub(crate) fn again(&self) -> Again<'_> {
        let ranked = self.ranked_by(&self.objective);
        let scale = ranked.first().map_or(Scale::Difference, |entry| entry.scale);
        Again { objective: &self.objective, noise: noise_of(&ranked, self.noise_prior), scale }
    }
}

/// Where another run of a trial's config falls, seen from that trial alone.
pub(crate) struct Again<'s> {
    objective: &'s Objective,
    noise: RunNoise,
    scale: Scale,
}

impl Again<'_> {
    /// Returns the objective's metric with the interval that holds 95 of 100 runs. `None` for a trial that was not measured in
    /// full, where nothing tells how far runs differ, and for a number that has no place on the scale of those that can win.
    pub(crate) fn of(&self, trial: &Trial) -> Option<Estimate> {
        let estimate = self.objective.estimate(trial.outcome.measurement()?)?;
        let run = self.scale.run(&estimate, &Place { round: None, in_turn: None });
        run.value.is_finite().then_some(self.scale.around(estimate.value, self.noise.again(&[run])?))
    }
}

impl Ranked {
    /// Returns the level of the config on the study's scale.
    pub(super) fn level(&self, noise: &RunNoise) -> f64 {
        let mean = || stats::mean(&self.runs.iter().map(|run| run.value).collect::<Vec<f64>>()).unwrap_or(0.0);
        noise.level(&self.runs).map_or_else(mean, |level| level.value)
    }

    /// Returns the mean over its trials, with the interval that another run falls into.
    pub(super) fn again(&self, noise: &RunNoise) -> Estimate {
        let Some(again) = noise.again(&self.runs) else { return self.estimate };
        // The number of a single run stays what it is, to the last digit.
        let middle = if self.values.len() == 1 { self.estimate.value } else { self.scale.value(again.value) };
        self.scale.around(middle, again)
    }

    /// Puts the trials on a scale, each with the error from its interval.
    pub(super) fn place(&mut self, scale: Scale) {
        self.runs = self.values.iter().zip(&self.places).map(|(estimate, place)| scale.run(estimate, place)).collect();
        self.scale = scale;
        let precision = |estimate: &Estimate| estimate.relative_half_width().map(|half| (half * half).recip());
        let total: Option<f64> = self.values.iter().map(precision).sum();
        self.within_runs = total.map(|total| total.sqrt().recip());
    }
}

impl Scale {
    /// Returns a trial's run on this scale, with the error from its interval.
    fn run(self, estimate: &Estimate, place: &Place) -> Run {
        let error = match estimate.relative_half_width().filter(|half| half.is_finite()) {
            Some(half) if self == Self::Ratio => half / NORMAL_95,
            Some(half) => half * estimate.value.abs() / NORMAL_95,
            None => 0.0,
        };
        let alone = Run::alone(self.point(estimate.value), error, place.round);
        let beside = place.in_turn.filter(|_| self == Self::Ratio);
        Run { beside: beside.unwrap_or(alone.beside), ..alone }
    }

    /// Returns a number with the 95 % interval around a point that stands for it.
    fn around(self, number: f64, point: Uncertain) -> Estimate {
        let half = point.half_width(TAIL);
        let (low, high) = (self.value(point.value - half), self.value(point.value + half));
        // Rounding must not put the number outside of its own interval.
        Estimate::interval(number, low.min(number), high.max(number))
    }
}

/// Returns what the runs of some configs say about noise.
pub(super) fn noise_of(ranked: &[Ranked], of_rates: NoisePrior) -> RunNoise {
    let is_rate = |entry: &Ranked| entry.scale == Scale::Ratio && entry.values.iter().any(|value| value.low.is_some());
    let prior = prior_of(ranked.iter().any(is_rate), of_rates);
    RunNoise::of(ranked.iter().map(|entry| entry.runs.as_slice()), prior)
}

/// Where a number has an interval, it is a rate of time, and what is known of such rates counts, too; of other numbers
/// nothing is known but what repetitions show.
pub(super) fn prior_of(is_rate: bool, of_rates: NoisePrior) -> NoisePrior {
    if is_rate { of_rates } else { NoisePrior::NONE }
}
