//! Describes the best config for other programs, with the changes to the script that apply the config.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::bottleneck::Bottleneck;
use super::care::Care;
use super::compute::Compute;
use super::ending::without_difference;
use super::gpus::MemoryParts;
use super::learning_rate::LearningRate;
use super::redact::redacted;
use super::trace::Trace;
use crate::machine::Device;
use crate::model::{
    COST, Direction, Estimate, Exchange, Goal, GpuUse, Numerics, Outliers, Readings, Settings, Value, arrival,
};
use crate::report::emit::shell_word;
use crate::search::{Alternatives, OnFront, Part, Ranked, Study, Verdict, WarmStart, WholeRun};

/// A throughput with its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// The value. After rounds, its interval is computed from the ratio to the baseline.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// The unit, such as `samples/s`.
    pub unit: String,
}

/// The optimised metric with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Optimized {
    /// The metric.
    pub metric: String,
    /// The direction in which the metric improves.
    pub direction: Direction,
    /// The value of the metric for the config, with its 95% interval.
    #[serde(flatten)]
    pub estimate: Estimate,
}

/// One goal of an objective with several goals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    /// The metric, its direction, and its value for the config.
    #[serde(flatten)]
    pub metric: Optimized,
    /// The metric's share of the score, if metrics have weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The ratio to the baseline's value; above 1 is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_better: Option<Estimate>,
}

/// A config of the front.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontReport {
    /// Names and values.
    pub config: Settings,
    /// The value of each goal.
    pub metrics: Vec<Optimized>,
    /// Largest device memory in use, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// The number of rounds that measured this config.
    #[serde(default)]
    pub rounds: usize,
    /// True if the report recommends this config.
    pub is_recommended: bool,
    /// Configs that tie with this config in every metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ties: Vec<Settings>,
}

/// Another config with its throughput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// Names and values.
    pub config: Settings,
    /// The throughput of the config.
    pub throughput: Option<Throughput>,
}

/// The contents of `best.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestReport {
    /// Names and values.
    pub config: Settings,
    /// The command, ready to run in a POSIX shell; absent if an in-process step was tuned.
    pub command: Option<String>,
    /// Settings that an adapter's hook applied, by target. The command does not contain them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub applied: BTreeMap<String, Value>,
    /// The changes to the script that apply these settings; absent if an in-process step was tuned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<Vec<Edit>>,
    /// The working directory of the command.
    pub cwd: Option<String>,
    /// The throughput of the config.
    pub throughput: Option<Throughput>,
    /// The optimised metric, with the config's value.
    pub objective: Optimized,
    /// Each goal, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartReport>,
    /// The configs of the front, the best in the first metric first; empty if the objective is no front.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub front: Vec<FrontReport>,
    /// The baseline, if it is feasible.
    pub baseline: Option<Other>,
    /// The verdict of the comparison with the baseline.
    #[serde(default = "unknown_verdict")]
    pub verdict: Verdict,
    /// If the config is the unmodified job: the settings to pass to it, often none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_it_is: Option<Settings>,
    /// The proven speedup over the baseline, with its 95% interval; absent if it is not proven.
    pub speedup: Option<Estimate>,
    /// The speedup over the baseline if it is not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven_speedup: Option<Estimate>,
    /// The time of the whole training, with the baseline and with this config; absent if samples are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<WholeRun>,
    /// The lowest speedup over the baseline in any round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_speedup: Option<f64>,
    /// The config that won all of its rounds, which were too few for a proof; the baseline stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<AheadReport>,
    /// Active parameters for which no fact shows that their settings were applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_verified: Vec<String>,
    /// The cost of the communication between ranks, if an experiment measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// Parameters that stay as the script has them. Nothing in the step uses them, or they tune communication between ranks that
    /// costs almost nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<String>,
    /// Parameters whose settings made no difference in any fact or number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_difference: Vec<String>,
    /// Joules per unit of work that the throughput counts, if power was metered or reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_per_sample_j: Option<f64>,
    /// The cost per unit of work, if the spec states a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_sample: Option<f64>,
    /// Largest device memory in use, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// The parts of the device memory, if the step reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryParts>,
    /// Share of device memory that stayed free at the peak.
    pub memory_headroom: Option<f64>,
    /// Readings of the config's processes on the host in its last measurement.
    #[serde(default, skip_serializing_if = "Readings::is_empty")]
    pub host: Readings,
    /// The config's floating-point operations compared with the GPU's ceiling, if its step reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<Compute>,
    /// The readings of each GPU in the config's last measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUse>,
    /// A few steps of the config as the profiler saw them, if there was time to record them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Recorded steps of the baseline, if another config is the best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_trace: Option<Trace>,
    /// The comparison of the config's losses with those in full precision, if the config changes the numerics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numerics: Option<Numerics>,
    /// True if the interval was still wider than requested when the last measurement ended.
    #[serde(default)]
    pub is_unstable: bool,
    /// Steps that the last measurement left out of the throughput, by cause, such as `epoch` or `checkpoint`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outliers: BTreeMap<String, Outliers>,
    /// The bottlenecks of the baseline and of this config, if the step reports enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Bottleneck>,
    /// The scaling of the learning rate, if an update takes more or fewer samples than in the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<LearningRate>,
    /// Configs that tie with this config.
    pub ties: Vec<Other>,
    /// The number of probes.
    pub probes: usize,
    /// The number of rounds.
    #[serde(default)]
    pub rounds: usize,
    /// The configs besides the baseline: the number tried, and the total number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternatives: Option<Alternatives>,
    /// A summary of how the probes were measured.
    #[serde(default)]
    pub measuring: Care,
    /// Wall time of the search in seconds.
    pub elapsed_s: f64,
    /// The reason why the search ended.
    pub stopped_because: String,
    /// The earlier studies that the search learned from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_start: Vec<WarmStart>,
    /// The name of the device.
    pub device: String,
    /// The driver of the device.
    pub driver: String,
    /// The version of gputune.
    pub gputune_version: String,
}

/// A config that won all of its rounds against the baseline, which stays the recommendation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AheadReport {
    /// The names and values.
    pub config: Settings,
    /// The ratio to the baseline, with its 95% interval.
    pub speedup: Estimate,
    /// The number of rounds that it won.
    pub rounds: usize,
}

/// The verdict for reports that were written before verdicts existed.
fn unknown_verdict() -> Verdict {
    Verdict::Unproven
}

impl BestReport {
    /// Returns the lines below the verdict: floating-point operations, memory, recorded steps and the learning rate.
    pub fn more_lines(&self) -> Vec<String> {
        let compute = self.compute.as_ref().map(Compute::line);
        let memory = self.memory.as_ref().map(|parts| format!("memory    {}", parts.words()));
        let traces = Trace::lines(self.trace.as_ref(), self.baseline_trace.as_ref());
        let rates = self.learning_rate.iter().flat_map(LearningRate::lines);
        compute.into_iter().chain(memory).chain(traces).chain(rates).collect()
    }

    /// Returns the report without secrets in its command, for files that users share. The command may then not run.
    #[must_use]
    pub fn for_sharing(&self) -> Self {
        Self { command: self.command.as_deref().map(redacted), ..self.clone() }
    }

    /// Returns the settings to apply when the config is run; the unmodified job often needs none.
    pub fn to_set(&self) -> &Settings {
        self.as_it_is.as_ref().unwrap_or(&self.config)
    }

    /// Returns the one line to run next: the command if it carries all settings, else `gputune run` of the search's folder.
    pub(super) fn one_line(&self, folder: &Path) -> Option<String> {
        let is_whole = self.comment().is_empty();
        let run = || format!("gputune run {}", shell_word(&folder.display().to_string()));
        self.next().map(|command| if is_whole { command } else { run() })
    }

    /// Returns the command, with a `cd` to its folder if needed. A comment lists the settings that it does not carry.
    pub fn next(&self) -> Option<String> {
        let command = self.command.as_ref()?;
        let cwd = self.cwd.as_deref().filter(|cwd| !cwd.is_empty() && !is_here(cwd));
        let command = match cwd {
            Some(cwd) => format!("(cd {} && {command})", shell_word(cwd)),
            None => command.clone(),
        };
        Some(command + &self.comment())
    }

    /// Returns the command without its folder, for files that may be read on another machine.
    pub fn shown_command(&self) -> Option<String> {
        Some(self.command.clone()? + &self.comment())
    }

    /// Returns the settings that the command does not carry, as comment lines after it.
    fn comment(&self) -> String {
        let about = "\n# and in the script, since the command does not set it:".to_owned();
        match &self.edits {
            Some(edits) if edits.is_empty() => String::new(),
            Some(edits) => {
                let lines = edits.iter().flat_map(Edit::shown).map(|line| format!("\n# {line}"));
                about + &lines.collect::<String>()
            }
            None if self.applied.is_empty() => String::new(),
            None => {
                let applied = self.applied.iter().map(|(target, value)| format!("{target}={value}"));
                format!("{about} {}", applied.collect::<Vec<_>>().join(" "))
            }
        }
    }
}

fn is_here(folder: &str) -> bool {
    std::env::current_dir().is_ok_and(|here| here == Path::new(folder))
}

/// Makes the report on the best config; `None` if no config is feasible.
pub fn best(study: &Study, device: &Device) -> Option<BestReport> {
    let best = study.best()?;
    let Ranked { config, measurement, estimate, .. } = &best.winner;
    let other = |entry: &Ranked| Other { config: study.settings(&entry.config), throughput: throughput(study, entry) };
    let searched = study.history.count_searched();
    let number = |metric: &str| study.objective.estimate_of(metric, measurement).map(|number| number.value);
    let rival = best.baseline.as_ref().filter(|rival| rival.config != *config);
    Some(BestReport {
        config: study.settings(config),
        command: None,
        applied: BTreeMap::new(),
        edits: None,
        cwd: None,
        throughput: throughput(study, &best.winner),
        objective: optimized(&Goal::new(study.objective.metric(), study.objective.direction()), *estimate),
        parts: parts(study, &best.winner),
        front: front(study),
        baseline: best.baseline.as_ref().map(other),
        verdict: best.verdict,
        as_it_is: config.is_as_it_is().then(|| study.space.settings(config).chosen(&study.space)),
        speedup: best.speedup,
        unproven_speedup: best.unproven_speedup,
        run: study.whole_run(&best),
        lowest_speedup: best.lowest_speedup,
        ahead: best.ahead.as_ref().map(|ahead| AheadReport {
            config: study.settings(&ahead.config),
            speedup: ahead.speedup,
            rounds: ahead.rounds,
        }),
        not_verified: arrival::unverified(&study.space, &study.settings(config), measurement),
        exchange: study.history.exchange().map(|(_, exchange)| exchange.clone()),
        closed: study.history.closed().into_iter().map(str::to_owned).collect(),
        no_difference: without_difference(study),
        energy_per_sample_j: number("energy_per_sample"),
        cost_per_sample: number(COST),
        peak_memory_bytes: measurement.memory.peak_bytes,
        memory: MemoryParts::of(measurement),
        memory_headroom: measurement.memory_headroom(),
        host: measurement.machine.host.clone(),
        compute: Compute::of(measurement, None, None),
        gpus: measurement.machine.gpus.clone(),
        trace: Trace::of(study, config),
        baseline_trace: rival.and_then(|rival| Trace::of(study, &rival.config)),
        numerics: measurement.numerics.clone(),
        is_unstable: measurement.timing.is_unstable,
        outliers: measurement.timing.outliers.clone(),
        diagnosis: Bottleneck::of(study),
        learning_rate: LearningRate::of(study, None),
        ties: best.ties.iter().map(other).collect(),
        probes: searched,
        rounds: study.rounds(),
        alternatives: Some(study.alternatives()),
        measuring: Care::of(study),
        elapsed_s: study.elapsed.as_secs_f64(),
        stopped_because: study.stopped.to_string(),
        warm_start: Vec::new(),
        device: device.name.clone(),
        driver: device.driver.clone(),
        gputune_version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn parts(study: &Study, winner: &Ranked) -> Vec<PartReport> {
    if study.objective.goals().len() < 2 {
        return Vec::new();
    }
    let part = |part: Part| PartReport {
        metric: optimized(&part.goal, part.estimate),
        weight: part.weight,
        times_better: part.times_better,
    };
    study.parts(&winner.config).into_iter().map(part).collect()
}

fn optimized(goal: &Goal, estimate: Estimate) -> Optimized {
    Optimized { metric: goal.metric.clone(), direction: goal.direction, estimate }
}

fn front(study: &Study) -> Vec<FrontReport> {
    if !study.objective.is_pareto() {
        return Vec::new();
    }
    let goals = study.objective.goals();
    let member = |member: OnFront| FrontReport {
        config: study.settings(&member.config),
        metrics: goals.iter().zip(&member.numbers).map(|(goal, number)| optimized(goal, *number)).collect(),
        peak_memory_bytes: member.measurement.memory.peak_bytes,
        rounds: member.rounds,
        is_recommended: member.is_recommended,
        ties: member.ties.iter().map(|tie| study.settings(tie)).collect(),
    };
    study.front().into_iter().map(member).collect()
}

fn throughput(study: &Study, entry: &Ranked) -> Option<Throughput> {
    let is_ranked_by_it = study.objective.metric() == "throughput";
    let pooled = is_ranked_by_it.then_some(entry.estimate);
    Some(Throughput { estimate: pooled.or(entry.measurement.throughput)?, unit: entry.measurement.unit.clone() })
}

/// A piece of code to write into a script, with its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The targets whose settings it applies.
    pub targets: Vec<String>,
    /// The file and line of the code to change, such as `train.py:31`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The change to make there, such as `in DataLoader(...)`.
    pub what: String,
    /// The code to write: lines, or arguments of the call.
    pub lines: Vec<String>,
    /// The code there now, which the change replaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead_of: Vec<String>,
}

impl Edit {
    /// Returns the lines for the terminal; code of several lines keeps its own lines.
    pub fn shown(&self) -> Vec<String> {
        let place = self.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
        let gone = match self.instead_of.as_slice() {
            [] => String::new(),
            all if self.lines.is_empty() => format!(" {}", all.join(", ")),
            all => format!(" (instead of {})", all.join(", ")),
        };
        let shown = match self.lines.as_slice() {
            [] => vec![format!("{place}{}{gone}", self.what)],
            [line] => vec![format!("{place}{}: {line}{gone}", self.what)],
            lines => {
                let head = format!("{place}{}{gone}:", self.what);
                std::iter::once(head).chain(lines.iter().map(|line| format!("    {line}"))).collect()
            }
        };
        // These lines become a shell comment, so each must be one line without control characters.
        let plain = |line: String| line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        shown.into_iter().map(plain).collect()
    }
}
