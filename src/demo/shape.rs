//! The sizes of the dataset and the network.

/// The values per pixel: red, green and blue.
pub(super) const COLOURS: usize = 3;

/// The number of picture classes, which the network learns to distinguish.
pub(super) const CLASSES: usize = 8;

/// All sizes that are not options. Sides are in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// The images in the dataset.
    pub(super) images: usize,
    pub(super) image_side: usize,
    /// The side of the crop that the network sees, scaled from a random part of an image.
    pub(super) crop_side: usize,
    /// The side of a convolution patch.
    pub(super) patch_side: usize,
    /// The distance between neighbouring patches.
    pub(super) patch_step: usize,
    /// The outputs of the convolution per patch.
    pub(super) channels: usize,
    /// The outputs of the hidden layer.
    pub(super) hidden: usize,
}

impl Shape {
    /// The sizes of the shipped job.
    ///
    /// The large hidden layer makes the update per step expensive, which favours large batches. The overlapping patches make the
    /// activations outgrow the cache, which favours small batches.
    pub(super) const STANDARD: Self =
        Self { images: 384, image_side: 128, crop_side: 48, patch_side: 6, patch_step: 2, channels: 8, hidden: 256 };

    /// Sizes that keep unit tests fast.
    #[cfg(test)]
    pub(super) const TINY: Self =
        Self { images: 64, image_side: 20, crop_side: 16, patch_side: 4, patch_step: 2, channels: 8, hidden: 24 };

    pub(super) const fn image_bytes(&self) -> usize {
        self.image_side * self.image_side * COLOURS
    }

    pub(super) const fn crop_values(&self) -> usize {
        self.crop_side * self.crop_side * COLOURS
    }

    pub(super) const fn patches_per_side(&self) -> usize {
        (self.crop_side - self.patch_side) / self.patch_step + 1
    }

    pub(super) const fn patches(&self) -> usize {
        self.patches_per_side() * self.patches_per_side()
    }

    pub(super) const fn patch_values(&self) -> usize {
        self.patch_side * self.patch_side * COLOURS
    }

    /// The outputs of the convolution for one crop.
    pub(super) const fn features(&self) -> usize {
        self.patches() * self.channels
    }
}
