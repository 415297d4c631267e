//! Measures the ceilings of a GPU. Has not run on a GPU yet.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cudarc::driver::{CudaContext, CudaStream};

use super::rig::{DeviceCopies, Host, HostCopies, Launches, Products, words};
use super::{Ceilings, Clock, FORMAT, KINDS, Kind, Timed, schedule};
use crate::machine::foreign::cuda::{self, CudaError, DeviceFacts};
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
    let facts = cuda::devices()?.into_iter().find(|facts| facts.ordinal == ordinal).ok_or(CudaError::NoDevice)?;
    let stream = open(ordinal)?;
    let mut ready = |kind| {
        heard(kind);
        prepare(&stream, &facts, kind).map_err(words)
    };
    let (measured, absent) = schedule::all(KINDS.iter().map(|(kind, ..)| *kind), LIMIT, clock, &mut ready, &|| {
        stream.synchronize().is_err()
    });
    Ok(Ceilings {
        format: FORMAT,
        uuid: facts.uuid,
        name: facts.name,
        driver: driver.to_owned(),
        gputune_version: env!("CARGO_PKG_VERSION").to_owned(),
        measured_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        elapsed_s: clock.now() - start,
        measured,
        absent,
    })
}

/// Opens a device. Its default stream spares the events by which cudarc orders several streams.
fn open(ordinal: i32) -> Result<Arc<CudaStream>, CudaError> {
    let ordinal = usize::try_from(ordinal).map_err(|_| CudaError::NoDevice)?;
    Ok(CudaContext::new(ordinal)?.default_stream())
}

fn prepare(stream: &Arc<CudaStream>, facts: &DeviceFacts, kind: Kind) -> Result<Box<dyn Timed>, CudaError> {
    type Make<'m> = &'m dyn Fn(usize) -> Result<Host, CudaError>;
    let pinned = |bytes| cuda::pinned(stream.context(), bytes);
    let host = |make: Make<'_>| -> Result<Box<dyn Timed>, CudaError> { Ok(Box::new(HostCopies::new(stream, make)?)) };
    Ok(match kind {
        Kind::MatmulFp32 => products(stream, facts, Precision::Fp32)?,
        Kind::MatmulTf32 => products(stream, facts, Precision::Tf32)?,
        Kind::MatmulBf16 => products(stream, facts, Precision::Bf16)?,
        Kind::MatmulFp16 => products(stream, facts, Precision::Fp16)?,
        Kind::MatmulFp8 => products(stream, facts, Precision::Fp8)?,
        Kind::DeviceMemory => Box::new(DeviceCopies::within(stream)?),
        Kind::HostToDevicePinned => host(&|bytes| Ok(Host::PinnedUp(pinned(bytes)?)))?,
        Kind::HostToDevicePageable => host(&|bytes| Ok(Host::Pageable(vec![1; bytes])))?,
        Kind::DeviceToHostPinned => host(&|bytes| Ok(Host::PinnedDown(pinned(bytes)?)))?,
        Kind::PeerToPeer => Box::new(DeviceCopies::from_peer(stream, &peer(facts)?)?),
        Kind::KernelLaunches => Box::new(Launches::new(stream)?),
    })
}

fn products(stream: &Arc<CudaStream>, facts: &DeviceFacts, precision: Precision) -> Result<Box<dyn Timed>, CudaError> {
    let (major, minor) = facts.compute_capability;
    if !precision.is_in_hardware((major, minor)) {
        return Err(CudaError::NotSupported(format!("compute capability {major}.{minor} has no {precision}")));
    }
    Ok(Box::new(Products::new(stream, precision)?))
}

/// Opens the next GPU; the first GPU follows the last.
fn peer(facts: &DeviceFacts) -> Result<Arc<CudaStream>, CudaError> {
    let devices = cuda::devices()?;
    if devices.len() < 2 {
        return Err(CudaError::NotSupported("there is one GPU".to_owned()));
    }
    let at = devices.iter().position(|other| other.ordinal == facts.ordinal).unwrap_or(0);
    open(devices[(at + 1) % devices.len()].ordinal)
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
        if cuda::devices().is_err() {
            assert!(measure(0, "none", &WallClock::default(), &mut |_| ()).is_err());
        }
    }
}
