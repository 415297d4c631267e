//! The table of presets. A preset is a framework or a launcher, with its search space, the signs by which it is recognised, and the
//! source of its rate. Also reads the lines of the shipped spaces, to show them in a draft.

use std::sync::LazyLock;

use regex::Regex;

use super::command::Command;
use super::knobs::Names;
use super::source::Source;
use crate::spec::SHIPPED_SPACES;

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
    launchers: Names,
    modules: Names,
    /// The documentation page.
    pub page: &'static str,
}

/// Makes presets; launchers and modules are separated by blanks.
macro_rules! presets {
    ($(
        $name:literal: $about:literal, space $space:literal, adapter $adapter:expr, launchers $launchers:literal,
        page $page:literal, modules $modules:literal;
    )*) => {
        &[$(Preset {
            name: $name,
            about: $about,
            space: $space,
            adapter: $adapter,
            launchers: Names($launchers),
            modules: Names($modules),
            page: concat!("docs/howto-", $page, ".md"),
        }),*]
    };
}

/// The presets. Specific presets come first, since a Lightning script also imports torch.
pub const PRESETS: &[Preset] = presets! {
    "deepspeed": "DeepSpeed: its JSON config is rendered for each probe",
        space "deepspeed", adapter Some("torch"), launchers "deepspeed", page "deepspeed", modules "deepspeed";
    "lightning": "PyTorch Lightning: unmodified Trainer scripts, or the options of LightningCLI",
        space "lightning", adapter Some("torch"), launchers "", page "lightning",
        modules "lightning pytorch_lightning lightning.pytorch";
    "huggingface": "Hugging Face Trainer: unmodified scripts, or TrainingArguments on the command line",
        space "huggingface", adapter Some("torch"), launchers "", page "huggingface",
        modules "transformers.Trainer transformers.TrainingArguments transformers.Seq2SeqTrainer \
            transformers.HfArgumentParser trl setfit transformers.trainer";
    "accelerate": "Hugging Face Accelerate: one process or `accelerate launch`",
        space "accelerate", adapter Some("torch"), launchers "accelerate", page "accelerate", modules "accelerate";
    "torchrun": "torchrun with DDP or FSDP: loader and precision in each rank, and NCCL's settings",
        space "torchrun", adapter Some("torch"), launchers "torchrun", page "torchrun",
        modules "torch.nn.parallel.DistributedDataParallel torch.distributed.fsdp \
            torch.distributed.init_process_group";
    "pytorch": "plain PyTorch: unmodified scripts",
        space "torch-adapter", adapter Some("torch"), launchers "", page "pytorch", modules "torch";
    "keras-fit": "Keras on JAX or TensorFlow: unmodified scripts with `fit`",
        space "keras-fit", adapter Some("torch"), launchers "", page "keras", modules "";
    "keras": "Keras or TensorFlow: the script's options or `gputune.config`; three lines report the steps",
        space "keras", adapter None, launchers "", page "keras", modules "keras tensorflow tf_keras";
    "jax": "JAX, Flax, Equinox: the script's options or `gputune.config`; three lines report the steps",
        space "jax", adapter None, launchers "", page "jax", modules "jax flax equinox optax haiku";
    "any": "any command: its options, and its printed rate or events",
        space "batch", adapter None, launchers "", page "any", modules "";
};

impl Preset {
    /// Returns the name of the framework if the hook does not support it.
    pub fn foreign_framework(&self) -> Option<&'static str> {
        let name = self.about.split(':').next()?;
        (self.adapter.is_none() && !self.modules.0.is_empty()).then_some(name)
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
    let launched = command.launcher().and_then(|launcher| PRESETS.iter().find(|preset| preset.launchers.has(launcher)));
    // Wrappers of models for several ranks have no effect unless ranks are started.
    let has_ranks = |preset: &Preset| preset.name != "torchrun" || source.spawns_ranks;
    let imports = |preset: &&Preset| has_ranks(preset) && preset.modules.all().any(|module| source.has(module));
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

/// A parameter of a shipped space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: String,
    /// The table without the braces.
    pub(super) definition: String,
    pub(super) about: String,
}

/// The number of GPUs that a target needs to have an effect, by the beginning of its name.
const GPUS_NEEDED: &[(&str, usize)] =
    &[("nccl.", 2), ("env.NCCL_", 2), ("env.CUDA_", 1), ("env.TF_GPU_", 1), ("env.XLA_FLAGS", 2)];

/// Returns the number of GPUs that a target needs to have an effect.
pub(super) fn gpus_needed(target: &str) -> usize {
    GPUS_NEEDED.iter().find(|(start, _)| target.starts_with(start)).map_or(0, |(_, gpus)| *gpus)
}

/// Returns the parameters of a shipped space and of the spaces that it imports, in their order.
pub(super) fn lines(space: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    add(space, &mut lines, 0);
    lines
}

fn add(space: &str, lines: &mut Vec<Line>, depth: usize) {
    // `name = { ... } # about`
    static LINE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^([a-z0-9_]+)\s*=\s*\{\s*(.*?)\s*\}\s*(?:#\s*(.*))?$").ok());
    const DEEPEST: usize = 8;
    let shipped = SHIPPED_SPACES.iter().find(|(name, _)| *name == space).filter(|_| depth < DEEPEST);
    let Some((_, text)) = shipped else { return };
    for line in text.lines() {
        if let Some((_, list)) = line.split_once('=').filter(|(key, _)| key.trim() == "import") {
            let names = list.split('"').skip(1).step_by(2);
            names.for_each(|import| add(import, lines, depth + 1));
        } else if let Some(found) = LINE.as_ref().and_then(|pattern| pattern.captures(line)) {
            let part = |at: usize| found.get(at).map_or(String::new(), |part| part.as_str().to_owned());
            lines.retain(|known| known.name != part(1));
            lines.push(Line { name: part(1), definition: part(2), about: part(3) });
        }
    }
}

impl Line {
    fn key(&self, key: &str) -> Option<&str> {
        Some(self.definition.split_once(&format!("{key} = "))?.1)
    }

    pub(super) fn target(&self) -> Option<&str> {
        self.key("apply")?.strip_prefix('"')?.split('"').next()
    }

    /// Returns the first setting, as written, which is the library's default.
    pub(super) fn first_value(&self) -> Option<String> {
        let list = self.key("values")?.strip_prefix('[')?.split(']').next()?;
        Some(list.split(',').next()?.trim().to_owned()).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    #[test]
    fn every_parameter_of_a_shipped_space_is_read() {
        for (name, _) in SHIPPED_SPACES {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("spec.toml");
            let text = format!("[step]\ncommand = [\"x\"]\nadapter = \"torch\"\n[space]\nimport = [\"{name}\"]\n");
            std::fs::write(&path, text).unwrap();
            let spec = Spec::load(&path).unwrap();
            let parameters = spec.space.parameters().iter().map(crate::model::Parameter::name);
            let derived = spec.space.derived().iter().map(|derived| derived.name());
            let mut real: Vec<&str> = parameters.chain(derived).collect();
            let lines = lines(name);
            let mut read: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
            real.sort_unstable();
            read.sort_unstable();
            assert_eq!(read, real, "{name}: one line for each parameter");
        }
    }

    #[test]
    fn what_a_library_does_by_itself_comes_first() {
        let lines = lines("torch-adapter");
        let pin = lines.iter().find(|line| line.name == "pin_memory").unwrap();
        assert_eq!((pin.target(), pin.first_value().as_deref()), (Some("dataloader.pin_memory"), Some("false")));
    }
}
