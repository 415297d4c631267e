//! Hugging Face's formats: the arguments of `Trainer` for `HfArgumentParser.parse_json_file`, and the configuration of
//! `accelerate launch`, a YAML file.

use serde_json::{Value as Json, json};

use super::framework::{Framework, Key, LOADER, TF32, plain_key, precision};
use super::knob::{Knob, entries};
use super::{Chosen, Written};
use crate::model::{Precision, Value};

/// `TrainingArguments` of transformers 4.40 and later:
/// <https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments>.
pub(super) const HUGGINGFACE: Framework = Framework {
    name: "TrainingArguments",
    keys: &[
        plain_key!(Batch, "per_device_train_batch_size"),
        plain_key!(Accumulation, "gradient_accumulation_steps"),
        plain_key!(LearningRate, "learning_rate"),
        Key {
            knob: Knob::Precision,
            write: |value| match precision(value)? {
                // `tf32` is written only if it was requested: setting it fails on a GPU without TF32.
                Precision::Fp32 => Ok(vec![("bf16", json!(false)), ("fp16", json!(false))]),
                Precision::Tf32 => Ok(vec![("bf16", json!(false)), ("fp16", json!(false)), ("tf32", json!(true))]),
                Precision::Bf16 => Ok(vec![("bf16", json!(true)), ("fp16", json!(false))]),
                Precision::Fp16 => Ok(vec![("bf16", json!(false)), ("fp16", json!(true))]),
                Precision::Fp8 => Err("the Trainer takes fp8 from Accelerate's configuration".to_owned()),
            },
        },
        plain_key!(Workers, "dataloader_num_workers"),
        plain_key!(Prefetch, "dataloader_prefetch_factor"),
        plain_key!(PinMemory, "dataloader_pin_memory"),
        plain_key!(PersistentWorkers, "dataloader_persistent_workers"),
        plain_key!(DropLast, "dataloader_drop_last"),
        plain_key!(Checkpoint, "gradient_checkpointing"),
        Key {
            knob: Knob::Compile,
            write: |value| match value {
                Value::Bool(is_on) => Ok(vec![("torch_compile", json!(is_on))]),
                Value::Text(mode) if ["off", "none", "no"].contains(&mode.as_str()) => {
                    Ok(vec![("torch_compile", json!(false))])
                }
                Value::Text(mode) => Ok(vec![("torch_compile", json!(true)), ("torch_compile_mode", json!(mode))]),
                Value::Int(_) | Value::Float(_) => Err("it is no mode of torch.compile".to_owned()),
            },
        },
        Key {
            knob: Knob::FusedOptimizer,
            write: |value| {
                let name = if *value == Value::Bool(true) { "adamw_torch_fused" } else { "adamw_torch" };
                Ok(vec![("optim", json!(name))])
            },
        },
    ],
    own: &[(
        "",
        "activation_checkpointing auto_find_batch_size bf16_full_eval dataloader_in_order ddp_backend \
         ddp_broadcast_buffers ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph deepspeed \
         eval_accumulation_steps fp16_full_eval fsdp logging_steps max_grad_norm max_steps optim \
         per_device_eval_batch_size seed torch_compile_backend torch_empty_cache_steps use_liger_kernel \
         warmup_steps weight_decay",
    )],
    elsewhere: &[
        (Knob::CudnnBenchmark, "write torch.backends.cudnn.benchmark = True in the script"),
        (Knob::Devices, "it belongs to the launcher: torchrun --nproc_per_node, or accelerate launch --num_processes"),
        (Knob::Nodes, "it belongs to the launcher: torchrun --nnodes, or accelerate launch --num_machines"),
        (Knob::ZeroStage, "it belongs into the DeepSpeed configuration: see --format deepspeed"),
    ],
};

pub(super) fn write(chosen: &Chosen<'_>) -> Written {
    let mut written = HUGGINGFACE.write_json(chosen);
    if written.text.contains("\"adamw_torch") {
        written.notes.push("`optim` is AdamW here; for another optimizer write its own name".to_owned());
    }
    written
}

/// The configuration that `accelerate config` writes: <https://huggingface.co/docs/accelerate/package_reference/cli>.
pub(super) const ACCELERATE: Framework = Framework {
    name: "Accelerate",
    keys: &[
        Key {
            knob: Knob::Precision,
            write: |value| {
                let name = match precision(value)? {
                    Precision::Fp32 => "no",
                    Precision::Bf16 => "bf16",
                    Precision::Fp16 => "fp16",
                    Precision::Fp8 => "fp8",
                    Precision::Tf32 => return Err(TF32.to_owned()),
                };
                Ok(vec![("mixed_precision", json!(name))])
            },
        },
        plain_key!(Devices, "num_processes"),
        plain_key!(Nodes, "num_machines"),
        Key {
            knob: Knob::Compile,
            write: |value| {
                const BACKEND: &str = "dynamo_config.dynamo_backend";
                let on = |mode: &str| vec![(BACKEND, json!("INDUCTOR")), ("dynamo_config.dynamo_mode", json!(mode))];
                let off = || vec![(BACKEND, json!("NO"))];
                match value {
                    Value::Bool(true) => Ok(on("default")),
                    Value::Bool(false) => Ok(off()),
                    Value::Text(mode) if ["off", "none", "no"].contains(&mode.as_str()) => Ok(off()),
                    Value::Text(mode) => Ok(on(mode)),
                    Value::Int(_) | Value::Float(_) => Err("it is no mode of torch.compile".to_owned()),
                }
            },
        },
    ],
    own: &[("", "enable_cpu_affinity use_cpu")],
    elsewhere: &[
        (Knob::Batch, LOADER),
        (Knob::Workers, LOADER),
        (Knob::Prefetch, LOADER),
        (Knob::PinMemory, LOADER),
        (Knob::PersistentWorkers, LOADER),
        (Knob::DropLast, LOADER),
        (Knob::Accumulation, "write Accelerator(gradient_accumulation_steps=...) in the script"),
        (Knob::LearningRate, "it belongs to the script's optimizer"),
        (Knob::CudnnBenchmark, "write torch.backends.cudnn.benchmark = True in the script"),
        (Knob::FusedOptimizer, "it belongs to the script's optimizer: torch.optim.AdamW(..., fused=True)"),
        (Knob::Checkpoint, "the model turns it on: gradient_checkpointing_enable()"),
        (Knob::ZeroStage, "it belongs into the DeepSpeed configuration: see --format deepspeed"),
    ],
};

pub(super) fn write_accelerate(chosen: &Chosen<'_>) -> Written {
    let (entries, _) = entries(chosen);
    let amount = |knob: Knob| entries.iter().find(|it| it.knob == Some(knob)).and_then(|it| it.value.as_i64());
    let (devices, nodes) = (amount(Knob::Devices), amount(Knob::Nodes));
    let is_many = devices.unwrap_or(1) * nodes.unwrap_or(1) > 1;
    let kind = if is_many { "MULTI_GPU" } else { "NO" };
    let mut first: Vec<(&str, Json)> =
        vec![("compute_environment", json!("LOCAL_MACHINE")), ("distributed_type", json!(kind))];
    let mut comments = Vec::new();
    if devices.is_none() {
        first.push(("num_processes", json!(1)));
        comments.push("with more than one GPU: distributed_type: \"MULTI_GPU\", and their number as num_processes");
    }
    ACCELERATE.write_yaml(chosen, &first, &comments)
}
