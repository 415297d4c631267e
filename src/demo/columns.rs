//! The patches of all images of a batch as rows of one matrix.

use super::scalar::Scalar;
use super::shape::{COLOURS, Shape};

/// Copies every patch of every crop into its own row.
pub(super) fn gather_patches<S: Scalar>(shape: &Shape, crops: &[S], patches: &mut [S]) {
    let crop_row = shape.crop_side_pixels * COLOURS;
    let patch_row = shape.patch_side_pixels * COLOURS;
    let per_side = shape.patches_per_side();
    let crops = crops.chunks_exact(shape.crop_values());
    let groups = patches.chunks_exact_mut(shape.patches() * shape.patch_values());
    for (crop, group) in crops.zip(groups) {
        for (index, patch) in group.chunks_exact_mut(shape.patch_values()).enumerate() {
            let top_pixels = index / per_side * shape.patch_step_pixels;
            let left_pixels = index % per_side * shape.patch_step_pixels;
            for (row, target) in patch.chunks_exact_mut(patch_row).enumerate() {
                let start = (top_pixels + row) * crop_row + left_pixels * COLOURS;
                target.copy_from_slice(&crop[start..start + patch_row]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_overlap_and_reach_the_last_pixel() {
        let shape = Shape::TINY;
        let crops: Vec<f32> = (0..2 * shape.crop_values()).map(|index| index as f32).collect();
        let mut patches = vec![0.0; 2 * shape.patches() * shape.patch_values()];
        gather_patches(&shape, &crops, &mut patches);
        // The second patch starts two pixels to the right of the first.
        assert_eq!(patches[shape.patch_values()], 6.0);
        assert_eq!(patches.last(), crops.last());
    }
}
