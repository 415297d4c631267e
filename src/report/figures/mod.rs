//! The figures of a study: each kind is a row of the table.

mod overview;
mod points;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::figure::{Axis, Mark, Scale, Tick, Unit};
use crate::model::{Config, Estimate, Judgement, Outcome, Parameter, Trial, Value};
use crate::search::{Best, Study};

/// A kind of figure, which has a section of its own on the page.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct FigureRow {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    /// Makes the figures of a study; empty if the study has no data for them.
    #[serde(skip)]
    build: fn(&Studied<'_>) -> Vec<Json>,
}

/// All kinds, in the order of the page.
pub(super) const FIGURES: &[FigureRow] = &[
    FigureRow {
        name: "against",
        title: "Against each parameter",
        about: "The objective against each parameter, with 95 % intervals; failed trials are at the lower edge.",
        build: points::against,
    },
    FigureRow {
        name: "front",
        title: "Front",
        about: "The first two metrics that count against each other, with the configs that no other beats.",
        build: points::plane,
    },
    FigureRow {
        name: "memory",
        title: "Memory",
        about: "Peak device memory against the batch size, with the total memory and the headroom below it.",
        build: points::memory,
    },
    FigureRow {
        name: "phases",
        title: "Where time went",
        about: "The parts of a step's time, one bar for each of the best configs.",
        build: overview::phases,
    },
    FigureRow {
        name: "progress",
        title: "Best so far",
        about: "The result of each probe, and the best so far.",
        build: points::progress,
    },
    FigureRow {
        name: "parallel",
        title: "All parameters at once",
        about: "A line for each trial over an axis for each parameter; the last axis is what counts.",
        build: overview::parallel,
    },
];

/// A study with results derived from it, computed once.
pub(super) struct Studied<'s> {
    pub(super) study: &'s Study,
    pub(super) best: Option<Best>,
    /// The configs of the front; empty if the objective is no front.
    pub(super) front: Vec<Config>,
}

impl<'s> Studied<'s> {
    pub(super) fn of(study: &'s Study) -> Self {
        let is_front = study.objective.is_pareto();
        let front = if is_front { study.front().into_iter().map(|member| member.config).collect() } else { Vec::new() };
        Self { study, best: study.best(), front }
    }

    pub(super) fn figures(&self) -> Vec<Json> {
        FIGURES.iter().flat_map(|row| (row.build)(self)).collect()
    }

    pub(super) fn mark(&self, trial: &Trial) -> Mark {
        let is = |config: &Config| trial.config == *config;
        match &trial.outcome {
            Outcome::OutOfMemory { .. } => Mark::OutOfMemory,
            Outcome::Measured(measurement) => match (self.study.objective.judge(measurement), &self.best) {
                (Judgement::Infeasible { .. }, _) => Mark::Infeasible,
                (_, Some(best)) if is(&best.winner.config) => Mark::Best,
                _ if self.study.baseline.as_ref().is_some_and(is) => Mark::Baseline,
                (_, Some(best)) if best.ties.iter().any(|tie| is(&tie.config)) => Mark::Tied,
                _ if self.front.iter().any(is) => Mark::Tied,
                _ => Mark::Measured,
            },
            _ => Mark::Failed,
        }
    }

    /// Returns the value of the objective for a trial, if it was measured.
    pub(super) fn counted(&self, trial: &Trial) -> Option<Estimate> {
        let estimate = self.study.objective.estimate(trial.outcome.measurement()?)?;
        estimate.value.is_finite().then_some(estimate)
    }

    pub(super) fn result_axis(&self) -> Axis {
        let metric = self.study.objective.metric();
        let mut trials = self.study.history.trials().iter();
        let unit = trials.find_map(|trial| trial.outcome.measurement()).map_or("", |first| first.unit.as_str());
        let label = match metric {
            "throughput" if !unit.is_empty() => format!("throughput ({unit})"),
            _ => metric.to_owned(),
        };
        Axis::linear(label, metric_unit(metric))
    }

    pub(super) fn is_better(&self, a: f64, b: f64) -> bool {
        let objective = &self.study.objective;
        objective.score(a) > objective.score(b)
    }
}

pub(super) fn metric_unit(metric: &str) -> Unit {
    match metric {
        "peak_memory" | "host_memory" => Unit::Bytes,
        "memory_headroom" => Unit::Share,
        "step_time" | "data_wait" => Unit::Seconds,
        _ => Unit::Number,
    }
}

/// The axis of a parameter, with a mapping from configs to positions on it.
pub(super) struct Along<'s> {
    study: &'s Study,
    at: usize,
    pub(super) axis: Axis,
    /// The distinct levels of all trials, in order. On an axis of categories, the position of a level is its place.
    levels: Vec<Option<u32>>,
}

impl<'s> Along<'s> {
    /// Makes the axis of the parameter with this index in the space. Text values keep their order; values that occur in no trial
    /// are left out. Configs without a value get a position only on an axis of text values.
    pub(super) fn of(study: &'s Study, at: usize) -> Self {
        let parameter = &study.space.parameters()[at];
        let values = || study.history.trials().iter().map(|trial| value_of(study, at, &trial.config));
        let mut levels: Vec<Option<u32>> = values().map(|value| parameter.level(&value?)).collect();
        levels.sort_by_key(|level| level.map_or(u64::MAX, u64::from));
        levels.dedup();
        let (scale, ticks) = if parameter.is_ordinal() {
            let mut numbers: Vec<f64> = values().filter_map(|value| value?.as_f64()).collect();
            numbers.sort_by(f64::total_cmp);
            numbers.dedup();
            (scale_of(&numbers), ticks_of(parameter, &levels))
        } else {
            let ticks = levels.iter().enumerate().map(|(place, level)| Tick {
                at: float(place),
                text: level.map_or_else(|| "not used".to_owned(), |level| parameter.value(level).to_string()),
            });
            (Scale::Categories, ticks.collect())
        };
        let axis = Axis { label: parameter.name().to_owned(), scale, unit: Unit::Number, ticks };
        Self { study, at, axis, levels }
    }

    /// Returns the position of a config; `None` if the config has no setting for the parameter.
    pub(super) fn place(&self, config: &Config) -> Option<f64> {
        let value = value_of(self.study, self.at, config);
        if self.axis.scale == Scale::Categories {
            let level = value.and_then(|value| self.study.space.parameters()[self.at].level(&value));
            return self.levels.iter().position(|known| *known == level).map(float);
        }
        value?.as_f64()
    }
}

/// Returns the setting of a config for the parameter with this index; the unmodified job's may be outside of the space.
fn value_of(study: &Study, at: usize, config: &Config) -> Option<Value> {
    let parameter = &study.space.parameters()[at];
    match config.level(at) {
        Some(level) => Some(parameter.value(level)),
        None if config.is_as_it_is() => study.settings(config).get(parameter.name()).cloned(),
        None => None,
    }
}

/// Chooses the scale: a logarithmic one for sizes that differ by a large factor, as powers of two do.
fn scale_of(numbers: &[f64]) -> Scale {
    /// Slightly below 16, so that powers of two over four doublings get a logarithmic scale.
    const MUCH: f64 = 15.0;
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if numbers.len() > 2 && least > 0.0 && most / least > MUCH { Scale::Log } else { Scale::Linear }
}

/// Returns a tick for each setting, if there are few settings.
fn ticks_of(parameter: &Parameter, levels: &[Option<u32>]) -> Vec<Tick> {
    const FEW: usize = 10;
    let tick = |level: &Option<u32>| {
        let value = parameter.value((*level)?);
        Some(Tick { at: value.as_f64()?, text: value.to_string() })
    };
    if levels.len() > FEW { Vec::new() } else { levels.iter().filter_map(tick).collect() }
}

pub(super) fn float(count: usize) -> f64 {
    count as f64
}

/// A trial, its horizontal position, and its value; without a value, its point stands at an edge.
type Point = (u32, f64, Option<Estimate>);

/// Points grouped by the result of the trial.
#[derive(Default)]
pub(super) struct Scatter(BTreeMap<Mark, Vec<Point>>);

impl Scatter {
    pub(super) fn push(&mut self, mark: Mark, trial: u32, x: f64, y: Option<Estimate>) {
        self.0.entry(mark).or_default().push((trial, x, y));
    }

    /// Returns the groups in the order of the marks. Entry `i` of each list is point `i`; `low` and `high` are the ends of
    /// the 95% interval.
    pub(super) fn series(&self) -> Vec<Json> {
        let series = |(mark, points): (&Mark, &Vec<Point>)| {
            let trials: Vec<u32> = points.iter().map(|point| point.0).collect();
            let x: Vec<f64> = points.iter().map(|point| point.1).collect();
            let each = |end: fn(Estimate) -> Option<f64>| -> Vec<Option<f64>> {
                points.iter().map(|point| point.2.and_then(end)).collect()
            };
            let (y, low, high) = (each(|y| Some(y.value)), each(|y| y.low), each(|y| y.high));
            json!({ "mark": mark, "trials": trials, "x": x, "y": y, "low": low, "high": high })
        };
        self.0.iter().map(series).collect()
    }

    fn values(&self) -> impl Iterator<Item = Option<Estimate>> {
        self.0.values().flatten().map(|point| point.2)
    }

    pub(super) fn has_numbers(&self) -> bool {
        self.values().any(|value| value.is_some())
    }

    /// Returns a sentence on the number of points without a result; empty if each point has a result.
    pub(super) fn failures(&self) -> String {
        match self.values().filter(Option::is_none).count() {
            0 => String::new(),
            1 => " 1 trial failed.".to_owned(),
            count => format!(" {count} trials failed."),
        }
    }
}

/// Completes a drawing to a figure. The name is unique among the study's figures, and valid in the id of an HTML element.
/// The text is for readers who cannot see the figure.
pub(super) fn figure(kind: &str, name: &str, title: &str, text: &str, mut drawing: Json) -> Json {
    for (key, value) in [("kind", kind), ("name", name), ("title", title), ("text", text)] {
        drawing[key] = value.into();
    }
    drawing
}
