//! A small but genuine training job on the CPU: PNG files, loader threads, a convolutional network.
//!
//! The job needs no GPU and no Python. It is real in the three settings that the tool searches:
//!
//! * The batch size trades the update of all parameters, paid once per step, against the cache misses of large activations.
//! * The workers are threads that read, decode and augment real files, so they compete with the training thread for cores.
//! * The precision is the storage type of parameters, momentum, gradients, activations and batches.

mod loader;
mod network;
mod options;
mod pictures;
mod storage;
mod trainer;

pub use options::{DemoError, DemoOptions, Precision};
pub use storage::DemoMemory;
pub use trainer::{DemoStep, DemoTrainer, DemoTraining};
