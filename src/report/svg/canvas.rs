//! Draws lines, shapes and text of an SVG file, and places numbers on an axis.

use std::fmt::Write as _;

use crate::report::escape::as_markup;
use crate::report::figure::{Axis, Mark, Scale, Shape, Tick, Unit};

pub(super) const INK: &str = "#16181d";
pub(super) const MUTED: &str = "#59606c";
pub(super) const GRID: &str = "#e4e6e3";
pub(super) const ACCENT: &str = "#0060a8";
pub(super) const BAD: &str = "#b3430a";

/// A position in pixels.
pub(super) type Place = (f64, f64);

/// An SVG file under construction.
pub(super) struct Canvas(String);

impl Canvas {
    pub(super) fn new(width: f64, height: f64, title: &str, about: &str) -> Self {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\" font-family=\"system-ui, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif\" \
             font-size=\"12\">\n"
        );
        let _ = writeln!(text, "<title>{}</title>\n<desc>{}</desc>", as_markup(title), as_markup(about));
        let _ = writeln!(text, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>");
        Self(text)
    }

    pub(super) fn text(&mut self, (x, y): Place, text: &str, anchor: &str, more: &str) {
        let fill = if more.contains("fill=") { "" } else { "fill=\"#16181d\" " };
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {fill}{more}>{}</text>",
            as_markup(text)
        );
    }

    pub(super) fn line(&mut self, from: Place, to: Place, colour: &str, more: &str) {
        self.path(&[from, to], colour, more);
    }

    pub(super) fn path(&mut self, places: &[Place], colour: &str, more: &str) {
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ =
            writeln!(self.0, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" {more}/>", points.join(" "));
    }

    pub(super) fn bar(&mut self, (x, y): Place, (width, height): Place, colour: &str) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>",
            width.max(0.0)
        );
    }

    /// Draws the shape of a mark.
    pub(super) fn mark(&mut self, (x, y): Place, mark: Mark) {
        let Some(row) = mark.row() else { return };
        let colour = row.colour;
        let around = |radius: f64, angles: &[f64]| -> Vec<Place> {
            let place = |angle: &f64| (x + radius * angle.to_radians().sin(), y - radius * angle.to_radians().cos());
            angles.iter().map(place).collect()
        };
        let mut filled = |places: &[Place]| {
            let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(self.0, "<polygon points=\"{}\" fill=\"{colour}\" stroke=\"#ffffff\"/>", points.join(" "));
        };
        match row.shape {
            Shape::Triangle => filled(&around(5.5, &[0.0, 120.0, 240.0])),
            Shape::Diamond => filled(&around(6.5, &[0.0, 90.0, 180.0, 270.0])),
            Shape::Square => filled(&around(6.0, &[45.0, 135.0, 225.0, 315.0])),
            Shape::Star => {
                let outer = around(9.0, &[0.0, 72.0, 144.0, 216.0, 288.0]);
                let inner = around(3.8, &[36.0, 108.0, 180.0, 252.0, 324.0]);
                filled(&outer.into_iter().zip(inner).flat_map(|(out, inn)| [out, inn]).collect::<Vec<_>>());
            }
            Shape::Disc => {
                let _ = writeln!(
                    self.0,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.8\" fill=\"{colour}\" stroke=\"#ffffff\"/>"
                );
            }
            Shape::Cross | Shape::Asterisk => {
                let spokes: &[f64] = if row.shape == Shape::Cross { &[45.0, 135.0] } else { &[0.0, 60.0, 120.0] };
                for angle in spokes {
                    let ends = around(4.8, &[*angle, angle + 180.0]);
                    self.path(&ends, colour, "stroke-width=\"1.6\"");
                }
            }
        }
    }

    pub(super) fn done(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// Shortens a text to at most this many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Maps numbers to positions on an axis.
pub(super) struct Ruler {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Ruler {
    /// Maps the range from the smallest to the largest number to a range of pixels.
    pub(super) fn new(scale: Scale, (least, most): (f64, f64), (from, to): Place) -> Self {
        Self { scale, least, most, from, to }
    }

    pub(super) fn place(&self, number: f64) -> f64 {
        let along = |number: f64| if self.scale == Scale::Log { number.max(f64::MIN_POSITIVE).log2() } else { number };
        let (least, most) = (along(self.least), along(self.most));
        // Dividing by two first keeps the difference of the largest floats finite.
        let share = (along(number) / 2.0 - least / 2.0) / (most / 2.0 - least / 2.0);
        let share = if share.is_finite() { share.clamp(-0.1, 1.1) } else { 0.5 };
        self.from + share * (self.to - self.from)
    }
}

/// Returns the ticks of an axis between two numbers: the axis' own ticks, or about five round numbers.
pub(super) fn ticks(axis: &Axis, least: f64, most: f64) -> Vec<Tick> {
    if !axis.ticks.is_empty() {
        return axis.ticks.clone();
    }
    let span = most - least;
    if !(span > 0.0 && span.is_finite()) {
        return Vec::new();
    }
    let step = if axis.unit == Unit::Bytes { (span / 6.0).log2().ceil().exp2() } else { round_step(span / 5.0) };
    let first = (least / step).ceil();
    let tick = |at: u32| first.mul_add(step, step * f64::from(at));
    let all = (0..12).map(tick).take_while(|at| *at <= most + step * 1e-9);
    // A number that is tiny compared with the step is zero.
    let all = all.map(|at| if at.abs() < step * 1e-9 { 0.0 } else { at });
    all.map(|at| Tick { at, text: axis.unit.shown(at) }).collect()
}

/// Returns the smallest of 1, 2 or 5 times a power of ten that is no less than a number.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let rounds = [1.0, 2.0, 5.0, 10.0].into_iter().map(|round| round * power);
    rounds.clone().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(power * 10.0)
}

/// Returns the smallest and the largest of some numbers.
pub(super) fn ends(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = numbers.filter(|number| number.is_finite());
    finite.fold(None, |ends, number| {
        let (least, most) = ends.unwrap_or((number, number));
        Some((f64::min(least, number), f64::max(most, number)))
    })
}
