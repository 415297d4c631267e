//! The kept folder of a search, with trials of every kind, written without running a search.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gputune::machine::Device;
use gputune::model::{
    Estimate, Expression, Failure, Goal, Measurement, Memory, MemoryUse, Objective, Outcome, Parameter, Purpose, Role,
    Settings, Space, Timing, Trial, Value,
};
use gputune::probe::{
    StepTemplate, Template,
    adapter::{self, Applied, Apply, Target},
};
use gputune::search::{
    Budget, Fingerprint, Header, Journal, StopReason,
    kept::{JOURNAL, Record, STUDY},
};

/// Returns parameters like those that an adapter tunes in a torch script.
pub(crate) fn space() -> Space {
    Space::builder()
        .parameter(Parameter::powers_of_two("batch_size", 8, 512).plays(Role::Batch))
        .parameter(Parameter::range("workers", 0, 8, 1))
        .parameter(Parameter::values("prefetch", [2, 4]).when(Expression::parse("workers > 0").unwrap()))
        .parameter(Parameter::values("precision", ["fp32", "bf16"]).full_precision("fp32"))
        .parameter(Parameter::values("pin_memory", [false, true]))
        .parameter(Parameter::values("ratio", [0.5, 1.0]))
        .build()
        .unwrap()
}

/// Returns the step, with the targets of the parameters.
pub(crate) fn step() -> StepTemplate {
    let targets = [
        ("batch_size", "dataloader.batch_size"),
        ("workers", "dataloader.num_workers"),
        ("prefetch", "dataloader.prefetch_factor"),
        ("precision", "torch.precision"),
        ("pin_memory", "dataloader.pin_memory"),
        ("ratio", "arg"),
    ];
    let applied = |(parameter, name): (&str, &str)| {
        let target = Target::parse(name).unwrap();
        Applied { parameter: parameter.to_owned(), name: name.to_owned(), target, argument: None }
    };
    let words = ["python", "train.py", "--lr", "0.1"];
    StepTemplate {
        command: words.iter().map(|word| Template::parse(word)).collect(),
        env: Vec::new(),
        cwd: "/data/project".into(),
        files: Vec::new(),
        apply: Apply {
            adapter: adapter::adapter("torch"),
            applied: targets.into_iter().map(applied).collect(),
            seed: 0,
        },
    }
}

type Number = (&'static str, Value);

/// The settings of one config.
pub(crate) fn settings(batch: i64, workers: i64, precision: &str) -> Settings {
    let prefetch: Option<Number> = (workers > 0).then_some(("prefetch", Value::from(2)));
    let rest: [Number; 2] = [("pin_memory", true.into()), ("ratio", 0.5.into())];
    let first: [Number; 2] = [("batch_size", batch.into()), ("workers", workers.into())];
    first.into_iter().chain(prefetch).chain([("precision", precision.into())]).chain(rest).collect()
}

/// Returns a measurement of this many samples per second.
pub(crate) fn measured(speed: f64, batch: u32) -> Measurement {
    let batch = f64::from(batch);
    Measurement {
        throughput: Some(Estimate::interval(speed, speed * 0.98, speed * 1.02)),
        unit: "samples/s".to_owned(),
        phase_seconds: [("data_wait".to_owned(), 0.1 * batch / speed), ("forward".to_owned(), 0.4 * batch / speed)]
            .into(),
        metrics: [("power".to_owned(), 200.0), ("loss".to_owned(), 2.5)].into(),
        timing: Timing {
            steps: 100,
            warmup_steps: 5,
            step_seconds: Some(batch / speed),
            samples_per_step: Some(batch),
            ..Default::default()
        },
        memory: MemoryUse {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
            peak_bytes: Some((batch * 1e6) as u64 + 500_000_000),
            capacity_bytes: Some(8_000_000_000),
            ..Default::default()
        },
        ..Measurement::default()
    }
}

/// Trials of every kind; the best is `batch_size=256 workers=4 precision=bf16`.
pub(crate) fn trials() -> Vec<(Purpose, Settings, Outcome)> {
    let failure = |reason: &str| Failure {
        reason: reason.to_owned(),
        last_lines: vec!["Traceback".to_owned()],
        ..Failure::default()
    };
    let good = |speed, batch| Outcome::Measured(measured(speed, batch));
    vec![
        (Purpose::Baseline, settings(32, 0, "fp32"), good(400.0, 32)),
        (Purpose::Search, settings(256, 4, "bf16"), good(1200.0, 256)),
        (
            Purpose::Search,
            settings(512, 4, "fp32"),
            Outcome::OutOfMemory { memory: Memory::Device, failure: failure("CUDA out of memory <b>") },
        ),
        (Purpose::Search, settings(8, 1, "bf16"), good(90.0, 8)),
        (Purpose::Search, settings(64, 2, "fp32"), Outcome::Crashed(failure("exit code 1: ValueError: \"bad\""))),
        (Purpose::Search, settings(128, 4, "bf16"), good(1000.0, 128)),
        (Purpose::Search, settings(16, 8, "bf16"), Outcome::Interrupted),
        (Purpose::Round, settings(256, 4, "bf16"), good(1210.0, 256)),
        (Purpose::Round, settings(32, 0, "fp32"), good(404.0, 32)),
    ]
}

/// Writes the folder of a search for one metric that ended.
pub(crate) fn write(folder: &Path) {
    write_with(folder, &Objective::default(), &trials(), Some(StopReason::ProbesSpent));
}

/// Writes the folder of a search for a front of throughput and energy.
pub(crate) fn write_front(folder: &Path) {
    let goals = ["throughput", "energy_per_sample"].map(|metric| Goal::known(metric).unwrap());
    write_with(folder, &Objective::pareto(goals).unwrap(), &trials(), Some(StopReason::ProbesSpent));
}

/// Writes the folder of a search with these trials.
pub(crate) fn write_with(
    folder: &Path,
    objective: &Objective,
    trials: &[(Purpose, Settings, Outcome)],
    stopped: Option<StopReason>,
) {
    fs::create_dir_all(folder).unwrap();
    let (space, step) = (space(), step());
    let device = Device { name: "NVIDIA Test".to_owned(), driver: "600.1".to_owned(), is_gpu: true };
    let (name, driver) = (device.name.clone(), device.driver.clone());
    let fingerprint = Fingerprint { device: name, driver, command: "train".into(), space: "space".into() };
    let (mut journal, _) = Journal::open(&folder.join(JOURNAL), &Header::new(fingerprint), &space).unwrap();
    for (number, (purpose, settings, outcome)) in (1..).zip(trials) {
        let (config, elapsed) = (space.locate(settings).unwrap(), Duration::from_secs(12));
        let trial = Trial { elapsed, ..Trial::new(number, *purpose, config, outcome.clone()) };
        journal.record(&trial, &space, Some("a reason"), None).unwrap();
    }
    let baseline = trials.first().map(|(_, settings, _)| settings);
    let record = Record::new("runs/train.toml", (&space, objective), baseline, Budget::default(), &device, &step);
    let record = match stopped {
        Some(stopped) => record.ended(stopped, Duration::from_secs(120)),
        None => record,
    };
    fs::write(folder.join(STUDY), record.to_json().unwrap()).unwrap();
}
