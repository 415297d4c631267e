//! Maps a parameter to a knob of training frameworks: by its target, else by its name, else by its role.

use super::Chosen;
use crate::model::{Parameter, Role, Value};

/// A setting that frameworks have their own names for; [`KNOBS`] has these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knob {
    Batch,
    /// The number of batches, or of parts of a batch, whose gradients are summed.
    Accumulation,
    Workers,
    Prefetch,
    PinMemory,
    PersistentWorkers,
    DropLast,
    Precision,
    Compile,
    CudnnBenchmark,
    FusedOptimizer,
    /// True if activations are recomputed in the backward pass.
    Checkpoint,
    /// The number of devices of a machine, or of its processes with one device each.
    Devices,
    Nodes,
    LearningRate,
    ZeroStage,
}

/// The ways to recognise a knob.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnobFacts {
    pub(crate) knob: Knob,
    /// The adapter's target with the same meaning.
    pub(crate) target: Option<&'static str>,
    /// Names that always mean the knob: names in frameworks' settings and in the arguments of their examples.
    names: &'static str,
    /// The role with the same meaning.
    role: Option<Role>,
}

/// All knobs.
pub(crate) const KNOBS: &[KnobFacts] = &[
    row(
        Knob::Batch,
        "dataloader.batch_size",
        Some(Role::Batch),
        "per_device_train_batch_size train_micro_batch_size_per_gpu train_batch_size batch_size",
    ),
    row(
        Knob::Accumulation,
        "",
        Some(Role::Accumulation),
        "gradient_accumulation_steps accumulate_grad_batches grad_accum accumulation",
    ),
    row(Knob::Workers, "dataloader.num_workers", Some(Role::Workers), "dataloader_num_workers num_workers workers"),
    row(
        Knob::Prefetch,
        "dataloader.prefetch_factor",
        Some(Role::Prefetch),
        "dataloader_prefetch_factor prefetch_factor prefetch",
    ),
    row(Knob::PinMemory, "dataloader.pin_memory", None, "dataloader_pin_memory pin_memory pin_mem"),
    row(
        Knob::PersistentWorkers,
        "dataloader.persistent_workers",
        None,
        "dataloader_persistent_workers persistent_workers",
    ),
    row(Knob::DropLast, "", None, "dataloader_drop_last drop_last"),
    row(Knob::Precision, "torch.precision", Some(Role::Precision), "precision mixed_precision dtype amp_dtype"),
    row(Knob::Compile, "torch.compile", None, "torch_compile compile compile_mode torch_compile_mode"),
    row(Knob::CudnnBenchmark, "torch.cudnn_benchmark", None, "cudnn_benchmark benchmark"),
    row(Knob::FusedOptimizer, "torch.fused_optimizer", None, "fused_optimizer fused"),
    row(Knob::Checkpoint, "torch.checkpoint", None, "gradient_checkpointing activation_checkpointing checkpointing"),
    row(Knob::Nodes, "", None, "num_nodes nnodes nodes num_machines"),
    row(Knob::Devices, "", Some(Role::Devices), "devices gpus num_gpus nproc_per_node num_processes world_size"),
    row(Knob::LearningRate, "", None, "learning_rate lr"),
    row(Knob::ZeroStage, "", None, "zero_stage"),
];

/// Makes a row; an empty target is none.
const fn row(knob: Knob, target: &'static str, role: Option<Role>, names: &'static str) -> KnobFacts {
    KnobFacts { knob, target: if target.is_empty() { None } else { Some(target) }, names, role }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) knob: Option<Knob>,
}

/// Returns all settings with their knobs, and notes. If a parameter splits the batch into pieces, the batch becomes the
/// batch of one piece, and the number of pieces becomes gradient accumulation.
pub(super) fn entries(chosen: &Chosen<'_>) -> (Vec<Entry>, Vec<String>) {
    let all = chosen.settings.iter().map(|(name, value)| {
        let (knob, value) = match switch(name, value) {
            Some(precision) => (Some(Knob::Precision), precision),
            None => (knob_of(chosen, name, value), value.clone()),
        };
        Entry { name: name.to_owned(), value, knob }
    });
    let mut all: Vec<Entry> = all.collect();
    let mut notes = Vec::new();
    let is_pieces = |entry: &&mut Entry| is_pieces(chosen, &entry.name);
    let Some((name, Some(pieces))) =
        all.iter_mut().find(is_pieces).map(|entry| (entry.name.clone(), entry.value.as_i64()))
    else {
        return (all, notes);
    };
    let batch = all.iter_mut().find(|entry| entry.knob == Some(Knob::Batch));
    if let Some((batch, size)) = batch.and_then(|entry| entry.value.as_i64().map(|size| (entry, size)))
        && pieces > 0
        && size % pieces == 0
    {
        let part = size / pieces;
        if pieces > 1 {
            notes.push(format!("`{}` = {size} in {name} = {pieces} pieces is a batch of {part} here", batch.name));
        }
        batch.value = Value::Int(part);
        if let Some(entry) = all.iter_mut().find(|entry| entry.name == name) {
            entry.knob = Some(Knob::Accumulation);
        }
    }
    (all, notes)
}

/// Converts a switch such as `bf16` to a precision: `bf16` if it is on, `fp32` if it is off.
fn switch(name: &str, value: &Value) -> Option<Value> {
    let Value::Bool(is_on) = value else { return None };
    let is_precision = ["bf16", "fp16", "tf32"].contains(&name);
    is_precision.then(|| Value::Text(if *is_on { name.to_owned() } else { "fp32".to_owned() }))
}

fn knob_of(chosen: &Chosen<'_>, name: &str, value: &Value) -> Option<Knob> {
    let target = chosen.apply.iter().find(|applied| applied.parameter == name).map(|applied| applied.name.as_str());
    let by_target = KNOBS.iter().find(|facts| target.is_some() && facts.target == target);
    let plain = name.to_ascii_lowercase();
    let by_name = || KNOBS.iter().find(|facts| facts.names.split(' ').any(|name| name == plain));
    let by_role = || {
        let role = role(chosen, name, value)?;
        KNOBS.iter().find(|facts| facts.role == Some(role))
    };
    // Frameworks have no names for other targets, so a setting with such a target has no knob.
    let is_other = target.is_some_and(|target| target != "arg" && !target.starts_with("env."));
    let found = by_target.or_else(|| if is_other { None } else { by_name().or_else(by_role) });
    found.map(|facts| facts.knob)
}

fn role(chosen: &Chosen<'_>, name: &str, value: &Value) -> Option<Role> {
    let parameter = chosen.space.and_then(|space| Some(&space.parameters()[space.parameter_index(name)?]));
    parameter.map_or_else(|| Parameter::values(name, [value.clone()]).role(), Parameter::role)
}

fn is_pieces(chosen: &Chosen<'_>, name: &str) -> bool {
    let is_target = |applied: &&crate::probe::adapter::Applied| applied.parameter == name;
    let target = chosen.apply.iter().find(is_target).map(|applied| applied.name.as_str());
    let stated = || {
        let space = chosen.space?;
        space.parameters()[space.parameter_index(name)?].role()
    };
    target == Some("torch.grad_accumulation") || stated() == Some(Role::Pieces)
}
