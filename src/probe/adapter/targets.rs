//! The table of targets, and how a target is found by its name.

use super::by_hand::{self, argument, named};
use super::target::{Accepts, By, Needs, Numerics, Target};
use crate::model::MemoryRole;
use crate::model::arrival::APPLIED;

const fn torch(fact: &'static str) -> By {
    By::Hook { adapter: "torch", fact }
}

/// Defaults of a target that the hook sets while the script starts.
const HOOK: Target = Target {
    name: "",
    about: "",
    accepts: Accepts::Booleans,
    by: torch(APPLIED),
    needs: Needs::NewProcess,
    numerics: Numerics::Same,
    memory: Some(MemoryRole::Unknown),
    by_hand: by_hand::COMMAND,
};

/// Defaults of a target that the hook sets at the training loader.
const LOADER: Target = Target { needs: Needs::NewLoader, memory: Some(MemoryRole::Same), ..HOOK };

/// Defaults of a target that gputune sets by environment variables.
const VARIABLES: Target = Target { by: By::Environment, ..HOOK };

const DATA_LOADER: &[&str] = &["DataLoader"];

const DDP: &[&str] = &["DistributedDataParallel", "DDP"];

/// The targets, by name. `docs/adapters.md` describes each target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "dataloader.batch_size",
        about: "samples in a batch of the training loader, for each rank",
        accepts: Accepts::Integers { least: 1 },
        by: torch("loader.batch_size"),
        numerics: Numerics::Other,
        memory: Some(MemoryRole::Grows),
        by_hand: argument(DATA_LOADER, |value| named("batch_size", value)),
        ..LOADER
    },
    Target {
        name: "dataloader.num_workers",
        about: "worker processes of the training loader; 0 loads in the training process",
        accepts: Accepts::Integers { least: 0 },
        by: torch("loader.workers"),
        // Random augmentation draws from one generator per worker.
        numerics: Numerics::Other,
        by_hand: argument(DATA_LOADER, |value| named("num_workers", value)),
        ..LOADER
    },
    Target {
        name: "dataloader.pin_memory",
        about: "batches in page-locked memory; torch ignores it without a GPU",
        by: torch("loader.pin_memory"),
        by_hand: argument(DATA_LOADER, |value| named("pin_memory", value)),
        ..LOADER
    },
    Target {
        name: "dataloader.prefetch_factor",
        about: "batches that each worker loads ahead",
        accepts: Accepts::Integers { least: 1 },
        by: torch("loader.prefetch_factor"),
        by_hand: argument(DATA_LOADER, |value| named("prefetch_factor", value)),
        ..LOADER
    },
    Target {
        name: "dataloader.persistent_workers",
        about: "workers stay for the next epoch",
        by: torch("loader.persistent_workers"),
        by_hand: argument(DATA_LOADER, |value| named("persistent_workers", value)),
        ..LOADER
    },
    Target {
        name: "dataloader.in_order",
        about: "false: a batch is used as soon as any worker has it, so the order of batches differs between runs; torch 2.6",
        numerics: Numerics::Other,
        by_hand: argument(DATA_LOADER, |value| named("in_order", value)),
        ..LOADER
    },
    Target {
        name: "dataloader.multiprocessing_context",
        about: "how workers are started; `spawn` and `forkserver` import the script again",
        accepts: Accepts::Names(&["fork", "forkserver", "spawn"]),
        by_hand: argument(DATA_LOADER, |value| named("multiprocessing_context", value)),
        ..LOADER
    },
    Target {
        name: "torch.precision",
        about: "autocast, TF32 and the dtype of weights as one setting; `fp8` needs torchao",
        accepts: Accepts::Names(&["fp32", "tf32", "bf16", "fp16", "bf16-true", "fp8"]),
        by: torch("precision"),
        needs: Needs::BetweenSteps { unless: &["fp16", "bf16-true", "fp8"] },
        numerics: Numerics::Changed("fp32"),
        by_hand: by_hand::PRECISION,
        ..HOOK
    },
    Target {
        name: "torch.compile",
        about: "`torch.compile` in this mode; torch 2.0",
        accepts: Accepts::Names(&["off", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]),
        by: torch("compiled"),
        numerics: Numerics::Changed("off"),
        by_hand: by_hand::COMPILE,
        ..HOOK
    },
    Target {
        name: "torch.compile_dynamic",
        about: "whether compiled code takes inputs of any size; `auto`: once a size has changed",
        accepts: Accepts::Names(&["auto", "always", "never"]),
        by_hand: by_hand::COMPILE_DYNAMIC,
        ..HOOK
    },
    Target {
        name: "torch.channels_last",
        about: "memory layout of four-dimensional parameters and inputs",
        numerics: Numerics::Changed("false"),
        by_hand: by_hand::CHANNELS_LAST,
        ..HOOK
    },
    Target {
        name: "torch.cudnn_benchmark",
        about: "cuDNN tries its algorithms and keeps the fastest",
        needs: Needs::BetweenSteps { unless: &[] },
        by_hand: by_hand::CUDNN_BENCHMARK,
        ..HOOK
    },
    Target {
        name: "torch.fused_optimizer",
        about: "the optimizer updates all weights in one kernel; on a CPU torch 2.4",
        by: torch("optimizer_fused"),
        numerics: Numerics::Changed("false"),
        by_hand: by_hand::FUSED_OPTIMIZER,
        ..HOOK
    },
    Target {
        name: "torch.sdpa",
        about: "the only kernel that `scaled_dot_product_attention` may use; torch 2.0, `cudnn` 2.5",
        accepts: Accepts::Names(&["any", "flash", "memory-efficient", "math", "cudnn"]),
        needs: Needs::BetweenSteps { unless: &[] },
        numerics: Numerics::Changed("math"),
        by_hand: by_hand::SDPA,
        ..HOOK
    },
    Target {
        name: "torch.grad_accumulation",
        about: "parts that each batch is trained in",
        accepts: Accepts::Integers { least: 1 },
        needs: Needs::NewLoader,
        numerics: Numerics::Other,
        by_hand: by_hand::GRAD_ACCUMULATION,
        ..HOOK
    },
    Target {
        name: "torch.checkpoint",
        about: "the backward pass computes activations again, which saves memory",
        by_hand: by_hand::CHECKPOINT,
        ..HOOK
    },
    Target {
        name: "torch.allocator",
        about: "the variables `PYTORCH_CUDA_ALLOC_CONF` and `PYTORCH_ALLOC_CONF`",
        accepts: Accepts::AllocatorConfig(&["default", "expandable-segments"]),
        ..VARIABLES
    },
    Target {
        name: "ddp.bucket_cap_mb",
        about: "MiB of gradients that DistributedDataParallel exchanges at once; torch 2.0",
        accepts: Accepts::Integers { least: 1 },
        by: torch("ddp.bucket_cap_mb"),
        by_hand: argument(DDP, |value| named("bucket_cap_mb", value)),
        ..HOOK
    },
    Target {
        name: "ddp.gradient_as_bucket_view",
        about: "gradients are not copied into the buckets; torch 2.0",
        by: torch("ddp.gradient_as_bucket_view"),
        by_hand: argument(DDP, |value| named("gradient_as_bucket_view", value)),
        ..HOOK
    },
    Target {
        name: "ddp.static_graph",
        about: "promises that each step uses the same parameters, which torch does not check; torch 2.0",
        by: torch("ddp.static_graph"),
        by_hand: argument(DDP, |value| named("static_graph", value)),
        ..HOOK
    },
    Target {
        name: "ddp.compression",
        about: "the type in which gradients are exchanged; torch 2.0",
        accepts: Accepts::Names(&["none", "fp16", "bf16"]),
        by: torch("ddp.compression"),
        numerics: Numerics::Changed("none"),
        by_hand: by_hand::COMPRESSION,
        ..HOOK
    },
    Target {
        name: "fsdp.reshard_after_forward",
        about: "`fully_shard` frees whole weights after the forward pass; torch 2.6",
        by: torch("fsdp.reshard_after_forward"),
        needs: Needs::BetweenSteps { unless: &[] },
        by_hand: argument(&["fully_shard"], |value| named("reshard_after_forward", value)),
        ..HOOK
    },
    Target {
        name: "fsdp.prefetch_depth",
        about: "modules ahead whose weights `fully_shard` gathers; 0: torch decides; torch 2.6",
        accepts: Accepts::Integers { least: 0 },
        by: torch("fsdp.prefetch_depth"),
        needs: Needs::BetweenSteps { unless: &[] },
        by_hand: by_hand::PREFETCH_DEPTH,
        ..HOOK
    },
    Target {
        name: "fsdp.sharding_strategy",
        about: "what FullyShardedDataParallel (FSDP1) shards; torch 2.0",
        accepts: Accepts::Names(&["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]),
        by: torch("fsdp.sharding_strategy"),
        by_hand: by_hand::SHARDING_STRATEGY,
        ..HOOK
    },
    // Source: Keras's documentation, "Model training APIs" and "Mixed precision policy API".
    Target {
        name: "keras.batch_size",
        about: "`batch_size` of Keras's `fit` for arrays",
        accepts: Accepts::Integers { least: 1 },
        by: torch("loader.batch_size"),
        numerics: Numerics::Other,
        memory: Some(MemoryRole::Grows),
        by_hand: argument(&["fit"], |value| named("batch_size", value)),
        ..HOOK
    },
    Target {
        name: "keras.steps_per_execution",
        about: "steps per call of the compiled function",
        accepts: Accepts::Integers { least: 1 },
        by: torch("keras.steps_per_execution"),
        by_hand: argument(&["compile"], |value| named("steps_per_execution", value)),
        ..HOOK
    },
    Target {
        name: "keras.jit_compile",
        about: "compiled by XLA",
        by: torch("keras.jit_compile"),
        numerics: Numerics::Changed("false"),
        by_hand: argument(&["compile"], |value| named("jit_compile", value)),
        ..HOOK
    },
    Target {
        name: "keras.mixed_precision",
        about: "Keras's global policy",
        accepts: Accepts::Names(&["float32", "mixed_bfloat16", "mixed_float16"]),
        by: torch("precision"),
        numerics: Numerics::Changed("float32"),
        by_hand: argument(&["set_global_policy"], |value| named("policy", value)),
        ..HOOK
    },
    Target {
        name: "nccl.channels",
        about: "`NCCL_MIN_CTAS` and `NCCL_MAX_CTAS`; NCCL 2.17",
        accepts: Accepts::Integers { least: 1 },
        ..VARIABLES
    },
    Target {
        name: "nccl.threads",
        about: "`NCCL_NTHREADS`",
        accepts: Accepts::Numbers(&[64, 128, 256, 512]),
        ..VARIABLES
    },
    Target {
        name: "nccl.chunk_size",
        about: "`NCCL_BUFFSIZE`, in bytes",
        accepts: Accepts::Integers { least: 1 },
        ..VARIABLES
    },
    Target {
        name: "env.",
        about: "the environment variable `NAME`",
        accepts: Accepts::Anything,
        numerics: Numerics::Other,
        memory: None,
        ..VARIABLES
    },
    Target {
        name: "arg",
        about: "appends `--name VALUE` to the command; for a boolean `--name` if it is true",
        accepts: Accepts::Anything,
        by: By::Argument,
        numerics: Numerics::Other,
        memory: None,
        ..HOOK
    },
];

/// The reason why a string does not name a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No target has this name.
    #[error("there is no target `{0}`")]
    Unknown(String),
    /// The name of an environment variable is missing.
    #[error("`{0}` is to be followed by the name of an environment variable")]
    NoVariable(&'static str),
    /// An environment variable cannot have this name.
    #[error("`{0}` cannot be the name of an environment variable")]
    Variable(String),
    /// gputune sets this environment variable itself.
    #[error("gputune sets the environment variable `{0}` itself")]
    Reserved(String),
}

impl Target {
    /// Returns the target with this name.
    ///
    /// # Errors
    /// The string is not the name of a target.
    pub fn parse(text: &str) -> Result<&'static Self, TargetError> {
        let named = |target: &&Self| !target.name.ends_with('.') && target.name == text;
        if let Some(target) = TARGETS.iter().find(named) {
            return Ok(target);
        }
        let prefix = |target: &&Self| target.name.ends_with('.') && text.starts_with(target.name);
        let target = TARGETS.iter().find(prefix).ok_or_else(|| TargetError::Unknown(text.to_owned()))?;
        let variable = &text[target.name.len()..];
        if variable.is_empty() {
            return Err(TargetError::NoVariable(target.name));
        }
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !variable.starts_with(is_first) || !variable.chars().all(|c| is_first(c) || c.is_ascii_digit()) {
            return Err(TargetError::Variable(variable.to_owned()));
        }
        if variable.starts_with("GPUTUNE_") {
            return Err(TargetError::Reserved(variable.to_owned()));
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FACTS, Value};

    #[test]
    fn targets_are_found_by_name_and_variables_by_prefix() {
        assert_eq!(Target::parse("torch.compile").unwrap().name, "torch.compile");
        assert_eq!(Target::parse("env.OMP_NUM_THREADS").unwrap().name, "env.");
        for bad in ["env", "Torch.compile", "", "arg.x", "dataloader"] {
            assert_eq!(Target::parse(bad), Err(TargetError::Unknown(bad.to_owned())), "{bad}");
        }
        assert_eq!(Target::parse("env."), Err(TargetError::NoVariable("env.")));
        for bad in ["A-B", "1A", "A B", "A=B"] {
            assert_eq!(Target::parse(&format!("env.{bad}")), Err(TargetError::Variable(bad.to_owned())), "{bad}");
        }
        assert!(matches!(Target::parse("env.GPUTUNE_SOCKET"), Err(TargetError::Reserved(_))));
    }

    #[test]
    fn full_precision_is_among_the_settings_and_facts_are_known() {
        for target in TARGETS {
            let is_known = |fact: &str| FACTS.iter().any(|known| known.name == fact);
            assert!(target.fact().is_none_or(|fact| fact == APPLIED || is_known(fact)), "{}", target.name);
            if let Numerics::Changed(full) = target.numerics {
                assert!(target.accepts.takes(&Value::parse(full)), "{}", target.name);
            }
        }
    }
}
