//! The delivery of batches in order, from worker threads or from the calling thread.

use std::sync::atomic::AtomicBool;

use super::batch::{Batch, BatchFiller};
use super::data_set::DataSet;
use super::error::DemoError;
use super::memory::Ledger;
use super::options::DemoOptions;
use super::scalar::Scalar;
use super::workers::Workers;

/// The source of all batches of one run.
#[derive(Debug)]
pub(super) struct Loader<S> {
    next_number: u64,
    source: Source<S>,
}

#[derive(Debug)]
enum Source<S> {
    Inline(Box<BatchFiller>),
    Workers(Workers<S>),
}

impl<S: Scalar> Loader<S> {
    /// Allocates all batches that are ever loaded ahead, and starts the workers.
    pub(super) fn new(ledger: &Ledger, data_set: &DataSet, options: &DemoOptions) -> Result<Self, DemoError> {
        let source = if options.workers == 0 {
            Source::Inline(Box::new(BatchFiller::new(ledger, data_set, options.seed)?))
        } else {
            Source::Workers(Workers::start(ledger, data_set, options)?)
        };
        Ok(Self { next_number: 0, source })
    }

    /// Exchanges a used batch for the next batch.
    pub(super) fn exchange(&mut self, batch: &mut Batch<S>) -> Result<(), DemoError> {
        match &mut self.source {
            Source::Inline(filler) => {
                let never_stop = AtomicBool::new(false);
                filler.fill(self.next_number, batch, &never_stop)?;
            }
            Source::Workers(workers) => workers.exchange(self.next_number, batch)?,
        }
        self.next_number = self.next_number.wrapping_add(1);
        Ok(())
    }
}
