#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![warn(clippy::unwrap_used)]

pub mod adapter;
pub mod arrival;
pub mod budget;
pub mod ceilings;
#[cfg(feature = "demo")]
pub mod demo;
pub mod diagnosis;
pub mod edits;
pub mod emit;
pub mod environment;
pub mod event;
pub mod fact;
pub(crate) mod foreign;
pub mod init;
pub mod journal;
pub mod kept;
pub mod machine;
pub mod metric;
pub mod numerics;
pub mod objective;
pub mod outcome;
pub mod precision;
pub mod probe;
mod process_table;
pub mod quantity;
pub mod report;
pub mod space;
pub mod spec;
pub mod stats;
pub mod status;
pub mod strategy;
pub mod study;
pub mod telemetry;
pub mod trial;
pub mod tuner;

/// The pages of the documentation with blocks of Rust, whose code is tested like that of the README.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/protocol.md")]
    mod protocol {}
    #[doc = include_str!("../docs/rust.md")]
    mod rust {}
}
