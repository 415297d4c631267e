//! The order in which samples are drawn: every epoch is a new shuffle.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use super::error::DemoError;
use super::memory::{Buffer, Ledger};

/// Maps sample numbers, which count up through all epochs, to images.
#[derive(Debug)]
pub(super) struct SampleOrder {
    seed: u64,
    shuffled_epoch: Option<u64>,
    images: Buffer<u32>,
}

impl SampleOrder {
    /// Makes the order of `images` images.
    pub(super) fn new(ledger: &Ledger, seed: u64, images: usize) -> Result<Self, DemoError> {
        Ok(Self { seed, shuffled_epoch: None, images: ledger.buffer(&[images])? })
    }

    /// Returns the image of a sample.
    pub(super) fn image(&mut self, sample: u64) -> usize {
        let images = self.images.len() as u64;
        let epoch = sample / images;
        if self.shuffled_epoch != Some(epoch) {
            self.shuffle(epoch);
        }
        self.images[(sample % images) as usize] as usize
    }

    fn shuffle(&mut self, epoch: u64) {
        // The augmentation of a sample uses the seed itself, so the shuffles use a different seed.
        let mut random = ChaCha8Rng::seed_from_u64(!self.seed);
        random.set_stream(epoch);
        for (image, slot) in (0_u32..).zip(self.images.iter_mut()) {
            *slot = image;
        }
        self.images.shuffle(&mut random);
        self.shuffled_epoch = Some(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_holds_every_image_once() {
        let mut order = SampleOrder::new(&Ledger::new(None), 3, 10).unwrap();
        let mut epoch =
            |number: u64| -> Vec<usize> { (number * 10..number * 10 + 10).map(|sample| order.image(sample)).collect() };
        let (first, second) = (epoch(0), epoch(1));
        assert_ne!(first, second);
        assert_eq!(epoch(0), first);
        for mut images in [first, second] {
            images.sort_unstable();
            assert_eq!(images, (0..10).collect::<Vec<_>>());
        }
    }
}
