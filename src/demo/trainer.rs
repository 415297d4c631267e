//! The training loop, one step at a time, also as a [`TrainingStep`] for a search inside one process.

use std::fmt;
use std::time::{Duration, Instant};

use half::{bf16, f16};

use super::loader::{Batch, Loader};
use super::network::Network;
use super::pictures::{Images, Shape};
use super::storage::{DemoMemory, Scalar};
use super::{DemoError, DemoOptions, Precision};
use crate::machine::HostMemory;
use crate::model::Settings;
use crate::probe::{Step, StepError, TrainingStep};

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

/// A running job: a dataset, loader threads and a network in training.
///
/// Dropping it ends its threads and waits for them. Each thread finishes at most one image.
pub struct DemoTrainer {
    train: Box<dyn FnMut() -> Result<DemoStep, DemoError> + Send>,
    memory: DemoMemory,
}

impl fmt::Debug for DemoTrainer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DemoTrainer").field("memory", &self.memory).finish_non_exhaustive()
    }
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
        (self.train)()
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
        let memory = DemoMemory { bytes: 0, limit_bytes: limits.into_iter().flatten().min() };
        match options.precision {
            Precision::F32 => Self::of_type::<f32>(memory, &images, options),
            Precision::Bf16 => Self::of_type::<bf16>(memory, &images, options),
            Precision::F16 => Self::of_type::<f16>(memory, &images, options),
        }
    }

    /// Allocates everything for numbers of one type and starts the workers.
    fn of_type<S: Scalar>(mut memory: DemoMemory, images: &Images, options: &DemoOptions) -> Result<Self, DemoError> {
        let (shape, batch_size, learning_rate) = (images.shape, options.batch_size, options.learning_rate);
        let mut network = Network::<S>::new(&mut memory, shape, batch_size, options.seed)?;
        let mut batch = Batch::new(&mut memory, &shape, batch_size)?;
        let mut loader = Loader::new(&mut memory, images, options)?;
        let train = move || {
            let start = Instant::now();
            loader.exchange(&mut batch)?;
            let loaded = Instant::now();
            let loss = network.forward(&batch);
            let predicted = Instant::now();
            network.backward();
            let derived = Instant::now();
            network.update(learning_rate);
            Ok(DemoStep {
                samples: batch.labels.len() as u64,
                loss,
                data_wait: loaded - start,
                forward: predicted - loaded,
                backward: derived - predicted,
                update: derived.elapsed(),
            })
        };
        Ok(Self { train: Box::new(train), memory })
    }
}

/// Trains with the settings `batch_size`, `workers`, `prefetch` and `precision`, if the space has them.
#[derive(Debug, Default)]
pub struct DemoTraining {
    options: DemoOptions,
    trainer: Option<DemoTrainer>,
}

impl DemoTraining {
    /// Makes a training with these options. The settings of the space override them.
    pub fn new(options: DemoOptions) -> Self {
        Self { options, trainer: None }
    }

    /// Returns the options with the settings in place of their values.
    fn with(options: &DemoOptions, settings: &Settings) -> Result<DemoOptions, StepError> {
        let number = |name: &str, default: usize| match settings.get(name) {
            None => Ok(default),
            Some(value) => (value.as_i64().and_then(|number| usize::try_from(number).ok()))
                .ok_or_else(|| StepError::Rejected(format!("`{name}` is {value}, and must be a whole number"))),
        };
        Ok(DemoOptions {
            batch_size: number("batch_size", options.batch_size)?,
            workers: number("workers", options.workers)?,
            prefetch: number("prefetch", options.prefetch)?,
            precision: match settings.text("precision") {
                Some(text) => text.parse::<Precision>()?,
                None => options.precision,
            },
            ..options.clone()
        })
    }
}

impl TrainingStep for DemoTraining {
    fn prepare(&mut self, settings: &Settings) -> Result<(), StepError> {
        self.trainer = Some(DemoTrainer::new(&Self::with(&self.options, settings)?)?);
        Ok(())
    }

    fn step(&mut self, settings: &Settings) -> Result<Step, StepError> {
        let trainer = match &mut self.trainer {
            Some(trainer) => trainer,
            none => none.insert(DemoTrainer::new(&Self::with(&self.options, settings)?)?),
        };
        let step = trainer.step()?;
        let memory = trainer.memory();
        Ok(Step::new(step.samples)
            .loss(step.loss)
            .memory(memory.bytes, memory.limit_bytes)
            .phase("data_wait", step.data_wait)
            .phase("forward", step.forward)
            .phase("backward", step.backward)
            .phase("optimizer", step.update))
    }

    fn release(&mut self) {
        self.trainer = None;
    }
}

impl From<DemoError> for StepError {
    fn from(error: DemoError) -> Self {
        match error {
            DemoError::OutOfMemory { .. } => Self::OutOfMemory(error.to_string()),
            DemoError::InvalidOption { .. } => Self::Rejected(error.to_string()),
            error => Self::Failed(Box::new(error)),
        }
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
    fn workers_change_neither_the_losses_nor_the_error_of_a_broken_image() {
        let folder = tempdir().unwrap();
        let with = |workers, prefetch| DemoOptions { workers, prefetch, ..options(&folder) };
        let inline = losses(&with(0, 0), 7);
        assert_eq!(inline, losses(&with(1, 2), 7));
        assert_eq!(inline, losses(&with(3, 1), 7));
        assert_ne!(inline, losses(&DemoOptions { seed: 2, ..options(&folder) }, 7));
        fs::write(Images::prepare(folder.path(), Shape::TINY).unwrap().path(5), "broken").unwrap();
        for workers in [0, 2] {
            let mut trainer = tiny(&with(workers, 2)).unwrap();
            // Four batches of 16 are one epoch of 64 images.
            let error = (0..4).find_map(|_| trainer.step().err()).unwrap();
            assert!(matches!(error, DemoError::Io { .. }), "{error}");
        }
    }

    #[test]
    fn half_precisions_take_half_the_bytes_and_the_memory_limit_is_exact() {
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
        let limited = |memory_limit_bytes| DemoOptions { workers: 2, memory_limit_bytes, ..options(&folder) };
        let bytes = tiny(&limited(None)).unwrap().memory().bytes;
        assert!(tiny(&limited(Some(bytes))).unwrap().step().is_ok());
        let absurd = |batch_size| DemoOptions { batch_size, ..options(&folder) };
        for options in [limited(Some(bytes - 1)), absurd(usize::MAX), absurd(usize::MAX / 3000), absurd(1 << 40)] {
            assert!(matches!(tiny(&options), Err(DemoError::OutOfMemory { .. })), "{options:?}");
        }
    }

    #[test]
    fn settings_choose_the_options_and_bad_ones_are_refused() {
        let training = DemoTraining::default();
        let settings: Settings = [("batch_size", 8), ("workers", 2)].into_iter().collect();
        let options = DemoTraining::with(&training.options, &settings).unwrap();
        assert_eq!((options.batch_size, options.workers), (8, 2));
        for setting in [("batch_size", "many"), ("precision", "f64")] {
            let options = DemoTraining::with(&training.options, &[setting].into_iter().collect());
            assert!(matches!(options, Err(StepError::Rejected(_))));
        }
    }
}
