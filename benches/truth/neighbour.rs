//! Somebody else on the same machine: a program that takes one core in bursts of seconds.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// The argument that makes this bench such a program.
pub(super) const BURSTS: &str = "--bursts";

/// Such a program; it ends when this is dropped.
pub(super) struct Neighbour(Child);

impl Neighbour {
    pub(super) fn begin() -> Result<Self> {
        Ok(Self(Command::new(std::env::current_exe()?).arg(BURSTS).stdin(Stdio::null()).spawn()?))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Computes for two to eight seconds, and sleeps as long, for ever.
pub(super) fn take_a_core_in_bursts() -> ! {
    let mut state = 1_u64;
    loop {
        // Knuth's linear congruential generator; its upper bits are drawn well enough for lengths.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = Duration::from_millis(2000 + (state >> 33) % 6000);
        let begin = Instant::now();
        while begin.elapsed() < length {
            std::hint::black_box(state);
        }
        std::thread::sleep(length);
    }
}
