//! The table of parameters that a search may set by arguments of training scripts, with the names of these arguments.

use super::argument::Argument;

/// Names, separated by blanks; specific names come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names(pub &'static str);

impl Names {
    /// Returns the names one by one.
    pub fn all(self) -> impl Iterator<Item = &'static str> {
        self.0.split_ascii_whitespace()
    }

    /// Returns true if a name is among them.
    pub fn has(self, name: &str) -> bool {
        self.all().any(|own| own == name)
    }
}

/// A parameter for which scripts have arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct Knob {
    /// The parameter's name in `[space]`.
    pub parameter: &'static str,
    /// Its description, for a comment.
    pub about: &'static str,
    /// The arguments that set it, as returned by [`Argument::plain`].
    pub names: Names,
    /// The arguments without a value that turn the parameter off.
    pub off: Names,
    /// The settings to search.
    pub settings: Settings,
    /// The reason why it is not searched unless the user asks for it.
    pub closed: Option<&'static str>,
}

impl Knob {
    /// Returns the knob of a parameter.
    pub fn of(parameter: &str) -> Option<&'static Self> {
        KNOBS.iter().find(|knob| knob.parameter == parameter)
    }

    /// Returns the knob that an argument, a variable or a key of this name sets.
    pub fn named(name: &str) -> Option<&'static Self> {
        let plain = Argument::plain(name);
        KNOBS.iter().find(|knob| knob.names.has(&plain))
    }
}

const fn knob(parameter: &'static str, about: &'static str, settings: Settings, names: &'static str) -> Knob {
    Knob { parameter, about, names: Names(names), off: Names(""), settings, closed: None }
}

/// The kind of a knob's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// Powers of two around today's batch size.
    BatchSize,
    /// From none to the number of cores.
    Workers,
    /// A few batches ahead.
    Prefetch,
    /// On and off, with unchanged numerical results.
    Switch,
    /// On and off, with a change in how sums are rounded; off is full precision.
    RoundingSwitch,
    /// The number formats that the machine supports.
    Precision,
    /// Today's count times one, two, four and eight.
    Count,
}

const EFFECTIVE_BATCH: &str = "it changes the effective batch, and so the learning rate that fits";
const COMPILES: &str = "compiling costs minutes in each probe: try it at the end, with a long probe_time";

/// The knobs.
pub const KNOBS: &[Knob] = &[
    knob(
        "batch_size",
        "samples of a step",
        Settings::BatchSize,
        "per-device-train-batch-size per-gpu-train-batch-size train-micro-batch-size-per-gpu train-batch-size \
         batch-size-train train-bs micro-batch-size micro-batch device-batch-size per-device-batch-size \
         batch-size-per-gpu batch-size-per-device batch-size-per-rank batch-per-gpu samples-per-gpu batch-size \
         batchsize mini-batch-size minibatch-size batch bs bsz b",
    ),
    knob(
        "workers",
        "processes that load data",
        Settings::Workers,
        "dataloader-num-workers num-dataloader-workers dataloader-workers loader-workers data-workers \
         num-data-workers num-loader-workers train-num-workers num-workers n-workers nworkers workers \
         workers-per-gpu worker-count data-loading-workers dl-workers num-threads-loader j",
    ),
    knob(
        "prefetch",
        "batches that each worker fetches ahead",
        Settings::Prefetch,
        "dataloader-prefetch-factor prefetch-factor loader-prefetch prefetch-batches prefetch",
    ),
    Knob {
        off: Names("no-persistent-workers no-dataloader-persistent-workers"),
        ..knob(
            "persistent_workers",
            "whether workers live on after an epoch",
            Settings::Switch,
            "dataloader-persistent-workers persistent-workers",
        )
    },
    Knob {
        off: Names("no-pin-memory no-pin-mem no-dataloader-pin-memory"),
        ..knob(
            "pin_memory",
            "whether batches are put into pinned memory",
            Settings::Switch,
            "dataloader-pin-memory pin-memory pin-mem",
        )
    },
    knob(
        "precision",
        "what matrix products are computed in",
        Settings::Precision,
        "precision mixed-precision amp-dtype autocast-dtype compute-dtype dtype precision-policy",
    ),
    Knob {
        off: Names("no-channels-last"),
        ..knob(
            "channels_last",
            "whether images lie in memory with their channels last",
            Settings::RoundingSwitch,
            "channels-last",
        )
    },
    knob(
        "bucket_mb",
        "megabytes of gradients that ranks exchange at once (DistributedDataParallel's bucket_cap_mb)",
        Settings::Count,
        "ddp-bucket-cap-mb bucket-cap-mb bucket-mb",
    ),
    Knob {
        closed: Some(EFFECTIVE_BATCH),
        ..knob(
            "grad_accumulation",
            "batches whose gradients are added up",
            Settings::Count,
            "gradient-accumulation-steps accumulate-grad-batches grad-accumulation-steps grad-accum-steps \
             accumulation-steps accum-steps accum-iter grad-accum gradient-accumulation iters-to-accumulate",
        )
    },
    Knob {
        off: Names("no-compile no-torch-compile"),
        closed: Some(COMPILES),
        ..knob(
            "compile",
            "torch.compile or jit",
            Settings::RoundingSwitch,
            "torch-compile compile compile-model use-compile torchcompile",
        )
    },
    Knob {
        closed: Some("it costs about a quarter of the speed, and pays where memory keeps the batch small"),
        ..knob(
            "checkpointing",
            "whether activations are computed again in the backward pass",
            Settings::Switch,
            "gradient-checkpointing activation-checkpointing grad-checkpointing checkpoint-activations use-checkpoint",
        )
    },
];

/// Switches for a single number format: its name, or its name after `use-`. Only the script defines the meaning of `amp` alone.
pub const PRECISION_SWITCHES: Names = Names("bf16 use-bf16 bfloat16 fp16 use-fp16 half");

/// Switches for a mixed precision whose format only the script knows.
pub const AMP_SWITCHES: Names =
    Names("amp use-amp enable-amp with-amp use-autocast autocast mixed-precision use-mixed-precision mixed-prec mp");

/// Arguments for the format of mixed precision, used together with a switch.
pub const AMP_FORMATS: Names = Names("amp-dtype autocast-dtype amp-type amp-precision");

/// Families of names for fp32, bf16 and fp16, full precision first. They are plain names, dtypes (torch, JAX), Lightning's
/// (`lightning.fabric.connector`, `_PRECISION_INPUT_STR`), Accelerate's (`PrecisionType`), and Keras' policies
/// (`keras.mixed_precision`, "dtype policies").
pub const VOCABULARIES: &[[&str; 3]] = &[
    ["fp32", "bf16", "fp16"],
    ["float32", "bfloat16", "float16"],
    ["32-true", "bf16-mixed", "16-mixed"],
    ["no", "bf16", "fp16"],
    ["f32", "bf16", "f16"],
    ["float32", "mixed_bfloat16", "mixed_float16"],
    ["32", "bf16", "16"],
    ["full", "bf16", "fp16"],
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_spelling_belongs_to_two_parameters() {
        let mut seen = BTreeSet::new();
        for name in KNOBS.iter().flat_map(|knob| knob.names.all().chain(knob.off.all())) {
            assert!(seen.insert(name), "{name}");
            assert_eq!(name, Argument::plain(name), "the spelling that the lookup uses");
        }
    }
}
