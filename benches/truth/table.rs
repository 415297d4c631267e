//! What the runs came to, as Markdown.

use std::fmt::Write as _;
use std::fs;

use gputune::probe::stats;

use super::Workload;
use super::probes::{Compared, FIXED, Run};

/// The difference to the long run that counts as none, whatever the interval.
const NEAR: f64 = 0.02;

/// One of the runs of a config.
type Pick = fn(&Compared) -> Run;

/// When and where: the command, the machine, and how busy it was.
pub(super) fn conditions(command: &str) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo").lines().find_map(|line| Some(line.strip_prefix("model name")?.to_owned()));
    let processor = processor.map(|name| name.trim_start_matches([' ', '\t', ':']).to_owned()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(", ");
    format!("`{command}`, on {cores} cores of {processor}; load average at the start {load}\n")
}

/// The table of a workload.
pub(super) fn of(workload: &Workload, compared: &[Compared]) -> String {
    let mut text = format!("\n## {}: {} configs\n\n", workload.about, compared.len());
    let share = |count: usize| format!("{count} of {}", compared.len());
    let within = |run: Pick| compared.iter().filter(|one| confirmed(run(one), one.long)).count();
    let error = |run: Pick| quartiles(compared.iter().map(|one| difference(run(one), one.long) * 100.0));
    let _ = writeln!(text, "| | a probe of gputune | {FIXED} steps |\n|---|--:|--:|");
    let (probe, fixed): (Pick, Pick) = (|one| one.probe, |one| one.fixed);
    let _ = writeln!(
        text,
        "| within its own interval, or 2 %, of a run ten times longer | {} | {} |",
        share(within(probe)),
        share(within(fixed))
    );
    let _ = writeln!(text, "| difference to that run in %: median (quartiles) | {} | {} |", error(probe), error(fixed));
    let stepping = |run: Pick| compared.iter().map(|one| run(one).stepping).sum::<f64>();
    let wall = |run: Pick| compared.iter().map(|one| run(one).wall).sum::<f64>();
    let _ = writeln!(
        text,
        "| seconds from its first to its last step: all configs | {:.1} | {:.1} |",
        stepping(probe),
        stepping(fixed)
    );
    let _ = writeln!(text, "| the same with start and clean-up | {:.1} | {:.1} |", wall(probe), wall(fixed));
    let ratios = quartiles(compared.iter().map(|one| one.probe.stepping / one.fixed.stepping));
    let _ = writeln!(text, "| time of the probe / time of {FIXED} steps: median (quartiles) | {ratios} | |");
    let unstable = compared.iter().filter(|one| one.is_unstable).count();
    let _ = writeln!(text, "| did not settle | {} | |", share(unstable));

    let _ = writeln!(text, "\n| config | probe | ten times longer | difference | probe, s | {FIXED} steps, s | |");
    let _ = writeln!(text, "|---|--:|--:|--:|--:|--:|---|");
    for one in compared {
        let shown = |run: Run| {
            let half = run.throughput.relative_half_width().unwrap_or(f64::NAN) * 100.0;
            format!("{:.1} ± {half:.1} %", run.throughput.value)
        };
        let signed = (one.probe.throughput.value / one.long.throughput.value - 1.0) * 100.0;
        let verdict = if confirmed(one.probe, one.long) { "" } else { "not confirmed" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {signed:+.1} % | {:.2} | {:.2} | {verdict} |",
            one.settings,
            shown(one.probe),
            shown(one.long),
            one.probe.stepping,
            one.fixed.stepping
        );
    }
    text
}

fn difference(run: Run, long: Run) -> f64 {
    (run.throughput.value / long.throughput.value - 1.0).abs()
}

fn confirmed(run: Run, long: Run) -> bool {
    let truth = long.throughput.value;
    let inside = run.throughput.low.zip(run.throughput.high).is_some_and(|(low, high)| low <= truth && truth <= high);
    inside || difference(run, long) <= NEAR
}

fn quartiles(numbers: impl Iterator<Item = f64>) -> String {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let at = |quarter: usize| numbers.get((numbers.len() * quarter / 4).min(numbers.len().saturating_sub(1))).copied();
    let (Some(low), Some(high)) = (at(1), at(3)) else { return String::new() };
    format!("{:.2} ({low:.2} to {high:.2})", stats::median(&numbers).unwrap_or(f64::NAN))
}
