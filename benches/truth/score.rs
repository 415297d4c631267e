//! How often the intervals hold what is true, and how wide they are.

use std::fmt::Write as _;
use std::time::Duration;

use gputune::model::{Config, History, Measurement, Objective, Outcome, Purpose, Trial};
use gputune::probe::stats;
use gputune::search::{NoisePrior, StopReason, Study};
use gputune::spec::Spec;

use super::runs::{Runned, Runs, mean, shuffle};
use super::{DEVICE, Result, Workload};

/// How many of the best are measured again in a study, besides the baseline.
const LEADERS: usize = 3;

/// The pairs of which speed-ups are scored, in each study.
const PAIRS: usize = 20;

/// What was counted.
#[derive(Default)]
struct Score {
    held: usize,
    of: usize,
    halves: Vec<f64>,
}

impl Score {
    fn add(&mut self, low: f64, high: f64, truths: impl Iterator<Item = f64>) {
        self.halves.push((high / low).ln() / 2.0);
        for truth in truths {
            self.of += 1;
            self.held += usize::from(low <= truth && truth <= high);
        }
    }

    fn line(&self) -> String {
        let share = 100.0 * number(self.held) / number(self.of.max(1));
        let half = 100.0 * stats::median(&self.halves).unwrap_or(f64::NAN);
        format!("{} of {} ({share:.0} %) | ±{half:.1} %", self.held, self.of)
    }
}

/// Makes as many studies of the probes as each config has, and scores them against the long runs.
pub(super) fn of(workload: &Workload, runs: &Runs) -> Result<String> {
    let studies = runs.configs.iter().map(|config| config.probes.len()).min().unwrap_or(0);
    let (mut again, mut within, mut times) = (Score::default(), Score::default(), Score::default());
    // The long runs' own mean is known to some width, too: an interval that is right 95 times of 100 holds it less often.
    let (mut of_both, unknown) = (Score::default(), unknown(runs));
    // As on a machine that is searched on again and again, each begins with what those before have shown.
    let known = tempfile::tempdir()?;
    let known = known.path().join("noise.json");
    for number in 0..studies {
        let prior = NoisePrior::of_device(&known, DEVICE);
        let study = searched(runs, number, prior)?;
        of_study(&study, runs, (&mut again, &mut within))?;
        let mut pairs: Vec<(usize, usize)> =
            (0..runs.configs.len()).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
        shuffle(&mut pairs);
        for &(a, b) in pairs.iter().cycle().skip(number * PAIRS).take(PAIRS) {
            let (a, b) = (&runs.configs[a], &runs.configs[b]);
            if let Some((low, high)) = speedup(runs, number, (a, b), prior)? {
                let truth = (a.truth() - b.truth()).abs();
                times.add(low, high, std::iter::once(truth.exp()));
                let (middle, half) = ((low * high).ln() / 2.0, ((high / low).ln() / 2.0).hypot(unknown));
                of_both.add((middle - half).exp(), (middle + half).exp(), std::iter::once(truth.exp()));
            }
        }
        if let Some((between_runs, repetitions)) = study.shown_between_runs() {
            NoisePrior::keep(&known, DEVICE, between_runs, u32::try_from(repetitions)?)?;
        }
    }
    let spread = spread(runs);
    let mut text = format!("\n## {}: {} configs\n\n", workload.about, runs.configs.len());
    let _ = writeln!(text, "| | held | half width, median |\n|---|--:|--:|");
    let _ = writeln!(text, "| a long run in the interval for a run again | {} |", again.line());
    let _ = writeln!(text, "| a long run in the interval of the measured runs themselves | {} |", within.line());
    let _ = writeln!(text, "| the ratio of long runs in the interval of a speed-up | {} |", times.line());
    let _ =
        writeln!(text, "| the same, where the long runs' own ±{:.1} % counts | {} |", 100.0 * unknown, of_both.line());
    let _ = writeln!(text, "\nWhat the spread of runs makes necessary for a run again: ±{:.1} %.", 100.0 * spread);
    let _ = writeln!(text, "\n| config | long runs | spread |\n|---|--:|--:|");
    for config in &runs.configs {
        let deviation = 100.0 * deviation(config.long.iter().map(|rate| rate.ln()));
        let _ = writeln!(text, "| {} | {:.1} | {deviation:.1} % |", config.settings.line(), config.truth().exp());
    }
    Ok(text)
}

/// Scores what a study says of each config.
fn of_study(study: &Study, runs: &Runs, (again, within): (&mut Score, &mut Score)) -> Result {
    for entry in study.ranking() {
        let own = runs.configs.iter().find(|config| config.config == entry.config).ok_or("an unknown config")?;
        let (low, high) = entry.estimate.low.zip(entry.estimate.high).ok_or("no interval")?;
        again.add(low, high, own.long.iter().copied());
        let half = entry.within_runs.ok_or("no interval within the runs")?;
        let middle = entry.estimate.value;
        within.add(middle * (-half).exp(), middle * half.exp(), own.long.iter().copied());
    }
    Ok(())
}

/// A search of all configs, as their probes of this number were measured; the leaders and the baseline again.
fn searched(runs: &Runs, number: usize, prior: NoisePrior) -> Result<Study> {
    let mut trials: Vec<Trial> = runs.configs.iter().map(|config| trial(config, number, Purpose::Search)).collect();
    let rate = |config: &&Runned| probe(config, number).throughput.map_or(0.0, |rate| rate.value);
    let mut leaders: Vec<&Runned> = runs.configs.iter().collect();
    leaders.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    leaders.truncate(LEADERS);
    let baseline = &runs.configs[0];
    if !leaders.iter().any(|leader| leader.config == baseline.config) {
        leaders.push(baseline);
    }
    for again in 1..3 {
        trials.extend(leaders.iter().map(|leader| trial(leader, number + again, Purpose::Confirm)));
    }
    study(runs, trials, &baseline.config, prior)
}

/// The interval for how many times as fast the faster of two configs is, both measured once and twice again; `None` where
/// nobody is faster.
fn speedup(runs: &Runs, number: usize, (a, b): (&Runned, &Runned), prior: NoisePrior) -> Result<Option<(f64, f64)>> {
    let purposes = [Purpose::Search, Purpose::Confirm, Purpose::Confirm];
    let trials = (number..).zip(purposes).flat_map(|(number, purpose)| [a, b].map(|one| trial(one, number, purpose)));
    let trials: Vec<Trial> = trials.collect();
    let slower = if a.truth() < b.truth() { a } else { b };
    let Some(best) = study(runs, trials, &slower.config, prior)?.best() else { return Ok(None) };
    let speedup = best.speedup.filter(|_| best.winner.config != slower.config);
    Ok(speedup.and_then(|speedup| speedup.low.zip(speedup.high)))
}

fn study(runs: &Runs, mut trials: Vec<Trial>, baseline: &Config, noise_prior: NoisePrior) -> Result<Study> {
    (1..).zip(&mut trials).for_each(|(number, trial)| trial.number = number);
    let history: History = trials.into_iter().collect();
    Ok(Study {
        space: Spec::load(&runs.spec)?.space.into(),
        objective: Objective::default(),
        history,
        baseline: Some(baseline.clone()),
        stopped: StopReason::SpaceExhausted,
        elapsed: Duration::ZERO,
        noise_prior,
        side_by_side: None,
    })
}

fn trial(of: &Runned, number: usize, purpose: Purpose) -> Trial {
    Trial {
        number: 0,
        purpose,
        config: of.config.clone(),
        outcome: Outcome::Measured(probe(of, number).clone()),
        elapsed: Duration::from_secs(1),
        ended_at: None,
        slot: None,
    }
}

/// A probe of a config, counted round.
fn probe(of: &Runned, number: usize) -> &Measurement {
    &of.probes[number % of.probes.len()]
}

/// Half the width of an interval that a long run falls into with 95 %, seen from a probe of the same config.
fn spread(runs: &Runs) -> f64 {
    let squares = runs.configs.iter().flat_map(|config| {
        let probes = config.probes.iter().filter_map(|probe| Some(probe.throughput?.value.ln()));
        probes.flat_map(|probe| config.long.iter().map(move |long| (probe - long.ln()).powi(2)))
    });
    1.96 * mean(squares).sqrt()
}

/// Half of the 95 % interval of the ratio of two configs' long runs, from the spread of all configs'.
fn unknown(runs: &Runs) -> f64 {
    let logs = |config: &Runned| config.long.iter().map(|rate| rate.ln()).collect::<Vec<f64>>();
    let each =
        runs.configs.iter().map(|config| deviation(logs(config).into_iter()).powi(2) / number(config.long.len()));
    1.96 * (2.0 * mean(each)).sqrt()
}

/// The standard deviation.
pub(super) fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let (middle, count) = (mean(values.clone()), number(values.clone().count()));
    (values.map(|value| (value - middle).powi(2)).sum::<f64>() / (count - 1.0).max(1.0)).sqrt()
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn number(count: usize) -> f64 {
    count as f64
}
