//! A command without a spec, as a step that can be probed.

use std::path::PathBuf;

use gputune::machine::{Device, DeviceChoice, nvml::Visible};
use gputune::model::{Parameter, Space};
use gputune::probe::relay::Relays;
use gputune::probe::{
    CommandStep, Rate, Start, StepTemplate, Template, WritesWish,
    adapter::{Apply, adapter},
};

use super::exit::{Exit, Failed};
use super::paths;

/// A command, the space of its only config, and the device.
pub(super) struct Bare {
    pub(super) space: Space,
    pub(super) step: CommandStep,
    pub(super) device: Device,
}

impl Bare {
    /// Makes the step of a command in the current folder; the hook of the torch adapter is loaded. `words` are templates.
    pub(super) fn of(words: &[String]) -> Result<Self, Failed> {
        let impossible = |message: String| Failed::new(Exit::Impossible, message);
        let cwd =
            std::env::current_dir().map_err(|error| impossible(format!("there is no current folder: {error}")))?;
        let device = Device::choose(DeviceChoice::Auto, &Visible::of(&Default::default()))?;
        // A job without parameters is the only config of a dummy space.
        let space = Space::new([Parameter::values("job", ["as it is"])]);
        let space = space.map_err(|error| Failed::because(Exit::Impossible, &error))?;
        let template = StepTemplate {
            command: words.iter().map(|word| Template::parse(word)).collect(),
            env: Vec::new(),
            cwd,
            files: Vec::new(),
            apply: Apply { adapter: adapter("torch"), applied: Vec::new(), seed: 0 },
        };
        let step = CommandStep {
            template,
            rate: Rate::Events,
            samples_per_step: None,
            may_count_steps: true,
            ranks: None,
            gputune: paths::gputune_path(),
            supervisor: PathBuf::from("/proc/self/exe"),
            is_gpu: device.is_gpu,
            writes: WritesWish::default(),
            start: Start::Fresh,
            slot: None,
            relays: Relays::default(),
        };
        Ok(Self { space, step, device })
    }
}
