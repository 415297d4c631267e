//! Tests of the interval at the moment at which a probe stops, through [`Patience`] and `Window` as in a probe.

use super::tests::{patience_with, run};
use super::*;
use crate::probe::stats::simulation::{Process, Random};

/// Step times of one kind, with possible noise. The actual noise of a job is unknown.
struct Kind {
    name: &'static str,
    processes: &'static [Process],
}

const KINDS: &[Kind] = &[
    Kind {
        name: "independent",
        processes: &[
            Process::Independent(0.01),
            Process::Independent(0.05),
            Process::Independent(0.1),
            Process::Independent(0.3),
        ],
    },
    Kind {
        name: "AR(0.5)",
        processes: &[
            Process::Autoregressive(0.5, 0.02),
            Process::Autoregressive(0.5, 0.05),
            Process::Autoregressive(0.5, 0.1),
        ],
    },
    Kind {
        name: "AR(0.9)",
        processes: &[
            Process::Autoregressive(0.9, 0.01),
            Process::Autoregressive(0.9, 0.02),
            Process::Autoregressive(0.9, 0.05),
            Process::Autoregressive(0.9, 0.1),
        ],
    },
    Kind {
        name: "bursts",
        processes: &[
            Process::Bursts(2, 0.1),
            Process::Bursts(4, 0.1),
            Process::Bursts(8, 0.1),
            Process::Bursts(16, 0.1),
        ],
    },
    Kind {
        name: "heavy tails",
        processes: &[Process::LogNormal(0.3), Process::LogNormal(0.5), Process::LogNormal(1.0), Process::Pareto(3.0)],
    },
];

/// The results of some probes.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    probes: u32,
    covered: u32,
    /// Probes with a narrow interval before the time was over.
    stopped: u32,
    stopped_covered: u32,
    /// Steps after warm-up of all probes.
    steps: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.probes += other.probes;
        self.covered += other.covered;
        self.stopped += other.stopped;
        self.stopped_covered += other.stopped_covered;
        self.steps += other.steps;
    }
}

impl Tally {
    /// Runs probes with steps of this mean time, in seconds.
    fn of(process: Process, step: f64, precision: f64, rounds: u32, random: &mut Random) -> Self {
        let limits = Limits { precision: Some(precision), ..Limits::default() };
        let mut tally = Self::default();
        for _ in 0..rounds {
            let (decided, found) = run(patience_with(&limits), &times(process, step, random));
            let estimate = found.estimate;
            let covered = u32::from((estimate.low.unwrap()..=estimate.high.unwrap()).contains(&step.recip()));
            let is_precise = estimate.relative_half_width().unwrap() <= precision;
            let stopped =
                u32::from(decided == Sufficiency::Enough && found.measured < limits.measure_time && is_precise);
            tally += Self { probes: 1, covered, stopped, stopped_covered: stopped * covered, steps: found.steps };
        }
        tally
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |part: u32, whole: u32| 100.0 * f64::from(part) / f64::from(whole.max(1));
        let stopped = percent(self.stopped, self.probes);
        let (held, all) = (percent(self.stopped_covered, self.stopped), percent(self.covered, self.probes));
        let steps = self.steps / u64::from(self.probes.max(1));
        write!(f, "{stopped:5.1} % stop, {held:5.1} % of them hold, {all:5.1} % of all; {steps} steps")
    }
}

fn times(process: Process, step: f64, random: &mut Random) -> Vec<f64> {
    // Twice the default time for measuring, and some to warm up.
    let count = (23.0 / step) as usize + 40;
    process.times(count, random).into_iter().map(|time| time * step).collect()
}

/// Runs probes of each kind and prints their results. Returns the kinds in which fewer than `per_cent` of the intervals contain the
/// true mean.
#[expect(clippy::print_stdout, reason = "the table from which the factor was chosen")]
fn below(per_cent: u32, rounds: u32, steps: &[f64], precisions: &[f64]) -> Vec<String> {
    let mut random = Random(42);
    let mut failed = Vec::new();
    for kind in KINDS {
        let mut of_kind = Tally::default();
        for &process in kind.processes {
            let mut of_process = Tally::default();
            for &step in steps {
                for &precision in precisions {
                    of_process += Tally::of(process, step, precision, rounds, &mut random);
                }
            }
            println!("{:28} {of_process}", format!("{process:?}"));
            of_kind += of_process;
        }
        println!("{:28} {of_kind}", kind.name);
        if of_kind.stopped_covered * 100 < of_kind.stopped * per_cent
            || of_kind.covered * 100 < of_kind.probes * per_cent
        {
            failed.push(format!("{}: {of_kind}", kind.name));
        }
    }
    failed
}

/// The goal is 93%. With few rounds, chance may lower the share by 3%.
#[test]
fn the_interval_at_which_a_probe_stops_holds_the_true_mean() {
    let failed = below(90, 25, &[0.1], &[0.02, 0.05]);
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
#[ignore = "takes minutes; cargo test --release --lib patience::coverage -- --ignored --nocapture"]
fn the_interval_at_which_a_probe_stops_holds_the_true_mean_for_all_lengths_of_steps() {
    let failed = below(93, 400, &[0.02, 0.1, 0.5], &[0.02, 0.05]);
    assert!(failed.is_empty(), "{failed:#?}");
}
