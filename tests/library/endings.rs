//! The report at the end of a search, for a job with known speed and noise.

use std::ops::ControlFlow;

use gputune::model::{Estimate, Measurement, Outcome, Parameter, Progress, Settings, Space};
use gputune::probe::{Job, ProbeError, Prober};
use gputune::search::{Budget, Study, Tuner, Verdict};

/// The level of a machine, as a logarithm, from the number of probes and a uniform random number.
type Level = fn(u32, f64) -> f64;

/// A job with random differences between runs, which reports less noise than it has.
struct Noisy {
    /// The true speed of a config.
    speed: fn(&Settings) -> f64,
    /// The standard deviation of the logarithm of a run's speed.
    between_runs: f64,
    machine: Level,
    probes: u32,
    /// Half of the interval that each run reports, as a share of the speed.
    reported: f64,
    random: u64,
}

impl Noisy {
    fn uniform(&mut self) -> f64 {
        // Knuth's constants, as in MMIX.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let share = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        share
    }

    /// Returns a normal number by the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

impl Prober for Noisy {
    fn probe(
        &mut self,
        job: &Job,
        _watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Outcome, ProbeError> {
        self.probes += 1;
        let machine = (self.machine)(self.probes, self.uniform());
        let value = (self.speed)(&job.settings) * (machine + self.between_runs * self.normal()).exp();
        let half = value * self.reported;
        let throughput = Some(Estimate::interval(value, value - half, value + half));
        Ok(Outcome::Measured(Measurement { throughput, unit: "samples/s".to_owned(), ..Measurement::default() }))
    }
}

/// The most rounds of a search: a few minutes of a real search.
const ROUNDS: u32 = 40;

fn search(speed: fn(&Settings) -> f64, between_runs: f64, seed: u64) -> Study {
    search_on(|_, _| 0.0, speed, between_runs, seed)
}

fn search_on(machine: Level, speed: fn(&Settings) -> f64, between_runs: f64, seed: u64) -> Study {
    let space = Space::new([Parameter::range("x", 0, 4, 1), Parameter::range("y", 0, 3, 1)]).unwrap();
    let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d;
    let baseline: Settings = [("x", 0), ("y", 0)].into_iter().collect();
    let prober = Noisy { speed, between_runs, machine, probes: 0, reported: 0.02, random };
    Tuner::with_prober(space, prober)
        .budget(Budget { probes: 20, rounds: ROUNDS, ..Budget::default() })
        .baseline(&baseline)
        .unwrap()
        .seed(seed)
        .run(|_event| ())
        .unwrap()
}

#[test]
fn a_job_that_never_gets_faster_keeps_its_baseline() {
    const RUNS: u64 = 200;
    let kept = (0..RUNS).filter(|&seed| {
        let study = search(|_| 1000.0, 0.08, seed);
        let best = study.best().unwrap();
        let is_baseline = Some(&best.winner.config) == study.baseline.as_ref();
        assert_eq!(is_baseline, best.verdict == Verdict::TiedWithBaseline);
        is_baseline
    });
    let kept = kept.count();
    println!("kept {kept} of {RUNS}");
    assert!(kept >= 195, "{kept} of {RUNS}");
}

#[test]
fn a_job_that_gets_much_faster_leaves_its_baseline() {
    const RUNS: u64 = 50;
    let faster = (0..RUNS).filter(|&seed| {
        let study = search(|settings| if settings.integer("x") >= Some(2) { 2000.0 } else { 1000.0 }, 0.05, seed);
        let best = study.best().unwrap();
        best.verdict == Verdict::Faster && best.speedup.unwrap().low > Some(1.0)
    });
    // The probes' times, and so the fitted drift, depend on the machine: 47 to 50 runs on an idle machine, once 44 on a busy one.
    let faster = faster.count();
    assert!(faster >= 42, "{faster} of {RUNS}");
}

/// The speed of a job where both workers and batch matter, up to a point.
fn graded(settings: &Settings) -> f64 {
    let (x, y) = (settings.integer("x").unwrap_or(0), settings.integer("y").unwrap_or(0));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let speed = 1000.0 + 250.0 * x.min(3) as f64 + 60.0 * y as f64;
    speed
}

/// Compares the report with the truth, which only a simulation knows. The machines are quiet, or slow down by 15% during the
/// search, or run up to 20% slower in one of five runs.
#[test]
fn what_is_said_at_the_end_is_true() {
    const RUNS: u64 = 150;
    let machines: [(&str, Level, f64); 4] = [
        ("quiet", |_, _| 0.0, 0.01),
        ("as on a desk", |_, _| 0.0, 0.05),
        ("drifting", |probes, _| -0.15 * f64::from(probes) / 30.0, 0.02),
        ("bursts", |_, chance| if chance < 0.2 { -chance } else { 0.0 }, 0.02),
    ];
    let best = graded(&[("x", 4), ("y", 3)].into_iter().collect());
    for (name, machine, between_runs) in machines {
        let (mut held, mut good, mut claims, mut probes) = (0, 0, 0, 0);
        for seed in 0..RUNS {
            let study = search_on(machine, graded, between_runs, seed);
            probes += study.history.trials().len();
            let found = study.best().unwrap();
            let truth = graded(&study.settings(&found.winner.config))
                / graded(&study.settings(study.baseline.as_ref().unwrap()));
            good += u64::from(graded(&study.settings(&found.winner.config)) >= 0.95 * best);
            if let Some(speedup) = found.speedup {
                claims += 1;
                held += u64::from(speedup.low <= Some(truth) && speedup.high >= Some(truth));
            }
        }
        println!("{name}: speedup held {held} of {claims}, within 5 % of the best {good} of {RUNS}, {probes} probes");
        assert!(held * 100 >= claims * 90, "{name}: {held} of {claims} speedups hold");
        assert!(good * 10 >= RUNS * 9, "{name}: {good} of {RUNS} named a config within 5 % of the best");
    }
}
