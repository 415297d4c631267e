//! Turns evidence into a verdict: all causes found, the worst first.

use super::account::{Account, Branch, Leaf};
use super::cause::{Basis, Cause, Cure, Found, Kind, Strength, Worth, shown_share};
use super::causes::causes;
use super::evidence::Evidence;
use super::openings::{Opening, openable};
use super::starvation::WAIT;

/// A cause that was found in a job.
#[derive(Debug, Clone)]
pub struct Diagnosed {
    /// The cause.
    pub cause: &'static Cause,
    /// Its evidence and its worth.
    pub found: Found,
    /// The confidence in the cause, from 0 to 1.
    pub sureness: f64,
    /// The number that ranks the causes.
    score: f64,
}

/// The causes that were found, the worst first.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// The causes.
    pub causes: Vec<Diagnosed>,
    /// The confidence in the first cause, from 0 to 1; lower if the probes were disturbed or unstable, or if another cause is close.
    pub sureness: f64,
}

/// The worth that a bottleneck needs to rank before `healthy`.
///
/// A good job still loses 5% to waiting and 3% to each of a few other causes, below their thresholds. Without these
/// losses, it would be about this much faster.
const SLACK: f64 = 1.1;
/// Stand-ins for an unknown worth: of a bottleneck, and of a cause that falsifies the measurement. Round numbers: the
/// first is a little above [`SLACK`], the second is larger.
const UNKNOWN: f64 = 1.15;
const UNKNOWN_VALIDITY: f64 = 1.3;
/// The cap on the estimated worth of a cause that falsifies the measurement: a round number. Such an estimate is an upper bound.
/// Without the cap, it could hide causes that differential probes measured under the same conditions.
const MOST_VALIDITY: f64 = 1.5;
/// The factor on the score of causes that falsify the measurement: a round number.
const VALIDITY: f64 = 1.25;

/// Finds the causes that hold a job back, from the evidence.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    let mut causes: Vec<Diagnosed> = causes()
        .filter_map(|cause| Some((cause, (cause.find)(evidence)?)))
        .map(|(cause, mut found)| {
            found.worth = of_run(evidence, cause, found.worth);
            let sureness = found.sureness();
            let score = score(cause, &found, sureness);
            Diagnosed { cause, found, sureness, score }
        })
        .collect();
    // The sort is stable: equal scores keep the order of the table.
    causes.sort_by(|a, b| b.score.total_cmp(&a.score));
    let sureness = overall(evidence, &causes);
    Verdict { causes, sureness }
}

/// Converts a worth to the whole run: faster steps shorten only the time within steps.
///
/// A worth comes from rates without marked steps, such as steps with an evaluation.
fn of_run(evidence: &Evidence, cause: &Cause, worth: Worth) -> Worth {
    let is_left_out =
        |leaf: &&Leaf| evidence.observed.timing.outliers.contains_key(leaf.name.trim_end_matches("_edge"));
    let Some(account) = Account::of(evidence).filter(|_| !cause.is_outside()) else { return worth };
    let leaves = account.leaves.iter().filter(|leaf| leaf.branch == Branch::Outside);
    let outside: f64 = leaves.filter(is_left_out).map(|leaf| leaf.share_after_start).sum();
    if outside < WAIT.value {
        return worth;
    }
    let of_all = |times: f64| 1.0 / (outside + (1.0 - outside) / times);
    let words = format!("{}; {} of the time is outside of steps", worth.words, shown_share(outside));
    let (times, by_parameters) = (worth.times.map(of_all), worth.by_parameters.map(of_all));
    Worth { times, by_parameters, words, ..worth }
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

/// Returns the confidence in the first cause.
fn overall(evidence: &Evidence, causes: &[Diagnosed]) -> f64 {
    /// Round numbers. A second score above this share of the first is close; the factors lower the confidence if it is, or if
    /// probes vary.
    const CLOSE: f64 = 0.8;
    const AMBIGUOUS: f64 = 0.85;
    const UNSTABLE: f64 = 0.9;
    let Some(first) = causes.first() else { return 0.0 };
    let mut sureness = first.sureness;
    // Other programs on the cores make every finding less sure, except causes that falsify the measurement.
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
    /// Returns the parameters that are worth searching for this cause, the most promising first.
    pub fn openings(&self, evidence: &Evidence) -> Vec<Opening> {
        self.cause.opens.iter().filter_map(|name| openable(name)?.for_job(evidence)).collect()
    }

    /// Returns the remedies that are not parameters and apply to the job.
    pub fn cures(&self, evidence: &Evidence) -> Vec<&'static Cure> {
        self.cause.cures.iter().filter(|cure| (cure.applies)(evidence)).collect()
    }
}

impl Verdict {
    /// Returns the first cause, which may be `healthy`; `None` if none was found.
    pub fn top(&self) -> Option<&Diagnosed> {
        self.causes.first()
    }

    /// Returns the other causes found, without `healthy`.
    pub fn others(&self) -> impl Iterator<Item = &Diagnosed> {
        self.causes.iter().skip(1).filter(|diagnosed| diagnosed.cause.kind != Kind::Healthy)
    }

    /// Returns true if nothing holds the job back.
    pub fn is_healthy(&self) -> bool {
        self.top().is_some_and(|top| top.cause.kind == Kind::Healthy)
    }

    /// Returns the confidence in words.
    pub fn how_sure(&self) -> &'static str {
        SURE.iter().find(|(least, _)| self.sureness >= *least).map_or("low confidence", |(_, words)| words)
    }

    /// Returns all parameters worth searching, first for the first cause, then for the other causes.
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

/// Words for the confidence in a verdict, each with its lowest confidence: that of one proof, of one strong piece of evidence, and
/// zero.
pub const SURE: &[(f64, &str)] = &[
    (Strength::Proof.weight(), "high confidence"),
    (Strength::Strong.weight(), "medium confidence"),
    (0.0, "low confidence"),
];

#[cfg(test)]
mod tests;
