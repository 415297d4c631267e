//! The loader threads and the queues between them and the training thread.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use super::batch::{Batch, BatchFiller};
use super::data_set::DataSet;
use super::error::DemoError;
use super::memory::Ledger;
use super::options::DemoOptions;
use super::scalar::Scalar;

/// All loader threads of one run. Dropping them ends the threads and waits for them.
#[derive(Debug)]
pub(super) struct Workers<S> {
    stop: Arc<AtomicBool>,
    workers: Vec<Worker<S>>,
}

impl<S: Scalar> Workers<S> {
    /// Allocates the batches that circulate and starts the threads.
    pub(super) fn start(ledger: &Ledger, data_set: &DataSet, options: &DemoOptions) -> Result<Self, DemoError> {
        let mut pool = Self { stop: Arc::new(AtomicBool::new(false)), workers: Vec::new() };
        for index in 0..options.workers {
            let job = Job {
                filler: BatchFiller::new(ledger, data_set, options.seed)?,
                first_number: index as u64,
                stride: options.workers as u64,
                stop: Arc::clone(&pool.stop),
            };
            let (give_empty, take_empty) = channel();
            for _ in 0..options.prefetch {
                let batch = Batch::new(ledger, data_set.shape(), options.batch_size)?;
                // The receiver still exists here, so the batch always arrives.
                let _ = give_empty.send(batch);
            }
            let worker = Worker::start(index, job, give_empty, take_empty)?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Exchanges a used batch for batch `number`, which must count up from 0.
    pub(super) fn exchange(&self, number: u64, batch: &mut Batch<S>) -> Result<(), DemoError> {
        let index = (number % self.workers.len() as u64) as usize;
        self.workers[index].exchange(index, batch)
    }
}

impl<S> Drop for Workers<S> {
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

/// One loader thread with its two queues.
///
/// The batches in circulation bound both queues: a worker that is ahead waits for an empty batch.
#[derive(Debug)]
struct Worker<S> {
    empty: Sender<Batch<S>>,
    filled: Receiver<Result<Batch<S>, DemoError>>,
    thread: JoinHandle<()>,
}

impl<S: Scalar> Worker<S> {
    fn start(
        index: usize,
        job: Job,
        empty: Sender<Batch<S>>,
        take_empty: Receiver<Batch<S>>,
    ) -> Result<Self, DemoError> {
        let (give_filled, filled) = channel();
        let thread = thread::Builder::new()
            .name(format!("demo-loader-{index}"))
            .spawn(move || job.run(&take_empty, &give_filled))
            .map_err(|error| DemoError::Worker { worker: index, reason: error.to_string() })?;
        Ok(Self { empty, filled, thread })
    }

    fn exchange(&self, index: usize, batch: &mut Batch<S>) -> Result<(), DemoError> {
        let filled = self
            .filled
            .recv()
            .map_err(|_| DemoError::Worker { worker: index, reason: "it has stopped after an error".to_owned() })??;
        let used = mem::replace(batch, filled);
        // A worker that no longer takes batches has ended. Its error is next in the queue.
        let _ = self.empty.send(used);
        Ok(())
    }
}

/// The work of one worker: every batch number from `first_number` in steps of `stride`.
struct Job {
    filler: BatchFiller,
    first_number: u64,
    stride: u64,
    stop: Arc<AtomicBool>,
}

impl Job {
    fn run<S: Scalar>(mut self, empty: &Receiver<Batch<S>>, filled: &Sender<Result<Batch<S>, DemoError>>) {
        let mut number = self.first_number;
        while let Ok(mut batch) = empty.recv() {
            let outcome = self.filler.fill(number, &mut batch, &self.stop);
            let failed = outcome.is_err();
            let sent = filled.send(outcome.map(|()| batch));
            if failed || sent.is_err() || self.stop.load(Ordering::Relaxed) {
                return;
            }
            number = number.wrapping_add(self.stride);
        }
    }
}
