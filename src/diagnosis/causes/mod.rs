//! A table of the causes that a diagnosis knows, with one file for each group.

mod data;
mod device;
mod host;
mod larger_batch;
mod loader;
mod memory;
mod ranks;
mod starved;
pub(super) mod tenants;

use super::cause::Cause;

/// Returns all causes, grouped by subject.
pub fn causes() -> impl Iterator<Item = &'static Cause> {
    let about_data = [data::CAUSES, loader::CAUSES, starved::CAUSES];
    let beside_data = [host::CAUSES, tenants::CAUSES, memory::CAUSES, device::CAUSES, ranks::CAUSES];
    about_data.into_iter().chain(beside_data).flatten()
}

/// Returns the cause of this name.
pub fn cause(name: &str) -> Option<&'static Cause> {
    causes().find(|cause| cause.name == name)
}
