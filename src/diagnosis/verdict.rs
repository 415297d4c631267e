//! From evidence to a verdict: all that is found, the worst first.

use super::cause::{Basis, Cause, Cure, Found, Kind};
use super::causes::causes;
use super::evidence::Evidence;
use super::openings::{Opening, openable};

/// A cause that was found in a job.
#[derive(Debug, Clone)]
pub struct Diagnosed {
    /// Which cause.
    pub cause: &'static Cause,
    /// The evidence, and what it is worth.
    pub found: Found,
    /// How sure it is, from 0 to 1.
    pub sureness: f64,
    /// What it ranks by.
    score: f64,
}

/// What was found, the worst first.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// The causes.
    pub causes: Vec<Diagnosed>,
    /// How sure the first is, from 0 to 1: less where others disturbed the probes, or another cause is close.
    pub sureness: f64,
}

/// What a bottleneck must be worth to come before `healthy`.
///
/// The promises of the thresholds add up to about this on a good job: 5 % of waiting, 3 % each of other things.
const SLACK: f64 = 1.1;
/// What is taken for a cause whose worth nobody can say.
const UNKNOWN: f64 = 1.15;
const UNKNOWN_VALIDITY: f64 = 1.3;
/// What is at most taken for the worth of what falsifies the measurement: it is an estimate of the most, and must not hide what
/// differential probes measured under the same conditions.
const MOST_VALIDITY: f64 = 1.5;
/// How much more what falsifies the measurement counts.
const VALIDITY: f64 = 1.25;

/// What holds a job back, by what is known of it.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    let mut causes: Vec<Diagnosed> = causes()
        .filter_map(|cause| Some((cause, (cause.find)(evidence)?)))
        .map(|(cause, found)| {
            let sureness = found.sureness();
            let score = score(cause, &found, sureness);
            Diagnosed { cause, found, sureness, score }
        })
        .collect();
    // The table's order decides between equals.
    causes.sort_by(|a, b| b.score.total_cmp(&a.score));
    let sureness = overall(evidence, &causes);
    Verdict { causes, sureness }
}

fn score(cause: &Cause, found: &Found, sureness: f64) -> f64 {
    let times = match (cause.kind, found.worth.times) {
        (Kind::Healthy, _) => SLACK,
        (Kind::Validity, Some(times)) if found.worth.basis != Basis::Measured => times.min(MOST_VALIDITY),
        (_, Some(times)) => times,
        (Kind::Validity, None) => UNKNOWN_VALIDITY,
        (Kind::Bottleneck, None) => UNKNOWN,
    };
    let bonus = if cause.kind == Kind::Validity { VALIDITY } else { 1.0 };
    times.max(1.0).ln() * sureness * bonus
}

/// How sure the first of the causes is.
fn overall(evidence: &Evidence, causes: &[Diagnosed]) -> f64 {
    const CLOSE: f64 = 0.8;
    const AMBIGUOUS: f64 = 0.85;
    const UNSTABLE: f64 = 0.9;
    let Some(first) = causes.first() else { return 0.0 };
    let mut sureness = first.sureness;
    // What others do to the cores falsifies everything but the finding that they do.
    if first.cause.kind != Kind::Validity {
        sureness *= 1.0 - evidence.foreign() / 2.0;
    }
    if evidence.observed.timing.is_unstable {
        sureness *= UNSTABLE;
    }
    if causes.get(1).is_some_and(|second| second.score > CLOSE * first.score) {
        sureness *= AMBIGUOUS;
    }
    sureness
}

impl Diagnosed {
    /// Parameters that are worth opening for this cause, the most promising first.
    pub fn openings(&self, evidence: &Evidence) -> Vec<Opening> {
        self.cause.opens.iter().filter_map(|name| openable(name)?.for_job(evidence)).collect()
    }

    /// What no parameter can cure, as far as it applies to the job.
    pub fn cures(&self, evidence: &Evidence) -> Vec<&'static Cure> {
        self.cause.cures.iter().filter(|cure| (cure.applies)(evidence)).collect()
    }
}

impl Verdict {
    /// The bottleneck, or that there is none; `None` where nothing can be told.
    pub fn top(&self) -> Option<&Diagnosed> {
        self.causes.first()
    }

    /// The other causes that were found, `healthy` left out.
    pub fn others(&self) -> impl Iterator<Item = &Diagnosed> {
        self.causes.iter().skip(1).filter(|diagnosed| diagnosed.cause.kind != Kind::Healthy)
    }

    /// Whether nothing holds the job back.
    pub fn is_healthy(&self) -> bool {
        self.top().is_some_and(|top| top.cause.kind == Kind::Healthy)
    }

    /// How sure it is, in words.
    pub fn how_sure(&self) -> &'static str {
        SURE.iter().find(|(least, _)| self.sureness >= *least).map_or("a guess", |(_, words)| words)
    }

    /// All parameters worth opening: those of the first cause, then those of the others.
    pub fn openings(&self, evidence: &Evidence) -> Vec<Opening> {
        let mut openings: Vec<Opening> = Vec::new();
        for diagnosed in self.top().into_iter().chain(self.others()) {
            for opening in diagnosed.openings(evidence) {
                if openings.iter().all(|known| known.parameter != opening.parameter) {
                    openings.push(opening);
                }
            }
        }
        openings
    }
}

/// How sure a verdict is, in words, from which sureness on.
pub const SURE: &[(f64, &str)] = &[(0.8, "sure"), (0.55, "likely"), (0.0, "a guess")];

#[cfg(test)]
mod tests;
