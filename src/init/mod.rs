//! A first spec for a script: what can be set, how, and what it is today.
//!
//! [`help`] reads what a script prints for `--help`, [`Source`] reads its text; neither runs it. [`preset`] says which framework it
//! is, [`plan`] decides what is searched and how it reaches the script, and [`draft`] writes the spec.

mod argument;
mod calls;
mod command;
pub mod deepspeed;
pub mod draft;
mod formats;
pub mod help;
pub mod knobs;
mod machine;
pub mod plan;
pub mod preset;
mod required;
mod settings;
mod shipped;
mod source;
mod today;
mod usage;
mod words;

pub use argument::{Argument, Kind};
pub use calls::{Call, calls, literal};
pub use command::{Command, LAUNCHERS, Launcher};
pub use machine::Means;
pub use required::missing;
pub use source::Source;
pub use words::{Unwritable, Words};
