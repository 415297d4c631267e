//! Draws figures as SVG files, for papers and slides, with the page's data and the colours of its light mode.

mod canvas;
mod points;
mod wide;

use super::figure::{Drawing, Figure};
use canvas::Canvas;

/// Draws a figure as an SVG file.
pub fn svg(figure: &Figure) -> String {
    match &figure.drawing {
        Drawing::Points(points) => points::draw(figure, points),
        Drawing::Bars(bars) => wide::bars(figure, bars),
        Drawing::Parallel(parallel) => wide::parallel(figure, parallel),
    }
}

/// Starts a canvas with the figure's title, and its description for readers who cannot see it.
fn begun(figure: &Figure, width: f64, height: f64) -> Canvas {
    let mut canvas = Canvas::new(width, height, &figure.title, &figure.text);
    let mut title = figure.title.clone();
    if let Some(first) = title.get(..1) {
        title = first.to_uppercase() + title.get(1..).unwrap_or_default();
    }
    canvas.text((16.0, 26.0), &title, "start", "font-weight=\"600\" font-size=\"15\"");
    canvas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::{Axis, Bar, Bars, Line, Mark, Parallel, Points, Series, Strand, Unit};

    fn figure(drawing: Drawing) -> Figure {
        let hostile = "</title><script>alert(1)</script>\u{1b}[31m & \"x\"".to_owned();
        Figure { name: "one".to_owned(), kind: "against", title: hostile.clone(), text: hostile, drawing }
    }

    fn drawings(y: &[Option<f64>]) -> Vec<Drawing> {
        let numbers: Vec<f64> = (1_u32..).take(y.len()).map(f64::from).collect();
        let axis = || Axis::linear("<b>", Unit::Number);
        let none = vec![None; y.len()];
        let series = Series {
            mark: Mark::Failed,
            trials: (1..).take(y.len()).collect(),
            x: numbers.clone(),
            y: y.to_vec(),
            low: none.clone(),
            high: none,
        };
        let line = Some(Line { label: "best".to_owned(), is_steps: true, x: numbers.clone(), y: numbers.clone() });
        let strand =
            Strand { trial: 1, mark: Mark::Best, rank: None, values: vec![y.first().copied().flatten(), None] };
        let bar = Bar {
            trial: 1,
            mark: Mark::Best,
            label: "<i>".repeat(40),
            lengths: vec![0.25, 0.75],
            texts: vec!["a".to_owned(), "b".to_owned()],
        };
        vec![
            Drawing::Points(Points { x: axis(), y: axis(), series: vec![series], line, limits: Vec::new() }),
            Drawing::Bars(Bars { x: axis(), parts: vec!["<u>".to_owned(), "rest".to_owned()], bars: vec![bar] }),
            Drawing::Parallel(Parallel { axes: vec![axis(), axis()], lines: vec![strand] }),
        ]
    }

    #[test]
    fn whatever_is_drawn_no_text_becomes_an_element_and_every_number_is_one() {
        for y in
            [vec![], vec![None], vec![Some(5.0)], vec![Some(0.0), None, Some(-3.0)], vec![Some(1e300), Some(1e-300)]]
        {
            for drawing in drawings(&y) {
                let text = svg(&figure(drawing));
                assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
                for word in ["<script", "<b>", "<i>", "<u>", "\u{1b}", "NaN", "inf\""] {
                    assert!(!text.contains(word), "{word} for {y:?}: {text}");
                }
            }
        }
    }
}
