//! The table of parameters that a search may set by arguments of training scripts, with the names of these arguments.

/// A parameter for which scripts have arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct Knob {
    /// The parameter's name in `[space]`.
    pub parameter: &'static str,
    /// Its description, for a comment.
    pub about: &'static str,
    /// The arguments that set it, as returned by [`Argument::plain`](super::Argument::plain); specific names come first.
    pub names: &'static [&'static str],
    /// The arguments without a value that turn the parameter off.
    pub off: &'static [&'static str],
    /// The settings to search.
    pub settings: Settings,
    /// The reason why it is not searched unless the user asks for it.
    pub closed: Option<&'static str>,
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
    Knob {
        parameter: "batch_size",
        about: "samples of a step",
        names: &[
            "per-device-train-batch-size",
            "per-gpu-train-batch-size",
            "train-micro-batch-size-per-gpu",
            "train-batch-size",
            "batch-size-train",
            "train-bs",
            "micro-batch-size",
            "micro-batch",
            "device-batch-size",
            "per-device-batch-size",
            "batch-size-per-gpu",
            "batch-size-per-device",
            "batch-size-per-rank",
            "batch-per-gpu",
            "samples-per-gpu",
            "batch-size",
            "batchsize",
            "mini-batch-size",
            "minibatch-size",
            "batch",
            "bs",
            "bsz",
            "b",
        ],
        off: &[],
        settings: Settings::BatchSize,
        closed: None,
    },
    Knob {
        parameter: "workers",
        about: "processes that load data",
        names: &[
            "dataloader-num-workers",
            "num-dataloader-workers",
            "dataloader-workers",
            "loader-workers",
            "data-workers",
            "num-data-workers",
            "num-loader-workers",
            "train-num-workers",
            "num-workers",
            "n-workers",
            "nworkers",
            "workers",
            "workers-per-gpu",
            "worker-count",
            "data-loading-workers",
            "dl-workers",
            "num-threads-loader",
            "j",
        ],
        off: &[],
        settings: Settings::Workers,
        closed: None,
    },
    Knob {
        parameter: "prefetch",
        about: "batches that each worker fetches ahead",
        names: &["dataloader-prefetch-factor", "prefetch-factor", "loader-prefetch", "prefetch-batches", "prefetch"],
        off: &[],
        settings: Settings::Prefetch,
        closed: None,
    },
    Knob {
        parameter: "persistent_workers",
        about: "whether workers live on after an epoch",
        names: &["dataloader-persistent-workers", "persistent-workers"],
        off: &["no-persistent-workers", "no-dataloader-persistent-workers"],
        settings: Settings::Switch,
        closed: None,
    },
    Knob {
        parameter: "pin_memory",
        about: "whether batches are put into pinned memory",
        names: &["dataloader-pin-memory", "pin-memory", "pin-mem"],
        off: &["no-pin-memory", "no-pin-mem", "no-dataloader-pin-memory"],
        settings: Settings::Switch,
        closed: None,
    },
    Knob {
        parameter: "precision",
        about: "what matrix products are computed in",
        names: &[
            "precision",
            "mixed-precision",
            "amp-dtype",
            "autocast-dtype",
            "compute-dtype",
            "dtype",
            "precision-policy",
        ],
        off: &[],
        settings: Settings::Precision,
        closed: None,
    },
    Knob {
        parameter: "channels_last",
        about: "whether images lie in memory with their channels last",
        names: &["channels-last"],
        off: &["no-channels-last"],
        settings: Settings::RoundingSwitch,
        closed: None,
    },
    Knob {
        parameter: "bucket_mb",
        about: "megabytes of gradients that ranks exchange at once (DistributedDataParallel's bucket_cap_mb)",
        names: &["ddp-bucket-cap-mb", "bucket-cap-mb", "bucket-mb"],
        off: &[],
        settings: Settings::Count,
        closed: None,
    },
    Knob {
        parameter: "grad_accumulation",
        about: "batches whose gradients are added up",
        names: &[
            "gradient-accumulation-steps",
            "accumulate-grad-batches",
            "grad-accumulation-steps",
            "grad-accum-steps",
            "accumulation-steps",
            "accum-steps",
            "accum-iter",
            "grad-accum",
            "gradient-accumulation",
            "iters-to-accumulate",
        ],
        off: &[],
        settings: Settings::Count,
        closed: Some(EFFECTIVE_BATCH),
    },
    Knob {
        parameter: "compile",
        about: "torch.compile or jit",
        names: &["torch-compile", "compile", "compile-model", "use-compile", "torchcompile"],
        off: &["no-compile", "no-torch-compile"],
        settings: Settings::RoundingSwitch,
        closed: Some(COMPILES),
    },
    Knob {
        parameter: "checkpointing",
        about: "whether activations are computed again in the backward pass",
        names: &[
            "gradient-checkpointing",
            "activation-checkpointing",
            "grad-checkpointing",
            "checkpoint-activations",
            "use-checkpoint",
        ],
        off: &[],
        settings: Settings::Switch,
        closed: Some("it costs about a quarter of the speed, and pays where memory keeps the batch small"),
    },
];

/// Switches for a single number format, and the format. Only the script defines the meaning of `amp` alone.
pub const PRECISION_SWITCHES: &[(&str, &str)] = &[
    ("bf16", "bf16"),
    ("use-bf16", "bf16"),
    ("bfloat16", "bf16"),
    ("fp16", "fp16"),
    ("use-fp16", "fp16"),
    ("half", "fp16"),
];

/// Switches for a mixed precision whose format only the script knows.
pub const AMP_SWITCHES: &[&str] = &[
    "amp",
    "use-amp",
    "enable-amp",
    "with-amp",
    "use-autocast",
    "autocast",
    "mixed-precision",
    "use-mixed-precision",
    "mixed-prec",
    "mp",
];

/// Arguments for the format of mixed precision, used together with a switch.
pub const AMP_FORMATS: &[&str] = &["amp-dtype", "autocast-dtype", "amp-type", "amp-precision"];

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
        for name in KNOBS.iter().flat_map(|knob| knob.names.iter().chain(knob.off)) {
            assert!(seen.insert(name), "{name}");
            assert_eq!(*name, super::super::Argument::plain(name), "the spelling that the lookup uses");
        }
    }
}
