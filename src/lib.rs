#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![warn(clippy::unwrap_used)]

#[cfg(feature = "demo")]
pub mod demo;
pub mod diagnosis;
pub mod init;
pub mod machine;
pub mod model;
pub mod probe;
pub mod report;
pub mod search;
pub mod spec;

#[doc(inline)]
pub use model::{Objective, Parameter, Settings, Space};
#[doc(inline)]
pub use probe::{Step, StepError, TrainingStep};
#[doc(inline)]
pub use search::{Budget, Study, Tuner};

/// The pages of the documentation with Rust code. Doctests run this code, as they run the code in the README.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/protocol.md")]
    mod protocol {}
    #[doc = include_str!("../docs/rust.md")]
    mod rust {}
}
