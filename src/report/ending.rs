//! Describes the end of a search: the winner against the baseline, the number of configs, and unverified settings.

use std::time::Duration;

use super::bottleneck::Bottleneck;
use super::care::Care;
use super::escape::plain;
use super::front::front_lines;
use super::gpus::{gpu_summary, host_words};
use super::row::{
    is_vague, shown_gain, shown_metric, shown_numerics, shown_outcome, shown_ratio, shown_settings, shown_together,
};
use super::screen::{fitting, labelled};
use crate::model::quantity::{show_bytes, show_duration, show_number, show_seconds};
use crate::model::{Config, Direction, Estimate, Measurement, Outcome, Parameter, Trial, arrival};
use crate::probe::stats;
use crate::search::{Alternatives, Best, Ranked, StopReason, Study, Trend, Verdict};

/// Describes the comparison with the baseline; `None` without a baseline.
fn comparison_line(study: &Study, best: &Best, has_details: bool) -> Option<String> {
    let Some(baseline) = &best.baseline else {
        let failed = study.baseline_failure().and_then(|outcome| Some((outcome.name(), &outcome.failure()?.reason)));
        return study.baseline.as_ref().map(|_| match failed {
            Some((name, reason)) => format!("speedup   unknown: the baseline failed ({name}): {}", plain(reason)),
            None if study.is_baseline_missing() => "speedup   unknown: the baseline was not measured".to_owned(),
            None => "speedup   unknown: the baseline is not feasible".to_owned(),
        });
    };
    let number = shown_entry(study, baseline);
    let better = format!("{} than the baseline", comparative(study));
    Some(match (best.verdict, best.speedup, best.unproven_speedup) {
        (Verdict::TiedWithBaseline, ..) => format!("baseline  stays: {}", no_config_is_faster(study, best)),
        (_, Some(speedup), _) => {
            let lowest = at_least(best).map(|lowest| format!(", at least {lowest:.2}x in every round"));
            let speedup = format!("{} ({number})", shown_gain(speedup, &better, (true, best.lowest_speedup)));
            let speedup = if has_details { speedup + &lowest.unwrap_or_default() } else { fitting(speedup, lowest) };
            format!("speedup   {speedup}")
        }
        (_, None, Some(seen)) => {
            let seen = format!("not proven: {} ({number})", shown_gain(seen, &better, (false, None)));
            let rounds = format!(", {}", after_rounds(best));
            let seen = if has_details { seen + &rounds } else { fitting(seen, Some(rounds)) };
            format!("speedup   {seen}")
        }
        (_, None, None) => format!("baseline  {number}"),
    })
}

/// Returns the lowest ratio of all rounds if it is far below the mean: then the ratio depends on other load on the machine.
fn at_least(best: &Best) -> Option<f64> {
    /// A round number: rounds on a quiet machine stay above this share of the mean.
    const FAR: f64 = 0.85;
    let speedup = best.speedup.filter(|speedup| !is_vague(*speedup))?;
    best.lowest_speedup.filter(|lowest| *lowest < FAR * speedup.value && *lowest > 1.0)
}

/// Says after how many rounds the speedup is still not proven.
pub(super) fn after_rounds(best: &Best) -> String {
    let of_baseline = best.baseline.as_ref().map_or(0, |baseline| baseline.rounds);
    match best.winner.rounds.min(of_baseline) {
        0 => "measured once each".to_owned(),
        1 => "after one round".to_owned(),
        rounds => format!("after {rounds} rounds"),
    }
}

/// Says how the ratio to the baseline changed over the rounds.
pub(super) fn trend_words(study: &Study, best: &Best) -> Option<String> {
    let Trend { config, from, to, rounds, counted, .. } = best.trend.as_ref()?;
    let moved = if to > from { "rose" } else { "fell" };
    let words = format!("to the baseline {moved} from {from:.2}x to {to:.2}x over {rounds} rounds");
    Some(match *config == best.winner.config {
        true => format!("the ratio {words}; only the last {counted} count"),
        false => format!("the ratio of {} {words}", plain(&study.settings(config).line())),
    })
}

/// Returns the comparative for a better config, such as "faster".
pub(super) fn comparative(study: &Study) -> &'static str {
    match (study.objective.metric(), study.objective.direction()) {
        ("throughput", _) => "faster",
        _ if study.objective.weights().is_some() => "better",
        (_, Direction::Maximize) => "more",
        (_, Direction::Minimize) => "less",
    }
}

/// Says that no config is better than the baseline, how many configs were tried, and which config won all of its rounds.
pub(super) fn no_config_is_faster(study: &Study, best: &Best) -> String {
    if study.alternatives().tried == 0 {
        let more = match study.stopped {
            StopReason::TimeSpent => ": give more --time",
            StopReason::ProbesSpent => ": give more --probes",
            _ => "",
        };
        return format!("no other config was tried{more}");
    }
    let better = if study.objective.metric() == "throughput" { "faster" } else { "better" };
    let busy = if study.is_machine_busy() { "; machine busy" } else { "" };
    let tried = format!("({}{busy})", study.alternatives().in_words());
    let first = study.ranking().into_iter().next();
    let first = first.filter(|first| Some(&first.config) != study.baseline.as_ref());
    if let Some(first) = first.filter(|_| study.stopped == StopReason::TimeSpent && study.rounds() == 0) {
        let config = plain(&study.settings(&first.config).line());
        return format!("no time was left to compare it with {config}, which was {better} once {tried}");
    }
    let Some(ahead) = &best.ahead else { return format!("no config is {better} beyond the noise {tried}") };
    // An interval from a single round may say nothing.
    let is_wide = is_vague(ahead.speedup);
    let ratio = if is_wide { "by how much is not known".to_owned() } else { shown_ratio(ahead.speedup) };
    let config = plain(&study.settings(&ahead.config).line());
    let rounds =
        if ahead.rounds == 1 { "in one round".to_owned() } else { format!("in each of {} rounds", ahead.rounds) };
    format!("no config is proven to be {better} {tried}; {config} was {better} {rounds}: {ratio}")
}

/// Why a search tried few configs.
struct Few {
    probe_s: f64,
    /// The mean time of a probe before its first step.
    start_s: f64,
    /// The minutes that are enough for [`WANTED`] configs.
    minutes: f64,
}

/// The number of configs that a search should try: a round number.
const WANTED: f64 = 10.0;

/// Returns why a search tried few configs, if its time was short.
fn few_configs(study: &Study) -> Option<Few> {
    const FEW: usize = 5;
    let Alternatives { tried, of } = study.alternatives();
    if tried >= FEW || of == tried.to_string() || study.stopped != StopReason::TimeSpent {
        return None;
    }
    let probes: Vec<f64> = study.history.searched().map(|trial| trial.elapsed.as_secs_f64()).collect();
    let starts = study.history.searched().filter_map(|trial| trial.outcome.measurement()?.spent);
    let starting: Vec<f64> = starts.map(|spent| spent.importing_s + spent.starting_s).collect();
    let (probe_s, start_s) = (stats::mean(&probes)?, stats::mean(&starting).unwrap_or(0.0));
    // Rounds take at most half of the time, so the probes need twice their own time.
    Some(Few { probe_s, start_s, minutes: (2.0 * WANTED * probe_s / 60.0).ceil() })
}

impl Few {
    fn enough(&self) -> String {
        let is = if self.minutes == 1.0 { "is" } else { "are" };
        format!("{} min {is} enough for about {WANTED} configs", self.minutes)
    }

    fn line(&self) -> String {
        let start = show_seconds(self.start_s);
        let of_it = if self.start_s < 0.001 { String::new() } else { format!(", {start} of it to start") };
        format!("few       a probe took {}{of_it}: {}", show_seconds(self.probe_s), self.enough())
    }
}

/// Returns lines about the exchange between ranks and about settings; without details, only about unverified settings.
fn settings_lines(study: &Study, best: &Best, has_details: bool) -> Vec<String> {
    let settings = study.settings(&best.winner.config);
    let unverified = arrival::unverified(&study.space, &settings, &best.winner.measurement);
    let idle = without_difference(study);
    let exchange = study.history.exchange().filter(|_| has_details);
    let exchange = exchange.map(|(_, exchange)| format!("exchange  {}", exchange.words));
    let settings = [
        (has_details, "unchanged, since nothing takes them", study.history.taken_by_nothing().join(", ")),
        (true, "not verified, since the step does not tell them", few(&unverified)),
        (has_details, "no difference in any fact or figure", few(&idle)),
    ];
    let known = settings.into_iter().filter(|(is_shown, _, names)| *is_shown && !names.is_empty());
    let known = labelled("settings", known.map(|(_, what, names)| format!("{what}: {names}")));
    exchange.into_iter().chain(known).collect()
}

/// Returns the first names and the number of further names; `best.json` has all of them.
fn few(names: &[String]) -> String {
    const FEW: usize = 6;
    let shown = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > FEW { format!("{shown} and {} more, in best.json", names.len() - FEW) } else { shown }
}

/// The relative difference below which sizes count as equal: a round number, 1%.
const SAME_SIZE: f64 = 0.01;

/// Returns the parameters without a difference: parameters whose settings changed nothing in any pair of configs that
/// differ only in this parameter. Nothing changed if both configs report the same fact for the setting, have equal
/// samples per step and peak memory, and have throughputs whose intervals overlap.
pub(super) fn without_difference(study: &Study) -> Vec<String> {
    let is_own = |trial: &&Trial| !trial.purpose.is_repeated() && !trial.config.is_as_it_is();
    let trials = study.history.trials().iter().map(AsRef::as_ref).filter(is_own);
    let measured = trials.filter_map(|trial| Some((trial, trial.outcome.measurement()?)));
    let measured: Vec<(&Trial, &Measurement)> = measured.collect();
    let pairs = || {
        let each = measured.iter().enumerate();
        each.flat_map(|(at, first)| measured[at + 1..].iter().map(move |second| (first, second)))
    };
    let is_idle = |(at, parameter): &(usize, &Parameter)| {
        let mut of_it = pairs().filter(|((a, _), (b, _))| differ_in(*at, &a.config, &b.config)).peekable();
        let fact = arrival::fact_of(parameter);
        of_it.peek().is_some() && of_it.all(|((_, a), (_, b))| are_alike(fact, a, b))
    };
    let parameters = study.space.parameters().iter().enumerate().filter(is_idle);
    parameters.map(|(_, parameter)| parameter.name().to_owned()).collect()
}

/// Returns true if two configs differ in this parameter and agree in all other parameters.
fn differ_in(parameter: usize, a: &Config, b: &Config) -> bool {
    a.levels().zip(b.levels()).enumerate().all(|(at, (a, b))| (a == b) == (at != parameter))
}

fn are_alike(fact: Option<&str>, a: &Measurement, b: &Measurement) -> bool {
    let of_both = |read: fn(&Measurement) -> Option<f64>| read(a).zip(read(b));
    let is_same = |two: Option<(f64, f64)>| two.is_none_or(|(a, b)| (a - b).abs() <= SAME_SIZE * a.abs().max(b.abs()));
    let memory = |m: &Measurement| m.memory.peak_bytes.map(|bytes| bytes as f64);
    fact.is_none_or(|fact| a.facts.get(fact) == b.facts.get(fact))
        && is_same(of_both(|m| m.timing.samples_per_step))
        && is_same(of_both(memory))
        && match (a.throughput, b.throughput) {
            (Some(a), Some(b)) => overlap(a, b),
            (None, None) => true,
            _ => false,
        }
}

fn overlap(a: Estimate, b: Estimate) -> bool {
    match (a.low.zip(a.high), b.low.zip(b.high)) {
        (Some((a_low, a_high)), Some((b_low, b_high))) => a_low <= b_high && b_low <= a_high,
        _ => a.value == b.value,
    }
}

/// The most ties in the list, and the most characters of their settings.
const TIES: usize = 5;
const LONG: usize = 100;

/// Describes the winner, its ties, its speedup and why the search ended, with all details.
pub fn verdict(study: &Study) -> String {
    verdict_after(study, None)
}

/// Returns the text of [`verdict`]. It names `first_run`, the duration of the script's first run, if that is given.
pub(super) fn verdict_after(study: &Study, first_run: Option<Duration>) -> String {
    let mut lines = head_lines(study, true);
    lines.extend(Bottleneck::of(study).iter().flat_map(Bottleneck::lines));
    lines.extend(study.side_by_side.iter().map(|line| format!("slots     {line}")));
    lines.extend(Care::of(study).lines());
    lines.extend(few_configs(study).map(|few| few.line()));
    lines.push(tried_line(study, first_run, None));
    lines.join("\n")
}

/// Returns the most important lines of [`verdict`]: at most seven if no line is too long for the screen.
pub(super) fn brief(study: &Study, first_run: Option<Duration>) -> String {
    let mut lines = head_lines(study, false);
    lines.extend(Bottleneck::of(study).iter().flat_map(Bottleneck::brief_lines));
    let is_proven = study.best().is_some_and(|best| best.verdict == Verdict::Faster);
    let few = few_configs(study).filter(|_| !is_proven);
    lines.push(tried_line(study, first_run, few.as_ref()));
    lines.join("\n")
}

/// Returns the lines about the best config, or why no config is the best.
fn head_lines(study: &Study, has_details: bool) -> Vec<String> {
    if let Some(best) = study.best() {
        return winner_lines(study, &best, has_details);
    }
    let trials = study.history.trials();
    let why = match (trials.is_empty(), study.stopped) {
        (true, StopReason::TimeSpent) => {
            let elapsed = show_duration(study.elapsed);
            format!("nothing measured: the first probe had not ended after {elapsed}; give more --time")
        }
        (true, _) => "nothing measured: no probe has ended yet".to_owned(),
        (false, _) => "nothing feasible: none of the configs could be measured within the limits".to_owned(),
    };
    let first =
        trials.first().map(|trial| format!("          the first: {}", shown_outcome(&study.objective, &trial.outcome)));
    std::iter::once(why).chain(first).collect()
}

/// Says how many probes and rounds a search had, how long they took, and why it ended. With `few`, it says why so few
/// configs were tried.
fn tried_line(study: &Study, first_run: Option<Duration>, few: Option<&Few>) -> String {
    let searched = study.history.count_searched();
    let configs = if searched == 1 { "1 config".to_owned() } else { format!("{searched} configs") };
    let rounds = match study.rounds() {
        0 => String::new(),
        1 if few.is_some() => " and 1 round".to_owned(),
        rounds if few.is_some() => format!(" and {rounds} rounds"),
        1 => " and 1 round of comparisons".to_owned(),
        rounds => format!(" and {rounds} rounds of comparisons"),
    };
    let after = first_run.map(|took| format!(" after a first run of {}", show_duration(took))).unwrap_or_default();
    let why = few.map_or_else(|| study.stopped.to_string(), |few| format!("no time is left; {}", few.enough()));
    format!("tried     {configs}{rounds} in {}{after}; {why}", show_duration(study.elapsed))
}

fn winner_lines(study: &Study, best: &Best, has_details: bool) -> Vec<String> {
    let number = |entry: &Ranked| shown_entry(study, entry);
    let Ranked { config, measurement, .. } = &best.winner;
    let value = number(&best.winner) + &memory_words(measurement);
    let mut lines = vec![format!("best      {}", study.settings(config).line()), format!("          {value}")];
    if has_details {
        lines.extend(host_words(&measurement.machine.host).map(|words| format!("          {words}")));
        let winner = study.settings(config);
        let tie = |tie: &Ranked| shown_settings(&study.settings(&tie.config), &winner, LONG);
        let ties = best.ties.iter().take(TIES).map(|entry| format!("{} ({})", tie(entry), number(entry)));
        lines.extend(labelled("tied", ties));
        if best.ties.len() > TIES {
            lines.push(format!("          and {} more, in best.json", best.ties.len() - TIES));
        }
        lines.extend(labelled("GPU", gpu_summary(&measurement.machine.gpus)));
    }
    // The winner's losses are worth a line if the losses of another config diverged.
    let has_diverged = study.history.trials().iter().any(|trial| matches!(trial.outcome, Outcome::Diverged(_)));
    let numerics = measurement.numerics.as_ref().filter(|_| has_details || has_diverged);
    lines.extend(numerics.map(|numerics| format!("numerics  {}", shown_numerics(numerics))));
    lines.extend(comparison_line(study, best, has_details));
    lines.extend(trend_words(study, best).map(|words| format!("trend     {words}")));
    lines.extend(study.whole_run(best).map(|run| {
        let words = if has_details { run.words(best.speedup) } else { run.brief(best.speedup) };
        format!("run       {words}")
    }));
    lines.extend(largest_batch_line(study, config));
    lines.extend(settings_lines(study, best, has_details));
    lines.extend(front_lines(study, best));
    lines
}

/// Formats the objective's value of a config, over all its trials.
fn shown_entry(study: &Study, entry: &Ranked) -> String {
    if study.objective.goals().len() < 2 {
        return shown_metric(study.objective.metric(), entry.estimate, &entry.measurement);
    }
    let numbers = study.parts(&entry.config).iter().map(|part| Some(part.estimate)).collect::<Vec<_>>();
    shown_together(&study.objective, Some(entry.estimate), &numbers, &entry.measurement)
}

/// Returns the line about the largest batch: from a run that trained on it, else from a run that was not on the CPU.
fn largest_batch_line(study: &Study, config: &Config) -> Option<String> {
    let runs = || study.history.of(config).filter_map(|trial| trial.outcome.measurement());
    let trained = runs().find(|run| run.has_trained_largest());
    let on_device = || runs().find(|run| run.facts.text("device").is_some_and(|device| device != "cpu"));
    trained.or_else(on_device).and_then(Measurement::largest_batch_words).map(|words| format!("batches   {words}"))
}

fn memory_words(measurement: &Measurement) -> String {
    let is_on_cpu = measurement.facts.text("device") == Some("cpu");
    let memory = if is_on_cpu { "host memory" } else { "memory" };
    match (measurement.memory.peak_bytes, measurement.memory_headroom()) {
        (Some(peak), Some(headroom)) => {
            format!(", {} of {memory} at the peak ({} % free)", show_bytes(peak), show_number(headroom * 100.0))
        }
        (Some(peak), None) => format!(", {} of {memory} at the peak", show_bytes(peak)),
        _ => String::new(),
    }
}
