//! Draws points in a plane, with their intervals.

use super::begun;
use super::canvas::{ACCENT, BAD, Canvas, GRID, INK, MUTED, Ruler, ends, shortened, ticks};
use crate::report::figure::{Figure, MARKS, Points, Scale};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 736.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 360.0;
/// The distance of the outermost points from the frame.
const INSET: f64 = 22.0;

pub(super) fn draw(figure: &Figure, points: &Points) -> String {
    let mut canvas = begun(figure, WIDTH, HEIGHT);
    let xs = points.series.iter().flat_map(|series| series.x.iter().copied());
    let (first, last) = ends(xs).unwrap_or((0.0, 1.0));
    let across = Ruler::new(points.x.scale, (first, last), (LEFT + INSET, RIGHT - INSET));
    let (least, most) = heights(points);
    let has_failed = points.series.iter().any(|series| series.y.iter().any(Option::is_none));
    let is_top = figure.kind == "memory";
    // Points without a number are drawn in a separate strip.
    let strip = if has_failed { 26.0 } else { 0.0 };
    let (low, high) = if is_top { (BOTTOM, TOP + strip) } else { (BOTTOM - strip, TOP) };
    let up = Ruler::new(Scale::Linear, (least, most), (low, high));
    let edge = if is_top { TOP + 8.0 } else { BOTTOM - 9.0 };
    for tick in ticks(&points.y, least, most) {
        let y = up.place(tick.at);
        canvas.line((LEFT, y), (RIGHT, y), GRID, "");
        canvas.text((LEFT - 8.0, y + 4.0), &tick.text, "end", "");
    }
    canvas.line((LEFT, BOTTOM), (RIGHT, BOTTOM), MUTED, "");
    canvas.text((LEFT - 60.0, TOP - 14.0), &points.y.label, "start", &fill(MUTED));
    across_ticks(points, &across, (first, last), &mut canvas);
    for limit in &points.limits {
        let y = up.place(limit.at);
        canvas.line((LEFT, y), (RIGHT, y), BAD, "stroke-dasharray=\"6 4\"");
        canvas.text((RIGHT, y - 5.0), &limit.label, "end", &fill(BAD));
    }
    for series in &points.series {
        let colour = series.mark.row().map_or(INK, |row| row.colour);
        for ((x, low), high) in series.x.iter().zip(&series.low).zip(&series.high) {
            let Some((low, high)) = low.zip(*high) else { continue };
            let x = across.place(*x);
            let (low, high) = (up.place(low.max(least)), up.place(high.min(most)));
            canvas.line((x, low), (x, high), colour, "stroke-opacity=\"0.6\"");
        }
    }
    if let Some(line) = &points.line {
        let mut places = Vec::new();
        for (x, y) in line.x.iter().zip(&line.y) {
            let place = (across.place(*x), up.place(*y));
            let before = places.last().copied().filter(|_| line.is_steps);
            places.extend(before.map(|(_, height)| (place.0, height)));
            places.push(place);
        }
        canvas.path(&places, ACCENT, "stroke-width=\"1.5\" stroke-opacity=\"0.75\"");
    }
    for series in &points.series {
        for (x, y) in series.x.iter().zip(&series.y) {
            canvas.mark((across.place(*x), y.map_or(edge, |y| up.place(y))), series.mark);
        }
    }
    legend(points, &mut canvas);
    canvas.done()
}

fn fill(colour: &str) -> String {
    format!("fill=\"{colour}\"")
}

/// Returns the range of the axis. It holds all measured values; intervals are cut off if the values would become unreadable.
fn heights(points: &Points) -> (f64, f64) {
    let measured = points.series.iter().flat_map(|series| series.y.iter().flatten().copied());
    let others = points.limits.iter().map(|limit| limit.at);
    let lines = points.line.iter().flat_map(|line| line.y.iter().copied());
    let Some((mut least, mut most)) = ends(measured.chain(others).chain(lines)) else { return (0.0, 1.0) };
    let reach = (most - least) * 0.6;
    let intervals = points.series.iter().flat_map(|series| series.low.iter().chain(&series.high).flatten().copied());
    if let Some((low, high)) = ends(intervals) {
        (least, most) = (least.min(low.max(least - reach)), most.max(high.min(most + reach)));
    }
    if least > 0.0 && least < most * 0.7 {
        least = 0.0;
    }
    if least < most {
        return (least, most + (most - least) * 0.04);
    }
    let around = if least == 0.0 { 1.0 } else { least.abs() * 0.1 };
    (least - around, most + around)
}

fn across_ticks(points: &Points, across: &Ruler, (first, last): (f64, f64), canvas: &mut Canvas) {
    let ticks = ticks(&points.x, first, last);
    let many = u32::try_from(ticks.len()).unwrap_or(u32::MAX).max(1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few characters")]
    let room = ((RIGHT - LEFT) / f64::from(many) / 7.0).max(4.0) as usize;
    for tick in ticks {
        let x = across.place(tick.at);
        canvas.line((x, BOTTOM), (x, BOTTOM + 5.0), MUTED, "");
        canvas.text((x, BOTTOM + 19.0), &shortened(&tick.text, room), "middle", "");
    }
    canvas.text((RIGHT, BOTTOM + 38.0), &points.x.label, "end", &fill(MUTED));
}

fn legend(points: &Points, canvas: &mut Canvas) {
    let mut x = LEFT;
    for row in MARKS.iter().filter(|row| points.series.iter().any(|series| series.mark == row.mark)) {
        canvas.mark((x, HEIGHT - 20.0), row.mark);
        canvas.text((x + 12.0, HEIGHT - 16.0), row.label, "start", &fill(MUTED));
        #[expect(clippy::cast_precision_loss, reason = "a few letters")]
        let width = row.label.len() as f64;
        x += width.mul_add(6.6, 34.0);
    }
    if let Some(line) = &points.line {
        canvas.line((x, HEIGHT - 20.0), (x + 16.0, HEIGHT - 20.0), ACCENT, "stroke-width=\"1.5\"");
        canvas.text((x + 22.0, HEIGHT - 16.0), &line.label, "start", &fill(MUTED));
    }
}
