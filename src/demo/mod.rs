//! A small but genuine training job: PNG files, loader threads, a convolutional network.
//!
//! The job runs on any CPU, without a GPU and without Python. It is real in the three settings that the tool searches:
//!
//! * The batch size trades the update of all parameters, paid once per step, against the cache misses of large activations.
//! * The workers are threads that read, decode and augment real files, so they compete with the training thread for cores.
//! * The precision is the storage type of parameters, momentum, gradients, activations and batches.

mod augment;
mod batch;
mod columns;
mod data_set;
mod decode;
mod engine;
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

pub use engine::DemoStep;
pub use error::DemoError;
pub use memory::DemoMemory;
pub use options::DemoOptions;
pub use precision::Precision;
pub use trainer::DemoTrainer;
pub use training::DemoTraining;
