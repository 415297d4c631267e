//! Finds the fastest settings of a training step from Rust, before a long run.
//!
//! Run it with `cargo run --release --example library`; it takes about a minute.

use std::error::Error;
use std::time::Duration;

use gputune::Parameter;
use gputune::Settings;
use gputune::Space;
use gputune::Tuner;
use gputune::demo::{DemoOptions, DemoTraining};
use gputune::model::Event;

fn main() -> Result<(), Box<dyn Error>> {
    let space = Space::new([
        Parameter::powers_of_two("batch_size", 16, 128),
        Parameter::values("workers", [0, 1, 2]),
        Parameter::values("precision", ["f32", "bf16"]),
    ])?;
    let today: Settings = [("batch_size", 32), ("workers", 0)].into_iter().collect();

    // Any type that implements `TrainingStep` will do, and so will a closure that runs one step.
    let study = Tuner::new(space, DemoTraining::new(DemoOptions::default()))
        .baseline(&today)?
        .measure_time(Duration::from_millis(700))
        .run(|event| {
            if let Event::Finished { trial, settings, .. } = event {
                let rate = trial.outcome.measurement().and_then(|measured| measured.metric("throughput"));
                println!("{}: {:.0} samples/s", settings.line(), rate.unwrap_or(f64::NAN));
            }
        })?;

    let best = study.best().ok_or("no settings could be measured")?;
    for (name, value) in study.settings(&best.winner.config).iter() {
        println!("{name} = {value}");
    }
    if let Some(speedup) = best.speedup {
        println!("{:.2} times as fast as today", speedup.value);
    }
    Ok(())
}
