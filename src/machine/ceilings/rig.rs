//! Timed work on a GPU: products, copies, launches.
//!
//! The host's clock times all work. The time of a sample also includes some microseconds of synchronization. They do
//! not matter, because a sample takes 20 ms or more.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaSlice, CudaStream, DriverError};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::{Timed, wall_clock};
use crate::machine::foreign::cuda::{CudaError, EmptyKernel, SquareProduct};
use crate::model::Precision;

/// Formats an error together with its remedy.
pub(super) fn words(error: CudaError) -> String {
    match (&error, error.cure()) {
        (CudaError::NotSupported(reason), _) => reason.clone(),
        (_, Some(cure)) => format!("{error}: {cure}"),
        (_, None) => error.to_string(),
    }
}

/// Returns the seconds of some work, repeated in a stream.
fn timed(
    stream: &CudaStream,
    repetitions: u32,
    mut work: impl FnMut() -> Result<(), CudaError>,
) -> Result<f64, CudaError> {
    stream.synchronize()?;
    let start = Instant::now();
    (0..repetitions).try_for_each(|_| work())?;
    stream.synchronize()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Prepares work of the first size that fits into memory.
fn fitting<T>(sizes: &[usize], make: impl Fn(usize) -> Result<T, CudaError>) -> Result<T, CudaError> {
    for &size in sizes {
        match make(size) {
            Err(CudaError::OutOfMemory) => {}
            made => return made,
        }
    }
    Err(CudaError::OutOfMemory)
}

/// Makes work that is repeated in a stream; `amount` is the work of one repetition.
fn repeated(
    stream: &Arc<CudaStream>,
    amount: f64,
    mut work: impl FnMut(&Arc<CudaStream>) -> Result<(), CudaError> + 'static,
) -> Timed<'static> {
    let stream = stream.clone();
    let run = move |repetitions| timed(&stream, repetitions, || work(&stream)).map_err(words);
    Timed { work: amount, run: Box::new(run) }
}

/// Square matrix products of random numbers, by the fastest algorithm that cuBLASLt proposes.
pub(super) fn products(stream: &Arc<CudaStream>, precision: Precision) -> Result<Timed<'static>, CudaError> {
    /// Sizes at which the start and end of the kernel do not matter, even on the largest GPUs.
    const SIDES: [usize; 3] = [8192, 4096, 2048];
    /// The seconds after which the best tried algorithm is used: cuBLASLt proposes its favourites first.
    const LIMIT: f64 = 0.6;
    let patterns = [random(precision, 1), random(precision, 2)];
    let (side, mut product) = fitting(&SIDES, |side| {
        let patterns = patterns.each_ref().map(Vec::as_slice);
        Ok((side as f64, SquareProduct::new(stream, precision, side, patterns)?))
    })?;
    let choices = product.choices();
    let mut run = |choice| timed(stream, 1, || product.run(choice));
    let choice = fastest(choices, LIMIT, &wall_clock(), &mut run)?;
    // Each term is one multiplication and one addition.
    Ok(repeated(stream, 2.0 * side.powi(3), move |_| product.run(choice)))
}

/// Makes a million random numbers between -2 and 2, in the format of a precision's factors. Zeros would give too high a
/// rate: a device that multiplies zeros needs less power and reaches higher clocks.
fn random(precision: Precision, seed: u64) -> Vec<u8> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let mut single = || chance.random::<f32>() * 2.0 - 1.0;
    let numbers = 0..1 << 20;
    match precision {
        Precision::Fp32 | Precision::Tf32 => numbers.flat_map(|_| single().to_ne_bytes()).collect(),
        // The upper half of a single is a bf16.
        Precision::Bf16 => numbers.flat_map(|_| ((single().to_bits() >> 16) as u16).to_ne_bytes()).collect(),
        // Sign, an exponent from 2^-7 to 2^0, ten bits of mantissa.
        Precision::Fp16 => numbers.flat_map(|_| (chance.random::<u16>() & 0x9fff | 0x2000).to_ne_bytes()).collect(),
        // Sign, an exponent from 2^-3 to 2^0, three bits of mantissa; the pattern of "not a number" is not among them.
        Precision::Fp8 => numbers.map(|_| chance.random::<u8>() & 0x9f | 0x20).collect(),
    }
}

/// Copies within a device, or from another device. `weight` is the weight of a byte.
pub(super) fn device_copies(
    stream: &Arc<CudaStream>,
    source: &Arc<CudaStream>,
    weight: f64,
) -> Result<Timed<'static>, CudaError> {
    /// Sizes far above the cache sizes; the smaller sizes are for devices with less memory.
    const SIZES: [usize; 3] = [1 << 30, 256 << 20, 64 << 20];
    let (from, mut to): (CudaSlice<u8>, CudaSlice<u8>) =
        fitting(&SIZES, |bytes| Ok((source.alloc_zeros(bytes)?, stream.alloc_zeros(bytes)?)))?;
    let bytes = from.len() as f64;
    Ok(repeated(stream, bytes * weight, move |stream| Ok(stream.memcpy_dtod(&from, &mut to)?)))
}

/// Copies between a device and memory of the host, in the direction of `copy`.
pub(super) fn host_copies<H: 'static>(
    stream: &Arc<CudaStream>,
    host: impl Fn(usize) -> Result<H, CudaError>,
    copy: impl Fn(&Arc<CudaStream>, &mut H, &mut CudaSlice<u8>) -> Result<(), DriverError> + 'static,
) -> Result<Timed<'static>, CudaError> {
    /// The size of a batch of a large job, and a smaller size for machines with less memory.
    const SIZES: [usize; 2] = [256 << 20, 64 << 20];
    let (mut host, mut device) = fitting(&SIZES, |bytes| Ok((host(bytes)?, stream.alloc_zeros::<u8>(bytes)?)))?;
    let bytes = device.len() as f64;
    Ok(repeated(stream, bytes, move |stream| Ok(copy(stream, &mut host, &mut device)?)))
}

/// Launches of an empty kernel, one after the other.
pub(super) fn launches(stream: &Arc<CudaStream>) -> Result<Timed<'static>, CudaError> {
    let kernel = EmptyKernel::load(stream.context())?;
    Ok(repeated(stream, 1.0, move |stream| kernel.launch(stream)))
}

/// Finds the fastest of several alternatives. Each alternative is run twice; the first run loads it and does not count. No
/// alternative starts after `limit` seconds. A failed alternative is skipped, unless all fail.
fn fastest<E>(
    count: usize,
    limit: f64,
    clock: &dyn Fn() -> f64,
    run: &mut dyn FnMut(usize) -> Result<f64, E>,
) -> Result<usize, E> {
    let (start, mut fastest, mut failed) = (clock(), None::<(usize, f64)>, None);
    for choice in 0..count {
        if choice > 0 && clock() - start >= limit {
            break;
        }
        match run(choice).and_then(|_| run(choice)) {
            Ok(seconds) if fastest.is_none_or(|(_, least)| seconds < least) => fastest = Some((choice, seconds)),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    match (fastest, failed) {
        (None, Some(error)) => Err(error),
        (fastest, _) => Ok(fastest.map_or(0, |(choice, _)| choice)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::FakeClock;
    use super::*;

    #[test]
    fn the_fastest_is_looked_for_within_its_time() {
        let clock = FakeClock::default();
        let now = || clock.now();
        let mut runs = 0;
        let mut run = |seconds: f64| {
            runs += 1;
            clock.pass(seconds);
            Ok::<f64, String>(seconds)
        };
        assert_eq!(fastest(8, 1.0, &now, &mut |choice| run([0.3, 0.1, 0.2, 0.4][choice])), Ok(1));
        assert_eq!(runs, 6, "the fourth does not begin");
        assert_eq!(fastest(2, 1.0, &now, &mut |at| if at == 0 { Err("no") } else { Ok(0.1) }), Ok(1));
        assert_eq!(fastest(2, 1.0, &now, &mut |_| Err("no")), Err("no"));
    }
}
