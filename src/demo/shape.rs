//! The sizes of the data set and the network.

/// The values per pixel: red, green and blue.
pub(super) const COLOURS: usize = 3;

/// The number of picture classes, which the network learns to distinguish.
pub(super) const CLASSES: usize = 8;

/// All sizes that are not options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// The images in the data set.
    pub(super) images: usize,
    /// The width and height of an image file, in pixels.
    pub(super) image_side_pixels: usize,
    /// The width and height of the crop that the network sees, scaled from a random part of an image, in pixels.
    pub(super) crop_side_pixels: usize,
    /// The width and height of a convolution patch, in pixels.
    pub(super) patch_side_pixels: usize,
    /// The distance between neighbouring patches, in pixels.
    pub(super) patch_step_pixels: usize,
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
    pub(super) const STANDARD: Self = Self {
        images: 384,
        image_side_pixels: 128,
        crop_side_pixels: 48,
        patch_side_pixels: 6,
        patch_step_pixels: 2,
        channels: 8,
        hidden: 256,
    };

    /// The bytes of one decoded image file.
    pub(super) const fn image_bytes(&self) -> usize {
        self.image_side_pixels * self.image_side_pixels * COLOURS
    }

    /// The values of one crop.
    pub(super) const fn crop_values(&self) -> usize {
        self.crop_side_pixels * self.crop_side_pixels * COLOURS
    }

    /// The patches along one side of a crop.
    pub(super) const fn patches_per_side(&self) -> usize {
        (self.crop_side_pixels - self.patch_side_pixels) / self.patch_step_pixels + 1
    }

    /// The patches of one crop.
    pub(super) const fn patches(&self) -> usize {
        self.patches_per_side() * self.patches_per_side()
    }

    /// The values of one patch.
    pub(super) const fn patch_values(&self) -> usize {
        self.patch_side_pixels * self.patch_side_pixels * COLOURS
    }

    /// The outputs of the convolution for one crop.
    pub(super) const fn features(&self) -> usize {
        self.patches() * self.channels
    }
}

#[cfg(test)]
impl Shape {
    /// Sizes that keep unit tests fast.
    pub(super) const TINY: Self = Self {
        images: 64,
        image_side_pixels: 20,
        crop_side_pixels: 16,
        patch_side_pixels: 4,
        patch_step_pixels: 2,
        channels: 8,
        hidden: 24,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_cover_the_crop() {
        assert_eq!(Shape::TINY.patches_per_side(), 7);
        assert_eq!(Shape::TINY.patches(), 49);
        assert_eq!(Shape::TINY.patch_values(), 48);
        assert_eq!(Shape::TINY.features(), 392);
    }
}
