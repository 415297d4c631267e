//! The same search again and again: does it name the same winner, or at least call it a tie?

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use gputune::model::Event;
use gputune::probe::Limits;
use gputune::search::{Budget, Tuner};

use super::{Options, Result, Workload, load};

/// A search's winner and what it says cannot be told from it.
struct Named {
    winner: String,
    ties: Vec<String>,
    speedup: String,
}

/// The searches of a workload, as Markdown.
pub(super) fn of(workload: &Workload, spec: &Path, options: &Options) -> Result<String> {
    let mut all = Vec::new();
    for number in 1..=options.searches {
        let named = search(spec, options)?;
        eprintln!("{} search {number}: {} ({} ties)", workload.name, named.winner, named.ties.len());
        all.push(named);
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    all.iter().for_each(|named| *counts.entry(&named.winner).or_default() += 1);
    let most = counts.iter().max_by_key(|(_, count)| **count).map_or("", |(winner, _)| *winner);
    let agrees = |named: &&Named| named.winner == most || named.ties.iter().any(|tie| tie == most);
    let agreeing = all.iter().filter(agrees).count();
    let mut text = format!("\n## A/A, {}\n\n", workload.about);
    let _ = writeln!(text, "`{most}` is the winner, or tied with it, in {agreeing} of {} searches.\n", all.len());
    let _ = writeln!(text, "| search | winner | speed-up | ties | agrees |\n|--:|---|---|--:|---|");
    for (at, named) in all.iter().enumerate() {
        let word = if agrees(&named) { "yes" } else { "no" };
        let _ = writeln!(text, "| {} | {} | {} | {} | {word} |", at + 1, named.winner, named.speedup, named.ties.len());
    }
    Ok(text)
}

fn search(path: &Path, options: &Options) -> Result<Named> {
    let (spec, prober) = load(path)?;
    let first = spec.space.first().ok_or("an empty space")?;
    let start = spec.space.settings(&first);
    let budget = Budget {
        probes: u32::try_from(options.configs)?,
        time: std::time::Duration::from_secs(3600),
        ..Budget::default()
    };
    let study = Tuner::with_prober(spec.space, prober)
        .limits(Limits { measure_time: options.measure_time, ..spec.limits })
        .budget(budget)
        .baseline(&start)?
        .run(|_: Event<'_>| ())?;
    let best = study.best().ok_or("nothing was feasible")?;
    let line = |config| study.settings(config).line();
    let speedup = best.speedup.map_or_else(String::new, |speedup| match (speedup.low, speedup.high) {
        (Some(low), Some(high)) => format!("{:.2} ({low:.2} to {high:.2})", speedup.value),
        _ => format!("{:.2}", speedup.value),
    });
    Ok(Named {
        winner: line(&best.winner.config),
        ties: best.ties.iter().map(|tie| line(&tie.config)).collect(),
        speedup,
    })
}
