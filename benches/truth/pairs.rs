//! Speed-ups as searches report them, beside long runs of both configs: in turn with each search, or kept from before.

use std::fmt::Write as _;
use std::path::Path;

use gputune::model::{Config, Event};
use gputune::probe::{CommandProber, Limits, stats};
use gputune::search::strategy::{Proposal, View};
use gputune::search::{NoisePrior, Strategy, Study, Tuner};
use gputune::spec::Spec;

use super::runs::{self, Runned, mean, run, shuffle, spread_over};
use super::score::{deviation, number};
use super::{DEVICE, Options, Result, Workload, load};

/// Proposes one config.
struct Only(Config);

impl Strategy for Only {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        view.is_open(&self.0).then(|| self.0.clone().into())
    }
}

/// Long runs of two configs in turn, and the logarithm of their ratio from each two that are neighbours.
struct InTurn<'p> {
    prober: CommandProber,
    spec: Spec,
    limits: Limits,
    configs: [&'p Config; 2],
    ratios: Vec<f64>,
    number: u32,
}

impl InTurn<'_> {
    /// Runs both, in the order A, B, then B, A.
    fn rounds(&mut self, count: usize) -> Result {
        for _ in 0..count {
            let mut logs = [0.0; 2];
            let order = if self.ratios.len().is_multiple_of(2) { [0, 1] } else { [1, 0] };
            for at in order {
                let settings = self.spec.space.settings(self.configs[at]);
                self.number += 1;
                let told = run(&mut self.prober, (self.configs[at], &settings), &self.limits, self.number)?;
                logs[at] = told.throughput.ok_or("no throughput")?.value.ln();
            }
            self.ratios.push(logs[0] - logs[1]);
        }
        Ok(())
    }

    /// The mean of the ratios' logarithms.
    fn ratio(&self) -> f64 {
        mean(self.ratios.iter().copied())
    }

    /// Half of its 95 % interval.
    fn half(&self) -> f64 {
        let count = self.ratios.len();
        stats::student_quantile(count - 1, 0.025) * deviation(self.ratios.iter().copied()) / number(count).sqrt()
    }

    fn reverse(&mut self) {
        self.configs.reverse();
        self.ratios.iter_mut().for_each(|ratio| *ratio = -*ratio);
    }
}

/// Where the truth about two configs comes from.
enum Truth<'p> {
    InTurn(Box<InTurn<'p>>),
    Kept([&'p Runned; 2]),
}

impl<'p> Truth<'p> {
    /// That of long runs that are still to be run.
    fn to_run(path: &Path, options: &Options, configs: [&'p Config; 2]) -> Result<Self> {
        let (spec, prober) = load(path)?;
        let limits = Limits { measure_time: options.long, precision: Some(1e-9), ..spec.limits };
        Ok(Self::InTurn(Box::new(InTurn { prober, spec, limits, configs, ratios: Vec::new(), number: 0 })))
    }

    /// Runs both so many times more, where they are run here.
    fn rounds(&mut self, count: usize) -> Result {
        match self {
            Self::InTurn(runs) => runs.rounds(count),
            Self::Kept(_) => Ok(()),
        }
    }

    /// Puts the faster one first.
    fn sort(&mut self) {
        let is_slower = self.ratio() < 0.0;
        match self {
            Self::InTurn(runs) if is_slower => runs.reverse(),
            Self::Kept(configs) if is_slower => configs.reverse(),
            _ => {}
        }
    }

    fn configs(&self) -> [&'p Config; 2] {
        match self {
            Self::InTurn(runs) => runs.configs,
            Self::Kept(configs) => configs.map(|runned| &runned.config),
        }
    }

    /// The logarithm of the ratio of both.
    fn ratio(&self) -> f64 {
        match self {
            Self::InTurn(runs) => runs.ratio(),
            Self::Kept([a, b]) => a.truth() - b.truth(),
        }
    }

    /// Half of its 95 % interval.
    fn half(&self) -> f64 {
        match self {
            Self::InTurn(runs) => runs.half(),
            Self::Kept([a, b]) => {
                let error =
                    |of: &Runned| deviation(of.long.iter().map(|rate| rate.ln())) / number(of.long.len()).sqrt();
                let fewest = a.long.len().min(b.long.len());
                stats::student_quantile(fewest - 1, 0.025) * error(a).hypot(error(b))
            }
        }
    }
}

/// Has a search compare two configs, for so many pairs that are drawn, between long runs of both, or beside those that were kept.
pub(super) fn of(workload: &Workload, path: &Path, options: &Options) -> Result<String> {
    let (spec, _) = load(path)?;
    let kept = options.from.as_ref().map(|from| runs::kept(path, from)).transpose()?;
    let configs = match &kept {
        Some(kept) => kept.configs.iter().map(|runned| runned.config.clone()).collect(),
        None => spread_over(&spec.space, options.configs),
    };
    let mut pairs: Vec<(usize, usize)> = (0..configs.len()).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
    shuffle(&mut pairs);
    // As on a machine that is searched on again and again, each begins with what those before have shown.
    let known = tempfile::tempdir()?;
    let known = known.path().join("noise.json");
    let mut text = format!("\n## Speed-ups of searches, {}\n\n", workload.about);
    text += "| faster | slower | a search | long runs | held |\n|---|---|--:|--:|---|\n";
    let (mut held, mut held_with, mut claimed, mut halves, mut halves_long) = (0, 0, 0, Vec::new(), Vec::new());
    let wanted = options.pairs.min(pairs.len());
    for (place, &(a, b)) in pairs.iter().take(wanted).enumerate() {
        let mut long = match &kept {
            Some(kept) => Truth::Kept([&kept.configs[a], &kept.configs[b]]),
            None => Truth::to_run(path, options, [&configs[a], &configs[b]])?,
        };
        long.rounds(options.runs / 2)?;
        long.sort();
        let [faster, slower] = long.configs();
        let study = compared(path, options, [faster, slower], NoisePrior::of_device(&known, DEVICE))?;
        long.rounds(options.runs - options.runs / 2)?;
        if let Some((between_runs, repetitions)) = study.shown_between_runs() {
            NoisePrior::keep(&known, DEVICE, between_runs, u32::try_from(repetitions)?)?;
        }
        let (truth, half_long) = (long.ratio(), long.half());
        let best = study.best().ok_or("nothing was feasible")?;
        let speedup = best.speedup.filter(|_| best.winner.config == *faster);
        let interval = speedup.and_then(|speedup| Some((speedup.value, speedup.low?, speedup.high?)));
        let (said, is_held) = match interval {
            None => ("not called faster".to_owned(), String::new()),
            Some((value, low, high)) => {
                let half = (high / low).ln() / 2.0;
                let strictly = low <= truth.exp() && truth.exp() <= high;
                let with_its_own = (value.ln() - truth).abs() <= half.hypot(half_long);
                (claimed, held, held_with) =
                    (claimed + 1, held + usize::from(strictly), held_with + usize::from(with_its_own));
                halves.push(half);
                halves_long.push(half_long);
                let word = if strictly {
                    "yes"
                } else if with_its_own {
                    "within both"
                } else {
                    "no"
                };
                (format!("{value:.3} ({low:.3} to {high:.3})"), word.to_owned())
            }
        };
        let settings = |config: &Config| spec.space.settings(config).line();
        let (faster, slower) = (settings(faster), settings(slower));
        let runs = format!("{:.3} ± {:.1} %", truth.exp(), 100.0 * half_long);
        eprintln!("{} {}/{wanted} {faster} | {slower}: {said}, long runs {runs} {is_held}", workload.name, place + 1);
        let _ = writeln!(text, "| {faster} | {slower} | {said} | {runs} | {is_held} |");
    }
    let middle = |halves: &[f64]| 100.0 * stats::median(halves).unwrap_or(f64::NAN);
    let _ = writeln!(
        text,
        "\nOf {wanted} pairs {claimed} are called faster. {held} of these intervals hold the ratio of the long runs, and {held_with} where \
         the interval of that ratio counts, too. Half widths, in the median: ±{:.1} % of the searches, ±{:.1} % of the long runs.",
        middle(&halves),
        middle(&halves_long)
    );
    Ok(text)
}

/// A search for which there is nothing but the slower one, as the baseline, and the other.
fn compared(path: &Path, options: &Options, pair: [&Config; 2], prior: NoisePrior) -> Result<Study> {
    let [faster, slower] = pair;
    let (spec, prober) = load(path)?;
    let start = spec.space.settings(slower);
    Ok(Tuner::with_prober(spec.space, prober)
        .with_strategy(Only(faster.clone()))
        .limits(Limits { measure_time: options.measure_time, ..spec.limits })
        .noise_prior(prior)
        .baseline(&start)?
        .run(|_: Event<'_>| ())?)
}
