//! The facts that gputune knows: one row for each.

/// The type of a fact's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number, in the unit of the row.
    Number,
    /// True or false.
    Flag,
    /// A string.
    Text,
}

/// The description of one fact.
#[derive(Debug, PartialEq, Eq)]
pub struct FactRow {
    /// Its name in the protocol. `W` at the end stands for a number of workers.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The unit of a number; empty for the other kinds.
    pub unit: &'static str,
    /// Its meaning, in one line.
    pub about: &'static str,
    /// True if every probe gathers it; any other fact needs an experiment.
    pub is_free: bool,
}

/// The values that `files.kind` can have.
pub const KINDS_OF_FILES: &[(&str, &str)] = &[
    ("images", "many files of one picture or sound each"),
    ("hdf5", "HDF5 or netCDF-4"),
    ("tfrecord", "TFRecord shards"),
    ("webdataset", "tar shards, as WebDataset reads them"),
    ("parquet", "Parquet"),
    ("arrow", "Arrow or Feather, as Hugging Face datasets keeps them"),
    ("npy", "NumPy arrays, mapped or read"),
    ("text", "text, CSV or JSON lines"),
    ("other", "anything else"),
    ("none", "the dataset opens no files"),
];

const fn number(name: &'static str, unit: &'static str, about: &'static str) -> FactRow {
    FactRow { name, kind: Kind::Number, unit, about, is_free: false }
}

const fn text(name: &'static str, about: &'static str) -> FactRow {
    FactRow { name, kind: Kind::Text, unit: "", about, is_free: false }
}

const fn flag(name: &'static str, about: &'static str) -> FactRow {
    FactRow { name, kind: Kind::Flag, unit: "", about, is_free: false }
}

/// Marks a row as gathered in every probe.
const fn free(row: FactRow) -> FactRow {
    FactRow { is_free: true, ..row }
}

/// The facts, grouped by subject, with the names that the adapter's hook sends (`python/gputune/_hook`).
pub const FACTS: &[FactRow] = &[
    free(text("device", "where the model is: `cpu`, `cuda` or another device of the framework")),
    free(text("precision", "of matrix products in the trained modules: `fp32`, `tf32`, `bf16` or `fp16`")),
    free(flag("tf32.convolutions", "whether convolutions may use TF32, which is torch's default; on CUDA")),
    free(number("memory.allocated", "bytes", "peak of the memory of tensors, on the fullest GPU of rank 0")),
    free(number("memory.active", "bytes", "the same, with memory that another stream still uses")),
    free(number("memory.reserved", "bytes", "peak of the memory that torch's allocator holds there, used or not")),
    free(number("memory.inactive_split", "bytes", "peak of the unused parts of that memory that cannot be freed")),
    free(number(
        "memory.fragmentation",
        "share, 0 to 1",
        "the difference of the two peaks over the peak of reserved memory",
    )),
    free(number("accumulation", "count", "how often gradients were computed for the last step of the optimizer")),
    free(number("import_seconds", "s", "how long this process imported modules until its first step")),
    free(number("parameters", "parameters", "size of the trained modules")),
    free(flag(
        "parameters_4d",
        "whether the trained modules have four-dimensional parameters, as two-dimensional convolutions do",
    )),
    free(number("threads", "threads", "threads of one operation on the CPU (`torch.get_num_threads`)")),
    free(flag("compiled", "whether the trained modules are compiled")),
    free(text("optimizer", "class of the optimizer")),
    free(flag("optimizer_fused", "whether the optimizer updates all parameters in one kernel")),
    free(text("keras.backend", "`jax` or `tensorflow`, if Keras's `fit` trains with it")),
    free(number("keras.steps_per_execution", "steps", "steps in each call of Keras's compiled function")),
    free(flag("keras.jit_compile", "whether XLA compiles the steps of Keras")),
    free(text("flash_attention", "whether attention may use a flash kernel: `yes` or `no`; absent without attention")),
    free(number("loader.workers", "processes", "workers of the training loader")),
    free(number("loader.batch_size", "samples", "samples in a batch of the training loader")),
    free(number(
        "loader.batch_size_before",
        "samples",
        "the same before the script changed it while it trained; absent if it did not",
    )),
    free(number(
        "recovery.from",
        "samples",
        "in a batch for which memory ran out, if the script then trained with smaller batches",
    )),
    free(number("recovery.to", "samples", "in these smaller batches")),
    free(number(
        "loader.prefetch_factor",
        "batches",
        "batches that each worker loads in advance; absent without workers",
    )),
    free(flag("loader.pin_memory", "whether the loader is to put batches into page-locked memory")),
    free(flag("loader.persistent_workers", "whether workers live on from epoch to epoch")),
    free(text("loader.dataset", "class of the dataset")),
    free(text(
        "loader.other",
        "what the training loop gets its batches from, if that is no DataLoader: a class, or a generator with `()`",
    )),
    free(text(
        "samples.counted_by",
        "who counts samples: `sampler`, `batch size` (of the loader), `leading dimension of the batch`, `leading dimension \
            of the model's input`, or `the spec` if only `samples_per_step` says it; absent if unknown, or if the script reports its steps itself",
    )),
    free(text("samples.mismatch", "that batches do not look like the samples counted in them; absent where they do")),
    free(number("loader.batches", "batches", "batches of an epoch; absent where the loader does not say")),
    free(number(
        "loader.samples",
        "samples",
        "samples of an epoch in this process; absent where the sampler does not say",
    )),
    free(number("run.epochs", "epochs", "epochs of the whole training, by the script's arguments or its trainer")),
    free(text("run.epochs_option", "the option of the script that sets its epochs, such as `--epochs`")),
    free(number("run.steps", "steps", "steps of the whole training, if the script limits them")),
    free(text("run.steps_option", "the option of the script that limits its steps, such as `--max-steps`")),
    free(text(
        "schedule",
        "the line that makes a schedule of the learning rate for a number of steps, and the kind of schedule; absent \
            for the steps of all epochs",
    )),
    free(number("schedule.steps", "steps", "the number of steps of that schedule")),
    number("epoch_end.seconds", "s", "what an epoch takes in addition to its steps, in epochs of a few batches"),
    number("epoch_end.evaluation_seconds", "s", "the part of it that evaluation takes, scaled to all of its batches"),
    number("trace.steps", "steps", "steps that the profiler recorded"),
    number("trace.step_seconds", "s", "wall time of a recorded step, with the profiler's own work"),
    text("trace.kind", "what was recorded: `kernels` of a GPU, or `operators` on the CPU"),
    text("trace.top", "the kernels or operators with the most time, each with its share, as JSON"),
    number("trace.idle_share", "share, 0 to 1", "share of the recorded time in which no kernel ran"),
    number("trace.copy_overlap", "share, 0 to 1", "share of the time of copies in which a kernel ran"),
    number(
        "trace.sm_efficiency",
        "share, 0 to 1",
        "estimated share of multiprocessors with a block, over the recorded time, from the grids of kernels",
    ),
    number("trace.occupancy", "share, 0 to 1", "estimated occupancy of the multiprocessors, mean over kernels"),
    text("trace.file", "the file of the recorded steps, relative to the folder of the search; gputune adds it"),
    text("trace.error", "why no steps were recorded"),
    free(flag("loader.drop_last", "whether an incomplete last batch is left out")),
    free(number(
        "loader.workers_delivering",
        "workers",
        "workers that have a part of an iterable dataset; absent if all of them have one",
    )),
    free(text(
        "loader.repeats",
        "the `__iter__` of an iterable dataset whose workers all yield the same samples; absent where they do not",
    )),
    free(flag(
        "batch_norm.needs_two_samples",
        "whether batch normalisation fails on a batch of one sample: it then has one value for a channel",
    )),
    free(number("loader.batch_bytes", "bytes", "size of the tensors in a batch")),
    free(flag("loader.batch_pinned", "whether the tensors of a batch are in page-locked memory")),
    free(number("loader.first_batch_seconds", "s", "from the start of the first iteration to its first batch")),
    number("loader.item_seconds", "s", "wall time of one sample in the dataset, mean, in whatever process"),
    number("loader.item_cpu_seconds", "s", "processor time of one sample in the dataset, mean"),
    number(
        "loader.item_seconds_p95",
        "s",
        "wall time of one sample that 95 % stay below, of means over a batch where \
            the dataset is asked for a batch at once",
    ),
    number("loader.collate_seconds", "s", "wall time to make a batch of its samples, mean"),
    number("loader.collate_cpu_seconds", "s", "processor time to make a batch of its samples, mean"),
    number(
        "loader.handing_cpu_seconds",
        "s",
        "processor time of a worker between two batches, mean: pickling, copying to shared memory, writing to a pipe",
    ),
    number("loader.workers_busy", "share, 0 to 1", "of the workers' wall time, that in which they loaded a batch"),
    number("loader.workers_running", "share, 0 to 1", "share of looks at the workers that found a worker computing"),
    number(
        "loader.workers_on_storage",
        "share, 0 to 1",
        "share of looks at the workers that found a worker waiting for storage",
    ),
    number("loader.worker_imbalance", "ratio", "time that the busiest worker worked over the mean of all workers"),
    number(
        "syncs_per_step",
        "count",
        "calls that wait for the device, or read a number of a tensor, in the script's code",
    ),
    number("sync_seconds_per_step", "s", "wall time in them"),
    text("sync_sites", "where they are: `train.py:31 item, ...`, the most frequent first"),
    number("logs_per_step", "count", "writes to the terminal, to log files and through `logging`"),
    number("log_seconds_per_step", "s", "wall time in them"),
    text("log_sites", "where they are, the slowest first"),
    text("lines.main", "lines of the script that the training thread was seen in, as JSON"),
    text("lines.workers", "lines of the script that the training loader's workers were seen in, as JSON"),
    number(
        "lines.cost_share",
        "share, 0 to 1",
        "processor time of looking at the training thread's lines over wall time",
    ),
    number(
        "operation_seconds_per_step",
        "s",
        "wall time of torch's operations that the loop calls between the phases of a step, where the CPU trains",
    ),
    free(number("main_cpu_share", "share, 0 to 1", "processor time of the main thread over wall time")),
    text("files.kind", "what the dataset reads: one of the kinds of files"),
    number("files.opened_per_sample", "files", "files that the dataset opens for a sample"),
    number("files.mean_bytes", "bytes", "mean size of the files that the dataset opened"),
    text("files.path", "the folder below which the dataset opened files"),
    number("files.read_bytes_per_second", "bytes/s", "what the processes read by system calls, cached or not"),
    number("files.cached_share", "share, 0 to 1", "the share of the read bytes that did not come from storage"),
    free(text("distributed.backend", "what the ranks talk by, such as `nccl` or `gloo`; absent with one process")),
    free(text(
        "distributed.wrapper",
        "what exchanges gradients or shards weights: `DistributedDataParallel`, `fully_shard` or \
            `FullyShardedDataParallel`; absent without a training wrapper",
    )),
    free(number("ddp.bucket_cap_mb", "MiB", "gradients that DistributedDataParallel exchanges at once")),
    free(flag("ddp.gradient_as_bucket_view", "whether gradients lie in the buckets that are exchanged")),
    free(flag("ddp.static_graph", "whether the script promises that each step uses the same parameters")),
    free(text(
        "ddp.compression",
        "how gradients are exchanged: `none`, `fp16`, `bf16`, or the name of a communication hook of the script's own",
    )),
    free(flag("fsdp.reshard_after_forward", "whether `fully_shard` gives whole weights back after the forward pass")),
    free(number("fsdp.prefetch_depth", "modules", "how many modules ahead `fully_shard` gathers; 0 if torch decides")),
    free(text("fsdp.sharding_strategy", "of FullyShardedDataParallel, such as `FULL_SHARD`")),
    free(number("step_compute_seconds", "s", "time of a step without data wait and communication, mean; of each rank")),
    free(number(
        "batches.compared",
        "batches",
        "batches whose sizes were compared; absent if all have about the same size",
    )),
    free(number("batches.largest", "ratio", "elements of the largest of these batches over their mean")),
    free(text("batches.not_read", "why the loader cannot be read ahead of training; absent if it can")),
    flag("batches.trained", "whether a step got the largest batch of the loader, or the loader could not be read"),
    number(
        "batches.peak_bytes",
        "bytes",
        "device memory in use until that step, with memory outside of torch; on a CPU the largest size of the process",
    ),
    number("loader_only.rate.W", "samples/s", "rate of the loader alone with W workers"),
    number("loader_only.cores.W", "cores", "processor time of this process and W workers over wall time"),
    number("loader_only.workers_best", "processes", "the number of workers with the highest rate"),
    text("loader_only.error", "why a number of workers has no rate"),
    flag("no_communication", "whether the ranks exchange neither gradients nor weights in this probe"),
    number("replay.batches", "batches", "batches that are kept and replayed"),
];
