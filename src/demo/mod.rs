//! A small but genuine training job: PNG files, loader threads, a convolutional network.
//!
//! The job runs on any processor, without GPU and without Python, and it is real in the three
//! settings that the tool searches:
//!
//! * the batch size trades the update of all parameters, paid once per step, against the cache
//!   misses of large activations;
//! * the workers are threads that read, decode and augment real files, so they compete with the
//!   training thread for cores;
//! * the precision is the type in which parameters, momentum, gradients, activations and batches
//!   lie in memory.

mod augment;
mod batch;
mod columns;
mod data_set;
mod decode;
mod error;
mod layer;
mod loader;
mod machine;
mod matrix;
mod memory;
mod network;
mod options;
mod order;
mod parameters;
mod picture;
mod precision;
mod publish;
mod scalar;
#[cfg(test)]
mod scratch;
mod shape;
mod softmax;
mod trainer;
mod training;
mod workers;

pub use error::DemoError;
pub use memory::DemoMemory;
pub use options::DemoOptions;
pub use precision::Precision;
pub use trainer::{DemoStep, DemoTrainer};
pub use training::DemoTraining;
