//! Describes the change to a script that has the effect of a target without gputune.

use crate::model::Value;

/// The change to a script that has the effect of a target.
#[derive(Debug)]
pub struct ByHand {
    /// The call whose arguments carry the setting, in scripts that have one.
    pub call: Option<OwnCall>,
    /// The lines to write. [`Names::has_call`] says if the script has the call. Empty if a script already behaves as
    /// the setting demands.
    pub lines: fn(&Value, &Names) -> Vec<Line>,
}

/// Names of arguments, each with its code.
pub type Arguments = Vec<(&'static str, String)>;

/// A call that a script may contain.
#[derive(Debug)]
pub struct OwnCall {
    /// The names of the call. Each is the last part of its path, or a longer part if other calls share the last part.
    pub names: &'static [&'static str],
    /// The arguments for a setting, with their code. An empty list means that the call must be removed. `None` means
    /// that the value is not a setting of the target.
    pub arguments: fn(&Value) -> Option<Arguments>,
    /// True if a script that lacks the call needs a new call with these arguments.
    pub is_needed: bool,
}

/// A line to write, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The place.
    pub spot: Spot,
    /// Python code.
    pub code: String,
}

/// A place in a script. The places are in the order of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// Once, before any computation.
    Start,
    /// After the model, before the optimizer that gets its parameters.
    Model,
    /// Before the forward pass.
    Inputs,
    /// Around the forward pass and the loss.
    Forward,
    /// In the model's own forward pass.
    Blocks,
    /// In place of the backward pass and the optimizer's step.
    Update,
}

impl Spot {
    /// Returns the place in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Start => "at the start, behind `import torch`",
            Self::Model => "behind the model, in front of the optimizer",
            Self::Inputs => "in front of the forward pass",
            Self::Forward => "around the forward pass and the loss",
            Self::Blocks => "in the model's forward, for each of its blocks",
            Self::Update => "for the backward pass and the optimizer's step",
        }
    }
}

/// The names and features of a script.
#[derive(Debug, Clone)]
pub struct Names {
    /// The model.
    pub model: String,
    /// The loss.
    pub loss: String,
    /// The optimizer.
    pub optimizer: String,
    /// The inputs of the model's call.
    pub inputs: String,
    /// The kind of device that trains, as torch names it.
    pub device: &'static str,
    /// True if the script has the target's call.
    pub has_call: bool,
    /// True if the script scales its gradients.
    pub has_scaler: bool,
    /// True if the model is a Transformers model.
    pub is_transformers: bool,
    /// True if the model is compiled in a mode with CUDA graphs.
    pub has_graphs: bool,
}

impl Default for Names {
    fn default() -> Self {
        let [model, loss, optimizer, inputs] = ["model", "loss", "optimizer", "inputs"].map(str::to_owned);
        let (device, has_call, has_scaler, is_transformers, has_graphs) = ("cuda", false, false, false, false);
        Self { model, loss, optimizer, inputs, device, has_call, has_scaler, is_transformers, has_graphs }
    }
}

/// Returns a value as Python writes it.
pub fn python(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        // Python reads the escapes of JSON strings in the same way.
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
    }
}

fn line(spot: Spot, code: impl Into<String>) -> Line {
    Line { spot, code: code.into() }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

/// A setting that is an argument of a call, which the script must have.
pub(super) const fn argument(names: &'static [&'static str], arguments: fn(&Value) -> Option<Arguments>) -> ByHand {
    ByHand { call: Some(OwnCall { names, arguments, is_needed: true }), lines: |_, _| Vec::new() }
}

/// A setting that needs separate lines only.
const fn only(lines: fn(&Value, &Names) -> Vec<Line>) -> ByHand {
    ByHand { call: None, lines }
}

pub(super) fn named(name: &'static str, value: &Value) -> Option<Arguments> {
    Some(vec![(name, python(value))])
}

/// No change to the script: its command or environment carries the setting.
pub(super) const COMMAND: ByHand = only(|_, _| Vec::new());

/// Source: torch's documentation, "Automatic Mixed Precision package" and "CUDA semantics: TensorFloat-32".
pub(super) const PRECISION: ByHand = ByHand {
    call: Some(OwnCall {
        names: &["autocast"],
        arguments: |value| match (text(value), dtype(text(value))) {
            (_, Some(dtype)) => Some(vec![("dtype", dtype.to_owned()), ("enabled", "True".to_owned())]),
            ("fp32" | "tf32" | "bf16-true", None) => Some(vec![("enabled", "False".to_owned())]),
            _ => None,
        },
        is_needed: false,
    }),
    lines: precision,
};

fn dtype(precision: &str) -> Option<&'static str> {
    match precision {
        "bf16" | "fp8" => Some("torch.bfloat16"),
        "fp16" => Some("torch.float16"),
        _ => None,
    }
}

fn precision(value: &Value, names: &Names) -> Vec<Line> {
    let (name, is_gpu) = (text(value), names.device != "cpu");
    let mut lines = Vec::new();
    if is_gpu && ["fp32", "tf32", "bf16", "fp16", "bf16-true", "fp8"].contains(&name) {
        let is_on = if name == "fp32" { "False" } else { "True" };
        lines.push(line(Spot::Start, format!("torch.backends.cuda.matmul.allow_tf32 = {is_on}")));
        lines.push(line(Spot::Start, format!("torch.backends.cudnn.allow_tf32 = {is_on}")));
    }
    if let Some(dtype) = dtype(name).filter(|_| !names.has_call) {
        let device = names.device;
        lines.push(line(Spot::Forward, format!("with torch.autocast(\"{device}\", dtype={dtype}):")));
    }
    let model = &names.model;
    if name == "bf16-true" {
        lines.push(line(Spot::Model, format!("{model}.to(torch.bfloat16)")));
        lines.push(line(Spot::Inputs, format!("{inputs} = {inputs}.to(torch.bfloat16)", inputs = names.inputs)));
    }
    if name == "fp8" {
        lines.push(line(Spot::Model, "from torchao.float8 import convert_to_float8_training"));
        lines.push(line(Spot::Model, format!("convert_to_float8_training({model})")));
    }
    if name == "fp16" && !names.has_scaler {
        let Names { loss, optimizer, device, .. } = names;
        lines.push(line(Spot::Model, format!("scaler = torch.amp.GradScaler(\"{device}\")")));
        lines.push(line(Spot::Update, format!("scaler.scale({loss}).backward()")));
        lines.push(line(Spot::Update, format!("scaler.step({optimizer})")));
        lines.push(line(Spot::Update, "scaler.update()"));
    }
    lines
}

pub(super) const COMPILE_DYNAMIC: ByHand = ByHand {
    call: Some(OwnCall {
        names: &["torch.compile"],
        arguments: |value| {
            let dynamic = match text(value) {
                "auto" => "None",
                "always" => "True",
                "never" => "False",
                _ => return None,
            };
            Some(vec![("dynamic", dynamic.to_owned())])
        },
        is_needed: false,
    }),
    // Without the call, sets what its argument would set (`make_set_enable_dynamic` in torch/_dynamo/eval_frame.py).
    lines: |value, names| {
        let code = match text(value) {
            _ if names.has_call => return Vec::new(),
            "always" => "assume_static_by_default = False",
            "never" => "automatic_dynamic_shapes = False",
            _ => return Vec::new(),
        };
        vec![line(Spot::Start, "import torch._dynamo"), line(Spot::Start, format!("torch._dynamo.config.{code}"))]
    },
};

/// Returns true if a mode of `torch.compile` uses CUDA graphs (`torch._inductor.list_mode_options`).
pub(crate) fn has_graphs(mode: &str) -> bool {
    matches!(mode, "reduce-overhead" | "max-autotune")
}

pub(super) const COMPILE: ByHand = ByHand {
    call: Some(OwnCall {
        names: &["torch.compile"],
        arguments: |value| match text(value) {
            "default" | "reduce-overhead" | "max-autotune" | "max-autotune-no-cudagraphs" => {
                Some(vec![("mode", python(value))])
            }
            "off" => Some(Vec::new()),
            _ => None,
        },
        is_needed: false,
    }),
    lines: |value, names| {
        let model = &names.model;
        match text(value) {
            _ if names.has_call => Vec::new(),
            "default" => vec![line(Spot::Model, format!("{model} = torch.compile({model})"))],
            mode @ ("reduce-overhead" | "max-autotune" | "max-autotune-no-cudagraphs") => {
                vec![line(Spot::Model, format!("{model} = torch.compile({model}, mode=\"{mode}\")"))]
            }
            _ => Vec::new(),
        }
    },
};

/// Source: torch's tutorial "Channels Last Memory Format in PyTorch".
pub(super) const CHANNELS_LAST: ByHand = only(|value, names| {
    let Names { model, inputs, .. } = names;
    match value {
        Value::Bool(true) => vec![
            line(Spot::Model, format!("{model} = {model}.to(memory_format=torch.channels_last)")),
            line(Spot::Inputs, format!("{inputs} = {inputs}.to(memory_format=torch.channels_last)")),
        ],
        Value::Bool(false) => {
            vec![line(Spot::Model, format!("{model} = {model}.to(memory_format=torch.contiguous_format)"))]
        }
        _ => Vec::new(),
    }
});

pub(super) const CUDNN_BENCHMARK: ByHand = only(|value, _| match value {
    Value::Bool(_) => vec![line(Spot::Start, format!("torch.backends.cudnn.benchmark = {}", python(value)))],
    _ => Vec::new(),
});

/// The optimizers that have a fused version: torch's documentation, `torch.optim`.
pub(super) const FUSED_OPTIMIZER: ByHand = argument(&["AdamW", "Adam", "SGD", "Adagrad"], |value| match value {
    // `None` leaves the choice to torch. `False` would also rule out torch's foreach version.
    Value::Bool(true) => Some(vec![("fused", "True".to_owned())]),
    Value::Bool(false) => Some(vec![("fused", "None".to_owned())]),
    _ => None,
});

/// Source: torch's documentation, `torch.nn.attention.sdpa_kernel`.
pub(super) const SDPA: ByHand = only(|value, _| {
    let kernel = match text(value) {
        "flash" => "FLASH_ATTENTION",
        "memory-efficient" => "EFFICIENT_ATTENTION",
        "math" => "MATH",
        "cudnn" => "CUDNN_ATTENTION",
        _ => return Vec::new(),
    };
    vec![
        line(Spot::Start, "from torch.nn.attention import SDPBackend, sdpa_kernel"),
        line(Spot::Forward, format!("with sdpa_kernel(SDPBackend.{kernel}):")),
    ]
});

/// Source: torch's notes "Automatic Mixed Precision examples: Gradient accumulation".
///
/// CUDA graphs overwrite the gradients that they create (pytorch#169545), so gradients need memory outside of the graphs.
pub(super) const GRAD_ACCUMULATION: ByHand = only(|value, names| {
    let Names { model, loss, optimizer, has_graphs, .. } = names;
    let Some(pieces) = value.as_i64().filter(|pieces| *pieces > 1) else { return Vec::new() };
    let mut lines = Vec::new();
    if *has_graphs {
        lines.push(line(Spot::Model, format!("for parameter in {model}.parameters():  # outside of CUDA graphs")));
        lines.push(line(Spot::Model, "    parameter.grad = torch.zeros_like(parameter)"));
    }
    let in_place = if *has_graphs { "set_to_none=False" } else { "" };
    lines.extend([
        line(Spot::Update, format!("({loss} / {pieces}).backward()")),
        line(Spot::Update, format!("if (step + 1) % {pieces} == 0:  # step counts the loader's batches")),
        line(Spot::Update, format!("    {optimizer}.step()")),
        line(Spot::Update, format!("    {optimizer}.zero_grad({in_place})")),
    ]);
    lines
});

/// Source: torch's documentation, `torch.utils.checkpoint`; Transformers' documentation, "Gradient checkpointing".
pub(super) const CHECKPOINT: ByHand = only(|value, names| {
    let model = &names.model;
    match (value, names.is_transformers) {
        (Value::Bool(true), true) => vec![line(Spot::Model, format!("{model}.gradient_checkpointing_enable()"))],
        (Value::Bool(false), true) => vec![line(Spot::Model, format!("{model}.gradient_checkpointing_disable()"))],
        (Value::Bool(true), false) => {
            vec![line(Spot::Blocks, "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)")]
        }
        _ => Vec::new(),
    }
});

// Targets for scripts with several ranks. Sources: torch's documentation, `DistributedDataParallel`, "DDP Communication
// Hooks", `fully_shard` and `FullyShardedDataParallel`.

pub(super) const COMPRESSION: ByHand = only(|value, names| match text(value) {
    name @ ("fp16" | "bf16") => vec![
        line(Spot::Start, "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks"),
        line(Spot::Model, format!("{}.register_comm_hook(None, default_hooks.{name}_compress_hook)", names.model)),
    ],
    _ => Vec::new(),
});

pub(super) const PREFETCH_DEPTH: ByHand = only(|value, _| match value.as_i64() {
    Some(depth) if depth > 0 => vec![
        line(Spot::Model, "for at, layer in enumerate(layers):  # the layers given to fully_shard, in their order"),
        line(Spot::Model, format!("    layer.set_modules_to_forward_prefetch(layers[at + 1 : at + 1 + {depth}])")),
        line(
            Spot::Model,
            format!("    layer.set_modules_to_backward_prefetch(layers[max(at - {depth}, 0) : at][::-1])"),
        ),
    ],
    _ => Vec::new(),
});

pub(super) const SHARDING_STRATEGY: ByHand =
    argument(&["FullyShardedDataParallel", "FSDP"], |value| match text(value) {
        name @ ("FULL_SHARD" | "SHARD_GRAD_OP" | "NO_SHARD" | "HYBRID_SHARD") => {
            Some(vec![("sharding_strategy", format!("torch.distributed.fsdp.ShardingStrategy.{name}"))])
        }
        _ => None,
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::adapter::{Accepts, By, TARGETS};

    /// Returns settings that each target accepts, including all of its names.
    fn settings(accepts: Accepts) -> Vec<Value> {
        match accepts {
            Accepts::Integers { least } => (least + 1..least + 4).map(Value::Int).collect(),
            Accepts::Numbers(numbers) => numbers.iter().copied().map(Value::Int).collect(),
            Accepts::Booleans => vec![Value::Bool(true), Value::Bool(false)],
            Accepts::Names(names) => names.iter().map(|name| Value::from(*name)).collect(),
            Accepts::AllocatorConfig(_) | Accepts::Anything => vec![Value::Int(1)],
        }
    }

    #[test]
    fn each_setting_of_the_hook_can_be_written_and_nothing_else_has_to_be() {
        // Settings equal to a script's default behaviour.
        let silent = [
            ("torch.compile", Value::from("off")),
            ("torch.compile_dynamic", Value::from("auto")),
            ("torch.checkpoint", Value::Bool(false)),
            ("torch.sdpa", Value::from("any")),
            ("ddp.compression", Value::from("none")),
        ];
        for target in TARGETS {
            for value in settings(target.accepts) {
                let lines = (target.by_hand.lines)(&value, &Names::default());
                let call = target.by_hand.call.as_ref();
                let arguments = call.filter(|call| call.is_needed).and_then(|call| (call.arguments)(&value));
                let has_words = !lines.is_empty() || arguments.is_some_and(|arguments| !arguments.is_empty());
                let is_silent = silent.contains(&(target.name, value.clone()));
                let is_by_hook = matches!(target.by, By::Hook { .. });
                assert_eq!(has_words, is_by_hook && !is_silent, "{} = {value}", target.name);
            }
        }
    }

    #[test]
    fn what_is_no_setting_of_a_target_writes_nothing() {
        for target in TARGETS.iter().filter(|target| target.name.starts_with("torch.")) {
            for value in [Value::from("as it is"), Value::Float(0.5)] {
                assert_eq!((target.by_hand.lines)(&value, &Names::default()), [], "{} = {value}", target.name);
                let call = target.by_hand.call.as_ref();
                assert!(call.is_none_or(|call| (call.arguments)(&value).is_none()), "{} = {value}", target.name);
            }
        }
    }

    #[test]
    fn a_script_on_the_processor_is_told_nothing_of_a_gpu() {
        let names = Names { device: "cpu", ..Names::default() };
        let lines = precision(&"bf16".into(), &names);
        assert_eq!(lines, [line(Spot::Forward, "with torch.autocast(\"cpu\", dtype=torch.bfloat16):")]);
    }
}
