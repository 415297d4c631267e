//! Handles Ctrl-C: once to stop and keep everything, twice to stop now.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP sets; the second signal ends the program at once.
///
/// The probe's supervisor notices that end and ends the probe's processes. Signals that were ignored at the start stay ignored:
/// `nohup` ignores SIGHUP, and a shell ignores SIGINT for background commands.
pub(super) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = ignored_signals();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored.contains(signal)))?;
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

/// Makes the first SIGINT, SIGTERM or SIGHUP end this process at once. A container's first process needs this: such signals have
/// no default effect on it (pid_namespaces(7)).
pub(super) fn end_at_once() -> io::Result<()> {
    let ignored = ignored_signals();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored.contains(signal)))?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            leave();
        }
    })?;
    Ok(())
}

/// Returns the signals in the mask `SigIgn` of `/proc/self/status` (proc(5)).
fn ignored_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}

#[expect(clippy::exit, reason = "the second signal means now: no destructor may wait for a probe")]
fn leave() {
    super::live::keys::restore();
    // A stopped supervisor could not notice that its gputune is gone.
    gputune::probe::supervisor::wake_all();
    std::process::exit(130)
}
