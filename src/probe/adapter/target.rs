//! A table of the targets that `apply` can name.

use super::accepts::Accepts;
use super::by_hand::{self, ByHand};
use super::needs::Needs;
use crate::model::arrival::APPLIED;
use crate::model::{MemoryRole, Value};

/// A part of a script or its environment that a setting can be applied to.
#[derive(Debug)]
pub struct Target {
    /// Its name in `apply`. A name that ends in a dot is followed by the name of a variable.
    pub name: &'static str,
    /// The effect of a setting, in one line.
    pub about: &'static str,
    /// The settings that it accepts.
    pub accepts: Accepts,
    /// The part of gputune that sets it.
    pub by: By,
    /// The means that another setting needs in a running process.
    pub needs: Needs,
    /// The effect on the numerical results.
    pub numerics: Numerics,
    /// The effect on device memory; `None` if that depends on the parameter's name.
    pub memory: Option<MemoryRole>,
    /// The change to a script that has its effect without gputune.
    pub by_hand: ByHand,
}

impl Target {
    /// Returns the fact that reports a setting after it has taken effect; `None` if no fact does.
    pub fn fact(&self) -> Option<&'static str> {
        if let By::Hook { fact, .. } = self.by { Some(fact) } else { None }
    }
}

/// Each target exists once.
impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Target {}

/// The part of gputune that sets a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A hook in the script's process.
    Hook {
        /// The name of the hook's adapter.
        adapter: &'static str,
        /// The fact by which the hook reports the setting after it has taken effect, or [`APPLIED`] without a value.
        fact: &'static str,
    },
    /// gputune, by an environment variable.
    Environment,
    /// gputune, by an argument that it appends to the command.
    Argument,
}

/// The effect of a target on the numerical results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numerics {
    /// It changes the results. This is its setting in full precision.
    Changed(Literal),
    /// It changes neither the results nor the data.
    Same,
    /// It changes the data of a step or how the data is split, or its effect is not known.
    Other,
}

/// A setting in the table of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Literal {
    /// A string.
    Text(&'static str),
    /// A boolean.
    Bool(bool),
}

impl Literal {
    /// Returns the setting as a value.
    pub fn value(self) -> Value {
        match self {
            Self::Text(text) => Value::Text(text.to_owned()),
            Self::Bool(is) => Value::Bool(is),
        }
    }
}

/// The hook of the adapter for torch, which reports by this fact.
const fn torch(fact: &'static str) -> By {
    By::Hook { adapter: "torch", fact }
}

/// The targets, by name. `docs/adapters.md` describes each target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "dataloader.batch_size",
        about: "samples in a batch of the training loader, for each rank",
        accepts: Accepts::Integers { least: 1 },
        by: torch("loader.batch_size"),
        needs: Needs::NewLoader,
        numerics: Numerics::Other,
        memory: Some(MemoryRole::Grows),
        by_hand: by_hand::BATCH_SIZE,
    },
    Target {
        name: "dataloader.num_workers",
        about: "worker processes of the training loader; 0 loads in the training process",
        accepts: Accepts::Integers { least: 0 },
        by: torch("loader.workers"),
        needs: Needs::NewLoader,
        // Random augmentation draws from one generator per worker.
        numerics: Numerics::Other,
        memory: Some(MemoryRole::Same),
        by_hand: by_hand::NUM_WORKERS,
    },
    Target {
        name: "dataloader.pin_memory",
        about: "batches in page-locked memory; torch ignores it without a GPU",
        accepts: Accepts::Booleans,
        by: torch("loader.pin_memory"),
        needs: Needs::NewLoader,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Same),
        by_hand: by_hand::PIN_MEMORY,
    },
    Target {
        name: "dataloader.prefetch_factor",
        about: "batches that each worker loads ahead",
        accepts: Accepts::Integers { least: 1 },
        by: torch("loader.prefetch_factor"),
        needs: Needs::NewLoader,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Same),
        by_hand: by_hand::PREFETCH_FACTOR,
    },
    Target {
        name: "dataloader.persistent_workers",
        about: "workers stay for the next epoch",
        accepts: Accepts::Booleans,
        by: torch("loader.persistent_workers"),
        needs: Needs::NewLoader,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Same),
        by_hand: by_hand::PERSISTENT_WORKERS,
    },
    Target {
        name: "dataloader.in_order",
        about: "false: a batch is used as soon as any worker has it, so the order of batches differs between runs; torch 2.6",
        accepts: Accepts::Booleans,
        by: torch(APPLIED),
        needs: Needs::NewLoader,
        numerics: Numerics::Other,
        memory: Some(MemoryRole::Same),
        by_hand: by_hand::IN_ORDER,
    },
    Target {
        name: "dataloader.multiprocessing_context",
        about: "how workers are started; `spawn` and `forkserver` import the script again",
        accepts: Accepts::Names(&["fork", "forkserver", "spawn"]),
        by: torch(APPLIED),
        needs: Needs::NewLoader,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Same),
        by_hand: by_hand::MULTIPROCESSING_CONTEXT,
    },
    Target {
        name: "torch.precision",
        about: "autocast, TF32 and the dtype of weights as one setting; `fp8` needs torchao",
        accepts: Accepts::Names(&["fp32", "tf32", "bf16", "fp16", "bf16-true", "fp8"]),
        by: torch("precision"),
        needs: Needs::BetweenSteps { unless: &["fp16", "bf16-true", "fp8"] },
        numerics: Numerics::Changed(Literal::Text("fp32")),
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::PRECISION,
    },
    Target {
        name: "torch.compile",
        about: "`torch.compile` in this mode; torch 2.0",
        accepts: Accepts::Names(&["off", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]),
        by: torch("compiled"),
        needs: Needs::NewProcess,
        numerics: Numerics::Changed(Literal::Text("off")),
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::COMPILE,
    },
    Target {
        name: "torch.compile_dynamic",
        about: "whether compiled code takes inputs of any size; `auto`: once a size has changed",
        accepts: Accepts::Names(&["auto", "always", "never"]),
        by: torch(APPLIED),
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::COMPILE_DYNAMIC,
    },
    Target {
        name: "torch.channels_last",
        about: "memory layout of four-dimensional parameters and inputs",
        accepts: Accepts::Booleans,
        by: torch(APPLIED),
        needs: Needs::NewProcess,
        numerics: Numerics::Changed(Literal::Bool(false)),
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::CHANNELS_LAST,
    },
    Target {
        name: "torch.cudnn_benchmark",
        about: "cuDNN tries its algorithms and keeps the fastest",
        accepts: Accepts::Booleans,
        by: torch(APPLIED),
        needs: Needs::BetweenSteps { unless: &[] },
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::CUDNN_BENCHMARK,
    },
    Target {
        name: "torch.fused_optimizer",
        about: "the optimizer updates all weights in one kernel; on a CPU torch 2.4",
        accepts: Accepts::Booleans,
        by: torch("optimizer_fused"),
        needs: Needs::NewProcess,
        numerics: Numerics::Changed(Literal::Bool(false)),
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::FUSED_OPTIMIZER,
    },
    Target {
        name: "torch.sdpa",
        about: "the only kernel that `scaled_dot_product_attention` may use; torch 2.0, `cudnn` 2.5",
        accepts: Accepts::Names(&["any", "flash", "memory-efficient", "math", "cudnn"]),
        by: torch(APPLIED),
        needs: Needs::BetweenSteps { unless: &[] },
        numerics: Numerics::Changed(Literal::Text("math")),
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::SDPA,
    },
    Target {
        name: "torch.grad_accumulation",
        about: "parts that each batch is trained in",
        accepts: Accepts::Integers { least: 1 },
        by: torch(APPLIED),
        needs: Needs::NewLoader,
        numerics: Numerics::Other,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::GRAD_ACCUMULATION,
    },
    Target {
        name: "torch.checkpoint",
        about: "the backward pass computes activations again, which saves memory",
        accepts: Accepts::Booleans,
        by: torch(APPLIED),
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::CHECKPOINT,
    },
    Target {
        name: "torch.allocator",
        about: "the variables `PYTORCH_CUDA_ALLOC_CONF` and `PYTORCH_ALLOC_CONF`",
        accepts: Accepts::AllocatorConfig(&["default", "expandable-segments"]),
        by: By::Environment,
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::COMMAND,
    },
    Target {
        name: "ddp.bucket_cap_mb",
        about: "MiB of gradients that DistributedDataParallel exchanges at once; torch 2.0",
        accepts: Accepts::Integers { least: 1 },
        by: torch("ddp.bucket_cap_mb"),
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::BUCKET_CAP_MB,
    },
    Target {
        name: "ddp.gradient_as_bucket_view",
        about: "gradients are not copied into the buckets; torch 2.0",
        accepts: Accepts::Booleans,
        by: torch("ddp.gradient_as_bucket_view"),
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::GRADIENT_AS_BUCKET_VIEW,
    },
    Target {
        name: "ddp.static_graph",
        about: "promises that each step uses the same parameters, which torch does not check; torch 2.0",
        accepts: Accepts::Booleans,
        by: torch("ddp.static_graph"),
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::STATIC_GRAPH,
    },
    Target {
        name: "ddp.compression",
        about: "the type in which gradients are exchanged; torch 2.0",
        accepts: Accepts::Names(&["none", "fp16", "bf16"]),
        by: torch("ddp.compression"),
        needs: Needs::NewProcess,
        numerics: Numerics::Changed(Literal::Text("none")),
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::COMPRESSION,
    },
    Target {
        name: "fsdp.reshard_after_forward",
        about: "`fully_shard` frees whole weights after the forward pass; torch 2.6",
        accepts: Accepts::Booleans,
        by: torch("fsdp.reshard_after_forward"),
        needs: Needs::BetweenSteps { unless: &[] },
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::RESHARD_AFTER_FORWARD,
    },
    Target {
        name: "fsdp.prefetch_depth",
        about: "modules ahead whose weights `fully_shard` gathers; 0: torch decides; torch 2.6",
        accepts: Accepts::Integers { least: 0 },
        by: torch("fsdp.prefetch_depth"),
        needs: Needs::BetweenSteps { unless: &[] },
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::PREFETCH_DEPTH,
    },
    Target {
        name: "fsdp.sharding_strategy",
        about: "what FullyShardedDataParallel (FSDP1) shards; torch 2.0",
        accepts: Accepts::Names(&["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]),
        by: torch("fsdp.sharding_strategy"),
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::SHARDING_STRATEGY,
    },
    Target {
        name: "nccl.channels",
        about: "`NCCL_MIN_CTAS` and `NCCL_MAX_CTAS`; NCCL 2.17",
        accepts: Accepts::Integers { least: 1 },
        by: By::Environment,
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::COMMAND,
    },
    Target {
        name: "nccl.threads",
        about: "`NCCL_NTHREADS`",
        accepts: Accepts::Numbers(&[64, 128, 256, 512]),
        by: By::Environment,
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::COMMAND,
    },
    Target {
        name: "nccl.chunk_size",
        about: "`NCCL_BUFFSIZE`, in bytes",
        accepts: Accepts::Integers { least: 1 },
        by: By::Environment,
        needs: Needs::NewProcess,
        numerics: Numerics::Same,
        memory: Some(MemoryRole::Unknown),
        by_hand: by_hand::COMMAND,
    },
    Target {
        name: "env.",
        about: "the environment variable `NAME`",
        accepts: Accepts::Anything,
        by: By::Environment,
        needs: Needs::NewProcess,
        numerics: Numerics::Other,
        memory: None,
        by_hand: by_hand::COMMAND,
    },
    Target {
        name: "arg",
        about: "appends `--name VALUE` to the command; for a boolean `--name` if it is true",
        accepts: Accepts::Anything,
        by: By::Argument,
        needs: Needs::NewProcess,
        numerics: Numerics::Other,
        memory: None,
        by_hand: by_hand::COMMAND,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FACTS;

    #[test]
    fn full_precision_is_among_the_settings_and_facts_are_known() {
        for target in TARGETS {
            let is_known = |fact: &str| FACTS.iter().any(|known| known.name == fact);
            assert!(target.fact().is_none_or(|fact| fact == APPLIED || is_known(fact)), "{}", target.name);
            if let Numerics::Changed(full) = target.numerics {
                assert!(target.accepts.takes(&full.value()), "{}", target.name);
            }
        }
    }
}
