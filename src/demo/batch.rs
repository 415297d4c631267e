//! One batch of samples, filled from the dataset.

use std::sync::atomic::{AtomicBool, Ordering};

use super::augment::Augmentation;
use super::data_set::DataSet;
use super::decode::decode_image;
use super::error::DemoError;
use super::memory::{Buffer, Ledger};
use super::order::SampleOrder;
use super::scalar::Scalar;
use super::shape::Shape;

/// The crops of a batch and their classes.
#[derive(Debug)]
pub(super) struct Batch<S> {
    /// The pixels, one crop after the other.
    pub(super) pixels: Buffer<S>,
    /// The class of every crop.
    pub(super) labels: Buffer<u8>,
}

impl<S: Scalar> Batch<S> {
    /// Allocates an empty batch.
    pub(super) fn new(ledger: &Ledger, shape: &Shape, batch_size: usize) -> Result<Self, DemoError> {
        Ok(Self { pixels: ledger.buffer(&[batch_size, shape.crop_values()])?, labels: ledger.buffer(&[batch_size])? })
    }
}

/// Fills batches; a batch number means the same samples in every filler.
#[derive(Debug)]
pub(super) struct BatchFiller {
    data_set: DataSet,
    seed: u64,
    order: SampleOrder,
    image: Buffer<u8>,
    crop: Buffer<f32>,
}

impl BatchFiller {
    /// Allocates the scratch memory for one image.
    pub(super) fn new(ledger: &Ledger, data_set: &DataSet, seed: u64) -> Result<Self, DemoError> {
        let shape = data_set.shape();
        Ok(Self {
            seed,
            order: SampleOrder::new(ledger, seed, shape.images)?,
            image: ledger.buffer(&[shape.image_bytes()])?,
            crop: ledger.buffer(&[shape.crop_values()])?,
            data_set: data_set.clone(),
        })
    }

    /// Fills `batch` with the samples of batch `number`. If `stop` is set, it returns early with an incomplete batch.
    pub(super) fn fill<S: Scalar>(
        &mut self,
        number: u64,
        batch: &mut Batch<S>,
        stop: &AtomicBool,
    ) -> Result<(), DemoError> {
        let first = number.wrapping_mul(batch.labels.len() as u64);
        let crops = batch.pixels.chunks_exact_mut(self.crop.len());
        for (index, (crop, label)) in (0_u64..).zip(crops.zip(batch.labels.iter_mut())) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            *label = self.load_sample(first.wrapping_add(index), crop)?;
        }
        Ok(())
    }

    fn load_sample<S: Scalar>(&mut self, sample: u64, crop: &mut [S]) -> Result<u8, DemoError> {
        let shape = self.data_set.shape();
        let image = self.order.image(sample);
        let path = self.data_set.image_path(image);
        decode_image(&path, shape.image_side_pixels, &mut self.image)?;
        let augmentation = Augmentation::of_sample(self.seed, sample, shape);
        augmentation.apply(shape, &self.image, &mut self.crop);
        S::store(&self.crop, crop);
        Ok(self.data_set.class(image) as u8)
    }
}
