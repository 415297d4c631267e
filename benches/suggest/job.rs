//! The made-up training jobs that the strategies search, and a history of each.

use std::time::Duration;

use gputune::model::{
    Config, Estimate, Failure, History, Measurement, Memory, Outcome, Parameter, Permutation, Purpose, Space, Trial,
};

/// A space, and what its configs come to.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) space: Space,
}

/// All jobs: one that can be listed, and one that cannot.
pub(crate) fn jobs() -> Vec<Job> {
    let small = [
        Parameter::powers_of_two("batch_size", 8, 4096),
        Parameter::range("workers", 0, 16, 2),
        Parameter::values("prefetch", [1, 2, 4, 8, 16]),
        Parameter::values("precision", ["fp32", "tf32", "bf16"]),
        Parameter::values("accumulation", [1, 2, 4, 8, 16]),
        Parameter::values("pin_memory", [false, true]),
    ];
    let large = [
        Parameter::powers_of_two("batch_size", 8, 4096),
        Parameter::range("workers", 0, 9, 1),
        Parameter::range("prefetch", 1, 10, 1),
        Parameter::range("accumulation", 1, 10, 1),
    ];
    let others = (1..=8).map(|number| Parameter::range(format!("other_{number}"), 0, 9, 1));
    vec![
        Job { name: "13,500 configs", space: Space::new(small).unwrap() },
        Job { name: "10^12 configs", space: Space::new(large.into_iter().chain(others)).unwrap() },
    ]
}

impl Job {
    /// What a config comes to: a device with a launch floor, a loader, an edge of memory, and a little of everything else.
    pub(crate) fn answer(&self, config: &Config) -> Outcome {
        let settings = self.space.settings(config);
        let number = |name: &str| settings.integer(name).map(|value| value as f64);
        let (batch, workers) = (number("batch_size").unwrap(), number("workers").unwrap());
        let (bytes, speed) = match settings.get("precision").map(ToString::to_string).as_deref() {
            Some("bf16") => (0.55, 2.2),
            Some("tf32") => (1.0, 1.6),
            _ => (1.0, 1.0),
        };
        if batch * bytes > 1100.0 {
            return Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("made up") };
        }
        let device = (400.0 + batch * batch * 0.04 / (speed * speed)).sqrt();
        let loader = batch * 0.5 / workers.clamp(0.5, 6.0) / (1.0 + 0.02 * number("prefetch").unwrap());
        let update = 3.0 / number("accumulation").unwrap();
        let others: f64 = (4..config.levels().len()).map(|at| f64::from(config.level(at).unwrap_or(0))).sum();
        let step = (device.max(loader) + update) * (1.0 + 0.002 * (others - 20.0).abs());
        let rate = 1000.0 * batch / step * (1.0 + 0.01 * noise(config));
        let throughput = Some(Estimate::interval(rate, rate * 0.99, rate * 1.01));
        Outcome::Measured(Measurement { throughput, ..Measurement::default() })
    }

    /// What a config costs others, who make a number small: the logarithm of its time for each sample.
    pub(crate) fn cost(&self, config: &Config) -> Option<f64> {
        let outcome = self.answer(config);
        Some(-outcome.measurement()?.throughput?.value.ln())
    }

    /// Random configs with what they come to: the same for everyone who is measured.
    pub(crate) fn history(&self, trials: usize) -> History {
        let order = Permutation::new(self.space.raw_size().unwrap(), 7);
        let configs = (0..).map(|place| self.space.config(order.at(place).unwrap()).unwrap());
        let mut history = History::default();
        for config in configs.take(trials) {
            self.push(&mut history, config);
        }
        history
    }

    /// Probes a config.
    pub(crate) fn push(&self, history: &mut History, config: Config) {
        let number = u32::try_from(history.trials().len() + 1).unwrap();
        let (outcome, purpose) = (self.answer(&config), Purpose::Search);
        history.push(Trial { ended_at: None, slot: None, number, purpose, config, outcome, elapsed: Duration::ZERO });
    }
}

/// A number from -1 to 1 that looks random but depends on the config alone.
fn noise(config: &Config) -> f64 {
    let hash = config.levels().fold(17_u64, |hash, level| {
        (hash ^ u64::from(level.unwrap_or(99) + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
    });
    (hash % 2001) as f64 / 1000.0 - 1.0
}
