//! A small but genuine training job on the CPU: PNG files, loader threads, a convolutional network.
//!
//! The job needs no GPU and no Python. It is real in the three settings that the tool searches:
//!
//! * The batch size trades the update of all parameters, paid once per step, against the cache misses of large activations.
//! * The workers are threads that read, decode and augment real files, so they compete with the training thread for cores.
//! * The precision is the storage type of parameters, momentum, gradients, activations and batches.

mod error;
mod images;
mod layer;
mod loader;
mod memory;
mod network;
mod options;
mod sample;
mod scalar;
mod shape;
mod trainer;
mod training;

pub use error::DemoError;
pub use memory::DemoMemory;
pub use options::{DemoOptions, Precision};
pub use trainer::{DemoStep, DemoTrainer};
pub use training::DemoTraining;
