//! The table of presets. A preset is a framework or a launcher, with its search space, the signs by which it is recognised, and the
//! source of its rate.

use super::command::Command;
use super::source::Source;

/// A framework or a launcher.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name for `--preset`.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The shipped space with its parameters.
    pub space: &'static str,
    /// The adapter that tunes its scripts unchanged, if any.
    pub adapter: Option<&'static str>,
    /// The launchers that identify the preset, by their first word.
    launchers: &'static [&'static str],
    /// The modules whose import identifies the preset.
    modules: &'static [&'static str],
    /// The documentation page.
    pub page: &'static str,
}

/// The presets. Specific presets come first, since a Lightning script also imports torch.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "deepspeed",
        about: "DeepSpeed: its JSON config is rendered for each probe",
        space: "deepspeed",
        adapter: Some("torch"),
        launchers: &["deepspeed"],
        modules: &["deepspeed"],
        page: "docs/howto-deepspeed.md",
    },
    Preset {
        name: "lightning",
        about: "PyTorch Lightning: unmodified Trainer scripts, or the options of LightningCLI",
        space: "lightning",
        adapter: Some("torch"),
        launchers: &[],
        modules: &["lightning", "pytorch_lightning", "lightning.pytorch"],
        page: "docs/howto-lightning.md",
    },
    Preset {
        name: "huggingface",
        about: "Hugging Face Trainer: unmodified scripts, or TrainingArguments on the command line",
        space: "huggingface",
        adapter: Some("torch"),
        launchers: &[],
        modules: &[
            "transformers.Trainer",
            "transformers.TrainingArguments",
            "transformers.Seq2SeqTrainer",
            "transformers.HfArgumentParser",
            "trl",
            "setfit",
            "transformers.trainer",
        ],
        page: "docs/howto-huggingface.md",
    },
    Preset {
        name: "accelerate",
        about: "Hugging Face Accelerate: one process or `accelerate launch`",
        space: "accelerate",
        adapter: Some("torch"),
        launchers: &["accelerate"],
        modules: &["accelerate"],
        page: "docs/howto-accelerate.md",
    },
    Preset {
        name: "torchrun",
        about: "torchrun with DDP or FSDP: loader and precision in each rank, and NCCL's settings",
        space: "torchrun",
        adapter: Some("torch"),
        launchers: &["torchrun"],
        modules: &[
            "torch.nn.parallel.DistributedDataParallel",
            "torch.distributed.fsdp",
            "torch.distributed.init_process_group",
        ],
        page: "docs/howto-torchrun.md",
    },
    Preset {
        name: "pytorch",
        about: "plain PyTorch: unmodified scripts",
        space: "torch-adapter",
        adapter: Some("torch"),
        launchers: &[],
        modules: &["torch"],
        page: "docs/howto-pytorch.md",
    },
    Preset {
        name: "keras",
        about: "Keras or TensorFlow: the script's options or `gputune.config`; three lines report the steps",
        space: "keras",
        adapter: None,
        launchers: &[],
        modules: &["keras", "tensorflow", "tf_keras"],
        page: "docs/howto-keras.md",
    },
    Preset {
        name: "jax",
        about: "JAX, Flax, Equinox: the script's options or `gputune.config`; three lines report the steps",
        space: "jax",
        adapter: None,
        launchers: &[],
        modules: &["jax", "flax", "equinox", "optax", "haiku"],
        page: "docs/howto-jax.md",
    },
    Preset {
        name: "any",
        about: "any command: its options, and its printed rate or events",
        space: "batch",
        adapter: None,
        launchers: &[],
        modules: &[],
        page: "docs/howto-any.md",
    },
];

impl Preset {
    /// Returns the name of the framework, if it is one that the hook does not know.
    pub fn foreign_framework(&self) -> Option<&'static str> {
        let name = self.about.split(':').next()?;
        (self.adapter.is_none() && !self.modules.is_empty()).then_some(name)
    }
}

/// Returns the preset of this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The recognised preset of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognised {
    /// This preset.
    As(&'static Preset),
    /// One of these presets: the script uses several frameworks with their own training loops. The likeliest comes first.
    Unclear(Vec<&'static Preset>),
}

/// Recognises the preset by the launcher, or else by the script's imports.
pub fn recognise(command: &Command, source: &Source) -> Recognised {
    let launched =
        command.launcher().and_then(|launcher| PRESETS.iter().find(|preset| preset.launchers.contains(&launcher)));
    // Wrappers of models for several ranks have no effect unless ranks are started.
    let has_ranks = |preset: &Preset| preset.name != "torchrun" || source.spawns_ranks();
    let imports = |preset: &&Preset| has_ranks(preset) && preset.modules.iter().any(|module| source.has(module));
    let imported: Vec<&'static Preset> = PRESETS.iter().filter(imports).collect();
    let of_torch = |preset: &&'static Preset| preset.adapter.is_some();
    let torch = imported.iter().find(|preset| of_torch(preset)).copied();
    let others = imported.iter().filter(|preset| !of_torch(preset)).copied();
    match (launched, torch) {
        // A launcher for torch also starts scripts of torch's frameworks, so the script is the better evidence.
        (Some(launched), Some(torch))
            if launched.name != "deepspeed" && !matches!(torch.name, "pytorch" | "torchrun") =>
        {
            Recognised::As(torch)
        }
        (Some(launched), _) => Recognised::As(launched),
        (None, torch) => match torch.into_iter().chain(others).collect::<Vec<_>>().as_slice() {
            [] => PRESETS.last().map_or(Recognised::Unclear(Vec::new()), Recognised::As),
            [only] => Recognised::As(only),
            several => Recognised::Unclear(several.to_vec()),
        },
    }
}
