//! Plots peak device memory against the parameters that it grows with, and the memory capacity.

use super::{Along, Scatter, Studied, figure, float};
use crate::model::{Estimate, MemoryRole, Role, quantity::show_bytes};
use crate::report::figure::{Axis, Drawing, Figure, Limit, Mark, Points, Unit};

pub(super) fn build(studied: &Studied<'_>) -> Vec<Figure> {
    let study = studied.study;
    let parameters = study.space.parameters();
    let of_role = parameters.iter().position(|parameter| parameter.role() == Some(Role::Batch));
    let grows = || parameters.iter().position(|parameter| parameter.memory_role() == MemoryRole::Grows);
    let Some(at) = of_role.or_else(grows) else { return Vec::new() };
    let along = Along::of(study, at);
    let mut scatter = Scatter::default();
    let (mut capacity, mut most) = (None, 0);
    for trial in study.history.trials() {
        let Some(place) = along.place(&trial.config) else { continue };
        let mark = studied.mark(trial);
        let measurement = trial.outcome.measurement();
        let peak = measurement.and_then(|measurement| measurement.memory.peak_bytes);
        capacity = measurement.and_then(|measurement| measurement.memory.capacity_bytes).max(capacity);
        most = most.max(peak.unwrap_or(0));
        match peak {
            Some(peak) => scatter.push(mark, trial.number, place, Some(Estimate::point(bytes(peak)))),
            None if mark == Mark::OutOfMemory => scatter.push(mark, trial.number, place, None),
            None => {}
        }
    }
    if !scatter.has_numbers() {
        return Vec::new();
    }
    let mut limits = Vec::new();
    let mut text = format!("The largest peak is {}", show_bytes(most));
    // A limit more than this many times above all points would leave no room for the points.
    const FAR: u64 = 4;
    if let Some(capacity) = capacity {
        let free = study.objective.headroom().of(capacity);
        text += &format!(" of {} in total; {} must stay free.", show_bytes(capacity), show_bytes(free));
        if capacity / FAR <= most {
            limits.push(Limit { label: format!("all memory, {}", show_bytes(capacity)), at: bytes(capacity) });
            let limit = capacity.saturating_sub(free);
            if free > 0 {
                limits.push(Limit { label: format!("limit, {}", show_bytes(limit)), at: bytes(limit) });
            }
        }
    } else {
        text += "; how much there is was not told.";
    }
    text += &scatter.failures().replace("failed", "ran out of memory");
    let title = format!("memory against {}", along.axis.label);
    let y = Axis::linear("peak memory", Unit::Bytes);
    let drawing = Drawing::Points(Points { x: along.axis, y, series: scatter.done(), line: None, limits });
    vec![figure("memory", "memory".to_owned(), title, text, drawing)]
}

fn bytes(size: u64) -> f64 {
    usize::try_from(size).map_or(f64::INFINITY, float)
}
