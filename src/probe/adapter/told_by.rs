//! A table of the facts by which a script reports that a target took effect, with one row for each target that a hook sets.

use super::Target;
use crate::model::arrival::APPLIED;

/// Targets and their facts. For [`APPLIED`] the hook reports that the target took effect, without a value.
const TOLD_BY: &[(&str, &str)] = &[
    ("dataloader.batch_size", "loader.batch_size"),
    ("dataloader.num_workers", "loader.workers"),
    ("dataloader.pin_memory", "loader.pin_memory"),
    ("dataloader.prefetch_factor", "loader.prefetch_factor"),
    ("dataloader.persistent_workers", "loader.persistent_workers"),
    ("dataloader.in_order", APPLIED),
    ("dataloader.multiprocessing_context", APPLIED),
    ("torch.precision", "precision"),
    ("torch.compile", "compiled"),
    ("torch.compile_dynamic", APPLIED),
    ("torch.channels_last", APPLIED),
    ("torch.cudnn_benchmark", APPLIED),
    ("torch.fused_optimizer", "optimizer_fused"),
    ("torch.sdpa", APPLIED),
    ("torch.grad_accumulation", APPLIED),
    ("torch.checkpoint", APPLIED),
    ("ddp.bucket_cap_mb", "ddp.bucket_cap_mb"),
    ("ddp.gradient_as_bucket_view", "ddp.gradient_as_bucket_view"),
    ("ddp.static_graph", "ddp.static_graph"),
    ("ddp.compression", "ddp.compression"),
    ("fsdp.reshard_after_forward", "fsdp.reshard_after_forward"),
    ("fsdp.prefetch_depth", "fsdp.prefetch_depth"),
    ("fsdp.sharding_strategy", "fsdp.sharding_strategy"),
];

impl Target {
    /// Returns the fact that reports a setting after it has taken effect; `None` if no fact does.
    pub fn fact(&self) -> Option<&'static str> {
        TOLD_BY.iter().find(|(target, _)| *target == self.name).map(|(_, fact)| *fact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FACTS;
    use crate::probe::adapter::{By, TARGETS};

    #[test]
    fn a_hook_tells_of_each_of_its_targets_by_a_fact_that_is_known() {
        for target in TARGETS {
            assert_eq!(target.fact().is_some(), matches!(target.by, By::Hook(_)), "{}", target.name);
        }
        for (target, fact) in TOLD_BY {
            assert!(TARGETS.iter().any(|known| known.name == *target), "{target}");
            assert!(*fact == APPLIED || FACTS.iter().any(|known| known.name == *fact), "{fact}");
        }
    }
}
