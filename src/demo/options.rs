//! The options of the demo job and their limits.

use std::env;
use std::path::PathBuf;

use super::error::DemoError;
use super::precision::Precision;

const MAXIMUM_WORKERS: usize = 256;
const MAXIMUM_PREFETCH: usize = 1024;

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
    /// With `None`, the limit is the memory that the machine or its container reports as available when the job starts, if it
    /// reports that.
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
    /// Refuses values that no machine can run with.
    pub(super) fn validate(&self) -> Result<(), DemoError> {
        if self.batch_size == 0 {
            return invalid("batch_size", self.batch_size, "1 or more");
        }
        if self.workers > MAXIMUM_WORKERS {
            return invalid("workers", self.workers, "0 to 256");
        }
        if self.workers > 0 && !(1..=MAXIMUM_PREFETCH).contains(&self.prefetch) {
            return invalid("prefetch", self.prefetch, "1 to 1024");
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return invalid("learning_rate", self.learning_rate, "a number above 0");
        }
        // An empty path would mean the working folder, which is never intended.
        if self.data_dir.as_os_str().is_empty() {
            return invalid("data_dir", "empty", "the path of a folder");
        }
        Ok(())
    }
}

fn invalid(option: &'static str, value: impl ToString, allowed: &'static str) -> Result<(), DemoError> {
    Err(DemoError::InvalidOption { option, value: value.to_string(), allowed })
}

fn cache_folder() -> PathBuf {
    let absolute_folder = |name| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    absolute_folder("XDG_CACHE_HOME")
        .or_else(|| absolute_folder("LOCALAPPDATA"))
        .or_else(|| absolute_folder("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("gputune")
        .join("demo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert!(DemoOptions::default().validate().is_ok());
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        let refused = |change: fn(&mut DemoOptions)| {
            let mut options = DemoOptions::default();
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert!(refused(|options| options.batch_size = 0).contains("batch_size"));
        assert!(refused(|options| options.workers = usize::MAX).contains("workers"));
        assert!(refused(|options| options.prefetch = 0).contains("prefetch"));
        assert!(refused(|options| options.learning_rate = f32::NAN).contains("learning_rate"));
        assert!(refused(|options| options.data_dir = PathBuf::new()).contains("data_dir"));
    }
}
