//! `gputune demo-step`: the built-in training job, as a command.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gputune::demo::{DemoError, DemoOptions, DemoTrainer, Precision};
use gputune::model::quantity;
use gputune::probe::protocol::{ErrorKind, Reporter};

use super::exit::{Exit, Failed};
use super::stdout;

/// Train a small image classifier on the CPU; a step to try gputune on
///
/// Reads PNG images from a cache folder (written at first use), decodes and augments them in worker threads, and
/// trains a small network with SGD. In a probe it reports events; outside it prints its loss and its rate.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gputune demo-step --batch-size 64 --workers 2 --precision bf16 --steps 200")]
pub(super) struct Args {
    /// Samples per step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Threads that load and decode; 0 loads between steps
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Batches that each worker prepares ahead
    #[arg(long, default_value_t = 2)]
    prefetch: usize,
    /// The type that numbers are kept in: f32, bf16 or f16
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Steps to train
    #[arg(long, default_value_t = 1000)]
    steps: u64,
    /// What chance depends on
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Memory that the training may use, such as 128MiB; more is an out-of-memory error
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_bytes)]
    memory_limit: Option<u64>,
    /// The folder for the images [default: the user's cache folder]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

const FRAMEWORK: &str = concat!("gputune demo-step ", env!("CARGO_PKG_VERSION"));

pub(super) fn run(args: &Args) -> super::Result {
    let mut reporter = Reporter::from_env().and_then(Reporter::obeying)?;
    // The step trains on if the probe no longer listens.
    let _ = reporter.hello(FRAMEWORK);
    train(args, &mut reporter).map_err(|error| {
        let kind = match error {
            DemoError::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            DemoError::InvalidOption { .. } => ErrorKind::Rejected,
            _ => ErrorKind::Failed,
        };
        let message = Failed::because(Exit::NothingFeasible, &error).message();
        let _ = reporter.error(kind, &message);
        Failed::new(Exit::NothingFeasible, message)
    })?
}

/// Reports the settings that took effect. The step trains on if the probe no longer listens.
fn tell_settings(args: &Args, reporter: &mut Reporter) {
    let Args { batch_size, workers, prefetch, .. } = *args;
    for (name, value) in
        [("loader.batch_size", batch_size), ("loader.workers", workers), ("loader.prefetch_factor", prefetch)]
    {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let _ = reporter.fact(name, value as f64);
    }
    let _ = reporter.fact("precision", args.precision.to_string().as_str());
}

fn train(args: &Args, reporter: &mut Reporter) -> Result<super::Result, DemoError> {
    const SPEAK_EVERY: Duration = Duration::from_secs(1);
    let default = DemoOptions::default();
    let mut trainer = DemoTrainer::new(&DemoOptions {
        batch_size: args.batch_size,
        workers: args.workers,
        prefetch: args.prefetch,
        precision: args.precision,
        seed: args.seed,
        memory_limit_bytes: args.memory_limit,
        data_dir: args.data_dir.clone().unwrap_or(default.data_dir),
        ..DemoOptions::default()
    })?;
    tell_settings(args, reporter);
    let (mut spoke, mut samples) = (Instant::now(), 0);
    for number in 1..=args.steps {
        let step = trainer.step()?;
        samples += step.samples;
        let memory = trainer.memory();
        let reported = reporter
            .phase("data_wait", step.data_wait)
            .and_then(|()| reporter.phase("forward", step.forward))
            .and_then(|()| reporter.phase("backward", step.backward))
            .and_then(|()| reporter.phase("optimizer", step.update))
            .and_then(|()| reporter.step(step.samples, Some(step.loss)))
            .and_then(|()| reporter.memory(memory.bytes, memory.limit_bytes))
            .and_then(|()| reporter.obey());
        if !matches!(reported, Ok(ControlFlow::Continue(()))) {
            // The probe has measured enough, or no longer listens.
            break;
        }
        if spoke.elapsed() >= SPEAK_EVERY || number == args.steps {
            #[expect(clippy::cast_precision_loss, reason = "a displayed rate")]
            let rate = samples as f64 / spoke.elapsed().as_secs_f64();
            let line = format!("step {number}  loss {:.4}  {rate:.0} samples/s\n", step.loss);
            if let Err(failed) = stdout::stream(&line) {
                return Ok(Err(failed));
            }
            (spoke, samples) = (Instant::now(), 0);
        }
    }
    Ok(Ok(Exit::Found))
}
