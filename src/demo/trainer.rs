//! The training loop, one step at a time.

use std::fmt;
use std::time::Instant;

use half::{bf16, f16};

use super::batch::Batch;
use super::data_set::DataSet;
use super::engine::{DemoStep, Engine};
use super::error::DemoError;
use super::loader::Loader;
use super::machine::available_memory_bytes;
use super::memory::{DemoMemory, Ledger};
use super::network::Network;
use super::options::DemoOptions;
use super::precision::Precision;
use super::scalar::Scalar;
use super::shape::Shape;

/// A running job: a data set, loader threads and a network in training.
///
/// Dropping it ends its threads and waits for them. Each thread finishes at most one image.
pub struct DemoTrainer {
    engine: Box<dyn Engine>,
    ledger: Ledger,
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

    /// Returns the bytes that the job holds, which do not change between steps.
    pub fn memory(&self) -> DemoMemory {
        self.ledger.memory()
    }

    fn with_shape(options: &DemoOptions, shape: Shape) -> Result<Self, DemoError> {
        options.validate()?;
        let data_set = DataSet::prepare(&options.data_dir, shape)?;
        let limits = [options.memory_limit_bytes, available_memory_bytes()];
        let ledger = Ledger::new(limits.into_iter().flatten().min());
        let engine: Box<dyn Engine> = match options.precision {
            Precision::F32 => Box::new(Training::<f32>::new(&ledger, &data_set, options)?),
            Precision::Bf16 => Box::new(Training::<bf16>::new(&ledger, &data_set, options)?),
            Precision::F16 => Box::new(Training::<f16>::new(&ledger, &data_set, options)?),
        };
        Ok(Self { engine, ledger })
    }
}

impl fmt::Debug for DemoTrainer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DemoTrainer").field("memory", &self.memory()).finish_non_exhaustive()
    }
}

/// A training with numbers of one type.
pub(super) struct Training<S> {
    network: Network<S>,
    batch: Batch<S>,
    loader: Loader<S>,
    learning_rate: f32,
}

impl<S: Scalar> Training<S> {
    /// Allocates everything and starts the workers.
    pub(super) fn new(ledger: &Ledger, data_set: &DataSet, options: &DemoOptions) -> Result<Self, DemoError> {
        let (shape, batch_size) = (*data_set.shape(), options.batch_size);
        Ok(Self {
            network: Network::new(ledger, shape, batch_size, options.seed)?,
            batch: Batch::new(ledger, &shape, batch_size)?,
            loader: Loader::new(ledger, data_set, options)?,
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
    use std::time::Duration;
    use std::{fs, thread};

    use super::super::scratch::ScratchFolder;
    use super::*;

    fn options(scratch: &ScratchFolder) -> DemoOptions {
        DemoOptions {
            batch_size: 16,
            workers: 0,
            seed: 1,
            learning_rate: 0.01,
            data_dir: scratch.path().to_path_buf(),
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
        let scratch = ScratchFolder::new("learn");
        let mut courses = Vec::new();
        for precision in Precision::ALL {
            let course = losses(&DemoOptions { precision, ..options(&scratch) }, 60);
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            let (before, after) = (mean(&course[..4]), mean(&course[50..]));
            assert!(after < before * 0.6, "{precision}: {before} to {after}");
            assert!(!courses.contains(&course), "{precision} is as another");
            courses.push(course);
        }
    }

    #[test]
    fn workers_do_not_change_the_losses() {
        let scratch = ScratchFolder::new("workers");
        let with_workers = |workers, prefetch| {
            let options = DemoOptions { workers, prefetch, ..options(&scratch) };
            losses(&options, 7)
        };
        let inline = with_workers(0, 0);
        assert_eq!(inline, with_workers(1, 2));
        assert_eq!(inline, with_workers(3, 1));
        let other_seed = DemoOptions { seed: 2, ..options(&scratch) };
        assert_ne!(inline, losses(&other_seed, 7));
    }

    #[test]
    fn half_precisions_take_half_the_bytes_per_sample() {
        let scratch = ScratchFolder::new("bytes");
        let sample_bytes = |precision| {
            let bytes = |batch_size| {
                let options = DemoOptions { batch_size, precision, workers: 1, ..options(&scratch) };
                tiny(&options).unwrap().memory().in_use_bytes
            };
            // The labels of the batch in use and of two prefetched batches keep their size.
            (bytes(30) - bytes(20)) / 10 - 3
        };
        let single = sample_bytes(Precision::F32);
        assert_eq!(sample_bytes(Precision::Bf16) * 2, single);
        assert_eq!(sample_bytes(Precision::F16) * 2, single);
    }

    #[test]
    fn the_memory_limit_is_exact_and_survivable() {
        let scratch = ScratchFolder::new("limit");
        let limited = |memory_limit_bytes| DemoOptions { workers: 2, memory_limit_bytes, ..options(&scratch) };
        let peak_bytes = tiny(&limited(None)).unwrap().memory().peak_bytes;
        let error = tiny(&limited(Some(peak_bytes - 1))).unwrap_err();
        assert!(matches!(error, DemoError::OutOfMemory { .. }), "{error}");
        let mut trainer = tiny(&limited(Some(peak_bytes))).unwrap();
        trainer.step().unwrap();
        let memory = trainer.memory();
        assert_eq!(memory.limit_bytes, Some(peak_bytes));
        assert_eq!(memory.peak_bytes, peak_bytes);
    }

    #[test]
    fn absurd_batch_sizes_are_errors() {
        let scratch = ScratchFolder::new("absurd");
        for batch_size in [usize::MAX, usize::MAX / 3000, 1 << 40] {
            let absurd = DemoOptions { batch_size, ..options(&scratch) };
            let error = tiny(&absurd).unwrap_err();
            assert!(matches!(error, DemoError::OutOfMemory { .. }), "{error}");
        }
    }

    #[test]
    fn a_broken_image_reaches_the_training_thread() {
        let scratch = ScratchFolder::new("broken-image");
        let data_set = DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
        fs::write(data_set.image_path(5), "broken").unwrap();
        for workers in [0, 2] {
            let options = DemoOptions { workers, ..options(&scratch) };
            let mut trainer = tiny(&options).unwrap();
            // Four batches of 16 are one epoch of 64 images.
            let error = (0..4).find_map(|_| trainer.step().err()).unwrap();
            assert!(matches!(error, DemoError::Decode { .. }), "{error}");
        }
    }

    #[test]
    fn a_dropped_trainer_ends_its_threads() {
        let scratch = ScratchFolder::new("drop");
        let busy = DemoOptions { batch_size: 3000, workers: 3, ..options(&scratch) };
        let start = Instant::now();
        // The first trainer is dropped within its first batches, the second with its queues full.
        drop(tiny(&busy).unwrap());
        let idle = DemoOptions { batch_size: 1, ..busy };
        let trainer = tiny(&idle).unwrap();
        thread::sleep(Duration::from_millis(50));
        drop(trainer);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
