//! Changes to a script of several ranks. Source: torch's documentation, `DistributedDataParallel`, "DDP Communication Hooks",
//! `fully_shard` and `FullyShardedDataParallel`.

use super::{ByHand, OwnCall, Spot, line, python, text};

/// The names under which scripts import the two wrappers.
const DDP: &[&str] = &["DistributedDataParallel", "DDP"];
const FSDP: &[&str] = &["FullyShardedDataParallel", "FSDP"];

/// A named argument of a call that the script must have.
macro_rules! argument {
    ($names:expr, $name:literal) => {
        ByHand {
            call: Some(OwnCall {
                names: $names,
                arguments: |value| Some(vec![($name, python(value))]),
                is_needed: true,
            }),
            lines: |_, _| Vec::new(),
        }
    };
}

pub(in crate::probe::adapter) const BUCKET_CAP_MB: ByHand = argument!(DDP, "bucket_cap_mb");
pub(in crate::probe::adapter) const GRADIENT_AS_BUCKET_VIEW: ByHand = argument!(DDP, "gradient_as_bucket_view");
pub(in crate::probe::adapter) const STATIC_GRAPH: ByHand = argument!(DDP, "static_graph");
pub(in crate::probe::adapter) const RESHARD_AFTER_FORWARD: ByHand =
    argument!(&["fully_shard"], "reshard_after_forward");

pub(in crate::probe::adapter) const COMPRESSION: ByHand = ByHand {
    call: None,
    lines: |value, names| match text(value) {
        name @ ("fp16" | "bf16") => vec![
            line(Spot::Start, "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks"),
            line(Spot::Model, format!("{}.register_comm_hook(None, default_hooks.{name}_compress_hook)", names.model)),
        ],
        _ => Vec::new(),
    },
};

pub(in crate::probe::adapter) const PREFETCH_DEPTH: ByHand = ByHand {
    call: None,
    lines: |value, _| match value.as_i64() {
        Some(depth) if depth > 0 => vec![
            line(Spot::Model, "for at, layer in enumerate(layers):  # the layers given to fully_shard, in their order"),
            line(Spot::Model, format!("    layer.set_modules_to_forward_prefetch(layers[at + 1 : at + 1 + {depth}])")),
            line(
                Spot::Model,
                format!("    layer.set_modules_to_backward_prefetch(layers[max(at - {depth}, 0) : at][::-1])"),
            ),
        ],
        _ => Vec::new(),
    },
};

pub(in crate::probe::adapter) const SHARDING_STRATEGY: ByHand = ByHand {
    call: Some(OwnCall {
        names: FSDP,
        arguments: |value| match text(value) {
            name @ ("FULL_SHARD" | "SHARD_GRAD_OP" | "NO_SHARD" | "HYBRID_SHARD") => {
                Some(vec![("sharding_strategy", format!("torch.distributed.fsdp.ShardingStrategy.{name}"))])
            }
            _ => None,
        },
        is_needed: true,
    }),
    lines: |_, _| Vec::new(),
};
