//! Experiments and facts, from the probe's file to the measurement. A Rust step plays the hook.

use crate::support;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use gputune::model::{Fact, Outcome};
use gputune::probe::{CommandProber, Experiment, Job, Mode, Prober};
use gputune::spec::Spec;

const HELLO: &str = "send:{\"event\":\"hello\",\"framework\":\"torch 2\",\"rank\":0,\"ranks\":1,\"orders\":true}";
const SPACE: &str = "[space]\nx = { values = [1], apply = \"dataloader.num_workers\" }\n\
                     half = { values = [\"bf16\"], apply = \"torch.precision\" }\n";
const LIMITS: &str =
    "[limits]\nprobe_time = \"60s\"\nstall_time = \"30s\"\ngrace_time = \"500ms\"\nmeasure_time = \"300ms\"\n";

/// Probes the only config of a spec.
fn probe(folder: &Path, command: &[String], adapter: &str, space: &str, experiment: Option<&Experiment>) -> Outcome {
    let command = serde_json::to_string(command).unwrap();
    let file = folder.join("spec.toml");
    fs::write(&file, format!("[step]\ncommand = {command}\n{adapter}{space}{LIMITS}")).unwrap();
    let spec = Spec::load(&file).unwrap();
    let device = spec.device().unwrap();
    let step = spec.step.into_command(support::gputune().into(), support::gputune().into(), &device);
    let config = spec.space.first().unwrap();
    let settings = spec.space.settings(&config);
    let job = Job { experiment: experiment.cloned(), ..Job::new(1, &config, &settings, &spec.limits) };
    CommandProber::new(step, folder).probe(&job, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn child(arguments: &[&str]) -> Vec<String> {
    let words = std::iter::once(support::child().display().to_string());
    words.chain(arguments.iter().map(|&argument| argument.to_owned())).collect()
}

fn fact(name: &str, value: &str) -> String {
    format!("send:{{\"event\":\"fact\",\"name\":\"{name}\",\"value\":{value}}}")
}

const PLAIN: &str = "[space]\nx = { values = [1] }\n";
const ADAPTER: &str = "adapter = \"torch\"\n";

#[test]
fn facts_reach_the_measurement_and_a_bad_one_loses_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let facts = [
        fact("loader.workers", "2"),
        fact("loader.workers", "4"),
        fact("device", "\"cpu\""),
        fact("compiled", "false"),
        fact("optimizer", "[1]"),
        fact("colour", "\"blue\""),
    ];
    let mut words: Vec<&str> = facts.iter().map(String::as_str).collect();
    words.push("steps:2000:1:1000");
    let outcome = probe(folder.path(), &child(&words), "", PLAIN, None);
    let Outcome::Measured(measurement) = outcome else { panic!("{outcome:?}") };
    assert!(measurement.throughput.is_some());
    let facts = &measurement.facts;
    assert_eq!((facts.number("loader.workers"), facts.text("device")), (Some(4.0), Some("cpu")));
    assert_eq!((facts.flag("compiled"), facts.get("optimizer")), (Some(false), None));
    assert_eq!(facts.get("colour"), Some(&Fact::from("blue")));
    assert_eq!(measurement.bad_lines, 1);
}

#[test]
fn a_loader_alone_is_measured_without_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let applied = "send:{\"event\":\"applied\",\"target\":\"dataloader.num_workers\"}";
    let facts = [fact("loader_only.rate.0", "100.5"), fact("loader_only.rate.2", "190")];
    let words = [HELLO, applied, &facts[0], &facts[1], "exit:0"];
    let experiment = Experiment::new(Mode::LoaderOnly);
    // The precision does not affect a loader, so no report must confirm that it was applied.
    let outcome = probe(folder.path(), &child(&words), ADAPTER, SPACE, Some(&experiment));
    let Outcome::Measured(measurement) = outcome else { panic!("{outcome:?}") };
    assert_eq!((measurement.throughput, measurement.timing.steps), (None, 0));
    assert_eq!(measurement.facts.numbered("loader_only.rate."), [(0, 100.5), (2, 190.0)].into());
    assert_eq!(measurement.framework.as_deref(), Some("torch 2"));

    let folder = tempfile::tempdir().unwrap();
    let nothing = probe(folder.path(), &child(&[HELLO, applied, "exit:0"]), ADAPTER, SPACE, Some(&experiment));
    assert!(matches!(&nothing, Outcome::Crashed(failure) if failure.reason.contains("before a")), "{nothing:?}");
    let folder = tempfile::tempdir().unwrap();
    let without = probe(folder.path(), &child(&words[..4]), ADAPTER, SPACE, None);
    assert!(!matches!(without, Outcome::Measured(_)), "an ordinary probe needs steps: {without:?}");
}

#[test]
fn the_hook_reads_the_experiment_and_what_it_sets() {
    let folder = tempfile::tempdir().unwrap();
    let script = "cat \"${PYTHONPATH%%:*}/probe.json\"; echo; echo threads $OMP_NUM_THREADS; exit 3";
    let command = ["sh", "-c", script].map(str::to_owned);
    let experiment = Experiment::new(Mode::Replay).with("dataloader.batch_size", 64).with("env.OMP_NUM_THREADS", 3);
    let outcome = probe(folder.path(), &command, ADAPTER, PLAIN, Some(&experiment));
    assert!(matches!(outcome, Outcome::Crashed(_)), "{outcome:?}");
    let log = fs::read_to_string(folder.path().join("logs/0001.log")).unwrap();
    let mut lines = log.lines();
    let file: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let set = serde_json::json!({ "dataloader.batch_size": 64, "env.OMP_NUM_THREADS": 3 });
    assert_eq!((&file["experiment"]["mode"], &file["experiment"]["set"]), (&"replay".into(), &set));
    assert_eq!((&file["experiment"]["batches"], &file["experiment"]["seconds"]), (&8.into(), &2.5.into()));
    assert_eq!(lines.next(), Some("threads 3"));

    // A setting that was not applied gives no measurement.
    let folder = tempfile::tempdir().unwrap();
    let outcome = probe(folder.path(), &child(&[HELLO, "steps:2000:1:1000"]), ADAPTER, PLAIN, Some(&experiment));
    assert!(
        matches!(&outcome, Outcome::Rejected(failure) if failure.reason.contains("dataloader.batch_size")),
        "{outcome:?}"
    );
}

#[test]
fn an_experiment_without_an_adapter_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = Experiment::new(Mode::Observe);
    let outcome = probe(folder.path(), &child(&["steps:10:1:1000"]), "", PLAIN, Some(&experiment));
    assert!(
        matches!(&outcome, Outcome::Rejected(failure) if failure.reason.contains("adapter = \"torch\"")),
        "{outcome:?}"
    );
}
