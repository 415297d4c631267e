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
    data::CAUSES
        .iter()
        .chain(&loader::CAUSES)
        .chain(&starved::CAUSES)
        .chain(&host::CAUSES)
        .chain(&tenants::CAUSES)
        .chain(&memory::CAUSES)
        .chain(&device::CAUSES)
        .chain(&ranks::CAUSES)
}

/// Returns the cause of this name.
pub fn cause(name: &str) -> Option<&'static Cause> {
    causes().find(|cause| cause.name == name)
}
