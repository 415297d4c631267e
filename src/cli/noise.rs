//! How far runs of a config are expected to be apart: what earlier searches on this device showed, and what this one adds.

use std::path::Path;

use gputune::machine::Device;
use gputune::search::{NoisePrior, StopReason, Study, kept};

/// Returns what a search begins with. One that goes on keeps what it began with.
pub(super) fn prior(out: &Path, device: &Device, goes_on: bool) -> NoisePrior {
    let begun_with = || kept::noise_prior(out).filter(|_| goes_on);
    let of_device = || NoisePrior::file().map(|file| NoisePrior::of_device(&file, &device.name));
    begun_with().or_else(of_device).unwrap_or(NoisePrior::RATE)
}

/// Keeps what a finished search showed. Where that is not possible, the next search begins with less knowledge, which is no
/// reason to disturb anybody.
pub(super) fn keep(study: &Study, device: &Device) {
    let is_over = !matches!(study.stopped, StopReason::Interrupted | StopReason::Running);
    let shown = study.shown_between_runs().filter(|_| is_over);
    if let Some(((between_runs, repetitions), file)) = shown.zip(NoisePrior::file()) {
        let repetitions = u32::try_from(repetitions).unwrap_or(u32::MAX);
        let _ = NoisePrior::keep(&file, &device.name, between_runs, repetitions);
    }
}
