//! The data of a figure of the page.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Figure {
    /// The name, unique among the study's figures, and valid in the id of an HTML element.
    pub(super) name: String,
    /// The row of [`FIGURES`](super::figures::FIGURES) that the figure belongs to.
    pub(super) kind: &'static str,
    pub(super) title: String,
    /// A description for readers who cannot see the figure.
    pub(super) text: String,
    #[serde(flatten)]
    pub(super) drawing: Drawing,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "drawing", rename_all = "snake_case")]
pub(super) enum Drawing {
    Points(Points),
    Bars(Bars),
    Parallel(Parallel),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Points {
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// The points, by the result of the trial.
    pub(super) series: Vec<Series>,
    /// A line from point to point, such as the best value to date.
    pub(super) line: Option<Line>,
    /// Horizontal lines, such as the memory capacity.
    pub(super) limits: Vec<Limit>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    pub(super) unit: Unit,
    /// Numbers that are always written at the axis; if empty, the page chooses. For categories, the names of 0, 1, 2...
    pub(super) ticks: Vec<Tick>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scale {
    Linear,
    Log,
    /// Numbers stand for category names.
    Categories,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    Number,
    Bytes,
    Share,
    Seconds,
}

/// Points with the same mark; entry `i` of each list is point `i`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Series {
    pub(super) mark: Mark,
    pub(super) trials: Vec<u32>,
    pub(super) x: Vec<f64>,
    /// The vertical position; `None` for a trial without a number, whose point stands at an edge.
    pub(super) y: Vec<Option<f64>>,
    /// The ends of the 95% interval.
    pub(super) low: Vec<Option<f64>>,
    pub(super) high: Vec<Option<f64>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Line {
    pub(super) label: String,
    /// True if the line keeps its height until the next point.
    pub(super) is_steps: bool,
    pub(super) x: Vec<f64>,
    pub(super) y: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Limit {
    pub(super) label: String,
    pub(super) at: f64,
}

/// The result of a trial; each has its own shape and colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mark {
    Measured,
    Infeasible,
    OutOfMemory,
    /// It failed for another reason.
    Failed,
    Baseline,
    /// It ties with the best; for a front, it is on the front.
    Tied,
    Best,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct MarkRow {
    mark: Mark,
    /// The meaning in words.
    pub(super) label: &'static str,
    /// The shape, which identifies the mark without its colour.
    shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Disc,
    Triangle,
    Cross,
    Asterisk,
    Diamond,
    Square,
    Star,
}

/// The marks in drawing order: the most important marks come last, on top of the rest.
pub(super) const MARKS: &[MarkRow] = &[
    row(Mark::Measured, "measured", Shape::Disc),
    row(Mark::Infeasible, "may not win", Shape::Triangle),
    row(Mark::OutOfMemory, "out of memory", Shape::Cross),
    row(Mark::Failed, "failed", Shape::Asterisk),
    row(Mark::Baseline, "baseline", Shape::Diamond),
    row(Mark::Tied, "tied", Shape::Square),
    row(Mark::Best, "best", Shape::Star),
];

const fn row(mark: Mark, label: &'static str, shape: Shape) -> MarkRow {
    MarkRow { mark, label, shape }
}

impl Mark {
    pub(super) fn row(self) -> Option<&'static MarkRow> {
        MARKS.iter().find(|row| row.mark == self)
    }
}

/// Bars made of parts, one below the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Bars {
    /// The axis of the lengths.
    pub(super) x: Axis,
    pub(super) parts: Vec<String>,
    pub(super) bars: Vec<Bar>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Bar {
    pub(super) trial: u32,
    pub(super) mark: Mark,
    pub(super) label: String,
    pub(super) lengths: Vec<f64>,
    pub(super) texts: Vec<String>,
}

/// A line for each trial, over one axis for each parameter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Parallel {
    /// The axes; the last one is the result.
    pub(super) axes: Vec<Axis>,
    /// The lines, the best last.
    pub(super) lines: Vec<Strand>,
}

/// One line over all axes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Strand {
    pub(super) trial: u32,
    pub(super) mark: Mark,
    /// The rank from 0 for the worst to 1 for the best; `None` if the trial failed.
    pub(super) rank: Option<f64>,
    /// The number on each axis, if the trial has one.
    pub(super) values: Vec<Option<f64>>,
}

impl Axis {
    pub(super) fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), scale: Scale::Linear, unit, ticks: Vec::new() }
    }

    /// Formats a number as the axis writes it.
    pub(super) fn shown(&self, number: f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.at == number);
        tick.map_or_else(|| self.unit.shown(number), |tick| tick.text.clone())
    }
}

impl Unit {
    pub(super) fn shown(self, number: f64) -> String {
        use crate::model::quantity::{show_bytes, show_number, show_seconds};
        match self {
            Self::Number if number.abs() < 1000.0 && number.trunc() == number => number.to_string(),
            Self::Number => show_number(number),
            Self::Bytes => show_bytes(number as u64),
            Self::Share => format!("{} %", show_number(number * 100.0)),
            Self::Seconds => show_seconds(number),
        }
    }
}

/// Returns a string that can be part of an id: letters, digits, `-`, `_` and `.`, at most sixty bytes.
pub(super) fn id_of(text: &str) -> String {
    const LONGEST: usize = 60;
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = text.chars().map(plain).take(LONGEST).collect();
    name.trim_start_matches(['.', '-']).to_owned()
}
