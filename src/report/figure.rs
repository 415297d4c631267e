//! The axes and marks of the page's figures.

use serde::Serialize;

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
    shape: &'static str,
}

/// The marks in drawing order: the most important marks come last, on top of the rest.
pub(super) const MARKS: &[MarkRow] = &[
    row(Mark::Measured, "measured", "disc"),
    row(Mark::Infeasible, "may not win", "triangle"),
    row(Mark::OutOfMemory, "out of memory", "cross"),
    row(Mark::Failed, "failed", "asterisk"),
    row(Mark::Baseline, "baseline", "diamond"),
    row(Mark::Tied, "tied", "square"),
    row(Mark::Best, "best", "star"),
];

const fn row(mark: Mark, label: &'static str, shape: &'static str) -> MarkRow {
    MarkRow { mark, label, shape }
}

impl Mark {
    pub(super) fn row(self) -> Option<&'static MarkRow> {
        MARKS.iter().find(|row| row.mark == self)
    }
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
