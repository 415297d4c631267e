//! The training loop, one step at a time.

use std::time::{Duration, Instant};

use half::{bf16, f16};

use super::error::DemoError;
use super::images::Images;
use super::loader::{Batch, Loader};
use super::memory::DemoMemory;
use super::network::Network;
use super::options::{DemoOptions, Precision};
use super::scalar::Scalar;
use super::shape::Shape;
use crate::machine::HostMemory;

/// The results of one training step, and the duration of its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DemoStep {
    /// The samples in the batch.
    pub samples: u64,
    /// The mean cross-entropy of the batch before the update.
    pub loss: f64,
    /// The wait for the batch. Without workers, the time to load the batch.
    pub data_wait: Duration,
    /// The computation of the loss.
    pub forward: Duration,
    /// The computation of the gradients.
    pub backward: Duration,
    /// The update of all parameters.
    pub update: Duration,
}

/// A training of any precision.
trait Engine: std::fmt::Debug + Send {
    /// Trains one batch.
    fn step(&mut self) -> Result<DemoStep, DemoError>;
}

/// A running job: a dataset, loader threads and a network in training.
///
/// Dropping it ends its threads and waits for them. Each thread finishes at most one image.
#[derive(Debug)]
pub struct DemoTrainer {
    engine: Box<dyn Engine>,
    memory: DemoMemory,
}

impl DemoTrainer {
    /// Writes the dataset if it is missing, allocates all memory and starts the workers.
    ///
    /// # Errors
    ///
    /// Returns an error for an option outside its range, an unusable data folder, or settings that need more memory than available.
    pub fn new(options: &DemoOptions) -> Result<Self, DemoError> {
        Self::with_shape(options, Shape::STANDARD)
    }

    /// Trains one batch.
    ///
    /// # Errors
    ///
    /// Returns an error if the training thread or a worker cannot read an image. The job cannot continue after that.
    pub fn step(&mut self) -> Result<DemoStep, DemoError> {
        self.engine.step()
    }

    /// Returns the bytes that the job holds.
    pub fn memory(&self) -> DemoMemory {
        self.memory
    }

    fn with_shape(options: &DemoOptions, shape: Shape) -> Result<Self, DemoError> {
        options.validate()?;
        let images = Images::prepare(&options.data_dir, shape)?;
        let available = HostMemory::read().map(|memory| memory.available_bytes);
        let limits = [options.memory_limit_bytes, available];
        let mut memory = DemoMemory { bytes: 0, limit_bytes: limits.into_iter().flatten().min() };
        let engine: Box<dyn Engine> = match options.precision {
            Precision::F32 => Box::new(Training::<f32>::new(&mut memory, &images, options)?),
            Precision::Bf16 => Box::new(Training::<bf16>::new(&mut memory, &images, options)?),
            Precision::F16 => Box::new(Training::<f16>::new(&mut memory, &images, options)?),
        };
        Ok(Self { engine, memory })
    }
}

/// A training with numbers of one type.
#[derive(Debug)]
struct Training<S> {
    network: Network<S>,
    batch: Batch<S>,
    loader: Loader<S>,
    learning_rate: f32,
}

impl<S: Scalar> Training<S> {
    /// Allocates everything and starts the workers.
    fn new(memory: &mut DemoMemory, images: &Images, options: &DemoOptions) -> Result<Self, DemoError> {
        let (shape, batch_size) = (images.shape, options.batch_size);
        Ok(Self {
            network: Network::new(memory, shape, batch_size, options.seed)?,
            batch: Batch::new(memory, &shape, batch_size)?,
            loader: Loader::new(memory, images, options)?,
            learning_rate: options.learning_rate,
        })
    }
}

impl<S: Scalar> Engine for Training<S> {
    fn step(&mut self) -> Result<DemoStep, DemoError> {
        let start = Instant::now();
        self.loader.exchange(&mut self.batch)?;
        let loaded = Instant::now();
        let loss = self.network.forward(&self.batch);
        let predicted = Instant::now();
        self.network.backward();
        let derived = Instant::now();
        self.network.update(self.learning_rate);
        let updated = Instant::now();
        Ok(DemoStep {
            samples: self.batch.labels.len() as u64,
            loss,
            data_wait: loaded - start,
            forward: predicted - loaded,
            backward: derived - predicted,
            update: updated - derived,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::{TempDir, tempdir};

    use super::*;

    fn options(folder: &TempDir) -> DemoOptions {
        DemoOptions {
            batch_size: 16,
            workers: 0,
            seed: 1,
            learning_rate: 0.01,
            data_dir: folder.path().to_path_buf(),
            ..DemoOptions::default()
        }
    }

    fn tiny(options: &DemoOptions) -> Result<DemoTrainer, DemoError> {
        DemoTrainer::with_shape(options, Shape::TINY)
    }

    fn losses(options: &DemoOptions, steps: usize) -> Vec<f64> {
        let mut trainer = tiny(options).unwrap();
        (0..steps).map(|_| trainer.step().unwrap().loss).collect()
    }

    #[test]
    fn the_loss_falls_in_every_precision_and_differs_between_them() {
        let folder = tempdir().unwrap();
        let mut courses = Vec::new();
        for precision in Precision::ALL {
            let course = losses(&DemoOptions { precision, ..options(&folder) }, 60);
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            let (before, after) = (mean(&course[..4]), mean(&course[50..]));
            assert!(after < before * 0.6, "{precision}: {before} to {after}");
            assert!(!courses.contains(&course), "{precision} is as another");
            courses.push(course);
        }
    }

    #[test]
    fn workers_do_not_change_the_losses() {
        let folder = tempdir().unwrap();
        let with = |workers, prefetch| losses(&DemoOptions { workers, prefetch, ..options(&folder) }, 7);
        let inline = with(0, 0);
        assert_eq!(inline, with(1, 2));
        assert_eq!(inline, with(3, 1));
        assert_ne!(inline, losses(&DemoOptions { seed: 2, ..options(&folder) }, 7));
    }

    #[test]
    fn half_precisions_take_half_the_bytes_per_sample() {
        let folder = tempdir().unwrap();
        let sample_bytes = |precision| {
            let bytes = |batch_size| {
                tiny(&DemoOptions { batch_size, precision, workers: 1, ..options(&folder) }).unwrap().memory().bytes
            };
            // The labels of the batch in use and of two prefetched batches keep their size.
            (bytes(30) - bytes(20)) / 10 - 3
        };
        assert_eq!(sample_bytes(Precision::Bf16) * 2, sample_bytes(Precision::F32));
        assert_eq!(sample_bytes(Precision::F16) * 2, sample_bytes(Precision::F32));
    }

    #[test]
    fn the_memory_limit_is_exact_and_absurd_batch_sizes_are_errors() {
        let folder = tempdir().unwrap();
        let limited = |memory_limit_bytes| DemoOptions { workers: 2, memory_limit_bytes, ..options(&folder) };
        let bytes = tiny(&limited(None)).unwrap().memory().bytes;
        assert!(tiny(&limited(Some(bytes))).unwrap().step().is_ok());
        let absurd = |batch_size| DemoOptions { batch_size, ..options(&folder) };
        for options in [limited(Some(bytes - 1)), absurd(usize::MAX), absurd(usize::MAX / 3000), absurd(1 << 40)] {
            assert!(matches!(tiny(&options), Err(DemoError::OutOfMemory { .. })), "{options:?}");
        }
    }

    #[test]
    fn a_broken_image_reaches_the_training_thread() {
        let folder = tempdir().unwrap();
        let images = Images::prepare(folder.path(), Shape::TINY).unwrap();
        fs::write(images.path(5), "broken").unwrap();
        for workers in [0, 2] {
            let mut trainer = tiny(&DemoOptions { workers, ..options(&folder) }).unwrap();
            // Four batches of 16 are one epoch of 64 images.
            let error = (0..4).find_map(|_| trainer.step().err()).unwrap();
            assert!(matches!(error, DemoError::Io { .. }), "{error}");
        }
    }
}
