//! Plots the speed of the machine over the search, as repeated runs of the baseline show it.

use super::{Scatter, Studied, figure};
use crate::model::Estimate;
use crate::report::figure::{Axis, Drawing, Figure, Line, Points, Scale, Unit};

pub(super) fn build(studied: &Studied<'_>) -> Vec<Figure> {
    let study = studied.study;
    let (Some(levels), Some(drift), Some(baseline)) = (study.machine_levels(), study.drift(), &study.baseline) else {
        return Vec::new();
    };
    let trials = study.history.trials();
    let of_baseline = || trials.iter().filter(|trial| trial.config == *baseline);
    let rates = of_baseline().filter_map(|trial| Some(trial.outcome.measurement()?.throughput?.value));
    let (count, sum) = rates.fold((0.0, 0.0), |(count, sum), rate| (count + 1.0, sum + rate));
    let mean = sum / f64::max(count, 1.0);
    let mut scatter = Scatter::default();
    for trial in of_baseline() {
        let rate = trial.outcome.measurement().and_then(|run| run.throughput);
        let share = |rate: Estimate| Estimate {
            value: rate.value / mean,
            low: rate.low.map(|low| low / mean),
            high: rate.high.map(|high| high / mean),
        };
        scatter.push(studied.mark(trial), trial.number, f64::from(trial.number), rate.map(share));
    }
    let x = trials.iter().map(|trial| f64::from(trial.number)).collect();
    let line = Line { label: "level of the machine".to_owned(), is_steps: false, x, y: levels };
    let text = format!(
        "The machine's speed moved from {:+.0} % to {:+.0} % of its mean during the search.",
        drift.lowest * 100.0,
        drift.highest * 100.0
    );
    let y = Axis {
        label: "speed of the baseline, as a share of its mean".to_owned(),
        scale: Scale::Linear,
        unit: Unit::Share,
        ticks: Vec::new(),
    };
    let drawing = Drawing::Points(Points {
        x: Axis::linear("probe", Unit::Number),
        y,
        series: scatter.done(),
        line: Some(line),
        limits: Vec::new(),
    });
    vec![figure("level", "level".to_owned(), "speed of the machine".to_owned(), text, drawing)]
}
