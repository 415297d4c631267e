//! Timed work on a GPU: products, copies, launches. Has not run on a GPU yet.

use std::time::Instant;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::schedule::fastest;
use super::{Timed, WallClock};
use crate::machine::foreign::cuda::{
    Argument, Blas, Buffer, CudaError, Element, Event, Gpu, Grid, Kernel, MatrixProduct, Module, Pinned, Plain,
    ProductShape, Program, Stream,
};
use crate::model::Precision;

/// Formats an error together with its remedy.
#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by it")]
pub(super) fn words(error: CudaError) -> String {
    match (&error, error.cure()) {
        (CudaError::NotSupported(reason), _) => reason.clone(),
        (_, Some(cure)) => format!("{error}: {cure}"),
        (_, None) => error.to_string(),
    }
}

/// Times the work that a function puts into a stream, by two marks around it.
fn timed(stream: &Stream, work: impl FnOnce() -> Result<(), CudaError>) -> Result<f64, String> {
    let between = || {
        let (start, end) = (Event::new(stream.gpu())?, Event::new(stream.gpu())?);
        stream.record(&start)?;
        work()?;
        stream.record(&end)?;
        end.seconds_since(&start)
    };
    between().map_err(words)
}

/// A square matrix product of random numbers.
pub(super) struct Products {
    stream: Stream,
    product: MatrixProduct,
    /// Left factor, right factor, result.
    matrices: [Buffer; 3],
    operations: f64,
    /// The fastest algorithm that cuBLASLt proposes.
    choice: usize,
}

impl Products {
    /// Prepares the largest product that fits into memory.
    pub(super) fn new(stream: &Stream, blas: &Blas, precision: Precision) -> Result<Self, CudaError> {
        /// Sizes at which the start and end of the kernel do not matter, even on the largest GPUs.
        const SIDES: [usize; 3] = [8192, 4096, 2048];
        let mut out_of_memory = None;
        for side in SIDES {
            match Self::of_side(stream, blas, precision, side) {
                Err(error) if error.is_out_of_memory() => out_of_memory = Some(error),
                other => return other,
            }
        }
        Err(out_of_memory.unwrap_or(CudaError::OutOfMemory { bytes: 0 }))
    }

    fn of_side(stream: &Stream, blas: &Blas, precision: Precision, side: usize) -> Result<Self, CudaError> {
        let (factors, result) = (Element::of(precision), result_of(precision));
        // The layout of a linear layer; fp8 allows no other layout.
        let shape =
            ProductShape { rows: side, columns: side, inner: side, left_transposed: false, right_transposed: true };
        let product = blas.product(shape, precision, result)?;
        let cells = side * side;
        let matrices = [
            random(stream, factors, cells, 1)?,
            random(stream, factors, cells, 2)?,
            Buffer::new(stream.gpu(), cells * result.bytes())?,
        ];
        let mut products =
            Self { stream: stream.clone(), product, matrices, operations: shape.operations(), choice: 0 };
        products.choice = products.fastest()?;
        Ok(products)
    }

    fn start(&self, choice: usize) -> Result<(), CudaError> {
        let [left, right, result] = &self.matrices;
        self.product.run(choice, (left.all(), right.all(), result.all()), (1.0, 0.0))
    }

    fn fastest(&self) -> Result<usize, CudaError> {
        /// The seconds after which the best tried algorithm is used: cuBLASLt proposes its favourites first.
        const LIMIT: f64 = 0.6;
        let mut run = |choice| timed(&self.stream, || self.start(choice)).map_err(CudaError::NotSupported);
        fastest(self.product.choices(), LIMIT, &WallClock::default(), &mut run)
    }
}

fn result_of(precision: Precision) -> Element {
    match precision {
        Precision::Fp8 => Element::Bf16,
        other => Element::of(other),
    }
}

impl Timed for Products {
    fn work(&self) -> f64 {
        self.operations
    }

    fn run(&mut self, repetitions: u32) -> Result<f64, String> {
        timed(&self.stream, || (0..repetitions).try_for_each(|_| self.start(self.choice)))
    }
}

/// Makes random numbers between -1 and 1: a device that multiplies zeros needs less power and reaches higher clocks. A
/// part is made and then repeated.
fn random(stream: &Stream, element: Element, cells: usize, seed: u64) -> Result<Buffer, CudaError> {
    const PART: usize = 1 << 20;
    let buffer = Buffer::new(stream.gpu(), cells * element.bytes())?;
    let made = PART.min(cells);
    match element {
        Element::F32 => fill(stream, &buffer, &numbers(made, seed, f32_in_range))?,
        // The upper half of a single is a bf16.
        Element::Bf16 => {
            fill(stream, &buffer, &numbers(made, seed, |bits| (f32_in_range(bits).to_bits() >> 16) as u16))?
        }
        // Sign, an exponent from 2^-7 to 2^0, ten bits of mantissa.
        #[expect(clippy::cast_possible_truncation, reason = "16 bits are kept")]
        Element::F16 => fill(stream, &buffer, &numbers(made, seed, |bits| (bits as u16 & 0x9fff) | 0x2000))?,
        // Sign, an exponent from 2^-3 to 2^0, three bits of mantissa; the pattern of "not a number" is not among them.
        #[expect(clippy::cast_possible_truncation, reason = "8 bits are kept")]
        Element::F8 => fill(stream, &buffer, &numbers(made, seed, |bits| (bits as u8 & 0x9f) | 0x20))?,
    }
    Ok(buffer)
}

fn f32_in_range(bits: u64) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "24 bits are exact")]
    let unit = (bits >> 40) as f32 / (1_u32 << 24) as f32;
    unit * 2.0 - 1.0
}

fn numbers<T>(count: usize, seed: u64, of: impl Fn(u64) -> T) -> Vec<T> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| of(chance.random())).collect()
}

/// Fills a buffer with repetitions of some numbers.
fn fill<T: Plain>(stream: &Stream, buffer: &Buffer, numbers: &[T]) -> Result<(), CudaError> {
    let part = size_of_val(numbers);
    stream.upload_slice(numbers, buffer.part(0, part)?)?;
    let mut at = part;
    while at < buffer.bytes() {
        let bytes = part.min(buffer.bytes() - at);
        stream.copy(buffer.part(0, bytes)?, buffer.part(at, bytes)?)?;
        at += bytes;
    }
    stream.synchronize()
}

/// Copies within a device, or between two devices.
pub(super) struct DeviceCopies {
    stream: Stream,
    from: Buffer,
    to: Buffer,
    /// The weight of a byte. Within a device, a byte is read and written in the same memory and counts twice.
    weight: f64,
}

impl DeviceCopies {
    /// Sizes far above the cache sizes; the smaller sizes are for devices with less memory.
    const SIZES: [usize; 3] = [1 << 30, 256 << 20, 64 << 20];

    pub(super) fn within(stream: &Stream) -> Result<Self, CudaError> {
        Self::new(stream, stream.gpu(), 2.0)
    }

    pub(super) fn from_peer(stream: &Stream, peer: &Gpu) -> Result<Self, CudaError> {
        stream.gpu().reach(peer)?;
        Self::new(stream, peer, 1.0)
    }

    fn new(stream: &Stream, source: &Gpu, weight: f64) -> Result<Self, CudaError> {
        let mut failed = CudaError::OutOfMemory { bytes: 0 };
        for bytes in Self::SIZES {
            let made = Buffer::new(source, bytes).and_then(|from| Ok((from, Buffer::new(stream.gpu(), bytes)?)));
            match made {
                Ok((from, to)) => return Ok(Self { stream: stream.clone(), from, to, weight }),
                Err(error) if error.is_out_of_memory() => failed = error,
                Err(error) => return Err(error),
            }
        }
        Err(failed)
    }
}

impl Timed for DeviceCopies {
    fn work(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let bytes = self.from.bytes() as f64;
        bytes * self.weight
    }

    fn run(&mut self, repetitions: u32) -> Result<f64, String> {
        let copy = || self.stream.copy(self.from.all(), self.to.all());
        timed(&self.stream, || (0..repetitions).try_for_each(|_| copy()))
    }
}

/// The host memory of a copy between host and device.
pub(super) enum Host {
    /// Pinned memory, to the device.
    PinnedUp(Pinned<u8>),
    /// Ordinary memory, to the device.
    Pageable(Vec<u8>),
    /// Pinned memory, from the device.
    PinnedDown(Pinned<u8>),
}

/// Copies between host and device.
pub(super) struct HostCopies {
    stream: Stream,
    host: Host,
    device: Buffer,
}

impl HostCopies {
    /// The size of a batch of a large job, and a smaller size for machines with less memory.
    const SIZES: [usize; 2] = [256 << 20, 64 << 20];

    pub(super) fn new(stream: &Stream, host: impl Fn(usize) -> Result<Host, CudaError>) -> Result<Self, CudaError> {
        let mut failed = CudaError::OutOfMemory { bytes: 0 };
        for bytes in Self::SIZES {
            match host(bytes).and_then(|host| Ok((host, Buffer::new(stream.gpu(), bytes)?))) {
                Ok((host, device)) => {
                    stream.fill(device.all(), 1)?;
                    return Ok(Self { stream: stream.clone(), host, device });
                }
                Err(error) if error.is_out_of_memory() => failed = error,
                Err(error) => return Err(error),
            }
        }
        Err(failed)
    }
}

impl Timed for HostCopies {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn work(&self) -> f64 {
        self.device.bytes() as f64
    }

    /// Times by the host's clock, since a copy from ordinary memory also occupies the CPU.
    fn run(&mut self, repetitions: u32) -> Result<f64, String> {
        self.stream.synchronize().map_err(words)?;
        let start = Instant::now();
        for _ in 0..repetitions {
            let copied = match &mut self.host {
                Host::PinnedUp(memory) => self.stream.upload(memory, self.device.all()),
                Host::Pageable(memory) => self.stream.upload_slice(memory, self.device.all()),
                Host::PinnedDown(memory) => self.stream.download(self.device.all(), memory),
            };
            copied.map_err(words)?;
        }
        self.stream.synchronize().map_err(words)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Launches of an empty kernel, one after the other.
pub(super) struct Launches {
    stream: Stream,
    kernel: Kernel,
}

impl Launches {
    pub(super) fn new(stream: &Stream) -> Result<Self, CudaError> {
        // The driver translates the text; every driver for the device knows this target.
        let (version, target) =
            if stream.gpu().facts().compute_capability >= (7, 5) { ("6.3", "sm_75") } else { ("6.0", "sm_50") };
        let text =
            format!(".version {version}\n.target {target}\n.address_size 64\n.visible .entry nothing() {{ ret; }}\n");
        let kernel = Module::load(stream.gpu(), &Program::from_ptx(&text))?.kernel("nothing")?;
        Ok(Self { stream: stream.clone(), kernel })
    }
}

impl Timed for Launches {
    fn work(&self) -> f64 {
        1.0
    }

    /// Times by the host's clock, since a training loop that launches many small kernels waits for the host.
    fn run(&mut self, repetitions: u32) -> Result<f64, String> {
        const NOTHING: &[Argument<'_>] = &[];
        self.stream.synchronize().map_err(words)?;
        let start = Instant::now();
        for _ in 0..repetitions {
            self.stream.launch(&self.kernel, Grid::linear(1, 1), NOTHING).map_err(words)?;
        }
        self.stream.synchronize().map_err(words)?;
        Ok(start.elapsed().as_secs_f64())
    }
}
