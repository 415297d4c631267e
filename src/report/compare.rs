//! Compares two studies: the best config of each, and each config that both measured.
//!
//! The studies were measured independently, so their errors are too. On a logarithmic scale, half the width of a
//! ratio's interval is the root of the summed squares of both relative half-widths (JCGM 100:2008, 5.1.2).

use std::collections::HashMap;

use serde::Serialize;

use super::redact::redacted;
use crate::model::{Direction, Estimate, Goal, GpuUse, Parameter, Settings, Trial};
use crate::search::{Kept, Study};

/// One of the two searches; its name is the folder as the user gave it.
#[derive(Debug, Clone, Copy)]
pub struct Side<'s> {
    /// The name.
    pub name: &'s str,
    /// The search.
    pub kept: &'s Kept,
}

/// The comparison of two studies; `a` is the earlier one, or the reference. `docs/design/json.md` describes its JSON.
#[derive(Debug, Serialize)]
pub struct Comparison {
    format: u32,
    /// The compared metric: the objective of both studies, or throughput if their objectives differ or have several metrics.
    #[serde(flatten)]
    pub(super) goal: Goal,
    pub(super) a: SideReport,
    pub(super) b: SideReport,
    /// How many times better the best of B is than the best of A: B/A, or A/B if less is better.
    pub(super) speedup: Option<Estimate>,
    pub(super) change: Option<Change>,
    /// Configs that both studies measured, the largest gains first.
    pub(super) configs: Vec<Both>,
    /// Configs that one study measured and the other could not measure.
    pub(super) lost: Vec<Lost>,
    /// The number of configs that only the first study probed, and that only the second probed.
    pub(super) alone: (usize, usize),
    /// The differences between the searches and their jobs, one sentence each.
    pub(super) differences: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct SideReport {
    pub(super) name: String,
    pub(super) device: String,
    pub(super) driver: String,
    pub(super) gputune_version: String,
    /// The number of probes, without rounds.
    pub(super) probes: usize,
    /// The number of probes without a measurement.
    pub(super) failed: usize,
    pub(super) elapsed_s: f64,
    pub(super) stopped_because: String,
    pub(super) best: Option<BestOfSide>,
    /// The speedup of the best config over the study's own baseline.
    pub(super) over_baseline: Option<Estimate>,
}

#[derive(Debug, Serialize)]
pub(super) struct BestOfSide {
    pub(super) config: Settings,
    /// The value of the compared metric.
    pub(super) estimate: Option<Estimate>,
    /// The unit of the throughput.
    pub(super) unit: String,
    pub(super) peak_memory_bytes: Option<u64>,
    pub(super) memory_headroom: Option<f64>,
    /// Share of a step that waited for data.
    pub(super) data_wait: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) gpus: Vec<GpuUse>,
}

/// The comparison of a ratio with 1.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    /// The whole interval is above 1.
    Better,
    /// The whole interval is below 1.
    Worse,
    /// The interval contains 1.
    WithinNoise,
    /// There is no interval.
    Unknown,
}

/// A config that both studies measured.
#[derive(Debug, Serialize)]
pub(super) struct Both {
    pub(super) config: Settings,
    pub(super) a: Estimate,
    pub(super) b: Estimate,
    /// How many times better the second value is than the first: B/A, or A/B if less is better.
    pub(super) ratio: Estimate,
    pub(super) change: Change,
    /// The roles of the config: `best of A`, `best of B` or `best of both`, and `baseline` if it is one in either study.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) marks: Vec<&'static str>,
}

/// A config that one study measured and that failed or was infeasible in the other.
#[derive(Debug, Serialize)]
pub(super) struct Lost {
    pub(super) config: Settings,
    /// The study in which it failed: `A` or `B`.
    pub(super) failed_in: char,
    pub(super) reason: String,
}

struct Entry {
    config: Settings,
    estimate: Estimate,
}

impl Comparison {
    /// Compares two studies.
    pub fn of(a: &Side<'_>, b: &Side<'_>) -> Self {
        let (study_a, study_b) = (&a.kept.study, &b.kept.study);
        let goal = goal_of(study_a, study_b);
        let shared = shared_names(study_a, study_b);
        let (ours, theirs) = (entries(study_a, &goal, &shared), entries(study_b, &goal, &shared));
        let (report_a, report_b) = (side(a, &goal.metric), side(b, &goal.metric));
        let numbers = |side: &SideReport| side.best.as_ref().and_then(|best| best.estimate);
        let speedup = numbers(&report_a).zip(numbers(&report_b)).and_then(|(a, b)| times_better(goal.direction, a, b));
        let at: HashMap<String, &Entry> = theirs.iter().map(|entry| (entry.config.line(), entry)).collect();
        let mut configs: Vec<Both> = Vec::new();
        for entry in &ours {
            let Some(other) = at.get(&entry.config.line()) else { continue };
            let Some(ratio) = times_better(goal.direction, entry.estimate, other.estimate) else { continue };
            let marks = marks(&entry.config, [(study_a, &report_a), (study_b, &report_b)], &shared);
            let (config, change) = (entry.config.clone(), change(ratio));
            configs.push(Both { config, a: entry.estimate, b: other.estimate, ratio, change, marks });
        }
        configs.sort_by(|one, other| other.ratio.value.total_cmp(&one.ratio.value));
        let mut lost = lost(&ours, study_b, 'B', &shared);
        lost.extend(self::lost(&theirs, study_a, 'A', &shared));
        let alone = (alone(study_a, study_b, &shared), self::alone(study_b, study_a, &shared));
        let differences = differences(a, b);
        let change = speedup.map(change);
        Self { format: 1, goal, a: report_a, b: report_b, speedup, change, configs, lost, alone, differences }
    }

    /// Returns the reason if B is a regression: B has no best config though A has one, or B's best is worse by more
    /// than the share `most` and not within the noise. A ratio without an interval counts as outside the noise.
    pub fn regression(&self, most: f64) -> Option<String> {
        let ratio = match (&self.a.best, &self.b.best) {
            (None, _) => return None,
            (Some(_), None) => return Some("B found nothing feasible, and A did".to_owned()),
            (Some(_), Some(_)) => self.speedup?,
        };
        let is_sure = matches!(change(ratio), Change::Worse | Change::Unknown);
        (is_sure && ratio.value < 1.0 - most).then(|| {
            let (by, most, metric) = ((1.0 - ratio.value) * 100.0, most * 100.0, &self.goal.metric);
            let worse = format!("{by:.1} % worse than the best of A in {metric}");
            format!("the best of B is {worse}, but at most {most:.1} % are allowed")
        })
    }
}

/// Returns the metric of both studies, or throughput if their objectives differ or have several metrics.
fn goal_of(a: &Study, b: &Study) -> Goal {
    let of = |study: &Study| {
        let is_single = study.objective.goals().len() == 1;
        is_single.then(|| Goal::new(study.objective.metric(), study.objective.direction()))
    };
    let known = of(a).filter(|goal| of(b).as_ref() == Some(goal));
    known.unwrap_or_else(|| Goal::new("throughput", Direction::Maximize))
}

fn shared_names(a: &Study, b: &Study) -> Vec<String> {
    let names = a.space.parameters().iter().map(Parameter::name);
    names.filter(|name| b.space.parameter_index(name).is_some()).map(str::to_owned).collect()
}

fn restricted(settings: &Settings, names: &[String]) -> Settings {
    let kept = names.iter().filter_map(|name| Some((name.as_str(), settings.get(name)?.clone())));
    kept.collect()
}

/// Returns each config's value, reduced to the shared parameters. If several configs become equal, the best counts.
fn entries(study: &Study, goal: &Goal, shared: &[String]) -> Vec<Entry> {
    let is_own = study.objective.goals().len() == 1 && study.objective.metric() == goal.metric;
    let all: Vec<(Settings, Estimate)> = if is_own {
        study.ranking().into_iter().map(|entry| (study.settings(&entry.config), entry.estimate)).collect()
    } else {
        let ranked = study.history.searched().filter(|trial| is_ranked(study, trial));
        ranked
            .filter_map(|trial| {
                let estimate = study.objective.estimate_of(&goal.metric, trial.outcome.measurement()?)?;
                Some((study.settings(&trial.config), estimate))
            })
            .collect()
    };
    let mut found: Vec<Entry> = Vec::new();
    let mut at: HashMap<String, usize> = HashMap::new();
    for (settings, estimate) in all {
        let config = restricted(&settings, shared);
        match at.get(&config.line()).and_then(|&at| found.get_mut(at)) {
            Some(known) if goal.score(estimate.value) > goal.score(known.estimate.value) => known.estimate = estimate,
            Some(_) => {}
            None => {
                at.insert(config.line(), found.len());
                found.push(Entry { config, estimate });
            }
        }
    }
    found
}

/// Returns how many times better `b` is; `None` unless both values are finite and positive.
fn times_better(direction: Direction, a: Estimate, b: Estimate) -> Option<Estimate> {
    let is_size = |estimate: Estimate| estimate.value.is_finite() && estimate.value > 0.0;
    if !is_size(a) || !is_size(b) {
        return None;
    }
    let (better, worse) = match direction {
        Direction::Maximize => (b, a),
        Direction::Minimize => (a, b),
    };
    let value = better.value / worse.value;
    let halves = a.relative_half_width().zip(b.relative_half_width());
    let half = halves.map(|(a, b)| a.hypot(b)).filter(|half| half.is_finite());
    let within = |half: f64| Estimate::interval(value, value * (-half).exp(), value * half.exp());
    let ratio = half.map_or_else(|| Estimate::point(value), within);
    value.is_finite().then_some(ratio)
}

fn change(ratio: Estimate) -> Change {
    match (ratio.low, ratio.high) {
        (Some(low), _) if low > 1.0 => Change::Better,
        (_, Some(high)) if high < 1.0 => Change::Worse,
        (Some(_), Some(_)) => Change::WithinNoise,
        _ => Change::Unknown,
    }
}

fn side(side: &Side<'_>, metric: &str) -> SideReport {
    let Side { name, kept: Kept { study, device, header, .. } } = side;
    let best = study.best();
    let is_own = study.objective.goals().len() == 1 && study.objective.metric() == metric;
    let searched = study.history.searched();
    SideReport {
        name: (*name).to_owned(),
        device: device.name.clone(),
        driver: device.driver.clone(),
        gputune_version: header.gputune_version.clone(),
        probes: study.history.count_searched(),
        failed: searched.filter(|trial| trial.outcome.measurement().is_none()).count(),
        elapsed_s: study.elapsed.as_secs_f64(),
        stopped_because: study.stopped.to_string(),
        over_baseline: best.as_ref().and_then(|best| best.speedup),
        best: best.map(|best| {
            let measurement = &best.winner.measurement;
            let other = || study.objective.estimate_of(metric, measurement);
            BestOfSide {
                config: study.settings(&best.winner.config),
                estimate: if is_own { Some(best.winner.estimate) } else { other() },
                unit: measurement.unit.clone(),
                peak_memory_bytes: measurement.memory.peak_bytes,
                memory_headroom: measurement.memory_headroom(),
                data_wait: super::row::data_wait(measurement),
                gpus: measurement.machine.gpus.clone(),
            }
        }),
    }
}

fn marks(config: &Settings, sides: [(&Study, &SideReport); 2], shared: &[String]) -> Vec<&'static str> {
    let is_baseline =
        |study: &Study| study.baseline.as_ref().is_some_and(|own| restricted(&study.settings(own), shared) == *config);
    let is_best =
        |side: &SideReport| side.best.as_ref().is_some_and(|best| restricted(&best.config, shared) == *config);
    let mut marks = Vec::new();
    match sides.map(|(_, report)| is_best(report)) {
        [true, true] => marks.push("best of both"),
        [true, false] => marks.push("best of A"),
        [false, true] => marks.push("best of B"),
        [false, false] => {}
    }
    if sides.iter().any(|(study, _)| is_baseline(study)) {
        marks.push("baseline");
    }
    marks
}

/// Returns configs that were measured here and that failed or were infeasible in the other study.
fn lost(measured: &[Entry], other: &Study, failed_in: char, shared: &[String]) -> Vec<Lost> {
    let mut lost = Vec::new();
    for entry in measured {
        let alike = |trial: &&Trial| restricted(&other.settings(&trial.config), shared) == entry.config;
        let trials: Vec<&Trial> = other.history.searched().filter(alike).collect();
        if !trials.iter().any(|trial| is_ranked(other, trial))
            && let Some(trial) = trials.last()
        {
            let reason = super::row::shown_outcome(&other.objective, &trial.outcome);
            lost.push(Lost { config: entry.config.clone(), failed_in, reason });
        }
    }
    lost
}

fn is_ranked(study: &Study, trial: &Trial) -> bool {
    study.objective.scores_of(&trial.outcome).is_some()
}

/// Counts the configs that the first study probed and the other study did not.
fn alone(study: &Study, other: &Study, shared: &[String]) -> usize {
    let lines = |study: &Study| -> std::collections::BTreeSet<String> {
        study.history.searched().map(|trial| restricted(&study.settings(&trial.config), shared).line()).collect()
    };
    lines(study).difference(&lines(other)).count()
}

/// Returns the differences in spaces, objectives, devices and commands.
fn differences(a: &Side<'_>, b: &Side<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let (study_a, study_b) = (&a.kept.study, &b.kept.study);
    let (ours, theirs) = (study_a.space.parameters(), study_b.space.parameters());
    for parameter in ours {
        match theirs.iter().find(|other| other.name() == parameter.name()) {
            None => found.push(format!("only A has the parameter {}", parameter.name())),
            Some(other) if other.summary() != parameter.summary() => {
                let (name, a, b) = (parameter.name(), parameter.summary(), other.summary());
                found.push(format!("{name} is {a} in A and {b} in B"));
            }
            Some(_) => {}
        }
    }
    let only_theirs = theirs.iter().filter(|other| ours.iter().all(|parameter| parameter.name() != other.name()));
    found.extend(only_theirs.map(|parameter| format!("only B has the parameter {}", parameter.name())));
    if shared_names(study_a, study_b).len() < ours.len().max(theirs.len()) {
        found.push("configs are compared by their shared parameters; if several match, the best counts".to_owned());
    }
    let goals = |of: &Study| of.objective.goals().iter().map(|goal| goal.metric.clone()).collect::<Vec<_>>().join(", ");
    if goals(study_a) != goals(study_b) {
        found.push(format!("A was searched for {} and B for {}", goals(study_a), goals(study_b)));
    }
    let constraints = |study: &Study| {
        let texts: Vec<&str> = study.objective.constraints().iter().map(|constraint| constraint.text()).collect();
        if texts.is_empty() { "no constraint".to_owned() } else { texts.join(", ") }
    };
    if constraints(study_a) != constraints(study_b) {
        found.push(format!("A had {}, and B {}", constraints(study_a), constraints(study_b)));
    }
    found.extend(a.kept.header.command_differences(&b.kept.header).iter().map(|difference| redacted(difference)));
    found
}
