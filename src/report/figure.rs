//! The data of a figure, for the page, which is interactive, and for a file, which is not.

use serde::Serialize;

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Its name among all of a study; fit for a file.
    pub name: String,
    /// The row of [`FIGURES`](super::FIGURES) that it belongs to.
    pub kind: &'static str,
    /// What it shows.
    pub title: String,
    /// A description of it, for readers who cannot see it.
    pub text: String,
    /// What is drawn.
    #[serde(flatten)]
    pub drawing: Drawing,
}

/// What is drawn.
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
    /// From left to right.
    pub x: Axis,
    /// From the bottom to the top.
    pub y: Axis,
    /// The points, by the result of the trial.
    pub series: Vec<Series>,
    /// A line from point to point, such as the best so far.
    pub line: Option<Line>,
    /// Horizontal lines, such as the memory capacity.
    pub limits: Vec<Limit>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// What it counts.
    pub label: String,
    /// How places follow from numbers.
    pub scale: Scale,
    /// How its numbers are written.
    pub unit: Unit,
    /// Numbers that are always written at the axis; empty to choose round ones. For categories, the names of 0, 1, 2
    /// and so on.
    pub ticks: Vec<Tick>,
}

/// A place of an axis with its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tick {
    /// Where.
    pub at: f64,
    /// What is written there.
    pub text: String,
}

/// How places follow from numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal differences have equal lengths.
    Linear,
    /// Equal ratios have equal lengths.
    Log,
    /// Numbers stand for names.
    Categories,
}

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// As they are.
    Number,
    /// In GiB and the like.
    Bytes,
    /// In per cent.
    Share,
    /// In milliseconds and the like.
    Seconds,
}

/// Points of one kind; entry by entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The result of the trials.
    pub mark: Mark,
    /// The trials.
    pub trials: Vec<u32>,
    /// From left to right.
    pub x: Vec<f64>,
    /// The numbers; `None` for a trial without one, whose point stands at an edge.
    pub y: Vec<Option<f64>>,
    /// The lower end of the 95 % interval.
    pub low: Vec<Option<f64>>,
    /// The upper end of the 95 % interval.
    pub high: Vec<Option<f64>>,
}

/// A line from point to point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// What it is.
    pub label: String,
    /// Whether it keeps its height until the next point.
    pub is_steps: bool,
    /// From left to right.
    pub x: Vec<f64>,
    /// Height.
    pub y: Vec<f64>,
}

/// A line at a height.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// What it is.
    pub label: String,
    /// Its height.
    pub at: f64,
}

/// The result of a trial; each has its own shape and colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It was measured.
    Measured,
    /// It was measured for a part of the time, or stopped early as slower than the best.
    Short,
    /// It was measured and is infeasible.
    Infeasible,
    /// There was not enough memory.
    OutOfMemory,
    /// Another failure.
    Failed,
    /// The config that the speed-up is measured against.
    Baseline,
    /// It cannot be distinguished from the best; for a front, a config on it.
    Tied,
    /// The best config.
    Best,
}

/// A mark in words, with its shape.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct MarkRow {
    /// Which mark.
    pub mark: Mark,
    /// What it means.
    pub label: &'static str,
    /// Its shape, so that it can be recognised without the colour.
    pub shape: Shape,
    /// Its colour in the light, for a file; the page has its own for the dark.
    pub colour: &'static str,
}

/// A shape, a few pixels wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A disc.
    Disc,
    /// A ring.
    Ring,
    /// A triangle.
    Triangle,
    /// Two crossed strokes.
    Cross,
    /// Three strokes through one point.
    Asterisk,
    /// A square that stands on a corner.
    Diamond,
    /// A square.
    Square,
    /// A star with five points.
    Star,
}

/// The marks, in the order in which they are drawn: the most important ones come last, on top of the others.
///
/// The colours are those that Okabe and Ito chose for people with colour vision deficiency (Color Universal Design,
/// 2008), made darker where their contrast to white is below 3 to 1 (WCAG 2.2, 1.4.11).
pub const MARKS: &[MarkRow] = &[
    row(Mark::Measured, "measured", Shape::Disc, "#5b6472"),
    row(Mark::Short, "short", Shape::Ring, "#5b6472"),
    row(Mark::Infeasible, "may not win", Shape::Triangle, "#9a6700"),
    row(Mark::OutOfMemory, "out of memory", Shape::Cross, "#b3430a"),
    row(Mark::Failed, "failed", Shape::Asterisk, "#b3430a"),
    row(Mark::Baseline, "baseline", Shape::Diamond, "#0b0f19"),
    row(Mark::Tied, "tied", Shape::Square, "#0060a8"),
    row(Mark::Best, "best", Shape::Star, "#0060a8"),
];

const fn row(mark: Mark, label: &'static str, shape: Shape, colour: &'static str) -> MarkRow {
    MarkRow { mark, label, shape, colour }
}

impl Mark {
    /// Its row.
    pub fn row(self) -> Option<&'static MarkRow> {
        MARKS.iter().find(|row| row.mark == self)
    }
}

/// Bars that are made of parts, one below the other.
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
    /// What it stands for.
    pub label: String,
    /// The length of each part.
    pub lengths: Vec<f64>,
    /// A text for each part.
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
    /// How good it is, from 0 for the worst to 1 for the best; `None` where it failed.
    pub rank: Option<f64>,
    /// The number on each axis, where there is one.
    pub values: Vec<Option<f64>>,
}

impl Axis {
    /// An axis of numbers.
    pub(super) fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), scale: Scale::Linear, unit, ticks: Vec::new() }
    }

    /// The name of a number, as the axis writes it.
    pub(super) fn shown(&self, number: f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.at == number);
        tick.map_or_else(|| self.unit.shown(number), |tick| tick.text.clone())
    }
}

impl Unit {
    /// A number in words.
    pub(super) fn shown(self, number: f64) -> String {
        use crate::model::quantity::{show_bytes, show_number, show_seconds};
        match self {
            #[expect(clippy::float_cmp, reason = "whole numbers are exact")]
            Self::Number if number.abs() < 1000.0 && number.trunc() == number => number.to_string(),
            Self::Number => show_number(number),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a size, shown in three digits"
            )]
            Self::Bytes => show_bytes(number as u64),
            Self::Share => format!("{} %", show_number(number * 100.0)),
            Self::Seconds => show_seconds(number),
        }
    }
}

/// Returns a text that can be part of a file name: letters, digits, `-`, `_` and `.`, at most sixty bytes.
pub(super) fn file_name(text: &str) -> String {
    const LONGEST: usize = 60;
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = text.chars().map(plain).take(LONGEST).collect();
    name.trim_start_matches(['.', '-']).to_owned()
}
