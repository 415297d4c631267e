//! Delivers batches in order, from loader threads or from the calling thread.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use super::pictures::{Images, Shape, augment, class_of, image_of};
use super::storage::{DemoMemory, Scalar};
use super::{DemoError, DemoOptions};

/// The crops of a batch and their classes.
#[derive(Debug)]
pub(super) struct Batch<S> {
    /// The pixels, one crop after the other.
    pub(super) pixels: Vec<S>,
    /// The class of every crop.
    pub(super) labels: Vec<u8>,
}

impl<S: Scalar> Batch<S> {
    /// Allocates an empty batch.
    pub(super) fn new(memory: &mut DemoMemory, shape: &Shape, batch_size: usize) -> Result<Self, DemoError> {
        Ok(Self { pixels: memory.buffer(&[batch_size, shape.crop_values()])?, labels: memory.buffer(&[batch_size])? })
    }
}

/// Fills batches. The same batch number gives the same samples in every filler.
#[derive(Debug)]
struct Filler {
    images: Images,
    seed: u64,
    image: Vec<u8>,
    crop: Vec<f32>,
    /// Once true, a filler stops in the middle of a batch.
    stop: Arc<AtomicBool>,
}

impl Filler {
    fn new(memory: &mut DemoMemory, images: &Images, seed: u64, stop: &Arc<AtomicBool>) -> Result<Self, DemoError> {
        Ok(Self {
            seed,
            image: memory.buffer(&[images.shape.image_bytes()])?,
            crop: memory.buffer(&[images.shape.crop_values()])?,
            images: images.clone(),
            stop: Arc::clone(stop),
        })
    }

    fn fill<S: Scalar>(&mut self, number: u64, batch: &mut Batch<S>) -> Result<(), DemoError> {
        let first = number.wrapping_mul(batch.labels.len() as u64);
        let crops = batch.pixels.chunks_exact_mut(self.crop.len());
        for (index, (crop, label)) in (0_u64..).zip(crops.zip(batch.labels.iter_mut())) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let sample = first.wrapping_add(index);
            let image = image_of(self.seed, sample, &self.images.shape);
            self.images.decode(image, &mut self.image)?;
            augment(self.seed, sample, &self.images.shape, &self.image, &mut self.crop);
            S::store(&self.crop, crop);
            *label = class_of(image) as u8;
        }
        Ok(())
    }
}

/// The source of all batches of one run. Dropping it ends its threads and waits for them.
#[derive(Debug)]
pub(super) struct Loader<S> {
    next: u64,
    /// Fills the batches if the loader has no workers.
    filler: Filler,
    workers: Vec<Worker<S>>,
    stop: Arc<AtomicBool>,
}

/// One loader thread with its two queues. The batches in circulation bound both queues: a worker that is ahead waits for an
/// empty batch.
#[derive(Debug)]
struct Worker<S> {
    empty: Sender<Batch<S>>,
    filled: Receiver<Result<Batch<S>, DemoError>>,
    thread: JoinHandle<()>,
}

impl<S: Scalar> Loader<S> {
    /// Allocates all batches that are ever loaded ahead, and starts the workers.
    pub(super) fn new(memory: &mut DemoMemory, images: &Images, options: &DemoOptions) -> Result<Self, DemoError> {
        let stop = Arc::new(AtomicBool::new(false));
        let filler = Filler::new(memory, images, options.seed, &stop)?;
        let mut loader = Self { next: 0, filler, workers: Vec::new(), stop: Arc::clone(&stop) };
        for worker in 0..options.workers {
            let mut filler = Filler::new(memory, images, options.seed, &stop)?;
            let ((empty, take_empty), (give_filled, filled)) = (channel(), channel());
            for _ in 0..options.prefetch {
                // The receiver still exists here, so the batch always arrives.
                let _ = empty.send(Batch::new(memory, &images.shape, options.batch_size)?);
            }
            let (first, stride) = (worker as u64, options.workers);
            let thread = thread::Builder::new()
                .name(format!("demo-loader-{worker}"))
                .spawn(move || {
                    for number in (first..).step_by(stride) {
                        let Ok(mut batch): Result<Batch<S>, _> = take_empty.recv() else { return };
                        let outcome = filler.fill(number, &mut batch).map(|()| batch);
                        let has_failed = outcome.is_err();
                        if give_filled.send(outcome).is_err() || has_failed {
                            return;
                        }
                    }
                })
                .map_err(|error| DemoError::Worker { worker, reason: error.to_string() })?;
            loader.workers.push(Worker { empty, filled, thread });
        }
        Ok(loader)
    }

    /// Exchanges a used batch for the next batch.
    pub(super) fn exchange(&mut self, batch: &mut Batch<S>) -> Result<(), DemoError> {
        let number = self.next;
        self.next += 1;
        if self.workers.is_empty() {
            return self.filler.fill(number, batch);
        }
        let worker = (number % self.workers.len() as u64) as usize;
        let Worker { empty, filled, .. } = &self.workers[worker];
        let gone = |_| DemoError::Worker { worker, reason: "it has stopped after an error".to_owned() };
        let used = mem::replace(batch, filled.recv().map_err(gone)??);
        // A worker that no longer takes batches has ended. Its error is next in the queue.
        let _ = empty.send(used);
        Ok(())
    }
}

impl<S> Drop for Loader<S> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // All queues close before the first wait, so that the threads end in parallel.
        let threads: Vec<_> = self.workers.drain(..).map(|worker| worker.thread).collect();
        for thread in threads {
            // A panic of the thread has already been reported by its closed queue.
            let _ = thread.join();
        }
    }
}
