//! The spec as written: one flat struct for each table. It lives only while a spec is read.
//!
//! No `untagged` and no `flatten`: both lose the place of a mistake. The JSON Schema comes from these types.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::located::{Entries, Located};
use super::values::{
    Adapter, Aim, AtLeastOne, Constraint, Gain, Headroom, Host, Launcher, Listen, Pause, Price, Probes, Ray, Rounds,
    RunLength, ScratchSize, Share, Size, Slots, Strategy, Time, Unit, Valid, Weight,
};
use crate::machine::DeviceChoice;
use crate::model::{OnTie, Role, Value};
use crate::probe::{Start, Writes};

/// A gputune spec: the training step, the parameters and the search.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a spec with the tables [step] and [space]")]
#[schemars(title = "gputune spec")]
pub(super) struct SpecFile {
    /// The training step: its command and the source of its throughput.
    pub(super) step: Located<StepTable>,
    /// The parameters and their settings.
    pub(super) space: Located<SpaceTable>,
    /// Conditions that every config must meet.
    #[serde(default)]
    pub(super) rules: Vec<RuleTable>,
    /// The current settings. They are probed first, and the speedup is relative to them. The script decides parameters that are
    /// left out.
    #[serde(default)]
    pub(super) baseline: Option<Located<Entries<Located<Value>>>>,
    /// The limits of a probe.
    #[serde(default)]
    pub(super) limits: LimitsTable,
    /// The objective: what makes one config better than another.
    #[serde(default)]
    pub(super) objective: ObjectiveTable,
    /// The whole training, for which the config is chosen.
    #[serde(default)]
    pub(super) run: RunTable,
    /// How to search, and for how long.
    #[serde(default)]
    pub(super) search: SearchTable,
    /// Where probes run, and the share of the machine for each probe.
    #[serde(default)]
    pub(super) machine: MachineTable,
}

/// The whole training, for which the config is chosen.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table with `length`")]
pub(super) struct RunTable {
    /// How long the training is: `90 epochs`, `100000 steps` (with the batch of the baseline) or `1e9 samples`. Default: what the
    /// script's arguments or its trainer say, else one epoch.
    pub(super) length: Option<Valid<RunLength>>,
}

/// The training step: its command and the source of its throughput.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with at least `command`")]
pub(super) struct StepTable {
    /// Program and arguments; never a shell string. `{name}` stands for a setting, `{name?text}` for `text` if the setting is true,
    /// `{gputune}` for this program, `{probe_dir}` for the folder of the probe's rendered files.
    pub(super) command: Located<Vec<Located<String>>>,
    /// Environment variables to set in addition to the inherited variables. Placeholders as in `command`.
    #[serde(default)]
    pub(super) env: Entries<Located<String>>,
    /// The folder that the command runs in, relative to this file. Default: the folder of this file.
    pub(super) cwd: Option<Located<PathBuf>>,
    /// Templates that are rendered for each probe.
    #[serde(default)]
    pub(super) files: Vec<FileTable>,
    /// How to read the throughput from the step's output. Default: the step reports events.
    pub(super) throughput: Option<ThroughputTable>,
    /// Samples per step, if the step reports only steps: a number, or an expression such as `"batch_size * 8"`.
    pub(super) samples_per_step: Option<Located<Value>>,
    /// The adapter, which controls an unmodified script through its framework: `torch`.
    pub(super) adapter: Option<Valid<Adapter>>,
    /// Which device trains: `auto` (the GPUs if the machine has any, else the CPU), `cpu` (GPUs are hidden from the step, and not
    /// metered), or `gpu` (an error without a GPU). Default: auto.
    pub(super) device: Option<Located<DeviceChoice>>,
    /// How many processes of a distributed job must report: a number, or an expression over parameters. Default: the number that
    /// the processes report.
    pub(super) ranks: Option<Located<Value>>,
    /// What happens to a probe's writes: `scratch` (they go to a temporary layer), `guard` (the adapter's hook protects existing
    /// files), or `allow` (they change files as the script would). Default: the first of these that is available.
    pub(super) writes: Option<Located<Writes>>,
    /// How much one probe may write to its scratch layer: a share of the free disk such as `0.5`, or a size such as
    /// `"20GiB"`. Default: 0.5.
    pub(super) scratch_size: Option<Located<Valid<ScratchSize>>>,
    /// How probes start: `fresh` (each process imports everything), `warm` (forked from a process that has done the imports, if
    /// possible), `live` (one process for configs that differ only in settings that can change during training, else `warm`), or
    /// `auto` (`live` on a GPU; on a CPU `warm`, if the time left is worth it). Default: auto.
    pub(super) start: Option<Located<Start>>,
}

/// A template that is rendered for each probe.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { template = \"run.json.in\", path = \"run.json\" }")]
pub(super) struct FileTable {
    /// The template, relative to this file. Placeholders as in `command`.
    pub(super) template: Located<PathBuf>,
    /// The path of the rendered file, relative to `{probe_dir}`.
    pub(super) path: Located<PathBuf>,
    /// A file that a Python script opens at a fixed path, relative to `cwd`: the script opens the rendered file instead.
    #[serde(default)]
    pub(super) replaces: Option<Located<PathBuf>>,
}

/// A number that the step prints.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { pattern = '([0-9.]+) samples/s', unit = \"samples/s\" }")]
pub(super) struct ThroughputTable {
    /// A regular expression. Its first group, or else the whole match, is the number. gputune searches each line of standard output
    /// and standard error.
    pub(super) pattern: Located<String>,
    /// The unit of the number: `samples/s`, `tokens/s`, `steps/s`, `ms/step` and the like.
    pub(super) unit: Located<Valid<Unit>>,
}

/// The parameters by name, and the imported spaces.
#[derive(Debug)]
pub(super) struct SpaceTable {
    pub(super) import: Vec<Located<String>>,
    /// In the order of the file.
    pub(super) parameters: Vec<(Located<String>, ParameterTable)>,
}

impl<'de> Deserialize<'de> for SpaceTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> de::Visitor<'de> for Entries {
            type Value = SpaceTable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of parameters")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<SpaceTable, A::Error> {
                let mut table = SpaceTable { import: Vec::new(), parameters: Vec::new() };
                while let Some(name) = map.next_key::<Located<String>>()? {
                    if name.value == "import" {
                        table.import = map.next_value()?;
                    } else {
                        table.parameters.push((name, map.next_value()?));
                    }
                }
                table.parameters.sort_by_key(|(name, _)| name.span.start);
                Ok(table)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

impl JsonSchema for SpaceTable {
    fn schema_name() -> Cow<'static, str> {
        "SpaceTable".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let import = generator.subschema_for::<Vec<String>>();
        let parameter = generator.subschema_for::<ParameterTable>();
        json_schema!({
            "type": "object",
            "description": "The parameters by name. `import` lists shared spaces by name, or by path relative to this file; a parameter given here replaces one of the same name.",
            "properties": { "import": import },
            "additionalProperties": parameter,
        })
    }
}

/// One parameter: exactly one of `values`, `range`, `powers_of_two` and `derive`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { values = [8, 16] }, { range = [0, 16], step = 2 } or { powers_of_two = [8, 1024] }"
)]
pub(super) struct ParameterTable {
    /// The settings, listed: booleans, integers, floats or strings.
    pub(super) values: Option<Located<Vec<Located<Value>>>>,
    /// The first and the last setting; see `step`.
    pub(super) range: Option<Located<Vec<Located<Value>>>>,
    /// The step of `range`. Default: 1.
    pub(super) step: Option<Located<Value>>,
    /// All powers of two between two bounds, both included.
    pub(super) powers_of_two: Option<Located<Vec<i64>>>,
    /// A condition over other parameters. If it is false, the parameter is left out.
    pub(super) when: Option<Located<String>>,
    /// An expression over other parameters; the value is computed and not searched.
    pub(super) derive: Option<Located<String>>,
    /// Whether a larger value needs at least as much memory. If so, values larger than a value that ran out of memory are not
    /// tried. Default: true for batch sizes. `false` means that nothing is known.
    pub(super) monotone: Option<Located<bool>>,
    /// The value for full precision, if the parameter changes numerical results. A config then wins only if its losses agree with
    /// full precision. The value need not be one of the settings.
    pub(super) full_precision: Option<Located<Value>>,
    /// The target that gputune sets without a change to the script, such as `dataloader.batch_size`, `torch.precision`, `env.NAME`
    /// or `arg`.
    pub(super) apply: Option<Located<String>>,
    /// The script's option for the same setting, such as `--batch-size`, or `batch_size=` if option and value are one word. A
    /// process starts with this option, and the target of `apply` changes the setting during training.
    pub(super) argument: Option<Located<String>>,
    /// The parameter's role in a training step, for the model of the strategy `auto`. Default: the role that `apply` or the name
    /// implies. `none` keeps the parameter out of the model.
    pub(super) role: Option<Located<RoleKey>>,
}

/// The role of a parameter in a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RoleKey {
    /// The number of samples in a step.
    BatchSize,
    /// Processes or threads that load data.
    Workers,
    /// Batches that each worker loads ahead.
    Prefetch,
    /// The number format of the computation.
    Precision,
    /// Threads that compute.
    Threads,
    /// The limit of a device's power.
    Power,
    /// The number of devices that train.
    Devices,
    /// Batches whose gradients are added up before the weights change.
    Accumulation,
    /// Equal pieces into which a batch is divided.
    Pieces,
    /// No role that the model knows.
    None,
}

impl RoleKey {
    pub(super) fn role(self) -> Option<Role> {
        match self {
            Self::BatchSize => Some(Role::Batch),
            Self::Workers => Some(Role::Workers),
            Self::Prefetch => Some(Role::Prefetch),
            Self::Precision => Some(Role::Precision),
            Self::Threads => Some(Role::Threads),
            Self::Power => Some(Role::Power),
            Self::Devices => Some(Role::Devices),
            Self::Accumulation => Some(Role::Accumulation),
            Self::Pieces => Some(Role::Pieces),
            Self::None => None,
        }
    }
}

/// A condition that every config must meet.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { where = \"batch_size * workers <= 8192\" }")]
pub(super) struct RuleTable {
    /// The condition, an expression over parameters.
    #[serde(rename = "where")]
    pub(super) condition: Located<String>,
}

/// The limits of a probe.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table of limits")]
pub(super) struct LimitsTable {
    /// Device memory that must stay free: a share such as `0.1`, or a size such as `"2GiB"`. Default: 0.1.
    pub(super) memory_headroom: Option<Valid<Headroom>>,
    /// Host memory that must stay available; a probe that leaves less is ended. A share or a size. Default: 0.02.
    pub(super) host_memory_headroom: Option<Valid<Headroom>>,
    /// Wall time of one probe, start-up included, such as `"60s"`. Default: 60s.
    pub(super) probe_time: Option<Valid<Time>>,
    /// Time without progress after which a probe is stopped. Default: 30s.
    pub(super) stall_time: Option<Valid<Time>>,
    /// Time between asking processes to end and killing them. Default: 5s.
    pub(super) grace_time: Option<Valid<Pause>>,
    /// Longest time spent measuring after warm-up. Default: 10s.
    pub(super) measure_time: Option<Valid<Time>>,
    /// Half the width of the throughput's 95% interval, as a share, at which measuring ends early. Default: 0.02, and at least 0.1
    /// in a search with rounds.
    pub(super) precision: Option<Valid<Share>>,
    /// How much the losses of the first steps may differ from full precision, as a share. Default: 0.1.
    pub(super) loss_tolerance: Option<Valid<Share>>,
    /// How much of a probe's output its log keeps, such as `"100MiB"`. Default: all of it.
    pub(super) log_size: Option<Valid<Size>>,
}

/// The objective: what makes one config better than another.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { maximize = \"throughput\" }")]
pub(super) struct ObjectiveTable {
    /// The metric to make as large as possible: `throughput`, or a metric that the step reports. Default: throughput.
    pub(super) maximize: Option<Located<String>>,
    /// The metric to make as small as possible: `run_time`, `step_time`, or a metric that the step reports. Default: run_time,
    /// which is the same as the largest throughput.
    pub(super) minimize: Option<Located<String>>,
    /// Several metrics with the weight of each: the best weighted product wins.
    pub(super) weights: Option<Located<Entries<Located<Weight>>>>,
    /// Several metrics for a Pareto front. The result is the configs that no other config beats in all of these metrics.
    pub(super) pareto: Option<Located<Vec<Located<Aim>>>>,
    /// The price of an hour of the whole run, in any currency, for the metric `cost_per_sample`.
    pub(super) price_per_hour: Option<Located<Valid<Price>>>,
    /// The price of an hour of each GPU in use.
    pub(super) price_per_gpu_hour: Option<Located<Valid<Price>>>,
    /// Bounds on metrics, such as `"peak_memory < 70GiB"`.
    pub(super) constraints: Vec<Located<Valid<Constraint>>>,
}

/// How to search, and for how long.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { probes = 24, time = \"20m\" }")]
pub(super) struct SearchTable {
    /// `auto`, `anneal`, `bayes`, `grid` or `random`. Default: auto.
    pub(super) strategy: Option<Valid<Strategy>>,
    /// Probes to run, the baseline included; rounds come on top. Default: 24.
    pub(super) probes: Option<Valid<Probes>>,
    /// Wall time of the whole search, its end included. Default: 20m.
    pub(super) time: Option<Valid<Time>>,
    /// The GPU time of all probes and rounds together: the time of each, times its number of GPUs. Default: no limit.
    pub(super) gpu_time: Option<Valid<Time>>,
    /// The seed of random choices. Default: 0.
    pub(super) seed: Option<u64>,
    /// The most rounds, in which configs are compared next to each other. With 0, nothing is compared or proven. Default: 1000.
    pub(super) rounds: Option<Valid<Rounds>>,
    /// The search ends if the expected gain is less than this share of the best, from 0 to 1, or within the noise. With 0, it does
    /// not end for these reasons. Default: 0.01.
    pub(super) least_gain: Option<Valid<Gain>>,
    /// Which config wins if several are within the noise. Default: the cheapest.
    pub(super) on_tie: Option<OnTie>,
    /// Whether the unmodified job, with nothing set, is the baseline of a search without `[baseline]`. Default: true.
    pub(super) as_it_is: Option<bool>,
    /// Earlier searches, on another device or with another model, to learn from: their folders or journals, relative to
    /// this file. Default: none.
    pub(super) warm_start: Option<Vec<Located<PathBuf>>>,
}

/// Where probes run, and the share of the machine for each probe.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { slots = 2 }")]
pub(super) struct MachineTable {
    /// How many probes may run at the same time, each in its own part of the machine. `"auto"`: as many as `gpus_per_slot` and
    /// `cores_per_slot` allow; without both keys, one probe with the whole machine. Default: auto.
    pub(super) slots: Option<Located<Valid<Slots>>>,
    /// GPUs of each slot: as many as the training will have. Default: an equal share.
    pub(super) gpus_per_slot: Option<Located<Valid<AtLeastOne>>>,
    /// Physical cores of each slot: as many as the training will have. Default: an equal share.
    pub(super) cores_per_slot: Option<Located<Valid<AtLeastOne>>>,
    /// Where probes run: `"local"`, `"slurm"` for all nodes of the allocation, `"ssh"` for `hosts`, `"ray"` for jobs of a Ray
    /// cluster, or `"dial"` for workers that connect by themselves. Default: `"dial"` with `listen`, `"slurm"` in an allocation of
    /// several nodes, `"ssh"` with `hosts`, else `"local"`.
    pub(super) launcher: Option<Valid<Launcher>>,
    /// Whether to measure first how much slots disturb each other. `false` assumes that they do not. Default: true.
    pub(super) compare_slots: Option<bool>,
    /// Whether each probe runs on all nodes of the Slurm allocation, or on all `hosts`. `command` itself starts the processes
    /// there, with `srun` or `mpirun`, as the training will. Default: false.
    pub(super) spans_nodes: Option<Located<bool>>,
    /// Machines that run probes, as destinations of `ssh`. Default: none.
    pub(super) hosts: Vec<Valid<Host>>,
    /// The address that workers connect to, as `HOST:PORT`; port 0 is any free port. Default: a loopback address, or for `"ray"`
    /// the address that faces the cluster.
    pub(super) listen: Option<Valid<Listen>>,
    /// The file with the token that workers must present. Only its owner may have access. Default: none; `"ray"` creates its own.
    pub(super) token_file: Option<Located<String>>,
    /// How many workers Ray starts. Default: 1.
    pub(super) workers: Option<Valid<AtLeastOne>>,
    /// The address of Ray's jobs API. Default: `RAY_API_SERVER_ADDRESS`, else `"http://127.0.0.1:8265"`.
    pub(super) ray: Option<Valid<Ray>>,
    /// A part of the name of the GPUs to use, such as `"H100"`, on a machine with several models. Default: all GPUs.
    pub(super) only: Option<String>,
}

/// A search space: a bundled file of `search-spaces/`, or the user's own file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a search space with the table [space]")]
pub(super) struct SpaceFile {
    pub(super) space: SpaceTable,
    #[serde(default)]
    pub(super) rules: Vec<RuleTable>,
}
