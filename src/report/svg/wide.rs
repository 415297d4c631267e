//! Draws bars made of parts, and lines over many axes.

use super::begun;
use super::canvas::{ACCENT, BAD, INK, MUTED, Ruler, ends, shortened};
use crate::report::figure::{Bars, Figure, Mark, Parallel, Scale, Strand};

/// Colours that are light enough for black text, from Okabe and Ito if light enough.
const PARTS: &[&str] = &["#e69f00", "#56b4e9", "#35b08b", "#d68fb8", "#efe356", "#7fa6dd", "#c3a58a", "#9ad0c2"];
const REST: &str = "#b9bdc4";

pub(super) fn bars(figure: &Figure, bars: &Bars) -> String {
    const LEFT: f64 = 300.0;
    const RIGHT: f64 = 870.0;
    const STEP: f64 = 30.0;
    let count = u32::try_from(bars.bars.len()).unwrap_or(u32::MAX);
    let bottom = f64::from(count).mul_add(STEP, 46.0);
    let mut canvas = begun(figure, 900.0, bottom + 64.0);
    let across = Ruler::new(Scale::Linear, (0.0, 1.0), (LEFT, RIGHT));
    let colour = |at: usize| if at + 1 == bars.parts.len() { REST } else { PARTS[at % PARTS.len()] };
    for (row, bar) in (0_u32..).zip(&bars.bars) {
        let y = f64::from(row).mul_add(STEP, 46.0);
        canvas.text((LEFT - 10.0, y + 16.0), &shortened(&bar.label, 42), "end", "");
        let mut begin = 0.0;
        for (at, length) in bar.lengths.iter().enumerate() {
            let (from, to) = (across.place(begin), across.place(begin + length));
            canvas.bar((from, y), (to - from - 1.0, STEP - 7.0), colour(at));
            if to - from > 40.0 {
                canvas.text(((from + to) / 2.0, y + 16.0), &format!("{:.0} %", length * 100.0), "middle", "");
            }
            begin += length;
        }
    }
    for at in [0.0, 0.25, 0.5, 0.75, 1.0] {
        canvas.text((across.place(at), bottom + 16.0), &bars.x.unit.shown(at), "middle", &format!("fill=\"{MUTED}\""));
    }
    let mut x = 20.0;
    for (at, part) in bars.parts.iter().enumerate() {
        let part = shortened(&part.replace('_', " "), 24);
        canvas.bar((x, bottom + 36.0), (12.0, 12.0), colour(at));
        canvas.text((x + 18.0, bottom + 46.0), &part, "start", &format!("fill=\"{MUTED}\""));
        let letters = u32::try_from(part.chars().count()).unwrap_or(24);
        x += f64::from(letters).mul_add(6.8, 40.0);
    }
    canvas.done()
}

pub(super) fn parallel(figure: &Figure, parallel: &Parallel) -> String {
    const TOP: f64 = 84.0;
    const BOTTOM: f64 = 372.0;
    let axes = u32::try_from(parallel.axes.len()).unwrap_or(u32::MAX);
    let gap = (640.0 / f64::from(axes.saturating_sub(1).max(1))).max(90.0);
    let width = gap.mul_add(f64::from(axes.saturating_sub(1)), 200.0);
    let mut canvas = begun(figure, width, 430.0);
    let x = |at: usize| u32::try_from(at).map_or(0.0, f64::from).mul_add(gap, 90.0);
    let numbers = |at: usize| parallel.lines.iter().filter_map(move |line| line.values.get(at).copied().flatten());
    let rulers: Vec<Ruler> = (parallel.axes.iter().enumerate())
        .map(|(at, axis)| Ruler::new(axis.scale, ends(numbers(at)).unwrap_or((0.0, 1.0)), (BOTTOM, TOP)))
        .collect();
    for at in 0..rulers.len() {
        canvas.line((x(at), TOP), (x(at), BOTTOM), MUTED, "");
    }
    for line in &parallel.lines {
        let last = rulers.len().saturating_sub(1);
        let height = |(at, (value, ruler)): (usize, (&Option<f64>, &Ruler))| {
            let failed = (at == last && line.rank.is_none()).then_some(BOTTOM + 30.0);
            value.map(|value| ruler.place(value)).or(failed).map(|y| (x(at), y))
        };
        let places: Vec<_> = line.values.iter().zip(&rulers).enumerate().filter_map(height).collect();
        let (colour, more) = look(line);
        canvas.path(&places, colour, more);
    }
    for (at, (axis, ruler)) in parallel.axes.iter().zip(&rulers).enumerate() {
        canvas.text((x(at), TOP - 22.0), &shortened(&axis.label, 18), "middle", "font-weight=\"600\"");
        let mut ticks: Vec<(f64, String)> = axis.ticks.iter().map(|tick| (tick.at, tick.text.clone())).collect();
        if ticks.is_empty() {
            ticks = ends(numbers(at)).into_iter().flat_map(|(a, b)| [a, b]).map(|end| (end, axis.shown(end))).collect();
        }
        for (value, text) in ticks {
            let halo = "stroke=\"#ffffff\" stroke-width=\"4\" paint-order=\"stroke\"";
            canvas.text((x(at) - 6.0, ruler.place(value) + 4.0), &shortened(&text, 11), "end", halo);
        }
    }
    if parallel.lines.iter().any(|line| line.rank.is_none()) {
        canvas.text((width - 104.0, BOTTOM + 34.0), "failed", "start", &format!("fill=\"{BAD}\""));
    }
    canvas.done()
}

/// Returns the style of a line: the best stands out, failures are dashed.
fn look(line: &Strand) -> (&'static str, &'static str) {
    match (line.mark, line.rank) {
        (Mark::Best, _) => (ACCENT, "stroke-width=\"3\""),
        (Mark::Baseline, _) => (INK, "stroke-width=\"2\" stroke-dasharray=\"8 3\""),
        (_, None) => (BAD, "stroke-dasharray=\"3 4\" stroke-opacity=\"0.5\""),
        (_, Some(rank)) if rank >= 0.9 => (ACCENT, "stroke-opacity=\"0.6\""),
        _ => (MUTED, "stroke-opacity=\"0.3\""),
    }
}
