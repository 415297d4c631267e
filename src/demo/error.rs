//! The errors of the demo job.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Everything that can go wrong in the demo job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A buffer does not fit into the memory limit, or the allocator refuses it.
    ///
    /// Nothing has been allocated for the request. The job can be dropped, and a smaller job can start in the same process.
    #[error(
        "out of memory: {requested_bytes} bytes requested with {in_use_bytes} bytes in use and {}; \
         try a smaller batch size, fewer workers or a half precision",
        limit_text(.limit_bytes)
    )]
    OutOfMemory {
        /// The size of the refused buffer; `u64::MAX` if the size itself overflows.
        requested_bytes: u64,
        /// The bytes in use before the request.
        in_use_bytes: u64,
        /// The limit in force, if any.
        limit_bytes: Option<u64>,
    },
    /// A file or folder of the data set cannot be read or written.
    #[error("cannot access {}: {source}; check the data folder and its permissions", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An image of the data set cannot be decoded or encoded.
    #[error("broken image {}: {reason}; delete its folder to have it written again", path.display())]
    Decode {
        /// The image file.
        path: PathBuf,
        /// The defect of the image.
        reason: String,
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
    /// Adds the path to an error of the operating system.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source }
    }

    /// Adds the file to an error of the PNG format.
    pub(super) fn image(path: &Path, reason: impl ToString) -> Self {
        Self::Decode { path: path.to_path_buf(), reason: reason.to_string() }
    }
}

fn limit_text(limit_bytes: &Option<u64>) -> String {
    match limit_bytes {
        Some(limit) => format!("a limit of {limit} bytes"),
        None => "no known limit".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_place_and_help() {
        let error = DemoError::OutOfMemory { requested_bytes: 30, in_use_bytes: 20, limit_bytes: Some(40) };
        assert_eq!(
            error.to_string(),
            "out of memory: 30 bytes requested with 20 bytes in use and a limit of 40 bytes; \
             try a smaller batch size, fewer workers or a half precision"
        );
        let error = DemoError::image(Path::new("data/3.png"), "cut short");
        assert!(error.to_string().contains("data/3.png"));
    }
}
