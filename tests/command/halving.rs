//! Short probes: their cost, that they cannot win, and that a search with short probes can resume.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Search, stderr};
use gputune::model::{
    Config, Constraint, Estimate, Event, Measurement, Objective, Outcome, Parameter, Progress, Purpose, Settings,
    Space, Trial,
};
use gputune::probe::{Effort, Job, ProbeError, Prober, Step, StepError};
use gputune::report;
use gputune::search::{
    Budget, Fingerprint, Header, Journal, StopReason, Strategy, Study, Tuner,
    strategy::{Proposal, View},
};

fn space() -> Space {
    Space::new([Parameter::range("x", 0, 19, 1), Parameter::range("y", 0, 9, 1)]).unwrap()
}

/// The speed of a config, and the noise of its probes: a shorter probe is noisier.
struct Noisy {
    seed: u64,
    /// The standard deviation of a whole probe, as a share of the speed.
    noise: f64,
}

fn speed(config: &Config) -> f64 {
    let [x, y] = [0, 1].map(|at| f64::from(config.level(at).unwrap()));
    100.0 + 2.0 * x - (y - 4.0).abs()
}

/// Returns a roughly standard normal number that depends on the seed alone.
fn normal(seed: u64) -> f64 {
    let order = gputune::model::Permutation::new(1 << 40, seed);
    let shares = (0..12).map(|at| order.at(at).unwrap() as f64 / (1_u64 << 40) as f64);
    shares.sum::<f64>() - 6.0
}

impl Prober for Noisy {
    fn probe(
        &mut self,
        job: &Job<'_>,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Outcome, ProbeError> {
        if watch(&Progress::default()).is_break() {
            return Ok(Outcome::Interrupted);
        }
        let share = match job.effort {
            Effort::Screen { one_in } => 1.0 / f64::from(one_in.get()),
            _ => 1.0,
        };
        let deviation = self.noise / f64::sqrt(share);
        let chance = normal(self.seed.wrapping_mul(1009).wrapping_add(job.number.into()));
        let value = speed(job.config) * (1.0 + deviation * chance);
        let half = 1.96 * deviation * value;
        let throughput = Some(Estimate::interval(value, value - half, value + half));
        Ok(Outcome::Measured(Measurement { throughput, ..Measurement::default() }))
    }
}

fn tuner(strategy: &str, seed: u64, probes: u32) -> Tuner<'static> {
    let budget = Budget { probes, rounds: 20, time: Duration::from_secs(3600), ..Budget::default() };
    Tuner::with_prober(space(), Noisy { seed, noise: 0.03 }).strategy(strategy).unwrap().seed(seed).budget(budget)
}

/// Returns the cost of the search trials, in whole probes.
fn cost(study: &Study) -> f64 {
    let share = |trial: &Trial| match trial.purpose {
        Purpose::Screen { one_in } => 1.0 / f64::from(one_in.get()),
        _ => 1.0,
    };
    study.history.searched().map(share).sum()
}

#[test]
fn what_wins_was_measured_in_full_and_the_report_says_what_was_not() {
    for seed in 0..10 {
        let study = tuner("halving", seed, 40).run(|_| ()).unwrap();
        assert_eq!(study.history.count_searched(), 40, "short probes count like others");
        let whole = |config: &Config| study.history.of(config).any(|trial| !trial.purpose.is_short());
        assert!(study.ranking().iter().all(|entry| whole(&entry.config)));
        let confirmed = study.history.trials().iter().filter(|trial| trial.purpose == Purpose::Round);
        assert!(confirmed.clone().count() >= 2 && confirmed.clone().all(|trial| whole(&trial.config)));
        let shown = report::table(&study, 120);
        let best = shown.lines().find(|line| line.contains("best")).unwrap();
        assert!(!best.contains(" short probe ") && shown.contains(" short probe "), "{shown}");
        let is_short: Vec<bool> = shown
            .lines()
            .skip(2)
            .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
            .map(|line| line.contains(" short probe "))
            .collect();
        let whole_last = is_short.iter().rposition(|short| !short);
        assert!(whole_last < is_short.iter().position(|short| *short), "{shown}");
        assert!(report::trials_csv(&study).contains(",screen-9,"));
    }
}

#[test]
fn for_the_same_measuring_it_finds_better_configs_than_whole_probes_do() {
    let (mut halved, mut random) = (0.0, 0.0);
    const SEEDS: u64 = 30;
    for seed in 0..SEEDS {
        let study = tuner("halving", seed, 60).run(|_| ()).unwrap();
        halved += speed(&study.best().unwrap().winner.config);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of probes")]
        let probes = cost(&study).ceil() as u32;
        assert!((10..30).contains(&probes), "{probes} of 60");
        let study = tuner("random", seed, probes).run(|_| ()).unwrap();
        random += speed(&study.best().unwrap().winner.config);
    }
    assert!(halved > random, "{} and {}", halved / SEEDS as f64, random / SEEDS as f64);
}

fn open(path: &Path) -> (Journal, gputune::search::Recovered) {
    let nothing = || serde_json::Value::Null;
    let header =
        Header::new(Fingerprint { device: String::new(), driver: String::new(), command: nothing(), space: nothing() });
    Journal::open(path, &header, &space()).unwrap()
}

#[test]
fn stopped_anywhere_it_goes_on_to_the_same_trials() {
    let folder = tempfile::tempdir().unwrap();
    let told = |study: &Study| -> Vec<(Purpose, Config)> {
        study.history.trials().iter().map(|trial| (trial.purpose, trial.config.clone())).collect()
    };
    let whole = told(&tuner("halving", 3, 40).run(|_| ()).unwrap());
    for stop_after in [1, 9, 10, 25, 37, 39] {
        let path = folder.path().join(format!("{stop_after}.jsonl"));
        let stop = Arc::new(AtomicBool::new(false));
        let (journal, recovered) = open(&path);
        let study = tuner("halving", 3, 40)
            .journal(journal, recovered)
            .stop_flag(Arc::clone(&stop))
            .run(|event| {
                if let Event::Finished { trial, .. } = event {
                    stop.store(trial.number >= stop_after, Ordering::Relaxed);
                }
            })
            .unwrap();
        assert_eq!(study.stopped, StopReason::Interrupted);
        assert!(study.best().is_some(), "a short probe is better than nothing");
        let shown = report::table(&study, 120);
        assert_eq!(shown.lines().filter(|line| line.contains(" best ")).count(), 1, "{shown}");
        let (journal, recovered) = open(&path);
        let study = tuner("halving", 3, 40).journal(journal, recovered).run(|_| ()).unwrap();
        assert_eq!(told(&study), whole, "stopped after {stop_after}");
    }
}

/// Answers each job with a function.
struct Answer(fn(&Job<'_>) -> Measurement);

impl Prober for Answer {
    fn probe(&mut self, job: &Job<'_>, _: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Outcome, ProbeError> {
        Ok(Outcome::Measured((self.0)(job)))
    }
}

/// Proposes these levels of the first parameter, each with its divisor of the probe time.
#[derive(Debug)]
struct Listed(&'static [(i64, u32)]);

impl Strategy for Listed {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        let (level, parts) = self.0.get(view.history.count_searched())?;
        let config = view.space.locate(&[("x", *level)].into_iter().collect()).ok()?;
        Some(Proposal { one_in: NonZeroU32::new(*parts).filter(|parts| parts.get() > 1), ..config.into() })
    }
}

/// Returns the levels that are each confirmed once after these probes.
fn confirmed(objective: Objective, answer: fn(&Job<'_>) -> Measurement, probes: &'static [(i64, u32)]) -> Vec<i64> {
    let study = Tuner::with_prober(Space::new([Parameter::range("x", 0, 9, 1)]).unwrap(), Answer(answer))
        .objective(objective)
        .with_strategy(Listed(probes))
        .budget(Budget { rounds: 1, ..Budget::default() })
        .run(|_| ())
        .unwrap();
    let trials = study.history.trials().iter().filter(|trial| trial.purpose == Purpose::Round);
    let mut levels: Vec<i64> = trials.filter_map(|trial| study.settings(&trial.config).integer("x")).collect();
    assert_eq!(study.ranking().iter().filter(|entry| entry.rounds == 1).count(), levels.len());
    levels.sort_unstable();
    levels
}

fn measured(throughput: f64, loss: f64) -> Measurement {
    Measurement {
        throughput: Some(Estimate::point(throughput)),
        metrics: [("loss".to_owned(), loss)].into(),
        ..Measurement::default()
    }
}

fn level(job: &Job<'_>) -> f64 {
    f64::from(job.config.level(0).unwrap())
}

#[test]
fn where_nothing_ran_in_full_two_configs_are_confirmed_and_not_one_twice() {
    let answer = |job: &Job<'_>| measured(100.0 + 10.0 * level(job), 1.0);
    assert_eq!(confirmed(Objective::default(), answer, &[(9, 9), (9, 3), (1, 9)]), [1, 9]);
}

#[test]
fn what_a_short_probe_told_does_not_count_against_a_config_that_ran_in_full() {
    let answer = |job: &Job<'_>| match job.effort {
        Effort::Screen { .. } => measured(if level(job) > 7.0 { 90.0 } else { 10.0 }, 3.0),
        _ => measured(90.0 + level(job), 2.0),
    };
    let objective = || Objective::default().constraint(Constraint::parse("loss <= 2.5").unwrap());
    const PROBES: &[(i64, u32)] = &[(9, 9), (8, 9), (7, 9), (9, 1), (8, 1), (7, 1)];
    assert_eq!(confirmed(objective(), answer, PROBES), [7, 8, 9]);
    assert_eq!(confirmed(Objective::default(), answer, PROBES), [7, 8, 9], "the third is close");
}

#[test]
fn a_search_that_is_stopped_says_that_losses_were_not_compared() {
    let precisions = ["bf16", "fp16"];
    let space = Space::new([Parameter::values("precision", precisions).full_precision("fp32")]).unwrap();
    let answer = |job: &Job<'_>| {
        let growth = if job.settings.text("precision") == Some("fp32") { -0.1 } else { 1.0 };
        let first_losses = (0..8).map(|step| 2.0 + growth * f64::from(step)).collect();
        Measurement { first_losses, ..measured(100.0, 1.0) }
    };
    let stop = Arc::new(AtomicBool::new(false));
    let study = Tuner::with_prober(space, Answer(answer))
        .strategy("halving")
        .unwrap()
        .stop_flag(Arc::clone(&stop))
        .run(|event| {
            if let Event::Finished { .. } = event {
                stop.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
    assert!(study.history.trials()[0].purpose.is_short());
    let numerics = study.best().unwrap().winner.measurement.numerics.unwrap();
    assert_eq!(numerics.not_compared.as_deref(), Some("no time was left"));
}

#[test]
fn a_step_in_this_process_is_measured_for_its_part_of_the_time() {
    // The step never settles, so only the time limit ends a probe.
    let mut steps = 0_u64;
    let step = move |_: &Settings| -> Result<Step, StepError> {
        steps += 1;
        std::thread::sleep(Duration::from_millis(if steps.is_multiple_of(3) { 6 } else { 1 }));
        Ok(Step::new(8))
    };
    let study = Tuner::new(space(), step)
        .strategy("halving")
        .unwrap()
        .measure_time(Duration::from_millis(450))
        .budget(Budget { probes: 12, rounds: 0, ..Budget::default() })
        .run(|_| ())
        .unwrap();
    let measured = |is_wanted: &dyn Fn(&Trial) -> bool| -> Vec<f64> {
        let trials = study.history.trials().iter().filter(|trial| is_wanted(trial));
        trials.filter_map(|trial| trial.outcome.measurement()?.timing.measured_seconds).collect()
    };
    let short = measured(&|trial| trial.purpose.is_short());
    let whole = measured(&|trial| !trial.purpose.is_short());
    assert!(short.len() >= 8 && !whole.is_empty(), "{short:?} {whole:?}");
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    assert!(mean(&short) < mean(&whole), "{short:?} {whole:?}");
}

#[test]
fn a_command_is_probed_for_a_part_of_the_time_and_the_files_say_so() {
    let more = "[space]\nx = { range = [1, 40] }\n[limits]\nmeasure_time = \"200ms\"\ngrace_time = \"200ms\"\n\
                [search]\nstrategy = \"halving\"\nprobes = 8\nrounds = 0\n";
    let search = Search::of(&["forever:{x}:2000"], more);
    let output = search.run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = search.lines();
    let count = |short: bool| lines.iter().filter(|line| line.purpose.is_short() == short).count();
    assert_eq!(lines.len(), 8);
    assert!(count(true) >= 4 && count(false) >= 1, "{}", stderr(&output));
    let said = std::fs::read_to_string(search.out().join("trials.csv")).unwrap();
    assert!(said.contains(",screen-9,"), "{said}");
    assert!(stderr(&output).contains("(short)"), "{}", stderr(&output));
}
