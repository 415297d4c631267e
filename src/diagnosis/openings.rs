//! The parameters that a diagnosis may recommend for a search: adapter targets with values that suit the job.

use serde::Serialize;

use super::evidence::Evidence;
use super::starvation::{self, COMPUTES};
use crate::model::{Precision, Role, Value};

/// A parameter that a diagnosis may recommend.
#[derive(Debug)]
pub struct Openable {
    /// The name in the table of causes and in the written spec.
    pub name: &'static str,
    /// The adapter target that it is applied to.
    pub target: &'static str,
    /// The role in a training step, if any.
    pub role: Option<Role>,
    /// Why it is worth trying, in one line.
    pub why: &'static str,
    /// Returns settings for a job; fewer than two if there is nothing to try in that job.
    values: fn(&Evidence) -> Vec<Value>,
    /// Returns the current setting of the job.
    today: fn(&Evidence) -> Option<Value>,
}

/// A parameter that is worth searching for a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Opening {
    /// Its name.
    pub parameter: &'static str,
    /// The adapter target that it is applied to.
    pub target: &'static str,
    /// The settings to try, including the current one.
    pub values: Vec<Value>,
    /// The current setting of the job, if it reports it.
    pub today: Option<Value>,
    /// Why it is worth trying.
    pub why: &'static str,
}

const FLAGS: [bool; 2] = [false, true];

fn only<V: Into<Value>>(is_open: bool, values: impl IntoIterator<Item = V>) -> Vec<Value> {
    values.into_iter().filter(|_| is_open).map(Into::into).collect()
}

/// Returns true if ranks communicate by this wrapper, unless communication is known to cost almost nothing.
fn exchanges_by(evidence: &Evidence, wrapper: &str) -> bool {
    exchanges(evidence) && evidence.wrapper() == Some(wrapper)
}

/// Returns true if ranks communicate by NCCL, unless communication is known to cost almost nothing.
fn exchanges_by_nccl(evidence: &Evidence) -> bool {
    exchanges(evidence) && evidence.text("distributed.backend").is_some_and(|backend| backend.contains("nccl"))
}

fn exchanges(evidence: &Evidence) -> bool {
    evidence.ranks() > 1 && !evidence.exposed_communication().is_some_and(|exposed| exposed.is_small())
}

fn flag(evidence: &Evidence, name: &str) -> Option<Value> {
    evidence.flag(name).map(Value::Bool)
}

fn integer(number: u32) -> Value {
    Value::Int(i64::from(number))
}

/// The attention kernels worth trying; `any` leaves torch the choice. `math` is left out, because it writes all scores to memory.
const ATTENTION: [&str; 4] = ["any", "flash", "memory-efficient", "cudnn"];

/// Makes [`Openable`]s from rows: the name, the target and its role, the reason, and functions for the settings and the current one.
macro_rules! openables {
    ($($name:literal = $target:literal $(as $role:ident)?: $why:literal; values $values:expr, today $today:expr;)*) => {
        &[$(Openable {
            name: $name,
            target: $target,
            role: openables!(@role $($role)?),
            why: $why,
            values: $values,
            today: $today,
        }),*]
    };
    (@role) => { None };
    (@role $role:ident) => { Some(Role::$role) };
}

/// The parameters that a diagnosis may recommend. Harmless parameters come first.
pub const PARAMETERS: &[Openable] = openables! {
    "num_workers" = "dataloader.num_workers" as Workers: "processes that load while the step trains";
        values workers, today |evidence| evidence.workers().map(integer);
    "prefetch_factor" = "dataloader.prefetch_factor" as Prefetch:
        "batches in each worker's queue, for samples that take longer than usual";
        values prefetch,
        today |evidence| {
            let has_no_workers = evidence.workers() == Some(0);
            whole(evidence, "loader.prefetch_factor").or_else(|| has_no_workers.then_some(Value::Int(2)))
        };
    "persistent_workers" = "dataloader.persistent_workers": "workers stay alive from epoch to epoch";
        values |_| only(true, FLAGS),
        today |evidence| flag(evidence, "loader.persistent_workers").or(Some(Value::Bool(false)));
    "pin_memory" = "dataloader.pin_memory": "copies to the GPU are direct, and can overlap with computing";
        values |evidence| only(evidence.is_gpu(), FLAGS), today |evidence| flag(evidence, "loader.pin_memory");
    "threads" = "env.OMP_NUM_THREADS" as Threads: "threads of one operation; fewer threads leave cores to the loader";
        values threads, today |evidence| whole(evidence, "threads");
    "batch_size" = "dataloader.batch_size" as Batch:
        "more samples share the fixed cost of a step; it changes the training, so check the learning rate";
        values batches, today |evidence| evidence.batch_size().map(integer);
    "precision" = "torch.precision" as Precision:
        "tensor cores are many times as fast in half precision; losses are compared with full precision";
        values precisions, today |evidence| Some(Value::Text(evidence.precision()?.name().to_owned()));
    "compile" = "torch.compile": "fewer launches, and fused operations";
        values |evidence| {
            let is_open = evidence.is_gpu() && evidence.flag("compiled") != Some(true);
            only(is_open, ["off", "default", "reduce-overhead"])
        },
        today |_| Some(Value::from("off"));
    "fused_optimizer" = "torch.fused_optimizer": "one kernel updates all weights";
        values |evidence| only(evidence.is_gpu() && evidence.flag("optimizer_fused") == Some(false), FLAGS),
        today |evidence| flag(evidence, "optimizer_fused");
    "channels_last" = "torch.channels_last": "the fastest image layout for convolutions";
        // Weights of four dimensions are convolutions.
        values |evidence| only(evidence.is_gpu() && evidence.flag("parameters_4d") == Some(true), FLAGS),
        today |_| Some(Value::Bool(false));
    "sdpa" = "torch.sdpa": "an attention kernel that does not write the scores of all pairs to memory";
        values |evidence| only(evidence.is_gpu() && evidence.text("flash_attention") == Some("no"), ATTENTION),
        today |_| Some(Value::from(ATTENTION[0]));
    "checkpoint" = "torch.checkpoint": "activations are recomputed, which makes room for a larger batch";
        values |_| only(true, FLAGS), today |_| Some(Value::Bool(false));
    "grad_accumulation" = "torch.grad_accumulation" as Pieces:
        "a batch in pieces needs the memory of one piece, and exchanges gradients once";
        values |_| only(true, [1, 2, 4]), today |_| Some(Value::Int(1));
    "bucket_cap_mb" = "ddp.bucket_cap_mb": "larger buckets need fewer exchanges, smaller buckets begin earlier";
        values |evidence| only(exchanges_by(evidence, "DistributedDataParallel"), [10, 25, 50, 100, 200]),
        today |evidence| whole(evidence, "ddp.bucket_cap_mb");
    "gradient_as_bucket_view" = "ddp.gradient_as_bucket_view": "gradients are not copied into the buckets";
        values |evidence| only(exchanges_by(evidence, "DistributedDataParallel"), FLAGS),
        today |evidence| flag(evidence, "ddp.gradient_as_bucket_view");
    "compression" = "ddp.compression": "half the bytes between ranks; losses are compared with full precision";
        values |evidence| {
            let is_known = matches!(evidence.text("ddp.compression"), Some("none" | "fp16" | "bf16"));
            only(is_known && exchanges_by(evidence, "DistributedDataParallel"), ["none", "bf16", "fp16"])
        },
        today |evidence| Some(Value::from(evidence.text("ddp.compression")?));
    "reshard_after_forward" = "fsdp.reshard_after_forward":
        "weights are gathered once instead of twice; they then stay in memory";
        values |evidence| only(exchanges_by(evidence, "fully_shard"), [true, false]),
        today |evidence| flag(evidence, "fsdp.reshard_after_forward");
    "prefetch_depth" = "fsdp.prefetch_depth": "weights of the next modules are gathered while this module computes";
        values |evidence| only(exchanges_by(evidence, "fully_shard"), [0, 1, 2, 3]),
        today |evidence| {
            let depth = evidence.number("fsdp.prefetch_depth")?;
            if depth == 0.0 { Some(Value::Int(0)) } else { whole(evidence, "fsdp.prefetch_depth") }
        };
    "sharding_strategy" = "fsdp.sharding_strategy": "less sharding needs less gathering and more memory";
        values |evidence| only(exchanges_by(evidence, "FullyShardedDataParallel"), ["FULL_SHARD", "SHARD_GRAD_OP"]),
        today |evidence| {
            let strategy = evidence.text("fsdp.sharding_strategy")?;
            ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]
                .contains(&strategy)
                .then(|| Value::from(strategy))
        };
    "nccl_channels" = "nccl.channels": "more channels move more data at once, and take multiprocessors from computing";
        values |evidence| only(exchanges_by_nccl(evidence), [2, 4, 8, 16, 32]), today |_| None;
    "nccl_chunk_size" = "nccl.chunk_size": "larger chunks cost less overhead, smaller chunks keep more links busy";
        values |evidence| only(exchanges_by_nccl(evidence), [1 << 20, 1 << 22, 1 << 23, 1 << 24]), today |_| None;
    "allocator" = "torch.allocator": "growing segments leave less unused memory between tensors";
        values |evidence| only(evidence.is_gpu(), ["default", "expandable-segments"]),
        today |_| Some(Value::from("default"));
};

/// Returns the parameter of this name.
pub fn openable(name: &str) -> Option<&'static Openable> {
    PARAMETERS.iter().find(|parameter| parameter.name == name)
}

impl Openable {
    /// Returns the parameter with settings for a job; `None` if there is nothing to try in that job.
    pub fn for_job(&self, evidence: &Evidence) -> Option<Opening> {
        // In a job without a loader, a search would reject every loader setting.
        if self.target.starts_with("dataloader.") && evidence.workers().is_none() {
            return None;
        }
        let today = (self.today)(evidence);
        let mut values = (self.values)(evidence);
        if let Some(today) = today.as_ref().filter(|today| !values.contains(today)) {
            if values.is_empty() {
                return None;
            }
            values.push(today.clone());
            if values.iter().all(|value| value.as_i64().is_some()) {
                values.sort_by_key(|value| value.as_i64());
            }
        }
        let opening = Opening { parameter: self.name, target: self.target, values, today, why: self.why };
        (opening.values.len() > 1).then_some(opening)
    }
}

fn whole(evidence: &Evidence, name: &str) -> Option<Value> {
    let number = evidence.number(name).filter(|number| number.fract() == 0.0 && (1.0..1e9).contains(number))?;
    Some(Value::Int(number as i64))
}

pub(super) fn cores(evidence: &Evidence) -> u32 {
    evidence.cores().map_or(4, |cores| cores.clamp(1.0, 1024.0).ceil() as u32)
}

/// Returns zero, powers of two up to the number of cores, and the number expected to be best. If samples mostly wait, the limit is
/// four times the cores.
fn workers(evidence: &Evidence) -> Vec<Value> {
    /// A round number, as in `init`: a loader that needs more workers needs more cores first.
    const MOST: u32 = 32;
    let waits = evidence.item_cpu_share().is_some_and(|share| share < COMPUTES.value);
    let sweep = evidence.loader_rates().into_keys().max().unwrap_or(0);
    let most = (cores(evidence) * if waits { 4 } else { 1 }).max(sweep).clamp(2, MOST);
    let best = starvation::with_workers(evidence).map(|best| best.workers);
    let mut values = vec![0];
    values.extend((0..).map(|power| 1 << power).take_while(|workers| *workers <= most));
    values.extend(best.filter(|best| !values.contains(best)));
    values.sort_unstable();
    values.into_iter().map(integer).collect()
}

fn prefetch(evidence: &Evidence) -> Vec<Value> {
    let today = evidence.number("loader.prefetch_factor").unwrap_or(2.0);
    let factors: &[i64] = if today >= 8.0 { &[2, 4, 8, 16] } else { &[2, 4, 8] };
    only(true, factors.iter().copied())
}

fn threads(evidence: &Evidence) -> Vec<Value> {
    let cores = cores(evidence);
    let powers = (0..).map(|power| 1 << power).take_while(|threads| *threads <= cores);
    only(!evidence.is_gpu() && cores >= 2, powers.map(integer))
}

/// Returns batch sizes from half to eight times the current size; at most twice if device memory is nearly full.
fn batches(evidence: &Evidence) -> Vec<Value> {
    let Some(size) = evidence.batch_size() else { return Vec::new() };
    let is_full = evidence.observed.memory_headroom().is_some_and(|free| free < 0.1);
    let factors: &[u32] = if is_full { &[1, 2] } else { &[1, 2, 4, 8] };
    let half = (size % 2 == 0 && size > 1).then_some(size / 2);
    let larger = factors.iter().filter_map(|factor| size.checked_mul(*factor));
    half.into_iter().chain(larger).map(integer).collect()
}

fn precisions(evidence: &Evidence) -> Vec<Value> {
    let Some(capability) = evidence.around.compute_capability.filter(|_| evidence.is_gpu()) else { return Vec::new() };
    let formats = [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16];
    let known = formats.into_iter().filter(|format| format.is_in_hardware(capability));
    only(true, known.map(Precision::name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;
    use crate::probe::adapter::Target;

    #[test]
    fn every_parameter_has_a_target_that_takes_its_settings() {
        for evidence in [Job::cpu().evidence(), Job::gpu().evidence()] {
            for parameter in PARAMETERS {
                let target = Target::parse(parameter.target).unwrap();
                let Some(opening) = parameter.for_job(&evidence) else { continue };
                for value in opening.values.iter().chain(&opening.today) {
                    assert!(target.accepts.takes(value), "{}: {value}", parameter.name);
                }
                assert!(opening.today.is_none_or(|today| opening.values.contains(&today)), "{}", parameter.name);
            }
        }
    }

    #[test]
    fn a_cpu_is_not_offered_what_only_gpus_have() {
        let evidence = Job::cpu().evidence();
        for name in ["pin_memory", "precision", "compile", "allocator"] {
            assert_eq!(openable(name).unwrap().for_job(&evidence), None, "{name}");
        }
        assert!(openable("num_workers").unwrap().for_job(&evidence).is_some());
    }

    #[test]
    fn a_job_without_a_loader_is_not_offered_what_only_a_loader_has() {
        let mut evidence = Job::gpu().evidence();
        let facts = evidence.observed.facts.clone();
        let others = facts.iter().filter(|(name, _)| !name.starts_with("loader."));
        evidence.observed.facts = others.map(|(name, fact)| (name.to_owned(), fact.clone())).collect();
        for parameter in PARAMETERS {
            let is_of_loader = parameter.target.starts_with("dataloader.");
            assert!(!is_of_loader || parameter.for_job(&evidence).is_none(), "{}", parameter.name);
        }
        assert!(openable("precision").unwrap().for_job(&evidence).is_some());
    }

    #[test]
    fn channels_last_is_for_convolutions_whatever_the_files_are() {
        let opening = |job: Job| openable("channels_last").unwrap().for_job(&job.evidence()).is_some();
        assert!(opening(Job::gpu().flag("parameters_4d", true).text("files.kind", "npy")));
        assert!(!opening(Job::gpu().flag("parameters_4d", false).text("files.kind", "images")), "a vision transformer");
        assert!(!opening(Job::gpu().text("files.kind", "images")), "not known");
        assert!(!opening(Job::cpu().flag("parameters_4d", true)));
    }

    #[test]
    fn what_the_job_has_today_is_among_the_settings() {
        let evidence = Job::cpu().workers(3).evidence();
        let opening = openable("num_workers").unwrap().for_job(&evidence).unwrap();
        assert_eq!(opening.values, [0, 1, 2, 3, 4].map(Value::Int));
        assert_eq!(opening.today, Some(Value::Int(3)));
    }
}
