//! Writes a first spec for a script, and the changes to the script for the best config.
//!
//! Start with [`plan`], which decides which parameters are searched and how each reaches the script. [`help`] reads the output of
//! `--help`, and [`Source`] the script's source, which an interpreter parses; neither runs the script. [`preset`] recognises the
//! framework, and [`draft`] writes the spec. [`edits`] names the lines of the script that the best config changes.

mod argument;
mod command;
pub mod deepspeed;
pub mod draft;
pub mod edits;
mod equivalent;
mod flags;
mod formats;
pub mod help;
pub mod hydra;
pub mod knobs;
mod machine;
pub mod plan;
pub mod preset;
mod samples;
mod seen;
pub mod setting_files;
mod settings;
mod shipped;
mod source;
mod template;
mod today;
mod told;
mod usage;
mod words;
mod wrapper;

pub use argument::{Argument, Kind};
pub use command::{Command, LAUNCHERS, Launcher};
pub use machine::Means;
pub use seen::{By, Guess, Match, Seen};
pub use source::{Call, Source, literal};
pub use template::Template;
pub use told::missing;
pub use told::told;
pub use words::{Given, Unwritable, Words, truth};
