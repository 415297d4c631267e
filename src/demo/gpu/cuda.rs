//! A GPU as the device of a training. Has not run on a GPU yet.

use super::super::batch::Batch;
use super::super::error::DemoError;
use super::super::scalar::{Scalar, Storage};
use super::device::{Argument, Device, KERNELS, Kernel, Mark};
use super::source::device_source;
use crate::machine::cuda::{
    self, Blas, Buffer, Compiler, CudaError, DeviceFacts, Driver, Element, Event, Gpu, Grid, MatrixProduct, Module,
    Pinned, ProductShape, Stream,
};
use crate::model::Precision;

/// Threads of a block: a multiple of the 32 threads of a warp that every device allows.
const BLOCK_THREADS: u32 = 256;

/// The first GPU, with a stream for the work and a stream for the copies to the GPU.
#[derive(Debug)]
pub(in super::super) struct CudaDevice {
    gpu: Gpu,
    work: Stream,
    copies: Stream,
    blas: Blas,
    kernels: Vec<cuda::Kernel>,
    marks: [Event; Mark::COUNT],
    precision: Precision,
    element: Element,
}

impl CudaDevice {
    /// Returns the driver's facts about the first GPU, without opening the GPU.
    pub(in super::super) fn facts() -> Result<DeviceFacts, CudaError> {
        Driver::open()?.devices()?.into_iter().next().ok_or(CudaError::NoDevice)
    }

    /// Opens the first GPU, with kernels for this storage and products in this precision.
    pub(in super::super) fn open(storage: Storage, precision: Precision) -> Result<Self, CudaError> {
        let compiler = Compiler::open(Some(Driver::open()?.version()?.major))?;
        let gpu = Gpu::open(0)?;
        let program = compiler.compile(&device_source(storage), gpu.facts().compute_capability)?;
        let module = Module::load(&gpu, &program)?;
        let work = Stream::new(&gpu)?;
        let mark = || Event::new(&gpu);
        Ok(Self {
            copies: Stream::new(&gpu)?,
            blas: Blas::new(&work)?,
            kernels: KERNELS.iter().map(|(_, name)| module.kernel(name)).collect::<Result<_, _>>()?,
            marks: [mark()?, mark()?, mark()?, mark()?],
            precision,
            element: match storage {
                Storage::F32 => Element::F32,
                Storage::Bf16 => Element::Bf16,
                Storage::F16 => Element::F16,
            },
            work,
            gpu,
        })
    }

    /// Returns the model of the GPU.
    pub(in super::super) fn name(&self) -> &str {
        &self.gpu.facts().name
    }

    /// Returns the free GPU memory in bytes.
    pub(in super::super) fn free_bytes(&self) -> Result<u64, DemoError> {
        Ok(self.gpu.memory()?.0)
    }

    fn buffer(&self, bytes: usize) -> Result<Option<Buffer>, DemoError> {
        fitting(Buffer::new(&self.gpu, bytes))
    }
}

/// Returns `None` if memory ran out.
fn fitting<T>(taken: Result<T, CudaError>) -> Result<Option<T>, DemoError> {
    match taken {
        Ok(memory) => Ok(Some(memory)),
        Err(error) if error.is_out_of_memory() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl From<CudaError> for DemoError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::OutOfMemory { bytes } => {
                Self::OutOfMemory { requested_bytes: bytes, in_use_bytes: 0, limit_bytes: None }
            }
            CudaError::OutOfHostMemory { bytes } => Self::HostMemory { requested_bytes: bytes },
            error => Self::Device {
                reason: match error.cure() {
                    Some(cure) => format!("{error}; {cure}"),
                    None => error.to_string(),
                },
            },
        }
    }
}

/// A batch in pinned memory, and its copy on the device.
#[derive(Debug)]
pub(super) struct CudaSlot {
    pinned: [Pinned<u8>; 2],
    pixels: Buffer,
    labels: Buffer,
    arrived: Event,
    used: Event,
}

impl Device for CudaDevice {
    type Memory = Buffer;
    type Product = MatrixProduct;
    type Slot = CudaSlot;

    fn memory(&self, bytes: usize) -> Result<Option<Buffer>, DemoError> {
        let buffer = self.buffer(bytes)?;
        if let Some(buffer) = &buffer {
            self.work.fill(buffer.all(), 0)?;
        }
        Ok(buffer)
    }

    fn write(&self, bytes: &[u8], to: &Buffer) -> Result<(), DemoError> {
        Ok(self.work.upload_slice(bytes, to.part(0, bytes.len())?)?)
    }

    fn read(&self, from: &Buffer, numbers: &mut [f32]) -> Result<(), DemoError> {
        Ok(self.work.download_slice(from.part(0, size_of_val(numbers))?, numbers)?)
    }

    fn product(&self, shape: ProductShape) -> Result<MatrixProduct, DemoError> {
        Ok(self.blas.product(shape, self.precision, self.element)?)
    }

    fn multiply(
        &self,
        product: &MatrixProduct,
        (left, right): (&Buffer, &Buffer),
        result: &Buffer,
        is_added: bool,
    ) -> Result<(), DemoError> {
        let kept = if is_added { 1.0 } else { 0.0 };
        Ok(product.run(0, (left.all(), right.all(), result.all()), (1.0, kept))?)
    }

    fn launch(&self, kernel: Kernel, threads: usize, arguments: &[Argument<'_, Buffer>]) -> Result<(), DemoError> {
        let too_large = |_| CudaError::BadSize("a size of more than 32 bits".to_owned());
        let arguments: Vec<_> = arguments
            .iter()
            .map(|argument| {
                Ok(match *argument {
                    Argument::Memory(memory) => cuda::Argument::Memory(memory.all()),
                    Argument::U32(number) => cuda::Argument::U32(u32::try_from(number).map_err(too_large)?),
                    Argument::U64(number) => cuda::Argument::U64(number as u64),
                    Argument::F32(number) => cuda::Argument::F32(number),
                })
            })
            .collect::<Result<_, CudaError>>()?;
        Ok(self.work.launch(&self.kernels[kernel as usize], Grid::linear(threads, BLOCK_THREADS), &arguments)?)
    }

    fn slot(&self, pixel_bytes: usize, labels: usize) -> Result<Option<CudaSlot>, DemoError> {
        let (Some(pixels), Some(label_memory)) = (self.buffer(pixel_bytes)?, self.buffer(labels)?) else {
            return Ok(None);
        };
        // A lack of pinned memory is a lack of host memory, and the error reports that.
        let pinned = [Pinned::new(&self.gpu, pixel_bytes)?, Pinned::new(&self.gpu, labels)?];
        let (arrived, used) = (Event::new(&self.gpu)?, Event::new(&self.gpu)?);
        Ok(Some(CudaSlot { pinned, pixels, labels: label_memory, arrived, used }))
    }

    fn send<S: Scalar>(&self, slot: &mut CudaSlot, batch: &Batch<S>) -> Result<(), DemoError> {
        let CudaSlot { pinned: [pixels, labels], .. } = slot;
        S::write_bytes(&batch.pixels, pixels.write()?);
        labels.write()?.copy_from_slice(&batch.labels);
        self.copies.wait_for(&slot.used)?;
        self.copies.upload(pixels, slot.pixels.all())?;
        self.copies.upload(labels, slot.labels.all())?;
        Ok(self.copies.record(&slot.arrived)?)
    }

    fn receive<'a>(&self, slot: &'a CudaSlot) -> Result<(&'a Buffer, &'a Buffer), DemoError> {
        self.work.wait_for(&slot.arrived)?;
        Ok((&slot.pixels, &slot.labels))
    }

    fn leave(&self, slot: &CudaSlot) -> Result<(), DemoError> {
        Ok(self.work.record(&slot.used)?)
    }

    fn mark(&self, mark: Mark) -> Result<(), DemoError> {
        Ok(self.work.record(&self.marks[mark as usize])?)
    }

    fn seconds_between(&self, first: Mark, second: Mark) -> Result<f64, DemoError> {
        Ok(self.marks[second as usize].seconds_since(&self.marks[first as usize])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oldest and the latest devices whose machine code NVRTC 12 and 13 make, and some devices between.
    const DEVICES: [(i32, i32); 6] = [(7, 0), (7, 5), (8, 0), (9, 0), (10, 0), (12, 0)];

    #[test]
    fn a_lack_of_host_memory_is_not_taken_for_one_of_the_gpus() {
        let error = DemoError::from(CudaError::OutOfHostMemory { bytes: 7 });
        assert!(matches!(error, DemoError::HostMemory { requested_bytes: 7 }), "{error}");
        let error = DemoError::from(CudaError::OutOfMemory { bytes: 7 });
        assert!(matches!(error, DemoError::OutOfMemory { requested_bytes: 7, .. }), "{error}");
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "a test that did not run says so")]
    fn the_kernels_compile_for_every_device() {
        let Ok(compiler) = Compiler::open(None) else {
            eprintln!("NOT RUN: there is no NVRTC");
            return;
        };
        let mut compiled = 0;
        for storage in [Storage::F32, Storage::Bf16, Storage::F16] {
            for device in DEVICES {
                match compiler.compile(&device_source(storage), device) {
                    Ok(_) => compiled += 1,
                    // NVRTC 13 supports no device before 7.5.
                    Err(CudaError::NotSupported(_)) => {}
                    Err(error) => panic!("{storage:?} for {device:?}: {error}"),
                }
            }
        }
        assert!(compiled >= 9, "{compiled}");
    }
}
