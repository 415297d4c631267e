//! Tests `auto` on simulated pipelines in several regimes, with workers, a queue and shared cores.

use std::collections::BTreeMap;

use crate::model::{
    Config, Estimate, History, Measurement, Objective, Outcome, Parameter, Purpose, Role, Settings, Space, Timing,
    Trial, Walk,
};
use crate::search::strategy::{View, strategy};

/// A training job; times in seconds.
#[derive(Clone, Copy)]
struct Job {
    cores: f64,
    /// To load a sample, on one core.
    load: f64,
    launch: f64,
    /// To compute a sample in full precision.
    compute: f64,
    /// How many times as fast the other precision is.
    gain: f64,
    /// True if the host's cores compute.
    is_on_host: bool,
}

fn space() -> Space {
    Space::new([
        Parameter::powers_of_two("batch_size", 8, 256),
        Parameter::values("num_workers", [0, 1, 2, 3, 4, 8]),
        Parameter::values("prefetch_factor", [2, 4]),
        Parameter::values("precision", ["fp32", "bf16"]),
        Parameter::values("threads", [1, 2, 4]),
    ])
    .unwrap()
}

fn number(settings: &Settings, name: &str) -> f64 {
    settings.get(name).and_then(crate::model::Value::as_f64).unwrap()
}

/// Simulates a job batch by batch, with workers that take turns and share the cores with the training process. Returns
/// the seconds of a step, and of waiting for data in it.
fn simulated(job: Job, settings: &Settings) -> (f64, f64) {
    const STEPS: usize = 60;
    const WARMUP: usize = 20;
    let (batch, workers, threads) =
        (number(settings, "batch_size"), number(settings, "num_workers"), number(settings, "threads"));
    let is_fp32 = settings.get("precision").unwrap().to_string() == "fp32";
    let spread = if job.is_on_host { threads.sqrt() } else { 1.0 };
    let device = job.launch + batch * job.compute / if is_fp32 { 1.0 } else { job.gain } / spread;
    let load = batch * job.load;
    if workers == 0.0 {
        return (device + load, load);
    }
    let needed = if job.is_on_host { threads } else { 0.3 };
    let room = workers * number(settings, "prefetch_factor");
    let (mut now, mut queue, mut waited, mut begin) = (0.0, 0.0, 0.0, 0.0);
    for step in 0..STEPS {
        if step == WARMUP {
            (waited, begin) = (0.0, now);
        }
        // Nothing is computed until a batch is there.
        if queue < 1.0 {
            let wait = (1.0 - queue) * load / workers.min(job.cores);
            (now, waited, queue) = (now + wait, waited + wait, 1.0);
        }
        queue -= 1.0;
        let mut left = device;
        while left > 1e-12 {
            let busy = if queue < room { workers } else { 0.0 };
            let rate = (job.cores / (busy + needed)).min(1.0);
            let own = if job.is_on_host { rate * if threads > 1.0 { rate } else { 1.0 } } else { 1.0 };
            let filled = if busy > 0.0 { (room - queue) * load / (busy * rate) } else { f64::INFINITY };
            let time = (left / own).min(filled.max(1e-6));
            (now, left) = (now + time, left - time * own);
            queue = (queue + time * busy * rate / load).min(room);
        }
    }
    let steps = (STEPS - WARMUP) as f64;
    ((now - begin) / steps, waited / steps)
}

/// Returns what a probe of a job reports; with `is_swapped`, its wait and the rest of the step are exchanged.
fn measured(job: Job, settings: &Settings, is_swapped: bool) -> Outcome {
    let (step, wait) = simulated(job, settings);
    let wait = if is_swapped { step - wait } else { wait };
    Outcome::Measured(Measurement {
        throughput: Some(Estimate::point(number(settings, "batch_size") / step)),
        phase_seconds: BTreeMap::from([("data_wait".to_owned(), wait)]),
        timing: Timing { step_seconds: Some(step), ..Default::default() },
        ..Measurement::default()
    })
}

/// Returns how far the best of this many probes is below the best of all, as a share.
fn regret(name: &str, probes: u32, answer: impl Fn(&Settings) -> Outcome) -> f64 {
    let (space, objective, mut history) = (space(), Objective::default(), History::default());
    let mut auto = (strategy(name).unwrap().build)();
    for number in 1..=probes {
        let view = View::new(&space, &objective, &history, &[], None).with(probes, 3);
        let Some(proposal) = auto.propose(&view) else { break };
        let outcome = answer(&space.settings(&proposal.config));
        let trial = Trial::new(number, Purpose::Search, proposal.config, outcome);
        history.push(trial);
    }
    let score = |config: Config| objective.score_of(&answer(&space.settings(&config)));
    let most = Walk::new(&space).filter_map(score).fold(0.0, f64::max);
    let best = history.trials().iter().filter_map(|trial| objective.score_of(&trial.outcome)).fold(0.0, f64::max);
    1.0 - best / most
}

const JOBS: &[(&str, Job)] = &[
    ("loads", Job { cores: 8.0, load: 6e-3, launch: 1e-2, compute: 3e-4, gain: 1.8, is_on_host: false }),
    ("computes", Job { cores: 16.0, load: 4e-4, launch: 5e-3, compute: 2e-3, gain: 2.2, is_on_host: false }),
    ("launches", Job { cores: 8.0, load: 1e-4, launch: 6e-2, compute: 1e-4, gain: 1.5, is_on_host: false }),
    ("shares two cores", Job { cores: 2.0, load: 5e-4, launch: 3e-3, compute: 3e-4, gain: 1.3, is_on_host: true }),
    ("shares four cores", Job { cores: 4.0, load: 8e-4, launch: 3e-3, compute: 1e-3, gain: 0.5, is_on_host: true }),
];

#[test]
fn ten_probes_find_the_best_of_a_simulated_pipeline_whatever_bounds_it() {
    for (name, job) in JOBS {
        let left = regret("auto", 10, |settings| measured(*job, settings, false));
        assert!(left < 0.03, "{name}: {left}");
    }
}

#[test]
fn waiting_that_is_reported_the_wrong_way_round_costs_little() {
    let mean = |name: &str| {
        let each = JOBS.iter().map(|(_, job)| regret(name, 20, |settings| measured(*job, settings, true)));
        crate::probe::stats::mean(&each.collect::<Vec<f64>>()).unwrap()
    };
    let (auto, bayes) = (mean("auto"), mean("bayes"));
    assert!(auto < bayes + 0.02, "{auto}, and {bayes} without a model");
}

#[test]
fn a_machine_on_which_all_is_the_other_way_round_costs_little() {
    let answer = |settings: &Settings| {
        let batch = number(settings, "batch_size");
        let slower = 1.0 + 0.1 * number(settings, "num_workers") + 0.2 * number(settings, "threads");
        Outcome::Measured(Measurement {
            throughput: Some(Estimate::point(1000.0 / batch.sqrt() / slower)),
            ..Measurement::default()
        })
    };
    let (auto, bayes) = (regret("auto", 20, answer), regret("bayes", 20, answer));
    assert!(auto < bayes + 0.02, "{auto}, and {bayes} without a model");
}

#[test]
fn a_role_that_is_none_keeps_a_parameter_out_of_the_model() {
    let model = |role: Option<Role>| {
        let space = Space::new([Parameter::powers_of_two("batch_size", 8, 256).plays(role)]).unwrap();
        let (objective, history) = (Objective::default(), History::default());
        super::Physics::of(&View::new(&space, &objective, &history, &[], None)).is_some()
    };
    assert!(model(Some(Role::Batch)) && !model(None));
}
