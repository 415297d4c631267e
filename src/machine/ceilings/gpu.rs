//! Measures the ceilings of a GPU within a time limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cudarc::driver::{CudaContext, CudaStream};

use super::rig::{device_copies, host_copies, launches, products, words};
use super::{Ceiling, Ceilings, FORMAT, KINDS, Kind, Pace, Timed, sample};
use crate::machine::foreign::cuda::{self, CudaError, DeviceFacts};
use crate::model::Precision;

/// The time on the clock, in seconds, at which measuring ends. Kinds that do not fit are left out and reported.
/// `gputune device --bench` may take 30 seconds: the other 3 are for a repetition that has already started.
const LIMIT: f64 = 27.0;
/// The seconds that the preparation of a kind usually takes: an assumption. On an H100 all kinds together took 17 s.
const PREPARATION: f64 = 0.4;
/// The seconds that are kept free for the preparation of a kind and for its last repetition: a round number.
const RESERVE: f64 = 1.5;
/// The shortest time for the measurement of a kind, in seconds: a round number.
const SHORTEST: f64 = 0.6;
const OVER: &str = "the time for measuring was over";

/// Measures the GPU with CUDA's number `ordinal` until `clock` shows 27 seconds; the clock started with the command.
/// The ceilings are stored under `driver`, the driver's version. `heard` is called at the start of each kind.
///
/// # Errors
/// The GPU cannot be used at all. If only some kinds fail, they are in `absent`.
pub fn measure(
    ordinal: i32,
    driver: &str,
    clock: &dyn Fn() -> f64,
    heard: &mut dyn FnMut(Kind),
) -> Result<Ceilings, CudaError> {
    let start = clock();
    let facts = cuda::devices()?.into_iter().find(|facts| facts.ordinal == ordinal).ok_or(CudaError::NoDevice)?;
    let stream = open(ordinal)?;
    let mut ready = |kind| {
        heard(kind);
        prepare(&stream, &facts, kind).map_err(words)
    };
    let (measured, absent) = all(clock, &mut ready, &|| stream.synchronize().is_err());
    Ok(Ceilings {
        format: FORMAT,
        uuid: facts.uuid,
        name: facts.name,
        driver: driver.to_owned(),
        gputune_version: env!("CARGO_PKG_VERSION").to_owned(),
        measured_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        elapsed_s: clock() - start,
        measured,
        absent,
    })
}

/// Opens a device and its default stream. With one stream, cudarc needs no events that order streams.
fn open(ordinal: i32) -> Result<Arc<CudaStream>, CudaError> {
    let ordinal = usize::try_from(ordinal).map_err(|_| CudaError::NoDevice)?;
    Ok(CudaContext::new(ordinal)?.default_stream())
}

fn prepare(stream: &Arc<CudaStream>, facts: &DeviceFacts, kind: Kind) -> Result<Timed<'static>, CudaError> {
    let pinned = |bytes| cuda::pinned(stream.context(), bytes);
    let precision = match kind {
        // Within a device, a byte is read and written in the same memory and counts twice.
        Kind::DeviceMemory => return device_copies(stream, stream, 2.0),
        Kind::PeerToPeer => return device_copies(stream, &peer(stream, facts)?, 1.0),
        Kind::HostToDevicePinned => {
            return host_copies(stream, pinned, |stream, from, to| stream.memcpy_htod(from, to));
        }
        Kind::HostToDevicePageable => {
            let ordinary = |bytes| Ok(vec![1_u8; bytes]);
            return host_copies(stream, ordinary, |stream, from, to| stream.memcpy_htod(from, to));
        }
        Kind::DeviceToHostPinned => {
            return host_copies(stream, pinned, |stream, to, from| stream.memcpy_dtoh(from, to));
        }
        Kind::KernelLaunches => return launches(stream),
        Kind::MatmulFp32 => Precision::Fp32,
        Kind::MatmulTf32 => Precision::Tf32,
        Kind::MatmulBf16 => Precision::Bf16,
        Kind::MatmulFp16 => Precision::Fp16,
        Kind::MatmulFp8 => Precision::Fp8,
    };
    let (major, minor) = facts.compute_capability;
    if !precision.is_in_hardware((major, minor)) {
        return Err(CudaError::NotSupported(format!("compute capability {major}.{minor} has no {precision}")));
    }
    products(stream, precision)
}

/// Opens the GPU that follows this GPU in CUDA's order, and its way to this GPU's memory; the first GPU follows the last.
fn peer(stream: &CudaStream, facts: &DeviceFacts) -> Result<Arc<CudaStream>, CudaError> {
    let devices = cuda::devices()?;
    if devices.len() < 2 {
        return Err(CudaError::NotSupported("there is one GPU".to_owned()));
    }
    let at = devices.iter().position(|other| other.ordinal == facts.ordinal).unwrap_or(0);
    let peer = open(devices[(at + 1) % devices.len()].ordinal)?;
    cuda::reach(stream.context(), peer.context())?;
    Ok(peer)
}

/// Measures all kinds until the clock shows [`LIMIT`]. If time is short, each kind gets less time, or is absent.
///
/// After a failure, `is_lost` checks if the GPU is still usable. After an error in a kernel, every later call of the
/// process returns the same error (CUDA driver API reference, `CUresult`).
fn all<'w>(
    clock: &dyn Fn() -> f64,
    prepare: &mut dyn FnMut(Kind) -> Result<Timed<'w>, String>,
    is_lost: &dyn Fn() -> bool,
) -> (BTreeMap<Kind, Ceiling>, BTreeMap<Kind, String>) {
    let (mut measured, mut absent) = (BTreeMap::new(), BTreeMap::new());
    let mut lost: Option<Kind> = None;
    for (at, &(kind, ..)) in KINDS.iter().enumerate() {
        if let Some(first) = lost {
            absent.insert(kind, format!("the GPU's context was lost in measuring {}", first.label()));
            continue;
        }
        match one(KINDS.len() - at, clock, || prepare(kind)) {
            Ok(ceiling) => drop(measured.insert(kind, ceiling)),
            Err(reason) => {
                lost = (reason != OVER && is_lost()).then_some(kind);
                absent.insert(kind, reason);
            }
        }
    }
    (measured, absent)
}

fn one<'w>(
    kinds_left: usize,
    clock: &dyn Fn() -> f64,
    prepare: impl FnOnce() -> Result<Timed<'w>, String>,
) -> Result<Ceiling, String> {
    let left = LIMIT - clock();
    let share = (left - RESERVE) / kinds_left as f64 - PREPARATION;
    let mut pace = Pace::default();
    pace.limit = share.clamp(SHORTEST, pace.limit);
    if left < pace.limit + RESERVE {
        return Err(OVER.to_owned());
    }
    let work = prepare()?;
    pace.limit = pace.limit.min(LIMIT - clock());
    if pace.limit < SHORTEST / 2.0 {
        return Err(OVER.to_owned());
    }
    sample(work, pace, clock)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FakeClock, fake_work};
    use super::super::wall_clock;
    use super::*;

    /// This test has not been run on a GPU yet.
    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_gpu_is_measured_in_time_and_its_numbers_are_in_order() {
        let ceilings = measure(0, "test", &wall_clock(), &mut |_| ()).unwrap();
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
            assert!(measure(0, "none", &wall_clock(), &mut |_| ()).is_err());
        }
    }

    /// Returns the end time and the number of measured kinds. `looked` is the time on the clock when measuring starts;
    /// `preparation` and `repetition` are the seconds that each takes.
    fn ended(looked: f64, preparation: f64, repetition: f64) -> (f64, usize) {
        let clock = FakeClock::default();
        clock.pass(looked);
        let mut prepare = |_| {
            clock.pass(preparation);
            Ok(fake_work(&clock, move || Ok(repetition)))
        };
        let (measured, absent) = all(&|| clock.now(), &mut prepare, &|| false);
        assert_eq!(measured.len() + absent.len(), KINDS.len());
        assert!(absent.values().all(|reason| reason == OVER), "{absent:?}");
        (clock.now(), measured.len())
    }

    #[test]
    fn it_ends_in_time_whatever_takes_long() {
        assert_eq!(ended(1.0, 0.3, 1e-4).1, KINDS.len());
        assert_eq!(ended(12.0, 0.3, 1e-4).1, KINDS.len(), "all get less time");
        for looked in [0.0, 10.0, 24.0, 26.9, 40.0] {
            for preparation in [0.0, 0.5, 2.0] {
                for repetition in [1e-5, 0.02, 0.5] {
                    let (end, _) = ended(looked, preparation, repetition);
                    assert!(end < 30.0_f64.max(looked + 0.1), "{looked} {preparation} {repetition}: {end}");
                }
            }
        }
        assert_eq!(ended(26.0, 0.0, 1e-4).1, 0);
    }

    #[test]
    fn after_an_error_that_stays_the_kinds_that_follow_name_the_one_that_failed() {
        let failing = KINDS[2].0;
        for is_lost in [true, false] {
            let clock = FakeClock::default();
            let mut prepare = |kind: Kind| match kind {
                _ if kind == failing => Err("an illegal address".to_owned()),
                _ => Ok(fake_work(&clock, || Ok(1e-4))),
            };
            let (measured, mut absent) = all(&|| clock.now(), &mut prepare, &|| is_lost);
            assert_eq!(measured.len(), if is_lost { 2 } else { KINDS.len() - 1 });
            assert_eq!(absent.remove(&failing).unwrap(), "an illegal address");
            assert!(absent.values().all(|reason| reason.contains("was lost in measuring")), "{absent:?}");
        }
    }
}
