//! Measures the ceilings of a GPU. Has not run on a GPU yet.

use std::time::{SystemTime, UNIX_EPOCH};

use super::rig::{DeviceCopies, Host, HostCopies, Launches, Products, words};
use super::{Ceilings, Clock, FORMAT, KINDS, Kind, Timed, schedule};
use crate::machine::foreign::cuda::{Blas, CudaError, Driver, Gpu, Pinned, Stream};
use crate::model::Precision;

/// Seconds on the clock at which measuring ends; kinds that do not fit are left out and reported. The rest of the 30 seconds
/// that `gputune device --bench` may take is for a repetition that has already started.
const LIMIT: f64 = 27.0;

/// Measures the GPU with CUDA's number `ordinal` until `clock` shows 27 seconds; the clock started with the command. The
/// ceilings are stored under `driver`, the driver's version. `heard` is called at the start of each kind.
///
/// # Errors
/// The GPU cannot be used at all. If only some kinds fail, they are in `absent`.
pub fn measure(
    ordinal: i32,
    driver: &str,
    clock: &dyn Clock,
    heard: &mut dyn FnMut(Kind),
) -> Result<Ceilings, CudaError> {
    let start = clock.now();
    let gpu = Gpu::open(ordinal)?;
    let stream = Stream::new(&gpu)?;
    let facts = gpu.facts().clone();
    let mut ready = |kind| {
        heard(kind);
        prepare(&stream, kind).map_err(words)
    };
    let (measured, absent) = schedule::all(KINDS.iter().map(|(kind, ..)| *kind), LIMIT, clock, &mut ready, &|| {
        stream.synchronize().is_err()
    });
    Ok(Ceilings {
        format: FORMAT,
        uuid: facts.uuid.unwrap_or_else(|| facts.pci_bus.unwrap_or_default()),
        name: facts.name,
        driver: driver.to_owned(),
        gputune_version: env!("CARGO_PKG_VERSION").to_owned(),
        measured_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        elapsed_s: clock.now() - start,
        measured,
        absent,
    })
}

fn prepare(stream: &Stream, kind: Kind) -> Result<Box<dyn Timed>, CudaError> {
    type Make<'m> = &'m dyn Fn(usize) -> Result<Host, CudaError>;
    let gpu = stream.gpu();
    let host = |make: Make<'_>| -> Result<Box<dyn Timed>, CudaError> { Ok(Box::new(HostCopies::new(stream, make)?)) };
    Ok(match kind {
        Kind::MatmulFp32 => products(stream, Precision::Fp32)?,
        Kind::MatmulTf32 => products(stream, Precision::Tf32)?,
        Kind::MatmulBf16 => products(stream, Precision::Bf16)?,
        Kind::MatmulFp16 => products(stream, Precision::Fp16)?,
        Kind::MatmulFp8 => products(stream, Precision::Fp8)?,
        Kind::DeviceMemory => Box::new(DeviceCopies::within(stream)?),
        Kind::HostToDevicePinned => host(&|bytes| Ok(Host::PinnedUp(Pinned::new(gpu, bytes)?)))?,
        Kind::HostToDevicePageable => host(&|bytes| Ok(Host::Pageable(vec![1; bytes])))?,
        Kind::DeviceToHostPinned => host(&|bytes| Ok(Host::PinnedDown(Pinned::new(gpu, bytes)?)))?,
        Kind::PeerToPeer => Box::new(DeviceCopies::from_peer(stream, &peer(gpu)?)?),
        Kind::KernelLaunches => Box::new(Launches::new(stream)?),
    })
}

fn products(stream: &Stream, precision: Precision) -> Result<Box<dyn Timed>, CudaError> {
    let (major, minor) = stream.gpu().facts().compute_capability;
    if !precision.is_in_hardware((major, minor)) {
        return Err(CudaError::NotSupported(format!("compute capability {major}.{minor} has no {precision}")));
    }
    Ok(Box::new(Products::new(stream, &Blas::new(stream)?, precision)?))
}

/// Opens the next GPU; the first GPU follows the last.
fn peer(gpu: &Gpu) -> Result<Gpu, CudaError> {
    let devices = Driver::open()?.devices()?;
    if devices.len() < 2 {
        return Err(CudaError::NotSupported("there is one GPU".to_owned()));
    }
    let at = devices.iter().position(|facts| facts.ordinal == gpu.facts().ordinal).unwrap_or(0);
    Gpu::open(devices[(at + 1) % devices.len()].ordinal)
}

#[cfg(test)]
mod tests {
    use super::super::{Ceiling, WallClock};
    use super::*;

    /// Has not run yet.
    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_gpu_is_measured_in_time_and_its_numbers_are_in_order() {
        let ceilings = measure(0, "test", &WallClock::default(), &mut |_| ()).unwrap();
        assert!(ceilings.elapsed_s < 30.0, "{}", ceilings.elapsed_s);
        let rate = |kind| ceilings.measured.get(&kind).map(|ceiling: &Ceiling| ceiling.median);
        let bf16 = rate(Kind::MatmulBf16).unwrap();
        assert!(bf16 > rate(Kind::MatmulFp32).unwrap());
        assert!(rate(Kind::HostToDevicePinned).unwrap() >= 0.8 * rate(Kind::HostToDevicePageable).unwrap());
        assert!(rate(Kind::DeviceMemory).unwrap() > rate(Kind::HostToDevicePinned).unwrap());
    }

    #[test]
    fn without_a_driver_it_says_so() {
        if Driver::open().is_err() {
            assert!(measure(0, "none", &WallClock::default(), &mut |_| ()).is_err());
        }
    }
}
