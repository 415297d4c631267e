//! Makes the head of the page: the result, its confidence, the reasons, and the next commands.

use std::collections::BTreeMap;

use serde::Serialize;

use super::detail::Kept;
use super::importance::importance;
use super::table::{Place, places};
use crate::model::quantity::{show_bytes, show_duration, show_number, show_seconds};
use crate::model::{Count, Estimate, Measurement, Settings, Trial};
use crate::report::Subject;
use crate::report::bottleneck::{Bottleneck, Spending};
use crate::report::care::Care;
use crate::report::ending::{after_rounds, comparative, no_config_is_faster, trend_words};
use crate::report::figures::Studied;
use crate::report::front::front_lines;
use crate::report::gpus::{MemoryParts, gpu_summary, host_words};
use crate::report::learning_rate::LearningRate;
use crate::report::older;
use crate::report::row::{is_vague, shown_gain, shown_metric, shown_numerics, shown_outcome, sure_gain};
use crate::report::trace::Trace;
use crate::search::{Best, StopReason, Study, Verdict};

#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    headline: String,
    /// The confidence in the result, or why it is unknown.
    sub: String,
    is_found: bool,
    /// A note if the search was interrupted or is still running.
    flag: Option<&'static str>,
    /// The device, and how much of the space was tried.
    tried: String,
    /// The most important numbers.
    cards: Vec<Card>,
    /// The settings of the best config, next to the baseline's settings.
    settings: Vec<Setting>,
    /// The parameters with their shares of the differences between configs, the largest first.
    importance: Vec<(String, String)>,
    ties: Vec<String>,
    /// The time of each branch with the baseline and with the best config.
    account: Vec<Branch>,
    /// The work that the account covers, such as `1,000 samples`.
    account_of: String,
    /// A sentence on the largest remaining branch.
    next_factor: Option<String>,
    /// The results of each slot; empty if one probe ran at a time on the whole machine.
    slots: Vec<Place>,
    /// Further findings, each with a label.
    lines: Vec<(String, String)>,
    /// The next commands, each with its purpose.
    next: Vec<(String, String)>,
}

#[derive(Debug, Serialize)]
struct Card {
    label: &'static str,
    value: String,
    note: String,
}

#[derive(Debug, Serialize)]
struct Setting {
    name: String,
    value: String,
    /// The baseline's setting, if it differs.
    before: Option<String>,
}

#[derive(Debug, Serialize)]
struct Branch {
    name: String,
    was: String,
    is: String,
}

impl Summary {
    pub(super) fn of(subject: &Subject<'_>, studied: &Studied<'_>, kept: &BTreeMap<u32, Kept>) -> Self {
        let study = &subject.kept.study;
        let mut summary = match &studied.best {
            Some(best) => found(subject, best, kept),
            None => nothing(study),
        };
        summary.flag = match study.stopped {
            StopReason::Interrupted => Some("interrupted: the same command goes on"),
            StopReason::Running => Some("running: this page is loaded again every 10 s"),
            _ => None,
        };
        let searched = study.history.count_searched();
        summary.tried = match study.space.count() {
            Count::Exact(_) => {
                format!("{}; {searched} of {}", subject.kept.device.name, study.space.count().in_words())
            }
            Count::Unknown => format!("{}; {searched} configs", subject.kept.device.name),
        };
        let elapsed = show_duration(study.elapsed);
        summary.cards.push(Card {
            label: "Probes",
            value: searched.to_string(),
            note: match study.rounds() {
                0 => format!("in {elapsed}"),
                1 => format!("and 1 round, in {elapsed}"),
                rounds => format!("and {rounds} rounds, in {elapsed}"),
            },
        });
        summary.add("Journal", older(subject.kept));
        if let Some(bottleneck) = Bottleneck::of(study) {
            let branch = |row: &Spending| Branch {
                name: row.branch.clone(),
                was: show_seconds(row.was_s),
                is: show_seconds(row.is_s),
            };
            summary.account = Spending::shown(&bottleneck.account).into_iter().map(branch).collect();
            summary.account_of.clone_from(&bottleneck.account_of);
            summary.next_factor = Spending::next(&bottleneck.account);
            let lines: Vec<String> = bottleneck.limit_lines();
            let texts: Vec<&str> = lines.iter().map(|line| line.get(10..).unwrap_or(line).trim()).collect();
            summary.add("limit", [texts.join("; ")]);
        }
        summary.add_labelled(Care::of(study).lines());
        summary.slots = places(study);
        summary.add("slots", study.side_by_side.clone());
        summary.add("ended because", (study.stopped != StopReason::Running).then(|| study.stopped.to_string()));
        summary
    }

    fn add(&mut self, label: &str, lines: impl IntoIterator<Item = String>) {
        self.lines.extend(lines.into_iter().map(|line| (label.to_owned(), line)));
    }

    /// Adds lines whose first ten characters are their labels.
    fn add_labelled(&mut self, lines: impl IntoIterator<Item = String>) {
        self.lines.extend(lines.into_iter().map(|line| {
            let at = line.char_indices().nth(10).map_or(line.len(), |(at, _)| at);
            let (label, text) = line.split_at(at);
            (label.trim().to_owned(), text.trim().to_owned())
        }));
    }
}

fn nothing(study: &Study) -> Summary {
    let mut trials = study.history.trials().iter();
    let (headline, sub) = match trials.next() {
        None => ("No probe has ended yet".to_owned(), String::new()),
        Some(first) => {
            let sub = format!("The first probe: {}", shown_outcome(&study.objective, &first.outcome));
            ("No config is feasible".to_owned(), sub)
        }
    };
    Summary { headline, sub, ..Summary::default() }
}

fn found(subject: &Subject<'_>, best: &Best, kept: &BTreeMap<u32, Kept>) -> Summary {
    let study = &subject.kept.study;
    let measurement = &best.winner.measurement;
    let (headline, sub) = headline(study, best);
    let result = shown_metric(study.objective.metric(), best.winner.estimate, measurement);
    let (value, note) = result.split_once(" ± ").map_or((result.clone(), String::new()), |(value, half)| {
        (value.to_owned(), format!("± {half}, {}", measured_times(best.winner.rounds)))
    });
    let mut summary = Summary { headline, sub, is_found: true, ..Summary::default() };
    let label = if study.objective.metric() == "throughput" { "Throughput" } else { "Result" };
    summary.cards.push(Card { label, value, note });
    if let Some(run) = study.whole_run(best) {
        let note = format!("{}{}", run.length, run.after_times());
        summary.cards.push(Card { label: "Whole run", value: run.times().replace("->", "→"), note });
    }
    summary.cards.extend(memory_card(measurement));
    let settings = study.settings(&best.winner.config);
    let before = study.baseline.as_ref().map(|config| study.settings(config));
    summary.settings = compared(&settings, before.as_ref());
    let shown = |(name, share): (String, f64)| (name, format!("{:.0} %", share * 100.0));
    summary.importance = importance(study).into_iter().map(shown).collect();
    summary.ties = best.ties.iter().map(|tie| study.settings(&tie.config).line()).collect();
    summary.add("why", best.baseline.as_ref().and_then(|baseline| why(&baseline.measurement, measurement)));
    let found_by = study.history.of(&best.winner.config).find(|trial| !trial.purpose.is_repeated());
    let reason = |trial: &Trial| Some(format!("{} (probe {})", kept.get(&trial.number)?.why.as_ref()?, trial.number));
    summary.add("trend", trend_words(study, best));
    summary.add("proposed for", found_by.and_then(reason));
    summary.add("GPU", gpu_summary(&measurement.machine.gpus));
    summary.add("host", host_words(&measurement.machine.host));
    if let Some(best) = subject.best {
        summary.add_labelled(best.compute.map(|compute| compute.line()));
        summary.add("memory", best.memory.as_ref().map(MemoryParts::words));
        summary.add_labelled(Trace::lines(best.trace.as_ref(), best.baseline_trace.as_ref()));
        summary.add("learning rate", best.learning_rate.as_ref().map(LearningRate::sentence));
        let command = best.for_sharing().shown_command();
        summary.next.extend(command.map(|command| ("Train with it".to_owned(), command)));
    }
    summary.add("numerics", measurement.numerics.as_ref().map(shown_numerics));
    summary.add_labelled(front_lines(study, best));
    summary
}

fn measured_times(rounds: usize) -> String {
    match rounds {
        0 => "measured once".to_owned(),
        1 => "in one round".to_owned(),
        count => format!("in {count} rounds"),
    }
}

/// Returns the result and its confidence.
fn headline(study: &Study, best: &Best) -> (String, String) {
    let better = format!("{} than the baseline", comparative(study));
    match best.speedup.or(best.unproven_speedup) {
        _ if best.verdict == Verdict::TiedWithBaseline => {
            let mut sub = no_config_is_faster(study, best) + ".";
            sub[..1].make_ascii_uppercase();
            ("The baseline stays".to_owned(), sub)
        }
        Some(seen) if best.verdict == Verdict::Unproven => (
            "A config was found, and not proven to be better".to_owned(),
            format!("It is {}, {}.", shown_gain(seen, &better, (false, None)), after_rounds(best)),
        ),
        Some(speedup) => {
            let gain = shown_gain(speedup, &better, (true, best.lowest_speedup)).replace("x ", "× ");
            let Some(run) = study.whole_run(best) else {
                let mut said = format!("{:.2}× {better}", speedup.value);
                if is_vague(speedup) {
                    said = gain;
                    said[..1].make_ascii_uppercase();
                }
                return (said, interval_words(speedup));
            };
            let of_run = run.speedup();
            // Rates over whole epochs leave out only the start.
            let what = if run.epoch_ends_share.is_some() { "without the start" } else { "steps alone" };
            let value = if is_vague(of_run) {
                sure_gain(of_run).map_or_else(|| "not known".to_owned(), |low| format!("at least {low:.2}× faster"))
            } else if of_run.value >= 1.0 {
                format!("{:.2}× faster", of_run.value)
            } else {
                format!("{:.2}× slower", 1.0 / of_run.value)
            };
            let sub = format!("{}; {what}: {gain}", interval_words(of_run));
            (format!("Whole run of {}: {value}", run.length), sub)
        }
        None => ("A config was found".to_owned(), no_speedup(study, best).to_owned()),
    }
}

fn no_speedup(study: &Study, best: &Best) -> &'static str {
    if best.baseline.is_some() {
        "No single number compares it with the baseline."
    } else if study.baseline.is_none() {
        "There is no baseline to compare it with."
    } else if study.is_baseline_missing() {
        "The speedup is unknown: the baseline was not measured."
    } else if study.baseline_failure().is_some() {
        "The speedup is unknown: the baseline failed."
    } else {
        "The speedup is unknown: the baseline is not feasible."
    }
}

fn interval_words(speedup: Estimate) -> String {
    speedup.low.zip(speedup.high).map_or_else(
        || "measured once: how sure that is, is not known".to_owned(),
        |(low, high)| format!("95% interval {low:.2}× to {high:.2}×"),
    )
}

fn memory_card(measurement: &Measurement) -> Option<Card> {
    let value = show_bytes(measurement.memory.peak_bytes?);
    let free = measurement.memory_headroom().map(|free| format!("; {} % free", show_number(free * 100.0)));
    let note = format!("at the peak{}", free.unwrap_or_default());
    Some(Card { label: "Memory", value, note })
}

fn compared(settings: &Settings, before: Option<&Settings>) -> Vec<Setting> {
    let shown = |value: Option<&crate::model::Value>| value.map_or_else(|| "not used".to_owned(), ToString::to_string);
    let mut all: Vec<Setting> = settings
        .iter()
        .filter(|(_, value)| !value.is_as_it_is())
        .map(|(name, value)| Setting {
            name: name.to_owned(),
            value: value.to_string(),
            before: before.filter(|before| before.get(name) != Some(value)).map(|before| shown(before.get(name))),
        })
        .collect();
    let gone = before.into_iter().flat_map(Settings::iter).filter(|(name, _)| settings.get(name).is_none());
    all.extend(gone.map(|(name, value)| Setting {
        name: name.to_owned(),
        value: shown(None),
        before: Some(value.to_string()),
    }));
    all
}

/// Names the phase that saves the most time per sample, if the phases of both measurements are known.
fn why(before: &Measurement, now: &Measurement) -> Option<String> {
    /// The smallest share of the saved time that counts as an explanation: a round number.
    const NOTABLE: f64 = 0.2;
    let each = |m: &Measurement, phase: &str| Some(m.phase_seconds.get(phase)? / m.timing.samples_per_step?);
    let whole = |m: &Measurement| Some(m.timing.step_seconds? / m.timing.samples_per_step?);
    let saved = whole(before)? - whole(now)?;
    let gains = before.phase_seconds.keys().filter_map(|phase| {
        let (then, now) = (each(before, phase)?, each(now, phase)?);
        Some((phase, then, now))
    });
    let (phase, then, now) = gains.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))?;
    let share = (then - now) / saved;
    (saved > 0.0 && share >= NOTABLE).then(|| {
        let (phase, share) = (phase.replace('_', " "), (share * 100.0).min(100.0));
        let [now, then] = [now, then].map(show_seconds);
        format!("{phase} takes {now} of a sample's time instead of {then}: {share:.0} % of the saving")
    })
}

/// Returns the facts about the device, the software and the space.
pub(super) fn about(subject: &Subject<'_>) -> Vec<(&'static str, String)> {
    let (study, device) = (&subject.kept.study, &subject.kept.device);
    let mut about = vec![("device", device.name.clone()), ("driver", device.driver.clone())];
    let mut measured = study.history.trials().iter().filter_map(|trial| trial.outcome.measurement());
    about.extend(measured.find_map(|m| m.framework.clone()).map(|framework| ("framework", framework)));
    about.push(("gputune", env!("CARGO_PKG_VERSION").to_owned()));
    about.push(("space", format!("{}, {} parameters", study.space.count().in_words(), study.space.parameters().len())));
    if let Some(cwd) = subject.best.and_then(|best| best.cwd.clone()) {
        about.push(("folder", cwd));
    }
    let warm = subject.best.map(|best| best.warm_start.as_slice()).unwrap_or_default();
    about.extend(warm.iter().map(|warm| ("started from", format!("{} trials of {}", warm.trials, warm.place))));
    about
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Failure, Goal, MemoryUse, Objective, Outcome, Parameter, Purpose, Space};

    fn measured(peak_bytes: u64) -> Outcome {
        Outcome::Measured(Measurement {
            throughput: Some(Estimate::interval(100.0, 99.0, 101.0)),
            memory: MemoryUse { peak_bytes: Some(peak_bytes), capacity_bytes: Some(1 << 30), ..Default::default() },
            ..Measurement::default()
        })
    }

    /// Returns the second part of the headline after a baseline with this outcome and a measured config.
    fn sub(baseline: Outcome, objective: Objective) -> String {
        let space = Space::new([Parameter::values("x", [1, 2])]).unwrap();
        let [first, second] = [0, 1].map(|at| space.config(at).unwrap());
        let baseline = Trial::new(1, Purpose::Baseline, first.clone(), baseline);
        let other = Trial::new(2, Purpose::Search, second, measured(1 << 10));
        let study = Study { baseline: Some(first), objective, ..Study::new(space, [baseline, other]) };
        headline(&study, &study.best().unwrap()).1
    }

    #[test]
    fn a_baseline_that_is_not_feasible_has_not_failed() {
        let without_memory = sub(measured(1 << 30), Objective::default());
        assert_eq!(without_memory, "The speedup is unknown: the baseline is not feasible.");
        let crashed = sub(Outcome::Crashed(Failure::new("exit code 1")), Objective::default());
        assert_eq!(crashed, "The speedup is unknown: the baseline failed.");
        let front = Objective::pareto(["throughput", "peak_memory"].into_iter().filter_map(Goal::known)).unwrap();
        assert_eq!(sub(measured(1 << 20), front), "No single number compares it with the baseline.");
    }
}
