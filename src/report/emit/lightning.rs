//! The configuration of `LightningCLI`, a YAML file.

use serde_json::json;

use super::framework::{Framework, Key, TF32, plain_key, precision};
use super::knob::Knob;
use super::{Chosen, Written};
use crate::model::{Precision, Value};

/// The arguments of Lightning's `Trainer`, and of a data module that uses the argument names of PyTorch's `DataLoader`:
/// <https://lightning.ai/docs/pytorch/stable/common/trainer.html#trainer-class-api>.
pub(super) const LIGHTNING: Framework = Framework {
    name: "Lightning",
    keys: &[
        plain_key!(Accumulation, "trainer.accumulate_grad_batches"),
        Key {
            knob: Knob::Precision,
            write: |value| {
                // Lightning's own names say more than the precision: bf16-true differs from bf16-mixed.
                const OWN: &[&str] = &["bf16-mixed", "bf16-true", "16-mixed", "16-true", "32-true", "64-true"];
                let name = match value {
                    Value::Text(text) if OWN.contains(&text.as_str()) => text,
                    value => match precision(value)? {
                        Precision::Fp32 => "32-true",
                        Precision::Bf16 => "bf16-mixed",
                        Precision::Fp16 => "16-mixed",
                        Precision::Fp8 => "transformer-engine",
                        Precision::Tf32 => return Err(TF32.to_owned()),
                    },
                };
                Ok(vec![("trainer.precision", json!(name))])
            },
        },
        plain_key!(Devices, "trainer.devices"),
        plain_key!(Nodes, "trainer.num_nodes"),
        plain_key!(CudnnBenchmark, "trainer.benchmark"),
        plain_key!(Batch, "data.batch_size"),
        plain_key!(Workers, "data.num_workers"),
        plain_key!(Prefetch, "data.prefetch_factor"),
        plain_key!(PinMemory, "data.pin_memory"),
        plain_key!(PersistentWorkers, "data.persistent_workers"),
        plain_key!(DropLast, "data.drop_last"),
    ],
    own: &[
        (
            "trainer",
            "accelerator deterministic gradient_clip_val inference_mode log_every_n_steps max_epochs max_steps \
             strategy sync_batchnorm use_distributed_sampler",
        ),
        ("model", "learning_rate lr"),
    ],
    elsewhere: &[
        (Knob::Compile, "call torch.compile on the module in the script"),
        (Knob::FusedOptimizer, "it belongs to configure_optimizers: torch.optim.AdamW(..., fused=True)"),
        (Knob::Checkpoint, "the module turns it on: torch.utils.checkpoint, or gradient_checkpointing_enable()"),
        (Knob::ZeroStage, "it belongs to the strategy: deepspeed_stage_2, deepspeed_stage_3"),
    ],
};

pub(super) fn write(chosen: &Chosen<'_>) -> Written {
    let written = LIGHTNING.write_yaml(chosen, &[], &[]);
    let has_own = ["data:", "model:"].iter().any(|table| written.text.lines().any(|line| line == *table));
    if !has_own {
        return written;
    }
    let about = "# data and model hold the arguments of your own data module and module: rename them where yours differ\n\
                 # (below init_args, where they are chosen by class_path)\n";
    Written { text: format!("{about}{}", written.text), ..written }
}
