//! The errors of the demo job.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

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
    pub(super) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_path_buf(), source: source.into() }
    }
}
