//! Ctrl-C: once to stop and keep everything, twice to stop now.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A flag that is set at the first SIGINT, SIGTERM or SIGHUP; the second ends the program at once.
///
/// The probe's supervisor notices that and ends its charges.
pub(super) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let stop = Arc::clone(&flag);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            if stop.swap(true, Ordering::Relaxed) {
                leave();
            }
        }
    })?;
    Ok(flag)
}

#[expect(clippy::exit, reason = "the second signal means now: no destructor may wait for a probe")]
fn leave() {
    std::process::exit(130)
}
