//! What the machine is and how its memory fares; read only, every field optional.

mod device;
mod host;

pub use device::Device;
pub use host::{HostMemory, resident_bytes};
