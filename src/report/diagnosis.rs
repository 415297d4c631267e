//! Writes a diagnosis for the terminal and as JSON.

mod bar;
mod json;

use std::fmt::Write as _;
use std::time::Duration;

use bar::parts;
pub use json::diagnosis_json;

use super::row::shown_estimate;
use super::screen::{Page, pairs};
use crate::diagnosis::{
    Account, Basis, Diagnosed, Differential, Evidence, Examined, Opening, Ran, Verdict, Worth, host_lines,
};
use crate::model::Metric;
use crate::model::quantity::{show_bytes, show_count, show_duration, show_number, show_seconds};

/// The text around a diagnosis on the screen.
#[derive(Debug, Clone, Copy)]
pub struct Occasion<'o> {
    /// The job: a spec, or a command.
    pub job: &'o str,
    /// The device.
    pub device: &'o str,
    /// The command to run next, or advice in words.
    pub next: &'o str,
    /// The width of a line in characters.
    pub columns: usize,
}

/// The column where labels end.
const INDENT: usize = 12;
/// The most pieces of evidence, other causes, lines of the script and remedies that are shown.
const CLUES: usize = 5;
const OTHERS: usize = 3;
const LINES: usize = 3;
const CURES: usize = 3;

/// Writes the diagnosis on one screen.
pub fn diagnosis_text(examined: &Examined, occasion: &Occasion<'_>) -> String {
    let (evidence, verdict, columns) = (&examined.evidence, &examined.verdict, occasion.columns);
    let mut page = Page::new(INDENT, columns);
    page.line("job", occasion.job);
    page.line("device", occasion.device);
    page.line("measured", &measured(evidence));
    page.unless_empty("samples", &samples(evidence).unwrap_or_default());
    flaws(evidence).iter().for_each(|flaw| page.line("warning", flaw));
    let account = Account::of(evidence);
    account.iter().flat_map(bar::account_lines).for_each(|(label, content)| page.line(label, &content));
    let parts = parts(evidence);
    if !parts.is_empty() {
        page.line("a step", &bar::drawn(&parts, columns.saturating_sub(INDENT)));
        page.line("", &pairs(&bar::legend(&parts), columns.saturating_sub(INDENT)));
    }
    device_lines(evidence).iter().for_each(|(label, content)| page.line(label, content));
    page.unless_empty("ceiling", &ceiling(evidence).unwrap_or_default());
    page.unless_empty("ranks", &exchange(evidence).unwrap_or_default());
    page.add("");
    verdict_lines(examined, &mut page);
    page.add("");
    // The lines of the script where the host spends its time.
    page.lines("lines", host_lines(evidence).into_iter().take(LINES).map(|line| line.words()));
    remedies(evidence, verdict, &mut page);
    probes(examined, &mut page);
    if occasion.next.starts_with("gputune ") {
        // A command is never wrapped, so that it can be copied.
        page.add(&format!("{:<INDENT$}{}", "next", occasion.next));
    } else {
        page.line("next", occasion.next);
    }
    page.into_text()
}

/// Returns the warnings about the job, and the flaws that its differential probes showed, without duplicates.
fn flaws(evidence: &Evidence) -> Vec<String> {
    let of_run = |(_, ran): &(Differential, Ran)| match ran {
        Ran::Measured(run) => run.flaw(),
        _ => None,
    };
    let mut flaws: Vec<String> =
        evidence.runs.iter().filter_map(of_run).chain(evidence.observed.warnings(None, false)).collect();
    flaws.sort_unstable();
    flaws.dedup();
    flaws
}

fn measured(evidence: &Evidence) -> String {
    let observed = &evidence.observed;
    let mut words = match observed.throughput {
        Some(throughput) => shown_estimate(throughput, &observed.unit),
        None => "no throughput".to_owned(),
    };
    if let Some(seconds) = evidence.step() {
        let _ = write!(words, ", {} a step", show_seconds(seconds));
        if let Some(samples) = observed.timing.samples_per_step {
            let _ = write!(words, " of {} samples", show_count(samples));
        }
    }
    let _ = write!(words, ", {} steps", observed.timing.steps);
    if observed.timing.is_unstable {
        words += "; it did not settle";
    }
    words
}

/// Returns how the samples of a step were counted, with any mismatch between the counts. Returns advice if only steps
/// are counted, and `None` if a sampler counted the samples without a mismatch.
fn samples(evidence: &Evidence) -> Option<String> {
    if evidence.is_in_steps() {
        return Some(
            "the samples per step are unknown, so gputune counts steps; set samples_per_step in [step] of a spec"
                .to_owned(),
        );
    }
    let by = evidence.text("samples.counted_by")?;
    if let Some(mismatch) = evidence.text("samples.mismatch") {
        return Some(format!("counted by the {by}: {mismatch}"));
    }
    by.contains("dimension").then(|| format!("counted by the {by}, since no sampler handed them out"))
}

fn device_lines(evidence: &Evidence) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let share = |metric: Metric, words: &str| evidence.gpu(metric).map(|it| format!("{words} {:.0} %", it * 100.0));
    let told: Vec<String> = [
        share(Metric::GpuBusy, "busy"),
        share(Metric::SmActive, "SM activity"),
        share(Metric::TensorActive, "tensor cores"),
        share(Metric::DramActive, "memory bandwidth"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !told.is_empty() {
        lines.push(("GPU", told.join(", ")));
    } else if let Some(cores) = evidence.host(Metric::CpuCores) {
        let of = evidence.cores().map(|all| format!(" of {}", show_count(all))).unwrap_or_default();
        lines.push(("CPU", format!("{} cores{of} busy", show_number(cores))));
    }
    let observed = &evidence.observed;
    if let Some(peak) = observed.memory.peak_bytes {
        let of = observed.memory.capacity_bytes.map(|all| format!(" of {}", show_bytes(all))).unwrap_or_default();
        lines.push(("memory", format!("{}{of} at the peak", show_bytes(peak))));
    }
    lines
}

/// Returns how much of the best measured rate the job reaches, in percent.
fn ceiling(evidence: &Evidence) -> Option<String> {
    let (best, differential) = best_measured(evidence)?;
    let rate = evidence.rate()?.value;
    let share = (rate / best).min(1.0) * 100.0;
    let (ceiling, label) = (evidence.shown_rate(best.max(rate)), differential.row().label);
    Some(format!("{share:.0} % of the measured ceiling, {ceiling} ({label})"))
}

/// Returns the cost of the communication between ranks, in a job with several ranks.
fn exchange(evidence: &Evidence) -> Option<String> {
    let ranks = evidence.ranks();
    let exposed = evidence.exposed_communication().filter(|_| ranks > 1)?;
    let by = match exposed.by {
        Differential::OneRank => "at most, as one rank alone also has the machine to itself",
        _ => "measured by training without it",
    };
    Some(format!("{ranks}; communication is {}; without it {:.2}x as fast ({by})", exposed.words(), exposed.times))
}

/// Returns the higher rate of two differential probes: replayed batches, and batches in page-locked memory.
fn best_measured(evidence: &Evidence) -> Option<(f64, Differential)> {
    let all = [Differential::Replay, Differential::Pinned].into_iter();
    let rates = all.filter_map(|which| Some((evidence.rate_of(which)?.value, which)));
    rates.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Formats the speedup that removing a cause is worth: `up to 1.8x`, or why it is not known.
fn shown_worth(worth: &Worth) -> String {
    let Some(times) = worth.times else { return format!("not measured: {}", worth.words) };
    let by = match worth.by_parameters {
        Some(by) if by < 1.05 => "; parameters alone bring next to nothing".to_owned(),
        Some(by) if by < times * 0.97 => format!("; parameters alone should bring {by:.1}x"),
        _ => String::new(),
    };
    let basis = if worth.basis == Basis::Measured { "" } else { "estimated: " };
    format!("up to {times:.1}x{by} ({basis}{})", worth.words)
}

fn verdict_lines(examined: &Examined, page: &mut Page) {
    let verdict = &examined.verdict;
    let Some(top) = verdict.top() else { return nothing_found(&examined.evidence, page) };
    let kept = if examined.is_interrupted { ", from the probes before it was stopped" } else { "" };
    page.line("bottleneck", &format!("{} ({}{kept})", top.cause.title, verdict.how_sure()));
    page.lines("", shown_clues(top));
    if !verdict.is_healthy() {
        page.line("worth", &shown_worth(&top.found.worth));
    }
    let others = verdict.others().filter(|other| other.sureness >= 0.3).take(OTHERS);
    page.lines(
        "also",
        others.map(|other| {
            let worth = other.found.worth.times.map_or_else(String::new, |times| format!(", worth up to {times:.1}x"));
            let why = other.found.clues.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).map_or("", |it| &it.text);
            format!("{}{worth}: {why}", other.cause.title)
        }),
    );
}

/// Describes a job in which no cause was found, with the parts of a step if the job reports them.
fn nothing_found(evidence: &Evidence, page: &mut Page) {
    let Some(largest) = largest_part(evidence) else {
        let words = "the steps themselves: the job reports neither phases nor facts; see adapter in docs/spec.md";
        return page.line("bottleneck", words);
    };
    page.line("bottleneck", &largest);
    page.line("", "- what would shorten it was not found; a search can try the job's options");
}

/// Returns the largest part of a step in words; `None` if the job reports no phase.
pub fn largest_part(evidence: &Evidence) -> Option<String> {
    let parts = parts(evidence);
    let largest = parts.iter().max_by(|a, b| a.share.total_cmp(&b.share))?;
    let share = (largest.share * 100.0).round();
    Some(format!("{}, {share:.0} % of a step", largest.label))
}

/// Returns the strongest pieces of evidence; evidence against the cause is marked.
fn shown_clues(diagnosed: &Diagnosed) -> Vec<String> {
    let mut clues: Vec<_> = diagnosed.found.clues.iter().collect();
    clues.sort_by(|a, b| b.weight.abs().total_cmp(&a.weight.abs()));
    let marked = clues.into_iter().take(CLUES);
    marked.map(|clue| format!("{} {}", if clue.weight < 0.0 { "but" } else { "-" }, clue.text)).collect()
}

fn shown_opening(opening: &Opening) -> String {
    let values: Vec<String> = opening.values.iter().map(ToString::to_string).collect();
    let today = opening.today.as_ref().map(|today| format!(", today {today}")).unwrap_or_default();
    format!("{}: {}{today}", opening.parameter, values.join(" "))
}

fn remedies(evidence: &Evidence, verdict: &Verdict, page: &mut Page) {
    let Some(top) = verdict.top() else { return };
    let openings = top.openings(evidence);
    page.lines("open", openings.iter().map(shown_opening));
    if openings.is_empty() && !verdict.is_healthy() {
        page.line("open", "no parameter fixes this");
    }
    let cures = top.cures(evidence).into_iter().take(CURES);
    page.lines("by hand", cures.map(|cure| format!("{}: {}", cure.what, cure.why)));
}

fn probes(examined: &Examined, page: &mut Page) {
    let mut ran = vec!["the unmodified job".to_owned()];
    let (mut failed, mut left_out) = (Vec::new(), Vec::<(&str, Vec<&str>)>::new());
    for (differential, result) in &examined.evidence.runs {
        let label = differential.row().label;
        match result {
            Ran::Measured(_) => ran.push(label.to_owned()),
            Ran::OutOfMemory(memory) => ran.push(format!("{label} (out of {memory} memory)")),
            Ran::Failed(reason) => failed.push(format!("{label}: {reason}")),
            Ran::LeftOut(reason) => match left_out.iter_mut().find(|(known, _)| known == reason) {
                Some((_, labels)) => labels.push(label),
                None => left_out.push((reason, vec![label])),
            },
        }
    }
    let elapsed = show_duration(examined.elapsed.max(Duration::from_millis(1)));
    page.line("probes", &format!("{}; {elapsed}", ran.join(", ")));
    failed.iter().for_each(|reason| page.line("failed", reason));
    let left_out: Vec<String> =
        left_out.into_iter().map(|(reason, labels)| format!("{} ({reason})", labels.join(", "))).collect();
    page.unless_empty("not run", &left_out.join("; "));
}

/// Returns the diagnosis in one line, as in a search's report: the bottleneck, the confidence and its worth.
pub fn diagnosis_line(verdict: &Verdict) -> Option<String> {
    let top = verdict.top()?;
    let worth = match (verdict.is_healthy(), top.found.worth.times) {
        (false, Some(times)) => format!(", worth up to {times:.1}x"),
        _ => String::new(),
    };
    Some(format!("{} ({}{worth})", top.cause.title, verdict.how_sure()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::{diagnose, sample::Job};

    fn screen(evidence: Evidence, columns: usize) -> String {
        let verdict = diagnose(&evidence);
        screen_of(evidence, verdict, columns)
    }

    fn screen_of(evidence: Evidence, verdict: Verdict, columns: usize) -> String {
        let examined = Examined { evidence, verdict, elapsed: Duration::from_secs(42), is_interrupted: false };
        let occasion = Occasion {
            job: "python train.py --epochs 1",
            device: "Some CPU, 4 cores, 16.0 GiB",
            next: "gputune diagnose --write gputune.toml -- python train.py --epochs 1",
            columns,
        };
        let report = serde_json::to_value(diagnosis_json(&examined, occasion.job, occasion.device)).unwrap();
        assert_eq!(report["format"], 1);
        assert_eq!(report["bottleneck"]["cause"].as_str(), examined.verdict.top().map(|top| top.cause.name));
        diagnosis_text(&examined, &occasion)
    }

    fn starved() -> Evidence {
        let job = Job::cpu().workers(0).wait(0.5).replay(200.0).item(0.005, 0.005).loader(&[(0, 200.0), (2, 390.0)]);
        let mut evidence = job.number("log_seconds_per_step", 0.02).evidence();
        evidence.runs.push((Differential::OtherPrecision, Ran::LeftOut("no GPU".to_owned())));
        evidence.runs.push((Differential::Pinned, Ran::LeftOut("no GPU".to_owned())));
        evidence.runs.push((Differential::DoubleBatch, Ran::Failed("exit code 1: ValueError".to_owned())));
        evidence
    }

    #[test]
    fn a_job_that_waits_for_data() {
        insta::assert_snapshot!(screen(starved(), 80));
    }

    #[test]
    fn without_a_cause_the_largest_phase_is_named() {
        let mut evidence = Evidence::default();
        evidence.observed.timing.step_seconds = Some(1.0);
        evidence.observed.phase_seconds =
            [("forward", 0.62), ("backward", 0.3)].map(|(name, seconds)| (name.to_owned(), seconds)).into();
        let screen = screen_of(evidence, Verdict::default(), 80);
        assert!(screen.contains("bottleneck  forward, 62 % of a step"), "{screen}");
        let nothing = screen_of(Evidence::default(), Verdict::default(), 80);
        assert!(nothing.contains("the steps themselves: the job reports neither phases nor facts"), "{nothing}");
    }

    #[test]
    fn a_healthy_job_on_a_gpu() {
        insta::assert_snapshot!(screen(Job::gpu().replay(101.0).evidence(), 80));
    }

    #[test]
    fn every_screen_fits() {
        for evidence in [starved(), Job::gpu().evidence(), Evidence::default()] {
            for columns in [40, 80, 120] {
                let text = screen(evidence.clone(), columns);
                let wrapped = text.lines().filter(|line| !line.starts_with("next"));
                let widest = wrapped.map(|line| line.chars().count()).max().unwrap_or(0);
                let next = "next        gputune diagnose --write gputune.toml -- python train.py --epochs 1\n";
                assert!(text.contains(next));
                assert!(widest <= columns, "{widest} of {columns}:\n{text}");
            }
            assert!(screen(evidence, 80).lines().count() <= 42);
        }
    }
}
