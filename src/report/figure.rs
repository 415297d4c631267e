//! The data of a figure of the page.

use serde::Serialize;

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The name, unique among the study's figures, and valid in the id of an HTML element.
    pub name: String,
    /// The row of [`FIGURES`](super::FIGURES) that the figure belongs to.
    pub kind: &'static str,
    /// The title.
    pub title: String,
    /// A description for readers who cannot see the figure.
    pub text: String,
    /// The marks and lines to draw.
    #[serde(flatten)]
    pub drawing: Drawing,
}

/// The marks and lines of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "drawing", rename_all = "snake_case")]
pub enum Drawing {
    /// Points in a plane.
    Points(Points),
    /// Bars that are made of parts.
    Bars(Bars),
    /// A line for each trial, over one axis for each parameter.
    Parallel(Parallel),
}

/// Points in a plane.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Points {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The points, by the result of the trial.
    pub series: Vec<Series>,
    /// A line from point to point, such as the best value to date.
    pub line: Option<Line>,
    /// Horizontal lines, such as the memory capacity.
    pub limits: Vec<Limit>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// The quantity on the axis.
    pub label: String,
    /// The mapping from numbers to positions.
    pub scale: Scale,
    /// The unit of the numbers.
    pub unit: Unit,
    /// Numbers that are always written at the axis; if empty, the page chooses round numbers. For categories, the names
    /// of 0, 1, 2 and so on.
    pub ticks: Vec<Tick>,
}

/// A position on an axis with its label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tick {
    /// The position.
    pub at: f64,
    /// The label.
    pub text: String,
}

/// The mapping from numbers to positions on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal differences have equal lengths.
    Linear,
    /// Equal ratios have equal lengths.
    Log,
    /// Numbers stand for category names.
    Categories,
}

/// The unit in which numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A plain number.
    Number,
    /// A size in bytes, written in GiB and similar units.
    Bytes,
    /// A fraction, written in percent.
    Share,
    /// A duration, written in milliseconds and similar units.
    Seconds,
}

/// Points with the same mark; entry `i` of each list is point `i`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The result of the trials.
    pub mark: Mark,
    /// The trials.
    pub trials: Vec<u32>,
    /// The horizontal position.
    pub x: Vec<f64>,
    /// The vertical position; `None` for a trial without a number, whose point stands at an edge.
    pub y: Vec<Option<f64>>,
    /// The lower end of the 95% interval.
    pub low: Vec<Option<f64>>,
    /// The upper end of the 95% interval.
    pub high: Vec<Option<f64>>,
}

/// A line from point to point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The label of the line.
    pub label: String,
    /// True if the line keeps its height until the next point.
    pub is_steps: bool,
    /// The horizontal positions.
    pub x: Vec<f64>,
    /// The heights.
    pub y: Vec<f64>,
}

/// A horizontal line at one height.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// The label of the line.
    pub label: String,
    /// The height.
    pub at: f64,
}

/// The result of a trial; each has its own shape and colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It was measured.
    Measured,
    /// It was measured and is infeasible.
    Infeasible,
    /// It ran out of memory.
    OutOfMemory,
    /// It failed for another reason.
    Failed,
    /// The config that the speedup is measured against.
    Baseline,
    /// It ties with the best; for a front, it is on the front.
    Tied,
    /// The best config.
    Best,
}

/// The label and shape of a mark.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct MarkRow {
    /// The mark.
    pub mark: Mark,
    /// The meaning in words.
    pub label: &'static str,
    /// The shape, which identifies the mark without its colour.
    pub shape: Shape,
}

/// A shape, a few pixels wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A disc.
    Disc,
    /// A triangle.
    Triangle,
    /// Two crossed strokes.
    Cross,
    /// Three strokes through one point.
    Asterisk,
    /// A square standing on a corner.
    Diamond,
    /// A square.
    Square,
    /// A star with five points.
    Star,
}

/// The marks in drawing order: the most important marks come last, on top of the rest.
pub const MARKS: &[MarkRow] = &[
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
    /// Returns the row of the mark.
    pub fn row(self) -> Option<&'static MarkRow> {
        MARKS.iter().find(|row| row.mark == self)
    }
}

/// Bars made of parts, one below the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bars {
    /// The axis of the lengths.
    pub x: Axis,
    /// The names of the parts.
    pub parts: Vec<String>,
    /// The bars, the first at the top.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bar {
    /// The trial.
    pub trial: u32,
    /// The result of the trial.
    pub mark: Mark,
    /// The label of the bar.
    pub label: String,
    /// The length of each part.
    pub lengths: Vec<f64>,
    /// The text of each part.
    pub texts: Vec<String>,
}

/// A line for each trial, over one axis for each parameter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parallel {
    /// The axes; the last one is the result.
    pub axes: Vec<Axis>,
    /// The lines, the best last.
    pub lines: Vec<Strand>,
}

/// One line over all axes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Strand {
    /// The trial.
    pub trial: u32,
    /// The result of the trial.
    pub mark: Mark,
    /// The rank from 0 for the worst to 1 for the best; `None` if the trial failed.
    pub rank: Option<f64>,
    /// The number on each axis, if the trial has one.
    pub values: Vec<Option<f64>>,
}

impl Axis {
    /// Makes an axis of numbers.
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
    /// Formats a number with its unit.
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
