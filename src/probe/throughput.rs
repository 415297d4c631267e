//! From step times to a throughput: what is warm-up, what is left out, and what the rest comes to.

use std::collections::BTreeMap;
use std::time::Duration;

use super::window::Observation;
use crate::outcome::{Estimate, Outliers};
use crate::stats::{self, MeanRate, Work};

/// The mark of a step that ends an epoch, after which a loader fills its queue again.
const EPOCH: &str = "epoch";

/// What isolated slow steps are called where nobody says what happened in them.
const OTHER: &str = "other";

/// What a window comes to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Throughput {
    /// The mean over the window, with its 95 % interval.
    pub(super) estimate: Estimate,
    pub(super) rate: MeanRate,
    /// Steps that the estimate rests on.
    pub(super) steps: u64,
    /// Steps before them that were dropped.
    pub(super) warmup_steps: u64,
    /// Steps after warm-up that were left out, by what happened in them.
    pub(super) outliers: BTreeMap<String, Outliers>,
    /// Mean seconds per step.
    pub(super) step_seconds: f64,
    /// Median of the work per step.
    pub(super) amount: f64,
    /// Time from the end of warm-up to the last step, whatever happened in it.
    pub(super) measured: Duration,
}

impl Throughput {
    /// The throughput of observations; `kinds` are the names of their marks.
    pub(super) fn of(observations: &[Observation], kinds: &[String]) -> Option<Self> {
        let mut left_out = marked(observations, kinds);
        let regular: Vec<usize> = (0..observations.len()).filter(|&at| left_out[at].is_none()).collect();
        let times = times(observations, &regular);
        let largest = stats::isolated_above(&times);
        let middle = stats::median(&times)?;
        for (&at, &time) in regular.iter().zip(&times) {
            // A long wait for data outside an epoch's end is a burst of the loader, and part of the rate.
            let is_wait = observations[at].waited >= (1.0 - middle / time) * observations[at].work.seconds / 2.0;
            if largest.is_some_and(|largest| time > largest) && !(observations[at].waited > 0.0 && is_wait) {
                left_out[at] = Some(OTHER);
            }
        }
        let cut = stats::warmup_length(&times, largest.unwrap_or(f64::INFINITY));
        let cut = behind_early_ones(regular.get(cut).copied()?, &left_out);
        let steady: Vec<usize> = (cut..observations.len()).filter(|&at| left_out[at].is_none()).collect();
        let works: Vec<Work> = steady.iter().map(|&at| observations[at].work).collect();
        let rate = MeanRate::of(&works)?;
        let estimate = match rate.interval(0.95) {
            Some((low, high)) => Estimate::interval(rate.rate, low, high),
            None => Estimate::point(rate.rate),
        };
        let steps: u64 = steady.iter().map(|&at| observations[at].steps).sum();
        let last = observations.last()?;
        let begin = match cut.checked_sub(1) {
            Some(before) => observations[before].at,
            None => observations[0].at - observations[0].work.seconds,
        };
        let amounts: Vec<f64> =
            steady.iter().map(|&at| observations[at].work.amount / count(observations[at].steps)).collect();
        Some(Self {
            estimate,
            rate,
            steps,
            warmup_steps: observations[..cut].iter().map(|step| step.steps).sum(),
            outliers: outliers(&observations[cut..], &left_out[cut..]),
            step_seconds: works.iter().map(|work| work.seconds).sum::<f64>() / count(steps),
            amount: stats::median(&amounts)?,
            measured: Duration::try_from_secs_f64(last.at - begin).unwrap_or_default(),
        })
    }

    /// Whether warm-up is known to be over: a cut at half of the steps may have to be moved on.
    pub(super) fn is_settled(&self) -> bool {
        self.warmup_steps < self.steps
    }

    /// Steps from the end of warm-up on, those that were left out included.
    pub(super) fn steps_after_warmup(&self) -> u64 {
        self.steps + self.outliers.values().map(|outliers| outliers.steps).sum::<u64>()
    }
}

/// What each step is left out for, as far as its marks say.
///
/// A marked step is left out however long it took: to leave out only the slow ones would make the mean too good. Where
/// more than a quarter of all steps have a mark it is no exception, and they count.
fn marked<'k>(observations: &[Observation], kinds: &'k [String]) -> Vec<Option<&'k str>> {
    const MOST: u64 = 4;
    let all: u64 = observations.iter().map(|step| step.steps).sum();
    let is_rare: Vec<bool> = (0..kinds.len())
        .map(|kind| {
            let of_it = observations.iter().filter(|step| step.mark == Some(kind)).map(|step| step.steps);
            of_it.sum::<u64>() * MOST <= all
        })
        .collect();
    let kind = |step: &Observation| step.mark.filter(|&kind| is_rare[kind]).map(|kind| kinds[kind].as_str());
    let mut left_out: Vec<Option<&str>> = observations.iter().map(kind).collect();
    leave_out_refills(observations, &mut left_out);
    left_out
}

/// Adds the steps right after an epoch's end while they take a time that steps elsewhere do not take: a loader that
/// starts anew is slow at first, or fast, until its queue is as full as ever.
fn leave_out_refills(observations: &[Observation], left_out: &mut [Option<&str>]) {
    /// The queue of a loader with many workers.
    const LONGEST: usize = 64;
    /// The share at each end of the other steps' times that counts as unusual.
    const UNUSUAL: f64 = 0.01;
    if !left_out.contains(&Some(EPOCH)) {
        return;
    }
    let regular: Vec<usize> = (0..observations.len()).filter(|&at| left_out[at].is_none()).collect();
    let mut sorted = times(observations, &regular);
    let by_place = sorted.clone();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place")]
    let edge = (sorted.len() as f64 * UNUSUAL) as usize;
    let Some((&low, &high)) = sorted.get(edge).zip(sorted.get(sorted.len().wrapping_sub(edge + 1))) else { return };
    let mut time = vec![f64::NAN; observations.len()];
    regular.iter().zip(by_place).for_each(|(&at, seconds)| time[at] = seconds);
    let mut since = LONGEST;
    for at in 0..observations.len() {
        match left_out[at] {
            Some(EPOCH) => since = 0,
            Some(_) => {}
            None if since < LONGEST && (time[at] < low || time[at] > high) => {
                left_out[at] = Some(EPOCH);
                since += 1;
            }
            None => since = LONGEST,
        }
    }
}

/// Seconds per work of some steps; one that did nothing counts as if it had done a little.
fn times(observations: &[Observation], places: &[usize]) -> Vec<f64> {
    const LITTLE: f64 = 1e-3;
    let all: f64 = places.iter().map(|&at| observations[at].work.amount).sum();
    let least = (all / count(places.len().max(1) as u64) * LITTLE).max(f64::MIN_POSITIVE);
    places.iter().map(|&at| observations[at].work.seconds / observations[at].work.amount.max(least)).collect()
}

/// The cut moved behind slow steps that stand alone among the first: what is set up once is warm-up.
fn behind_early_ones(cut: usize, left_out: &[Option<&str>]) -> usize {
    const EARLY: usize = 10;
    let early = cut.max(left_out.len() / EARLY);
    (cut..early).rev().find(|&at| left_out[at] == Some(OTHER)).map_or(cut, |at| at + 1)
}

fn outliers(observations: &[Observation], left_out: &[Option<&str>]) -> BTreeMap<String, Outliers> {
    let mut found: BTreeMap<String, Outliers> = BTreeMap::new();
    for (step, kind) in observations.iter().zip(left_out) {
        let Some(kind) = kind else { continue };
        let entry = found.entry((*kind).to_owned()).or_default();
        entry.steps += step.steps;
        entry.seconds += step.work.seconds;
    }
    found
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(number: u64) -> f64 {
    number as f64
}
