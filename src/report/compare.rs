//! Compares two studies: the best config of each, and each config that both measured.
//!
//! The studies were measured independently, so their errors are independent. On a logarithmic scale, half the width of
//! a ratio's interval is the root of the summed squares of both relative half-widths (propagation of uncertainty, JCGM
//! 100:2008, 5.1.2).

use std::collections::HashMap;

use serde::Serialize;

use super::redact::redacted;
use crate::machine::Device;
use crate::model::{Direction, Estimate, GpuUse, Parameter, Settings, Trial};
use crate::search::{Header, Study};

/// One of the two studies.
#[derive(Debug, Clone, Copy)]
pub struct Side<'s> {
    /// The name of the study: its folder.
    pub name: &'s str,
    /// The study.
    pub study: &'s Study,
    /// The device that trained.
    pub device: &'s Device,
    /// The first line of the study's journal.
    pub header: &'s Header,
}

/// The comparison of two studies; `a` is the earlier one, or the reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The version of this format.
    pub format: u32,
    /// The compared metric: the objective of both studies, or throughput if their objectives differ or have several metrics.
    pub metric: String,
    /// The direction in which the metric improves.
    pub direction: Direction,
    /// The first study.
    pub a: SideReport,
    /// The second study.
    pub b: SideReport,
    /// How many times better the best of B is than the best of A: B/A, or A/B if less is better.
    pub speedup: Option<Estimate>,
    /// How the speedup compares with the noise.
    pub change: Option<Change>,
    /// Configs that both studies measured, the largest gains first.
    pub configs: Vec<Both>,
    /// Configs that one study measured and the other could not measure.
    pub lost: Vec<Lost>,
    /// The number of configs that only the first study probed, and that only the second probed.
    pub alone: (usize, usize),
    /// The differences between the searches and their jobs, one sentence each.
    pub differences: Vec<String>,
}

/// One of the two studies, in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideReport {
    /// The name of the study.
    pub name: String,
    /// The device.
    pub device: String,
    /// The driver of the device.
    pub driver: String,
    /// The version of gputune.
    pub gputune_version: String,
    /// The number of probes, without rounds.
    pub probes: usize,
    /// The number of probes without a measurement.
    pub failed: usize,
    /// The duration of the search in seconds.
    pub elapsed_s: f64,
    /// The reason why the search ended.
    pub stopped_because: String,
    /// The best config.
    pub best: Option<BestOfSide>,
    /// The speedup of the best config over the study's own baseline.
    pub over_baseline: Option<Estimate>,
}

/// The best config of a study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BestOfSide {
    /// Names and values.
    pub config: Settings,
    /// The value of the compared metric.
    pub estimate: Option<Estimate>,
    /// The unit of the throughput.
    pub unit: String,
    /// Largest device memory in use, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Share of device memory that stayed free at the peak.
    pub memory_headroom: Option<f64>,
    /// Share of a step that waited for data.
    pub data_wait: Option<f64>,
    /// The readings of each GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUse>,
}

/// The comparison of a ratio with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
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
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Both {
    /// Names and values.
    pub config: Settings,
    /// The value in the first study.
    pub a: Estimate,
    /// The value in the second study.
    pub b: Estimate,
    /// How many times better the second value is than the first: B/A, or A/B if less is better.
    pub ratio: Estimate,
    /// How the ratio compares with the noise.
    pub change: Change,
    /// The roles of the config: `best of A`, `best of B` or `best of both`, and `baseline` if it is one in either study.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<&'static str>,
}

/// A config that one study measured and that failed or was infeasible in the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lost {
    /// Names and values.
    pub config: Settings,
    /// The study in which it failed: `A` or `B`.
    pub failed_in: char,
    /// The reason why it failed there.
    pub reason: String,
}

/// The version of the JSON format.
const FORMAT: u32 = 1;

/// A config's numbers in one study.
struct Entry {
    config: Settings,
    estimate: Estimate,
}

impl Comparison {
    /// Compares two studies.
    pub fn of(a: &Side<'_>, b: &Side<'_>) -> Self {
        let (metric, direction) = metric_of(a.study, b.study);
        let shared = shared_names(a.study, b.study);
        let (ours, theirs) =
            (entries(a.study, &metric, direction, &shared), entries(b.study, &metric, direction, &shared));
        let (report_a, report_b) = (side(a, &metric), side(b, &metric));
        let numbers = |side: &SideReport| side.best.as_ref().and_then(|best| best.estimate);
        let speedup = numbers(&report_a).zip(numbers(&report_b)).and_then(|(a, b)| times_better(direction, a, b));
        let at: HashMap<String, &Entry> = theirs.iter().map(|entry| (entry.config.line(), entry)).collect();
        let mut configs: Vec<Both> = Vec::new();
        for entry in &ours {
            let Some(other) = at.get(&entry.config.line()) else { continue };
            let Some(ratio) = times_better(direction, entry.estimate, other.estimate) else { continue };
            let marks = marks(&entry.config, (a, &report_a), (b, &report_b), &shared);
            let (config, change) = (entry.config.clone(), change(ratio));
            configs.push(Both { config, a: entry.estimate, b: other.estimate, ratio, change, marks });
        }
        configs.sort_by(|one, other| other.ratio.value.total_cmp(&one.ratio.value));
        let mut lost = lost(&ours, b.study, 'B', &shared);
        lost.extend(self::lost(&theirs, a.study, 'A', &shared));
        let alone = (alone(a.study, b.study, &shared), self::alone(b.study, a.study, &shared));
        let differences = differences(a, b);
        let change = speedup.map(change);
        Self {
            format: FORMAT,
            metric,
            direction,
            a: report_a,
            b: report_b,
            speedup,
            change,
            configs,
            lost,
            alone,
            differences,
        }
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
            format!(
                "the best of B is {:.1} % worse than the best of A in {}, but at most {:.1} % are allowed",
                (1.0 - ratio.value) * 100.0,
                self.metric,
                most * 100.0
            )
        })
    }
}

/// Returns the metric of both studies, or throughput if their objectives differ or have several metrics.
fn metric_of(a: &Study, b: &Study) -> (String, Direction) {
    let of = |study: &Study| {
        let is_single = study.objective.goals().len() == 1;
        is_single.then(|| (study.objective.metric().to_owned(), study.objective.direction()))
    };
    match (of(a), of(b)) {
        (Some(a), Some(b)) if a == b => a,
        _ => ("throughput".to_owned(), Direction::Maximize),
    }
}

/// Returns the parameters that both spaces have.
fn shared_names(a: &Study, b: &Study) -> Vec<String> {
    let names = a.space.parameters().iter().map(Parameter::name);
    names.filter(|name| b.space.parameter_index(name).is_some()).map(str::to_owned).collect()
}

fn restricted(settings: &Settings, names: &[String]) -> Settings {
    let kept = names.iter().filter_map(|name| Some((name.as_str(), settings.get(name)?.clone())));
    kept.collect()
}

/// Returns the value of each config, reduced to the parameters that both studies have. If several configs become equal,
/// the best counts.
fn entries(study: &Study, metric: &str, direction: Direction, shared: &[String]) -> Vec<Entry> {
    let is_own = study.objective.goals().len() == 1 && study.objective.metric() == metric;
    let all: Vec<(Settings, Estimate)> = if is_own {
        study.ranking().into_iter().map(|entry| (study.settings(&entry.config), entry.estimate)).collect()
    } else {
        let ranked = study.history.searched().filter(|trial| is_ranked(study, trial));
        ranked
            .filter_map(|trial| {
                let estimate = study.objective.estimate_of(metric, trial.outcome.measurement()?)?;
                Some((study.settings(&trial.config), estimate))
            })
            .collect()
    };
    let mut found: Vec<Entry> = Vec::new();
    let mut at: HashMap<String, usize> = HashMap::new();
    for (settings, estimate) in all {
        let config = restricted(&settings, shared);
        match at.get(&config.line()).and_then(|&at| found.get_mut(at)) {
            Some(known) if is_better(direction, estimate.value, known.estimate.value) => known.estimate = estimate,
            Some(_) => {}
            None => {
                at.insert(config.line(), found.len());
                found.push(Entry { config, estimate });
            }
        }
    }
    found
}

fn is_better(direction: Direction, value: f64, than: f64) -> bool {
    match direction {
        Direction::Maximize => value > than,
        Direction::Minimize => value < than,
    }
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
    let ratio = half.map_or_else(
        || Estimate::point(value),
        |half| Estimate::interval(value, value * (-half).exp(), value * half.exp()),
    );
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
    let Side { name, study, device, header } = side;
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

fn marks(
    config: &Settings,
    (a, report_a): (&Side<'_>, &SideReport),
    (b, report_b): (&Side<'_>, &SideReport),
    shared: &[String],
) -> Vec<&'static str> {
    let is_baseline = |study: &Study| {
        study.baseline.as_ref().is_some_and(|baseline| restricted(&study.settings(baseline), shared) == *config)
    };
    let is_best =
        |report: &SideReport| report.best.as_ref().is_some_and(|best| restricted(&best.config, shared) == *config);
    let mut marks = Vec::new();
    match (is_best(report_a), is_best(report_b)) {
        (true, true) => marks.push("best of both"),
        (true, false) => marks.push("best of A"),
        (false, true) => marks.push("best of B"),
        (false, false) => {}
    }
    if is_baseline(a.study) || is_baseline(b.study) {
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
            let reason = super::row::shown_result(&other.objective, trial);
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
    let (ours, theirs) = (a.study.space.parameters(), b.study.space.parameters());
    for parameter in ours {
        match theirs.iter().find(|other| other.name() == parameter.name()) {
            None => found.push(format!("only A has the parameter {}", parameter.name())),
            Some(other) if other.summary() != parameter.summary() => {
                found.push(format!(
                    "{} is {} in A and {} in B",
                    parameter.name(),
                    parameter.summary(),
                    other.summary()
                ));
            }
            Some(_) => {}
        }
    }
    let only_theirs = theirs.iter().filter(|other| ours.iter().all(|parameter| parameter.name() != other.name()));
    found.extend(only_theirs.map(|parameter| format!("only B has the parameter {}", parameter.name())));
    if shared_names(a.study, b.study).len() < ours.len().max(theirs.len()) {
        found.push("configs are compared by their shared parameters; if several match, the best counts".to_owned());
    }
    let goals =
        |study: &Study| study.objective.goals().iter().map(|goal| goal.metric.clone()).collect::<Vec<_>>().join(", ");
    if goals(a.study) != goals(b.study) {
        found.push(format!("A was searched for {} and B for {}", goals(a.study), goals(b.study)));
    }
    let constraints = |study: &Study| {
        let texts: Vec<&str> = study.objective.constraints().iter().map(|constraint| constraint.text()).collect();
        if texts.is_empty() { "no constraint".to_owned() } else { texts.join(", ") }
    };
    if constraints(a.study) != constraints(b.study) {
        found.push(format!("A had {}, and B {}", constraints(a.study), constraints(b.study)));
    }
    found.extend(a.header.command_differences(b.header).iter().map(|difference| redacted(difference)));
    found
}
