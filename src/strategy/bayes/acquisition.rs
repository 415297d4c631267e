//! Which of the candidates is worth most: the expected improvement, times the chance that the config runs.

use super::candidates::Chunk;
use super::feasibility::Feasibility;
use super::kernel::Factor;
use super::normal::{exp, ln, ln_expected_improvement};
use super::process::{Belief, Process};
use crate::space::Config;

/// Adds other means that a config may have, as differences, with the chance of each.
pub(super) type Others<'m> = dyn Fn(&Config, &mut Vec<(f64, f64)>) + 'm;

/// What is known when candidates are compared.
pub(super) struct Judge<'m> {
    pub(super) process: &'m Process<'m>,
    pub(super) feasibility: Option<(&'m Feasibility, &'m Process<'m>)>,
    /// The best standardised value so far.
    pub(super) best: f64,
    /// What the process's mean is added to, and the variance of that.
    pub(super) offset: &'m dyn Fn(&Config) -> (f64, f64),
    /// The chance that a config fits into memory, which is apart from that of failing otherwise.
    pub(super) fits: &'m dyn Fn(&Config) -> f64,
    /// By how much the mean may be another, and how likely each of these is; the rest of one is the chance that it is not.
    pub(super) others: &'m Others<'m>,
    /// Whether there may be other means.
    pub(super) is_unsure: bool,
}

/// The candidate that is worth most.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) config: Config,
    pub(super) belief: Belief,
    /// The chance that it runs.
    pub(super) chance: f64,
    /// The part of this that is the chance to fit into memory.
    pub(super) fits: f64,
    /// The expected improvement in standard units, failures counting as none.
    pub(super) improvement: f64,
}

/// Candidates whose deviation is computed in full; it costs far more than a bound of it.
const MOST_EXACT: usize = 3000;
/// The same where other means are weighed, which takes longer.
const MOST_WEIGHED: usize = 1000;

/// What the chance to fit into memory adds to the logarithm of a worth. To run out of memory costs more than a probe that
/// gains nothing: it takes as long, says less, and may take other work on the device with it. So the chance counts twice;
/// and what hardly fits comes behind all that may.
pub(super) fn risk(fits: f64) -> f64 {
    const HARDLY: f64 = 0.05;
    const LAST: f64 = -1e6;
    2.0 * ln(fits) + if fits < HARDLY { LAST } else { 0.0 }
}

/// A candidate with a bound of its worth.
struct Bounded {
    bound: f64,
    chunk: usize,
    at: usize,
}

impl Judge<'_> {
    /// The best of the open candidates.
    ///
    /// A quick bound of each one's worth comes first. The true worth is computed from the highest bound down, until no
    /// bound reaches what was found: the same candidate as if all were computed, unless that takes too long.
    pub(super) fn choose(&self, chunks: &[Chunk], mut is_open: impl FnMut(&Config) -> bool) -> Option<Choice> {
        let mut waiting = self.bounds(chunks, &mut is_open);
        waiting.sort_unstable_by(|a, b| b.bound.total_cmp(&a.bound).then((a.chunk, a.at).cmp(&(b.chunk, b.at))));
        let mut prepared: Vec<Option<Prepared>> = chunks.iter().map(|_| None).collect();
        let mut best: Option<(f64, Choice)> = None;
        let most = if self.is_unsure { MOST_WEIGHED } else { MOST_EXACT };
        for candidate in waiting.iter().take(most) {
            if best.as_ref().is_some_and(|(top, _)| candidate.bound <= *top) {
                break;
            }
            let chunk = &chunks[candidate.chunk];
            let prepared = prepared[candidate.chunk].get_or_insert_with(|| self.prepare(chunk));
            let (worth, choice) = self.worth(chunk, prepared, candidate.at);
            if best.as_ref().is_none_or(|(top, _)| worth > *top) {
                best = Some((worth, choice));
            }
        }
        best.map(|(_, choice)| choice)
    }

    fn bounds(&self, chunks: &[Chunk], is_open: &mut impl FnMut(&Config) -> bool) -> Vec<Bounded> {
        let mut bounds = Vec::new();
        let mut along = Vec::new();
        for (number, chunk) in chunks.iter().enumerate() {
            let factors = self.process.factors(&chunk.points);
            for (at, config) in chunk.configs.iter().enumerate() {
                if is_open(config) {
                    let (offset, variance) = (self.offset)(config);
                    let mean = self.process.mean(&factors, chunk.points.point(at), &mut along) + offset;
                    let widest = self.process.widest(&along);
                    let widest = (widest * widest + variance).sqrt();
                    let bound = ln_expected_improvement(mean, widest, self.best) + risk((self.fits)(config));
                    bounds.push(Bounded { bound, chunk: number, at });
                }
            }
        }
        bounds
    }

    fn prepare(&self, chunk: &Chunk) -> Prepared {
        let feasibility = self.feasibility.map(|(_, process)| process.factors(&chunk.points));
        Prepared { values: self.process.factors(&chunk.points), feasibility }
    }

    fn worth(&self, chunk: &Chunk, prepared: &Prepared, at: usize) -> (f64, Choice) {
        let point = chunk.points.point(at);
        let mut belief = self.process.belief(&prepared.values, point);
        let (offset, _) = (self.offset)(&chunk.configs[at]);
        belief.mean += offset;
        let chance = match (self.feasibility, &prepared.feasibility) {
            (Some((feasibility, process)), Some(factors)) => feasibility.chance(process, factors, point),
            _ => 1.0,
        };
        let fits = (self.fits)(&chunk.configs[at]);
        let chance = chance * fits;
        let mut others = Vec::new();
        (self.others)(&chunk.configs[at], &mut others);
        let expected = |shift: f64| ln_expected_improvement(belief.mean + shift, belief.deviation, self.best);
        let improvement = if others.is_empty() {
            expected(0.0)
        } else {
            let own = 1.0 - others.iter().map(|(_, weight)| weight).sum::<f64>();
            let all = others.iter().map(|(shift, weight)| weight * exp(expected(*shift))).sum::<f64>();
            ln(all + own.max(0.0) * exp(expected(0.0)))
        };
        let gain = improvement + ln(chance);
        let worth = gain + risk(fits) - ln(fits);
        (worth, Choice { config: chunk.configs[at].clone(), belief, chance, fits, improvement: exp(gain) })
    }
}

/// The kernel factors of a chunk.
struct Prepared {
    values: Vec<Factor>,
    feasibility: Option<Vec<Factor>>,
}
