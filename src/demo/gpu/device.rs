//! The interface of a device for the training, so that tests can use the host in place of a GPU.

use super::super::batch::Batch;
use super::super::error::DemoError;
use super::super::scalar::Scalar;
use crate::machine::cuda::ProductShape;

/// A device: its memory, products of matrices, kernels, and the transfer of batches to it.
///
/// All work runs in the order of the calls, and may end later than the call. [`Self::read`] waits for it.
pub(super) trait Device: Send {
    /// Memory of the device.
    type Memory: Send;
    /// A product of matrices of one shape, ready to run.
    type Product: Send;
    /// The place of a batch on the host and on the device.
    type Slot: Send;

    /// Allocates zeroed memory; `None` if memory ran out.
    fn memory(&self, bytes: usize) -> Result<Option<Self::Memory>, DemoError>;

    /// Copies bytes to the start of memory, and waits.
    fn write(&self, bytes: &[u8], to: &Self::Memory) -> Result<(), DemoError>;

    /// Copies numbers from the start of memory, after all earlier work.
    fn read(&self, from: &Self::Memory, numbers: &mut [f32]) -> Result<(), DemoError>;

    /// Prepares a product of matrices stored row by row.
    fn product(&self, shape: ProductShape) -> Result<Self::Product, DemoError>;

    /// Computes `left * right` into `result`. Adds to the old content if `is_added`.
    fn multiply(
        &self,
        product: &Self::Product,
        factors: (&Self::Memory, &Self::Memory),
        result: &Self::Memory,
        is_added: bool,
    ) -> Result<(), DemoError>;

    /// Starts a kernel with at least this many threads.
    fn launch(&self, kernel: Kernel, threads: usize, arguments: &[Argument<'_, Self::Memory>])
    -> Result<(), DemoError>;

    /// Allocates room for a batch with this many bytes of pixels and this many labels; `None` if memory ran out.
    fn slot(&self, pixel_bytes: usize, labels: usize) -> Result<Option<Self::Slot>, DemoError>;

    /// Starts to copy a batch, in parallel to the current work, after earlier work on the slot is done.
    fn send<S: Scalar>(&self, slot: &mut Self::Slot, batch: &Batch<S>) -> Result<(), DemoError>;

    /// Makes later work wait for the batch, and returns pixels and labels.
    fn receive<'a>(&self, slot: &'a Self::Slot) -> Result<(&'a Self::Memory, &'a Self::Memory), DemoError>;

    /// Marks that no later work uses the batch.
    fn leave(&self, slot: &Self::Slot) -> Result<(), DemoError>;

    /// Sets a mark after all earlier work.
    fn mark(&self, mark: Mark) -> Result<(), DemoError>;

    /// Returns the seconds of the device's time between two marks, after both were passed.
    fn seconds_between(&self, first: Mark, second: Mark) -> Result<f64, DemoError>;
}

/// A moment of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Start,
    Forward,
    Backward,
    Update,
}

impl Mark {
    /// The number of marks.
    pub(super) const COUNT: usize = 4;
}

/// A kernel of `kernels.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    GatherPatches,
    SpreadBiases,
    Rectify,
    MaskRectified,
    CrossEntropy,
    SumRowsPartly,
    SumParts,
    Descend,
}

/// The kernels' names in `kernels.cu`, in the order of the variants.
pub(super) const KERNELS: [(Kernel, &str); 8] = [
    (Kernel::GatherPatches, "gather_patches"),
    (Kernel::SpreadBiases, "spread_biases"),
    (Kernel::Rectify, "rectify"),
    (Kernel::MaskRectified, "mask_rectified"),
    (Kernel::CrossEntropy, "cross_entropy"),
    (Kernel::SumRowsPartly, "sum_rows_partly"),
    (Kernel::SumParts, "sum_parts"),
    (Kernel::Descend, "descend"),
];

/// An argument of a kernel, of the type that the kernel declares.
#[derive(Debug)]
pub(super) enum Argument<'a, M> {
    Memory(&'a M),
    U32(usize),
    U64(usize),
    F32(f32),
}

#[cfg(test)]
mod tests {
    use super::super::source::KERNEL_SOURCE;
    use super::*;

    #[test]
    fn every_kernel_of_the_source_has_its_row() {
        for (place, (kernel, name)) in KERNELS.into_iter().enumerate() {
            assert_eq!(kernel as usize, place);
            assert!(KERNEL_SOURCE.contains(&format!("KERNEL {name}(")), "{name}");
        }
        assert_eq!(KERNEL_SOURCE.matches("\nKERNEL ").count(), KERNELS.len());
    }
}
