//! The causes that a diagnosis knows: one row for each, those of a kind in one file.

mod data;
mod device;
mod host;
mod loader;
mod memory;
mod ranks;

use super::cause::Cause;

/// All causes, by what they are about.
pub fn causes() -> impl Iterator<Item = &'static Cause> {
    data::CAUSES
        .iter()
        .chain(&loader::CAUSES)
        .chain(&host::CAUSES)
        .chain(&memory::CAUSES)
        .chain(&device::CAUSES)
        .chain(&ranks::CAUSES)
}

/// The cause of this name.
pub fn cause(name: &str) -> Option<&'static Cause> {
    causes().find(|cause| cause.name == name)
}
