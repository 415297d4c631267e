//! One config after the other: as gputune probes it, for a fixed hundred steps, and ten times as long.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use gputune::model::{Config, Estimate, Measurement, Outcome, Settings};
use gputune::probe::{CommandProber, Effort, Job, Limits, Prober};

use super::{Options, Result, Workload, load};

/// Steps of the probe that gputune's own is compared with.
pub(super) const FIXED: u64 = 100;

/// How often the long run is as long as the probe.
const LONGER: f64 = 10.0;

/// What a run came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) throughput: Estimate,
    /// Seconds from the first step to the last, warm-up included.
    pub(super) stepping: f64,
    /// Seconds from its start until it was cleaned up.
    pub(super) wall: f64,
}

/// The three runs of one config.
#[derive(Debug, Clone)]
pub(super) struct Compared {
    pub(super) settings: String,
    pub(super) probe: Run,
    pub(super) fixed: Run,
    pub(super) long: Run,
    pub(super) is_unstable: bool,
}

/// The configs of a workload, spread evenly over its space.
pub(super) fn of(workload: &Workload, spec: &Path, options: &Options) -> Result<Vec<Compared>> {
    let (spec, mut prober) = load(spec)?;
    let limits = Limits { measure_time: options.measure_time, ..spec.limits };
    let all: Vec<Config> =
        (0..spec.space.raw_size().unwrap_or(0)).filter_map(|index| spec.space.config(index)).collect();
    let wanted = options.configs.clamp(1, all.len().max(1));
    let chosen: Vec<&Config> = (0..wanted).filter_map(|at| all.get(at * all.len() / wanted)).collect();
    // What is set up once, such as files of data, is set up before anything is timed.
    let mut bench = Bench { prober: &mut prober, limits, number: 0 };
    bench.run(chosen[0], &spec.space.settings(chosen[0]), None)?;
    let mut compared = Vec::new();
    for (at, config) in chosen.into_iter().enumerate() {
        let settings = spec.space.settings(config);
        let one = bench.compare(config, &settings, at % 2 == 0)?;
        eprintln!("{} {}/{wanted} {}: {one:?}", workload.name, at + 1, settings.line());
        compared.push(one);
    }
    Ok(compared)
}

struct Bench<'b> {
    prober: &'b mut CommandProber,
    limits: Limits,
    number: u32,
}

impl Bench<'_> {
    /// The fixed probe comes before gputune's for every other config, and the long run last, which needs to know how long.
    fn compare(&mut self, config: &Config, settings: &Settings, fixed_first: bool) -> Result<Compared> {
        let before = if fixed_first { Some(self.run(config, settings, Some(FIXED))?.0) } else { None };
        let (probe, measurement) = self.run(config, settings, None)?;
        let fixed = match before {
            Some(fixed) => fixed,
            None => self.run(config, settings, Some(FIXED))?.0,
        };
        let measurement = measurement.ok_or("a probe that was not measured to its end")?;
        let seconds = measurement.timing.measured_seconds.ok_or("no time was measured")? * LONGER;
        let usual = self.limits;
        self.limits = Limits { measure_time: Duration::from_secs_f64(seconds), precision: 1e-9, ..usual };
        let long = self.run(config, settings, None);
        self.limits = usual;
        let is_unstable = measurement.timing.is_unstable;
        Ok(Compared { settings: settings.line(), probe, fixed, long: long?.0, is_unstable })
    }

    /// One run, to its own end or for so many steps.
    fn run(&mut self, config: &Config, settings: &Settings, steps: Option<u64>) -> Result<(Run, Option<Measurement>)> {
        self.number += 1;
        // A fixed probe never has enough before its steps are over.
        let limits = match steps {
            Some(_) => Limits { precision: 1e-9, measure_time: Duration::from_secs(600), ..self.limits },
            None => self.limits,
        };
        let job = Job {
            number: self.number,
            config,
            settings,
            limits: &limits,
            effort: Effort::Probe,
            rival: None,
            experiment: None,
            is_confirmed_later: false,
        };
        let (begin, mut first, mut last) = (Instant::now(), None, (0.0, None));
        let outcome = self.prober.probe(&job, &mut |progress| {
            if progress.steps > 0 {
                first.get_or_insert(progress.elapsed.as_secs_f64());
                last = (progress.elapsed.as_secs_f64(), progress.throughput);
            }
            if steps.is_some_and(|steps| progress.steps >= steps) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        let stepping = last.0 - first.unwrap_or(last.0);
        let (throughput, measurement) = match outcome {
            Outcome::Measured(measurement) => (measurement.throughput, Some(measurement)),
            Outcome::Interrupted => (last.1, None),
            other => return Err(format!("{}: {other:?}", settings.line()).into()),
        };
        let throughput = throughput.ok_or("no throughput")?;
        Ok((Run { throughput, stepping, wall: begin.elapsed().as_secs_f64() }, measurement))
    }
}
