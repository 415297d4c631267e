//! The time of the whole training: its steps, and what comes between its epochs.
//!
//! A rate between the ends of epochs says little if evaluation or the restart of a loader takes half of the time. If the end of an
//! epoch was measured for the baseline, all rates become rates over whole epochs. A config without a measured end gets the end of
//! the baseline: evaluation and checkpoints rarely depend on the settings. Evaluations between steps are treated alike.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Best, Study};
use crate::model::fact::LEFT_TRAINING;
use crate::model::quantity::show_seconds;
use crate::model::{
    Config, EVALUATION, EpochEnd, Estimate, HANDED_OUT, History, Measurement, Outcome, RunLength, SAMPLES_PER_SECOND,
    Timing, Trial,
};

/// The assumed length of a training with unknown length and without epochs.
const A_MILLION: RunLength = RunLength::Samples(1e6);

/// The time of the whole training, with the baseline and with the winner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WholeRun {
    /// How long the training is, with the baseline.
    pub length: RunLength,
    /// The number of steps in which the winner trains on as many samples. Absent if the length is not in steps, or the number is
    /// the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_steps: Option<f64>,
    /// The option of the script that takes the number of steps, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_option: Option<String>,
    /// Its time with the baseline, in seconds.
    pub baseline_s: f64,
    /// Its time with the winner, in seconds, with the interval of the speedup.
    pub best_s: Estimate,
    /// How many times faster the steps alone are. Absent if nothing between the steps was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_speedup: Option<f64>,
    /// The share of the time that the ends of epochs, and evaluations between steps, take with the winner. Absent if neither was
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_ends_share: Option<f64>,
    /// The share of the time that evaluation takes with the winner, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation_share: Option<f64>,
    /// How long, and where, the script did other work than training in a probe, if nothing between the steps was measured. The times
    /// exclude this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside_training: Option<String>,
    /// The share of the time that passes before the first step with the winner. No setting makes it shorter.
    pub start_share: f64,
}

/// Returns the history with rates over whole epochs, if the end of an epoch was measured for any config. Evaluations between steps
/// count likewise.
pub(crate) fn over_whole_epochs(history: History, baseline: Option<&Config>) -> History {
    type Cost = fn(&Timing) -> Option<EpochEnd>;
    const COSTS: [Cost; 2] = [|timing| timing.epoch_end, |timing| timing.evaluation];
    let known = |trial: &Trial, cost: Cost| cost(&trial.outcome.measurement()?.timing);
    let of_config = |config: &Config, cost| history.of(config).filter_map(|trial| known(trial, cost)).last();
    let usual = COSTS.map(|cost| match baseline {
        Some(baseline) => of_config(baseline, cost),
        None => history.trials().iter().find_map(|trial| known(trial, cost)),
    });
    let whole = |trial: &Arc<Trial>| {
        let own =
            |(cost, usual): (Cost, Option<EpochEnd>)| usual.map(|it| of_config(&trial.config, cost).unwrap_or(it));
        let costs = COSTS.into_iter().zip(usual).filter_map(own);
        match trial.outcome.measurement().and_then(|run| over_whole_epoch(run, costs)) {
            Some(run) => Arc::new(Trial { outcome: Outcome::Measured(run), ..Trial::clone(trial) }),
            None => Arc::clone(trial),
        }
    };
    if usual == [None, None] {
        return history;
    }
    history.trials().iter().map(whole).collect()
}

/// Returns a measurement with its rates over whole epochs, given what comes between its steps. `None` if it already has such rates,
/// or they do not count samples.
fn over_whole_epoch(measurement: &Measurement, costs: impl Iterator<Item = EpochEnd>) -> Option<Measurement> {
    let throughput = measurement.throughput.filter(|_| measurement.unit == SAMPLES_PER_SECOND)?;
    if measurement.timing.epoch_factor.is_some() {
        return None;
    }
    let factor = costs.fold(1.0, |factor, cost| factor * cost.factor(throughput.value * factor));
    let mut whole = measurement.clone();
    whole.throughput = Some(throughput.times(factor));
    whole.timing.epoch_factor = Some(factor);
    whole.metrics.entry(HANDED_OUT.to_owned()).and_modify(|rate| *rate *= factor);
    for slice in whole.round.iter_mut().flat_map(|round| &mut round.slices) {
        *slice *= factor;
    }
    Some(whole)
}

/// Returns how long a script evaluated between the measured steps, such as after each thousandth step.
fn evaluation_between_steps(run: &Measurement) -> Option<String> {
    let left_out = &run.timing.outliers;
    let took = show_seconds(left_out.get(EVALUATION)?.seconds);
    // The measured time of a round is without the steps that are left out.
    let others: f64 = left_out.values().map(|steps| steps.seconds).sum();
    let measured = run.timing.measured_seconds? + if run.round.is_some() { others } else { 0.0 };
    Some(format!("evaluation between steps, {took} of {} measured", show_seconds(measured)))
}

impl Study {
    /// Returns the time of the whole training with the baseline and with the winner; `None` if the objective is not the throughput,
    /// or samples are not counted.
    pub fn whole_run(&self, best: &Best) -> Option<WholeRun> {
        let baseline = best.baseline.as_ref()?;
        if !self.objective.is_largest_throughput() || baseline.measurement.unit != SAMPLES_PER_SECOND {
            return None;
        }
        let measured = |config: &Config| {
            let of_config = self.history.of(config).filter_map(|trial| trial.outcome.measurement());
            of_config.collect::<Vec<&Measurement>>()
        };
        let runs = measured(&baseline.config);
        let epoch =
            runs.iter().find_map(|run| run.timing.epoch_end.map(|end| end.samples).or_else(|| run.samples_per_epoch()));
        let fact = |name: &str| runs.iter().find_map(|run| run.facts.number(name)).filter(|number| *number > 0.0);
        let length = self.objective.stated_run_length().or_else(|| fact("run.steps").map(RunLength::Steps));
        let length = length.or_else(|| fact("run.epochs").map(RunLength::Epochs).filter(|_| epoch.is_some()));
        let length = length.unwrap_or(if epoch.is_some() { RunLength::Epochs(1.0) } else { A_MILLION });
        let per_step = |runs: &[&Measurement]| runs.iter().find_map(|run| run.timing.samples_per_step);
        let samples = match length {
            RunLength::Epochs(epochs) => epochs * epoch?,
            RunLength::Steps(steps) => steps * per_step(&runs)?,
            RunLength::Samples(samples) => samples,
        };
        let of_best = measured(&best.winner.config);
        let best_steps = per_step(&of_best).map(|per_step| (samples / per_step).round().max(1.0));
        let best_steps = best_steps.filter(|best| matches!(length, RunLength::Steps(steps) if steps != *best));
        // Imports take the same time with each config, so the imports of the baseline count for both.
        let start_of = |runs: &[&Measurement]| {
            let own = runs.iter().find(|run| !run.is_live && !run.is_forked && run.round.is_none())?;
            let imports = own.facts.number("import_seconds").unwrap_or(0.0);
            Some((imports, (own.account.as_ref()?.start_s - imports).max(0.0)))
        };
        let (imports, begins) = start_of(&runs).unwrap_or_default();
        let (start, begins_of_best) = (imports + begins, start_of(&of_best).map_or(begins, |(_, begins)| begins));
        let start_of_best = imports + begins_of_best;
        let trains = samples / baseline.estimate.value;
        let speedup = best.speedup.or(best.unproven_speedup)?;
        let with = |speedup: f64| start_of_best + trains / speedup;
        let best_s = Estimate {
            value: with(speedup.value),
            low: speedup.high.map(with),
            high: speedup.low.filter(|low| *low > 0.0).map(with),
        };
        let factor = |measurement: &Measurement| measurement.timing.epoch_factor;
        let (before, now) = (factor(&baseline.measurement), factor(&best.winner.measurement));
        let end = of_best.iter().chain(&runs).find_map(|run| run.timing.epoch_end);
        let of_ends = end.and_then(|end| Some(end.evaluation_s? / end.seconds)).filter(|share| share.is_finite());
        let between = of_best.iter().chain(&runs).find_map(|run| run.timing.evaluation);
        let between = between.map(|cost| cost.seconds / cost.samples * best.winner.estimate.value);
        let epoch_ends_share = now.map(|now| (1.0 - now).max(0.0));
        let evaluation_share = epoch_ends_share.filter(|_| of_ends.or(between).is_some()).map(|all| {
            let between = between.unwrap_or(0.0).min(all);
            between + (all - between) * of_ends.unwrap_or(0.0).min(1.0)
        });
        let outside = || {
            let mut all = runs.iter().chain(&of_best);
            let left = || all.clone().find_map(|run| run.facts.text(LEFT_TRAINING)).map(str::to_owned);
            left().or_else(|| all.find_map(|run| evaluation_between_steps(run)))
        };
        let start_share = if best_s.value > 0.0 { start_of_best / best_s.value } else { 0.0 };
        Some(WholeRun {
            length,
            best_steps,
            steps_option: runs.iter().find_map(|run| run.facts.text("run.steps_option")).map(str::to_owned),
            baseline_s: start + trains,
            best_s,
            steps_speedup: before.zip(now).map(|(before, now)| speedup.value * before / now),
            epoch_ends_share,
            start_share,
            outside_training: now.is_none().then(outside).flatten(),
            evaluation_share,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{InRound, Outliers};

    #[test]
    fn rates_between_the_ends_of_epochs_become_rates_over_whole_epochs() {
        let between = Measurement {
            throughput: Some(Estimate::interval(100.0, 90.0, 110.0)),
            unit: SAMPLES_PER_SECOND.to_owned(),
            round: Some(InRound { number: 1, process: 1, slices: vec![99.0, 101.0] }),
            ..Measurement::default()
        };
        let end = EpochEnd { seconds: 3.0, samples: 100.0, evaluation_s: None };
        let whole = over_whole_epoch(&between, [end].into_iter()).unwrap();
        assert_eq!(whole.throughput, Some(Estimate::interval(25.0, 22.5, 27.5)));
        assert_eq!(whole.round.as_ref().unwrap().slices, [24.75, 25.25]);
        assert_eq!(over_whole_epoch(&whole, [end].into_iter()), None, "once is enough");
        let evaluation = EpochEnd { seconds: 1.0, samples: 25.0, evaluation_s: None };
        let both = over_whole_epoch(&between, [end, evaluation].into_iter()).unwrap();
        assert_eq!(both.throughput.unwrap().value, 12.5, "100 samples take 1 s, 3 s at the end, and 4 times 1 s");
        let printed = Measurement { unit: "it/s".to_owned(), ..between };
        assert_eq!(over_whole_epoch(&printed, [end].into_iter()), None);
    }

    #[test]
    fn evaluation_between_steps_is_told() {
        let mut run = Measurement::default();
        assert_eq!(evaluation_between_steps(&run), None);
        run.timing.measured_seconds = Some(4.0);
        run.timing.outliers.insert(EVALUATION.to_owned(), Outliers { steps: 2, seconds: 1.5 });
        assert_eq!(evaluation_between_steps(&run).unwrap(), "evaluation between steps, 1.50 s of 4.00 s measured");
        run.round = Some(InRound { number: 1, process: 1, slices: vec![1.0] });
        assert_eq!(evaluation_between_steps(&run).unwrap(), "evaluation between steps, 1.50 s of 5.50 s measured");
    }

    #[test]
    fn an_epoch_has_the_samples_of_all_ranks() {
        let mut run = Measurement { ranks: Some(2), ..Measurement::default() };
        assert_eq!(run.samples_per_epoch(), None);
        run.timing = Timing { samples_per_step: Some(256.0), ..Timing::default() };
        run.facts.insert(0, "loader.batches", crate::model::Fact::Number(10.0));
        run.facts.insert(0, "accumulation", crate::model::Fact::Number(2.0));
        assert_eq!(run.samples_per_epoch(), Some(1280.0));
        run.facts.insert(0, "loader.samples", crate::model::Fact::Number(630.0));
        assert_eq!(run.samples_per_epoch(), Some(1260.0));
        // The script reports 64 tokens for each sample of its rank.
        run.throughput = Some(Estimate::point(6400.0));
        run.metrics.insert(HANDED_OUT.to_owned(), 100.0);
        assert_eq!(run.samples_per_epoch(), Some(630.0 * 64.0));
        run.facts.insert(0, "loader.samples", crate::model::Fact::Number(1e10));
        assert_eq!(run.samples_per_epoch(), None, "1e10 samples drawn with replacement");
    }
}
