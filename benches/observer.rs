//! Measures the cost of the torch adapter's hook for a training script: the same script runs with and without it, in turn.
//!
//! `cargo bench --bench observer -- --python PATH [--rounds N] [--steps N] [--evidence]` prints a table; with `--evidence`
//! it is that of a probe that gathers all evidence, as `gputune diagnose` asks for.
//! `benches/results/observer.md` keeps a run. The script measures its own speed, so that nobody else's clock counts.

use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use gputune::probe::{CommandProber, Effort, Experiment, Job, Mode, Prober, stats};
use gputune::spec::Spec;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Steps per second, and microseconds of CPU time per step.
type Speed = (f64, f64);

fn main() -> Result {
    let mut arguments = std::env::args().skip(1);
    let (mut python, mut rounds, mut steps) = ("target/python/bin/python".to_owned(), 20_usize, 300_usize);
    let mut experiment = None;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} takes a value"));
        match argument.as_str() {
            "--python" => python = value()?,
            "--rounds" => rounds = value()?.parse()?,
            "--steps" => steps = value()?.parse()?,
            "--evidence" => experiment = Some(Experiment::new(Mode::Observe)),
            "--bench" => {}
            other => {
                return Err(
                    format!("unknown argument {other}: --python PATH, --rounds N, --steps N, --evidence").into()
                );
            }
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/observer/train.py");
    let command = [python, script.display().to_string(), steps.to_string()];
    let folder = tempfile::tempdir()?;
    let mut pairs = Vec::new();
    for round in 0..rounds {
        // Each comes first as often as the other, so that a drift of the machine favours nobody.
        let (off, on) = if round % 2 == 0 {
            let off = bare(&command)?;
            (off, observed(&command, folder.path(), experiment.as_ref())?)
        } else {
            let on = observed(&command, folder.path(), experiment.as_ref())?;
            (bare(&command)?, on)
        };
        eprintln!("round {}: {off:?} without, {on:?} with the hook", round + 1);
        pairs.push((off, on));
    }
    println!("{rounds} rounds of {steps} steps each, in turn\n");
    println!("| | without the hook, median | with it, median | with / without, mean of pairs | 95 % interval |");
    println!("|---|--:|--:|--:|--:|");
    row("steps/s", &pairs, |speed| speed.0);
    row("µs of CPU per step", &pairs, |speed| speed.1);
    Ok(())
}

fn row(name: &str, pairs: &[(Speed, Speed)], number: fn(Speed) -> f64) {
    let median = |numbers: Vec<f64>| stats::median(&numbers).unwrap_or(f64::NAN);
    let off = median(pairs.iter().map(|(off, _)| number(*off)).collect());
    let on = median(pairs.iter().map(|(_, on)| number(*on)).collect());
    let ratios: Vec<f64> = pairs.iter().map(|(off, on)| number(*on) / number(*off)).collect();
    let Some(ratio) = stats::mean(&ratios).filter(|_| ratios.len() > 1) else { return };
    let (count, degrees) = (ratios.len() as f64, ratios.len() - 1);
    let variance = ratios.iter().map(|other| (other - ratio).powi(2)).sum::<f64>() / degrees as f64;
    let half = stats::student_quantile(degrees, 0.025) * (variance / count).sqrt();
    println!("| {name} | {off:.2} | {on:.2} | {ratio:.4} | {:.4} to {:.4} |", ratio - half, ratio + half);
}

/// The script's own words about its speed.
fn speed(text: &str) -> Result<Speed> {
    let line = text.lines().rev().find(|line| line.contains(" steps/s; ")).ok_or(format!("no speed in: {text}"))?;
    let (steps, rest) = line.split_once(" steps/s; ").ok_or("no speed")?;
    Ok((steps.parse()?, rest.split(' ').next().unwrap_or_default().parse()?))
}

fn bare(command: &[String]) -> Result<Speed> {
    let output = Command::new(&command[0]).args(&command[1..]).env("OMP_NUM_THREADS", "1").output()?;
    speed(&String::from_utf8_lossy(&output.stdout))
}

/// The speed inside a probe with the adapter, whose limits let the script run to its end.
fn observed(command: &[String], folder: &Path, experiment: Option<&Experiment>) -> Result<Speed> {
    let spec = folder.join("observer.toml");
    let text = format!(
        "[step]\ncommand = {}\nadapter = \"torch\"\nthroughput = {{ pattern = '([0-9.]+) steps/s', unit = \"steps/s\" }}\n\
         samples_per_step = 1\n[step.env]\nOMP_NUM_THREADS = \"1\"\n\
         [space]\nworkers = {{ values = [0], apply = \"dataloader.num_workers\" }}\n\
         [limits]\nprobe_time = \"10m\"\nstall_time = \"10m\"\nmeasure_time = \"10m\"\n",
        serde_json::to_string(command)?
    );
    fs::write(&spec, text)?;
    let (spec, gputune) = (Spec::load(&spec)?, Path::new(env!("CARGO_BIN_EXE_gputune")));
    let device = spec.device().map_err(|error| error.to_string())?;
    let step = spec.step.into_command(gputune.to_owned(), gputune.to_owned(), &device);
    let config = spec.space.first().ok_or("no config")?;
    let settings = spec.space.settings(&config);
    let job = Job { experiment: experiment.cloned(), ..Job::new(1, &config, &settings, &spec.limits) };
    let outcome = CommandProber::new(step, folder).probe(&job, &mut |_| ControlFlow::Continue(()))?;
    let framework = outcome.measurement().and_then(|measurement| measurement.framework.as_deref());
    if !framework.is_some_and(|framework| framework.starts_with("torch")) {
        return Err(format!("the hook did not report: {outcome:?}").into());
    }
    speed(&fs::read_to_string(folder.join(CommandProber::log_name(1, Effort::Probe)))?)
}
