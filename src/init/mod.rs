//! Writes a first spec for a script, and the changes to the script for the best config.
//!
//! Start with [`plan`], which decides which parameters are searched and how each reaches the script. [`help`] parses the output of
//! `--help`, and [`Source`] the script's source, by a Python interpreter; neither runs the script. [`preset`] recognises the
//! framework, and [`draft`] writes the spec. [`edits`] names the lines of the script that the best config changes.

mod argument;
mod closed;
mod command;
mod constants;
pub mod deepspeed;
pub mod draft;
pub mod edits;
mod entries;
mod formats;
pub mod help;
pub mod knobs;
mod lines_to_add;
pub mod plan;
pub mod preset;
mod seen;
pub mod setting_files;
mod settings;
mod source;
mod today;
mod words;

pub use argument::{Argument, Kind};
pub use command::{Command, LAUNCHERS, Launcher};
pub use constants::Constant;
pub use lines_to_add::lines_to_add;
pub use seen::{By, Guess, Match, Seen};
pub use setting_files::Template;
pub use settings::Means;
pub use source::{Call, Source, literal};
pub use words::{Given, Unwritable, Words, missing, told, truth};
