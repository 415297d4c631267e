//! Keeps the readings of one GPU in order of time.

use std::time::{Duration, Instant};

use nvml_wrapper::GpmSample;

use super::Window;
use super::ask::Told;

/// The most readings that are kept; at this number, every other reading of the older half is dropped.
const KEPT: usize = 512;

/// Counters. They are read often, so that a reading is near each end of the measured window, which becomes known only
/// afterwards.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) at: Instant,
    /// Joules since the driver was loaded.
    pub(super) energy: Told<f64>,
    /// Seconds since then in which power, and heat, limited the clocks.
    pub(super) by_power: Told<f64>,
    pub(super) by_heat: Told<f64>,
    pub(super) gpm: Option<GpmSample<'static>>,
}

/// States, read about once a second.
#[derive(Debug)]
pub(super) struct States {
    pub(super) at: Instant,
    pub(super) memory: Told<Memory>,
    /// Processes with the memory that each holds, in bytes, if reported.
    pub(super) processes: Told<Vec<(u32, Option<u64>)>>,
    /// Watts.
    pub(super) power: Told<f64>,
    /// Megahertz.
    pub(super) sm_clock: Told<f64>,
    pub(super) memory_clock: Told<f64>,
    /// The reasons for low clocks, as bits; see [`super::changes`].
    pub(super) reasons: Told<u64>,
    /// The share of the last sample period in which some kernel ran.
    pub(super) busy: Told<f64>,
    /// The share of time in which kernels of a process ran.
    pub(super) shares: Told<Vec<(u32, f64)>>,
}

/// The memory of a GPU, in bytes, without the driver's own memory if that is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) used: u64,
    pub(super) total: u64,
}

/// Adds a reading.
pub(super) fn keep<T>(looks: &mut Vec<T>, look: T) {
    if looks.len() >= KEPT {
        let mut place = 0;
        looks.retain(|_| {
            place += 1;
            place > KEPT / 2 || place % 2 == 1
        });
    }
    looks.push(look);
}

/// Returns how far outside a window a reading may be to count as part of it.
fn margin(window: Window) -> Duration {
    const LEAST: Duration = Duration::from_millis(100);
    LEAST.max(window.length() / 10)
}

/// Returns the readings nearest to the ends of a window, if they are outside by no more than the [`margin`] and cover
/// at least half of it.
pub(super) fn ends<T>(looks: &[T], at: impl Fn(&T) -> Instant, window: Window) -> Option<(&T, &T)> {
    /// NVML refreshes GPM's samples no faster than this (nvml.h, `nvmlGpmMetricsGet`).
    const SHORTEST: Duration = Duration::from_millis(100);
    let margin = margin(window);
    let inside = |look: &&T| {
        let time = at(look);
        time + margin >= window.begin && time <= window.end + margin
    };
    let first = looks.iter().find(inside)?;
    let last = looks.iter().rev().find(inside)?;
    let between = at(last).saturating_duration_since(at(first));
    (between >= SHORTEST.max(window.length() / 2)).then_some((first, last))
}

/// Returns the readings within a window, or else the last reading before its end.
pub(super) fn within(looks: &[States], window: Window) -> Vec<&States> {
    let margin = margin(window);
    let inside = |look: &&States| look.at + margin >= window.begin && look.at <= window.end + margin;
    let found: Vec<&States> = looks.iter().filter(inside).collect();
    if found.is_empty() { looks.iter().rev().find(|look| look.at <= window.end).into_iter().collect() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_looks_at_both_ends_cover_the_window() {
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let looks: Vec<Instant> = (0..20).map(|number| at(number * 200)).collect();
        let of = |from: u64, to: u64| {
            let found = ends(&looks, |look| *look, Window { begin: at(from), end: at(to) });
            found.map(|(first, last)| ((*first - begin).as_millis(), (*last - begin).as_millis()))
        };
        assert_eq!(of(1000, 3000), Some((800, 3200)));
        assert_eq!(of(1050, 2990), Some((1000, 3000)));
        assert_eq!(of(1090, 1590), Some((1000, 1600)));
        assert_eq!(of(1110, 1290), None, "too short");
        assert_eq!(of(3500, 9000), None, "the looks end long before it");
    }

    #[test]
    fn old_looks_are_thinned() {
        let mut looks = Vec::new();
        (0..2000).for_each(|number| keep(&mut looks, number));
        assert!(looks.len() <= KEPT && looks.is_sorted());
        assert_eq!((looks[0], looks[looks.len() - 1]), (0, 1999));
    }
}
