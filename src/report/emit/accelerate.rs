//! The configuration of `accelerate launch`, a YAML file.

use serde_json::{Value as Json, json};

use super::framework::{Framework, Key, json, plain_key, precision};
use super::knob::{Knob, entries};
use super::{Chosen, Written};
use crate::model::{Precision, Value};

/// The configuration that `accelerate config` writes.
pub(super) const ACCELERATE: Framework = Framework {
    name: "Accelerate",
    source: "https://huggingface.co/docs/accelerate/package_reference/cli",
    keys: &[
        Key {
            knob: Knob::Precision,
            key: "mixed_precision",
            write: |value| {
                let name = match precision(value)? {
                    Precision::Fp32 => "no",
                    Precision::Bf16 => "bf16",
                    Precision::Fp16 => "fp16",
                    Precision::Fp8 => "fp8",
                    Precision::Tf32 => {
                        return Err("write torch.set_float32_matmul_precision(\"high\") in the script".to_owned());
                    }
                };
                Ok(vec![("mixed_precision", json!(name))])
            },
        },
        plain_key!(Devices, "num_processes"),
        plain_key!(Nodes, "num_machines"),
        Key {
            knob: Knob::Compile,
            key: "dynamo_config.dynamo_backend",
            write: |value| {
                let on = |mode: &str| {
                    vec![
                        ("dynamo_config.dynamo_backend", json!("INDUCTOR")),
                        ("dynamo_config.dynamo_mode", json!(mode)),
                    ]
                };
                match value {
                    Value::Bool(true) => Ok(on("default")),
                    Value::Bool(false) => Ok(vec![("dynamo_config.dynamo_backend", json!("NO"))]),
                    Value::Text(mode) if ["off", "none", "no"].contains(&mode.as_str()) => {
                        Ok(vec![("dynamo_config.dynamo_backend", json!("NO"))])
                    }
                    Value::Text(mode) => Ok(on(mode)),
                    Value::Int(_) | Value::Float(_) => Err("it is no mode of torch.compile".to_owned()),
                }
            },
        },
    ],
    own: &[("", &["enable_cpu_affinity", "use_cpu"])],
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

const LOADER: &str = "it belongs to the script's DataLoader";

pub(super) fn write(chosen: &Chosen<'_>) -> Written {
    let (entries, _) = entries(chosen);
    let amount =
        |knob: Knob| entries.iter().find(|entry| entry.knob == Some(knob)).and_then(|entry| entry.value.as_i64());
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
