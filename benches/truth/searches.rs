//! Whole searches: what the config that is named loses in truth, and how often a winner is claimed where all are the same.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use gputune::model::{Event, Objective};
use gputune::probe::Limits;
use gputune::search::{Best, Budget, Study, Tuner, Verdict};

use super::runs::Runs;
use super::{Options, Result, Workload, load};

/// The true loss that counts as none.
const NEAR: f64 = 0.05;

/// Searches several times, and looks up in the long runs what the named config loses against the best.
pub(super) fn losses(workload: &Workload, spec: &Path, options: &Options, runs: &Runs) -> Result<String> {
    let best = runs.configs.iter().map(|config| config.truth()).fold(f64::NEG_INFINITY, f64::max);
    let mut text =
        format!("\n### What searches name, {}\n\n| search | named | probes | speed-up | true loss |\n", workload.about);
    text += "|--:|---|--:|--:|--:|\n";
    let mut near = 0;
    for number in 1..=options.searches {
        let (study, best_found) = search(spec, options)?;
        let named = &best_found.winner.config;
        let truth = runs.configs.iter().find(|config| config.config == *named).map(|config| config.truth());
        let loss = truth.map(|truth| 1.0 - (truth - best).exp());
        near += usize::from(loss.is_some_and(|loss| loss <= NEAR));
        let told = loss.map_or("not among the long runs".to_owned(), |loss| format!("{:.1} %", loss * 100.0));
        let (line, probes, speedup) =
            (study.settings(named).line(), study.history.trials().len(), speedup(&best_found));
        eprintln!("{} search {number}: {line} ({speedup}) after {probes} probes loses {told}", workload.name);
        let _ = writeln!(text, "| {number} | {line} | {probes} | {speedup} | {told} |");
    }
    let _ = writeln!(text, "\nWithin 5 % of the best in truth: {near} of {}.", options.searches);
    Ok(text)
}

/// Searches a space in which a parameter changes nothing, several times, and counts the winners that are claimed.
pub(super) fn all_the_same(workload: &Workload, spec: &Path, options: &Options) -> Result<String> {
    let text = fs::read_to_string(spec)?;
    let (before, space) = text.split_once("[space]\n").ok_or("no [space]")?;
    let (_, limits) = space.split_once("[limits]").ok_or("no [limits]")?;
    let step = with_values(before);
    fs::write(spec, format!("{step}[space]\nnothing = {{ range = [1, 8] }}\n[limits]{limits}"))?;
    let mut claimed = 0;
    for number in 1..=options.searches {
        let (_, best) = search(spec, options)?;
        let is_claimed = best.verdict == Verdict::Faster;
        claimed += usize::from(is_claimed);
        eprintln!("{} search {number}: {:?} {}", workload.name, best.verdict, speedup(&best));
    }
    Ok(format!(
        "\n## All configs the same, {}\n\nA winner is claimed in {claimed} of {} searches.\n",
        workload.about, options.searches
    ))
}

/// The step with a value for what its command names of the space.
fn with_values(step: &str) -> String {
    [("{batch_size}", "32"), ("{workers}", "1"), ("{precision}", "f32")]
        .into_iter()
        .fold(step.to_owned(), |step, (name, value)| step.replace(name, value))
}

fn search(path: &Path, options: &Options) -> Result<(Study, Best)> {
    let (spec, prober) = load(path)?;
    let first = spec.space.first().ok_or("an empty space")?;
    let start = spec.space.settings(&first);
    let budget = Budget { time: std::time::Duration::from_secs(3600), ..Budget::default() };
    let study = Tuner::with_prober(spec.space, prober)
        .objective(Objective::default())
        .limits(Limits { measure_time: options.measure_time, ..spec.limits })
        .budget(budget)
        .baseline(&start)?
        .run(|_: Event<'_>| ())?;
    let best = study.best().ok_or("nothing was feasible")?;
    Ok((study, best))
}

fn speedup(best: &Best) -> String {
    best.speedup.map_or_else(String::new, |speedup| match (speedup.low, speedup.high) {
        (Some(low), Some(high)) => format!("{:.2} ({low:.2} to {high:.2})", speedup.value),
        _ => format!("{:.2}", speedup.value),
    })
}
