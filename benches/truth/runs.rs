//! Every config several times: as gputune probes it, and long, in an order that is drawn.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gputune::model::{Config, Measurement, Outcome, Settings, Space};
use gputune::probe::{CommandProber, Effort, Job, Limits, Prober};
use gputune::spec::Spec;
use serde::{Deserialize, Serialize};

use super::{Options, Result, Workload, load};

/// The runs of a workload.
pub(super) struct Runs {
    /// The spec of the workload.
    pub(super) spec: PathBuf,
    pub(super) configs: Vec<Runned>,
}

/// The runs of a config.
pub(super) struct Runned {
    pub(super) config: Config,
    pub(super) settings: Settings,
    /// The throughputs of its long runs.
    pub(super) long: Vec<f64>,
    /// Its probes.
    pub(super) probes: Vec<Measurement>,
}

impl Runned {
    /// The config with its settings.
    fn named(&self) -> (&Config, &Settings) {
        (&self.config, &self.settings)
    }

    /// The mean of the logarithms of its long runs, which is what is true of it.
    pub(super) fn truth(&self) -> f64 {
        mean(self.long.iter().map(|rate| rate.ln()))
    }
}

/// Measures the configs of a workload, spread evenly over its space.
pub(super) fn of(workload: &Workload, path: &Path, options: &Options) -> Result<Runs> {
    let (spec, mut prober) = load(path)?;
    let usual = Limits { measure_time: options.measure_time, ..spec.limits };
    let long = Limits { measure_time: options.long, precision: Some(1e-9), ..spec.limits };
    let of_config = |config: Config| {
        let settings = spec.space.settings(&config);
        Runned { config, settings, long: Vec::new(), probes: Vec::new() }
    };
    let configs = spread_over(&spec.space, options.configs).into_iter().map(of_config).collect();
    let mut runs = Runs { spec: path.to_owned(), configs };
    // What is set up once, such as files of data, is set up before anything counts.
    let mut number = 1;
    run(&mut prober, runs.configs[0].named(), &Limits { measure_time: Duration::from_secs(1), ..usual }, number)?;
    let kinds =
        [(true, options.long_runs), (false, options.runs)].map(|(is_long, count)| vec![is_long; count]).concat();
    let mut schedule: Vec<(usize, bool)> =
        kinds.iter().flat_map(|&is_long| (0..runs.configs.len()).map(move |at| (at, is_long))).collect();
    shuffle(&mut schedule);
    let count = schedule.len();
    for (place, (at, is_long)) in schedule.into_iter().enumerate() {
        number += 1;
        let of = &mut runs.configs[at];
        let measurement = run(&mut prober, of.named(), if is_long { &long } else { &usual }, number)?;
        let rate = measurement.throughput.ok_or("no throughput")?;
        let what = if is_long { "long" } else { "probe" };
        eprintln!("{} {}/{count} {what} {}: {rate:?}", workload.name, place + 1, of.settings.line());
        if is_long {
            of.long.push(rate.value);
        } else {
            of.probes.push(measurement);
        }
        // After each run, so that a bench that is ended early has what it measured.
        options.keep.iter().try_for_each(|keep| runs.keep(keep))?;
    }
    Ok(runs)
}

/// The runs of a config, as they are kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    settings: Settings,
    long: Vec<f64>,
    probes: Vec<Measurement>,
}

impl Runs {
    /// Writes them down.
    pub(super) fn keep(&self, path: &Path) -> Result {
        let kept =
            |of: &Runned| Kept { settings: of.settings.clone(), long: of.long.clone(), probes: of.probes.clone() };
        let kept: Vec<Kept> = self.configs.iter().map(kept).collect();
        Ok(fs::write(path, serde_json::to_string(&kept)?)?)
    }
}

/// Runs that were kept.
pub(super) fn kept(spec: &Path, from: &Path) -> Result<Runs> {
    let space = Spec::load(spec)?.space;
    let kept: Vec<Kept> = serde_json::from_str(&fs::read_to_string(from)?)?;
    let of_kept = |kept: Kept| {
        let Kept { settings, long, probes } = kept;
        Ok(Runned { config: space.locate(&settings)?, settings, long, probes })
    };
    let configs = kept.into_iter().map(of_kept).collect::<Result<_>>()?;
    Ok(Runs { spec: spec.to_owned(), configs })
}

/// So many configs, spread evenly over a space.
pub(super) fn spread_over(space: &Space, wanted: usize) -> Vec<Config> {
    let all: Vec<Config> = (0..space.raw_size().unwrap_or(0)).filter_map(|index| space.config(index)).collect();
    let wanted = wanted.clamp(1, all.len().max(1));
    (0..wanted).filter_map(|at| all.get(at * all.len() / wanted).cloned()).collect()
}

/// Probes a config.
pub(super) fn run(
    prober: &mut CommandProber,
    (config, settings): (&Config, &Settings),
    limits: &Limits,
    number: u32,
) -> Result<Measurement> {
    let job = Job {
        number,
        config,
        settings,
        limits,
        effort: Effort::Probe,
        rival: None,
        experiment: None,
        is_confirmed_later: false,
    };
    match prober.probe(&job, &mut |_| ControlFlow::Continue(()))? {
        Outcome::Measured(measurement) => Ok(measurement),
        other => Err(format!("{}: {other:?}", settings.line()).into()),
    }
}

/// Draws an order, the same in each run of the bench (Fisher and Yates).
pub(super) fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(at, usize::try_from(state >> 33).unwrap_or(0) % (at + 1));
    }
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    sum / count
}
