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

/// Every probe gathers the fact, or only an experiment does.
const FREE: bool = true;
const EXTRA: bool = false;

/// Makes [`FACTS`] from rows: [`FREE`] or [`EXTRA`], the kind, the name, the unit, and the meaning.
macro_rules! facts {
    ($($free:ident $kind:ident $name:literal $unit:literal: $about:literal;)*) => {
        /// The facts, grouped by subject, with the names that the adapter's hook sends (`python/gputune/_hook`).
        pub const FACTS: &[FactRow] = &[$(FactRow {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            about: $about,
            is_free: $free,
        }),*];
    };
}

facts! {
    FREE Text "device" "": "where the model is: `cpu`, `cuda` or another device of the framework";
    FREE Text "precision" "": "of matrix products in the trained modules: `fp32`, `tf32`, `bf16` or `fp16`";
    FREE Flag "tf32.convolutions" "": "whether convolutions may use TF32, which is torch's default; on CUDA";
    FREE Number "memory.allocated" "bytes": "peak of the memory of tensors, on the fullest GPU of rank 0";
    FREE Number "memory.active" "bytes": "the same, with memory that another stream still uses";
    FREE Number "memory.reserved" "bytes": "peak of the memory that torch's allocator holds there, used or not";
    FREE Number "memory.inactive_split" "bytes": "peak of the unused parts of that memory that cannot be freed";
    FREE Number "memory.fragmentation" "share, 0 to 1":
        "the difference of the two peaks over the peak of reserved memory";
    FREE Number "accumulation" "count": "how often gradients were computed for the last step of the optimizer";
    FREE Number "import_seconds" "s": "how long this process imported modules until its first step";
    FREE Number "parameters" "parameters": "size of the trained modules";
    FREE Flag "parameters_4d" "":
        "whether the trained modules have four-dimensional parameters, as two-dimensional convolutions do";
    FREE Number "threads" "threads": "threads of one operation on the CPU (`torch.get_num_threads`)";
    FREE Flag "compiled" "": "whether the trained modules are compiled";
    FREE Text "optimizer" "": "class of the optimizer";
    FREE Flag "optimizer_fused" "": "whether the optimizer updates all parameters in one kernel";
    FREE Text "keras.backend" "": "`jax` or `tensorflow`, if Keras's `fit` trains with it";
    FREE Number "keras.steps_per_execution" "steps": "steps in each call of Keras's compiled function";
    FREE Flag "keras.jit_compile" "": "whether XLA compiles the steps of Keras";
    FREE Text "flash_attention" "": "whether attention may use a flash kernel: `yes` or `no`; absent without attention";
    FREE Number "loader.workers" "processes": "workers of the training loader";
    FREE Number "loader.batch_size" "samples": "samples in a batch of the training loader";
    FREE Number "loader.batch_size_before" "samples":
        "the same before the script changed it while it trained; absent if it did not";
    FREE Number "recovery.from" "samples":
        "in a batch for which memory ran out, if the script then trained with smaller batches";
    FREE Number "recovery.to" "samples": "in these smaller batches";
    FREE Number "loader.prefetch_factor" "batches": "batches that each worker loads in advance; absent without workers";
    FREE Flag "loader.pin_memory" "": "whether the loader is to put batches into page-locked memory";
    FREE Flag "loader.persistent_workers" "": "whether workers live on from epoch to epoch";
    FREE Text "loader.dataset" "": "class of the dataset";
    FREE Text "loader.other" "":
        "what the training loop gets its batches from, if that is no DataLoader: a class, or a generator with `()`";
    FREE Text "samples.counted_by" "":
        "who counts samples: `sampler`, `batch size` (of the loader), `leading dimension of the batch`, `leading dimension \
            of the model's input`, or `the spec` if only `samples_per_step` says it; absent if unknown, or if the script reports its steps itself";
    FREE Text "samples.mismatch" "": "that batches do not look like the samples counted in them; absent where they do";
    FREE Number "loader.batches" "batches": "batches of an epoch; absent where the loader does not say";
    FREE Number "loader.samples" "samples":
        "samples of an epoch in this process; absent where the sampler does not say";
    FREE Number "run.epochs" "epochs": "epochs of the whole training, by the script's trainer, arguments or variables";
    FREE Text "run.epochs_option" "": "the option of the script that sets its epochs, such as `--epochs`";
    FREE Number "run.steps" "steps": "steps of the whole training, if the script limits them";
    FREE Text "run.steps_option" "": "the option of the script that limits its steps, such as `--max-steps`";
    FREE Text "schedule" "":
        "the line that makes a schedule of the learning rate for a number of steps, and the kind of schedule; absent \
            for the steps of all epochs";
    FREE Number "schedule.steps" "steps": "the number of steps of that schedule";
    EXTRA Number "epoch_end.seconds" "s": "what an epoch takes in addition to its steps, in epochs of a few batches";
    EXTRA Number "epoch_end.evaluation_seconds" "s":
        "the part of it that evaluation takes, scaled to all of its batches";
    EXTRA Number "trace.steps" "steps": "steps that the profiler recorded";
    EXTRA Number "trace.step_seconds" "s": "wall time of a recorded step, with the profiler's own work";
    EXTRA Text "trace.kind" "": "what was recorded: `kernels` of a GPU, or `operators` on the CPU";
    EXTRA Text "trace.top" "": "the kernels or operators with the most time, each with its share, as JSON";
    EXTRA Number "trace.idle_share" "share, 0 to 1": "share of the recorded time in which no kernel ran";
    EXTRA Number "trace.copy_overlap" "share, 0 to 1": "share of the time of copies in which a kernel ran";
    EXTRA Number "trace.sm_efficiency" "share, 0 to 1":
        "estimated share of multiprocessors with a block, over the recorded time, from the grids of kernels";
    EXTRA Number "trace.occupancy" "share, 0 to 1": "estimated occupancy of the multiprocessors, mean over kernels";
    EXTRA Text "trace.file" "": "the file of the recorded steps, relative to the folder of the search; gputune adds it";
    EXTRA Text "trace.error" "": "why no steps were recorded";
    FREE Flag "loader.drop_last" "": "whether an incomplete last batch is left out";
    FREE Number "loader.workers_delivering" "workers":
        "workers that have a part of an iterable dataset; absent if all of them have one";
    FREE Text "loader.repeats" "":
        "the `__iter__` of an iterable dataset whose workers all yield the same samples; absent where they do not";
    FREE Flag "batch_norm.needs_two_samples" "":
        "whether batch normalisation fails on a batch of one sample: it then has one value for a channel";
    FREE Number "loader.batch_bytes" "bytes": "size of the tensors in a batch";
    FREE Flag "loader.batch_pinned" "": "whether the tensors of a batch are in page-locked memory";
    FREE Number "loader.first_batch_seconds" "s": "from the start of the first iteration to its first batch";
    EXTRA Number "loader.item_seconds" "s": "wall time of one sample in the dataset, mean, in whatever process";
    EXTRA Number "loader.item_cpu_seconds" "s": "processor time of one sample in the dataset, mean";
    EXTRA Number "loader.item_seconds_p95" "s":
        "wall time of one sample that 95 % stay below, of means over a batch where \
            the dataset is asked for a batch at once";
    EXTRA Number "loader.collate_seconds" "s": "wall time to make a batch of its samples, mean";
    EXTRA Number "loader.collate_cpu_seconds" "s": "processor time to make a batch of its samples, mean";
    EXTRA Number "loader.handing_cpu_seconds" "s":
        "processor time of a worker between two batches, mean: pickling, copying to shared memory, writing to a pipe";
    EXTRA Number "loader.workers_busy" "share, 0 to 1": "of the workers' wall time, that in which they loaded a batch";
    EXTRA Number "loader.workers_running" "share, 0 to 1":
        "share of looks at the workers that found a worker computing";
    EXTRA Number "loader.workers_on_storage" "share, 0 to 1":
        "share of looks at the workers that found a worker waiting for storage";
    EXTRA Number "loader.worker_imbalance" "ratio": "time that the busiest worker worked over the mean of all workers";
    EXTRA Number "syncs_per_step" "count":
        "calls that wait for the device, or read a number of a tensor, in the script's code";
    EXTRA Number "sync_seconds_per_step" "s": "wall time in them";
    EXTRA Text "sync_sites" "": "where they are: `train.py:31 item, ...`, the most frequent first";
    EXTRA Number "logs_per_step" "count": "writes to the terminal, to log files and through `logging`";
    EXTRA Number "log_seconds_per_step" "s": "wall time in them";
    EXTRA Text "log_sites" "": "where they are, the slowest first";
    EXTRA Text "lines.main" "": "lines of the script that the training thread was seen in, as JSON";
    EXTRA Text "lines.workers" "": "lines of the script that the training loader's workers were seen in, as JSON";
    EXTRA Number "lines.cost_share" "share, 0 to 1":
        "processor time of looking at the training thread's lines over wall time";
    EXTRA Number "operation_seconds_per_step" "s":
        "wall time of torch's operations that the loop calls between the phases of a step, where the CPU trains";
    FREE Number "main_cpu_share" "share, 0 to 1": "processor time of the main thread over wall time";
    EXTRA Text "files.kind" "": "what the dataset reads: one of the kinds of files";
    EXTRA Number "files.opened_per_sample" "files": "files that the dataset opens for a sample";
    EXTRA Number "files.mean_bytes" "bytes": "mean size of the files that the dataset opened";
    EXTRA Text "files.path" "": "the folder below which the dataset opened files";
    EXTRA Number "files.read_bytes_per_second" "bytes/s": "what the processes read by system calls, cached or not";
    EXTRA Number "files.cached_share" "share, 0 to 1": "the share of the read bytes that did not come from storage";
    FREE Text "distributed.backend" "": "what the ranks talk by, such as `nccl` or `gloo`; absent with one process";
    FREE Text "distributed.wrapper" "":
        "what exchanges gradients or shards weights: `DistributedDataParallel`, `fully_shard` or \
            `FullyShardedDataParallel`; absent without a training wrapper";
    FREE Number "ddp.bucket_cap_mb" "MiB": "gradients that DistributedDataParallel exchanges at once";
    FREE Flag "ddp.gradient_as_bucket_view" "": "whether gradients lie in the buckets that are exchanged";
    FREE Flag "ddp.static_graph" "": "whether the script promises that each step uses the same parameters";
    FREE Text "ddp.compression" "":
        "how gradients are exchanged: `none`, `fp16`, `bf16`, or the name of a communication hook of the script's own";
    FREE Flag "fsdp.reshard_after_forward" "": "whether `fully_shard` gives whole weights back after the forward pass";
    FREE Number "fsdp.prefetch_depth" "modules": "how many modules ahead `fully_shard` gathers; 0 if torch decides";
    FREE Text "fsdp.sharding_strategy" "": "of FullyShardedDataParallel, such as `FULL_SHARD`";
    FREE Number "step_compute_seconds" "s": "time of a step without data wait and communication, mean; of each rank";
    FREE Number "batches.compared" "batches":
        "batches whose sizes were compared; absent if all have about the same size";
    FREE Number "batches.largest" "ratio": "elements of the largest of these batches over their mean";
    FREE Text "batches.not_read" "": "why the loader cannot be read ahead of training; absent if it can";
    EXTRA Flag "batches.trained" "":
        "whether a step got the largest batch of the loader, or the loader could not be read";
    EXTRA Number "batches.peak_bytes" "bytes":
        "device memory in use until that step, with memory outside of torch; on a CPU the largest size of the process";
    EXTRA Number "loader_only.rate.W" "samples/s": "rate of the loader alone with W workers";
    EXTRA Number "loader_only.cores.W" "cores": "processor time of this process and W workers over wall time";
    EXTRA Number "loader_only.workers_best" "processes": "the number of workers with the highest rate";
    EXTRA Text "loader_only.error" "": "why a number of workers has no rate";
    EXTRA Flag "no_communication" "": "whether the ranks exchange neither gradients nor weights in this probe";
    EXTRA Number "replay.batches" "batches": "batches that are kept and replayed";
}
