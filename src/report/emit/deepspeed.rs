//! DeepSpeed's configuration, a JSON file.

use serde_json::json;

use super::framework::{Framework, Key, LOADER, TF32, plain_key, precision};
use super::knob::Knob;
use crate::model::Precision;

/// The configuration of DeepSpeed: <https://www.deepspeed.ai/docs/config-json/>.
pub(super) const DEEPSPEED: Framework = Framework {
    name: "DeepSpeed",
    keys: &[
        plain_key!(Batch, "train_micro_batch_size_per_gpu"),
        plain_key!(Accumulation, "gradient_accumulation_steps"),
        Key {
            knob: Knob::Precision,
            write: |value| {
                let both =
                    |bf16: bool, fp16: bool| Ok(vec![("bf16.enabled", json!(bf16)), ("fp16.enabled", json!(fp16))]);
                match precision(value)? {
                    Precision::Fp32 => both(false, false),
                    Precision::Bf16 => both(true, false),
                    Precision::Fp16 => both(false, true),
                    Precision::Tf32 => Err(TF32.to_owned()),
                    Precision::Fp8 => Err("DeepSpeed trains in fp8 by the model's own layers only".to_owned()),
                }
            },
        },
        plain_key!(DropLast, "dataloader_drop_last"),
        plain_key!(ZeroStage, "zero_optimization.stage"),
    ],
    own: &[
        ("", "gradient_clipping prescale_gradients sparse_gradients steps_per_print wall_clock_breakdown"),
        (
            "zero_optimization",
            "allgather_bucket_size allgather_partitions contiguous_gradients overlap_comm reduce_bucket_size \
             reduce_scatter round_robin_gradients stage3_max_live_parameters stage3_max_reuse_distance \
             stage3_param_persistence_threshold stage3_prefetch_bucket_size sub_group_size",
        ),
    ],
    elsewhere: &[
        (Knob::Workers, LOADER),
        (Knob::Prefetch, LOADER),
        (Knob::PinMemory, LOADER),
        (Knob::PersistentWorkers, LOADER),
        (Knob::LearningRate, "write it where the optimizer is: optimizer.params.lr, or the script"),
        (
            Knob::Checkpoint,
            "the model turns it on: deepspeed.checkpointing.checkpoint, or gradient_checkpointing_enable()",
        ),
        (Knob::Compile, "call engine.compile(), or torch.compile the model, in the script"),
        (Knob::CudnnBenchmark, "write torch.backends.cudnn.benchmark = True in the script"),
        (Knob::FusedOptimizer, "it belongs to the optimizer: FusedAdam is DeepSpeed's own"),
        (Knob::Devices, "it belongs to the launcher: deepspeed --num_gpus"),
        (Knob::Nodes, "it belongs to the launcher: deepspeed --num_nodes"),
    ],
};
