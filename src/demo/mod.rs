//! A small but genuine training job on the CPU: PNG files, loader threads, a convolutional network.
//!
//! The job needs no GPU and no Python. It is real in the three settings that the tool searches:
//!
//! * The batch size trades the update of all parameters, paid once per step, against the cache misses of large activations.
//! * The workers are threads that read, decode and augment real files, so they compete with the training thread for cores.
//! * The precision is the storage type of parameters, momentum, gradients, activations and batches.

mod loader;
mod network;
mod pictures;
mod storage;
mod trainer;

pub use storage::DemoMemory;
pub use trainer::{DemoStep, DemoTrainer, DemoTraining};

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{env, fmt, io};

use thiserror::Error;

/// The type in which parameters, momentum, gradients, activations and batches are stored.
///
/// The half precisions take half the memory of `F32`. Their matrix products are computed in 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// IEEE single precision, 4 bytes per value.
    #[default]
    F32,
    /// The upper 16 bits of an `F32`: the same range, 8 bits of precision, 2 bytes per value.
    Bf16,
    /// IEEE half precision, 2 bytes per value. Its gradients are scaled so that they stay above the smallest number of the type.
    F16,
}

impl Precision {
    /// All precisions, the widest first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];
}

impl fmt::Display for Precision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

impl FromStr for Precision {
    type Err = DemoError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.replace("fp", "f");
        Self::ALL.into_iter().find(|precision| precision.to_string() == name).ok_or_else(|| DemoError::InvalidOption {
            option: "precision",
            value: format!("{text:?}"),
            allowed: "f32, bf16 or f16",
        })
    }
}

/// The settings of one run of the demo job.
#[derive(Debug, Clone, PartialEq)]
pub struct DemoOptions {
    /// The samples per step, at least 1. A batch may be larger than the dataset.
    pub batch_size: usize,
    /// The loader threads, at most 256. With 0, the training thread loads its batches itself.
    pub workers: usize,
    /// The batches that each worker loads ahead, from 1 to 1024. Unused without workers.
    pub prefetch: usize,
    /// The storage type of all numbers of the network and the batches.
    pub precision: Precision,
    /// The seed of the initial weights, the sample order and the augmentation.
    pub seed: u64,
    /// The step length of the gradient descent, above 0.
    pub learning_rate: f32,
    /// The folder that keeps the dataset between runs. The job touches only its own entries.
    pub data_dir: PathBuf,
    /// The most bytes that the job may hold at once.
    ///
    /// The limit is never above the memory that the machine or its container reports as available when the job starts.
    /// With `None`, that memory is the limit. If the machine does not report it, `None` means no limit.
    pub memory_limit_bytes: Option<u64>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            batch_size: 64,
            workers: 1,
            prefetch: 2,
            precision: Precision::F32,
            seed: 0,
            learning_rate: 0.005,
            data_dir: cache_folder(),
            memory_limit_bytes: None,
        }
    }
}

impl DemoOptions {
    /// Returns an error for the first option outside its range.
    fn validate(&self) -> Result<(), DemoError> {
        let rows = [
            ("batch_size", self.batch_size, self.batch_size > 0, "1 or more"),
            ("workers", self.workers, self.workers <= 256, "0 to 256"),
            ("prefetch", self.prefetch, self.workers == 0 || (1..=1024).contains(&self.prefetch), "1 to 1024"),
        ];
        match rows.into_iter().find(|(_, _, is_valid, _)| !is_valid) {
            None => Ok(()),
            Some((option, value, _, allowed)) => {
                Err(DemoError::InvalidOption { option, value: value.to_string(), allowed })
            }
        }
    }
}

fn cache_folder() -> PathBuf {
    let absolute_folder = |name| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    absolute_folder("XDG_CACHE_HOME")
        .or_else(|| absolute_folder("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("gputune")
        .join("demo")
}

/// Everything that can go wrong in the demo job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A buffer does not fit into the memory limit, or the allocator refuses it. A smaller job can start in the same process.
    #[error(
        "out of memory: {requested_bytes} bytes requested with {in_use_bytes} bytes in use and {}; \
         try a smaller batch size, fewer workers or a half precision",
        limit_bytes.map_or_else(|| "no known limit".to_owned(), |limit| format!("a limit of {limit} bytes"))
    )]
    OutOfMemory {
        /// The size of the refused buffer; `u64::MAX` if the size itself overflows.
        requested_bytes: u64,
        /// The bytes in use before the request.
        in_use_bytes: u64,
        /// The limit in force, if any.
        limit_bytes: Option<u64>,
    },
    /// A file or folder of the dataset cannot be read or written, or an image is broken.
    #[error("cannot access {}: {source}; check the data folder and its permissions, or delete it to have it written again", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An option has a value that the job cannot run with.
    #[error("option {option} cannot be {value}: use {allowed}")]
    InvalidOption {
        /// The name of the option.
        option: &'static str,
        /// The given value.
        value: String,
        /// The valid values.
        allowed: &'static str,
    },
    /// A worker thread cannot be started or has ended early.
    #[error("data worker {worker} is gone: {reason}; try fewer workers")]
    Worker {
        /// The number of the worker, from 0.
        worker: usize,
        /// The reason why the worker is gone.
        reason: String,
    },
}

impl DemoError {
    /// Adds the path to an error of the operating system or of the PNG format.
    fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_path_buf(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precisions_have_names_and_impossible_values_are_refused_by_name() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse::<Precision>().unwrap(), precision);
        }
        assert_eq!("fp16".parse::<Precision>().unwrap(), Precision::F16);
        let default = DemoOptions::default;
        for (option, refused) in [
            ("precision", "int8".parse::<Precision>().map(drop)),
            ("batch_size", DemoOptions { batch_size: 0, ..default() }.validate()),
            ("workers", DemoOptions { workers: usize::MAX, ..default() }.validate()),
            ("prefetch", DemoOptions { prefetch: 0, ..default() }.validate()),
        ] {
            assert!(refused.unwrap_err().to_string().contains(option), "{option}");
        }
    }
}
